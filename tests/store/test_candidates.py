"""What a claim costs depends on what it takes, and whatever waits is found once it may go."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from relay.deciding.circuits import GITHUB, Circuit, State
from relay.deciding.effects import HUD_PACING, Kind, NewEffect
from relay.store import circuits, outbox
from relay.store.candidates import LANES, WOKEN, Freed
from relay.store.circuits import Book
from relay.store.engine import Store
from relay.store.outbox import Claimed, Ended

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def put(store: Store, *effects: NewEffect) -> None:
    """Write effects down."""
    store.write_now(lambda conn: outbox.enqueue(conn, effects, NOW))


def dispatches(account: str, numbers: range, *, lane: str = "") -> list[NewEffect]:
    """Dispatches to backends of one account, each in a lane of its own where none is named."""
    return [
        NewEffect(Kind.DISPATCH, lane or f"{account} {number}", f"account {account}", number, f"{account}/b{number}")
        for number in numbers
    ]


def take(store: Store, count: int = 10, *, at: datetime = NOW) -> list[Claimed]:
    """Claim what is due."""
    return store.write_now(lambda conn: outbox.claim(conn, owner="me", count=count, now=at))


def end(store: Store, *ends: Ended) -> None:
    """Note endings."""
    store.write_now(lambda conn: outbox.finish(conn, ends, owner="me", now=NOW))


def shut_github(store: Store, until: datetime) -> None:
    """GitHub as a whole does not answer."""
    circuit = Circuit(GITHUB, State.OPEN, NOW, failures=9, held_until=until)
    store.write_now(lambda conn: circuits.keep(conn, Book({GITHUB: circuit}, {GITHUB})))


def steps(store: Store, unit: Callable[[Connection], Any]) -> int:
    """How many hundreds of its smallest steps SQLite takes for this unit."""
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    def counted(conn: Connection) -> None:
        driver: Any = conn.connection.driver_connection
        driver.set_progress_handler(count, 100)
        unit(conn)
        driver.set_progress_handler(None, 0)

    store.write_now(counted)
    return taken


def hold_by_github(store: Store, count: int) -> None:
    """Effects of several accounts wait for GitHub."""
    shut_github(store, NOW + timedelta(hours=1))
    for account in range(5):
        put(store, *dispatches(f"org{account}", range(count // 5)))


def hold_by_time(store: Store, count: int) -> None:
    """They have been tried, and are to be tried again later."""
    later = [NewEffect(Kind.DISPATCH, f"l{n}", f"account o{n % 5}", n, delay=timedelta(hours=1)) for n in range(count)]
    put(store, *later)


def hold_by_lane(store: Store, count: int) -> None:
    """They all are in the lane of one that is under way."""
    put(store, *dispatches("org", range(count), lane="one"))


def hold_by_account(store: Store, count: int) -> None:
    """Their account rests."""
    put(store, *dispatches("org", range(count)))
    store.write_now(lambda conn: outbox.rest(conn, "account org", NOW + timedelta(hours=1), "primary"))


@pytest.mark.parametrize("hold", [hold_by_github, hold_by_time, hold_by_lane, hold_by_account])
def test_a_claim_does_not_look_at_all_that_waits(
    tmp_path: Path, sqlite_template: Path, hold: Callable[[Store, int], None]
) -> None:
    """What arrives meanwhile is taken, and that costs the same whether a hundred effects wait or thousands."""
    costs: list[int] = []
    for count in (100, 2_000):
        shutil.copy(sqlite_template, tmp_path / f"{count}.db")
        store = Store(f"sqlite:///{tmp_path}/{count}.db")
        hold(store, count)
        for _ in range(3):
            take(store)
        put(store, NewEffect(Kind.FORWARD_HUD, "hud", HUD_PACING, 7))
        found: list[Claimed] = []
        costs.append(
            steps(store, lambda conn, found=found: found.extend(outbox.claim(conn, owner="me", count=9, now=NOW)))  # type: ignore[misc]
        )
        store.close()
        assert [7] == [one.subject_id for one in found]

    few, many = costs
    assert many <= few + 3


def test_what_waits_for_its_turn_has_it_once_the_one_before_was_cancelled(store: Store) -> None:
    """It is found at once, and not when somebody looks for what was forgotten."""
    put(store, *dispatches("org", range(1, 3), lane="one"))
    (first,) = take(store)
    assert [] == take(store)
    end(store, Ended(first, "retry", 0.1, due=NOW + timedelta(hours=1)))
    assert [] == take(store)
    store.write_now(
        lambda conn: outbox.cancel(conn, kinds=[Kind.DISPATCH], subject_ids=[1], reason="newer_head", now=NOW)
    )

    assert [2] == [one.subject_id for one in take(store)]


def test_a_replica_of_the_version_before_may_end_what_others_wait_for(store: Store) -> None:
    """It knows nothing of turns. Somebody else notices that one has come."""
    put(store, *dispatches("org", range(1, 4), lane="one"))
    (first,) = take(store)
    assert [] == take(store)
    store.write_now(lambda conn: conn.exec_driver_sql(f"UPDATE effect SET state = 'done' WHERE id = {first.id}"))

    assert [] == take(store)
    assert 1 == store.write_now(outbox.free_turns).count
    assert [2] == [one.subject_id for one in take(store)]
    assert 0 == store.write_now(outbox.free_turns).count


def test_github_is_probed_at_several_accounts_however_much_one_is_owed(store: Store) -> None:
    """One of them may be ill by itself. The newest of each goes, and nothing else."""
    put(store, *dispatches("a", range(10)), *dispatches("b", range(10)), *dispatches("big", range(600)))
    shut_github(store, NOW + timedelta(minutes=1))
    for _ in range(2):
        assert [] == take(store)
    probes = take(store, 100, at=NOW + timedelta(minutes=1))

    assert [("account big", 599), ("account b", 9), ("account a", 9)] == [
        (one.pacing, one.subject_id) for one in probes
    ]


def test_what_was_held_goes_the_newest_first_whoever_held_it(store: Store) -> None:
    """Once GitHub is back, each account's share is taken in the order in which all of them would be."""
    for number in range(40):
        put(store, *dispatches(f"org{number}" if number < 10 else "many", range(number, number + 1)))
    shut_github(store, NOW + timedelta(hours=1))
    assert [] == take(store)
    put(store, *dispatches("new", range(40, 43)))
    store.write_now(lambda conn: circuits.keep(conn, Book({}, {GITHUB})))

    assert list(range(42, 22, -1)) == [one.subject_id for one in take(store, 20)]
    assert list(range(22, -1, -1)) == [one.subject_id for one in take(store, 100)]


def test_a_claim_that_did_not_get_through_says_so(store: Store) -> None:
    """A look has few of each of many accounts. Nobody waits for the next time to look while others may go as well."""
    put(store, *[one for account in range(200) for one in dispatches(f"org{account}", range(account, account + 1))])
    shut_github(store, NOW + timedelta(hours=1))
    assert [] == take(store, 500)
    put(store, *[one for account in range(200) for one in dispatches(f"new{account}", range(account, account + 1))])
    store.write_now(lambda conn: circuits.keep(conn, Book({}, {GITHUB})))

    taken, more = 0, True
    while more:
        claimed = store.write_now(lambda conn: outbox.claim(conn, owner="me", count=500, now=NOW))
        taken, more = taken + len(claimed), claimed.more

    assert 400 == taken


def of_each(
    tmp_path: Path, sqlite_template: Path, counts: tuple[int, int], unit: Callable[[Store, int], int]
) -> list[int]:
    """What this unit says of a database for each of the counts."""
    found = []
    for count in counts:
        shutil.copy(sqlite_template, tmp_path / f"{count}.db")
        store = Store(f"sqlite:///{tmp_path}/{count}.db")
        found.append(unit(store, count))
        store.close()
    return found


def test_a_claim_wakes_no_more_than_so_many_whose_time_has_come(tmp_path: Path, sqlite_template: Path) -> None:
    """After an hour's stop that may be all that is owed."""

    def cost(store: Store, count: int) -> int:
        hold_by_time(store, count)
        take(store)
        for _ in range(count // 400):
            take(store)
        return steps(store, lambda conn: outbox.claim(conn, owner="me", count=9, now=NOW + timedelta(hours=2)))

    few, many = of_each(tmp_path, sqlite_template, (WOKEN, 4 * WOKEN), cost)
    assert many <= few * 1.1


def test_what_a_claim_left_asleep_is_woken_by_the_next(store: Store) -> None:
    """Those whose time came first go first, and each claim says whether to come again at once."""
    later = [
        NewEffect(Kind.DISPATCH, f"l{n}", f"account o{n % 50}", n, delay=timedelta(seconds=n + 1))
        for n in range(WOKEN + 5)
    ]
    put(store, *later)
    store.write_now(lambda conn: conn.exec_driver_sql("UPDATE effect SET waits_for = 'time'"))
    at = NOW + timedelta(hours=1)

    def claim() -> outbox.Claims:
        return store.write_now(lambda conn: outbox.claim(conn, owner="me", count=10, now=at))

    first, second = claim(), claim()
    assert (True, False) == (first.more, second.more)
    assert list(range(WOKEN - 1, WOKEN - 11, -1)) == [one.subject_id for one in first]
    assert WOKEN + 4 == second[0].subject_id


def test_what_was_forgotten_is_looked_for_lane_by_lane(tmp_path: Path, sqlite_template: Path) -> None:
    """However many wait for their turn in one of them."""

    def cost(store: Store, count: int) -> int:
        hold_by_lane(store, count)
        for _ in range(2 + count // 400):
            take(store)
        return steps(store, outbox.free_turns)

    few, many = of_each(tmp_path, sqlite_template, (100, 2_000), cost)
    assert many <= few + 3


def test_what_was_forgotten_is_looked_for_in_so_many_lanes_at_a_time(store: Store) -> None:
    """The next look goes on behind them, and the last says that it was through."""
    put(store, *[NewEffect(Kind.DISPATCH, f"lane {n:05}", "account org", n) for n in range(LANES + 2)])
    store.write_now(lambda conn: conn.exec_driver_sql("UPDATE effect SET waits_for = 'turn'"))

    first = store.write_now(outbox.free_turns)
    assert Freed(LANES, f"lane {LANES - 1:05}") == first
    assert Freed(2, "") == store.write_now(lambda conn: outbox.free_turns(conn, first.lane))
    assert Freed(0, first.lane) == store.write_now(outbox.free_turns)
    assert first.lane == store.write_now(
        lambda conn: outbox.claim(conn, owner="me", count=1, now=NOW, free_after="").freed
    )
