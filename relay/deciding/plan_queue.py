"""What a merge queue's event means: which backends are told of the group, and what it is made of.

Pure. A merge group is a temporary commit: a branch with one or more pull requests on top, which the queue will merge
if its required checks pass. Backends whose entries ask for merge groups are told and owe an answer of their own; of
the others the verdicts on the pull requests stand. A verdict is never carried over because two trees are equal: which
of a pull request's commits a listener checked out, only the listener knows.
https://docs.github.com/en/repositories/configuring-branches-and-merges-in-your-repository/configuring-pull-request-merges/managing-a-merge-queue
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from allowlist.filters import Filtered, Subject, decide
from allowlist.model import Allowlist, Entry, RepoName
from relay.deciding.events import MergeGroupEvent
from relay.deciding.plan import LIVE, UNSENT, Decision, HeadState, NewDispatch, Purpose

#: The queue's branch is ``gh-readonly-queue/<base>/pr-<number>-<commit it was built on>``; the base may hold slashes.
_QUEUED = re.compile(
    r"(?:refs/heads/)?gh-readonly-queue/.+/pr-([1-9][0-9]{0,9})-[0-9a-f]{40}(?:[0-9a-f]{24})?", re.ASCII
)
_MAX_NUMBER = 2**31 - 1


@dataclass(frozen=True, slots=True)
class KnownTold:
    """A test dispatch of this group."""

    id: int
    backend: RepoName
    state: str


@dataclass(frozen=True, slots=True)
class KnownGroup:
    """What the store knows of a group, and of the backends. ``state`` is None where it never heard of the group."""

    state: str | None = None
    told: tuple[KnownTold, ...] = ()
    paused: Mapping[RepoName, str] = field(default_factory=lambda: MappingProxyType({}))  # Why, by backend.


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Everything that follows from one event of a merge queue."""

    thread: str
    head_state: HeadState
    superseded_dispatches: tuple[int, ...]
    dispatches: tuple[NewDispatch, ...]
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """One open group, as the chain of groups is followed from each to the one that it was built on."""

    head_sha: str
    base_sha: str | None
    number: int | None


def group_thread(head_sha: str) -> str:
    """A group has one head only, so it is a thread of its own."""
    return f"merge_group {head_sha}"


def pull_number(head_ref: str) -> int | None:
    """The pull request that a group adds to what it was built on, or None where the ref does not say."""
    found = _QUEUED.fullmatch(head_ref)
    number = None if found is None else int(found[1])
    return number if number is not None and number <= _MAX_NUMBER else None


def numbers_in(head_sha: str, open_groups: Mapping[str, Link]) -> tuple[int, ...]:
    """The pull requests that a group contains: its own, and those of the open groups under it.

    A group that is over is not followed: its pull requests have landed, or the queue will build this one anew.
    """
    found: list[int] = []
    seen: set[str] = set()
    at: str | None = head_sha
    while at is not None and at not in seen and at in open_groups:
        seen.add(at)
        link = open_groups[at]
        if link.number is not None and link.number not in found:
            found.append(link.number)
        at = link.base_sha
    return tuple(found)


def groups_above(heads: Sequence[str], open_groups: Mapping[str, Link]) -> tuple[str, ...]:
    """These groups and all that were built on them, each once."""
    built_on: dict[str, list[str]] = {}
    for link in open_groups.values():
        if link.base_sha is not None:
            built_on.setdefault(link.base_sha, []).append(link.head_sha)
    found: dict[str, None] = {}
    waiting = list(heads)
    while waiting:
        head = waiting.pop()
        if head not in found:
            found[head] = None
            waiting += built_on.get(head, ())
    return tuple(sorted(found))


def plan_group(event: MergeGroupEvent, *, delivery_id: str, allowlist: Allowlist, known: KnownGroup) -> GroupPlan:
    """Decide for every entry.

    The two events of one group may come in either order. A group that is over never comes back, since GitHub makes a
    new commit for each; so what was asked of it late is not asked any more.
    """
    gone = event.action == "destroyed" or known.state == HeadState.CLOSED
    dispatches: list[NewDispatch] = []
    decisions: list[Decision] = []
    if event.action != "destroyed":
        for entry in allowlist.entries:
            found = _none(entry, "group_gone", "the merge queue has dropped this group") if gone else None
            made = found or _decide(entry, event, delivery_id, known)
            if isinstance(made, NewDispatch):
                dispatches.append(made)
                made = made.decision
            decisions.append(made)
        decisions += [Decision("none", str(repo), code, said) for repo, code, said in allowlist.left_out]
    decisions.append(Decision("check", "", "gate_closed" if gone else "gate"))
    return GroupPlan(
        thread=group_thread(event.head_sha),
        head_state=HeadState.CLOSED if gone else HeadState.OPEN,
        superseded_dispatches=tuple(told.id for told in known.told if told.state in UNSENT) if gone else (),
        dispatches=tuple(dispatches),
        decisions=tuple(decisions),
    )


def _none(entry: Entry, reason: str, detail: str) -> Decision:
    return Decision("none", str(entry.repo), reason, detail)


def _decide(entry: Entry, event: MergeGroupEvent, delivery_id: str, known: KnownGroup) -> NewDispatch | Decision:
    verdict = decide(entry, Subject(event="merge_group", action=event.action, base_ref=event.base_ref))
    if isinstance(verdict, Filtered):
        return _none(entry, f"filtered_{verdict.reason}", verdict.text)
    if any(told.backend == entry.repo and told.state in LIVE for told in known.told):
        return _none(entry, "already_dispatched", "this group was dispatched to this backend before")
    state, decision = "planned", Decision("dispatch", str(entry.repo), "wanted")
    if (pause := known.paused.get(entry.repo)) is not None:
        state, decision = "paused", _none(entry, "paused", pause)
    return NewDispatch(
        entry=entry,
        purpose=Purpose.TEST,
        event_type="merge_group",
        delivery_id=delivery_id,
        payload_delivery=delivery_id,
        state=state,
        reason="wanted",
        decision=decision,
    )
