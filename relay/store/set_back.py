"""A clock that ran ahead and was set right: waits that it wrote down would last for as long as it was ahead.

All waits are kept as the time at which they end. So somebody keeps beside them how late it was: where that lies in the
future, the clock was set back, and each wait that was counted from there ends as much sooner. Every column that makes
somebody wait for a try, a probe or a turn is named here. Who ends such a wait too early is told so once more; therefore
deadlines stand as they are, and so do times that a person has named: should it be this machine's clock that is wrong,
and behind, gates would be let go before their backends had their time. Leases are looked at by themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, and_, bindparam, select, update

from relay.store.claiming import LEASE
from relay.store.conflict import on_conflict_do_nothing
from relay.store.tables import Attempt, Check, Effect
from relay.store.tables_gaps import Gap, Turn
from relay.store.tables_limits import Circuit, Pacing

_effect: Any = Effect.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_attempt: Any = Attempt.__table__  # type: ignore[attr-defined]
_turn: Any = Turn.__table__  # type: ignore[attr-defined]

# As the partial index has it.
_IS_RUNNING = _effect.c.state == bindparam("running_state", "running", literal_execute=True)

#: Clocks of replicas differ a little, and what is less than this is no long wait.
TOLERANCE = timedelta(minutes=1)

#: The row of ``turn`` whose mark says how late it was.
CLOCK = "clock"

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


def bring_back(conn: Connection, longest: Sequence[timedelta], now: datetime) -> SetBack | None:
    """Note how late it is. Where that was later already, all waits are cut; None where it was not.

    ``longest`` is the longest wait for a next try after so many failures: what waits longer is due.
    """
    conn.execute(on_conflict_do_nothing(conn, _turn), {"name": CLOCK, "due_at": now})
    before: datetime | None = conn.execute(
        select(_turn.c.mark).where(_turn.c.name == CLOCK).with_for_update()
    ).scalar_one()
    conn.execute(update(_turn).where(_turn.c.name == CLOCK).values(mark=now))
    if before is None or before <= now + TOLERANCE:
        return None
    by = before - now
    waits = _cut_tries(conn, by, longest, now)
    for table, name in _WAITS:
        waits += _cut(conn, table, name, by, now)
    for table, name in _BEGINNINGS:
        _begin_now(conn, table, name, now)
    return SetBack(by, waits)


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
        self._seen: dict[tuple[int, int], float] = {}

    def look(self, conn: Connection, now: datetime) -> int:
        """Look at all that is claimed; returns how many leases were ended."""
        too_long = and_(_IS_RUNNING, _effect.c.lease > now + LEASE)
        claims = [
            (row.id, row.attempts) for row in conn.execute(select(_effect.c.id, _effect.c.attempts).where(too_long))
        ]
        at = self._ticks()
        self._seen = {claim: self._seen.get(claim, at) for claim in claims}
        ended = [claim for claim, since in self._seen.items() if at - since > LEASE.total_seconds()]
        statement = update(_effect).where(
            _effect.c.id == bindparam("b_id"), _effect.c.attempts == bindparam("b_attempts"), _IS_RUNNING
        )
        return _write(conn, statement.values(lease=now), [{"b_id": one, "b_attempts": tries} for one, tries in ended])
