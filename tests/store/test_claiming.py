"""Claims of several workers on one database: budgets and circuits are shared, and a full account starves nobody."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from relay.deciding.circuits import ENOUGH, Pace
from relay.deciding.effects import GATE_PRIORITY, HUD_PACING, Kind, NewEffect
from relay.store import outbox
from relay.store.engine import Store
from relay.store.outbox import Claimed, Ended

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def put(store: Store, *effects: NewEffect, at: datetime = NOW) -> None:
    """Write effects down."""
    store.write_now(lambda conn: outbox.enqueue(conn, effects, at))


def dispatches(account: str, count: int, first: int = 0) -> list[NewEffect]:
    """So many dispatches to backends of one account, each in a lane of its own."""
    return [
        NewEffect(Kind.DISPATCH, f"{account} {number}", f"account {account}", number, f"{account}/b{number}")
        for number in range(first, first + count)
    ]


def take(store: Store, owner: str = "me", *, at: datetime = NOW, count: int = 100) -> list[Claimed]:
    """Claim what is due."""
    return store.write_now(lambda conn: outbox.claim(conn, owner=owner, count=count, now=at))


def end(store: Store, *ends: Ended, owner: str = "me", at: datetime = NOW) -> None:
    """Note endings and what follows from them."""
    store.write_now(
        lambda conn: outbox.conclude(conn, outbox.finish(conn, ends, owner=owner, now=at), at, pace=Pace(), sparing={})
    )


def down(effect: Claimed, *, not_before: datetime | None = None) -> Ended:
    """A try that met a GitHub without answers."""
    due = NOW + timedelta(hours=1)
    return Ended(effect, "retry", 0.1, "github_unavailable", "502", due=due, down=True, not_before=not_before)


def done(effect: Claimed) -> Ended:
    """A try that worked."""
    return Ended(effect, "done", 0.1, answered=True)


def test_two_workers_spend_one_budget_and_a_full_account_stops_nobody_else(store: Store) -> None:
    """850 points are 170 dispatches, whoever sends them; gates of that account still go, and so does everybody else."""
    put(store, *dispatches("small", 1), *dispatches("big", 200))
    sent = 0
    for turn in range(4):
        owner = f"worker {turn % 2}"
        claimed = take(store, owner, count=60)
        end(store, *[done(one) for one in claimed], owner=owner)
        sent += len(claimed)
    put(store, NewEffect(Kind.RECONCILE_CHECK, "gate", "account big", priority=GATE_PRIORITY))

    assert 171 == sent
    (gate,) = take(store)
    assert Kind.RECONCILE_CHECK is gate.kind
    end(store, done(gate))
    assert 30 == len(take(store, at=NOW + timedelta(seconds=66)))


def test_an_open_circuit_lets_one_probe_through_and_a_success_brings_all_forward(store: Store) -> None:
    """What failed waits for hours by its schedule; the first that works has the others tried, the newest first."""
    put(store, *dispatches("org", ENOUGH), NewEffect(Kind.FORWARD_HUD, "hud", HUD_PACING, 99))
    claimed = take(store)
    end(store, *[down(one) if one.kind is Kind.DISPATCH else done(one) for one in claimed])
    put(store, *dispatches("org", 1, first=50), NewEffect(Kind.FORWARD_HUD, "hud", HUD_PACING, 100))
    later = NOW + timedelta(seconds=30)

    assert [100] == [one.subject_id for one in take(store)]
    (probe,) = take(store, "one", at=later)
    assert [] == take(store, "two", at=later)
    assert 50 == probe.subject_id
    end(store, done(probe), owner="one", at=later)
    assert [4, 3, 2, 1] == [one.subject_id for one in take(store, at=later)]


def test_nothing_is_brought_forward_beyond_a_time_that_was_named(store: Store) -> None:
    """Retry-After of one answer holds although everybody else is answered again."""
    named = NOW + timedelta(minutes=10)
    put(store, *dispatches("org", ENOUGH))
    first, *others = take(store)
    end(store, down(first, not_before=named), *[down(one) for one in others])
    put(store, *dispatches("org", 1, first=50))
    (probe,) = take(store, at=named - timedelta(seconds=1)) or take(store, at=named)
    end(store, done(probe), at=named - timedelta(seconds=1))

    due = {one.id for one in take(store, at=named - timedelta(seconds=1))}
    assert first.id not in due


def comments(account: str, count: int) -> list[NewEffect]:
    """So many comments on pull requests of one account's repositories."""
    return [
        NewEffect(Kind.RECONCILE_COMMENT, f"comment {number}", f"account {account}", number, priority=-50)
        for number in range(count)
    ]


def test_comments_that_must_wait_hold_back_nothing_else(store: Store) -> None:
    """GitHub counts what creates content by itself: 78 comments a minute are no reason to send no dispatch."""
    put(store, *comments("org", 100))
    kinds = Counter(one.kind for turn in range(3) for one in taken_and_done(store, f"worker {turn}"))
    put(store, *dispatches("org", 3))

    assert {Kind.RECONCILE_COMMENT: 78} == dict(kinds)
    assert [Kind.DISPATCH] * 3 == [one.kind for one in taken_and_done(store, "me")]
    assert 22 == len(take(store, at=NOW + timedelta(seconds=66)))


def taken_and_done(store: Store, owner: str) -> list[Claimed]:
    """Claim what is due, and note that it worked."""
    claimed = take(store, owner, count=60)
    end(store, *[done(one) for one in claimed], owner=owner)
    return claimed
