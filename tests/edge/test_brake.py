"""The brake on callers: a moving window, by our own clock, that refused calls do not fill."""

from __future__ import annotations

from datetime import timedelta

from relay.edge.brake import Brake
from tests.conftest import Clock


def test_the_window_moves_with_each_call(clock: Clock) -> None:
    """Two calls a minute: the third waits for the first to be a minute old, not for a new minute to begin."""
    brake = Brake(2, now=clock.now)
    assert brake.wait("a") is None
    clock.advance(timedelta(seconds=40))
    assert brake.wait("a") is None

    assert timedelta(seconds=20) == brake.wait("a")
    clock.advance(timedelta(seconds=20))
    assert brake.wait("a") is None
    assert timedelta(seconds=40) == brake.wait("a")


def test_refused_calls_cost_nothing(clock: Clock) -> None:
    """A client that knocks a hundred times is let in as soon as one that waited."""
    brake = Brake(1, now=clock.now)
    brake.wait("a")

    assert {timedelta(minutes=1)} == {brake.wait("a") for _ in range(100)}
    clock.advance(timedelta(minutes=1))
    assert brake.wait("a") is None


def test_callers_do_not_share_a_window(clock: Clock) -> None:
    """One noisy backend does not hold up another."""
    brake = Brake(1, now=clock.now)
    brake.wait("a")

    assert brake.wait("b") is None


def test_a_clock_that_is_put_back_shuts_nobody_out(clock: Clock) -> None:
    """What seems to come from the future is of no minute that anybody counts."""
    brake = Brake(1, now=clock.now)
    brake.wait("a")
    clock.advance(timedelta(hours=-3))

    assert brake.wait("a") is None
    assert timedelta(minutes=1) == brake.wait("a")
