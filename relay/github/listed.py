"""What GitHub lists of an upstream and of an app's webhook, as values. No I/O and no HTTP library here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from relay.github.observed import PullObserved
from relay.github.port import Address, Located


class Side(StrEnum):
    """Of which app something is asked. Both sides may have the same."""

    UPSTREAM = "upstream"
    BACKENDS = "backends"


@dataclass(frozen=True, slots=True)
class HookDelivery:
    """One try of GitHub's to deliver one webhook. A redelivery is another one with the same ``guid``.

    ``ok`` is GitHub's own verdict, which is all that counts: a receiver that was not reached has no status code.
    """

    delivery_id: int
    guid: str
    event: str
    action: str | None
    repository_id: int | None
    delivered_at: datetime
    redelivery: bool
    ok: bool


@dataclass(frozen=True, slots=True)
class HookDeliveries:
    """One page of deliveries, newest first. ``cursor`` leads to the next, and is None on the last."""

    items: tuple[HookDelivery, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class PullListed:
    """A pull request with all that its webhook would tell. ``head_repo`` is None where the fork is gone."""

    shown: PullObserved
    head_ref: str
    head_repo: str | None
    head_clone_url: str | None
    merge_sha: str | None
    merged: bool


@dataclass(frozen=True, slots=True)
class PullPage:
    """One page of pull requests, the last updated first. ``more`` says whether there may be another."""

    pulls: tuple[PullListed, ...]
    etag: str | None
    more: bool


@dataclass(frozen=True, slots=True)
class BranchHead:
    """The commit that a branch points to."""

    head_sha: str
    message: str
    author: str
    committed_at: datetime | None  # As its maker says; nothing rests on it but who is spared.
    etag: str | None


@dataclass(frozen=True, slots=True)
class RefHead:
    """A ref and the object that it points to."""

    ref: str
    sha: str


class GitHubLists(Protocol):
    """What the relay asks of GitHub to find out what it has not heard of. Failures as in ``relay.github.errors``."""

    def app_id_of(self, side: Side) -> str:
        """The id of the app on this side."""
        ...

    async def locate(self, at: Address) -> Located:
        """See ``relay.github.port.GitHub.locate``."""
        ...

    async def deliveries(self, side: Side, cursor: str | None, count: int = 100) -> HookDeliveries:
        """One page of the webhook deliveries of the last three days, newest first, of the app on this side."""
        ...

    async def redeliver(self, side: Side, delivery_id: int) -> bool:
        """Have a delivery sent again; False where GitHub keeps it no more. Never repeated in here."""
        ...

    async def pulls(self, at: Address, state: str, page: int, etag: str | None = None) -> PullPage | None:
        """One page of pull requests (``open``, ``all``), the last updated first; None if it still is ``etag``'s."""
        ...

    async def pull_listed(self, at: Address, number: int) -> PullListed:
        """One pull request as it is now. Invalid (not_found): it is gone."""
        ...

    async def branch(self, at: Address, name: str, etag: str | None = None) -> BranchHead | None:
        """A branch, or None if it still is ``etag``'s. Invalid (not_found): there is none of this name."""
        ...

    async def refs(self, at: Address, prefix: str) -> tuple[RefHead, ...]:
        """The refs that begin so, without ``refs/`` in front; at most 1,000."""
        ...
