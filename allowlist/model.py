"""What an allowlist says, as values: who is told of upstream's events, and on what terms.

Nothing here reads a file or knows a clock. Text becomes these values in ``allowlist.parse``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Self

# GitHub's own bounds: an owner has at most 39 characters, letters, digits and single hyphens; a repository at most
# 100 of letters, digits, hyphens, underscores and dots. "." and ".." are refused since they would change a URL's path.
# Enterprise managed users carry one underscore before their short code (name_code).
_OWNER = re.compile(r"[a-z0-9][a-z0-9_-]{0,38}", re.ASCII)
_NAME = re.compile(r"(?!\.{1,2}\Z)[a-z0-9._-]{1,100}", re.ASCII)


class Level(IntEnum):
    """How far a backend is trusted; what a level permits stands in ``levels.powers``."""

    L1 = 1
    L2 = 2
    L3 = 3
    L4 = 4

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, order=True, slots=True)
class RepoName:
    """A repository's ``owner/name``, in lower case, because GitHub compares names without case."""

    owner: str
    name: str

    def __post_init__(self) -> None:
        if not _OWNER.fullmatch(self.owner) or not _NAME.fullmatch(self.name):
            raise ValueError(f"expected owner/name, got {self.owner + '/' + self.name!r}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``owner/name`` in any case. Raises ValueError, naming the text, for anything else."""
        owner, slash, name = text.strip().lower().partition("/")
        if not slash or "/" in name:
            raise ValueError(f"expected owner/name, got {text!r}")
        return cls(owner, name)

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}"


class OnSilence(StrEnum):
    """What a backend that never answers does to the gate."""

    STEP_DOWN = "neutral"
    BLOCK = "block"


#: What an entry may ask for. The first two are upstream's own and the default; production's ``pull_request`` means
#: both of them. The others are sent only to entries that name them.
EVENTS = frozenset({"pull_request", "push", "merge_group", "landed", "nightly", "periodic", "bisect", "debug"})
DEFAULT_EVENTS = frozenset({"pull_request", "push"})
ACTIONS = frozenset(
    {"opened", "reopened", "synchronize", "closed", "labeled", "unlabeled", "edited", "ready_for_review"}
)
DEFAULT_ACTIONS = frozenset({"opened", "reopened", "synchronize", "closed"})
AUTHOR_ASSOCIATIONS = frozenset(
    {
        "COLLABORATOR",
        "CONTRIBUTOR",
        "FIRST_TIMER",
        "FIRST_TIME_CONTRIBUTOR",
        "MANNEQUIN",
        "MEMBER",
        "NONE",
        "OWNER",
    }
)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a backend may take: to start, counted from our 204, and to finish, counted from its first start."""

    queue: timedelta = timedelta(hours=2)
    run: timedelta = timedelta(hours=6)


@dataclass(frozen=True, slots=True)
class Entry:
    """One backend on the allowlist. Empty filters let everything through."""

    repo: RepoName
    level: Level
    line: int = 0
    oncalls: tuple[str, ...] = ()
    device: str | None = None
    events: frozenset[str] = DEFAULT_EVENTS
    actions: frozenset[str] = DEFAULT_ACTIONS
    refs: tuple[str, ...] = ()
    base: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    authors: frozenset[str] = frozenset()
    versions: tuple[str, ...] = ()
    timeouts: Timeouts = Timeouts()
    expected_jobs: int | None = None
    workflow: str | None = None
    every_commit: bool = False
    cancel_on_close: bool = False
    legacy: bool = False
    on_silence: OnSilence = OnSilence.STEP_DOWN
    #: The allowlist's own level, while something else has lowered ``level`` for a time.
    lowered_from: Level | None = None

    @property
    def promised(self) -> Level:
        """The level by which it is bound: what is lowered for a time is owed again when that time is over."""
        return self.level if self.lowered_from is None else max(self.level, self.lowered_from)


class Severity(StrEnum):
    """An error keeps its entry out of force; a warning does not."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, order=True, slots=True)
class Fault:
    """Something wrong in the file: where, which rule it breaks, and how to mend it."""

    line: int
    rule: str
    message: str
    fix: str
    severity: Severity = Severity.ERROR

    def render(self, file: str) -> str:
        """The fault as one line that editors and CI logs turn into a link."""
        return f"{file}:{self.line}: {self.severity}: {self.message} ({self.rule}). {self.fix}"


@dataclass(frozen=True)
class Allowlist:
    """All entries in force, in the order of the file, and what was wrong with the others."""

    entries: tuple[Entry, ...] = ()
    faults: tuple[Fault, ...] = ()
    digest: str = ""
    left_out: tuple[tuple[RepoName, str, str], ...] = ()
    """Backends of the list that take no part, so that their entries are not here: with a stable code and a sentence."""

    @cached_property
    def by_repo(self) -> Mapping[RepoName, Entry]:
        """Entries by repository; ``parse`` has already refused duplicates."""
        return {entry.repo: entry for entry in self.entries}

    def without(self, reasons: Mapping[RepoName, tuple[str, str]]) -> Allowlist:
        """The same list, of which these backends take no part, for the reason of this code and sentence."""
        left = tuple((entry.repo, *reasons[entry.repo]) for entry in self.entries if entry.repo in reasons)
        entries = tuple(entry for entry in self.entries if entry.repo not in reasons)
        return replace(self, entries=entries, left_out=(*self.left_out, *left)) if left else self

    def get(self, repo: RepoName) -> Entry | None:
        """The entry of this repository, or None where it is not listed."""
        return self.by_repo.get(repo)
