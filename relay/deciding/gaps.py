"""What upstream shows, compared with what we know: which webhooks never came, and what they would have said.

Pure. A gap is closed by the event that was missed, made from what GitHub shows now, and planned like any other
(``relay.deciding.plan``); so everything that holds for a webhook holds for it.

Such an event is dated half a second after GitHub's last change of what it speaks of. GitHub counts whole seconds, so
it comes after every webhook of that second and before any of the next: one that arrives late finds its news known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from allowlist.filters import Filtered, Subject, decide
from allowlist.model import Allowlist, Entry, RepoName
from relay.deciding.events import Ignored, MergeGroupEvent, PullRequestEvent, PushEvent, parse
from relay.deciding.payload import trim
from relay.deciding.plan import STARTS, HeadState
from relay.deciding.reading import GHOST
from relay.github.listed import BranchHead, PullListed, RefHead

#: What changed at GitHub so lately is left alone: its webhook may be on its way, and its second may not be over.
GRACE = timedelta(minutes=2)
_AFTER_THAT_SECOND = timedelta(milliseconds=500)
#: A branch of which we know no push has missed one only if it moved within this time.
_LATELY = timedelta(days=7)
QUEUE = "heads/gh-readonly-queue/"
_QUEUED = re.compile(r"refs/heads/gh-readonly-queue/(.+)/pr-[0-9]{1,10}-([0-9a-f]{40}(?:[0-9a-f]{24})?)", re.ASCII)
_NO_COMMIT = "0" * 40
#: Why a backend takes no part in what was missed, as its other decisions say theirs.
_TOLD = ("already_dispatched", "this head was dispatched to this backend before")
_NEWER = ("entry_newer", "this was there before its entry asked for what it asks now")


class Cause(StrEnum):
    """Why there was a gap."""

    DELIVERY_FAILED = "delivery_failed"  # GitHub sent a webhook and got no 2xx for it.
    NEVER_DELIVERED = "never_delivered"  # A pull request's head of which no webhook ever came.
    NOT_DISPATCHED = "not_dispatched"  # The head is known, and a backend that wants it was never told.
    CHANGE_MISSED = "change_missed"  # Labels or base are others than the last webhook said.
    CLOSED_MISSED = "closed_missed"  # Closed upstream, and open here.
    PUSH_MISSED = "push_missed"  # A branch points elsewhere than the last push said.
    GROUP_MISSED = "group_missed"  # A merge group that we were not asked about.
    GROUP_GONE = "group_gone"  # A merge group that is over, and waits here.
    FIRST_START = "first_start"  # Open before we first looked: noted, and nobody is told.


class How(StrEnum):
    """How a gap ended."""

    REDELIVERED = "redelivered"
    PLANNED = "planned"
    CLOSED = "closed"
    NOTED = "noted"
    PASSED = "passed"  # The webhook came by itself, or what was missed is of no interest any more.
    FAILED_AGAIN = "failed_again"
    GONE = "gone"  # GitHub keeps it no more.
    GAVE_UP = "gave_up"


#: The ways in which a gap was healed by us.
HEALED = frozenset({How.REDELIVERED, How.PLANNED, How.CLOSED, How.NOTED})


@dataclass(frozen=True, slots=True)
class SeenHead:
    """A head of a pull request as the store has it. ``told`` are the backends that have a dispatch of it."""

    head_sha: str
    state: str
    labels: tuple[str, ...]
    base_ref: str
    created_at: datetime
    updated_at: datetime
    action: str | None = None  # Of the payload that describes it.
    told: frozenset[RepoName] = frozenset()


@dataclass(frozen=True, slots=True)
class SeenRef:
    """The newest push of a branch that we know of."""

    head_sha: str
    received_at: datetime


@dataclass(frozen=True, slots=True)
class Rules:
    """By what is compared. ``since`` says from when on each entry asks for what it asks now.

    ``began_at`` is when upstream was first looked at to the end, and None until then: nothing from before is told.
    """

    upstream: RepoName
    allowlist: Allowlist
    since: Mapping[RepoName, datetime] = field(default_factory=lambda: MappingProxyType({}))
    began_at: datetime | None = None

    def before_us(self, at: datetime) -> bool:
        """Whether this happened before upstream was first looked at."""
        return self.began_at is None or at <= self.began_at

    def asked(self, at: datetime, told: frozenset[RepoName] = frozenset()) -> Allowlist:
        """The entries that asked at that time already for what they ask for now, without those that were told."""
        reasons = {
            entry.repo: _TOLD if entry.repo in told else _NEWER
            for entry in self.allowlist.entries
            if entry.repo in told or self.since.get(entry.repo, _NEVER(at)) > at
        }
        return self.allowlist.without(reasons)


def _NEVER(at: datetime) -> datetime:  # noqa: N802
    return at + timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Step:
    """One missed event, the trimmed payload of its webhook, and the entries that decide whether they are told."""

    name: str
    event: PullRequestEvent | PushEvent | MergeGroupEvent
    payload: str
    allowlist: Allowlist

    def backends(self) -> tuple[RepoName, ...]:
        """The backends whose filters let this event through, before their paths are looked at."""
        subject = _subject(self.event)
        return tuple(entry.repo for entry in self.allowlist.entries if not isinstance(decide(entry, subject), Filtered))


@dataclass(frozen=True, slots=True)
class Missed:
    """A gap, and the events that close it, in their order."""

    cause: Cause
    steps: tuple[Step, ...]

    @property
    def head_sha(self) -> str:
        """The commit that this is about; empty where nothing closes it but another look."""
        if not self.steps:
            return ""
        event = self.steps[0].event
        return event.after if isinstance(event, PushEvent) else event.head_sha

    def backends(self) -> tuple[RepoName, ...]:
        """Who may be told."""
        return tuple(dict.fromkeys(repo for step in self.steps for repo in step.backends()))


# --- Pull requests ---------------------------------------------------------------------------------------------------


def compare_pull(pull: PullListed, heads: Sequence[SeenHead], rules: Rules, now: datetime) -> Missed | None:
    """What we missed of a pull request; None where we know it as it is, or where its webhook may still come.

    Raises BadEventError for a pull request that cannot be read, as its webhook would be refused.
    """
    at = pull.shown.updated_at
    latest = max(heads, key=lambda head: head.updated_at, default=None)
    if at > now - GRACE or (latest is not None and latest.updated_at > at + _AFTER_THAT_SECOND):
        return None
    if pull.shown.state == "closed":
        if not any(head.state == HeadState.OPEN for head in heads):
            return None
        return Missed(Cause.CLOSED_MISSED, (_step(pull, "closed", rules, rules.allowlist),))
    mine = next((head for head in heads if head.head_sha == pull.shown.head_sha), None)
    if mine is not None and mine.state == HeadState.OPEN:
        return _same_head(pull, mine, rules)
    if rules.before_us(at):
        nobody = Allowlist()
        return Missed(Cause.FIRST_START, (_step(pull, _how_it_came(latest, mine), rules, nobody, latest),))
    told = mine.told if mine is not None else frozenset()
    asked = rules.asked(at, told)
    return Missed(Cause.NEVER_DELIVERED, (_step(pull, _how_it_came(latest, mine), rules, asked, latest),))


def _how_it_came(latest: SeenHead | None, mine: SeenHead | None) -> str:
    if latest is None:
        return "opened"
    return "reopened" if mine is latest and mine.state == HeadState.CLOSED else "synchronize"


def _same_head(pull: PullListed, mine: SeenHead, rules: Rules) -> Missed | None:
    """What changed of a head that we know as open, or whom we never told of it."""
    known = mine.action is not None and mine.action in STARTS and mine.action != "edited"
    action = mine.action if known and mine.action is not None else "synchronize"
    # Told of what was pushed after it asked for it; what came when, only our own receipt says.
    waiting = Allowlist() if rules.before_us(mine.created_at) else rules.asked(mine.created_at, mine.told)
    again = _step(pull, action, rules, waiting)
    steps: list[Step] = []
    event = again.event
    if not isinstance(event, PullRequestEvent):
        raise TypeError("a pull request's webhook tells of a pull request")
    if event.base_ref != mine.base_ref:
        changes = {"base": {"ref": {"from": mine.base_ref}}}
        asked = rules.asked(pull.shown.updated_at)
        steps.append(_step(pull, "edited", rules, asked, changes=changes))
    before, after = ({label.lower(): label for label in labels} for labels in (mine.labels, event.labels))
    for action_, names in (
        ("labeled", [after[key] for key in sorted(after.keys() - before.keys())]),
        ("unlabeled", [before[key] for key in sorted(before.keys() - after.keys())]),
    ):
        steps += [_step(pull, action_, rules, rules.allowlist, label={"name": name}) for name in names]
    if steps:
        return Missed(Cause.CHANGE_MISSED, tuple(steps))
    missed = Missed(Cause.NOT_DISPATCHED, (again,))
    return missed if missed.backends() else None


def _step(
    pull: PullListed, action: str, rules: Rules, asked: Allowlist, latest: SeenHead | None = None, **more: object
) -> Step:
    raw = _pull_raw(pull, action, rules.upstream) | more
    if action == "synchronize":
        raw |= {"after": pull.shown.head_sha} | ({"before": latest.head_sha} if latest is not None else {})
    return _read("pull_request", raw, rules.upstream, asked)


def _pull_raw(pull: PullListed, action: str, upstream: RepoName) -> dict[str, Any]:
    """The webhook as GitHub would send it now. Who did it is not known, so it is the author's."""
    shown = pull.shown
    author = {"login": shown.author or GHOST}
    head_repo = {"full_name": pull.head_repo, "clone_url": pull.head_clone_url} if pull.head_repo else None
    return {
        "action": action,
        "number": shown.number,
        "repository": {"full_name": str(upstream)},
        "sender": author,
        "pull_request": {
            "number": shown.number,
            "state": shown.state,
            "title": shown.title,
            "merged": pull.merged,
            "merge_commit_sha": pull.merge_sha,
            "draft": shown.draft,
            "html_url": shown.html_url,
            "head": {"sha": shown.head_sha, "ref": pull.head_ref, "repo": head_repo},
            "base": {"ref": shown.base_ref, "sha": shown.base_sha, "repo": {"full_name": str(upstream)}},
            "labels": [{"name": name} for name in shown.labels],
            "user": author,
            "author_association": shown.author_association,
            "updated_at": (shown.updated_at + _AFTER_THAT_SECOND).isoformat(),
            "_links": {"html": {"href": shown.html_url}},
        },
    }


# --- Branches and merge groups ---------------------------------------------------------------------------------------


def compare_branch(ref: str, head: BranchHead, seen: SeenRef | None, rules: Rules, now: datetime) -> Missed | None:
    """What we missed of a branch: the push that brought it where it is."""
    if seen is not None and (seen.head_sha == head.head_sha or seen.received_at > now - GRACE):
        return None
    if seen is None and (head.committed_at is None or head.committed_at < now - _LATELY):
        # Nothing of it was missed: its last push was too long ago to be known, or to be wanted.
        return None
    raw = {
        "ref": ref,
        "before": seen.head_sha if seen is not None else _NO_COMMIT,
        "after": head.head_sha,
        "base_ref": None,
        "deleted": False,
        # What is pushed from here on is newer, and what was pushed before is what we speak of.
        "repository": {"full_name": str(rules.upstream), "pushed_at": int((now - GRACE).timestamp())},
        "sender": {"login": head.author or GHOST},
        "head_commit": {"id": head.head_sha, "message": head.message},
    }
    if seen is None and rules.began_at is None:
        return Missed(Cause.FIRST_START, (_read("push", raw, rules.upstream, Allowlist()),))
    asked = rules.asked(min(head.committed_at or now, now))
    return Missed(Cause.PUSH_MISSED, (_read("push", raw, rules.upstream, asked),))


def compare_groups(
    refs: Sequence[RefHead], heads: frozenset[str], waiting: Mapping[str, str], rules: Rules, now: datetime
) -> list[Missed]:
    """What we missed of the merge queue. ``heads`` are those that we know, ``waiting`` the refs of those that wait."""
    there = {ref.sha for ref in refs}
    missed: list[Missed] = []
    for ref in refs:
        if ref.sha not in heads and (found := _QUEUED.fullmatch(ref.ref)) is not None:
            first = rules.began_at is None
            asked = Allowlist() if first else rules.asked(now - GRACE)
            raw = _group_raw("checks_requested", ref.sha, ref.ref, found[1], found[2], rules.upstream)
            cause = Cause.FIRST_START if first else Cause.GROUP_MISSED
            missed.append(Missed(cause, (_read("merge_group", raw, rules.upstream, asked),)))
    for head_sha, ref_name in waiting.items():
        if head_sha not in there and (found := _QUEUED.fullmatch(ref_name)) is not None:
            raw = _group_raw("destroyed", head_sha, ref_name, found[1], found[2], rules.upstream)
            missed.append(Missed(Cause.GROUP_GONE, (_read("merge_group", raw, rules.upstream, Allowlist()),)))
    return missed


def _group_raw(action: str, head_sha: str, ref: str, base: str, base_sha: str, upstream: RepoName) -> dict[str, Any]:
    group = {"head_sha": head_sha, "head_ref": ref, "base_sha": base_sha, "base_ref": f"refs/heads/{base}"}
    return {
        "action": action,
        "merge_group": {**group, "head_commit": {"message": ""}},
        "repository": {"full_name": str(upstream)},
        "sender": {"login": GHOST},
    }


def branches_to_look_at(
    default: str | None, seen: Iterable[str], entries: Iterable[Entry], most: int = 20
) -> tuple[str, ...]:
    """The branches that matter, by full ref: the default one, those that entries name, those lately pushed to.

    ``seen`` begins with the last pushed. Those that nobody wants to be told of are left out.
    """
    listed = tuple(entries)
    first = (f"refs/heads/{default}",) if default else ()
    named = (ref for entry in listed for ref in entry.refs if ref.startswith("refs/heads/") and not _GLOB & set(ref))
    wanted = [
        ref
        for ref in dict.fromkeys((*first, *named, *seen))
        if ref.startswith("refs/heads/")
        and not ref.startswith(f"refs/{QUEUE}")
        and any(not isinstance(decide(entry, Subject(event="push", ref=ref)), Filtered) for entry in listed)
    ]
    return tuple(wanted[:most])


_GLOB = frozenset("*?[]!{}+")


def _read(name: str, raw: dict[str, Any], upstream: RepoName, asked: Allowlist) -> Step:
    event = parse(name, raw, upstream)
    if isinstance(event, Ignored) or not isinstance(event, PullRequestEvent | PushEvent | MergeGroupEvent):
        raise TypeError(f"a missed {name} was made so that nobody wants it")
    return Step(name, event, trim(name, raw), asked)


def _subject(event: PullRequestEvent | PushEvent | MergeGroupEvent) -> Subject:
    if isinstance(event, PushEvent):
        return Subject(event="push", ref=event.ref)
    if isinstance(event, MergeGroupEvent):
        return Subject(event="merge_group", action=event.action, base_ref=event.base_ref)
    return Subject(
        event="pull_request",
        action=event.action,
        base_ref=event.base_ref,
        labels=event.labels,
        author_association=event.author_association,
    )
