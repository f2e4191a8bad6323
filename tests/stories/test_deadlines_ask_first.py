"""Before a deadline concludes anything GitHub is asked: a run whose callbacks never came is found by its name."""

from __future__ import annotations

from datetime import timedelta

import pytest

from relay.simulator import Backend, CheckRun, Fault, JobPlan, Kind, Listener, Match, Mode, PullRequest, Reports, Run
from tests.stories.world import World

GATE, OWN = "crcr/gate", "crcr/org/l4"
#: Just past the deadline: before we would conclude without an answer.
QUEUE, RUN = timedelta(hours=2, seconds=3), timedelta(hours=6, seconds=3)
A_MINUTE = timedelta(minutes=1)


def silent(conclusion: str = "success", *, named: bool = True) -> Listener:
    """A workflow whose job ends so and whose reports never leave the runner."""
    jobs = (JobPlan(name="test", conclusion=conclusion, reports=Reports.SILENT),)
    return Listener(jobs=jobs, mode=Mode.DIRECT, named_runs=named)


def asked(world: World, listener: Listener) -> tuple[Backend, PullRequest, Run]:
    """One L4 backend, told of one pull request that needs the gate."""
    backend = world.backend("org/l4", "L4", listener)
    world.start()
    world.up.require(GATE)
    pr = world.up.open_pull_request()
    (run,) = backend.wait_for_runs()
    world.up.wait_for_check(pr.head_sha, OWN)
    world.idle()
    return backend, pr, run


def ends(world: World, pr: PullRequest, name: str, conclusion: str) -> CheckRun:
    """The check, once it shows this conclusion."""
    return world.up.wait_for_check(pr.head_sha, name, conclusion=conclusion)


def looks(world: World) -> int:
    """How often GitHub was asked for the backend's runs."""
    return len(world.sim.log.of("GET", "/actions/runs", "org/l4"))


def is_running(world: World, pr: PullRequest) -> None:
    """Wait until the backend's check says that it runs; its gate waits then."""
    world.settled(lambda: (world.up.checks(pr.head_sha)[OWN].title or "").startswith("Running"), "a run that goes on")
    # The two checks are written one after another, so the gate's word may come a moment later.
    world.settled(lambda: world.up.checks(pr.head_sha)[GATE].conclusion is None, "a gate that waits for it")


def test_a_run_that_goes_on_is_no_silence(each_world: World) -> None:
    """CASES 27: the start was never reported, and the run is there: the gate waits, and takes the result that comes."""
    world = each_world
    world.sim.free_runners = False
    backend, pr, run = asked(world, silent())

    world.pass_time(QUEUE)
    is_running(world, pr)
    world.sim.free_runners = True
    backend.wait_until_done()
    world.pass_time(timedelta(hours=1))
    backend.callback(run, "completed", "success", "test")

    assert "success" == ends(world, pr, GATE, "success").conclusion
    for check in world.up.check_runs(pr.head_sha, GATE):
        assert "neutral" not in [write.get("conclusion") for write in check.writes]


def test_a_run_that_is_found_has_its_run_time_and_no_more(world: World) -> None:
    """It was found, and neither it nor its reports came to an end: it timed out, and the merge does not go on."""
    world.sim.free_runners = False
    _, pr, _ = asked(world, silent())

    world.pass_time(QUEUE)
    is_running(world, pr)
    world.pass_time(RUN - QUEUE)

    assert "org/l4 timed out" in (ends(world, pr, GATE, "failure").title or "")
    assert "timed_out" == ends(world, pr, OWN, "timed_out").conclusion


@pytest.mark.parametrize(("conclusion", "own"), [("failure", "failure"), ("cancelled", "cancelled")])
def test_a_run_that_failed_in_silence_blocks(each_world: World, conclusion: str, own: str) -> None:
    """Nothing was reported, and GitHub shows the failure: it fills itself in."""
    world = each_world
    _, pr, run = asked(world, silent(conclusion))

    world.pass_time(QUEUE)

    ends(world, pr, GATE, "failure")
    assert f"run {str(run.id)[:4]}" in (ends(world, pr, OWN, own).summary or "").replace("\u200b", "")
    assert not world.up.required_status(pr).mergeable
    assert 1 == looks(world)


def test_a_run_that_passed_in_silence_is_no_success(world: World) -> None:
    """Without its reports nobody knows what passed: incomplete, until they come after all."""
    backend, pr, run = asked(world, silent())

    world.pass_time(QUEUE)
    is_running(world, pr)
    world.pass_time(timedelta(minutes=10, seconds=3))
    over = ends(world, pr, GATE, "failure")
    backend.callback(run, "completed", "success", "test")

    assert "org/l4 left jobs or versions out" in (over.title or "")
    assert "success" == ends(world, pr, GATE, "success").conclusion


def test_where_there_is_no_run_silence_is_silence(world: World) -> None:
    """GitHub was asked, and knows of no run with this delivery id."""
    _, pr, _ = asked(world, silent(named=False))

    world.pass_time(QUEUE)

    assert "org/l4 did not answer" in (ends(world, pr, GATE, "neutral").title or "")
    assert 1 == looks(world)


def test_a_runner_that_died_has_failed_and_is_not_lost(world: World) -> None:
    """It reported a start and then nothing; GitHub knows how it ended."""
    dies = Listener(jobs=(JobPlan(name="test", reports=Reports.DIES),), mode=Mode.DIRECT)
    backend, pr, _ = asked(world, dies)
    backend.wait_until_done()
    world.idle()

    world.pass_time(RUN)

    assert "org/l4 failed" in (ends(world, pr, GATE, "failure").title or "")


def test_who_fell_silent_after_a_start_is_lost(world: World) -> None:
    """The run passed at GitHub, and its result was never reported: that is lost, and no success."""
    backend, pr, run = asked(world, silent())
    backend.callback(run, "in_progress", job="test")
    world.idle()

    world.pass_time(RUN)

    assert "org/l4 started and vanished" in (ends(world, pr, GATE, "failure").title or "")


@pytest.mark.parametrize("kind", [Kind.SERVER_ERROR, Kind.SECONDARY_LIMIT, Kind.RESET])
def test_github_being_down_holds_no_merge_for_longer_than_a_minute(world: World, kind: Kind) -> None:
    """The runs cannot be asked for: the deadline concludes without them, within the minute that it may wait."""
    _, pr, _ = asked(world, silent(named=False))
    fault = world.sim.faults.add(Fault(kind, Match("GET", "/actions/runs$"), times=None))

    world.pass_time(QUEUE)
    world.settled(lambda: world.sim.faults.met(fault) >= 1, "a question to GitHub")
    assert world.up.checks(pr.head_sha)[GATE].conclusion is None
    world.clock.advance(A_MINUTE - timedelta(seconds=5))

    assert "neutral" == ends(world, pr, GATE, "neutral").conclusion


def test_a_backend_that_may_not_be_asked_about_is_silent_at_once(world: World) -> None:
    """Without the permission to read Actions there is nothing to wait for, and the check says why nobody looked."""
    world.sim.create_backend("org/l4", listener=silent(), permissions={"contents": "write", "metadata": "read"})
    world.allow("org/l4", "L4")
    world.start()
    world.up.require(GATE)
    pr = world.up.open_pull_request()
    world.up.wait_for_check(pr.head_sha, OWN)

    world.pass_time(QUEUE)

    assert "neutral" == ends(world, pr, GATE, "neutral").conclusion
    assert "could not be looked at" in (ends(world, pr, OWN, "neutral").summary or "")


def test_after_an_outage_of_ours_the_run_is_still_found(world: World) -> None:
    """The relay was away when time ran out: it concludes at once, asks, and replaces silence by what it hears."""
    world.sim.free_runners = False
    backend, pr, run = asked(world, silent())
    world.stop()
    world.clock.advance(timedelta(hours=3))
    world.start()

    is_running(world, pr)
    world.sim.free_runners = True
    backend.wait_until_done()
    backend.callback(run, "completed", "success", "test")

    assert "success" == ends(world, pr, GATE, "success").conclusion
