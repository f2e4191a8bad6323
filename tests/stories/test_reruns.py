"""Running again: GitHub's own buttons, the checks' buttons and the command, and runs that cannot run again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from relay.simulator import Fault, JobPlan, Kind, Listener, LoggedRequest, Match, Mode, Run, wait_until
from tests.stories.asking import CHECK, GATE, all_ours, failed, flaky, ours, say
from tests.stories.world import World


def attempts(run: Run) -> int:
    """How often the run has run."""
    return len(run.attempts)


def reruns(world: World) -> list[LoggedRequest]:
    """Every request to run something again."""
    return [entry for entry in world.sim.log if entry.method == "POST" and "/rerun" in entry.path]


def rerun_requests(world: World) -> list[str]:
    """Every request to run something again, by its path."""
    return [entry.path for entry in reruns(world)]


@pytest.mark.parametrize("ask", ["comment", "button", "github's own"])
def test_what_failed_is_run_again_and_the_new_attempt_decides(world: World, ask: str) -> None:
    """Whichever way a triager asks, it is one rerun of the failed jobs, and the gate turns by its result."""
    backend, pr = failed(world, flaky())

    if ask == "comment":
        world.up.comment(pr, "triager", "/crcr rerun org/backend")
    elif ask == "button":
        world.up.press_action(pr.head_sha, CHECK, "rerun", "triager")
    else:
        world.up.rerequest_check(pr.head_sha, CHECK, "triager")
    world.up.wait_for_check(pr.head_sha, GATE, conclusion="success")
    (run,) = backend.runs

    assert 2 == attempts(run)
    assert [True] == [path.endswith("/rerun-failed-jobs") for path in rerun_requests(world)]
    assert "success" == world.up.wait_for_check(pr.head_sha, CHECK, conclusion="success").conclusion
    assert (1 if ask == "comment" else 0) == len(ours(world, pr))


def test_rerun_failed_with_five_failed_checks_is_one_rerun(each_world: World) -> None:
    """GitHub sends one event for each failed check of ours; the run they speak of is run again once."""
    world = each_world
    world.given["checks"] = "job"
    backend, pr = failed(world, flaky(5))
    names = [name for name in world.up.checks(pr.head_sha) if name.startswith(f"{CHECK}/")]

    for name in names:
        world.up.rerequest_check(pr.head_sha, name, "triager")
    world.up.wait_for_check(pr.head_sha, GATE, conclusion="success")
    world.idle()
    (run,) = backend.runs

    assert 5 == len(names)
    assert 2 == attempts(run)
    assert 1 == len(rerun_requests(world))


def test_rerun_all_runs_every_run_again(world: World) -> None:
    """ "Re-run all" is about passed jobs as well, and about every backend with a check on that commit."""
    other = world.backend("org/other", "L4", Listener(jobs=(JobPlan(name="good"),), mode=Mode.DIRECT))
    backend, pr = failed(world, flaky())
    world.up.wait_for_check(pr.head_sha, "crcr/org/other", conclusion="success")

    world.up.rerequest_suite(pr.head_sha, "triager")
    wait_until(lambda: [2, 2] == [attempts(each.runs[0]) for each in (backend, other)], what="two second attempts")
    world.idle()

    assert [False, False] == [path.endswith("/rerun-failed-jobs") for path in rerun_requests(world)]


def test_at_the_gate_everything_that_blocks_is_run_again(world: World) -> None:
    """The gate's button is for whoever does not care which backend it was; one that passed is left alone."""
    other = world.backend("org/other", "L4", Listener(jobs=(JobPlan(name="good"),), mode=Mode.DIRECT))
    backend, pr = failed(world, flaky())
    world.up.wait_for_check(pr.head_sha, "crcr/org/other", conclusion="success")

    world.up.press_action(pr.head_sha, GATE, "rerun", "triager")
    world.up.wait_for_check(pr.head_sha, GATE, conclusion="success")

    assert (2, 1) == (attempts(backend.runs[0]), attempts(other.runs[0]))


def test_a_run_that_runs_already_is_no_error(world: World) -> None:
    """Somebody was quicker at the backend: that is what was wanted."""
    slow = JobPlan(name="test", conclusion="failure", flaky_until=2, delay=1.0)
    backend, pr = failed(world, Listener(jobs=(slow,), mode=Mode.DIRECT))
    wait_until(lambda: backend.runs[0].status == "completed", what="a run that is over")

    backend.rerun(backend.runs[0], only_failed=True)
    world.up.press_action(pr.head_sha, CHECK, "rerun", "triager")
    world.up.wait_for_check(pr.head_sha, GATE, conclusion="success")
    world.idle()

    assert 2 == attempts(backend.runs[0])
    assert [403] == [entry.status for entry in reruns(world)]


def test_a_wish_that_comes_while_other_jobs_still_run_is_kept(world: World) -> None:
    """The first failing job is told at once; GitHub takes a rerun only once all are over, and then it is asked."""
    world.given["retry_scale"] = 0.05
    plans = (JobPlan(name="quick", conclusion="failure", flaky_until=2), JobPlan(name="slow", duration=1.5))
    backend, pr = failed(world, Listener(jobs=plans, mode=Mode.DIRECT))
    over = backend.runs[0].status == "completed"

    world.up.press_action(pr.head_sha, CHECK, "rerun", "triager")
    world.up.wait_for_check(pr.head_sha, GATE, conclusion="success")

    assert not over
    assert 2 == attempts(backend.runs[0])


@pytest.mark.parametrize("why", ["too old", "no permission"])
def test_a_run_that_cannot_run_again_is_dispatched_anew_and_says_so(world: World, why: str) -> None:
    """Thirty days are GitHub's bound and write access is optional; neither is a reason to leave a failure standing."""
    backend, pr = failed(world, flaky())
    if why == "too old":
        world.pass_time(timedelta(days=31))
    else:
        backend.grant({"actions": "read", "contents": "write", "metadata": "read"})

    say(world, pr, "triager", "/crcr rerun backend")
    first, second = backend.wait_for_runs(2)
    world.idle()
    shown = world.up.checks(pr.head_sha)[CHECK]

    assert (1, 1) == (attempts(first), attempts(second))
    assert first.delivery_id != second.delivery_id
    assert "could not be re-run" in (shown.summary or "")
    assert "triager" in (shown.summary or "")


def test_until_the_second_attempt_starts_the_failure_stands_and_says_who_asked(world: World) -> None:
    """A wish is no result: the gate goes on blocking, and the check says that something is on its way."""
    slow = Listener(jobs=(JobPlan(name="test", conclusion="failure", flaky_until=2, delay=2.0),), mode=Mode.DIRECT)
    backend, pr = failed(world, slow)

    world.up.press_action(pr.head_sha, CHECK, "rerun", "triager")
    wait_until(lambda: "re-run asked for at" in (world.up.checks(pr.head_sha)[CHECK].title or ""), what="a promise")
    shown = world.up.checks(pr.head_sha)[CHECK]
    conclusion, summary = shown.conclusion, shown.summary or ""
    blocked = world.up.required_status(pr)
    world.up.wait_for_check(pr.head_sha, GATE, conclusion="success")

    assert ("failure", False) == (conclusion, blocked.mergeable)
    assert "triager" in summary
    assert "re-run" not in (world.up.wait_for_check(pr.head_sha, CHECK, conclusion="success").title or "")
    assert 2 == attempts(backend.runs[0])


def test_a_lost_answer_makes_no_third_attempt(world: World) -> None:
    """GitHub ran it again and its answer never came: the next attempt is there to be seen."""
    world.given["retry_scale"] = 0.01
    backend, pr = failed(world, flaky())
    wait_until(lambda: backend.runs[0].status == "completed", what="a run that is over")
    world.sim.faults.add(Fault(Kind.SERVER_ERROR_AFTER, Match("POST", "/rerun-failed-jobs$")))

    world.up.press_action(pr.head_sha, CHECK, "rerun", "triager")
    world.up.wait_for_check(pr.head_sha, GATE, conclusion="success")
    wait_until(lambda: any(entry.path.endswith("/attempts/2") for entry in world.sim.log), what="a look at the attempt")
    world.idle()

    assert 2 == attempts(backend.runs[0])
    assert 1 == len(reruns(world))


def test_what_github_refuses_for_good_is_not_promised_any_longer(world: World) -> None:
    """An archived repository runs nothing; a check that went on saying "asked for" would keep people waiting."""
    backend, pr = failed(world, flaky())
    wait_until(lambda: backend.runs[0].status == "completed", what="a run that is over")
    world.sim.faults.add(Fault(Kind.ARCHIVED, Match("POST", "/rerun-failed-jobs$"), times=None))

    world.up.press_action(pr.head_sha, CHECK, "rerun", "triager")
    wait_until(lambda: len(world.get("/api/v1/dead-letters")["items"]) == 1, what="a dead letter")
    wait_until(lambda: "re-run" not in (world.up.checks(pr.head_sha)[CHECK].title or ""), what="no promise")
    world.idle()

    assert "failure" == world.up.checks(pr.head_sha)[GATE].conclusion
    assert 1 == attempts(backend.runs[0])


def test_a_button_pressed_by_a_passer_by_does_nothing(world: World) -> None:
    """Whoever can read a public repository can send this event; it is no proof of authority."""
    backend, pr = failed(world, flaky())
    world.up.set_role("passer", "read")

    world.up.press_action(pr.head_sha, CHECK, "rerun", "passer")
    world.up.press_action(pr.head_sha, CHECK, "redispatch", "passer")
    world.up.rerequest_check(pr.head_sha, GATE, "passer")
    world.up.rerequest_suite(pr.head_sha, "passer")
    world.idle()

    assert [1] == [attempts(run) for run in backend.runs]
    assert [] == rerun_requests(world)


def test_the_button_re_dispatch_tells_the_backend_anew(world: World) -> None:
    """A fixed listener is not picked up by a rerun, so there is a button for a new run."""
    backend, pr = failed(world, flaky())

    world.up.press_action(pr.head_sha, CHECK, "redispatch", "writer")
    first, second = backend.wait_for_runs(2)

    assert first.delivery_id != second.delivery_id
    assert {"rerun", "redispatch"} == {action["identifier"] for action in world.up.checks(pr.head_sha)[CHECK].actions}
    assert 1 == len(all_ours(world, pr))
