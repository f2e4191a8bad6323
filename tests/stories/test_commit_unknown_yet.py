"""GitHub has several copies of itself: right after a push some of them do not know the commit yet."""

from __future__ import annotations

from relay.simulator import Fault, JobPlan, Kind, Listener, Match, Mode, Reports
from tests.stories.world import World

BY_HAND = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
GATE = "crcr/gate"


def test_a_gate_whose_commit_is_not_found_at_once_is_looked_for_again(world: World) -> None:
    """Created, and the answer was lost; the copy that is asked next knows no such commit. One gate, and it ends."""
    world.given["retry_scale"] = 0.01
    world.sim.faults.add(Fault(Kind.SERVER_ERROR_AFTER, Match("POST", "/check-runs$"), times=2))
    missing = world.sim.faults.add(Fault(Kind.NOT_FOUND, Match("GET", "/commits/[0-9a-f]+/check-runs"), times=2))
    backend = world.backend("org/backend", "L4", BY_HAND)
    world.start(**world.given)
    pr = world.up.open_pull_request()
    (run,) = backend.wait_for_runs()

    backend.callback(run, "completed", "success", "test")
    world.up.wait_for_check(pr.head_sha, GATE, conclusion="success")
    world.idle()

    assert 2 == world.sim.faults.met(missing)
    names = [check.name for check in world.up.all_checks(pr.head_sha)]
    assert sorted(set(names)) == sorted(names)
    assert [] == world.get("/api/v1/dead-letters")["items"]
