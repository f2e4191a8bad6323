"""The outbox in SQL: write effects down, claim what is due, note how it ended.

An effect lives in a lane, and only the oldest open effect of a lane can be claimed, which keeps order where order
matters. A claim is a lease with a fencing number (``attempts``): whoever comes back after its lease was taken over
finds that its note no longer fits. What must wait is put aside by what it waits for (``relay.store.candidates``), so
that one blocked lane with thousands waiting stays cheap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    case,
    func,
    insert,
    null,
    select,
    tuple_,
    update,
)

from relay.deciding.circuits import Pace
from relay.deciding.effects import Kind, NewEffect
from relay.store import budgets, circuits
from relay.store.budgets import rest
from relay.store.candidates import IS_OPEN, NOTHING, OPEN_STATES, TIME, free_turns, release
from relay.store.circuits import Contact, Turned
from relay.store.claiming import LEASE, Claimed, Claims, claim
from relay.store.conflict import on_conflict_do_nothing
from relay.store.postgres import announce
from relay.store.tables import Attempt, Effect

__all__ = [
    "IS_DEAD",
    "LEASE",
    "Backlog",
    "Claimed",
    "Claims",
    "Ended",
    "backlog",
    "cancel",
    "claim",
    "conclude",
    "dead_of",
    "enqueue",
    "finish",
    "free_turns",
    "on_conflict_do_nothing",
    "open_count",
    "rest",
    "revive",
]

_effect = Effect.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_attempt = Attempt.__table__  # type: ignore[attr-defined]

IS_DEAD = _effect.c.state == bindparam("dead_state", "dead", literal_execute=True)

_BATCH = 500  # Below SQLite's bound on variables in one statement, whatever the row's width.


@dataclass(frozen=True, slots=True)
class Ended:
    """How one attempt ended. ``due`` is set when it will be tried again, ``resting`` when its account must rest."""

    effect: Claimed
    outcome: str  # done, retry, limited, dead
    seconds: float
    reason: str = ""
    detail: str = ""
    due: datetime | None = None
    resting: datetime | None = None
    named: bool = True  # Whether the time that its account must rest was GitHub's own word.
    not_before: datetime | None = None  # Before this time GitHub, or the HUD, does not want to be asked again.
    answered: bool = False  # Who was asked gave an answer that makes sense.
    down: bool = False  # Who was asked gave none, or a broken one.
    refused: bool = False  # What was asked for was refused for good.
    unsure: bool = False  # What was asked for may have been done although nobody said so.

    @property
    def of_try(self) -> tuple[int, int]:
        """Which try it ended: the effect, and its fencing number."""
        return self.effect.id, self.effect.attempts


def enqueue(conn: Connection, effects: Sequence[NewEffect], now: datetime) -> None:
    """Write effects down in their order. One with a ``coalesce_key`` that already waits is left out."""
    values = [
        {
            "lane": effect.lane,
            "pacing": effect.pacing,
            "kind": effect.kind.value,
            "subject_id": effect.subject_id,
            "subject": effect.subject,
            "coalesce_key": effect.coalesce_key,
            "state": "ready",
            "priority": effect.priority,
            "due": now + effect.delay,
            "attempts": 0,
            "failures": 0,
            "created_at": now,
            "reason": "",
            "detail": "",
        }
        for effect in effects
    ]
    for start in range(0, len(values), _BATCH):
        conn.execute(on_conflict_do_nothing(conn, _effect), values[start : start + _BATCH])
    # A row for the HUD may wait for the next look (``relay.work.hud_places``).
    if any(not effect.delay and effect.kind is not Kind.FORWARD_HUD for effect in effects):
        announce(conn)


_FINISH = (
    update(_effect)
    .where(
        _effect.c.id == bindparam("b_id"),
        _effect.c.owner == bindparam("b_owner"),
        _effect.c.attempts == bindparam("b_attempts"),
        _effect.c.state == "running",
    )
    .values(
        state=bindparam("b_state"),
        failures=_effect.c.failures + bindparam("b_failed"),
        # A retry may find that a later effect with the same coalescing key waits already: it gives the key up, since
        # the unique index allows one waiting effect for each key, and being done twice is harmless by design.
        coalesce_key=case((bindparam("b_state") == "ready", null()), else_=_effect.c.coalesce_key),
        due=bindparam("b_due", type_=_effect.c.due.type),
        not_before=bindparam("b_not_before", type_=_effect.c.due.type),
        finished_at=bindparam("b_finished", type_=_effect.c.due.type),
        reason=bindparam("b_reason"),
        detail=bindparam("b_detail"),
        lease=None,
        owner=None,
    )
    .returning(_effect.c.id)
)


_DONE = (
    update(_effect)
    .where(
        # Id and fencing number together, for as many as came to an end in the same moment.
        tuple_(_effect.c.id, _effect.c.attempts).in_(bindparam("b_held", expanding=True)),
        _effect.c.owner == bindparam("b_owner"),
        _effect.c.state == "running",
    )
    .values(
        state="done",
        finished_at=bindparam("b_now", type_=_effect.c.due.type),
        reason="",
        detail="",
        lease=None,
        owner=None,
    )
    .returning(_effect.c.id, _effect.c.attempts)
)


def finish(conn: Connection, ended: Sequence[Ended], *, owner: str, now: datetime) -> tuple[Ended, ...]:
    """Note how attempts ended; returns those whose lease was still ours. The others were taken over and noted there."""
    held: set[tuple[int, int]] = set()
    done = [end.of_try for end in ended if end.outcome == "done"]
    if done:
        held.update(
            (row.id, row.attempts) for row in conn.execute(_DONE, {"b_held": done, "b_owner": owner, "b_now": now})
        )
    for end in ended:
        if end.outcome != "done" and _finish_otherwise(conn, end, owner, now):
            held.add(end.of_try)
    noted = tuple(end for end in ended if end.of_try in held)
    release(conn, [end.effect.lane for end in noted if end.outcome in {"done", "dead"}])
    if noted:
        conn.execute(insert(_attempt), [_attempt_row(end, now) for end in noted])
    return noted


def conclude(
    conn: Connection, noted: Sequence[Ended], now: datetime, *, pace: Pace, sparing: Mapping[str, datetime]
) -> tuple[Turned, ...]:
    """Draw from noted endings what they say of accounts, backends and GitHub; returns the circuits that turned.

    ``sparing`` names accounts whose hour at GitHub is nearly used up, and when the next begins. The last thing that a
    transaction does, since others wait for these rows.
    """
    turned = circuits.note(conn, [_contact(end) for end in noted], now, pace)
    for end in sorted((end for end in noted if end.resting is not None), key=lambda end: end.effect.pacing):
        if end.named:
            rest(conn, end.effect.pacing, end.resting or now, end.reason)
        else:
            budgets.rest_longer(conn, end.effect.pacing, end.resting or now, end.reason, now)
    budgets.forgive(conn, sorted({end.effect.pacing for end in noted if end.answered and end.resting is None}))
    for key in sorted(sparing):
        budgets.spare(conn, key, sparing[key])
    return turned


def _contact(end: Ended) -> Contact:
    effect = end.effect
    return Contact(
        effect_id=effect.id,
        kind=effect.kind,
        pacing=effect.pacing,
        subject=effect.subject,
        answered=end.answered,
        down=end.down,
        refused=end.refused,
        limited=end.resting is not None,
        reason=end.reason,
        detail=end.detail,
        not_before=end.not_before,
    )


def _finish_otherwise(conn: Connection, end: Ended, owner: str, now: datetime) -> bool:
    dead = end.outcome == "dead"
    parameters = {
        "b_id": end.effect.id,
        "b_owner": owner,
        "b_attempts": end.effect.attempts,
        "b_state": "dead" if dead else "ready",
        "b_failed": int(end.outcome in {"retry", "dead"}),
        "b_due": end.due or now,
        "b_not_before": end.not_before,
        "b_finished": now if dead else None,
        "b_reason": end.reason,
        "b_detail": end.detail,
    }
    return conn.execute(_FINISH, parameters).first() is not None


def _attempt_row(end: Ended, now: datetime) -> dict[str, object]:
    return {
        "effect_id": end.effect.id,
        "number": end.effect.attempts,
        "finished_at": now,
        "seconds": end.seconds,
        "outcome": end.outcome,
        "reason": end.reason,
        "detail": end.detail,
        "unsure": end.unsure,
    }


def cancel(
    conn: Connection, *, kinds: Sequence[Kind], subject_ids: Sequence[int], reason: str, now: datetime
) -> tuple[int, ...]:
    """Cancel waiting effects on these subjects; returns the subjects for which that was still possible."""
    if not subject_ids:
        return ()
    cancelled = conn.execute(
        update(_effect)
        .where(
            _effect.c.kind.in_([kind.value for kind in kinds]),
            _effect.c.subject_id.in_(subject_ids),
            _effect.c.state == "ready",
        )
        .values(state="cancelled", finished_at=now, reason=reason)
        .returning(_effect.c.subject_id, _effect.c.lane)
    ).all()
    release(conn, [row.lane for row in cancelled])
    return tuple(sorted({row.subject_id for row in cancelled}))


def revive(
    conn: Connection,
    *,
    kinds: Sequence[Kind],
    now: datetime,
    subject_ids: Sequence[int] | None = None,
    subjects: Sequence[str] | None = None,
    reasons: Sequence[str] | None = None,
) -> tuple[int, ...]:
    """Try dead effects again, with a fresh schedule; returns the subject ids revived.

    Narrow by subject id, by subject (a repository's name) or by the reason they died of.
    """
    condition = [_effect.c.kind.in_([kind.value for kind in kinds]), _effect.c.state == "dead"]
    if subject_ids is not None:
        condition.append(_effect.c.subject_id.in_(subject_ids))
    if subjects is not None:
        condition.append(_effect.c.subject.in_(subjects))
    if reasons is not None:
        condition.append(_effect.c.reason.in_(reasons))
    revived = conn.execute(
        update(_effect)
        .where(*condition)
        .values(state="ready", due=now, failures=0, finished_at=None, coalesce_key=None)
        .returning(_effect.c.subject_id)
    )
    announce(conn)
    return tuple(sorted({row.subject_id for row in revived}))


def dead_of(kinds: Sequence[Kind]) -> ColumnElement[bool]:
    """The condition for dead effects of these kinds, of which there are few among many that ended well."""
    # The kind is looked at afterwards: by the index that it has of its own, all that were ever done would be read.
    return and_(
        IS_DEAD,
        func.coalesce(_effect.c.kind, "").in_([kind.value for kind in kinds]),
    )


@dataclass(frozen=True, slots=True)
class Backlog:
    """How much is owed: open effects, and for how long the oldest has waited for a worker, and the oldest that is due.

    What is due may be under way, stand in its lane, or wait for an account or a circuit: no worker could take it now.
    """

    open: int
    takable: timedelta
    due: timedelta


def open_count(conn: Connection) -> int:
    """How many effects are still owed."""
    owed = select(func.count()).select_from(_effect).where(_effect.c.state.in_(OPEN_STATES))
    return int(conn.execute(owed).scalar() or 0)


_NOW = bindparam("now", type_=_effect.c.due.type)
_IS_DUE = _effect.c.due <= _NOW
_BACKLOG = select(
    func.count().label("open"),
    func.min(case((_IS_DUE, _effect.c.due))).label("due"),
    # A worker that turns takes these with its next claim, or notes of them what they wait for.
    func.min(
        case((and_(_effect.c.state == "ready", _effect.c.waits_for.in_((NOTHING, TIME)), _IS_DUE), _effect.c.due))
    ).label("ready"),
    # Whose lease has ended somebody left behind.
    func.min(case((and_(_effect.c.state == "running", _effect.c.lease <= _NOW), _effect.c.lease))).label("left"),
).where(IS_OPEN)


def backlog(conn: Connection, now: datetime) -> Backlog:
    """How far behind the worker is."""
    row = conn.execute(_BACKLOG, {"now": now}).one()

    def waited(*since: datetime | None) -> timedelta:
        return max((now - one for one in since if one is not None), default=timedelta())

    return Backlog(open=int(row.open), takable=waited(row.ready, row.left), due=waited(row.due))
