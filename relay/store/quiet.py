"""Looks at GitHub that are no effects: they keep quiet where effects do, and what they ask comes out of one budget.

They never wait for room in a budget: where an account is busy all the time, nobody would look for what was missed. What
a look costs is spent beforehand, and effects go out that much slower.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection, select

from relay.deciding.budgets import Price
from relay.deciding.circuits import GITHUB
from relay.store import budgets, circuits
from relay.store.tables_limits import Pacing

_pacing = Pacing.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.

#: A budget of a minute has room again within this time. An account that saves for longer has nearly used up its hour,
#: and the rest of that is for gates.
_A_MINUTE = timedelta(seconds=70)


def quiet_until(conn: Connection, account: str | None, now: datetime) -> datetime | None:
    """Until when GitHub is not to be asked about this account (None: about the app itself); None where it may be now.

    At a circuit whose probe is due a look may go: where nothing else waits, it alone finds out that GitHub is back.
    """
    every = circuits.load(conn)
    shut = [every.get(key) for key in (GITHUB, account) if key is not None]
    ends = [one.held_until for one in shut if one is not None and one.shut_off and one.held_until is not None]
    row = conn.execute(select(_pacing).where(_pacing.c.key == account)).first()
    if row is not None:
        ends.append(row.not_before)
        if row.free_at is not None and row.free_at > now + _A_MINUTE:
            ends.append(row.free_at)
    return max((end for end in ends if end > now), default=None)


def spend(conn: Connection, account: str, points: int, now: datetime) -> None:
    """Take so many points out of this account's budget, whether there is room or not."""
    found = budgets.lock(conn, [account], now)[account]
    found.spent, found.changed = found.spent.plus(Price(points), now), True
    budgets.keep(conn, [found])
