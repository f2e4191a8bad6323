"""``kill -9`` at any moment: what was answered 2xx is dispatched, and what is dispatched twice can be told."""

from __future__ import annotations

import time
from collections import Counter
from datetime import timedelta

import pytest

from relay.simulator import Fault, JobPlan, Kind, Listener, Match, Mode, Reports
from tests.stories.relay_process import relay_process
from tests.stories.world import World

SILENT = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
NAMELESS = Listener(jobs=SILENT.jobs, mode=Mode.DIRECT, named_runs=False)
#: A claim that nobody comes back from is free again after a minute.
LEASE = timedelta(seconds=61)


@pytest.mark.slow
@pytest.mark.parametrize("listener", [SILENT, NAMELESS], ids=["named runs", "nameless runs"])
def test_a_kill_in_the_middle_of_a_fan_out_loses_nothing(each_world: World, listener: Listener) -> None:
    """Fifty backends, and the process dies while half are told: after a restart all are, at most once too often."""
    world = each_world
    backends = [world.backend(f"org{number}/backend", "L1", listener) for number in range(50)]
    with relay_process(world) as first:
        world.sim.latency = 0.2
        world.sim.faults.add(Fault(Kind.LATENCY, Match("POST", "/access_tokens$"), times=25, seconds=2))
        pr = world.up.open_pull_request()
        assert 202 == pr.delivery.response.status
        # Some were told and noted, some are told and not noted, and some have not been heard of.
        world.settled(lambda: len(world.sim.log.dispatches()) >= 5, "a fan-out half done", timeout=60)
        first.kill()
        killed = time.perf_counter()
    world.sim.latency = 0.0
    world.sim.faults.clear()

    world.clock.advance(LEASE)
    world.start()
    for backend in backends:
        backend.wait_for_runs()
    world.idle()

    told = Counter(one.repository_name for one in world.sim.log.dispatches())
    before = {one.repository_name for one in world.sim.log.dispatches() if one.began < killed}
    assert {backend.name for backend in backends} == set(told)
    repeated = {name for name, count in told.items() if count > 1}
    assert max(told.values()) <= 2
    assert repeated <= before
    assert 5 <= len(before) < 50
    if listener is SILENT:
        assert set() == repeated  # A run that carries the delivery's id in its name is evidence.
    for backend in backends:
        assert 1 == len({one.body["client_payload"]["relay"]["token"] for one in backend.dispatches})
        assert {pr.delivery.guid} == {one.body["client_payload"]["delivery_id"] for one in backend.dispatches}


@pytest.mark.slow
def test_a_kill_right_after_the_answer_loses_nothing(world: World) -> None:
    """A 202 means that it is kept: the process may die before it has done anything."""
    backend = world.backend("org/backend", "L1", SILENT)
    with relay_process(world) as first:
        world.sim.faults.add(Fault(Kind.TIMEOUT, Match("POST", "/access_tokens$"), times=1, seconds=3))
        pr = world.up.open_pull_request()
        first.kill()
    assert 202 == pr.delivery.response.status
    assert [] == backend.runs

    world.clock.advance(LEASE)
    world.start()

    assert 1 == len(backend.wait_for_runs())


def test_a_restart_as_a_deploy_does_it_repeats_nothing(each_world: World) -> None:
    """SIGTERM: what has begun is finished and noted, what has not is left to the next process."""
    world = each_world
    backends = [world.backend(f"org{number}/backend", "L1", NAMELESS) for number in range(20)]
    world.start()
    world.sim.latency = 0.2

    world.up.open_pull_request()
    world.stop()
    world.sim.latency = 0.0
    world.start()
    for backend in backends:
        backend.wait_for_runs()
    world.idle()

    assert [1] * 20 == [len(backend.runs) for backend in backends]


def test_a_lost_lease_is_taken_over_with_the_same_token(each_world: World) -> None:
    """A process that hangs longer than its lease is overtaken; a second run carries the token of the first."""
    world = each_world
    backend = world.backend("org/backend", "L1", NAMELESS)
    world.start()
    slow = world.sim.faults.add(Fault(Kind.LATENCY_AFTER, Match("POST", "/dispatches$"), times=1, seconds=1.5))

    world.up.open_pull_request()
    world.settled(lambda: world.sim.faults.met(slow) == 1, "a dispatch that hangs")
    backend.wait_for_runs()
    world.clock.advance(LEASE)
    world.settled(lambda: len(backend.runs) == 2, "the lease taken over")
    world.idle()

    first, second = backend.runs
    assert first.client_payload == second.client_payload
