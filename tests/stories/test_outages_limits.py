"""GitHub's limits: a burst goes out within them, a limit is rested out and never argued with, and gates go first."""

from __future__ import annotations

from datetime import timedelta
from itertools import accumulate

import pytest

from relay.simulator import Fault, JobPlan, Kind, Listener, Match, Mode, Reports, wait_until
from tests.stories.world import World

SILENT = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
SECOND = timedelta(seconds=1)


def let_pass(world: World, by: timedelta) -> None:
    """Let time pass, and see what comes of it."""
    world.clock.advance(by)
    assert world.relay is not None
    world.relay.worker.wake()
    world.hushed(0.3)


def tried(world: World, owner: str) -> int:
    """How often GitHub was asked to dispatch to this account's backends."""
    names = [one.repository_name or "" for one in world.sim.log if one.path.endswith("/dispatches")]
    return sum(name.startswith(f"{owner}/") for name in names)


def most_at_once(world: World) -> int:
    """How many requests of the relay GitHub had in hand at the same time, of all accounts together."""
    moments = [moment for one in world.sim.log for moment in ((one.began, 1), (one.ended, -1))]
    return max(accumulate(step for _, step in sorted(moments)))


@pytest.mark.slow
def test_a_large_organisation_is_told_within_its_budget(world: World) -> None:
    """200 backends of one account cost 1,000 points of 900 a minute: the rest waits, and GitHub never says no.

    It takes its time for each answer, so that there is much at once, and never more than the hundred it allows.
    """
    many = [world.backend(f"big/b{number}", "L1", SILENT) for number in range(200)]
    others = [world.backend(f"small{number}/backend", "L1", SILENT) for number in range(20)]
    world.start()
    slow = Fault(Kind.LATENCY, Match("POST", "/dispatches$"), times=None, seconds=2.0)
    world.sim.faults.add(slow)

    world.up.open_pull_request()
    wait_until(lambda: tried(world, "big") >= 50, what="the first of them", timeout=20)
    world.sim.faults.remove(slow)
    wait_until(lambda: tried(world, "big") >= 170, what="the burst", timeout=20)
    for other in others:
        other.wait_for_runs()
    world.hushed(0.3)
    at_once = tried(world, "big")
    let_pass(world, 40 * SECOND)
    still = tried(world, "big")
    world.clock.advance(30 * SECOND)
    for backend in many:
        backend.wait_for_runs()

    assert 170 == at_once == still  # 850 points at 5 each; what is left of the 900 is kept for gates.
    assert {} == dict(world.sim.limits.hits)
    assert max(world.sim.limits.most_at_once.values()) <= 90
    assert 50 <= most_at_once(world) <= 100


def test_a_limit_without_a_time_is_rested_out_longer_each_time(world: World) -> None:
    """At least a minute, then twice as long: whoever goes on asking may be banned."""
    backend = world.backend("busy/backend", "L1", SILENT)
    other = world.backend("free/backend", "L1", SILENT)
    world.start()
    limit = world.sim.faults.add(Fault(Kind.SECONDARY_LIMIT, Match("POST", "/dispatches$", account="busy"), times=3))

    world.up.open_pull_request()
    other.wait_for_runs()
    wait_until(lambda: world.sim.faults.met(limit) == 1, what="the first refusal")
    world.hushed(0.3)
    seen = []
    for wait in (58, 4, 110, 14, 220):
        let_pass(world, wait * SECOND)
        seen.append(tried(world, "busy"))
    world.clock.advance(30 * SECOND)

    assert [1, 2, 2, 3, 3] == seen
    assert 1 == len(backend.wait_for_runs())


def test_a_limit_is_obeyed_by_what_is_in_hand_already(world: World) -> None:
    """Forty dispatches are under way when the first is refused: those that were not sent yet are not sent any more."""
    many = [world.backend(f"busy/b{number}", "L1", SILENT) for number in range(40)]
    world.start()
    limit = Fault(Kind.SECONDARY_LIMIT, Match("POST", "/dispatches$", account="busy"), times=None, retry_after=120)
    world.sim.faults.add(limit)

    world.up.open_pull_request()
    world.hushed(0.5)
    refused = world.sim.faults.met(limit)
    let_pass(world, 100 * SECOND)
    world.up.open_pull_request()
    world.hushed(0.3)
    assert refused == world.sim.faults.met(limit)
    world.sim.faults.clear()
    world.clock.advance(25 * SECOND)
    for backend in many:
        backend.wait_for_runs(2, timeout=20)

    assert 0 == world.sim.limits.early.total()


def test_a_spent_hour_is_waited_out(world: World) -> None:
    """The primary limit names its reset: nothing is asked before it, and everything arrives after it."""
    many = [world.backend(f"big/b{number}", "L1", SILENT) for number in range(12)]
    other = world.backend("small/backend", "L1", SILENT)
    world.start()
    world.sim.limits.primary_per_hour = 40

    for number in range(4):
        world.up.open_pull_request()
        other.wait_for_runs(number + 1)
        world.hushed(0.2)
    spent = tried(world, "big")
    let_pass(world, timedelta(minutes=50))
    assert spent == tried(world, "big")
    world.sim.limits.primary_per_hour = None
    world.clock.advance(timedelta(minutes=11))
    for backend in many:
        backend.wait_for_runs(4)

    assert spent <= 40 + 12
    assert 0 == world.sim.limits.early.total()
