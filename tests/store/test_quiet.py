"""Looks that are no effects: they heed limits and open circuits, and spend what effects then have not."""

from __future__ import annotations

from datetime import timedelta

from relay.deciding.budgets import POINTS_A_MINUTE
from relay.deciding.circuits import GITHUB, Circuit, State
from relay.store import budgets, circuits, quiet
from relay.store.circuits import Book
from relay.store.engine import Store
from tests.store.test_claiming import NOW, dispatches, put, take

LATER = NOW + timedelta(minutes=2)


def shut(store: Store, key: str) -> None:
    """Nothing but a probe goes through here, and none before LATER."""
    book = Book({})
    book.put(key, Circuit(key, State.OPEN, NOW, failures=9, several=True, held_until=LATER))
    store.write_now(lambda conn: circuits.keep(conn, book))


def test_a_look_keeps_quiet_while_its_account_rests_or_is_shut(store: Store) -> None:
    """A circuit whose probe is due lets it through: it may be the only thing that asks."""
    store.write_now(lambda conn: budgets.rest(conn, "account limited", LATER, "rate_limited"))
    store.write_now(lambda conn: budgets.spare(conn, "account used", NOW + timedelta(minutes=30)))
    store.write_now(lambda conn: budgets.spare(conn, "account busy", NOW + timedelta(minutes=1)))
    shut(store, "account away")
    ends = {
        account: store.read_now(lambda conn, account=account: quiet.quiet_until(conn, account, NOW))  # type: ignore[misc]
        for account in ("account limited", "account used", "account busy", "account away", "account well", None)
    }

    assert {
        "account limited": LATER,
        "account used": NOW + timedelta(minutes=30),
        "account busy": None,
        "account away": LATER,
        "account well": None,
        None: None,
    } == ends
    assert store.read_now(lambda conn: quiet.quiet_until(conn, "account away", LATER)) is None


def test_a_github_that_does_not_answer_is_asked_by_no_look(store: Store) -> None:
    """Not about the app itself either."""
    shut(store, GITHUB)

    assert LATER == store.read_now(lambda conn: quiet.quiet_until(conn, "account well", NOW))
    assert LATER == store.read_now(lambda conn: quiet.quiet_until(conn, None, NOW))


def test_what_a_look_asked_effects_have_not(store: Store) -> None:
    """GitHub counts every request of an installation, whoever sent it."""
    store.write_now(lambda conn: quiet.spend(conn, "account org", POINTS_A_MINUTE - 12, NOW))
    put(store, *dispatches("org", 5))

    assert 2 == len(take(store))
