"""Where time is squeezed, as in the demo, a minute's budget is squeezed with it; elsewhere it is GitHub's own."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from relay.deciding.budgets import POINTS_A_MINUTE, Price, Spent
from relay.deciding.circuits import Pace

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(("scale", "budgets"), [(1.0, 1), (0.01, 100), (10.0, 1)])
def test_a_minute_has_as_many_budgets_as_minutes_pass_in_it(scale: float, budgets: int) -> None:
    """A hundred times faster is a hundred minutes of GitHub's in one of ours; slower retries never buy more."""
    most = POINTS_A_MINUTE * budgets
    spent = Spent().plus(Price(most - 1), NOW)
    times = Pace(scale).budgets

    assert spent.free_at(Price(1), urgent=False, times=times) is None
    assert spent.free_at(Price(2), urgent=False, times=times) is not None
