"""Rows for the HUD are taken together, and none of them waits for nothing."""

from __future__ import annotations

from relay.deciding.effects import Kind
from relay.store.claiming import HUD_IN_FLIGHT
from relay.work.forwarding import Forwarding

ROW, OTHER = Kind.FORWARD_HUD, Kind.DISPATCH


def test_a_few_rows_call_for_no_look() -> None:
    """What came meanwhile is found when the worker looks anyway, and then all of it at once."""
    forwarding = Forwarding()
    forwarding.claimed([ROW] * 5)

    assert not forwarding.noted([ROW] * 3)
    assert not forwarding.noted([ROW] * 2)


def test_anything_else_calls_for_one() -> None:
    """A lane may have become free."""
    forwarding = Forwarding()
    forwarding.claimed([ROW, OTHER])

    assert forwarding.noted([ROW, OTHER])


def test_where_all_places_were_taken_more_is_looked_for_as_soon_as_most_are_free() -> None:
    """A backlog is worked off without a pause, and not a few rows at a time."""
    forwarding = Forwarding()
    forwarding.claimed([ROW] * (HUD_IN_FLIGHT - 4))
    forwarding.claimed([ROW] * 4)

    assert not forwarding.noted([ROW] * (HUD_IN_FLIGHT // 2))
    assert forwarding.noted([ROW] * (HUD_IN_FLIGHT // 4))
    forwarding.claimed([ROW] * 2)
    assert not forwarding.noted([ROW] * 2)
