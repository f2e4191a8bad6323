"""What an event means: which backends are told of it, which are not and why, and what it makes of earlier heads.

Pure: an event, the allowlist and what the store knows go in, a ``Plan`` comes out that can be printed, compared and
replayed. ``relay.store.intake`` loads the one and writes the other down.

Webhooks come in no order and more than once, so nothing here trusts arrival. Heads of one pull request (or ref) are
ordered by GitHub's own time, which counts whole seconds; where two heads share one, the links that a payload carries
(``before``) decide, and only where there are none does arrival.
https://docs.github.com/en/webhooks/using-webhooks/best-practices-for-using-webhooks
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from allowlist.filters import Filtered, NeedsPaths, Subject, Wanted, decide, waits_for_label, wants_tags
from allowlist.model import Allowlist, Entry, Level, RepoName
from relay.deciding.events import PullRequestEvent, PushEvent
from relay.deciding.known import Known, KnownDispatch, KnownHead

#: Actions that put something new under test; all others only tell a listener that wants to know.
STARTS = frozenset({"opened", "reopened", "synchronize", "edited", "ready_for_review"})

#: States of a dispatch that is on its way, running, or finished with whatever result.
LIVE = frozenset({"pending_paths", "planned", "sent"})
#: States of a dispatch of which the backend has not heard yet.
UNSENT = frozenset({"pending_paths", "planned", "paused"})

#: A tag's push waits this long where its entry does not name tags: the branch that it was pushed with has the better
#: claim to the commit, and may come a moment later.
TAG_GRACE = timedelta(seconds=2)

#: The reason of a dispatch that a label caused.
BY_LABEL = "labelled"

_TAGS = "refs/tags/"
_BRANCHES = "refs/heads/"
_QUEUE = "refs/heads/gh-readonly-queue/"
#: The lane's name holds the thread's, and has a bound in the database.
_LONGEST_THREAD = 300


class Purpose(StrEnum):
    """What a dispatch owes: results, or nothing."""

    TEST = "test"
    NOTIFY = "notify"


class HeadState(StrEnum):
    """What has become of a head."""

    OPEN = "open"
    SUPERSEDED = "superseded"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided for one backend. ``reason`` is a stable code, ``detail`` a sentence where the code needs one."""

    effect: str  # dispatch, decide_paths, check, none
    backend: str
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class NewDispatch:
    """A backend that is to be told."""

    entry: Entry
    purpose: Purpose
    event_type: str
    delivery_id: str
    payload_delivery: str
    state: str  # planned, pending_paths, paused
    reason: str  # Why it is told at all: wanted, labelled, current_again, every_commit.
    decision: Decision
    delay: timedelta = timedelta()
    #: Unsent dispatches of the same commit that this one takes the place of; if one was sent meanwhile, it stands.
    instead_of: tuple[int, ...] = ()
    #: Whether changed files decide, now or once a pause is over.
    by_paths: bool = False
    #: What is decided should one of them have been sent.
    otherwise: Decision | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that follows from one event."""

    thread: str
    head_sha: str
    head_state: HeadState
    newest: bool  # Whether the event's facts (labels, title, base) are the newest we have of this head.
    describes: bool  # Whether a later dispatch of this head repeats this event's payload.
    superseded_heads: tuple[int, ...]
    superseded_dispatches: tuple[int, ...]
    superseded_reason: str
    dispatches: tuple[NewDispatch, ...]
    decisions: tuple[Decision, ...]


class _Order(StrEnum):
    """Where an event stands among what is known of its thread."""

    NEWER = "newer"  # It moves the thread to another head (or is the first we hear of it).
    CURRENT = "current"  # It speaks of the current head, and is the newest to do so.
    LATE = "late"  # It speaks of the current head, and something newer came before it.
    OLDER = "older"  # It speaks of a head that has been replaced since.


@dataclass(frozen=True, slots=True)
class _Scene:
    """An event with what is known around it, as every entry's decision looks at it."""

    event: PullRequestEvent | PushEvent
    delivery_id: str
    known: Known
    order: _Order
    head: KnownHead | None
    head_sha: str
    state: HeadState
    live: Mapping[RepoName, tuple[KnownDispatch, ...]]
    prefixes: tuple[str, ...]
    fresh_id: Callable[[], str]


def thread_of(event: PullRequestEvent | PushEvent) -> str:
    """What all heads of one pull request, or of one ref, have in common. Never parsed."""
    if isinstance(event, PullRequestEvent):
        return f"pull {event.number}"
    thread = f"push {event.ref}"
    if len(thread) > _LONGEST_THREAD:
        thread = f"{thread[: _LONGEST_THREAD - 65]} {hashlib.sha256(event.ref.encode()).hexdigest()}"
    return thread


def head_of(event: PullRequestEvent | PushEvent) -> str:
    """The commit that the event puts in front."""
    return event.head_sha if isinstance(event, PullRequestEvent) else event.after


def time_of(event: PullRequestEvent | PushEvent, received_at: datetime) -> datetime:
    """GitHub's time of the event, or ours where it names none."""
    return (event.updated_at if isinstance(event, PullRequestEvent) else event.pushed_at) or received_at


def plan(
    event: PullRequestEvent | PushEvent,
    *,
    delivery_id: str,
    received_at: datetime,
    allowlist: Allowlist,
    known: Known,
    label_prefixes: tuple[str, ...],
    fresh_id: Callable[[], str],
) -> Plan:
    """Decide for every entry, and for the heads that came before.

    ``fresh_id`` gives the delivery id of a dispatch that is not the webhook's own.
    """
    head_sha = head_of(event)
    head = next((known_head for known_head in known.heads if known_head.head_sha == head_sha), None)
    order = _order(event, head_sha, time_of(event, received_at), known.heads)
    state = _state(event, order, head)
    live: dict[RepoName, tuple[KnownDispatch, ...]] = {}
    for told in known.dispatches:
        if told.head_sha == head_sha and told.purpose == Purpose.TEST and told.state in LIVE:
            live[told.backend] = (*live.get(told.backend, ()), told)
    scene = _Scene(event, delivery_id, known, order, head, head_sha, state, live, label_prefixes, fresh_id)
    dispatches: list[NewDispatch] = []
    decisions: list[Decision] = []
    for entry in allowlist.entries:
        if isinstance(event, PushEvent):
            found = _decide_push(entry, scene, event)
        else:
            found = _decide_pull_request(entry, scene, event)
        if isinstance(found, NewDispatch):
            dispatches.append(found)
            found = found.decision
        decisions.append(found)
    decisions += [Decision("none", str(repo), code, said) for repo, code, said in allowlist.left_out]
    moves = order in {_Order.NEWER, _Order.CURRENT}
    if isinstance(event, PullRequestEvent) and moves:
        decisions.append(Decision("check", "", "gate" if state is HeadState.OPEN else f"gate_{state}"))
    starts = isinstance(event, PushEvent) or event.action in STARTS
    return Plan(
        thread=thread_of(event),
        head_sha=head_sha,
        head_state=state,
        newest=moves or head is None,
        describes=head is None or (starts and (moves or head.action not in STARTS)),
        superseded_heads=tuple(
            other.id for other in known.heads if moves and other.id != _id(head) and other.state == HeadState.OPEN
        ),
        superseded_dispatches=_superseded_dispatches(known, head_sha, state) if moves else (),
        superseded_reason="change_closed" if state is HeadState.CLOSED else "newer_head",
        dispatches=tuple(dispatches),
        decisions=tuple(decisions),
    )


def _id(head: KnownHead | None) -> int | None:
    return None if head is None else head.id


def _order(event: PullRequestEvent | PushEvent, head_sha: str, at: datetime, heads: tuple[KnownHead, ...]) -> _Order:
    if not heads:
        return _Order.NEWER
    latest = max(heads, key=lambda head: (head.updated_at, head.state != HeadState.SUPERSEDED, head.id))
    if latest.head_sha == head_sha:
        return _Order.CURRENT if at >= latest.updated_at else _Order.LATE
    if at != latest.updated_at:
        return _Order.NEWER if at > latest.updated_at else _Order.OLDER
    if event.before == latest.head_sha:
        return _Order.NEWER
    # Nothing comes before "opened", and a head that the current one replaced does not come after it.
    opened = isinstance(event, PullRequestEvent) and event.action == "opened"
    return _Order.OLDER if opened or latest.came_from == head_sha else _Order.NEWER


def _state(event: PullRequestEvent | PushEvent, order: _Order, head: KnownHead | None) -> HeadState:
    if order is _Order.OLDER:
        return HeadState.CLOSED if head is not None and head.state == HeadState.CLOSED else HeadState.SUPERSEDED
    if order is _Order.LATE and head is not None:
        return HeadState.CLOSED if head.state == HeadState.CLOSED else HeadState.OPEN
    return HeadState.CLOSED if isinstance(event, PullRequestEvent) and event.closed else HeadState.OPEN


def _superseded_dispatches(known: Known, head_sha: str, state: HeadState) -> tuple[int, ...]:
    """Tests that no backend has heard of and that nobody waits for any more."""
    return tuple(
        told.id
        for told in known.dispatches
        if told.purpose == Purpose.TEST
        and told.state in UNSENT
        and not told.every_commit
        and (told.head_sha != head_sha or state is HeadState.CLOSED)
    )


def _none(entry: Entry, reason: str, detail: str = "") -> Decision:
    return Decision("none", str(entry.repo), reason, detail)


def _tell(
    entry: Entry,
    scene: _Scene,
    verdict: Wanted | NeedsPaths | Filtered,
    purpose: Purpose,
    reason: str = "wanted",
    *,
    repeats: bool = False,
) -> NewDispatch | Decision:
    """Turn what the filters say into a dispatch, or into the reason for none.

    ``repeats``: not the webhook's own dispatch, but one of the head's newest payload under a fresh delivery id.
    """
    if isinstance(verdict, Filtered):
        return _none(entry, f"filtered_{verdict.reason}", verdict.text)
    state, decision = "planned", Decision("dispatch", str(entry.repo), reason)
    if (pause := scene.known.paused.get(entry.repo)) is not None:
        state, decision = "paused", _none(entry, "paused", pause)
    elif isinstance(verdict, NeedsPaths):
        state, decision = "pending_paths", Decision("decide_paths", str(entry.repo), "pending_paths")
    stored = scene.head.payload_delivery if scene.head is not None else None
    return NewDispatch(
        entry=entry,
        purpose=purpose,
        event_type="push" if isinstance(scene.event, PushEvent) else "pull_request",
        delivery_id=scene.fresh_id() if repeats else scene.delivery_id,
        payload_delivery=(stored or scene.delivery_id) if repeats else scene.delivery_id,
        state=state,
        reason=reason,
        decision=decision,
        by_paths=isinstance(verdict, NeedsPaths),
    )


def _decide_pull_request(entry: Entry, scene: _Scene, event: PullRequestEvent) -> NewDispatch | Decision:
    if _label_starts(entry, event, scene.prefixes):
        return _decide_label(entry, scene, event)
    verdict = decide(entry, _subject(event, event.action, event.labels))
    if isinstance(verdict, Filtered):
        return _tell(entry, scene, verdict, Purpose.TEST)
    if event.action in STARTS:
        return _decide_start(entry, scene, event, verdict)
    if scene.order is _Order.OLDER or (scene.order is _Order.LATE and event.action == "closed"):
        # A listener cancels on "closed": one that came after its pull request was reopened must not reach it.
        return _none(entry, "older_event", "something newer is known of this pull request")
    return _tell(entry, scene, verdict, Purpose.NOTIFY)


def _decide_start(
    entry: Entry, scene: _Scene, event: PullRequestEvent, verdict: Wanted | NeedsPaths
) -> NewDispatch | Decision:
    live = scene.live.get(entry.repo, ())
    late = scene.order in {_Order.LATE, _Order.OLDER}
    labelled = any(told.reason_code == BY_LABEL for told in live)
    if live and (event.action == "synchronize" or late or (event.action == "opened" and labelled)):
        return _none(entry, "already_dispatched", "this head was dispatched to this backend before")
    if scene.state is not HeadState.OPEN:
        if entry.every_commit:
            return _tell(entry, scene, verdict, Purpose.TEST, "every_commit")
        if scene.state is HeadState.CLOSED and not late:
            return _none(entry, "change_closed", "the pull request is closed")
        return _none(entry, "older_event", "something newer is known of this pull request")
    again = scene.head is not None and scene.head.state == HeadState.SUPERSEDED
    return _tell(entry, scene, verdict, Purpose.TEST, "current_again" if again else "wanted")


def _label_starts(entry: Entry, event: PullRequestEvent, prefixes: tuple[str, ...]) -> bool:
    """Whether the label that was just put on may start a run of this backend: L3's own, or one its filter waits for."""
    if event.action != "labeled" or event.label is None:
        return False
    if waits_for_label(entry, event.label):
        return True
    if entry.level is not Level.L3 or entry.device is None:
        return False
    # GitHub compares label names without case.
    return event.label.lower() in {f"{prefix}{entry.device}".lower() for prefix in prefixes}


def _decide_label(entry: Entry, scene: _Scene, event: PullRequestEvent) -> NewDispatch | Decision:
    """A label starts a run only where none of this head is on its way, running or finished."""
    forwarded = decide(entry, _subject(event, event.action, event.labels))
    if scene.order is _Order.OLDER:
        return _none(entry, "older_event", "something newer is known of this pull request")
    if scene.live.get(entry.repo):
        if isinstance(forwarded, Filtered):
            return _none(entry, "already_dispatched", "this head was dispatched to this backend before")
        return _tell(entry, scene, forwarded, Purpose.NOTIFY)
    if scene.state is not HeadState.OPEN:
        return _none(entry, "change_closed", "the pull request is closed")
    labels = event.labels
    if scene.order is _Order.LATE and scene.head is not None:
        labels = scene.head.labels
        if event.label is not None and event.label.lower() not in {label.lower() for label in labels}:
            return _none(entry, "label_gone", "the label has been taken off since")
    if "labeled" in entry.actions:
        # The entry asks for this webhook itself, so that is its run, and a second one would only repeat it.
        return _tell(entry, scene, forwarded, Purpose.TEST, BY_LABEL)
    action = scene.head.action if scene.head is not None else None
    candidates = (action, "synchronize", "opened", "reopened")
    standing_for = next((name for name in candidates if name in entry.actions), event.action)
    verdict = decide(entry, _subject(event, standing_for or event.action, labels))
    return _tell(entry, scene, verdict, Purpose.TEST, BY_LABEL, repeats=True)


def _subject(event: PullRequestEvent, action: str, labels: tuple[str, ...]) -> Subject:
    return Subject(
        event="pull_request",
        action=action,
        base_ref=event.base_ref,
        labels=labels,
        author_association=event.author_association,
    )


def _decide_push(entry: Entry, scene: _Scene, event: PushEvent) -> NewDispatch | Decision:
    verdict = decide(entry, Subject(event="push", ref=event.ref))
    if isinstance(verdict, Filtered):
        return _tell(entry, scene, verdict, Purpose.TEST)
    if event.ref.startswith(_QUEUE) and "merge_group" in entry.events:
        # GitHub pushes the queue's branch and asks for its checks besides: one commit, tested once.
        return _none(entry, "same_commit", "the merge queue's own event tells of this commit")
    if scene.live.get(entry.repo):
        return _none(entry, "already_dispatched", "this commit of this ref was dispatched to this backend before")
    if scene.order is _Order.OLDER and not entry.every_commit:
        return _none(entry, "older_event", "a newer push of this ref is known")
    told = _tell(entry, scene, verdict, Purpose.TEST, "every_commit" if scene.order is _Order.OLDER else "wanted")
    if wants_tags(entry) or not isinstance(told, NewDispatch):
        return told
    return _once_per_commit(entry, scene, event, told)


def _once_per_commit(entry: Entry, scene: _Scene, event: PushEvent, told: NewDispatch) -> NewDispatch | Decision:
    """One push often moves a branch and several tags to one commit: it is tested once, under the branch's name.

    A tag that came first gives way to the branch while nobody has heard of it; what was sent stands.
    """
    elsewhere = tuple(other for other in scene.known.elsewhere if other.backend == entry.repo)
    if not elsewhere:
        return replace(told, delay=TAG_GRACE) if event.ref.startswith(_TAGS) else told
    same = _none(entry, "same_commit", f"the same commit was dispatched for {elsewhere[0].ref}")
    gives_way = all(other.ref.startswith(_TAGS) and other.state in UNSENT for other in elsewhere)
    if not (event.ref.startswith(_BRANCHES) and gives_way):
        return same
    return replace(told, instead_of=tuple(other.id for other in elsewhere), otherwise=same)
