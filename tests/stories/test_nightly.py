"""Nights that backends report by themselves: kept with their history under the commit, and confirmed by upstream."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from relay.simulator import Backend, JobPlan, Listener, Mode, Reports
from tests.stories.world import Posted, World

SILENT = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
SAMPLES = Path(__file__).parents[1] / "edge" / "data"
CALLBACK = "/github/callback"


def opened(world: World) -> Backend:
    """A relay with a HUD, and one backend at L2 that is known at GitHub."""
    backend = world.backend("org/backend", "L2", SILENT)
    world.start(hud_api_url=world.sim.hud_url, hud_key=world.sim.hud.key)
    world.idle()
    return backend


def report(world: World, backend: Backend, sha: str, conclusion: Any = "success", **fields: Any) -> Posted:
    """One job of a night, started by a schedule. Keywords with the name of a top-level key replace that."""
    top: dict[str, Any] = {
        name: fields.pop(name) for name in ("event_type", "delivery_id", "payload") if name in fields
    }
    run_id, attempt = fields.pop("run_id", "71"), fields.pop("run_attempt", "1")
    workflow = {
        "schema_version": "1",
        "status": "completed",
        "conclusion": conclusion,
        "name": "nightly",
        "run_id": run_id,
        "run_attempt": attempt,
        "job_name": "test",
        **fields,
    }
    payload = {"repository": {"full_name": world.up.name}, "head_sha": sha}
    body = {"event_type": "nightly", "delivery_id": sha, "payload": payload, **top, "workflow": workflow}
    token = world.sim.mint(backend, run_id=run_id, run_attempt=attempt, event_name="schedule")
    return world.call_back(token, body, CALLBACK)


def nights(world: World) -> list[Any]:
    """The commits that were reported on, as the API lists them."""
    found: list[Any] = world.get("/api/v1/changes?kind=self_reported")["items"]
    return found


def on_backend(world: World) -> Any:
    """The one backend of the one night."""
    (night,) = nights(world)
    (backend,) = world.get(f"/api/v1/changes/{night['id']}")["backends"]
    return backend


def told_hud(world: World) -> list[str | None]:
    """The conclusions that the HUD was told of, in order."""
    return [row.body["untrusted"]["callback_payload"]["workflow"]["conclusion"] for row in world.sim.hud.rows]


def test_production_s_own_night_is_taken_as_it_is(each_world: World) -> None:
    """Its sample, unchanged: recorded and forwarded, and unverified, because upstream does not know that commit."""
    world = each_world
    backend = opened(world)
    body = json.loads((SAMPLES / "callback_nightly_production.json").read_text())

    token = world.sim.mint(backend, run_id=body["workflow"]["run_id"], event_name="schedule")
    answer = world.call_back(token, body, "/github/callback/")
    world.idle()

    assert 200 == answer.status
    (row,) = world.sim.hud.rows
    assert body == row.body["untrusted"]["callback_payload"]
    assert {"queue_time": None, "execution_time": None} == row.body["trusted"]["ci_metrics"]
    (night,) = nights(world)
    assert (body["payload"]["head_sha"], False) == (night["head_sha"], night["verified"])
    assert [] == world.sim.log.checks()
    assert [] == world.sim.log.dispatches()


def test_a_commit_of_upstream_s_is_confirmed_and_a_fork_s_is_not(world: World) -> None:
    """A fork's commits answer under upstream's address too: only what a branch of upstream holds counts as its own."""
    backend = opened(world)
    fork = world.up.open_pull_request(fork=True)
    world.up.push("refs/heads/nightly")
    on_nightly = world.up.repository.refs["refs/heads/nightly"]

    for sha in (world.up.head, on_nightly, fork.head_sha):
        assert 200 == report(world, backend, sha).status
    world.idle()

    assert {world.up.head: True, on_nightly: True, fork.head_sha: False} == {
        night["head_sha"]: night["verified"] for night in nights(world)
    }
    assert {"crcr/gate"} == set(world.up.checks(fork.head_sha))
    assert {} == world.up.checks(world.up.head)


def test_a_night_without_a_commit_is_refused_and_the_corrected_one_taken(world: World) -> None:
    """A night is about a commit: the field is named where none of the three holds one, and any one of them will do."""
    backend = opened(world)
    sha = world.up.head
    nowhere: dict[str, Any] = {"delivery_id": "2026-11-30", "payload": {"head_sha": "main", "after": sha[:12]}}

    refused = report(world, backend, sha, **nowhere)
    unknown = report(world, backend, sha, "passed")
    missing = report(world, backend, sha, None)
    by_delivery = report(world, backend, sha, payload={})
    by_after = report(world, backend, sha, "failure", job_name="other", delivery_id="x", payload={"after": sha})
    world.idle()

    assert [422, 422, 422, 200, 200] == [answer.status for answer in (refused, unknown, missing, by_delivery, by_after)]
    assert "payload.head_sha" == refused.json["errors"][0]["field"]
    assert ["workflow.conclusion"] * 2 == [answer.json["errors"][0]["field"] for answer in (unknown, missing)]
    assert ["failure", "success"] == sorted(told_hud(world))
    assert [sha] == [night["head_sha"] for night in nights(world)]


def test_the_newest_attempt_of_a_night_decides_and_the_history_stays(world: World) -> None:
    """Red at midnight and green after a re-run: green counts, both stay to be seen, and the same said twice is once."""
    backend = opened(world)
    sha = world.up.head

    first = report(world, backend, sha, "failure")
    second = report(world, backend, sha, "success", run_attempt="2")
    again = report(world, backend, sha, "success", run_attempt="2")
    late = report(world, backend, sha, "failure", job_name="test", completed_at="2026-11-30T01:00:00Z")
    world.idle()

    assert [False, False, True, False] == [answer.json["replayed"] for answer in (first, second, again, late)]
    assert ["failure", "success", "failure"] == told_hud(world)
    mine = on_backend(world)
    assert "success" == mine["dispatch"]["outcome"]
    assert [(2, "success")] == [
        (leg["run_attempt"], leg["conclusion"]) for one in mine["combinations"] for leg in one["legs"]
    ]
    assert [(1, "failure")] == [(leg["run_attempt"], leg["conclusion"]) for leg in mine["replaced_legs"]]


def test_the_same_night_with_another_conclusion_keeps_the_worse(world: World) -> None:
    """Of two conclusions for one leg of one attempt the worse stands, in whatever order, and readers see that."""
    backend = opened(world)

    for conclusion in ("failure", "success"):
        assert 200 == report(world, backend, world.up.head, conclusion).status
    world.idle()

    mine = on_backend(world)
    assert "failure" == mine["dispatch"]["outcome"]
    (leg,) = mine["combinations"][0]["legs"]
    assert ("failure", True) == (leg["conclusion"], leg["conflicting"])
    assert ["failure", "success"] == told_hud(world)


def test_sixty_five_jobs_of_one_commit_are_one_night(each_world: World) -> None:
    """Each job comes under a delivery id of its own, several at once: they share the commit, and so the night."""
    world = each_world
    backend = opened(world)
    sha = world.up.head

    def job(number: int) -> int:
        fields = {"delivery_id": f"{number:08d}-0000-4000-8000-000000000000", "job_name": f"job {number}"}
        return report(world, backend, sha, "failure" if number == 40 else "success", **fields).status

    with ThreadPoolExecutor(8) as pool:
        answers = Counter(pool.map(job, range(65)))
    world.idle()

    assert Counter({200: 65}) == answers
    assert Counter({"success": 64, "failure": 1}) == Counter(told_hud(world))
    mine = on_backend(world)
    assert ("failure", 65) == (mine["dispatch"]["outcome"], mine["dispatch"]["legs_reported"])
    asked = [one for one in world.sim.log if f"...{sha}" in one.path]
    assert 1 == len(asked)  # One question to upstream, however many ask it.


@pytest.mark.parametrize("event", ["nightly", "periodic"])
def test_below_l2_a_night_is_refused_too(world: World, event: str) -> None:
    """A level is a level, whoever starts the run."""
    backend = world.backend("org/backend", "L1")
    world.start()
    world.idle()

    answer = report(world, backend, world.up.head, event_type=event)

    assert (403, "below_l2") == (answer.status, answer.json["code"])
    assert [] == nights(world)
