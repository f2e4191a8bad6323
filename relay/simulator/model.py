"""What the simulated GitHub holds: accounts, apps, repositories, commits, pull requests, checks, runs.

These are plain mutable records. They live on the simulator's event loop: only code that runs there changes them.
Other threads may read them; a record is never removed while something still refers to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from relay.simulator.listener import JobPlan, Listener

#: JSON as it travels: this package plays the far side of the wire, so its payloads are mappings by nature.
Json = dict[str, Any]

ZERO_SHA = "0" * 40


@dataclass
class Account:
    """A user or an organization."""

    id: int
    login: str
    type: str = "Organization"


@dataclass
class Commit:
    """One commit. ``tree`` maps every path to its text and is shared with the parent where nothing changed."""

    sha: str
    parents: tuple[str, ...]
    message: str
    author: str
    at: datetime
    tree: Mapping[str, str]

    @cached_property
    def tree_id(self) -> str:
        """The tree's id: commits with equal files have equal ones, whatever led to them."""
        digest = hashlib.sha1(usedforsecurity=False)
        for path, text in sorted(self.tree.items()):
            digest.update(b"%d %d " % (len(path.encode()), len(text.encode())) + path.encode() + text.encode())
        return digest.hexdigest()


@dataclass
class Network:
    """The commits that a repository shares with its forks.

    A fork's commits answer at the parent's commit endpoint, as they do at GitHub.
    https://docs.github.com/en/pull-requests/collaborating-with-pull-requests/working-with-forks/about-permissions-and-visibility-of-forks
    """

    commits: dict[str, Commit] = field(default_factory=dict)


@dataclass(frozen=True)
class RequiredCheck:
    """One required status check of a ruleset. ``integration_id`` None accepts any app's check."""

    context: str
    integration_id: int | None = None


@dataclass
class Label:
    """A label of a pull request."""

    id: int
    name: str


@dataclass
class Comment:
    """An issue comment."""

    id: int
    number: int
    user: Account
    body: str
    created_at: datetime
    updated_at: datetime
    app_id: int | None = None


@dataclass
class Pull:
    """A pull request's state."""

    id: int
    number: int
    title: str
    body: str | None
    author: Account
    author_association: str
    base_ref: str
    base_sha: str
    head_repo: Repository
    head_ref: str
    head_sha: str
    created_at: datetime
    updated_at: datetime
    labels: list[Label] = field(default_factory=list)
    draft: bool = False
    state: str = "open"
    merged: bool = False
    merged_at: datetime | None = None
    closed_at: datetime | None = None
    merge_commit_sha: str | None = None


@dataclass
class CheckSuite:
    """The one suite that an app has on a commit."""

    id: int
    app: App
    head_sha: str
    created_at: datetime
    runs: list[CheckRun] = field(default_factory=list)


@dataclass
class CheckRun:
    """A check run as GitHub keeps it, with every write that was made to it."""

    id: int
    name: str
    head_sha: str
    app: App
    suite: CheckSuite
    started_at: datetime
    status: str = "queued"
    conclusion: str | None = None
    completed_at: datetime | None = None
    external_id: str = ""
    details_url: str = ""
    title: str | None = None
    summary: str | None = None
    text: str | None = None
    annotations: list[Json] = field(default_factory=list)
    actions: list[Json] = field(default_factory=list)
    writes: list[Json] = field(default_factory=list)


@dataclass
class Job:
    """One job of one run attempt, and what its reporting steps said."""

    id: int
    name: str
    plan: JobPlan
    request_token: str
    status: str = "queued"
    conclusion: str | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    reports: list[StepOutcome] = field(default_factory=list)


@dataclass(frozen=True)
class StepOutcome:
    """What one reporting step did: the real script's exit code and output, or the answer to a direct callback."""

    status: str
    exit_code: int
    output: str
    answer: int | None = None


@dataclass
class Attempt:
    """One attempt of a run. A partial re-run repeats only ``jobs``; the others stand in ``carried``."""

    number: int
    started_at: datetime
    jobs: list[Job]
    carried: list[Job] = field(default_factory=list)
    status: str = "queued"
    conclusion: str | None = None
    completed_at: datetime | None = None


@dataclass
class Run:
    """A workflow run that a repository_dispatch started."""

    id: int
    number: int
    repository: Repository
    name: str
    event_type: str
    client_payload: Json
    head_sha: str
    created_at: datetime
    attempts: list[Attempt]
    path: str = ".github/workflows/crcr.yml"

    @property
    def attempt(self) -> int:
        """The number of the newest attempt."""
        return self.attempts[-1].number

    @property
    def jobs(self) -> list[Job]:
        """The jobs of the newest attempt, those carried over from earlier ones included."""
        return [*self.attempts[-1].carried, *self.attempts[-1].jobs]

    @property
    def status(self) -> str:
        """The newest attempt's status."""
        return self.attempts[-1].status

    @property
    def conclusion(self) -> str | None:
        """The newest attempt's conclusion."""
        return self.attempts[-1].conclusion

    @property
    def delivery_id(self) -> str:
        """The delivery id that the dispatch carried."""
        return str(self.client_payload.get("delivery_id", ""))

    @property
    def capability(self) -> str:
        """The capability token that the dispatch carried, empty where there was none."""
        relay = self.client_payload.get("relay")
        return str(relay.get("token", "")) if isinstance(relay, dict) else ""


@dataclass
class Repository:
    """A repository with all that hangs on it."""

    id: int
    owner: Account
    name: str
    network: Network
    created_at: datetime
    refs: dict[str, str] = field(default_factory=dict)
    default_branch: str = "main"
    private: bool = False
    parent: Repository | None = None
    archived: bool = False
    actions_enabled: bool = True
    roles: dict[str, str] = field(default_factory=dict)
    #: The name of a person's custom role, which stands on the one in ``roles``.
    custom_roles: dict[str, str] = field(default_factory=dict)
    required: list[RequiredCheck] = field(default_factory=list)
    pulls: dict[int, Pull] = field(default_factory=dict)
    #: The pull requests from branches of this very repository, and how many of all are open: asked for by each payload.
    own_pulls: list[Pull] = field(default_factory=list)
    open_pulls: int = 0
    comments: dict[int, Comment] = field(default_factory=dict)
    labels: dict[str, Label] = field(default_factory=dict)
    suites: dict[tuple[int, str], CheckSuite] = field(default_factory=dict)
    check_runs: dict[int, CheckRun] = field(default_factory=dict)
    runs: dict[int, Run] = field(default_factory=dict)
    merge_groups: dict[str, Json] = field(default_factory=dict)
    listener: Listener | None = None
    next_number: int = 1
    queued_at: list[float] = field(default_factory=list)

    @property
    def full_name(self) -> str:
        """``owner/name`` in the case it was created with."""
        return f"{self.owner.login}/{self.name}"


@dataclass
class App:
    """A GitHub App: its key, its webhook and what it asked for."""

    id: int
    slug: str
    private_key_pem: str
    public_key: Any
    webhook_secret: str
    permissions: dict[str, str]
    events: frozenset[str]
    webhook_url: str | None = None


@dataclass
class Installation:
    """An app on an account, with the repositories selected there."""

    id: int
    app: App
    account: Account
    permissions: dict[str, str]
    repositories: dict[int, Repository] = field(default_factory=dict)
    suspended: bool = False


@dataclass
class Token:
    """An installation access token. ``repository_ids`` None means every repository of the installation."""

    value: str
    installation: Installation
    permissions: dict[str, str]
    repository_ids: frozenset[int] | None
    expires_at: float

    def covers(self, repository: Repository) -> bool:
        """Whether the token may see this repository at all."""
        if repository.id not in self.installation.repositories:
            return False
        return self.repository_ids is None or repository.id in self.repository_ids
