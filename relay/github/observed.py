"""What GitHub shows of runs, jobs, pull requests and people, as values. No I/O and no HTTP library here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum, IntEnum


class Role(IntEnum):
    """What a person may do in a repository, in GitHub's order: compare with ``>=``.

    https://docs.github.com/organizations/managing-user-access-to-your-organizations-repositories/managing-repository-roles/repository-roles-for-an-organization
    """

    NONE = 0
    READ = 1
    TRIAGE = 2
    WRITE = 3
    MAINTAIN = 4
    ADMIN = 5


class Rerun(Enum):
    """What became of asking GitHub to run a run again."""

    STARTED = "started"
    RUNNING = "running"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True, slots=True)
class Rerunning:
    """The answer to a rerun. ``reason`` says in GitHub's words why it is impossible, and is empty otherwise.

    RUNNING means that an attempt is under way already, so there is nothing to do but wait. IMPOSSIBLE means that this
    run will not run again (too old, run too often, gone, nothing failed in it): dispatch anew.
    """

    outcome: Rerun
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FoundRun:
    """One run in a listing, in its newest attempt. ``title`` is its ``run-name`` where its workflow sets one."""

    run_id: str
    title: str
    status: str
    conclusion: str | None
    run_attempt: int
    path: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class RunObserved:
    """One attempt of a run as GitHub has it. ``path`` is the workflow file's, without the ref.

    ``status`` and ``conclusion`` are GitHub's words; ``conclusion`` is None until the attempt is completed.
    """

    run_id: str
    run_attempt: int
    status: str
    conclusion: str | None
    path: str
    event: str
    head_sha: str
    title: str
    created_at: datetime
    updated_at: datetime
    etag: str | None


@dataclass(frozen=True, slots=True)
class JobObserved:
    """One job of an attempt. ``job_id`` is the id of its check run too, which a callback may have told."""

    job_id: int
    name: str
    status: str
    conclusion: str | None
    started_at: datetime | None
    completed_at: datetime | None


@dataclass(frozen=True, slots=True)
class PullObserved:
    """A pull request as GitHub has it now. ``state`` is open or closed; ``author`` is empty where the account is gone.

    ``base_ref`` is a branch's name without ``refs/heads/``.
    """

    number: int
    state: str
    title: str
    head_sha: str
    base_ref: str
    base_sha: str
    labels: tuple[str, ...]
    author: str
    author_association: str
    draft: bool
    merged: bool
    html_url: str
    created_at: datetime
    updated_at: datetime
