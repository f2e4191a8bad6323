"""A clock that ran ahead and was set right: waits that it wrote down would last for as long as it was ahead.

All waits are kept as the time at which they end. A process whose clock ran against its own ticks knows that it was set
back, and by how much: each wait that was counted from there ends as much sooner. Beside the waits somebody keeps how
late it was, for all processes: what lies in the future is what one of them wrote whose clock was ahead. So those that
share a machine cut once, and one that starts sees that the clock of the process before was wrong. That is so only where
nobody goes on writing it: of living replicas whose clocks differ, none was set back, and no wait is cut.

Every column that makes somebody wait for a try, a probe or a turn is named here. Who ends such a wait too early is told
so once more; therefore deadlines stand as they are, and so do times that a person has named: should it be this
machine's clock that is wrong, and behind, gates would be let go before their backends had their time. Leases are looked
at by themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, and_, bindparam, select, update

from relay.store.candidates import IS_RUNNING
from relay.store.claiming import LEASE
from relay.store.conflict import on_conflict_do_nothing
from relay.store.tables import Attempt, Check, Effect
from relay.store.tables_gaps import Gap, Turn
from relay.store.tables_limits import Circuit, Pacing

_effect: Any = Effect.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_attempt: Any = Attempt.__table__  # type: ignore[attr-defined]
_turn: Any = Turn.__table__  # type: ignore[attr-defined]

#: Clocks of replicas differ a little, and what is less than this is no long wait.
TOLERANCE = timedelta(minutes=1)

#: The row of ``turn`` whose mark says how late it was, at the latest.
CLOCK = "clock"

#: A living replica whose clock is ahead writes it anew well within this time.
STANDS = timedelta(minutes=3)

#: An effect that was claimed, and the number of the try.
Claim = tuple[int, int]

# Waits of which nothing says when they began. Those that ended by the clock that was ahead are over; one that began
# before it ran ahead is cut as well, and whoever is asked too early says so once more.
_WAITS: tuple[tuple[Any, str], ...] = (
    (Pacing, "not_before"),
    (Pacing, "free_at"),
    (Circuit, "held_until"),
    (Turn, "due_at"),
    (Gap, "not_before"),
)
# Moments from which waits are counted when they are looked at.
_BEGINNINGS: tuple[tuple[Any, str], ...] = (
    (Check, "create_sent_at"),
    (Gap, "asking_at"),
    (Gap, "asked_at"),
)


@dataclass(frozen=True, slots=True)
class SetBack:
    """By how much the clock was set back, and how many waits were cut."""

    by: timedelta
    waits: int


@dataclass(frozen=True, slots=True)
class Moment:
    """How late it is at a look, by the clock and in ticks, and by how much the clock seems to have been set back.

    ``mark``: that is so only if this is still how late it was.
    """

    now: datetime
    at: float
    by: timedelta = timedelta()
    mark: datetime | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """How late it was by what is kept, None at the very first look; and what was cut, if anything was."""

    mark: datetime | None
    cut: SetBack | None = None


class Watch:
    """What one process knows of its clock. ``ticks`` are seconds that no clock's setting changes."""

    def __init__(self, ticks: Callable[[], float] = time.monotonic) -> None:
        self._ticks = ticks
        self._before: Moment | None = None
        self._started: Moment | None = None  # Somebody was ahead when this process started.

    def look(self, now: datetime) -> Moment:
        """``now``: as it was told just now."""
        at = self._ticks()
        if self._before is None:
            return Moment(now, at)
        by = self._before.now + timedelta(seconds=at - self._before.at) - now
        if by > TOLERANCE:
            return Moment(now, at, by)
        if self._started is not None and at - self._started.at > STANDS.total_seconds():
            return Moment(now, at, self._started.by, self._started.mark)
        return Moment(now, at)

    def looked(self, moment: Moment, seen: Seen) -> None:
        """``cut_waits`` was done at this moment, and is committed."""
        first, self._before = self._before is None, moment
        if first and seen.mark is not None and _is_ahead(seen.mark, moment.now):
            self._started = Moment(moment.now, moment.at, seen.mark - moment.now, seen.mark)
        elif seen.cut is not None or (self._started is not None and self._started.mark != seen.mark):
            self._started = None


def _is_ahead(mark: datetime, now: datetime) -> bool:
    return mark > now + TOLERANCE


def cut_waits(conn: Connection, moment: Moment, longest: Sequence[timedelta]) -> Seen:
    """Note how late it is, unless it was later. Where the clock was set back from there, all waits are cut.

    ``longest`` is the longest wait for a next try after so many failures: what waits longer is due.
    """
    now, by = moment.now, moment.by
    conn.execute(on_conflict_do_nothing(conn, _turn), {"name": CLOCK, "due_at": now})
    mark: datetime | None = conn.execute(
        select(_turn.c.mark).where(_turn.c.name == CLOCK).with_for_update()
    ).scalar_one()
    is_set_back = by and mark is not None and _is_ahead(mark, now) and moment.mark in (None, mark)
    if is_set_back or mark is None or mark < now:
        conn.execute(update(_turn).where(_turn.c.name == CLOCK).values(mark=now, due_at=now))
    if not is_set_back:
        return Seen(mark)
    waits = _cut_tries(conn, by, longest, now)
    for table, name in _WAITS:
        waits += _cut(conn, table, name, by, now)
    for table, name in _BEGINNINGS:
        _begin_now(conn, table, name, now)
    return Seen(mark, SetBack(by, waits))


def _cut(conn: Connection, table: Any, name: str, by: timedelta, now: datetime) -> int:
    columns = table.__table__.c
    key = next(iter(table.__table__.primary_key))
    rows = conn.execute(select(key, columns[name]).where(columns[name] > now)).all()
    values = [{"b_key": row[0], "b_until": max(now, row[1] - by)} for row in rows]
    statement = update(table.__table__).where(key == bindparam("b_key"))
    return _write(conn, statement.values({name: bindparam("b_until", type_=columns[name].type)}), values)


def _begin_now(conn: Connection, table: Any, name: str, now: datetime) -> None:
    column = table.__table__.c[name]
    conn.execute(update(table.__table__).where(column > now).values({name: now}))


_TIME = _effect.c.due.type
_TRY = (
    update(_effect)
    .where(_effect.c.id == bindparam("b_id"))
    .values(due=bindparam("b_due", type_=_TIME), not_before=bindparam("b_not_before", type_=_TIME))
)


def _cut_tries(conn: Connection, by: timedelta, longest: Sequence[timedelta], now: datetime) -> int:
    """Tries that wait. When an effect was written down, and tried last, says whether its wait is of the wrong clock."""
    last = and_(_attempt.c.effect_id == _effect.c.id, _attempt.c.number == _effect.c.attempts)
    rows = conn.execute(
        select(
            *(_effect.c[name] for name in ("id", "due", "not_before", "failures", "created_at")),
            _attempt.c.finished_at,
        )
        .select_from(_effect.outerjoin(_attempt, last))
        .where(_effect.c.state == "ready", _effect.c.due > now)
    ).all()
    values = []
    for row in rows:
        named = row.not_before is not None and row.not_before > now
        if max(row.created_at, row.finished_at or row.created_at) > now:
            not_before = max(now, row.not_before - by) if named else row.not_before
            values.append({"b_id": row.id, "b_due": max(now, row.due - by), "b_not_before": not_before})
        elif row.failures and not named and row.due > now + longest[min(row.failures, len(longest) - 1)]:
            # It was brought forward to a moment that has not come yet.
            values.append({"b_id": row.id, "b_due": now, "b_not_before": row.not_before})
    return _write(conn, _TRY, values)


def _write(conn: Connection, statement: Any, values: list[dict[str, Any]]) -> int:
    if values:
        conn.execute(statement, values)
    return len(values)


class Leases:
    """Ends leases that are longer than any lease is, once they have been so for longer than one lasts.

    By then nobody is at work on what was claimed. Ended at once, they would be those of living workers where it is this
    machine's clock that is behind. ``ticks`` are seconds that no clock's setting changes.
    """

    def __init__(self, ticks: Callable[[], float] = time.monotonic) -> None:
        self._ticks = ticks
        self._seen: dict[Claim, float] = {}

    def outstayed(self, claims: Sequence[Claim]) -> list[Claim]:
        """Those of the claims that ``too_long`` has found whose leases are to be ended."""
        at = self._ticks()
        self._seen = {claim: self._seen.get(claim, at) for claim in claims}
        return [claim for claim, since in self._seen.items() if at - since > LEASE.total_seconds()]


def too_long(conn: Connection, now: datetime) -> tuple[Claim, ...]:
    """All claims whose leases are longer than any is."""
    longer = and_(IS_RUNNING, _effect.c.lease > now + LEASE)
    rows = conn.execute(select(_effect.c.id, _effect.c.attempts).where(longer))
    return tuple((row.id, row.attempts) for row in rows)


def end_leases(conn: Connection, claims: Sequence[Claim], now: datetime) -> int:
    """End the leases of these claims; returns of how many."""
    one = and_(_effect.c.id == bindparam("b_id"), _effect.c.attempts == bindparam("b_attempts"), IS_RUNNING)
    values = [{"b_id": effect_id, "b_attempts": attempts} for effect_id, attempts in claims]
    return _write(conn, update(_effect).where(one).values(lease=now), values)
