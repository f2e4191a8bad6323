"""What the store knows of the thread an event belongs to: the other half, beside the event, of what a plan looks at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from allowlist.model import RepoName


@dataclass(frozen=True, slots=True)
class KnownHead:
    """A head of the same pull request or ref, as the store has it."""

    id: int
    head_sha: str
    state: str
    updated_at: datetime
    labels: tuple[str, ...] = ()
    came_from: str | None = None  # The head that it replaced, as its newest payload says.
    action: str | None = None  # Of the payload that describes it: opened, synchronize and the like.
    payload_delivery: str | None = None


@dataclass(frozen=True, slots=True)
class KnownDispatch:
    """A dispatch of this head, or an unsent one of another head of the thread."""

    id: int
    head_sha: str
    backend: RepoName
    purpose: str
    state: str
    reason_code: str
    every_commit: bool = False


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A live test dispatch of the same commit to the same backend, caused by a push of another ref."""

    id: int
    backend: RepoName
    ref: str
    state: str


@dataclass(frozen=True, slots=True)
class Known:
    """What the store knows of the thread that an event belongs to, and of the backends."""

    heads: tuple[KnownHead, ...] = ()
    dispatches: tuple[KnownDispatch, ...] = ()
    elsewhere: tuple[Elsewhere, ...] = ()
    paused: Mapping[RepoName, str] = field(default_factory=lambda: MappingProxyType({}))  # Why, by backend.
