"""GitHub does not take our key for a while: a wrong clock, a rotated key, a bad hour of GitHub's own."""

from __future__ import annotations

from datetime import timedelta

from relay.simulator import Fault, JobPlan, Kind, Listener, Match, Mode, Reports
from tests.stories.world import World

SILENT = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)


def test_what_came_while_our_key_was_refused_is_sent_once_it_is_taken(world: World) -> None:
    """Refusing us says nothing about a backend: no dispatch is given up, and each goes out once, by the schedule."""
    backends = [world.backend(f"org{number}/backend", "L4", SILENT) for number in range(3)]
    world.start()
    fault = world.sim.faults.add(Fault(Kind.UNAUTHORIZED, Match(path="/access_tokens$"), times=None))

    opened = world.up.open_pull_request()
    world.idle()
    assert world.sim.faults.met(fault) > 0
    world.sim.faults.clear()
    world.pass_time(timedelta(seconds=80))
    for backend in backends:
        backend.wait_for_runs()
    world.pass_time(timedelta(seconds=80))
    gate = world.up.wait_for_check(opened.head_sha, "crcr/gate")

    assert [1, 1, 1] == [len(backend.runs) for backend in backends]
    assert "in_progress" == gate.status
