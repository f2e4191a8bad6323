"""Callbacks in SQL: one transaction takes a callback, decides on it, and keeps it with all that follows from it.

Callbacks that come into one transaction are taken together: each is decided on by itself, and then one statement reads
or writes what is needed for all. The dispatch rows are locked first, so that two replicas cannot fold the same legs at
once. A refusal writes nothing, but for what others must hear of: ids that are not known yet are asked for, and another
identity is noted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self

from sqlalchemy import Connection, Row, Select, bindparam, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from allowlist.model import Level, RepoName
from relay.deciding.effects import NewEffect, forward_hud, pin_backend
from relay.deciding.terms import Terms
from relay.results.binding import Bound, KnownDispatch, PinnedIds, Refusal, bind
from relay.store.checks import SHOWN_LEVELS, CheckTerms, touch_reported
from relay.store.legs import Changed, Said, Told, refold_all
from relay.store.nights import DISPATCH_BY_DELIVERY, DISPATCHES_BY_ID, confirm, night, nightly_subject
from relay.store.observing import OBSERVED_LEVELS, first_look
from relay.store.outbox import enqueue, on_conflict_do_nothing
from relay.store.report_rows import Callback, differences, report_values, test_values
from relay.store.shared import SharedUnit
from relay.store.tables import Backend, Dispatch, Report, TestResult

__all__ = ["Accepted", "Callback", "Incoming", "KeepTerms", "accept", "confirm", "nightly_subject"]

_backend = Backend.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_report = Report.__table__  # type: ignore[attr-defined]
_test_result = TestResult.__table__  # type: ignore[attr-defined]

#: When a backend was last seen is kept to this, so that a burst of callbacks does not rewrite one row each time.
SEEN_EVERY = timedelta(seconds=10)

#: Refusals that say nothing about the caller; the same call may work a moment later.
NOT_YET = "not_pinned_yet"

#: The refusal that an admin must hear of: somebody else may sit under a backend's name.
OTHER_IDENTITY = "identity_changed"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The callback is kept; ``replayed`` when it was before. Unless ``decides``, ``reason`` says why it does not."""

    dispatch_id: int
    origin: str  # The delivery that all of this began with.
    head_sha: str
    replayed: bool
    decides: bool
    reason: str
    notes: tuple[str, ...]
    urgent: bool  # Something is to be done that should not wait until the worker looks anyway.


@dataclass(frozen=True, slots=True)
class KeepTerms:
    """What decides which effects a kept callback has."""

    checks: CheckTerms
    hud: bool


_SEEN: Select[Any] = select(
    _backend.c.repo.label("seen_repo"),
    _backend.c.repository_id,
    _backend.c.owner_id,
    _backend.c.private,
    _backend.c.last_seen_at,
).where(_backend.c.repo.in_(bindparam("callers", expanding=True)))

_NOTE_ERROR = (
    update(_backend)
    .where(
        _backend.c.repo == bindparam("b_repo"),
        or_(_backend.c.last_error.is_(None), _backend.c.last_error != bindparam("b_error")),
    )
    .values(last_error=bindparam("b_error"), last_error_at=bindparam("b_now", type_=_backend.c.last_error_at.type))
)

_ADD_REPORTS: Mapping[str, Any] = {
    name: dialect.insert(_report)
    .on_conflict_do_nothing(index_elements=["digest"])
    .returning(_report.c.id, _report.c.digest)
    for name, dialect in (("sqlite", sqlite), ("postgresql", postgresql))
}
_ADD_TESTS = insert(_test_result)


@dataclass(frozen=True, slots=True)
class Incoming(SharedUnit):
    """A callback that is to be kept or refused; ``now`` is when it came."""

    callback: Callback
    terms: KeepTerms
    now: datetime

    @classmethod
    def do_all(cls, conn: Connection, units: Sequence[Self]) -> Sequence[Accepted | Refusal]:
        """What becomes of each."""
        found = _find(conn, [unit.callback for unit in units])
        seen = _seen(conn, units, found)
        refused: dict[int, Refusal] = {}
        kept: list[_Kept] = []
        told: dict[int, Told] = {}
        for place, (unit, row) in enumerate(zip(units, found, strict=True)):
            bound = _bind(unit, row, told, seen.get(str(unit.callback.caller.repo)))
            if isinstance(bound, Refusal):
                refused[place] = bound
                _note_refusal(conn, unit, bound)
                continue
            kept.append(_keep(conn, place, unit, bound, row, told))
        accepted = _write(conn, kept, seen)
        return [refused.get(place) or accepted[place] for place in range(len(units))]


@dataclass(frozen=True, slots=True)
class _Kept:
    """A callback that is not refused, and the row that it becomes."""

    place: int
    unit: Incoming
    bound: Bound
    found: Row[Any]
    told: Told
    notes: tuple[str, ...]
    values: Mapping[str, object]


def accept(conn: Connection, callback: Callback, terms: KeepTerms, now: datetime) -> Accepted | Refusal:
    """Keep one callback, once: whatever is wrong with it is a Refusal, and then nothing of it was consumed."""
    return Incoming.do_all(conn, [Incoming(callback, terms, now)])[0]


def _find(conn: Connection, callbacks: Sequence[Callback]) -> list[Row[Any] | None]:
    """The dispatch that each speaks of, locked; None for a self-report and where there is none."""
    named = sorted({one.dispatch_id for one in callbacks if one.dispatch_id is not None})
    by_id = {row.id: row for row in DISPATCHES_BY_ID.execute(conn, {"dispatch_ids": named})} if named else {}
    found: list[Row[Any] | None] = []
    for one in callbacks:
        if one.report.self_reported:
            found.append(None)
        elif one.report.capability is not None:
            found.append(None if one.dispatch_id is None else by_id.get(one.dispatch_id))
        else:
            asked = {"caller": str(one.caller.repo), "delivery_id": one.report.delivery_id}
            found.append(conn.execute(DISPATCH_BY_DELIVERY, asked).first())
    return found


def _seen(conn: Connection, units: Sequence[Incoming], found: Sequence[Row[Any] | None]) -> dict[str, Row[Any]]:
    """What is known of each caller. Most call about a dispatch of their own, and that was read with it."""
    seen = {row.backend: row for row in found if row is not None and row.seen_repo is not None}
    others = {str(unit.callback.caller.repo) for unit in units} - seen.keys()
    if others:
        seen |= {row.seen_repo: row for row in conn.execute(_SEEN, {"callers": sorted(others)})}
    return seen


def _bind(unit: Incoming, row: Row[Any] | None, told: dict[int, Told], seen: Row[Any] | None) -> Bound | Refusal:
    callback = unit.callback
    known = None
    if row is not None:
        told[row.id] = told.get(row.id) or _told(row)
        known = KnownDispatch(row.backend, Level(row.level), told[row.id].terms, row.give_up_at)
    return bind(
        callback.caller,
        callback.report,
        callback.entry,
        dispatch=known,
        capability_is_ours=callback.dispatch_id is not None,
        pinned=PinnedIds() if seen is None else PinnedIds(seen.repository_id, seen.owner_id),
        now=unit.now,
    )


def _note_refusal(conn: Connection, unit: Incoming, refusal: Refusal) -> None:
    repo = unit.callback.caller.repo
    if refusal.code == NOT_YET:
        enqueue(conn, [pin_backend(repo)], unit.now)
    if refusal.code == OTHER_IDENTITY:
        conn.execute(_NOTE_ERROR, {"b_repo": str(repo), "b_error": refusal.detail, "b_now": unit.now})


def _told(row: Row[Any]) -> Told:
    return Told(
        id=row.id,
        state=row.state,
        purpose=row.purpose,
        terms=Terms.from_json(row.terms),
        sent_at=row.sent_at,
        started_at=row.started_at,
        next_deadline=row.next_deadline,
        concluded=row.concluded,
        concluded_at=row.concluded_at,
        outcome=row.outcome,
        outcome_at=row.outcome_at,
        legs_reported=row.legs_reported,
        legs_expected=row.legs_expected,
        late=row.late,
        observed_at=row.observed_at,
        give_up_at=row.give_up_at,
        rerun_at=row.rerun_at,
    )


def _keep(
    conn: Connection, place: int, unit: Incoming, bound: Bound, row: Row[Any] | None, told: dict[int, Told]
) -> _Kept:
    callback = unit.callback
    caller, report = callback.caller, callback.report
    found = row or night(conn, caller.repo, report, callback.entry, unit.terms.checks.upstream, unit.now)
    told[found.id] = told.get(found.id) or _told(found)
    notes = (*report.notes, *(() if report.self_reported else differences(report, found)))
    values = report_values(callback, bound, found.id, notes, unit.now)
    return _Kept(place, unit, bound, found, told[found.id], notes, values)


def _write(conn: Connection, kept: Sequence[_Kept], seen: Mapping[str, Row[Any]]) -> dict[int, Accepted]:
    """Write what is to be kept, with all that follows from it; what the caller of each is told, by its place."""
    if not kept:
        return {}
    # The first of those that say the same is the one that is new, as if each had come alone.
    first: dict[object, _Kept] = {}
    for one in kept:
        first.setdefault(one.values["digest"], one)
    rows = [one.values for one in first.values()]
    # To have many rows tell their ids costs something beforehand, which one alone need not pay.
    added = conn.execute(_ADD_REPORTS[conn.dialect.name], rows if len(rows) > 1 else rows[0])
    new = {first[row.digest].place: int(row.id) for row in added}
    _note_seen(conn, kept, seen)
    fresh = [one for one in kept if one.place in new]
    tests = [test_values(new[one.place], test) for one in fresh for test in one.unit.callback.report.failed_tests]
    if tests:
        conn.execute(_ADD_TESTS, tests)
    said = [Said(one.told, one.bound.run_id, one.bound.run_attempt, one.unit.callback.report.job_name) for one in fresh]
    now = kept[-1].unit.now
    changed = refold_all(conn, said, now)
    touching = [one for one in fresh if _touches(one, changed[one.found.id])]
    backends: defaultdict[str, set[str]] = defaultdict(set)
    for one in touching:
        backends[one.found.head_sha].add(one.found.backend)
    if backends:
        touch_reported(conn, backends, kept[-1].unit.terms.checks, now)
    effects = [*_forwards(fresh, new), *_looks(fresh, changed)]
    if effects:
        enqueue(conn, effects, now)
    touched = {one.place for one in touching}
    return {one.place: _accepted(one, new=one.place in new, touches=one.place in touched) for one in kept}


def _touches(one: _Kept, changed: Changed) -> bool:
    """Whether a check may say something else now."""
    # Once the outcome stands, what other legs say still belongs into the check's text.
    shows = changed.outcome or (changed.legs and (changed.settled or one.unit.terms.checks.per_job))
    # A dispatch of a level that neither shows nor blocks is part of no check, whatever becomes of it.
    return one.bound.decides and shows and one.found.purpose == "test" and one.found.level in SHOWN_LEVELS


def _forwards(fresh: Iterable[_Kept], new: Mapping[int, int]) -> list[NewEffect]:
    return [
        forward_hud(new[one.place], one.found.id, one.unit.callback.report.job_name)
        for one in fresh
        if one.unit.terms.hud
    ]


def _looks(fresh: Iterable[_Kept], changed: Mapping[int, Changed]) -> list[NewEffect]:
    """A first look at the runs of each dispatch whose outcome now stands."""
    rows = {one.found.id: one.found for one in fresh}
    return [
        first_look(row.id, RepoName.parse(row.backend), row.level)
        for row in rows.values()
        if changed[row.id].outcome
        and changed[row.id].settled
        and row.purpose == "test"
        and row.level in OBSERVED_LEVELS
    ]


def _accepted(one: _Kept, *, new: bool, touches: bool) -> Accepted:
    return Accepted(
        dispatch_id=one.found.id,
        origin=one.found.origin_delivery,
        head_sha=one.found.head_sha,
        replayed=not new,
        decides=one.bound.decides,
        reason=one.bound.reason,
        notes=one.notes,
        urgent=new and (touches or one.unit.callback.report.self_reported),
    )


def _note_seen(conn: Connection, kept: Iterable[_Kept], seen: Mapping[str, Row[Any]]) -> None:
    """When each backend was last heard of; and that it is private, as soon as a token says so."""
    private: dict[str, bool] = {}
    heard: dict[str, datetime] = {}
    for one in kept:
        repo = str(one.unit.callback.caller.repo)
        private[repo] = private.get(repo, False) or one.unit.callback.caller.private
        heard[repo] = one.unit.now
    for repo, now in heard.items():
        known = seen.get(repo)
        if known is None:
            values = {"repo": repo, "private": private[repo], "last_seen_at": now}
            conn.execute(on_conflict_do_nothing(conn, _backend), values)
            continue
        hides = private[repo] and not known.private
        if hides or known.last_seen_at is None or now - known.last_seen_at >= SEEN_EVERY:
            conn.execute(
                update(_backend)
                .where(_backend.c.repo == repo)
                .values(last_seen_at=now, private=known.private or private[repo])
            )
