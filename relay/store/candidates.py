"""What a claim looks at, so that its cost depends on what it takes and not on all that is owed.

Each effect that is ready says what it waits for (``waits_for``): nothing that is known, a time, its turn in its lane, a
place among the looks at runs, or the account, the HUD or the backend that it could not go to when a claim met it last.
That is only a reason to leave it out of a look: whether it may go is decided anew each time that it is looked at. So
whoever writes an effect down, tries it again or moves its time need not know of this, replicas of a version before it
included. Two things must be seen to: an effect whose lane comes free is looked at again (``release``), and where that
was forgotten somebody notices (``free_turns``).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BindParameter, Connection, bindparam, select, text, update

from relay.store.tables import Effect

_effect = Effect.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.

#: What an effect waits for besides accounts, the HUD and backends. No key of those (``relay.deciding.circuits``) is one
#: of these words. Empty: nobody knows yet.
NOTHING = ""
TIME = "time"
TURN = "turn"
#: A look at runs, for one of the few places that there are for those.
LOOKS = "looks"

#: Of each account and backend that may have room so many are read at least; of all together so many times what is
#: wanted. Should the most urgent be of few accounts, the next look goes on behind them.
_LEAST_EACH = 4
_SPARE = 4

#: After an hour's stop the time of all that waited for one has come. So many of them at most are looked at again with
#: one claim, those first whose time came first; the next claim goes on. So many lanes are looked into at a time.
WOKEN = 1_000
LANES = 1_000

# These stand in the statement's text and not among its values, as the partial indexes have them: of a value that comes
# later neither database can tell that the index holds what is asked for, and would read all that was ever done.
OPEN_STATES: BindParameter[str] = bindparam("open_states", ["ready", "running"], expanding=True, literal_execute=True)
IS_OPEN = _effect.c.state.in_(OPEN_STATES)
OPEN = "state IN ('ready', 'running')"
_IS_READY = _effect.c.state == bindparam("ready_state", "ready", literal_execute=True)
IS_RUNNING = _effect.c.state == bindparam("running_state", "running", literal_execute=True)
_TIME = _effect.c.due.type


@dataclass(frozen=True, slots=True)
class Holder:
    """An account or backend that effects wait for: the most urgent of them, and when the account may be asked again."""

    key: str
    first: int = 0
    not_before: datetime | None = None
    free_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """Effects in the order in which they are to be taken. ``whole``: there is nothing behind them."""

    rows: Sequence[Any]
    whole: bool


_ASIDE = "state = 'ready' AND waits_for <> 'time'"
# A look for each value that there is, and no look at the rows that share it. That none of them is "time" is what the
# index needs to hear: it leaves those out, or SQLite would look for the few whose time has come among all of them.
_HOLDERS = text(
    f"WITH RECURSIVE holder(name) AS ("  # noqa: S608  # Made of what stands above.
    f" SELECT (SELECT waits_for FROM effect WHERE {_ASIDE} AND waits_for > '' ORDER BY waits_for LIMIT 1)"
    " UNION ALL"
    f" SELECT (SELECT waits_for FROM effect WHERE {_ASIDE} AND waits_for > holder.name ORDER BY waits_for LIMIT 1)"
    " FROM holder WHERE holder.name IS NOT NULL)"
    " SELECT holder.name AS name,"
    f" (SELECT priority FROM effect WHERE {_ASIDE} AND waits_for = holder.name"
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
    "EXISTS (SELECT 1 FROM effect AS before WHERE before.lane = one.lane AND before.id < one.id"  # noqa: S608
    f" AND before.{OPEN}) AS behind"
)
# The newest first within one priority, so that after an outage the heads people look at are served first.
_FIRST_OF_EACH = {
    # SQLite knows no LATERAL.
    "sqlite": "SELECT found.id FROM json_each(:keys) AS key JOIN effect AS found ON found.id IN ("  # noqa: S608
    f"SELECT id FROM effect WHERE {_ASIDE} AND waits_for = key.value ORDER BY priority, id DESC LIMIT :each)",
    "postgresql": "SELECT found.id FROM unnest(CAST(:keys AS text[])) AS key(value) CROSS JOIN LATERAL ("  # noqa: S608
    f"SELECT id, priority FROM effect WHERE {_ASIDE} AND waits_for = key.value"
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
        _effect.c.id.in_(
            select(_effect.c.id)
            .where(
                _IS_READY,
                _effect.c.waits_for == bindparam("time", TIME, literal_execute=True),
                _effect.c.due <= bindparam("now", type_=_TIME),
            )
            .order_by(_effect.c.due)
            .limit(WOKEN)
        )
    )
    .values(waits_for=NOTHING)
)
_PARK = {
    "sqlite": text("UPDATE effect SET waits_for = :waits_for WHERE id = :id AND state = 'ready'"),
    "postgresql": text(
        "UPDATE effect SET waits_for = met.waits_for"
        " FROM unnest(CAST(:ids AS bigint[]), CAST(:holders AS text[])) AS met(id, waits_for)"
        " WHERE effect.id = met.id AND effect.state = 'ready'"
    ),
}
# The first of each lane by itself: there may be thousands behind it.
_RELEASE = {
    dialect: text(
        "UPDATE effect SET waits_for = '' WHERE state = 'ready' AND waits_for = 'turn' AND id IN ("  # noqa: S608
        f"SELECT (SELECT id FROM effect WHERE {OPEN} AND lane = ended.value"
        f" ORDER BY lane, id LIMIT 1) FROM {lanes})"
    )
    for dialect, lanes in (
        ("sqlite", "json_each(:lanes) AS ended"),
        ("postgresql", "unnest(CAST(:lanes AS text[])) AS ended(value)"),
    )
}
# A look for each lane in which anything is open, and no look at what stands behind its first.
_OPEN_LANES = text(
    "WITH RECURSIVE open_lane(name, number) AS ("  # noqa: S608  # Made of what stands above.
    f" SELECT (SELECT lane FROM effect WHERE {OPEN} AND lane > :after ORDER BY lane LIMIT 1), 1"
    " UNION ALL"
    f" SELECT (SELECT lane FROM effect WHERE {OPEN} AND lane > open_lane.name ORDER BY lane LIMIT 1), number + 1"
    f" FROM open_lane WHERE open_lane.name IS NOT NULL AND number < {LANES})"
    " SELECT name FROM open_lane WHERE name IS NOT NULL"
).columns(name=_effect.c.lane.type)


def wake(conn: Connection, now: datetime) -> bool:
    """Look again at what waited for a time that has come; returns whether there may be more of it."""
    return int(conn.execute(_WAKE, {"now": now}).rowcount) == WOKEN


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
    each = max(_LEAST_EACH, min(size, _SPARE * size // len(keys)))
    given = {"keys": _listed(conn, keys), "each": each, "count": size}
    rows = conn.execute(_LOOK[conn.dialect.name], given).all()
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


def _listed(conn: Connection, texts: Sequence[str]) -> list[str] | str:
    return list(texts) if conn.dialect.name == "postgresql" else json.dumps(texts)


def _order(row: Any) -> tuple[int, int]:
    return row.priority, -row.id


def park(conn: Connection, waiting: Mapping[int, str]) -> None:
    """Note what effects wait for, by their ids."""
    if not waiting:
        return
    ids = sorted(waiting)
    if conn.dialect.name == "postgresql":
        conn.execute(_PARK["postgresql"], {"ids": ids, "holders": [waiting[one] for one in ids]})
    else:
        conn.execute(_PARK["sqlite"], [{"id": one, "waits_for": waiting[one]} for one in ids])


def release(conn: Connection, lanes: Iterable[str]) -> int:
    """Something in these lanes has ended: it is the next one's turn. Returns in how many of them one waited for it."""
    wanted = sorted(set(lanes))
    if not wanted:
        return 0
    return int(conn.execute(_RELEASE[conn.dialect.name], {"lanes": _listed(conn, wanted)}).rowcount)


@dataclass(frozen=True, slots=True)
class Freed:
    """How many waited for a turn that was theirs, and the lane up to which was looked; empty: all were."""

    count: int
    lane: str


def free_turns(conn: Connection, after: str = "") -> Freed:
    """Look again at what waits for its turn and has nothing before it, in the lanes after this one.

    There are none, but for what a replica has ended that knows nothing of this, or a hand in the database.
    """
    lanes = list(conn.execute(_OPEN_LANES, {"after": after}).scalars())
    return Freed(release(conn, lanes), lanes[-1] if len(lanes) == LANES else "")
