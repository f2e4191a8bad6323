"""Callbacks from runners: each is taken once, in any order, and nothing but our record says where its result shows."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from relay.simulator import (
    Backend,
    CallbackAnswer,
    CheckRun,
    Fault,
    JobPlan,
    Kind,
    Listener,
    Match,
    Mode,
    Reports,
    Run,
    wait_until,
)
from tests.stories.world import World

GATE = "crcr/gate"
#: The story itself reports, by ``backend.callback``.
BY_HAND = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)


def asked(world: World, level: str = "L4", **entry: Any) -> tuple[Backend, Run]:
    """One backend at that level, told of one pull request; the story reports for it."""
    backend = world.backend("org/backend", level, BY_HAND, **entry)
    world.start()
    world.up.open_pull_request()
    (run,) = backend.wait_for_runs()
    world.idle()
    return backend, run


def head_of(run: Run) -> str:
    """The commit that the run was dispatched for."""
    sha: str = run.client_payload["relay"]["change"]["head_sha"]
    return sha


def shown(world: World, run: Run, conclusion: str | None) -> CheckRun:
    """The backend's check on the dispatched commit, once it has that conclusion."""
    name = f"crcr/{run.repository.full_name}"
    found = world.up.wait_for_check(head_of(run), name, conclusion=conclusion)
    world.idle()
    return found


def test_an_end_without_a_start_counts_and_the_late_start_changes_nothing(each_world: World) -> None:
    """The start was lost on its way and comes last: it is acknowledged, and no check goes back to running."""
    world = each_world
    backend, run = asked(world)

    ended = backend.callback(run, "completed", "success", "test", check_run_id="7")
    check = shown(world, run, "success")
    late = backend.callback(run, "in_progress", job="test", check_run_id="7")
    world.idle()
    again = backend.callback(run, "completed", "success", "test", check_run_id="7")
    world.idle()

    assert [(200, False), (200, False), (200, True)] == [
        (answer.status, answer.json["replayed"]) for answer in (ended, late, again)
    ]
    assert ("completed", "success") == (check.status, check.conclusion)
    assert "success" == world.up.checks(head_of(run))[GATE].conclusion
    ends = [write.get("conclusion") for write in check.writes]
    assert [] == [state for state in ends[ends.index("success") :] if state != "success"]
    assert 1 == len(world.up.check_runs(head_of(run), check.name))


def all_written(world: World) -> bool:
    """Whether GitHub said yes to the newest write of each check."""
    return all(status < 400 for status in {write.path: write.status for write in world.sim.log.checks()}.values())


@pytest.mark.parametrize("kind", [Kind.LATENCY, Kind.LATENCY_AFTER, Kind.SERVER_ERROR_AFTER], ids=lambda one: one.name)
def test_however_slow_the_check_api_is_the_check_ends_completed(world: World, kind: Kind) -> None:
    """The write of "running" may still be under way when "passed" comes; what is written last is what holds."""
    backend, run = asked(world)
    slow = Match(path="/check-runs")
    fault = world.sim.faults.add(Fault(kind, slow, times=2, seconds=0.4))

    took = []
    for status, conclusion in (("in_progress", None), ("completed", "success")):
        began = world.clock.now()
        backend.callback(run, status, conclusion, "test", check_run_id="7")
        took.append(world.clock.now() - began)
    wait_until(lambda: world.sim.faults.met(fault) == 2, what="both faults")
    for _ in range(4):  # Past the wait for the next try, which is only known once the failure has been noted.
        world.clock.advance(timedelta(seconds=80))
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: all_written(world), 0.5, what="an answer to the last write of each check")
    check = shown(world, run, "success")

    assert "completed" == check.status
    assert "success" == check.writes[-1]["conclusion"]
    assert 1 == len(world.up.check_runs(head_of(run), check.name))
    assert "success" == world.up.wait_for_check(head_of(run), GATE, conclusion="success").conclusion
    assert min(took) < timedelta(seconds=0.4)  # If answers waited for checks, neither could be this quick.


def test_a_word_that_github_does_not_have_is_refused_and_the_corrected_call_counts(world: World) -> None:
    """Production took "sucess" and lost the verdict: here the field is named, nothing moves, and it may come again."""
    backend, run = asked(world)
    before = len(world.sim.log.checks())

    wrong = ("sucess", "", None, "Success", "stale", "banana")
    answers = [backend.callback(run, "completed", word, "test") for word in wrong]
    world.idle()
    writes_meanwhile = len(world.sim.log.checks()) - before
    right = backend.callback(run, "completed", "success", "test")

    assert [422] * len(wrong) == [answer.status for answer in answers]
    assert ["workflow.conclusion"] * len(wrong) == [answer.json["errors"][0]["field"] for answer in answers]
    assert "success" in answers[0].json["errors"][0]["fix"]
    assert 0 == writes_meanwhile
    assert (200, False) == (right.status, right.json["replayed"])
    assert "success" == shown(world, run, "success").conclusion


def test_legs_that_share_a_name_are_told_apart_by_their_job(world: World) -> None:
    """Three legs of a matrix, one name, one of them red: three results, and the last to report does not decide."""
    backend, run = asked(world)

    for number in ("1", "2", "3"):
        backend.callback(run, "in_progress", job="test", check_run_id=number)
    for number, conclusion in (("1", "success"), ("2", "failure"), ("3", "success")):
        backend.callback(run, "completed", conclusion, "test", check_run_id=number)

    check = shown(world, run, "failure")
    assert "failure" == world.up.wait_for_check(head_of(run), GATE, conclusion="failure").conclusion
    (combination,) = world.change(run)["backends"][0]["combinations"]
    assert Counter({"success": 2, "failure": 1}) == Counter(leg["conclusion"] for leg in combination["legs"])
    wait_until(lambda: check.title == "Failed: 1 of 3 jobs", what="the count of all three")


def test_a_job_that_starts_here_and_ends_there_is_one_result(world: World) -> None:
    """The split listener reports its start and its end from two jobs: one result, with the time between the two."""
    backend, run = asked(world)

    backend.callback(run, "in_progress", job="test", check_run_id="1")
    world.clock.advance(timedelta(minutes=20))
    backend.callback(run, "completed", "success", "test", check_run_id="2")

    shown(world, run, "success")
    (combination,) = world.change(run)["backends"][0]["combinations"]
    (leg,) = combination["legs"]
    assert 1200 <= leg["execution_seconds"] < 1230


def test_a_report_may_overtake_the_answer_to_its_dispatch(world: World) -> None:
    """GitHub has started the run before it has answered our call: the report is taken all the same."""
    backend = world.backend("org/backend", "L4", BY_HAND)
    world.start()
    world.idle()
    slow = world.sim.faults.add(Fault(Kind.LATENCY_AFTER, Match("POST", "/dispatches$"), seconds=1.0))

    pr = world.up.open_pull_request()
    (run,) = backend.wait_for_runs()
    answers = [
        backend.callback(run, "in_progress", job="test"),
        backend.callback(run, "completed", "success", "test"),
    ]
    still_open = len(world.sim.log.dispatches()) == 0  # The log has a request when its answer goes out.
    world.up.wait_for_check(pr.head_sha, GATE, conclusion="success")
    wait_until(lambda: len(world.sim.log.dispatches()) == 1, what="the answer to the dispatch")
    world.pass_time(timedelta(minutes=2))
    world.idle()

    assert 1 == world.sim.faults.met(slow)
    assert [200, 200] == [answer.status for answer in answers]
    assert still_open
    assert "success" == world.up.checks(pr.head_sha)[GATE].conclusion
    assert 1 == len(backend.runs)


@pytest.mark.parametrize(("level", "visible"), [("L4", True), ("L3", False), ("L2", False)])
def test_a_body_cannot_move_a_result_to_another_commit(world: World, level: str, visible: bool) -> None:
    """Commit, pull request and labels are ours to know: what the body says of them is noted, and never followed."""
    backend = world.backend("org/backend", level, BY_HAND)
    world.start()
    victim = world.up.open_pull_request(title="Somebody else's")
    pr = world.up.open_pull_request(title="The one that was dispatched")
    run = next(run for run in backend.wait_for_runs(2) if head_of(run) == pr.head_sha)
    world.idle()
    forged: dict[str, Any] = {
        "action": "opened",
        "number": victim.number,
        "repository": {"full_name": "other/upstream"},
        "pull_request": {
            "number": victim.number,
            "head": {"sha": victim.head_sha},
            "labels": [{"name": "ciflow/crcr/dev1"}],
        },
    }
    block = {**run.client_payload["relay"], "change": {"head_sha": victim.head_sha, "labels": ["ciflow/crcr/dev1"]}}

    answer = backend.callback(run, "completed", "success", "test", change={"payload": forged, "relay": block})
    world.idle()

    assert 200 == answer.status
    notes = " ".join(answer.json["notes"])
    assert all(named in notes for named in (victim.head_sha, str(victim.number), "ciflow/crcr/dev1"))
    name = f"crcr/{backend.name}"
    assert visible == (name in world.up.checks(pr.head_sha))
    if visible:
        assert "success" == world.up.wait_for_check(pr.head_sha, name, conclusion="success").conclusion
    on_victim = world.up.checks(victim.head_sha)
    assert "success" not in {check.conclusion for shown, check in on_victim.items() if shown == name}
    assert (None if visible else "success") == on_victim[GATE].conclusion


def burst(world: World, backend: Backend, run: Run, jobs: int, *, copies: int) -> list[CallbackAnswer]:
    """Each of so many jobs says that it started and that it ended, each ``copies`` times at once."""

    def report(job: int, status: str, together: threading.Barrier) -> CallbackAnswer:
        together.wait()
        conclusion = "success" if status == "completed" else None
        return backend.callback(run, status, conclusion, f"job {job}", check_run_id=str(job), expected_jobs=jobs)

    answers: list[CallbackAnswer] = []
    with ThreadPoolExecutor(12) as pool:

        def work(job: int) -> list[CallbackAnswer]:
            said = []
            for status in ("in_progress", "completed"):
                together = threading.Barrier(copies)
                others = [
                    threading.Thread(target=lambda s=status, t=together: said.append(report(job, s, t)))
                    for _ in range(copies)
                ]
                for other in others:
                    other.start()
                for other in others:
                    other.join()
            return said

        for said in pool.map(work, range(jobs)):
            answers += said
    return answers


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "copies"), [(47, 2), (180, 1)], ids=["47 jobs, all twice at once", "360 callbacks"])
def test_a_burst_of_reports_is_taken_whole(each_world: World, jobs: int, copies: int) -> None:
    """A night of jobs ends within a minute: nothing is refused, nothing is lost, and copies count once."""
    world = each_world
    backend, run = asked(world)

    answers = burst(world, backend, run, jobs, copies=copies)
    check = shown(world, run, "success")

    assert Counter({200: jobs * 2 * copies}) == Counter(answer.status for answer in answers)
    assert Counter({False: jobs * 2, True: jobs * 2 * (copies - 1)} if copies > 1 else {False: jobs * 2}) == Counter(
        answer.json["replayed"] for answer in answers
    )
    assert f"{jobs}" in f"{check.title} {check.summary}"
    assert "success" == world.up.wait_for_check(head_of(run), GATE, conclusion="success").conclusion
    (combination,) = world.change(run)["backends"][0]["combinations"]
    listed = len(combination["legs"]) + world.change(run)["backends"][0]["legs_left_out"]
    assert jobs == listed
    # The brake of GitHub's own budget: a hundred reports are a handful of writes.
    assert len(world.sim.log.checks()) < 40
