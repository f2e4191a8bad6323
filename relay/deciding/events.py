"""Webhooks as typed events: parsed once, without I/O, so that nothing below the edge sees a dict.

GitHub sends far more than the relay was built for. What nobody asked for becomes ``Ignored`` with a reason; what was
asked for and cannot be read raises ``BadEventError``, which names every field at fault and not only the first.
https://docs.github.com/en/webhooks/webhook-events-and-payloads
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from allowlist.model import RepoName
from relay.deciding.events_asked import CheckEvent, CommentEvent, read_check_run, read_check_suite, read_comment
from relay.deciding.reading import (
    MAX_ID,
    MAX_LABEL,
    MAX_LOGIN,
    MAX_NUMBER,
    MAX_REF,
    MAX_TITLE,
    MAX_URL,
    BadEventError,
    EventFault,
    Ignored,
    Reading,
    action_of,
    foreign,
)

# What asks something of us is read beside this module, and named here with the other events.
__all__ = [
    "CheckEvent",
    "CommentEvent",
    "Event",
    "Ignored",
    "InstallationEvent",
    "InstalledRepository",
    "MergeGroupEvent",
    "PingEvent",
    "PullRequestEvent",
    "PushEvent",
    "RepositoryEvent",
    "parse",
]

PULL_REQUEST_ACTIONS = frozenset(
    {"opened", "reopened", "synchronize", "closed", "labeled", "unlabeled", "edited", "ready_for_review"}
)
MERGE_GROUP_ACTIONS = frozenset({"checks_requested", "destroyed"})
INSTALLATION_ACTIONS = frozenset({"created", "deleted", "suspend", "unsuspend", "new_permissions_accepted"})
INSTALLATION_REPOSITORIES_ACTIONS = frozenset({"added", "removed"})
REPOSITORY_ACTIONS = frozenset(
    {"archived", "unarchived", "renamed", "transferred", "deleted", "privatized", "publicized"}
)
#: Events this relay acts on; a hook that does not send the first two has little for it to do.
WANTED_EVENTS = frozenset(
    {
        "pull_request",
        "push",
        "merge_group",
        "check_run",
        "check_suite",
        "issue_comment",
        "ping",
        "installation",
        "installation_repositories",
        "repository",
    }
)
NEEDED_FROM_HOOK = ("pull_request", "push")


@dataclass(frozen=True, slots=True)
class PullRequestEvent:
    """Something happened to a pull request of upstream's. Times are GitHub's."""

    action: str
    number: int
    head_sha: str
    head_ref: str
    head_repo: RepoName | None  # None once the fork is gone.
    base_ref: str
    base_sha: str
    base_repo: RepoName
    labels: tuple[str, ...]
    label: str | None  # The one just added or removed.
    author: str
    author_association: str
    title: str
    draft: bool
    merged: bool
    closed: bool  # The pull request's state at this event, whatever the action.
    merge_commit_sha: str | None
    html_url: str
    updated_at: datetime | None
    before: str | None  # synchronize only: the head it replaces.
    after: str | None
    base_changed: bool
    sender: str


@dataclass(frozen=True, slots=True)
class PushEvent:
    """A ref of upstream's now points to ``after``."""

    ref: str
    before: str
    after: str
    base_ref: str | None
    repository: RepoName
    sender: str
    message: str
    pushed_at: datetime | None


@dataclass(frozen=True, slots=True)
class MergeGroupEvent:
    """A merge queue wants to know of its temporary commit, or needs it no more.

    ``base_ref`` is the branch's short name, as pull requests have it. ``base_sha`` is what the group was built on: the
    branch, or the head of the group before it.
    https://docs.github.com/en/webhooks/webhook-events-and-payloads#merge_group
    """

    action: str  # checks_requested, destroyed
    reason: str  # destroyed only: merged, invalidated, dequeued.
    head_sha: str
    head_ref: str
    base_ref: str
    base_sha: str
    message: str
    sender: str


@dataclass(frozen=True, slots=True)
class PingEvent:
    """GitHub asks whether anybody is there, and says what the hook will send."""

    hook_id: int | None
    hook_events: tuple[str, ...]

    @property
    def missing_events(self) -> tuple[str, ...]:
        """Events without which upstream's changes stay unseen. ``*`` subscribes to all."""
        if not self.hook_events or "*" in self.hook_events:
            return ()
        return tuple(event for event in NEEDED_FROM_HOOK if event not in self.hook_events)


@dataclass(frozen=True, slots=True)
class InstalledRepository:
    """A repository an installation event names, with the id that outlives its name."""

    name: RepoName
    id: int


@dataclass(frozen=True, slots=True)
class InstallationEvent:
    """The app came to repositories, or left them. ``action`` also has installation_repositories' added, removed."""

    action: str
    installation_id: int
    app_id: int | None
    account: str  # The login, in lower case.
    repositories: tuple[InstalledRepository, ...]

    @property
    def grants(self) -> bool:
        """Whether the app can do more for these repositories now than before."""
        return self.action in {"created", "added", "unsuspend", "new_permissions_accepted"}


@dataclass(frozen=True, slots=True)
class RepositoryEvent:
    """Something happened to a repository as a whole. ``name`` is what it is called from now on; ``id`` outlives it.

    https://docs.github.com/en/webhooks/webhook-events-and-payloads#repository
    """

    action: str
    id: int
    name: RepoName
    sender: str

    @property
    def mends(self) -> bool:
        """Whether what was refused before may be taken now."""
        return self.action in {"unarchived", "renamed", "transferred"}


Event = (
    PullRequestEvent
    | PushEvent
    | MergeGroupEvent
    | CheckEvent
    | CommentEvent
    | PingEvent
    | InstallationEvent
    | RepositoryEvent
)


def parse(event: str, raw: object, upstream: RepoName) -> Event | Ignored:
    """Read a webhook's body. ``event`` is the X-GitHub-Event header, ``upstream`` the repository we serve.

    Raises BadEventError for an event that we act on and cannot read.
    """
    if event not in WANTED_EVENTS:
        return Ignored("event_unwanted", "the relay does not act on this event")
    reading = Reading(event, raw)
    reading.must_be_object()
    read = _READERS[event]
    found = read(reading, upstream)
    if reading.faults:
        raise BadEventError(event, reading.faults)
    return found


def _pull_request(reading: Reading, upstream: RepoName) -> Event | Ignored:
    if (elsewhere := foreign(reading, upstream)) is not None:
        return elsewhere
    action = action_of(reading, PULL_REQUEST_ACTIONS)
    if isinstance(action, Ignored):
        return action
    base_changed = reading.at("changes.base") is not None
    if action == "edited" and not base_changed:
        return Ignored("edited_without_base", "an edit that leaves the base branch alone changes nothing under test")
    label = reading.text("label.name", MAX_LABEL) if action in {"labeled", "unlabeled"} else None
    state = reading.optional_text("pull_request.state", 32)
    # A fork that was deleted leaves its pull requests behind with a head that has no repository.
    gone = reading.at("pull_request.head.repo") is None
    base_repo = reading.repo("pull_request.base.repo.full_name")
    synchronize = action == "synchronize"
    return PullRequestEvent(
        action=action,
        number=reading.whole("pull_request.number", MAX_NUMBER),
        head_sha=reading.sha("pull_request.head.sha"),
        head_ref=reading.text("pull_request.head.ref", MAX_REF),
        head_repo=None if gone else reading.repo("pull_request.head.repo.full_name"),
        base_ref=reading.text("pull_request.base.ref", MAX_REF),
        base_sha=reading.sha("pull_request.base.sha"),
        base_repo=base_repo or upstream,
        labels=reading.labels("pull_request.labels"),
        label=label,
        author=reading.login("pull_request.user.login"),
        author_association=reading.optional_text("pull_request.author_association", 64),
        title=reading.free_text("pull_request.title", MAX_TITLE),
        draft=reading.flag("pull_request.draft"),
        merged=reading.flag("pull_request.merged"),
        closed=action == "closed" or (state == "closed" and action not in {"opened", "reopened"}),
        merge_commit_sha=reading.optional_sha("pull_request.merge_commit_sha"),
        html_url=reading.optional_text("pull_request.html_url", MAX_URL),
        updated_at=reading.moment("pull_request.updated_at"),
        before=reading.optional_sha("before") if synchronize else None,
        after=reading.optional_sha("after") if synchronize else None,
        base_changed=base_changed,
        sender=reading.login("sender.login"),
    )


def _push(reading: Reading, upstream: RepoName) -> Event | Ignored:
    if (elsewhere := foreign(reading, upstream)) is not None:
        return elsewhere
    ref = reading.text("ref", MAX_REF)
    if ref and not ref.startswith("refs/"):
        reading.fault("ref", "must be a full ref", "send refs/heads/... or refs/tags/...")
    before, after = reading.sha("before"), reading.sha("after")
    # Either sign suffices: the commit of a deleted ref is all zeros, and there is nothing to test.
    if reading.flag("deleted") or (after and not after.strip("0")):
        return Ignored("ref_deleted", "a push that deletes a ref is never work")
    return PushEvent(
        ref=ref,
        before=before,
        after=after,
        base_ref=reading.optional_text("base_ref", MAX_REF) or None,
        repository=upstream,
        sender=reading.login("sender.login"),
        message=reading.free_text("head_commit.message", 65536),
        pushed_at=reading.moment("repository.pushed_at"),
    )


def _merge_group(reading: Reading, upstream: RepoName) -> Event | Ignored:
    if (elsewhere := foreign(reading, upstream)) is not None:
        return elsewhere
    action = action_of(reading, MERGE_GROUP_ACTIONS)
    if isinstance(action, Ignored):
        return action
    return MergeGroupEvent(
        action=action,
        reason=reading.optional_text("reason", 64) if action == "destroyed" else "",
        head_sha=reading.sha("merge_group.head_sha"),
        head_ref=reading.text("merge_group.head_ref", MAX_REF),
        base_ref=reading.text("merge_group.base_ref", MAX_REF).removeprefix("refs/heads/"),
        base_sha=reading.sha("merge_group.base_sha"),
        message=reading.free_text("merge_group.head_commit.message", 65536),
        sender=reading.login("sender.login"),
    )


def _ping(reading: Reading, _upstream: RepoName) -> Event | Ignored:
    # A ping asks for nothing, so nothing in it can be wrong enough to refuse it.
    hook_id, events = reading.at("hook.id"), reading.at("hook.events")
    return PingEvent(
        hook_id if isinstance(hook_id, int) and not isinstance(hook_id, bool) and abs(hook_id) <= MAX_ID else None,
        tuple(name[:64] for name in events[:100] if isinstance(name, str)) if isinstance(events, list) else (),
    )


def _installation(reading: Reading, _upstream: RepoName) -> Event | Ignored:
    changes_list = reading.event == "installation_repositories"
    action = action_of(reading, INSTALLATION_REPOSITORIES_ACTIONS if changes_list else INSTALLATION_ACTIONS)
    if isinstance(action, Ignored):
        return action
    repositories: list[InstalledRepository] = []
    for where, item in reading.objects(f"repositories_{action}" if changes_list else "repositories"):
        inner = Reading(reading.event, item)
        name, number = inner.repo("full_name"), inner.whole("id", MAX_ID)
        reading.faults += [EventFault(f"{where}.{fault.field}", fault.rule, fault.fix) for fault in inner.faults]
        if name is not None:
            repositories.append(InstalledRepository(name, number))
    # An enterprise has a slug where a user or an organization has a login.
    key = "installation.account.login" if reading.at("installation.account.login") is not None else None
    return InstallationEvent(
        action=action,
        installation_id=reading.whole("installation.id", MAX_ID),
        app_id=None if reading.at("installation.app_id") is None else reading.whole("installation.app_id", MAX_ID),
        account=reading.text(key or "installation.account.slug", MAX_LOGIN).lower(),
        repositories=tuple(repositories),
    )


def _repository(reading: Reading, upstream: RepoName) -> Event | Ignored:
    action = action_of(reading, REPOSITORY_ACTIONS)
    if isinstance(action, Ignored):
        return action
    return RepositoryEvent(
        action=action,
        id=reading.whole("repository.id", MAX_ID),
        name=reading.repo("repository.full_name") or upstream,  # Where it is missing, that is a fault already.
        sender=reading.login("sender.login"),
    )


_READERS = MappingProxyType(
    {
        "pull_request": _pull_request,
        "push": _push,
        "merge_group": _merge_group,
        "check_run": read_check_run,
        "check_suite": read_check_suite,
        "issue_comment": read_comment,
        "ping": _ping,
        "installation": _installation,
        "installation_repositories": _installation,
        "repository": _repository,
    }
)
