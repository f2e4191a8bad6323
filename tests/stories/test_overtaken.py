"""What waits to be sent while its head is replaced is not sent: a backend's machines are dear."""

from __future__ import annotations

from datetime import timedelta

from relay.simulator import Fault, Kind, Listener, Match, Mode
from tests.stories.world import World

QUIET = Listener(jobs=(), mode=Mode.DIRECT)


def heads(world: World, repo: str) -> list[str]:
    """The head of each dispatch that took effect, in order."""
    return [request.body["client_payload"]["relay"]["change"]["head_sha"] for request in world.sim.log.dispatches(repo)]


def test_a_dispatch_that_failed_is_not_repeated_for_a_head_that_was_replaced(world: World) -> None:
    """CASES 8: the retry finds that nobody waits for this head any more, and leaves a trace instead of a run."""
    world.backend("org/l2", "L2", QUIET)
    world.backend("org/every", "L2", QUIET, every_commit=True)
    world.start()
    world.sim.faults.add(Fault(Kind.SERVER_ERROR, Match("POST", "/dispatches$"), times=2))

    pr = world.up.open_pull_request(title="Faster add")
    first = pr.head_sha
    world.settled(lambda: len(world.sim.log.errors()) >= 2, "both dispatches failed")
    pr.push()
    world.clock.advance(timedelta(seconds=30))
    world.settled(lambda: pr.head_sha in heads(world, "org/l2"), "the new head reached the backend")
    world.settled(lambda: len(heads(world, "org/every")) == 2, "every commit reached the one that asked for it")
    world.idle()

    assert [pr.head_sha] == heads(world, "org/l2")
    assert [first, pr.head_sha] == heads(world, "org/every")


def test_a_replaced_head_that_fails_does_not_hold_up_the_newer_one(each_world: World) -> None:
    """The old head was being sent when the new one came, and failed: the new one does not wait for its retries."""
    world = each_world
    backend = world.backend("org/l2", "L2", QUIET)
    world.start()
    pr = world.up.open_pull_request(title="Faster add")
    backend.wait_for_runs()
    world.idle()
    replaced = world.sim.faults.add(Fault(Kind.SERVER_ERROR, Match("POST", "/dispatches$")))
    world.sim.latency = 0.7
    pr.push()
    world.settled(lambda: world.sim.faults.met(replaced) == 1, "the old head being sent")
    pr.push()
    world.sim.latency = 0.0

    backend.wait_for_runs(2)
    world.idle()

    told = heads(world, "org/l2")
    assert (2, pr.head_sha) == (len(told), told[-1])
