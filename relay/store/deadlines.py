"""Deadlines in SQL: which dispatches have run out of time, and what is concluded of each.

A conclusion of ours is never success and always yields to a report that still comes (``levels.lifecycle.stand``).
GitHub is asked about the runs before anything is concluded, and has less than a minute to answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, exists, func, insert, not_, or_, select, update

from allowlist.model import RepoName
from levels.legs import Leg
from levels.lifecycle import Expectation, stand
from levels.outcomes import UNSETTLED, Outcome
from levels.witness import at_deadline
from relay.deciding.effects import Kind
from relay.deciding.terms import Terms
from relay.store.checks import CheckTerms, touch_head
from relay.store.dispatching import load_to_send, note_backend_error, note_undelivered
from relay.store.observations import NOTHING, Seen, load_seen
from relay.store.observing import OBSERVED_LEVELS, ask_now
from relay.store.outbox import dead_of
from relay.store.standing import leg_of
from relay.store.tables import Audit, Change, Dispatch, Effect, Job
from relay.store.told import outcome_of
from relay.texts.words import clock, deadline_sentence, outcome_phrase

_audit = Audit.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_change = Change.__table__  # type: ignore[attr-defined]
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_effect = Effect.__table__  # type: ignore[attr-defined]
_job = Job.__table__  # type: ignore[attr-defined]

#: Rows locked by one pass. What is left over is taken by the next.
BATCH = 200

_SENDING = (Kind.DISPATCH, Kind.DECIDE_PATHS)

#: How long a deadline waits for GitHub's answer about the runs, and no longer: GitHub being down keeps no gate open.
PATIENCE = timedelta(seconds=45)

#: Who an act of the relay itself is put down to.
SELF = "relay"


@dataclass(frozen=True, slots=True)
class Concluded:
    """What a deadline made of one dispatch."""

    dispatch_id: int
    backend: RepoName
    head_sha: str
    origin: str  # The delivery, or other cause, that made us dispatch.
    before: Outcome
    outcome: Outcome
    reason: str


def sweep_deadlines(
    conn: Connection, now: datetime, check_terms: CheckTerms, *, count: int = BATCH
) -> tuple[Concluded, ...]:
    """Conclude what has run out of time; returns what was concluded, at most ``count`` at once.

    Safe to repeat, and on two replicas at once: each takes rows that the other has not locked.
    """
    rows = [*_due(conn, now, count), *_past_the_gate(conn, now, count)]
    if not rows:
        return ()
    legs = _legs(conn, [row.id for row in rows])
    seen = load_seen(conn, [row.id for row in rows if row.observed_at is not None])
    concluded: list[Concluded] = []
    for row in rows:
        made = _conclude(row, legs.get(row.id, []), seen.get(row.id, NOTHING), now)
        if made is None:
            _settle(conn, row.id)
            continue
        _note(conn, row, made, now)
        concluded.append(made)
    for head_sha, backend in sorted({(one.head_sha, str(one.backend)) for one in concluded}):
        touch_head(conn, head_sha, check_terms, now, backend=backend)
    return tuple(concluded)


def ask_first(conn: Connection, now: datetime, *, count: int = BATCH) -> int:
    """Have GitHub asked about the runs of what has just run out of time; returns how many are to be looked at.

    A run that was never reported on may be under way, and one that was may have ended: both are better known than
    concluded. The deadline waits ``PATIENCE`` for the answer.
    """
    asking = exists(_effect.c.id).where(
        _effect.c.kind == Kind.OBSERVE.value,
        _effect.c.subject_id == _dispatch.c.id,
        or_(
            _effect.c.state == "running",
            # One that failed waits for its own next try.
            and_(_effect.c.state == "ready", or_(_effect.c.due <= now, _effect.c.failures > 0)),
        ),
    )
    asked = 0
    for past, deadline in (
        (_dispatch.c.next_deadline <= now, _dispatch.c.next_deadline),
        (_past_the_gates(now), _dispatch.c.give_up_at),
    ):
        rows = conn.execute(
            select(_dispatch.c.id, _dispatch.c.backend, _dispatch.c.level)
            .where(past, _worth_asking(deadline, now), ~asking)
            .order_by(_dispatch.c.id)
            .limit(count)
        ).all()
        for row in rows:
            ask_now(conn, row.id, RepoName.parse(row.backend), row.level, now)
        asked += len(rows)
    return asked


def note_dead_letters(conn: Connection, now: datetime, check_terms: CheckTerms, *, count: int = BATCH) -> int:
    """Mark dispatches whose effect is dead and which nobody marked; returns how many.

    The worker marks them itself. This finds what a process left behind that died between the two.
    """
    again = _effect.alias("again")
    waiting = exists(again.c.id).where(
        again.c.kind.in_([kind.value for kind in _SENDING]),
        again.c.subject_id == _dispatch.c.id,
        again.c.state.in_(("ready", "running")),
    )
    rows = conn.execute(
        select(_dispatch.c.id, _effect.c.reason, _effect.c.detail)
        .join(_effect, _effect.c.subject_id == _dispatch.c.id)
        .where(dead_of(_SENDING), _dispatch.c.state.in_(("planned", "pending_paths")), ~waiting)
        .order_by(_effect.c.id)
        .limit(count)
    ).all()
    if not rows:
        return 0
    reasons = {row.id: (row.reason, row.detail) for row in rows}
    for dispatch_id, sent in load_to_send(conn, list(reasons)).items():
        note_undelivered(conn, sent, *reasons[dispatch_id], check_terms, now)
    return len(reasons)


def _rows() -> Any:
    return (
        select(_dispatch, _change.c.head_sha)
        .join(_change, _change.c.id == _dispatch.c.change_id)
        .with_for_update(of=_dispatch, skip_locked=True)
    )


def _due(conn: Connection, now: datetime, count: int) -> list[Any]:
    """Dispatches whose own deadline is over."""
    statement = (
        _rows()
        .where(_dispatch.c.next_deadline <= now, not_(_worth_asking(_dispatch.c.next_deadline, now)))
        .order_by(_dispatch.c.next_deadline, _dispatch.c.id)
    )
    return list(conn.execute(statement.limit(count)).all())


def _past_the_gate(conn: Connection, now: datetime, count: int) -> list[Any]:
    """Dispatches that may still run by their own deadline, but for which the gate waits no longer.

    A start that came late moves the backend's deadline and not the gate's: no pull request waits longer than was said
    when the change was received. A new attempt has a deadline of its own, and is left alone.
    """
    statement = (
        _rows()
        .where(_past_the_gates(now), not_(_worth_asking(_dispatch.c.give_up_at, now)))
        .order_by(_dispatch.c.give_up_at, _dispatch.c.id)
    )
    return list(conn.execute(statement.limit(count)).all())


def _past_the_gates(now: datetime) -> ColumnElement[bool]:
    return and_(
        _dispatch.c.next_deadline > now,
        _dispatch.c.give_up_at <= now,
        ~exists(_job.c.id).where(_job.c.dispatch_id == _dispatch.c.id, _job.c.run_attempt > 1),
    )


def _worth_asking(deadline: Any, now: datetime) -> ColumnElement[bool]:
    """Whether GitHub may know more of a dispatch whose ``deadline`` is over, and was not asked since.

    Each part is true or false and never unknown, so that its opposite can be asked for, too.
    """
    return and_(
        _dispatch.c.state == "sent",
        _dispatch.c.purpose == "test",
        _dispatch.c.level.in_(OBSERVED_LEVELS),
        _dispatch.c.outcome.in_([outcome.value for outcome in UNSETTLED]),
        deadline > now - PATIENCE,
        func.coalesce(_dispatch.c.observed_at, _dispatch.c.created_at) < deadline,
    )


def _conclude(row: Any, legs: Iterable[Leg], seen: Seen, now: datetime) -> Concluded | None:
    """What this deadline means, or None where nothing is awaited any more."""
    before = outcome_of(row.state, row.outcome)
    if before not in UNSETTLED or row.purpose != "test":
        return None
    every = tuple(legs)
    if not every and row.state == "sent" and row.level not in OBSERVED_LEVELS:
        return None  # Nothing that it says is taken at its level, so its silence says nothing either.
    terms = Terms.from_json(row.terms)
    if every:
        # It was told, whatever became of our own note of that: a callback may come while the dispatch call is open.
        ours = Outcome.TIMED_OUT if _in_time(every, terms.run, now) else Outcome.LOST
    else:
        ours = Outcome.UNDELIVERED if row.state in {"planned", "pending_paths"} else Outcome.SILENT
    if ours is not Outcome.UNDELIVERED:
        ours = at_deadline(ours, seen.runs, reported=bool(every))
    expectation = Expectation(jobs=row.legs_expected, versions=terms.versions)
    outcome = stand(every, expectation, concluded=ours).outcome
    if outcome in UNSETTLED:
        # A start without a leg cannot be weighed; what was concluded of it stands.
        outcome = ours
    patience = timedelta.max if row.give_up_at is None else row.give_up_at - row.created_at
    reason = deadline_sentence(
        outcome,
        queue=min(terms.queue, patience),
        run=min(terms.run, patience),
        reported=row.legs_reported,
        expected=row.legs_expected,
    )
    return Concluded(row.id, RepoName.parse(row.backend), row.head_sha, row.origin_delivery, before, outcome, reason)


def _in_time(legs: Iterable[Leg], run: timedelta, now: datetime) -> bool:
    """Whether the newest attempt of any run still has time of its own, so that it is the gate which waits no longer."""
    began: dict[str, tuple[int, datetime]] = {}
    for leg in legs:
        at = leg.started_at or leg.completed_at
        if at is None:
            continue
        attempt, first = began.get(leg.run_id, (0, at))
        if leg.run_attempt > attempt:
            began[leg.run_id] = leg.run_attempt, at
        elif leg.run_attempt == attempt:
            began[leg.run_id] = attempt, min(first, at)
    return any(at + run > now for _, at in began.values())


def _note(conn: Connection, row: Any, made: Concluded, now: datetime) -> None:
    conn.execute(
        update(_dispatch)
        .where(_dispatch.c.id == made.dispatch_id)
        .values(
            concluded=made.outcome.value,
            concluded_at=now,
            outcome=made.outcome.value,
            outcome_at=now,
            next_deadline=None,
        )
    )
    conn.execute(
        insert(_audit),
        {
            "at": now,
            "who": SELF,
            "what": "deadline",
            "subject": f"dispatch {made.dispatch_id} to {made.backend} of {made.head_sha}",
            "why": made.reason,
            "before": made.before.value,
            "after": made.outcome.value,
        },
    )
    unasked = row.observed_at is None or row.observed_at < row.next_deadline
    if row.state == "sent" and row.level in OBSERVED_LEVELS and unasked:
        # GitHub gave no answer in time, or we were away when time ran out: what it shows then still replaces silence.
        ask_now(conn, made.dispatch_id, made.backend, row.level, now)
    told = f"{outcome_phrase(made.outcome)} at {clock(now)} for commit {made.head_sha[:12]}: {made.reason}"
    note_backend_error(conn, made.backend, told, now)


def _settle(conn: Connection, dispatch_id: int) -> None:
    """Nothing is awaited of this dispatch, so no deadline looks at it again."""
    conn.execute(update(_dispatch).where(_dispatch.c.id == dispatch_id).values(next_deadline=None))


def _legs(conn: Connection, dispatch_ids: list[int]) -> dict[int, list[Leg]]:
    rows = conn.execute(select(_job).where(_job.c.dispatch_id.in_(dispatch_ids)).order_by(_job.c.id))
    legs: dict[int, list[Leg]] = {}
    for row in rows:
        legs.setdefault(row.dispatch_id, []).append(leg_of(row))
    return legs
