"""What the relay asks of GitHub, as a small Protocol and its values. No I/O and no HTTP library here.

Failures are the exceptions of ``relay.github.errors``; each method may raise any of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from allowlist.model import RepoName
from relay.github.observed import FoundRun, JobObserved, PullObserved, Rerunning, Role, RunObserved

#: GitHub's bounds, https://docs.github.com/rest/checks/runs, https://docs.github.com/rest/repos/repos and
#: https://docs.github.com/rest/issues/comments
MAX_EVENT_TYPE = 100
MAX_CLIENT_PAYLOAD = 65_535
MAX_CHECK_TEXT = 65_535
MAX_CHECK_ACTIONS = 3
MAX_COMMENT = 65_536


@dataclass(frozen=True, slots=True)
class Address:
    """What we know of where a repository lives. The ids are None until GitHub has told them once."""

    repo: RepoName
    repository_id: int | None = None
    installation_id: int | None = None


@dataclass(frozen=True, slots=True)
class Located:
    """GitHub's own answer when a token was minted: whose repository this is. Ids are what survives a rename."""

    installation_id: int
    repository_id: int
    owner_id: int
    private: bool
    full_name: RepoName
    default_branch: str | None = None
    archived: bool = False


class CheckStatus(StrEnum):
    """How far a check run is."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class CheckConclusion(StrEnum):
    """How a completed check run ended. ``stale`` is missing: only GitHub sets it."""

    ACTION_REQUIRED = "action_required"
    CANCELLED = "cancelled"
    FAILURE = "failure"
    NEUTRAL = "neutral"
    SUCCESS = "success"
    SKIPPED = "skipped"
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True)
class CheckAction:
    """A button on a check run. A press comes back as ``check_run.requested_action`` with the identifier."""

    label: str
    description: str
    identifier: str

    def __post_init__(self) -> None:
        for field, text, most in (
            ("label", self.label, 20),
            ("description", self.description, 40),
            ("identifier", self.identifier, 20),
        ):
            if not 1 <= len(text) <= most:
                raise ValueError(f"a check action's {field} has 1 to {most} characters, got {len(text)}: {text[:60]!r}")


@dataclass(frozen=True, slots=True)
class CheckRunWrite:
    """The whole wanted state of one check run.

    Raises ValueError for a state that GitHub would refuse or silently change: a conclusion without completion (it
    would complete the run), completion without a conclusion, or more than three actions.
    """

    name: str
    head_sha: str
    status: str
    conclusion: str | None
    title: str
    summary: str
    text: str
    details_url: str | None
    external_id: str
    started_at: datetime | None
    completed_at: datetime | None
    actions: tuple[CheckAction, ...] = ()

    def __post_init__(self) -> None:
        CheckStatus(self.status)
        if self.conclusion is not None:
            CheckConclusion(self.conclusion)
        if (self.status == CheckStatus.COMPLETED) != (self.conclusion is not None):
            raise ValueError(
                f"a check run has a conclusion exactly when it is completed, got {self.status} and {self.conclusion}"
            )
        if len(self.actions) > MAX_CHECK_ACTIONS:
            raise ValueError(f"a check run has at most {MAX_CHECK_ACTIONS} actions, got {len(self.actions)}")


@dataclass(frozen=True, slots=True)
class ChangedPaths:
    """The paths a change touches, old names of moved files included. Not complete: there may be more."""

    paths: tuple[str, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class FileVersion:
    """A file's bytes at one ref, and the ETag by which the next look is free if nothing changed."""

    text: bytes
    etag: str | None


@dataclass(frozen=True, slots=True)
class CheckRunFound:
    """A check run as GitHub lists it. ``conclusion`` is None while it is open."""

    id: int
    status: str
    conclusion: str | None


class GitHub(Protocol):
    """All that the relay does at GitHub while it works."""

    async def locate(self, at: Address, *, fresh: bool = False) -> Located:
        """Say where the repository lives, by minting a token for it or from one that is still good.

        ``fresh``: as it is now, and not as it was when such a token was minted, up to an hour ago.
        """
        ...

    async def dispatch(self, to: Address, event_type: str, client_payload: bytes) -> Located:
        """Send one ``repository_dispatch``; ``client_payload`` is ready JSON text. Never repeated in here."""
        ...

    async def find_run(self, of: Address, delivery_id: str, since: datetime) -> bool | None:
        """Did a dispatch start a run that carries this delivery id in its name? None: we may not look."""
        ...

    async def create_check_run(self, on: Address, check: CheckRunWrite) -> int:
        """Create a check run and return its id. After an ambiguous failure ask ``find_check_runs`` first."""
        ...

    async def update_check_run(self, on: Address, check_run_id: int, check: CheckRunWrite) -> None:
        """Make this check run show exactly ``check``. Safe to repeat."""
        ...

    async def find_check_runs(
        self, on: Address, head_sha: str, name: str, external_id: str
    ) -> tuple[CheckRunFound, ...]:
        """The check runs of ours with that name and external id on that commit, the newest first."""
        ...

    async def changed_paths(self, of: Address, number: int) -> ChangedPaths:
        """The paths that a pull request changes; incomplete from GitHub's 3,000 files on."""
        ...

    async def compare_paths(self, of: Address, base: str, head: str) -> ChangedPaths:
        """The paths that differ from ``base`` to ``head``; incomplete from 300 files on or after a rewrite."""
        ...

    async def read_file(self, of: Address, path: str, ref: str | None, etag: str | None) -> FileVersion | None:
        """The file at ``ref`` (None: the default branch), or None if it still is what ``etag`` stands for."""
        ...

    async def contains_commit(self, of: Address, sha: str, branches: Sequence[str] = ()) -> bool:
        """Is the commit the head or an ancestor of the default branch or of one of ``branches``?

        A fork's commit answers at its parent's commit endpoint too, so only the branches prove where it belongs.
        """
        ...

    async def tree_of(self, at: Address, sha: str) -> str:
        """The id of the commit's git tree: two commits with the same tree hold the same files."""
        ...

    async def role_of(self, at: Address, login: str) -> Role:
        """What this person may do there, by GitHub's ``role_name``; NONE for bots and for whoever does not exist.

        A role of the organization's own making counts as the highest built-in one that ``user.permissions`` grants it
        without a gap below, admin excepted; where GitHub grants none there, it counts as NONE.
        """
        ...

    async def create_comment(self, on: Address, number: int, body: str) -> int:
        """Comment on a pull request; the comment's id. After an ambiguous failure ask ``find_comment`` first.

        A text beyond GitHub's limit is cut at its end, so a marker belongs at its start.
        """
        ...

    async def update_comment(self, on: Address, comment_id: int, body: str) -> None:
        """Make this comment say exactly ``body``, cut alike. Safe to repeat. Invalid (not_found): it was deleted."""
        ...

    async def find_comment(self, on: Address, number: int, marker: str, since: datetime | None = None) -> int | None:
        """The newest comment of ours on a pull request whose text contains ``marker``, among its newest 1,000.

        ``since`` leaves out those that were last changed before, which saves calls where many people talk.
        """
        ...

    async def pull(self, at: Address, number: int) -> PullObserved:
        """The pull request as it is now."""
        ...

    async def pulls_of_commit(self, at: Address, sha: str) -> tuple[int, ...]:
        """The open pull requests whose head is this commit, by number; none where GitHub does not know the commit."""
        ...

    async def find_runs(self, at: Address, since: datetime, event: str = "repository_dispatch") -> tuple[FoundRun, ...]:
        """The runs that ``event`` has started since then, newest first, at most 1,000.

        Raises Forbidden where we may not look or Actions are off.
        """
        ...

    async def observe_run(self, at: Address, run_id: str, attempt: int, etag: str | None) -> RunObserved | None:
        """One attempt of a run, or None if it still is what ``etag`` stands for. Invalid (not_found): there is none."""
        ...

    async def observe_jobs(self, at: Address, run_id: str, attempt: int) -> tuple[JobObserved, ...]:
        """The jobs of one attempt, at most 1,000; a partial rerun lists those it carries over from before, too."""
        ...

    async def rerun_run(self, at: Address, run_id: str) -> Rerunning:
        """Run all jobs of a run again. Needs actions write, which is optional: Forbidden (missing_permission).

        After an ambiguous failure ask ``observe_run`` for the next attempt first.
        """
        ...

    async def rerun_failed_jobs(self, at: Address, run_id: str) -> Rerunning:
        """Run a run's failed jobs again, and those that depend on them; otherwise like ``rerun_run``."""
        ...

    async def cancel_run(self, at: Address, run_id: str) -> bool:
        """Ask GitHub to cancel a run: True if it will, False if the run was over or is gone. Safe to repeat.

        Needs actions write, which is optional: Forbidden (missing_permission).
        """
        ...

    async def aclose(self) -> None:
        """Close all connections. The object cannot be used afterwards."""
        ...
