"""What an account may spend: never more than GitHub allows in any minute, wherever that minute begins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from relay.deciding.budgets import CONTENTS_A_MINUTE, CONTENTS_AN_HOUR, POINTS_A_MINUTE, POINTS_WITH_GATES, Price, Spent

NOW = datetime(2026, 11, 30, 12, 0, 3, tzinfo=UTC)
WRITE = Price(5)


def spend(spent: Spent, price: Price, now: datetime, count: int, *, urgent: bool = False) -> tuple[Spent, int]:
    """Spend as often as there is room; how often that was."""
    for number in range(count):
        if spent.recent(now).free_at(price, urgent=urgent) is not None:
            return spent, number
        spent = spent.recent(now).plus(price, now)
    return spent, count


def test_a_burst_goes_out_and_the_rest_waits_for_room() -> None:
    """170 writes at once; the next when the first have left GitHub's minute, and not before."""
    spent, at_once = spend(Spent(), WRITE, NOW, 200)
    free = spent.free_at(WRITE, urgent=False)

    assert POINTS_A_MINUTE // 5 == at_once
    assert free is not None
    assert timedelta(seconds=60) <= free - NOW <= timedelta(seconds=65)
    assert 0 == spend(spent, WRITE, free - timedelta(seconds=1), 1)[1]
    assert 1 == spend(spent, WRITE, free, 1)[1]


def test_gates_have_room_when_nobody_else_has() -> None:
    """The required check is worth more than anything that can wait."""
    spent, _ = spend(Spent(), WRITE, NOW, 200)

    assert (POINTS_WITH_GATES - POINTS_A_MINUTE) // 5 == spend(spent, WRITE, NOW, 50, urgent=True)[1]


def test_comments_have_a_budget_of_their_own_by_minute_and_hour() -> None:
    """Creating content too quickly is what GitHub's pages warn of at comments."""
    comment = Price(6, contents=1)
    spent, first = spend(Spent(), comment, NOW, 200)
    total, now = first, NOW
    for _ in range(10):
        now += timedelta(seconds=70)
        spent, more = spend(spent, comment, now, 200)
        total += more

    assert CONTENTS_A_MINUTE == first
    assert CONTENTS_AN_HOUR == total
    assert 1 == spend(spent, comment, NOW + timedelta(minutes=66), 1)[1]
    assert Spent.from_json(spent.to_json()) == spent


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 40), st.integers(1, 180)), min_size=1, max_size=12))
def test_no_minute_holds_more_than_is_allowed(bursts: list[tuple[float, int]]) -> None:
    """However bursts are spread, any sixty seconds hold at most what GitHub allows."""
    spent, now = Spent(), NOW
    spends: list[tuple[datetime, int]] = []
    for wait, count in bursts:
        now += timedelta(seconds=wait)
        spent, done = spend(spent, WRITE, now, count)
        spends.append((now, done * 5))

    for end, _ in spends:
        assert sum(points for at, points in spends if end - timedelta(seconds=60) < at <= end) <= POINTS_A_MINUTE
