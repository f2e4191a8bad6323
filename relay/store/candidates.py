"""What a claim looks at, so that its cost depends on what it takes and not on all that is owed.

Each effect that is ready says what it waits for (``waits_for``): nothing that is known, a time, its turn in its lane,
or the account or backend that it could not go to when a claim met it last. That is only a reason to leave it out of a
look: whether it may go is decided anew each time that it is looked at. So whoever writes an effect down, tries it
again or moves its time need not know of this, replicas of a version before it included. Two things must be seen to: an
effect whose lane comes free is looked at again (``release``), and where that was forgotten somebody notices (``heal``).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BindParameter, Connection, bindparam, func, select, text, update

from relay.store.tables import Effect, Pacing

_effect = Effect.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_pacing = Pacing.__table__  # type: ignore[attr-defined]

#: What an effect waits for besides accounts and backends, whose keys (``relay.circuits``) are told from these by their
#: blanks. Empty: nobody knows yet.
NOTHING = ""
TIME = "time"
TURN = "turn"

#: So many rows are read at most for those that wait for accounts and backends which may have room.
_MOST_ROWS = 2_000
_LEAST_EACH = 8

# These stand in the statement's text and not among its values, as the partial indexes have them: of a value that comes
# later neither database can tell that the index holds what is asked for, and would read all that was ever done.
OPEN_STATES: BindParameter[str] = bindparam("open_states", ["ready", "running"], expanding=True, literal_execute=True)
_IS_READY = _effect.c.state == bindparam("ready_state", "ready", literal_execute=True)
_IS_RUNNING = _effect.c.state == bindparam("running_state", "running", literal_execute=True)
_TIME = _effect.c.due.type


@dataclass(frozen=True, slots=True)
class Holder:
    """An account or backend that effects wait for: the most urgent of them, and when the account may be asked again."""

    key: str
    first: int
    not_before: datetime | None
    free_at: datetime | None


@dataclass(frozen=True, slots=True)
class Look:
    """Effects in the order in which they are to be taken. ``whole``: there is nothing behind them."""

    rows: Sequence[Any]
    whole: bool


# A look for each value that there is, and no look at the rows that share it.
_HOLDERS = text(
    "WITH RECURSIVE holder(name) AS ("
    " SELECT (SELECT waits_for FROM effect WHERE state = 'ready' AND waits_for > '' ORDER BY waits_for LIMIT 1)"
    " UNION ALL"
    " SELECT (SELECT waits_for FROM effect WHERE state = 'ready' AND waits_for > holder.name"
    " ORDER BY waits_for LIMIT 1)"
    " FROM holder WHERE holder.name IS NOT NULL)"
    " SELECT holder.name AS name,"
    " (SELECT priority FROM effect WHERE state = 'ready' AND waits_for = holder.name"
    " ORDER BY waits_for, priority LIMIT 1) AS first,"
    " pacing.not_before AS not_before, pacing.free_at AS free_at"
    " FROM holder LEFT JOIN pacing ON pacing.key = holder.name WHERE holder.name IS NOT NULL"
).columns(name=_effect.c.lane.type, first=_effect.c.priority.type, not_before=_TIME, free_at=_TIME)

_COLUMNS = (
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
    _effect.c.due,
    _effect.c.waits_for,
)
_NAMES = ", ".join(f"one.{column.name} AS {column.name}" for column in _COLUMNS)
_BEHIND = (
    "EXISTS (SELECT 1 FROM effect AS before WHERE before.lane = one.lane AND before.id < one.id"
    " AND before.state IN ('ready', 'running')) AS behind"
)
# The newest first within one priority, so that after an outage the heads people look at are served first.
_FIRST_OF_EACH = {
    # SQLite knows no LATERAL.
    "sqlite": "SELECT found.id FROM json_each(:keys) AS key JOIN effect AS found ON found.id IN ("
    "SELECT id FROM effect WHERE state = 'ready' AND waits_for = key.value ORDER BY priority, id DESC LIMIT :each)",
    "postgresql": "SELECT found.id FROM unnest(CAST(:keys AS text[])) AS key(value) CROSS JOIN LATERAL ("
    "SELECT id, priority FROM effect WHERE state = 'ready' AND waits_for = key.value"
    " ORDER BY waits_for, priority, id DESC LIMIT :each) AS found",
}
_LOOK = {
    dialect: text(
        f"SELECT {_NAMES}, {_BEHIND} FROM effect AS one"  # noqa: S608  # Made of the names above.
        f" WHERE one.id IN ({first} ORDER BY found.priority, found.id DESC LIMIT :count)"
        " ORDER BY one.priority, one.id DESC"
    ).columns(*_COLUMNS)
    for dialect, first in _FIRST_OF_EACH.items()
}
_OVERDUE = (
    text(f"SELECT {_NAMES}, {_BEHIND} FROM effect AS one WHERE one.state = 'running' AND one.lease < :now")  # noqa: S608
    .bindparams(bindparam("now", type_=_TIME))
    .columns(*_COLUMNS)
)

_WAKE = (
    update(_effect)
    .where(
        _IS_READY,
        _effect.c.waits_for == bindparam("time", TIME, literal_execute=True),
        _effect.c.due <= bindparam("now", type_=_TIME),
    )
    .values(waits_for=NOTHING)
)
_PARK = (
    update(_effect)
    .where(_effect.c.id.in_(bindparam("ids", expanding=True)), _IS_READY)
    .values(waits_for=bindparam("b_waits_for"))
)
_HEADS = (
    select(func.min(_effect.c.id))
    .where(_effect.c.state.in_(OPEN_STATES), _effect.c.lane.in_(bindparam("lanes", expanding=True)))
    .group_by(_effect.c.lane)
)
_RELEASE = (
    update(_effect).where(_effect.c.id.in_(_HEADS), _effect.c.waits_for == TURN, _IS_READY).values(waits_for=NOTHING)
)
_before = _effect.alias("before")
_waiting = _effect.alias("waiting")
_HEAL = (
    update(_effect)
    .where(
        _effect.c.id.in_(
            select(_waiting.c.id).where(
                _waiting.c.state == bindparam("ready_state", "ready", literal_execute=True),
                _waiting.c.waits_for == bindparam("turn", TURN, literal_execute=True),
                ~select(_before.c.id)
                .where(
                    _before.c.lane == _waiting.c.lane,
                    _before.c.id < _waiting.c.id,
                    _before.c.state.in_(OPEN_STATES),
                )
                .exists(),
            )
        )
    )
    .values(waits_for=NOTHING)
)


def wake(conn: Connection, now: datetime) -> None:
    """Look again at what waited for a time that has come."""
    conn.execute(_WAKE, {"now": now})


def holders(conn: Connection) -> tuple[Holder, ...]:
    """The accounts and backends that effects wait for."""
    rows = conn.execute(_HOLDERS)
    return tuple(
        Holder(row.name, row.first, row.not_before, row.free_at) for row in rows if row.name not in (TIME, TURN)
    )


def overdue(conn: Connection, now: datetime) -> Sequence[Any]:
    """What somebody claimed and did not come back from."""
    return conn.execute(_OVERDUE, {"now": now}).all()


def look(conn: Connection, keys: Sequence[str], size: int, overdue: Sequence[Any]) -> Look:
    """About so many effects that wait for one of these, the most urgent first, and what is overdue among them."""
    each = max(_LEAST_EACH, min(size, _MOST_ROWS // len(keys)))
    given = list(keys) if conn.dialect.name == "postgresql" else json.dumps(keys)
    rows = conn.execute(_LOOK[conn.dialect.name], {"keys": given, "each": each, "count": size}).all()
    counts: defaultdict[str, int] = defaultdict(int)
    ends = [_order(rows[-1])] if len(rows) == size else []
    for row in rows:
        counts[row.waits_for] += 1
        # There may be more of these, which would come before what comes next from the others.
        if counts[row.waits_for] == each:
            ends.append(_order(row))
    every = sorted([*rows, *overdue], key=_order) if overdue else rows
    if not ends:
        return Look(every, whole=True)
    end = min(ends)
    return Look([row for row in every if _order(row) <= end], whole=False)


def _order(row: Any) -> tuple[int, int]:
    return row.priority, -row.id


def park(conn: Connection, waiting: Mapping[str, Sequence[int]]) -> None:
    """Note what effects wait for, by what they wait for."""
    for key, ids in sorted(waiting.items()):
        conn.execute(_PARK, {"ids": ids, "b_waits_for": key})


def release(conn: Connection, lanes: Iterable[str]) -> None:
    """Something in these lanes has ended: it is the next one's turn."""
    wanted = sorted(set(lanes))
    if wanted:
        conn.execute(_RELEASE, {"lanes": wanted})


def heal(conn: Connection) -> int:
    """Look again at what waits for its turn and has nothing before it; returns how many there were.

    There are none, but for what a replica has ended that knows nothing of this, or a hand in the database.
    """
    return int(conn.execute(_HEAL).rowcount)
