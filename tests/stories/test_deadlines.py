"""Time runs out: no pull request waits past its deadline, what is missing is named, and the truth may still come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from relay.simulator import Backend, CheckRun, JobPlan, Listener, Mode, PullRequest, Reports, Run, wait_until
from tests.stories.world import World

#: Its runs carry no name that the relay could find them by, so what it does not report is not known.
BY_HAND = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT, named_runs=False)
DIES = Listener(jobs=(JobPlan(name="test", reports=Reports.DIES),), mode=Mode.DIRECT)
GATE = "crcr/gate"
QUEUE, RUN = timedelta(hours=2, minutes=1), timedelta(hours=6, minutes=1)


def asked(world: World, **entry: Any) -> tuple[Backend, PullRequest, Run]:
    """One L4 backend, told of one pull request that needs the gate; the story reports for it."""
    backend = world.backend("org/l4", "L4", BY_HAND, **entry)
    world.start()
    world.up.require(GATE)
    pr = world.up.open_pull_request()
    (run,) = backend.wait_for_runs()
    world.up.wait_for_check(pr.head_sha, "crcr/org/l4")
    world.idle()
    return backend, pr, run


def gate(world: World, pr: PullRequest, conclusion: str | None) -> CheckRun:
    """The gate, once it shows this; None waits until it is pending."""
    wait_until(
        lambda: (found := world.up.checks(pr.head_sha).get(GATE)) is not None and found.conclusion == conclusion,
        what=f"the gate ({conclusion or 'pending'})",
    )
    return world.up.checks(pr.head_sha)[GATE]


def conclusions(world: World, pr: PullRequest, name: str) -> list[str | None]:
    """Every conclusion that was ever written to the check runs of that name, in order; None for "not yet"."""
    return [write.get("conclusion") for run in world.up.check_runs(pr.head_sha, name) for write in run.writes]


@pytest.mark.parametrize(("entry", "end"), [({}, "neutral"), ({"on_silence": "block"}, "failure")])
def test_silence_is_never_success_and_never_for_ever(each_world: World, entry: dict[str, Any], end: str) -> None:
    """A backend that never answers holds the gate until its queue time is over, and then the gate says so."""
    world = each_world
    backend = world.backend("org/l4", "L4", BY_HAND, **entry)
    world.start()
    world.up.require(GATE)

    began = world.clock.now()
    pr = world.up.open_pull_request()
    pending = gate(world, pr, None)
    appeared = world.clock.now() - began
    backend.wait_for_runs()
    world.pass_time(timedelta(hours=1, minutes=58))
    world.idle()
    still = world.up.required_status(pr)
    world.clock.advance(timedelta(minutes=3))
    over = gate(world, pr, end)

    assert appeared < timedelta(seconds=5)
    assert ("in_progress", False, {GATE: "pending"}) == (pending.writes[0]["status"], still.mergeable, still.contexts)
    assert (end == "neutral", {GATE: end}) == (
        world.up.required_status(pr).mergeable,
        world.up.required_status(pr).contexts,
    )
    assert "org/l4 did not answer" in (over.title or "")
    assert "**Nothing was tested there.**" in (over.summary or "")
    own = world.up.wait_for_check(pr.head_sha, "crcr/org/l4", conclusion=end)
    assert "completed" == own.status
    for name in (GATE, "crcr/org/l4"):
        assert "success" not in conclusions(world, pr, name)


@dataclass(frozen=True)
class Ending:
    """What a backend reports before its time runs out, and what that comes to."""

    reports: tuple[tuple[str, str | None, dict[str, Any]], ...]
    own: str
    said: str
    entry: dict[str, Any]


ENDINGS = {
    "lost": Ending((("in_progress", None, {}),), "timed_out", "org/l4 started and vanished", {}),
    "lost among others": Ending(
        (("in_progress", None, {"job": "other"}), ("completed", "success", {})),
        "timed_out",
        "org/l4 started and vanished",
        {},
    ),
    "too few jobs": Ending(
        (("completed", "success", {"expected_jobs": 3}),), "failure", "org/l4 left jobs or versions out", {}
    ),
    "too few jobs for its entry": Ending(
        (("completed", "success", {"expected_jobs": 1}),),
        "failure",
        "org/l4 left jobs or versions out",
        {"expected_jobs": 2},
    ),
    "a version missing": Ending(
        (("completed", "success", {"combination": {"backend_version": "2.1"}}),),
        "failure",
        "org/l4 left jobs or versions out",
        {"versions": ["2.1", "2.2"]},
    ),
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS.keys())
def test_who_started_and_did_not_finish_blocks(world: World, ending: Ending) -> None:
    """A run that began promised a result; what is missing at the end is no way around the gate."""
    backend, pr, run = asked(world, **ending.entry)

    for status, conclusion, fields in ending.reports:
        backend.callback(run, status, conclusion, **{"job": "test", **fields})
    world.pass_time(timedelta(hours=5, minutes=58))
    world.idle()
    before = world.up.required_status(pr)
    world.clock.advance(timedelta(minutes=5))
    over = gate(world, pr, "failure")

    assert {GATE: "pending"} == before.contexts
    assert ending.said in (over.title or "")
    assert not world.up.required_status(pr).mergeable
    assert ending.own == world.up.wait_for_check(pr.head_sha, "crcr/org/l4", conclusion=ending.own).conclusion
    for name in (GATE, "crcr/org/l4"):
        assert "success" not in conclusions(world, pr, name)


def test_a_start_after_silence_waits_again_but_not_past_the_gate_s_own_time(world: World) -> None:
    """The gate had stepped down, waits anew as a new check run, and ends when it was said to end at the start."""
    backend, pr, run = asked(world)
    world.pass_time(QUEUE)
    gate(world, pr, "neutral")

    world.pass_time(timedelta(hours=1))
    backend.callback(run, "in_progress", job="test")
    waiting = gate(world, pr, None)
    world.pass_time(timedelta(hours=5))
    over = gate(world, pr, "failure")

    assert "org/l4 timed out" in (over.title or "")
    assert waiting.id == over.id
    assert 2 == len(world.up.check_runs(pr.head_sha, GATE))
    own = world.up.wait_for_check(pr.head_sha, "crcr/org/l4", conclusion="timed_out")
    assert "completed" == own.status


def test_a_backend_that_could_not_be_told_steps_down(world: World) -> None:
    """Nobody is to blame at the backend: the gate says what kept the relay from telling it."""
    world.sim.create_backend("org/l4", listener=BY_HAND, installed=False)
    world.allow("org/l4", "L4")
    world.start()
    world.up.require(GATE)

    pr = world.up.open_pull_request()
    over = gate(world, pr, "neutral")

    assert "org/l4 could not be told" in (over.title or "")
    assert "install" in (over.summary or "")
    assert world.up.required_status(pr).mergeable


def test_fourteen_of_347_are_not_green_and_the_rest_is_named(world: World) -> None:
    """Every job that came was green, and most never came: pending, and at the deadline a failure that counts them."""
    backend, pr, run = asked(world)

    for number in range(14):
        backend.callback(run, "completed", "success", f"job {number}", expected_jobs=347)
    world.idle()
    before = world.up.required_status(pr)
    world.pass_time(RUN)
    gate(world, pr, "failure")
    own = world.up.wait_for_check(pr.head_sha, "crcr/org/l4", conclusion="failure")

    assert {GATE: "pending"} == before.contexts
    assert "14 of 347 jobs reported, 333 missing" in (own.summary or "")


def test_a_missing_version_is_named(world: World) -> None:
    """Two versions were promised and one reported: the check says which one nobody has seen."""
    backend, pr, run = asked(world, versions=["2.1", "2.2"])

    backend.callback(run, "completed", "success", "test", combination={"backend_version": "2.1"})
    world.pass_time(RUN)
    own = world.up.wait_for_check(pr.head_sha, "crcr/org/l4", conclusion="failure")

    assert "2.2" in (own.summary or "")
    backend.callback(run, "completed", "success", "other", combination={"backend_version": "2.2"})
    assert "success" == gate(world, pr, "success").conclusion


def test_the_truth_replaces_what_we_concluded_and_is_marked_late(each_world: World) -> None:
    """Given up after six hours, passed after six hours and ten minutes: the pass stands, and readers see that."""
    world = each_world
    backend, pr, run = asked(world)
    backend.callback(run, "in_progress", job="test")
    world.pass_time(RUN)
    gate(world, pr, "failure")

    world.pass_time(timedelta(minutes=9))
    backend.callback(run, "completed", "success", "test")
    gate(world, pr, "success")

    assert world.up.required_status(pr).mergeable
    own = world.up.wait_for_check(pr.head_sha, "crcr/org/l4", conclusion="success")
    assert "(reported late)" in (own.title or "")
    assert world.change(run)["backends"][0]["dispatch"]["late"]


def test_each_entry_has_its_own_time(world: World) -> None:
    """What is late for one backend is early for another; the gate names only who is late."""
    quick = world.backend("org/quick", "L4", BY_HAND, timeouts={"queue": "10m", "run": "1h"})
    slow = world.backend("org/slow", "L4", BY_HAND, timeouts={"queue": "4h", "run": "12h"})
    world.start()
    world.up.require(GATE)
    pr = world.up.open_pull_request()
    for backend in (quick, slow):
        (run,) = backend.wait_for_runs()
        backend.callback(run, "in_progress", job="test")

    world.pass_time(timedelta(minutes=61))
    blocked = gate(world, pr, "failure")
    world.up.wait_for_check(pr.head_sha, "crcr/org/quick", conclusion="timed_out")
    assert "org/quick started and vanished" in (blocked.title or "")
    assert world.up.checks(pr.head_sha)["crcr/org/slow"].conclusion is None
    quick.callback(quick.runs[0], "completed", "success", "test")
    gate(world, pr, None)
    world.pass_time(timedelta(hours=10))
    world.idle()
    assert {GATE: "pending"} == world.up.required_status(pr).contexts
    slow.callback(slow.runs[0], "completed", "success", "test")

    assert "success" == gate(world, pr, "success").conclusion


def passes_in_time(world: World, backend: Backend, run: Run) -> None:
    """The maintainer runs it again before anybody gave up."""
    world.pass_time(timedelta(hours=5))
    backend.rerun(run)
    backend.wait_until_done()
    world.pass_time(RUN)


def passes_afterwards(world: World, backend: Backend, run: Run) -> None:
    """The maintainer runs it again the next morning."""
    world.pass_time(timedelta(hours=12))
    backend.rerun(run)
    backend.wait_until_done()


@pytest.mark.parametrize("second", [passes_in_time, passes_afterwards], ids=lambda story: story.__name__)
def test_a_second_attempt_that_passes_stays_green(world: World, second: Callable[[World, Backend, Run], None]) -> None:
    """The first attempt's runner died in silence; what the second says holds, however often deadlines are looked at."""
    backend = world.backend("org/l4", "L4", DIES)
    world.start()
    world.up.require(GATE)
    pr = world.up.open_pull_request()
    (run,) = backend.wait_until_done()
    run.jobs[0].plan = JobPlan(name="test")  # A re-run keeps the plan of its job, and this runner lives.

    second(world, backend, run)
    gate(world, pr, "success")
    world.pass_time(timedelta(days=1))
    world.idle()

    assert 2 == run.attempt
    assert "success" == gate(world, pr, "success").conclusion
    assert world.up.required_status(pr).mergeable
    assert "success" == world.up.wait_for_check(pr.head_sha, "crcr/org/l4", conclusion="success").conclusion
