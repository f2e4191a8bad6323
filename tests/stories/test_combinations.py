"""Results per combination of backend version and suite version: each is shown, and all of them make one verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from relay.simulator import Backend, JobPlan, Listener, Mode, PullRequest, Reports, Run, wait_until
from tests.stories.world import World

BY_HAND = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
GATE = "crcr/gate"


def asked(world: World, level: str = "L4", listener: Listener = BY_HAND, **entry: Any) -> tuple[Backend, Run]:
    """One backend, told of one pull request."""
    backend = world.backend("org/backend", level, listener, **entry)
    world.start()
    world.up.open_pull_request()
    (run,) = backend.wait_for_runs()
    return backend, run


def head_of(run: Run) -> str:
    """The commit that the run was dispatched for."""
    sha: str = run.client_payload["relay"]["change"]["head_sha"]
    return sha


@pytest.mark.parametrize("mode", [Mode.DIRECT, pytest.param(Mode.PROCESS, marks=pytest.mark.slow)])
def test_a_matrix_of_versions_is_a_row_each(each_world: World, mode: Mode) -> None:
    """Three versions, one of them red: the check names the combination and its test, and the others stand as passed."""
    world = each_world
    test = ("TestAdd", "test_add", "not close")
    jobs = tuple(
        JobPlan(
            name=f"test {version}",
            backend_version=version,
            suite_version="2.12",
            environment={"python": "3.12"},
            conclusion="failure" if version == "2.2" else "success",
            failed_tests=(test,) if version == "2.2" else (),
        )
        for version in ("2.1", "2.2", "2.3")
    )
    versions = ["2.1", "2.2", "2.3"]
    _backend, run = asked(world, listener=Listener(jobs=jobs, mode=mode, expected_jobs=3), versions=versions)

    gate = world.up.wait_for_check(head_of(run), GATE, conclusion="failure", timeout=20)
    wait_until(lambda: run.status == "completed", 20, what="the whole run")
    world.idle()
    check = world.up.checks(head_of(run))["crcr/org/backend"]
    wait_until(lambda: "1 of 3" in (check.title or ""), what="the count of all three")

    assert "org/backend failed" in (gate.title or "")
    said = f"{check.summary} {check.text}"
    assert all(version in said for version in versions)
    assert "test_add" in said
    assert [("2.1", "2.12", "success"), ("2.2", "2.12", "failure"), ("2.3", "2.12", "success")] == (
        world.combinations(run)
    )
    (red,) = [one for one in world.change(run)["backends"][0]["combinations"] if one["outcome"] == "failure"]
    assert {"python": "3.12"} == red["environment"]
    assert ["test_add"] == [failed["name"] for failed in red["legs"][0]["failed_tests"]]


def test_the_dispatch_says_which_versions_are_owed(world: World) -> None:
    """A matrix can be made of the payload; until each version has reported, the gate does not turn green."""
    backend, run = asked(world, versions=["2.1", "2.2"])
    owed = [one["backend_version"] for one in run.client_payload["relay"]["combinations"]]

    backend.callback(run, "completed", "success", "test 2.1", combination={"backend_version": "2.1"})
    world.idle()
    halfway = world.up.checks(head_of(run))
    backend.callback(run, "completed", "success", "test 2.2", combination={"backend_version": "2.2"})

    assert ["2.1", "2.2"] == owed
    assert [None, None] == [halfway[name].conclusion for name in (GATE, "crcr/org/backend")]
    assert "success" == world.up.wait_for_check(head_of(run), GATE, conclusion="success").conclusion
    ends = [write.get("conclusion") for write in world.up.checks(head_of(run))[GATE].writes]
    assert 1 == ends.count("success")


def test_suite_versions_are_combinations_of_their_own(world: World) -> None:
    """One build of the backend, two suites: red in the newer one is told apart from green in the older."""
    backend, run = asked(world)

    for suite, conclusion in (("2.11", "success"), ("2.12", "failure")):
        stated = {"backend_version": "1.0", "suite_version": suite}
        backend.callback(run, "in_progress", job="test", combination=stated, expected_jobs=2)
        backend.callback(run, "completed", conclusion, "test", combination=stated, expected_jobs=2)

    world.up.wait_for_check(head_of(run), "crcr/org/backend", conclusion="failure")
    assert [("1.0", "2.11", "success"), ("1.0", "2.12", "failure")] == world.combinations(run)


def test_running_what_failed_again_keeps_what_had_passed(world: World) -> None:
    """Only the red leg runs a second time; its new result and the older green one together turn the gate green."""
    jobs = (
        JobPlan(name="test 2.1", backend_version="2.1"),
        JobPlan(name="test 2.2", backend_version="2.2", conclusion="failure", flaky_until=2),
    )
    listener = Listener(jobs=jobs, mode=Mode.DIRECT, expected_jobs=2)
    backend, run = asked(world, listener=listener, versions=["2.1", "2.2"])
    world.up.wait_for_check(head_of(run), GATE, conclusion="failure")
    backend.wait_until_done()

    backend.rerun(run, only_failed=True)
    world.up.wait_for_check(head_of(run), GATE, conclusion="success")
    backend.wait_until_done()
    world.idle()

    assert ["test 2.2"] == [job.name for job in run.attempts[-1].jobs]
    assert [("2.1", None, "success"), ("2.2", None, "success")] == world.combinations(run)
    (replaced,) = world.change(run)["backends"][0]["replaced_legs"]
    assert ("test 2.2", 1, "failure") == (replaced["job_name"], replaced["run_attempt"], replaced["conclusion"])
    assert {"success"} == {check.conclusion for check in world.up.checks(head_of(run)).values()}


def test_a_batch_is_answered_item_by_item(each_world: World) -> None:
    """A reporting job sends what it gathered in one call: what is wrong with one item touches no other."""
    world = each_world
    backend, run = asked(world)
    world.idle()

    def item(job: str, conclusion: str) -> dict[str, Any]:
        workflow = {"status": "completed", "conclusion": conclusion, "run_id": str(run.id), "job_name": job}
        return {**run.client_payload, "workflow": {**workflow, "expected_jobs": 2}}

    sent = [item("a", "success"), item("b", "sucess"), item("a", "success"), item("b", "success"), "no object"]
    answer = world.call_back(world.sim.mint(backend, run_id=run.id), sent, "/github/callback/batch")

    assert 200 == answer.status
    assert [200, 422, 200, 200, 422] == [one["status"] for one in answer.json]
    assert [False, True, False] == [one["replayed"] for one in answer.json if one["status"] == 200]
    assert "workflow.conclusion" == answer.json[1]["errors"][0]["field"]
    assert "success" == world.up.wait_for_check(head_of(run), GATE, conclusion="success").conclusion
    (combination,) = world.change(run)["backends"][0]["combinations"]
    assert ["a", "b"] == sorted(leg["job_name"] for leg in combination["legs"])


# --- Any order, any repetition ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """One callback of a run with two jobs for two versions each; ``check_run_id`` is the reporting job's."""

    job: str
    version: str
    status: str
    check_run_id: str


LEGS = [(job, version) for job in "ab" for version in ("2.1", "2.2")]
EVERYTHING = [
    Said(job, version, status, str(number))
    for number, (job, version) in enumerate(LEGS, 1)
    for status in ("in_progress", "completed")
]
ORDERS = st.lists(st.sampled_from(EVERYTHING), max_size=5).flatmap(lambda twice: st.permutations(EVERYTHING + twice))


# A failing example takes as long as `wait_until` does, so shrinking it would take minutes.
@settings(max_examples=6, deadline=None, phases=[Phase.explicit, Phase.generate], database=None)
@given(order=ORDERS, red=st.sampled_from([None, *LEGS]))
def check_the_end(backend: Backend, world: World, order: list[Said], red: tuple[str, str] | None) -> None:
    """A pull request of its own, all reports in this order, and what GitHub shows in the end."""
    pr: PullRequest = world.up.open_pull_request()
    wait_until(lambda: any(head_of(run) == pr.head_sha for run in backend.runs), what="the run")
    run = next(run for run in backend.runs if head_of(run) == pr.head_sha)
    end = "success" if red is None else "failure"
    for said in order:
        ended = said.status == "completed"
        answer = backend.callback(
            run,
            said.status,
            ("failure" if (said.job, said.version) == red else "success") if ended else None,
            said.job,
            check_run_id=said.check_run_id,
            expected_jobs=4,
            combination={"backend_version": said.version},
        )
        assert 200 == answer.status

    expected = {
        GATE: (end, "org/backend passed" if red is None else "org/backend failed"),
        "crcr/org/backend": (end, "Passed: 4 jobs" if red is None else "Failed: 1 of 4 jobs"),
    }

    def shown() -> dict[str, tuple[str | None, str]]:
        checks = world.up.checks(pr.head_sha)
        return {name: (check.conclusion, (check.title or "").partition(",")[0]) for name, check in checks.items()}

    wait_until(lambda: shown() == expected, 5, what=str(expected))
    world.idle()
    assert expected == shown()
    by_version = {version: "success" if red is None or red[1] != version else "failure" for version in ("2.1", "2.2")}
    assert [(version, None, outcome) for version, outcome in by_version.items()] == world.combinations(run)
    written = [write.get("conclusion") for write in world.up.checks(pr.head_sha)[GATE].writes]
    assert (1 if red is None else 0) == written.count("success")


def test_any_order_and_any_repetition_end_in_the_same_checks(world: World) -> None:
    """Two jobs, two versions, eight callbacks, some of them twice: what GitHub shows in the end is always the same."""
    backend = world.backend("org/backend", "L4", BY_HAND, versions=["2.1", "2.2"])
    world.start()

    check_the_end(backend, world)
