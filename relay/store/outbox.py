"""The outbox in SQL: write effects down, claim what is due, note how it ended.

An effect lives in a lane, and only the oldest open effect of a lane can be claimed, which keeps order where order
matters. A claim is a lease with a fencing number (``attempts``): whoever comes back after its lease was taken over
finds that its note no longer fits. The heads of all lanes come from one pass over the partial index of open effects,
so that no table of lanes has to be kept in step with them, and one blocked lane with thousands waiting stays cheap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Insert,
    and_,
    bindparam,
    case,
    func,
    insert,
    null,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from relay.effects import Kind, NewEffect
from relay.store.postgres import announce
from relay.store.tables import Attempt, Effect, Pacing

#: A claim that nobody comes back from is free again after this long. Longer than any single GitHub call may take.
LEASE = timedelta(seconds=60)

_effect = Effect.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_pacing = Pacing.__table__  # type: ignore[attr-defined]
_attempt = Attempt.__table__  # type: ignore[attr-defined]

# These stand in the statement's text and not among its values, as the partial indexes have them: of a value that comes
# later neither database can tell that the index holds what is asked for, and would read all that was ever done.
_OPEN_STATES: BindParameter[str] = bindparam("open_states", ["ready", "running"], expanding=True, literal_execute=True)
IS_DEAD = _effect.c.state == bindparam("dead_state", "dead", literal_execute=True)

_BATCH = 500  # Below SQLite's bound on variables in one statement, whatever the row's width.


@dataclass(frozen=True, slots=True)
class Claimed:
    """An effect that is ours to perform until its lease ends."""

    id: int
    lane: str
    pacing: str
    kind: Kind
    subject_id: int
    subject: str
    attempts: int
    failures: int
    created_at: datetime


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


def on_conflict_do_nothing(conn: Connection, table: Any, **where: Any) -> Insert:
    """An INSERT that leaves an existing row alone, in the dialect of this connection."""
    if conn.dialect.name == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing(**where)
    return sqlite.insert(table).on_conflict_do_nothing(**where)


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
    if any(not effect.delay for effect in effects):
        announce(conn)


def _claim_statement(dialect: str) -> Any:
    """The claim. ``now``, ``until``, ``me`` and ``count`` are bound when it runs."""
    heads = (
        select(func.min(_effect.c.id).label("id"))
        .where(_effect.c.state.in_(_OPEN_STATES))
        .group_by(_effect.c.lane)
        .subquery("heads")
    )
    candidate = _effect.alias("candidate")
    now = bindparam("now", type_=_effect.c.due.type)
    due = (
        select(candidate.c.id)
        .select_from(
            heads.join(candidate, candidate.c.id == heads.c.id).outerjoin(_pacing, _pacing.c.key == candidate.c.pacing)
        )
        .where(
            or_(_pacing.c.not_before.is_(None), _pacing.c.not_before <= now),
            candidate.c.due <= now,
            or_(candidate.c.state == "ready", and_(candidate.c.state == "running", candidate.c.lease < now)),
        )
        # Newest first within one priority, so that after an outage the heads people look at are served first.
        .order_by(candidate.c.priority, candidate.c.id.desc())
        .limit(bindparam("count"))
    )
    if dialect == "postgresql":
        due = due.with_for_update(of=candidate, skip_locked=True)
    return (
        update(_effect)
        .where(_effect.c.id.in_(due))
        .values(
            state="running",
            attempts=_effect.c.attempts + 1,
            lease=bindparam("until", type_=_effect.c.due.type),
            owner=bindparam("me"),
        )
        .returning(
            _effect.c.id,
            _effect.c.lane,
            _effect.c.pacing,
            _effect.c.kind,
            _effect.c.subject_id,
            _effect.c.subject,
            _effect.c.attempts,
            _effect.c.failures,
            _effect.c.created_at,
            _effect.c.priority,
        )
    )


_CLAIM = {dialect: _claim_statement(dialect) for dialect in ("sqlite", "postgresql")}


def claim(conn: Connection, *, owner: str, count: int, now: datetime) -> list[Claimed]:
    """Take up to ``count`` effects that are due, most urgent first. They are ours until ``now + LEASE``."""
    rows = conn.execute(
        _CLAIM[conn.dialect.name], {"now": now, "until": now + LEASE, "me": owner, "count": count}
    ).all()
    rows = sorted(rows, key=lambda row: (row.priority, -row.id))
    return [
        Claimed(
            id=row.id,
            lane=row.lane,
            pacing=row.pacing,
            kind=Kind(row.kind),
            subject_id=row.subject_id,
            subject=row.subject,
            attempts=row.attempts,
            failures=row.failures,
            created_at=row.created_at,
        )
        for row in rows
    ]


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
    .returning(_effect.c.id)
)


def finish(conn: Connection, ended: Sequence[Ended], *, owner: str, now: datetime) -> tuple[Ended, ...]:
    """Note how attempts ended; returns those whose lease was still ours. The others were taken over and noted there."""
    held: set[int] = set()
    done = [(end.effect.id, end.effect.attempts) for end in ended if end.outcome == "done"]
    if done:
        held.update(conn.execute(_DONE, {"b_held": done, "b_owner": owner, "b_now": now}).scalars())
    for end in ended:
        if end.outcome != "done" and _finish_otherwise(conn, end, owner, now):
            held.add(end.effect.id)
    noted = tuple(end for end in ended if end.effect.id in held)
    if noted:
        conn.execute(insert(_attempt), [_attempt_row(end, now) for end in noted])
    for end in noted:
        if end.resting is not None:
            rest(conn, end.effect.pacing, end.resting, end.reason)
    return noted


def _finish_otherwise(conn: Connection, end: Ended, owner: str, now: datetime) -> bool:
    dead = end.outcome == "dead"
    parameters = {
        "b_id": end.effect.id,
        "b_owner": owner,
        "b_attempts": end.effect.attempts,
        "b_state": "dead" if dead else "ready",
        "b_failed": int(end.outcome in {"retry", "dead"}),
        "b_due": end.due or now,
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
    }


def rest(conn: Connection, pacing: str, until: datetime, reason: str) -> None:
    """Leave this account alone until then. A shorter rest never replaces a longer one."""
    values = {"key": pacing, "not_before": until, "reason": reason}
    conn.execute(on_conflict_do_nothing(conn, _pacing), values)
    conn.execute(
        update(_pacing)
        .where(_pacing.c.key == pacing, _pacing.c.not_before < until)
        .values(not_before=until, reason=reason)
    )


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
        .returning(_effect.c.subject_id)
    )
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
    """How much is owed: open effects, dead letters, and how long the oldest that is due has been waiting."""

    open: int
    dead: int
    oldest: timedelta


def open_count(conn: Connection) -> int:
    """How many effects are still owed."""
    owed = select(func.count()).select_from(_effect).where(_effect.c.state.in_(_OPEN_STATES))
    return int(conn.execute(owed).scalar() or 0)


def backlog(conn: Connection, now: datetime) -> Backlog:
    """How far behind the worker is."""
    dead = select(func.count()).select_from(_effect).where(IS_DEAD)
    oldest = select(func.min(_effect.c.due)).where(_effect.c.state.in_(_OPEN_STATES), _effect.c.due <= now)
    since: datetime | None = conn.execute(oldest).scalar()
    return Backlog(
        open=open_count(conn),
        dead=int(conn.execute(dead).scalar() or 0),
        oldest=timedelta() if since is None else now - since,
    )
