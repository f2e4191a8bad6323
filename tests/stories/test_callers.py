"""Who may report what: each refusal has its code, costs nothing, and moves no check."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from relay.simulator import Backend, Fault, JobPlan, Kind, Listener, Match, Mode, Reports, Run
from tests.stories.world import World

BY_HAND = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
SAMPLES = Path(__file__).parents[1] / "edge" / "data"


def told(world: World, *backends: Backend) -> list[Run]:
    """Open one pull request; the run that it starts at each of these backends."""
    world.up.open_pull_request()
    runs = [backend.wait_for_runs()[0] for backend in backends]
    world.idle()
    return runs


def gate_of(world: World, run: Run) -> str | None:
    """What the gate on the dispatched commit concludes now; None while it waits."""
    # A check is written every few seconds at most.
    world.pass_time(timedelta(seconds=5))
    world.idle()
    return world.up.checks(run.client_payload["relay"]["change"]["head_sha"])["crcr/gate"].conclusion


def verdict(answer: Any) -> tuple[int, str]:
    """Status and code of a refusal."""
    return answer.status, answer.json["code"]


def test_a_token_of_one_run_cannot_speak_for_another(world: World) -> None:
    """Run and attempt are the token's to say; a body that claims others is refused before anything is kept."""
    backend = world.backend("org/l4", "L4", BY_HAND)
    world.start()
    (run,) = told(world, backend)

    other_run = backend.callback(run, "completed", "success", claims={"run_id": "1"})
    other_attempt = backend.callback(run, "completed", "success", claims={"run_attempt": "2"})

    assert [(403, "run_mismatch")] * 2 == [verdict(other_run), verdict(other_attempt)]
    assert gate_of(world, run) is None


@pytest.mark.parametrize("event", ["pull_request", "pull_request_target", "push", "issue_comment"])
def test_runs_that_anybody_can_start_may_not_report(world: World, event: str) -> None:
    """A fork's pull request mints tokens of the repository's name: no such run has a say."""
    backend = world.backend("org/l4", "L4", BY_HAND)
    world.start()
    (run,) = told(world, backend)

    answer = backend.callback(run, "completed", "success", event_name=event)

    assert (403, "event_refused") == verdict(answer)
    assert gate_of(world, run) is None


def test_a_capability_binds_to_its_own_backend(world: World) -> None:
    """Payloads travel over strangers' machines: one backend's cannot be used by another, nor one be made up."""
    mine = world.backend("org/l4", "L4", BY_HAND)
    other = world.backend("elsewhere/l4", "L4", BY_HAND)
    world.start()
    run, others_run = told(world, mine, other)
    block = run.client_payload["relay"]
    forged = {**block, "token": block["token"][:-4] + ("AAAA" if not block["token"].endswith("AAAA") else "BBBB")}

    stolen = mine.callback(others_run, "completed", "success", run_id=run.id)
    made_up = mine.callback(run, "completed", "success", change={"relay": forged})

    assert [(403, "other_backend"), (403, "bad_capability")] == [verdict(stolen), verdict(made_up)]
    assert gate_of(world, run) is None


def test_a_capability_outlives_its_deadline_by_five_weeks(world: World) -> None:
    """A re-run replays the old payload, and a run may take 35 days; after that a new dispatch is asked for."""
    backend = world.backend("org/l4", "L4", BY_HAND)
    world.start()
    (run,) = told(world, backend)

    world.pass_time(timedelta(days=35))
    old = backend.callback(run, "completed", "success")
    world.pass_time(timedelta(days=2))
    too_old = backend.callback(run, "completed", "success", "another")

    assert 200 == old.status
    assert (403, "capability_expired") == verdict(too_old)


def test_a_run_started_by_hand_is_recorded_and_decides_nothing(world: World) -> None:
    """A maintainer's own run of the workflow is worth seeing, and is no way to turn a gate green."""
    backend = world.backend("org/l4", "L4", BY_HAND)
    world.start()
    (run,) = told(world, backend)

    by_hand = backend.callback(run, "completed", "success", event_name="workflow_dispatch", run_id=77)

    assert (200, False) == (by_hand.status, by_hand.json["decides"])
    assert "workflow_dispatch" in by_hand.json["reason"]
    assert gate_of(world, run) is None
    (leg,) = world.change(run)["backends"][0]["replaced_legs"]
    assert ("77", "success", False) == (leg["run_id"], leg["conclusion"], leg["deciding"])
    backend.callback(run, "completed", "failure")
    assert "failure" == gate_of(world, run)


def test_a_dispatch_that_never_was_cannot_be_reported_on(world: World) -> None:
    """Nothing is made up from a body: without a dispatch there is nothing to attach a result to."""
    backend = world.backend("org/l2", "L2", BY_HAND)
    world.start()
    (run,) = told(world, backend)

    answer = backend.callback(run, "completed", "success", drop=("relay",), change={"delivery_id": "no such"})

    assert (404, "no_such_dispatch") == verdict(answer)


def test_who_may_report_is_what_the_list_says_in_whatever_case(world: World) -> None:
    """L1 is told and not heard; a stranger is neither; a name in another case is the same repository."""
    below = world.backend("org/l1", "L1", BY_HAND)
    stranger = world.sim.create_backend("org/stranger", listener=BY_HAND)
    shouting = world.sim.create_backend("Org/Backend", listener=BY_HAND)
    world.allow("oRG/bACKEND", "L4")
    world.start()
    told_below, told_shouting = told(world, below, shouting)

    at_l1 = below.callback(told_below, "completed", "success")
    unlisted = stranger.callback(told_below, "completed", "success")
    other_case = shouting.callback(told_shouting, "completed", "success")

    assert (403, "below_l2") == verdict(at_l1)
    assert "L2" in at_l1.json["detail"]
    assert (403, "not_listed") == verdict(unlisted)
    assert [] == stranger.runs
    assert 200 == other_case.status
    assert "success" == gate_of(world, told_shouting)


def test_production_s_silent_answer_is_a_setting(world: World) -> None:
    """A listener made for production may go on thinking that all is well: it is told `ignored`, and nothing is kept."""
    below = world.backend("org/l1", "L1", BY_HAND)
    stranger = world.sim.create_backend("org/stranger", listener=BY_HAND)
    world.start(legacy_ignored=True)
    (run,) = told(world, below)

    answers = [below.callback(run, "completed", "success"), stranger.callback(run, "completed", "success")]

    assert [(200, {"ok": True, "status": "ignored"})] * 2 == [(answer.status, answer.json) for answer in answers]


def test_only_the_pinned_workflow_has_a_say(world: World) -> None:
    """Another workflow of the same repository may be started by other people."""
    backend = world.backend("org/l4", "L4", BY_HAND, workflow="crcr.yml")
    world.start()
    (run,) = told(world, backend)
    other = "org/l4/.github/workflows/other.yml@refs/heads/main"

    refused = backend.callback(run, "completed", "success", claims={"workflow_ref": other, "job_workflow_ref": other})
    accepted = backend.callback(run, "completed", "failure")

    assert (403, "wrong_workflow") == verdict(refused)
    assert 200 == accepted.status
    assert "failure" == gate_of(world, run)


def sample(kind: str, run: Run) -> tuple[Any, str]:
    """Production's own callback, of this run and delivery; and the run's id in it. All else is as it travels."""
    body = json.loads((SAMPLES / f"callback_{kind}_production.json").read_text())
    body["delivery_id"] = run.client_payload["delivery_id"]
    return body, body["workflow"]["run_id"]


@pytest.mark.parametrize(
    ("level", "legacy", "accepted"),
    [("L2", False, True), ("L3", False, True), ("L4", True, True), ("L4", False, False)],
)
def test_production_s_own_callbacks_are_taken_without_a_capability(
    world: World, level: str, legacy: bool, accepted: bool
) -> None:
    """Today's action sends no capability: below L4 it works as it is, and at L4 where the entry says so."""
    backend = world.backend("org/backend", level, BY_HAND, legacy=legacy)
    world.start()
    (run,) = told(world, backend)

    answers = []
    for kind in ("in_progress", "completed"):
        body, run_id = sample(kind, run)
        answers.append(world.call_back(world.sim.mint(backend, run_id=run_id), body, "/github/callback/"))

    gate = gate_of(world, run)
    if not accepted:
        assert [(403, "capability_required")] * 2 == [verdict(answer) for answer in answers]
        assert "legacy: true" in answers[0].json["detail"]
        assert gate is None
        return
    assert [200, 200] == [answer.status for answer in answers]
    assert ("failure" if level == "L4" else "success") == gate
    (combination,) = world.change(run)["backends"][0]["combinations"]
    (leg,) = combination["legs"]
    assert ("linux-aarch64 / test (ops, 1, 4, py3.10)", "failure") == (leg["job_name"], leg["conclusion"])
    assert (8430, 2, 20, 8452) == tuple(leg[name] for name in ("passed", "failed", "skipped", "total"))
    if level == "L4":
        head = run.client_payload["relay"]["change"]["head_sha"]
        shown = world.up.wait_for_check(head, "crcr/org/backend", conclusion="failure")
        assert "test_add_npu_float32" in f"{shown.summary} {shown.text}"


def test_a_key_set_that_is_down_stops_only_whoever_has_no_keys_yet(world: World) -> None:
    """Keys that were fetched serve on; a process without any says when to come again, keeps nothing, and recovers."""
    backend = world.backend("org/l4", "L4", BY_HAND)
    world.start()
    (run,) = told(world, backend)

    first = backend.callback(run, "completed", "success", "build").status
    down = world.sim.faults.add(Fault(Kind.SERVER_ERROR, Match(path="jwks"), times=None, status=503))
    world.pass_time(timedelta(minutes=61))  # By now it would rather have fetched them anew.
    with_keys = backend.callback(run, "completed", "success", "lint").status
    asked = world.sim.faults.met(down)
    world.idle()
    world.stop()
    world.start()
    body = {**run.client_payload, "workflow": {"status": "completed", "conclusion": "failure", "name": "ci"}}
    without = world.call_back(world.sim.mint(backend, run_id=run.id), body)
    refused = backend.callback(run, "completed", "failure", "test")
    world.sim.faults.remove(down)
    before = gate_of(world, run)
    wait = int(without.headers["retry-after"])
    world.clock.advance(timedelta(seconds=wait))
    again = backend.callback(run, "completed", "failure", "test").status

    assert (200, 1, 200, 200) == (first, asked, with_keys, again)
    assert [(503, "keys_unreachable")] * 2 == [verdict(without), verdict(refused)]
    assert 1 <= wait <= 30
    assert ("success", "failure") == (before, gate_of(world, run))
