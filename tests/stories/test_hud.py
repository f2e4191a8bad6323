"""The HUD, a second home of every report: whatever becomes of it, callers do not notice, and each row arrives once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from relay.simulator import Backend, Fault, JobPlan, Kind, Listener, Match, Mode, Reports, Run, wait_until
from tests.stories.world import World

BY_HAND = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
HUD = Match("POST", "/hud/")
#: Beyond the first waits of the published schedule.
WAITS = (timedelta(seconds=13), timedelta(seconds=73), timedelta(seconds=361))


def asked(world: World, level: str = "L2") -> tuple[Backend, Run]:
    """A relay with a HUD, and one backend that was told of one pull request."""
    backend = world.backend("org/backend", level, BY_HAND)
    world.start(hud_api_url=world.sim.hud_url, hud_key=world.sim.hud.key)
    world.up.open_pull_request()
    (run,) = backend.wait_for_runs()
    world.idle()
    return backend, run


def rows(world: World) -> list[tuple[str, str]]:
    """Job and status of each row that the HUD took, in order."""
    told = [row.body["untrusted"]["callback_payload"]["workflow"] for row in world.sim.hud.rows]
    return [(row["job_name"], row["status"]) for row in told]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(Kind.SERVER_ERROR, HUD, times=None, status=503),
        Fault(Kind.RESET, HUD, times=None),
        Fault(Kind.SECONDARY_LIMIT, HUD, times=None, status=429, retry_after=30),
    ],
    ids=["down", "cut off", "busy"],
)
def test_a_hud_that_is_down_is_told_once_it_is_back(each_world: World, fault: Fault) -> None:
    """The caller's answer is the same as ever, said twice it is kept once, and the row arrives in the end."""
    world = each_world
    backend, run = asked(world)
    world.sim.faults.add(fault)

    first = backend.callback(run, "completed", "success", "test")
    second = backend.callback(run, "completed", "success", "test")
    wait_until(lambda: world.sim.faults.met(fault) == 1, what="a try")
    world.pass_time(WAITS[0])
    down_for = rows(world)
    world.sim.faults.clear()
    for wait in WAITS[1:]:
        world.pass_time(wait)
        world.idle()

    assert [(200, False), (200, True)] == [(answer.status, answer.json["replayed"]) for answer in (first, second)]
    assert [] == down_for
    assert [("test", "completed")] == rows(world)


def test_a_client_that_gave_up_and_sent_again_leaves_one_row(world: World) -> None:
    """Production answers when the HUD does, so a slow HUD makes two rows of one verdict; here nobody waits for it."""
    backend, run = asked(world)
    world.sim.faults.add(Fault(Kind.LATENCY, HUD, times=None, seconds=1.2))

    answers, took = [], []
    for _ in range(2):
        began = world.clock.now()
        answers.append(backend.callback(run, "completed", "success", "test"))
        took.append(world.clock.now() - began)
    world.idle()

    assert [200, 200] == [answer.status for answer in answers]
    assert min(took) < timedelta(seconds=1.2)  # If answers waited for the HUD, neither could be this quick.
    assert [("test", "completed")] == rows(world)


def test_every_report_is_a_row_of_its_own_in_its_job_s_order(world: World) -> None:
    """One row per report, whether it is a start or an end, and a job's end never comes before its start."""
    backend, run = asked(world)
    world.sim.faults.add(Fault(Kind.SERVER_ERROR, HUD, times=1))

    for job in ("a", "b"):
        backend.callback(run, "in_progress", job=job)
        backend.callback(run, "completed", "success", job)
    wait_until(lambda: len(rows(world)) == 2, what="the job whose start was taken at once")
    world.clock.advance(WAITS[0])
    wait_until(lambda: len(rows(world)) == 4, what="the job whose start was refused")

    assert [(job, status) for job in "ab" for status in ("in_progress", "completed")] == sorted(
        rows(world), key=lambda row: (row[0], row[1] == "completed")
    )
    for job in "ab":
        assert ["in_progress", "completed"] == [status for of, status in rows(world) if of == job]


def test_what_we_verified_is_kept_apart_from_what_was_said(world: World) -> None:
    """Times, name and level are ours; all else is the body as it came, less the capability, known fields or not."""
    backend, run = asked(world, "L3")

    world.clock.advance(timedelta(seconds=30))
    backend.callback(run, "in_progress", job="test")
    world.pass_time(timedelta(minutes=10))
    said: dict[str, Any] = {"triage_verdict": {"cause": "infra"}, "something_new": [1, 2]}
    backend.callback(run, "completed", "success", "test", **said)
    world.idle()

    start, end = [row.body for row in world.sim.hud.rows]
    assert ("org/backend", "L3") == (end["trusted"]["verified_repo"], end["trusted"]["downstream_repo_level"])
    assert start["trusted"]["ci_metrics"]["execution_time"] is None
    assert 30 <= end["trusted"]["ci_metrics"]["queue_time"] < 45
    assert 600 <= end["trusted"]["ci_metrics"]["execution_time"] < 630
    payload = end["untrusted"]["callback_payload"]
    assert run.client_payload["payload"] == payload["payload"]
    assert said == {name: payload["workflow"][name] for name in said}
    assert "relay" not in payload
    assert run.capability not in str(end)


def test_a_hud_that_refuses_costs_the_caller_nothing(world: World) -> None:
    """A wrong key is the admin's to mend: it is a dead letter with its reason, and gate and caller go on."""
    backend, run = asked(world, "L4")
    world.sim.hud.key = "another key since"

    answer = backend.callback(run, "completed", "success", "test")
    world.idle()

    assert 200 == answer.status
    head = run.client_payload["relay"]["change"]["head_sha"]
    assert "success" == world.up.wait_for_check(head, "crcr/gate", conclusion="success").conclusion
    assert [] == rows(world)
    assert 1 == len(world.sim.log.of("POST", "/crcr/results"))
    (letter,) = world.get("/api/v1/dead-letters")["items"]
    assert "hud_refused" in str(letter)


def test_without_a_hud_nothing_is_sent_anywhere(world: World) -> None:
    """The sink is off unless it is asked for."""
    backend = world.backend("org/backend", "L2", BY_HAND)
    world.start()
    world.up.open_pull_request()
    (run,) = backend.wait_for_runs()

    assert 200 == backend.callback(run, "completed", "success", "test").status
    world.idle()

    assert [] == world.sim.log.of("POST", "/crcr/results")
