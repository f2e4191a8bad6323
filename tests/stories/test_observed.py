"""What a backend claims is held against what GitHub shows of the same run: verified, disputed, or claimed only."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from relay.simulator import Backend, CheckRun, Fault, JobPlan, Kind, Listener, Match, Mode, PullRequest, Reports, Run
from tests.stories.world import World

GATE, OWN = "crcr/gate", "crcr/org/l4"
#: A job that fails at GitHub, whatever is reported of it.
LIAR = JobPlan(name="test", conclusion="failure", reports=Reports.SILENT)
A_LOOK_LATER = timedelta(seconds=25)


def told(world: World, *jobs: JobPlan, **listener: Any) -> tuple[Backend, PullRequest, Run]:
    """One L4 backend whose jobs end so at GitHub, told of one pull request that needs the gate."""
    backend = world.backend("org/l4", "L4", Listener(jobs=jobs, mode=Mode.DIRECT, **listener))
    world.start()
    world.up.require(GATE)
    pr = world.up.open_pull_request()
    (run,) = backend.wait_until_done()
    return backend, pr, run


def claims(backend: Backend, run: Run, conclusion: str = "success") -> None:
    """A job of the run says by hand how it ended."""
    job = backend.job_named(run, "test")
    assert 200 == backend.callback(run, "completed", conclusion, "test", check_run_id=str(job.id)).status


def ends(world: World, pr: PullRequest, name: str, conclusion: str) -> CheckRun:
    """The check, once it shows this conclusion."""
    return world.up.wait_for_check(pr.head_sha, name, conclusion=conclusion)


def looked(world: World, run: Run) -> Any:
    """The backend's dispatch on its page, once GitHub was asked about it."""
    world.settled(lambda: dispatch(world, run)["observed_at"] is not None, "a look at GitHub")
    world.idle()
    return dispatch(world, run)


def dispatch(world: World, run: Run) -> Any:
    """The backend's dispatch as the API has it."""
    return world.change(run)["backends"][0]["dispatch"]


def legs(world: World, run: Run) -> list[tuple[str | None, str | None]]:
    """What each leg claims, and how GitHub shows it."""
    (mine,) = world.change(run)["backends"]
    return [(leg["conclusion"], leg["observed"]) for one in mine["combinations"] for leg in one["legs"]]


def test_ten_jobs_are_verified_within_the_budget(each_world: World) -> None:
    """One L4 backend with ten jobs: each is verified, in 20 calls of which 6 write checks."""
    world = each_world
    jobs = [JobPlan(name=f"job {number}", delay=0.05 * number) for number in range(10)]
    _, pr, run = told(world, *jobs, expected_jobs=10)
    ends(world, pr, GATE, "success")
    ends(world, pr, OWN, "success")

    world.pass_time(A_LOOK_LATER)
    looked(world, run)
    world.settled(lambda: "verified" in (world.up.checks(pr.head_sha)[OWN].text or ""), "the check's word for it")

    assert [("success", "success")] * 10 == legs(world, run)
    assert "" == dispatch(world, run)["observe_note"]
    assert 20 >= len(world.sim.log)
    assert 6 >= len(world.sim.log.checks())
    assert world.up.required_status(pr).mergeable


def test_a_success_that_github_denies_blocks(each_world: World) -> None:
    """Success was claimed of a run that failed: the merge stops, and everybody is told why."""
    world = each_world
    backend, pr, run = told(world, LIAR)
    claims(backend, run)
    ends(world, pr, GATE, "success")

    world.pass_time(A_LOOK_LATER)
    blocked = ends(world, pr, GATE, "failure")
    own = ends(world, pr, OWN, "failure")

    assert "org/l4 is disputed" in (blocked.title or "")
    assert not world.up.required_status(pr).mergeable
    assert "disputed: GitHub shows failure" in (own.text or "")
    assert "GitHub shows run" in (own.summary or "")
    assert [("success", "failure")] == legs(world, run)
    assert "disputed" in world.get("/api/v1/backends/org/l4")["backend"]["last_error"]


def test_a_setting_can_let_a_disputed_gate_step_down(world: World) -> None:
    """Whether a dispute blocks is the admin's to say; that it is no success is not."""
    world.given["outcomes"] = {"disputed": "steps_down"}
    backend, pr, run = told(world, LIAR)
    claims(backend, run)
    ends(world, pr, GATE, "success")

    world.pass_time(A_LOOK_LATER)

    assert "org/l4 is disputed" in (ends(world, pr, GATE, "neutral").title or "")
    assert world.up.required_status(pr).mergeable


def test_a_rerun_that_both_agree_on_ends_the_dispute(world: World) -> None:
    """The run is done again: its report and GitHub say the same, and the gate passes."""
    backend, pr, run = told(world, LIAR)
    claims(backend, run)
    ends(world, pr, GATE, "success")
    world.pass_time(A_LOOK_LATER)
    ends(world, pr, GATE, "failure")

    run.jobs[0].plan = JobPlan(name="test")
    backend.rerun(run)
    backend.wait_until_done()
    ends(world, pr, GATE, "success")
    world.pass_time(A_LOOK_LATER)
    world.settled(lambda: [("success", "success")] == legs(world, run), "a second look")
    world.idle()

    assert "success" == ends(world, pr, GATE, "success").conclusion
    assert world.up.required_status(pr).mergeable


def test_what_may_not_be_looked_at_is_claimed_only(world: World) -> None:
    """A backend that does not let the app read its Actions is believed, and its page says that nobody checked."""
    permissions = {"contents": "write", "metadata": "read"}
    listener = Listener(jobs=(LIAR,), mode=Mode.DIRECT)
    backend = world.sim.create_backend("org/l4", listener=listener, permissions=permissions)
    world.allow("org/l4", "L4")
    world.start()
    world.up.require(GATE)
    pr = world.up.open_pull_request()
    (run,) = backend.wait_until_done()
    claims(backend, run)
    ends(world, pr, GATE, "success")

    world.pass_time(A_LOOK_LATER)
    note = looked(world, run)["observe_note"]
    world.settled(lambda: "Claimed only" in (world.up.checks(pr.head_sha)[OWN].summary or ""), "the check's words")

    assert note.startswith("Claimed only")
    assert "actions" in note
    assert [("success", None)] == legs(world, run)
    assert "claimed only" in (world.up.checks(pr.head_sha)[OWN].text or "")
    assert world.up.required_status(pr).mergeable


@pytest.mark.parametrize("kind", [Kind.SERVER_ERROR, Kind.RESET, Kind.SECONDARY_LIMIT, Kind.MALFORMED_JSON])
@pytest.mark.parametrize("endpoint", ["/attempts/1$", "/attempts/1/jobs$"])
def test_a_look_that_fails_finds_the_truth_later(world: World, endpoint: str, kind: Kind) -> None:
    """GitHub fails at one question: it is asked again, and the dispute comes to light."""
    world.given["retry_scale"] = 0.01
    backend, pr, run = told(world, LIAR)
    claims(backend, run)
    ends(world, pr, GATE, "success")
    fault = world.sim.faults.add(Fault(kind, Match("GET", endpoint), times=1))

    world.pass_time(A_LOOK_LATER)
    world.settled(lambda: world.sim.faults.met(fault) == 1, "the fault")
    world.pass_time(timedelta(minutes=3))

    assert "failure" == ends(world, pr, GATE, "failure").conclusion


def test_a_look_that_fails_for_good_is_told_and_the_claim_stands(world: World) -> None:
    """GitHub was asked until it was given up: whoever reads the claim learns that nobody could check it."""
    world.given = {"retry_scale": 0.0001}
    backend, pr, run = told(world, LIAR)
    world.sim.faults.add(Fault(Kind.SERVER_ERROR, Match("GET", "/actions/", backend.name), times=None))
    claims(backend, run)
    ends(world, pr, GATE, "success")

    world.pass_time(A_LOOK_LATER)

    assert "could not be looked at" in looked(world, run)["observe_note"]
    assert "success" == ends(world, pr, GATE, "success").conclusion
