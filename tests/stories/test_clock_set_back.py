"""A machine's clock jumps ahead and is set right an hour later: nobody waits for as long as it was ahead."""

from __future__ import annotations

from datetime import timedelta

from relay.simulator import Fault, JobPlan, Kind, Listener, Match, Mode, Reports, wait_until
from tests.stories.world import World

SILENT = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
AHEAD = timedelta(hours=3)


def test_what_was_limited_while_the_clock_was_ahead_goes_out_in_time(world: World) -> None:
    """A limit of a minute is rested out for a minute, by the account's row and by what the process remembers."""
    backend = world.backend("busy/backend", "L1", SILENT)
    world.start()
    world.clock.advance(AHEAD)
    limit = Fault(Kind.SECONDARY_LIMIT, Match("POST", "/dispatches$", account="busy"), times=1, retry_after=60)
    world.sim.faults.add(limit)
    world.up.open_pull_request()
    wait_until(lambda: world.sim.faults.met(limit) == 1, what="a refusal")
    world.idle()
    assert world.relay is not None
    sweep = world.relay.sweep
    for _ in range(2):  # One may have begun before.
        before = sweep.last_turn
        wait_until(lambda before=before: sweep.last_turn != before, what="a look at the clock")  # type: ignore[misc]
    assert [] == backend.runs

    world.clock.advance(-AHEAD)
    world.hushed(0.5)
    assert [] == backend.runs  # It does not go out sooner, either.
    world.clock.advance(timedelta(seconds=65))

    assert 1 == len(backend.wait_for_runs())
