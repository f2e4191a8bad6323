"""Reports that were given up reach the HUD once it takes reports again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import Connection

from relay.deciding.effects import forward_hud
from relay.store import outbox
from relay.store.engine import Store
from relay.store.forwarding import MOST_TRIES, revive_forwards
from relay.store.outbox import Ended
from relay.store.tables import Effect
from tests.conftest import Clock

OUTAGE = timedelta(days=2)


def forwarded(store: Store, clock: Clock, report: int, outcome: str, reason: str = "") -> None:
    """A report whose forwarding ended so, just now."""

    def unit(conn: Connection) -> None:
        outbox.enqueue(conn, [forward_hud(report, 1, f"job {report}")], clock.now())
        (claimed,) = outbox.claim(conn, owner="w", count=9, now=clock.now())
        outbox.finish(conn, [Ended(claimed, outcome, 0.1, reason)], owner="w", now=clock.now())

    store.write_now(unit)


def states(store: Store) -> list[str]:
    """The state of each forwarding, oldest report first."""
    table = Effect.__table__  # type: ignore[attr-defined]
    ask = table.select().with_only_columns(table.c.state).order_by(table.c.subject_id)
    return store.read_now(lambda conn: list(conn.execute(ask).scalars()))


def revive(store: Store, clock: Clock) -> int:
    """What the sweep does."""
    return store.write_now(lambda conn: revive_forwards(conn, clock.now()))


@pytest.mark.parametrize("reason", ["hud_unavailable", "hud_refused"])
def test_what_an_outage_outlasted_is_sent_once_the_hud_is_back(store: Store, clock: Clock, reason: str) -> None:
    """CASES 14: the tries end after half a day, the outage after two, and no row is lost."""
    forwarded(store, clock, 1, "done")
    clock.advance(timedelta(hours=12))
    forwarded(store, clock, 2, "dead", reason)
    assert (0, ["done", "dead"]) == (revive(store, clock), states(store))

    clock.advance(OUTAGE)
    forwarded(store, clock, 3, "done")

    assert (1, ["done", "ready", "done"]) == (revive(store, clock), states(store))
    assert 0 == revive(store, clock)


def test_what_the_hud_refused_for_itself_stays_refused(store: Store, clock: Clock) -> None:
    """A report that it cannot read will not be read next time."""
    forwarded(store, clock, 1, "dead", "hud_refused_report")
    clock.advance(OUTAGE)
    forwarded(store, clock, 2, "done")

    assert 0 == revive(store, clock)


def test_a_report_that_always_fails_is_not_sent_for_ever(store: Store, clock: Clock) -> None:
    """It may be the one that brings the HUD down."""
    forwarded(store, clock, 1, "dead", "hud_unavailable")
    table = Effect.__table__  # type: ignore[attr-defined]
    store.write_now(lambda conn: conn.execute(table.update().values(attempts=MOST_TRIES)))
    clock.advance(OUTAGE)
    forwarded(store, clock, 2, "done")

    assert 0 == revive(store, clock)
