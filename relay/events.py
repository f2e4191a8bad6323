"""Webhooks as typed events: parsed once, without I/O, so that nothing below the edge sees a dict.

GitHub sends far more than the relay was built for. What nobody asked for becomes ``Ignored`` with a reason; what was
asked for and cannot be read raises ``BadEventError``, which names every field at fault and not only the first.
https://docs.github.com/en/webhooks/webhook-events-and-payloads
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType

from allowlist.model import RepoName

#: SHA-1 commits have 40 digits, those of a SHA-256 repository 64.
_SHA = re.compile(r"[0-9a-fA-F]{40}(?:[0-9a-fA-F]{24})?", re.ASCII)
_MAX_ID = 2**63 - 1
_MAX_NUMBER = 2**31 - 1

#: GitHub's own bounds are 255 bytes for a ref, 256 characters for a title, 50 for a label, 39 for a login. Ours are
#: wider, since theirs have moved before, and still keep one hostile field from filling every index it stands in.
MAX_REF = 1024
MAX_TITLE = 1024
MAX_LABEL = 256
MAX_LOGIN = 256
MAX_URL = 2048
MAX_LABELS = 1000

PULL_REQUEST_ACTIONS = frozenset(
    {"opened", "reopened", "synchronize", "closed", "labeled", "unlabeled", "edited", "ready_for_review"}
)
INSTALLATION_ACTIONS = frozenset({"created", "deleted", "suspend", "unsuspend", "new_permissions_accepted"})
INSTALLATION_REPOSITORIES_ACTIONS = frozenset({"added", "removed"})
#: Events this relay acts on; a hook that does not send the first two has little for it to do.
WANTED_EVENTS = frozenset({"pull_request", "push", "ping", "installation", "installation_repositories"})
NEEDED_FROM_HOOK = ("pull_request", "push")
#: Events that have a place in the protocol and none in this release yet.
LATER_EVENTS = frozenset({"merge_group", "check_run", "check_suite", "issue_comment"})

#: GitHub shows a deleted account's work under this name and sends ``null`` for its user.
#: https://docs.github.com/en/account-and-profile/concepts/personal-account-deletion
GHOST = "ghost"


@dataclass(frozen=True, slots=True)
class EventFault:
    """One field that cannot be read: its path in the payload, the rule it breaks, and the fix."""

    field: str
    rule: str
    fix: str


class BadEventError(ValueError):
    """An event we want lacks what we need of it. ``faults`` names each field."""

    def __init__(self, event: str, faults: Iterable[EventFault]) -> None:
        self.event = event
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{fault.field}: {fault.rule}" for fault in self.faults))


@dataclass(frozen=True, slots=True)
class Ignored:
    """Nobody asked for this. ``reason_code`` is stable, ``detail`` is for people."""

    reason_code: str
    detail: str


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


Event = PullRequestEvent | PushEvent | PingEvent | InstallationEvent


class _Reading:
    """Reads fields by path and collects what is wrong, so that a sender learns of every fault at once."""

    def __init__(self, event: str, raw: object) -> None:
        self.event = event
        self.raw = raw
        self.faults: list[EventFault] = []

    def fault(self, path: str, rule: str, fix: str) -> None:
        self.faults.append(EventFault(path, rule, fix))

    def at(self, path: str) -> object:
        """The value at a path; None where it, or anything above it, is null, absent or no object."""
        value = self.raw
        for part in path.split("."):
            if not isinstance(value, dict):
                return None
            value = value.get(part)
        return value

    def text(self, path: str, limit: int) -> str:
        value = self.at(path)
        if isinstance(value, str) and value and len(value) <= limit:
            return value
        self._mistyped(path, value, f"a non-empty string of at most {limit} characters")
        return ""

    def optional_text(self, path: str, limit: int, default: str = "") -> str:
        value = self.at(path)
        if value is None:
            return default
        if isinstance(value, str) and len(value) <= limit:
            return value
        self._mistyped(path, value, f"null or a string of at most {limit} characters")
        return default

    def free_text(self, path: str, limit: int) -> str:
        """Prose, which is cut and never refused for its length."""
        value = self.at(path)
        if value is None:
            return ""
        if isinstance(value, str):
            return value[:limit]
        self._mistyped(path, value, "null or a string")
        return ""

    def sha(self, path: str) -> str:
        value = self.at(path)
        if isinstance(value, str) and _SHA.fullmatch(value):
            return value.lower()
        self._mistyped(path, value, "a commit id of 40 (or 64) hexadecimal digits")
        return ""

    def optional_sha(self, path: str) -> str | None:
        return None if self.at(path) is None else self.sha(path)

    def whole(self, path: str, limit: int) -> int:
        value = self.at(path)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= limit:
            return value
        self._mistyped(path, value, f"a whole number from 1 to {limit}")
        return 0

    def flag(self, path: str) -> bool:
        """A boolean; null or absent is false."""
        value = self.at(path)
        if value is None or isinstance(value, bool):
            return bool(value)
        self._mistyped(path, value, "true, false or null")
        return False

    def repo(self, path: str) -> RepoName | None:
        value = self.at(path)
        if isinstance(value, str):
            try:
                return RepoName.parse(value)
            except ValueError:
                pass
        self._mistyped(path, value, "a repository's owner/name")
        return None

    def moment(self, path: str) -> datetime | None:
        """A time as GitHub writes it: RFC 3339 text, or in pushes whole seconds since 1970. Null or absent is None."""
        value = self.at(path)
        if value is None:
            return None
        try:
            if isinstance(value, str):
                moment = datetime.fromisoformat(value)
                if moment.tzinfo is not None:
                    return moment.astimezone(UTC)
            elif isinstance(value, int) and not isinstance(value, bool):
                return datetime.fromtimestamp(value, UTC)
        except (ValueError, OverflowError, OSError):
            pass
        self._mistyped(path, value, "an RFC 3339 time with its zone, or whole seconds since 1970")
        return None

    def objects(self, path: str) -> list[tuple[str, object]]:
        """The items of an array with the path of each; null or absent is empty."""
        value = self.at(path)
        if value is None:
            return []
        if isinstance(value, list):
            return [(f"{path}[{index}]", item) for index, item in enumerate(value)]
        self._mistyped(path, value, "an array")
        return []

    def labels(self, path: str) -> tuple[str, ...]:
        items = self.objects(path)
        if len(items) > MAX_LABELS:
            self.fault(path, f"has {len(items)} items, at most {MAX_LABELS} are read", "remove labels upstream")
            return ()
        names: list[str] = []
        for where, item in items:
            name = item.get("name") if isinstance(item, dict) else None
            if isinstance(name, str) and name and len(name) <= MAX_LABEL:
                names.append(name)
            else:
                self._mistyped(f"{where}.name", name, f"a non-empty string of at most {MAX_LABEL} characters")
        return tuple(names)

    def login(self, path: str) -> str:
        """A user's login; ``ghost`` where the account is gone."""
        parent = path.rpartition(".")[0]
        account = self.at(parent)
        if account is None:
            return GHOST
        if not isinstance(account, dict):
            self._mistyped(parent, account, "null or an account")
            return GHOST
        return self.optional_text(path, MAX_LOGIN, GHOST)

    def _mistyped(self, path: str, value: object, wanted: str) -> None:
        found = "it is missing or null" if value is None else f"it is {_kind(value)}"
        self.fault(path, f"must be {wanted}; {found}", f"send {path} as GitHub's {self.event} event has it")


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return f"a string of {len(value)} characters"
    return "an array" if isinstance(value, list) else "an object"


def parse(event: str, raw: object, upstream: RepoName) -> Event | Ignored:
    """Read a webhook's body. ``event`` is the X-GitHub-Event header, ``upstream`` the repository we serve.

    Raises BadEventError for an event that we act on and cannot read.
    """
    if event in LATER_EVENTS:
        return Ignored("event_not_yet", f"{event} is part of the protocol, and this release does not act on it yet")
    if event not in WANTED_EVENTS:
        return Ignored("event_unwanted", "the relay does not act on this event")
    reading = _Reading(event, raw)
    if not isinstance(raw, dict):
        reading.fault("(body)", f"must be an object; it is {_kind(raw) if raw is not None else 'null'}", "send JSON")
        raise BadEventError(event, reading.faults)
    read = _READERS[event]
    found = read(reading, upstream)
    if reading.faults:
        raise BadEventError(event, reading.faults)
    return found


def _foreign(reading: _Reading, upstream: RepoName) -> Ignored | None:
    """Whether the event comes from another repository than ours. Names compare without case."""
    name = reading.repo("repository.full_name")
    if name is None or name == upstream:
        return None
    return Ignored("repository_unwanted", f"the event comes from {name}; this relay serves {upstream}")


def _action(reading: _Reading, wanted: frozenset[str]) -> str | Ignored:
    value = reading.text("action", 64)
    if value and value not in wanted:
        return Ignored("action_unwanted", f"the relay does not act on this action of {reading.event}")
    return value


def _pull_request(reading: _Reading, upstream: RepoName) -> Event | Ignored:
    if (foreign := _foreign(reading, upstream)) is not None:
        return foreign
    action = _action(reading, PULL_REQUEST_ACTIONS)
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
        number=reading.whole("pull_request.number", _MAX_NUMBER),
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


def _push(reading: _Reading, upstream: RepoName) -> Event | Ignored:
    if (foreign := _foreign(reading, upstream)) is not None:
        return foreign
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


def _ping(reading: _Reading, _upstream: RepoName) -> Event | Ignored:
    # A ping asks for nothing, so nothing in it can be wrong enough to refuse it.
    hook_id, events = reading.at("hook.id"), reading.at("hook.events")
    return PingEvent(
        hook_id if isinstance(hook_id, int) and not isinstance(hook_id, bool) and abs(hook_id) <= _MAX_ID else None,
        tuple(name[:64] for name in events[:100] if isinstance(name, str)) if isinstance(events, list) else (),
    )


def _installation(reading: _Reading, _upstream: RepoName) -> Event | Ignored:
    changes_list = reading.event == "installation_repositories"
    action = _action(reading, INSTALLATION_REPOSITORIES_ACTIONS if changes_list else INSTALLATION_ACTIONS)
    if isinstance(action, Ignored):
        return action
    repositories: list[InstalledRepository] = []
    for where, item in reading.objects(f"repositories_{action}" if changes_list else "repositories"):
        inner = _Reading(reading.event, item)
        name, number = inner.repo("full_name"), inner.whole("id", _MAX_ID)
        reading.faults += [EventFault(f"{where}.{fault.field}", fault.rule, fault.fix) for fault in inner.faults]
        if name is not None:
            repositories.append(InstalledRepository(name, number))
    # An enterprise has a slug where a user or an organization has a login.
    key = "installation.account.login" if reading.at("installation.account.login") is not None else None
    return InstallationEvent(
        action=action,
        installation_id=reading.whole("installation.id", _MAX_ID),
        app_id=None if reading.at("installation.app_id") is None else reading.whole("installation.app_id", _MAX_ID),
        account=reading.text(key or "installation.account.slug", MAX_LOGIN).lower(),
        repositories=tuple(repositories),
    )


_READERS = MappingProxyType(
    {
        "pull_request": _pull_request,
        "push": _push,
        "ping": _ping,
        "installation": _installation,
        "installation_repositories": _installation,
    }
)
