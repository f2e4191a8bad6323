"""What accounts have spent, in SQL: locked by a claim and written back by it, so that replicas share one budget.

Every function that locks several rows does so in the order of their keys, after the circuits' rows
(``relay.store.circuits``): two that lock in different orders would wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, bindparam, func, or_, select, update

from relay.deciding.budgets import Price, Spent
from relay.store.conflict import on_conflict_do_nothing
from relay.store.tables_limits import Pacing

_pacing = Pacing.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.

#: A row that holds nobody back.
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)

#: How often the rest after a limit that names no time is doubled: a minute at first, an hour at the most.
_STRIKES = 6

_TIME = _pacing.c.not_before.type


@dataclass(slots=True)
class Account:
    """One account's budget while a claim decides on it."""

    key: str
    not_before: datetime
    free_at: datetime | None
    spent: Spent
    changed: bool = False

    def may_be_asked(self, now: datetime, *, urgent: bool) -> bool:
        """Whether nothing is known that keeps effects of this account back."""
        return may_be_asked(self.not_before, self.free_at, now, urgent=urgent)

    def take(self, price: Price, now: datetime, *, urgent: bool, times: float = 1.0) -> bool:
        """Spend this if there is room in so many budgets; otherwise it is noted from when on there is."""
        at = self.spent.free_at(price, urgent=urgent, times=times)
        self.changed = True
        if at is None:
            self.spent = self.spent.plus(price, now)
            return True
        if urgent:
            self.not_before = max(self.not_before, at)
        else:
            self.free_at = at if self.free_at is None else max(self.free_at, at)
        return False


def may_be_asked(not_before: datetime | None, free_at: datetime | None, now: datetime, *, urgent: bool) -> bool:
    """Whether an account that rests until one time, and saves for gates until another, may be asked now."""
    return (not_before is None or not_before <= now) and (urgent or free_at is None or free_at <= now)


def lock(conn: Connection, keys: Iterable[str], now: datetime) -> dict[str, Account]:
    """These accounts, each with a row from now on that nobody else changes before this transaction ends."""
    wanted = sorted(set(keys))
    found = _locked(conn, wanted, now)
    missing = [key for key in wanted if key not in found]
    if missing:
        conn.execute(
            on_conflict_do_nothing(conn, _pacing),
            [{"key": key, "not_before": _LONG_AGO, "reason": ""} for key in missing],
        )
        found |= _locked(conn, missing, now)
    return found


_LOCKED = (
    select(_pacing)
    .where(_pacing.c.key.in_(bindparam("keys", expanding=True)))
    .order_by(_pacing.c.key)
    .with_for_update()
)


def _locked(conn: Connection, keys: Sequence[str], now: datetime) -> dict[str, Account]:
    return {
        row.key: Account(row.key, row.not_before, row.free_at, Spent.from_json(row.spent).recent(now))
        for row in conn.execute(_LOCKED, {"keys": list(keys)})
    }


_KEEP = (
    update(_pacing)
    .where(_pacing.c.key == bindparam("b_key"))
    .values(
        not_before=bindparam("b_not_before", type_=_TIME),
        free_at=bindparam("b_free_at", type_=_TIME),
        spent=bindparam("b_spent"),
    )
)


def keep(conn: Connection, accounts: Iterable[Account]) -> None:
    """Write back what was spent."""
    rows = [
        {"b_key": one.key, "b_not_before": one.not_before, "b_free_at": one.free_at, "b_spent": one.spent.to_json()}
        for one in accounts
        if one.changed
    ]
    if rows:
        conn.execute(_KEEP, rows)


def rest(conn: Connection, key: str, until: datetime, reason: str) -> None:
    """Leave this account alone until then. A shorter rest never replaces a longer one."""
    conn.execute(on_conflict_do_nothing(conn, _pacing), {"key": key, "not_before": until, "reason": reason})
    conn.execute(
        update(_pacing)
        .where(_pacing.c.key == key, _pacing.c.not_before < until)
        .values(not_before=until, reason=reason)
    )


def rest_longer(conn: Connection, key: str, until: datetime, reason: str, now: datetime) -> datetime:
    """Leave this account alone after a limit that named no time: until then at first, twice as long each next time.

    "Wait for at least one minute [...] and then an exponentially increasing amount of time":
    https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api#exceeding-the-rate-limit
    """
    row = conn.execute(select(_pacing).where(_pacing.c.key == key).with_for_update()).first()
    strikes = 0 if row is None else row.strikes or 0
    if row is not None and row.not_before > now:
        # Several in flight are told of one limit: that is one strike.
        resting: datetime = row.not_before
        return max(until, resting)
    longer: datetime = now + min((until - now) * 2**strikes, timedelta(hours=1))
    rest(conn, key, longer, reason)
    conn.execute(update(_pacing).where(_pacing.c.key == key).values(strikes=min(strikes + 1, _STRIKES)))
    return longer


def forgive(conn: Connection, keys: Sequence[str]) -> None:
    """These accounts were answered: the next limit is the first again."""
    if keys:
        conn.execute(
            update(_pacing)
            .where(_pacing.c.key.in_(bindparam("keys", expanding=True)), _pacing.c.strikes > 0)
            .values(strikes=0),
            {"keys": sorted(keys)},
        )


def spare(conn: Connection, key: str, until: datetime) -> None:
    """What is left of this account's hour is kept for gates until then."""
    conn.execute(on_conflict_do_nothing(conn, _pacing), {"key": key, "not_before": _LONG_AGO, "reason": ""})
    conn.execute(
        update(_pacing)
        .where(_pacing.c.key == key, or_(_pacing.c.free_at.is_(None), _pacing.c.free_at < until))
        .values(free_at=until)
    )


@dataclass(frozen=True, slots=True)
class Held:
    """How many accounts wait just now: for a time that GitHub named or the worker chose, and for their own budget."""

    resting: int
    saving: int


def held(conn: Connection, now: datetime) -> Held:
    """How many accounts are held back, for the metrics."""
    resting = conn.execute(select(func.count()).select_from(_pacing).where(_pacing.c.not_before > now)).scalar()
    saving = conn.execute(select(func.count()).select_from(_pacing).where(_pacing.c.free_at > now)).scalar()
    return Held(int(resting or 0), int(saving or 0))
