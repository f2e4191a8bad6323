"""A small second opinion of what each webhook asks for, written from PROTOCOL.md and not from the relay's own plan.

It reads the few forms of patterns that a driver needs (exact, ``prefix**``) and refuses the rest, so that it can never
be wrong in silence.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from allowlist.model import Entry, Level
from tests.promises.record import Event, Record, Request
from tests.promises.trouble import Trouble

STARTS = frozenset({"opened", "reopened", "synchronize"})
_TELLS_ONLY = frozenset({"closed", "unlabeled", "edited", "ready_for_review"})
_QUEUE = "refs/heads/gh-readonly-queue/"


class Fate(StrEnum):
    """What became of a pair of an event and a backend that wants it."""

    DELIVERED = "delivered"
    SUPERSEDED = "superseded"
    LATE = "superseded while others waited as long"
    OVERTAKEN = "overtaken"
    REFUSED = "refused"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Want:
    """A backend is to be told of an event. ``own``: by this very delivery, else any dispatch of this head will do."""

    backend: str
    event: Event
    own: bool
    every_commit: bool
    tags: bool = False


def wants_of(events: Iterable[Event], entries: Iterable[Entry], prefix: str = "ciflow/crcr/") -> Iterator[Want]:
    """What every accepted event asks for. Raises ValueError for an entry that this opinion does not cover."""
    listed = tuple(entries)
    for entry in listed:
        if entry.labels and entry.actions & {"labeled", "unlabeled"}:
            raise ValueError(f"{entry.repo}: a filter of labels beside these actions is not covered here")
    for event in events:
        if event.accepted is not None:
            for entry in listed:
                own = asks(entry, event, prefix)
                if own is not None and (not entry.paths or "refs/tags/" in event.ref or _touches(entry, event)):
                    tags = any(ref.startswith("refs/tags/") for ref in entry.refs)
                    yield Want(str(entry.repo), event, own, entry.every_commit, tags)


def asks(entry: Entry, event: Event, prefix: str = "ciflow/crcr/") -> bool | None:
    """Whether the entry wants the event, ``paths`` aside: None for no, True for a dispatch of its very own."""
    if event.name == "push":
        return _asks_push(entry, event)
    if event.name == "merge_group":
        wanted = "merge_group" in entry.events and event.action == "checks_requested" and _base(entry, event)
        return False if wanted else None
    if event.name != "pull_request" or "pull_request" not in entry.events or not _base(entry, event):
        return None
    if entry.authors and event.author_association not in entry.authors:
        return None
    if event.action == "labeled" and _label_starts(entry, event, prefix):
        return None if event.closed else False
    if event.action not in entry.actions:
        return None
    if event.action != "closed" and entry.labels and not event.labels & {label.lower() for label in entry.labels}:
        return None
    return event.action == "reopened" or event.action not in STARTS


def _asks_push(entry: Entry, event: Event) -> bool | None:
    if "push" not in entry.events or (entry.refs and not _matches(entry.refs, event.ref)):
        return None
    return None if event.ref.startswith(_QUEUE) and "merge_group" in entry.events else False


def _label_starts(entry: Entry, event: Event, prefix: str) -> bool:
    if event.label in {label.lower() for label in entry.labels}:
        return True
    if entry.labels and not event.labels & {label.lower() for label in entry.labels}:
        return False
    return entry.level is Level.L3 and event.label == f"{prefix}{entry.device}".lower()


def _base(entry: Entry, event: Event) -> bool:
    return not entry.base or _matches(entry.base, event.base_ref)


def _touches(entry: Entry, event: Event) -> bool:
    return event.action == "closed" or any(_matches(entry.paths, path) for path in event.files)


def _matches(patterns: Iterable[str], text: str) -> bool:
    found = False
    for pattern in patterns:
        stem = pattern.removesuffix("**")
        if set(stem) & set("*?[]!{}"):
            raise ValueError(f"the pattern {pattern!r} is not covered here")
        found = found or (text.startswith(stem) if stem != pattern else text == pattern)
    return found


#: A want that gave way late is delay, and no loss, where so many other backends of webhooks taken within so many
#: seconds of its own were told only after that moment. A relay that forgets one pair among punctual ones is found out.
_PEERS = 3
_PEER_SECONDS = 15.0

#: So many tries may each have arrived before the relay waits until more can be seen.
_BLIND = 2
#: So many refusals with nothing between them that worked, and a backend is left alone.
_OVER_AND_OVER = 5


class Reckoning:
    """What became of each want, from the dispatches that took effect and from what happened upstream besides."""

    def __init__(self, record: Record, trouble: Trouble) -> None:
        self._trouble = trouble
        taken = {event.guid: event.accepted[1] for event in record.events if event.accepted is not None}
        told = ((taken[sent.delivery_id], sent) for sent in record.delivered if sent.delivery_id in taken)
        self._told = sorted(told, key=lambda one: one[0])
        self._sent_to: dict[str, list[Request]] = {}
        self._by_delivery: dict[tuple[str, str], list[Request]] = {}
        self._by_head: dict[tuple[str, str], list[Request]] = {}
        self._doubtful: dict[tuple[str, str], list[float]] = {}
        for tried in record.requests:
            if not tried.effect and not 200 <= tried.status < 500:
                self._doubtful.setdefault((tried.backend, tried.delivery_id), []).append(tried.ended)
        for sent in record.delivered:
            self._sent_to.setdefault(sent.backend, []).append(sent)
            self._by_delivery.setdefault((sent.backend, sent.delivery_id), []).append(sent)
            self._by_head.setdefault((sent.backend, sent.head_sha), []).append(sent)
        self._threads: dict[str, list[Event]] = {}
        self._pushed: dict[str, list[Event]] = {}
        for event in record.events:
            self._threads.setdefault(event.thread, []).append(event)
            if event.name == "push":
                self._pushed.setdefault(event.head_sha, []).append(event)
        self._refused: dict[str, list[float]] = {}
        for refusal in record.refusals:
            self._refused.setdefault(refusal.backend, []).append(refusal.at)

    def fate(self, want: Want) -> Fate:
        """What became of it."""
        event = want.event
        assert event.accepted is not None
        if self._delivered(want):
            return Fate.DELIVERED
        tells = _only_tells(event)
        if (tells or not want.every_commit) and self._overtaken(event):
            return Fate.OVERTAKEN
        gives_way = not (tells or want.every_commit)
        if gives_way and self._superseded(want):
            return Fate.SUPERSEDED
        if any(at >= event.accepted[0] for at in self._refused.get(want.backend, ())):
            return Fate.REFUSED
        if tells and self._was_refusing(want.backend, event.accepted[0]):
            return Fate.REFUSED
        if gives_way and self._superseded_late(want):
            return Fate.LATE
        return Fate.LOST

    def _delivered(self, want: Want) -> bool:
        event = want.event
        if (want.backend, event.guid) in self._by_delivery:
            return True
        if want.own:
            return False
        return any(
            sent.action not in _TELLS_ONLY and _same_thread(sent, event, tags=want.tags)
            for sent in self._by_head.get((want.backend, event.head_sha), ())
        )

    def _was_refusing(self, backend: str, at: float) -> bool:
        """Whether GitHub had last said, over and over, that this backend is not to be had.

        What comes then is a dead letter, and nothing is asked about it. Once the backend is back it is told of the
        heads that are current, which a word of an end is not.
        """
        worked = max((sent.began for sent in self._sent_to.get(backend, ()) if sent.began < at), default=0.0)
        return sum(worked < refused < at for refused in self._refused.get(backend, ())) >= _OVER_AND_OVER

    def _overtaken(self, event: Event) -> bool:
        """Whether something that happened later in the thread may have reached the relay before it."""
        assert event.accepted is not None
        return any(
            other.happened >= event.happened and other.accepted is not None and other.accepted[0] < event.accepted[1]
            for other in self._threads[event.thread]
            if other is not event
        )

    def _superseded(self, want: Want) -> bool:
        """Whether a newer head or an end came before the relay can be blamed for not having sent it.

        A tag of a commit gives way to the branch that has it, so the end of either will do.
        """
        waits = self._waits_unseen(want)
        return any(
            min(replaced) <= max(waits, self._trouble.excused_until(accepted))
            for accepted, replaced in self._replaced(want.event)
        )

    def _waits_unseen(self, want: Want) -> float:
        """Until when it waits because two tries have failed, and may have arrived for all that can be seen."""
        failed = self._doubtful.get((want.backend, want.event.guid), ())
        return 0.0 if len(failed) < _BLIND else max(failed) + self._trouble.unseen

    def _superseded_late(self, want: Want) -> bool:
        """Whether it gave way to a newer head or an end while backends of other webhooks waited longer still."""
        return any(
            self._waited_longer(want.backend, accepted, min(replaced))
            for accepted, replaced in self._replaced(want.event)
        )

    def _waited_longer(self, backend: str, accepted: float, moment: float) -> bool:
        first = bisect_left(self._told, accepted - _PEER_SECONDS, key=lambda one: one[0])
        peers: set[str] = set()
        for taken, sent in self._told[first:]:
            if taken > accepted + _PEER_SECONDS or len(peers) >= _PEERS:
                break
            # Whoever was taken first waits longest; one taken later that goes out later has waited no longer.
            if sent.backend != backend and taken <= moment < sent.began:
                peers.add(sent.backend)
        return len(peers) >= _PEERS

    def _replaced(self, event: Event) -> Iterator[tuple[float, list[float]]]:
        """When it was taken, and when each of what ended it was: for the event and for those of the same commit."""
        same = self._pushed.get(event.head_sha, ()) if event.name == "push" else (event,)
        for one in same:
            if one.accepted is None:
                continue
            ends = [
                other.accepted[0]
                for other in self._threads[one.thread]
                if other.accepted is not None
                and one.accepted[0] < other.accepted[0]
                and (other.head_sha != one.head_sha or other.closed)
            ]
            if ends:
                yield one.accepted[1], ends


def _only_tells(event: Event) -> bool:
    return event.name == "pull_request" and event.action in _TELLS_ONLY


def _same_thread(sent: Request, event: Event, *, tags: bool) -> bool:
    if event.name != "push":
        return sent.kind != "push"
    return sent.kind == "push" and (not tags or sent.ref == event.ref)


def fates(record: Record, wants: Iterable[Want], trouble: Trouble) -> Mapping[Fate, tuple[Want, ...]]:
    """All wants by what became of them."""
    reckoning = Reckoning(record, trouble)
    found: dict[Fate, list[Want]] = {fate: [] for fate in Fate}
    for want in wants:
        found[reckoning.fate(want)].append(want)
    return {fate: tuple(those) for fate, those in found.items()}
