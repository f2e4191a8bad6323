"""What the service says of itself: which part is ill, which build it is, and figures of everything that waits."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from datetime import timedelta
from typing import Any

import pytest

from relay.edge.health import Part
from relay.simulator import Fault, JobPlan, Kind, Listener, Match, Mode, Reports
from relay.store import schema
from tests.stories.world import World

BY_HAND = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)


def ready(world: World) -> tuple[int, dict[str, Any]]:
    """The answer of ``/readyz``."""
    try:
        with urllib.request.urlopen(f"{world.url}/readyz", timeout=10) as answer:
            return answer.status, json.loads(answer.read())["parts"]
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["parts"]


def figures(world: World) -> dict[str, float]:
    """Every sample of ``/metrics``, by its name and labels."""
    with urllib.request.urlopen(f"{world.url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_every_part_says_how_it_is(each_world: World) -> None:
    """Whoever is called at night reads one page, and it names the part."""
    world = each_world.start()
    world.settled(lambda: all(part["ok"] for part in ready(world)[1].values()), "every part to have turned")

    status, parts = ready(world)

    listening = {"listen"} if world.database_url.startswith("postgres") else set()
    assert 200 == status
    assert {"database", "allowlist", "worker", "sweep", "lookout"} | listening == set(parts)
    assert {"ok"} == {part["state"] for part in parts.values()}


def test_an_ill_part_is_told_from_one_that_can_be_done_without(world: World) -> None:
    """A file of the allowlist that is gone for long is worth a look, and no reason to refuse webhooks."""
    world.start()
    world.settled(lambda: ready(world)[0] == 200, "a service that is ready")

    world.allowlist.unlink()
    world.settled(lambda: "last good list" in ready(world)[1]["allowlist"]["detail"], "the file to be missed")
    world.clock.advance(timedelta(hours=1))
    world.settled(lambda: ready(world)[0] == 200, "a worker that has turned in this hour")

    assert "degraded" == ready(world)[1]["allowlist"]["state"]
    assert "ill" == Part("worker", False, "").state


def test_the_build_says_which_it_is(world: World) -> None:
    """Two answers of two replicas tell whether they run the same thing."""
    world.backend("org/l1", "L1", BY_HAND)
    world.start()

    told = world.get("/version")

    assert {"version", "commit", "allowlist_digest", "schema"} == set(told)
    assert (schema.newest(), world.get("/api/v1/allowlist")["digest"]) == (told["schema"], told["allowlist_digest"])


def test_each_hop_of_a_pull_request_is_measured(each_world: World) -> None:
    """From the webhook to the dispatch, from the report to the check, and what still waits on the way."""
    world = each_world
    backend = world.backend("org/l4", "L4", BY_HAND)
    deaf = world.backend("org/deaf", "L4", BY_HAND)
    world.backend("ill/l1", "L1", BY_HAND)
    world.start()
    world.sim.faults.add(Fault(Kind.SERVER_ERROR, Match("POST", "/dispatches$", account="ill"), times=None, status=503))
    world.up.open_pull_request()
    (run,) = backend.wait_for_runs()
    deaf.wait_for_runs()
    world.idle()
    backend.callback(run, "in_progress")
    world.pass_time(timedelta(seconds=5))  # A check is written every few seconds at most.
    world.idle()
    world.pass_time(timedelta(minutes=20))

    shown = figures(world)

    assert 2 == shown['crcr_effect_age_seconds_count{kind="dispatch"}']
    assert 2 == shown['crcr_effect_age_seconds_bucket{kind="dispatch",le="60.0"}']
    assert shown['crcr_effect_age_seconds_count{kind="reconcile_check"}'] >= 2
    assert 1 == shown['crcr_answer_seconds_count{what="callback"}']
    assert shown['crcr_answer_seconds_count{what="webhook"}'] >= 1
    assert 1_200 <= shown['crcr_oldest_open_seconds{kind="dispatch"}'] < 1_300
    assert 1 == shown['crcr_effects_waiting{kind="dispatch"}']
    assert 0 == shown['crcr_oldest_open_seconds{kind="reconcile_check"}']
    assert 1 == shown["crcr_gates_open"]
    assert 1_200 <= shown["crcr_oldest_unheard_seconds"] < 1_300
    assert 1_200 <= shown["crcr_oldest_open_job_seconds"] < 1_300
    assert 0 == shown["crcr_oldest_deadline_seconds"]
    assert 3 == shown["crcr_allowlist_entries"]
    assert (0, 0) == (shown["crcr_allowlist_unread"], shown["crcr_database_write_failures_total"])
    assert {'{side="upstream"}', '{side="backends"}'} == {
        name.removeprefix("crcr_github_requests_left") for name in shown if name.startswith("crcr_github_requests_left")
    }


def test_what_was_late_counts_from_when_it_was_decided(world: World) -> None:
    """A dispatch and a check that GitHub failed at first: what is measured is how late they were, not the last try."""
    backend = world.backend("org/l4", "L4", BY_HAND)
    world.start()
    down = world.sim.faults.add(Fault(Kind.SERVER_ERROR, Match("POST", "/dispatches$"), times=None, status=503))
    pr = world.up.open_pull_request()
    world.settled(lambda: world.sim.faults.met(down) > 0, "a try that failed")
    world.pass_time(timedelta(minutes=20))
    world.sim.faults.remove(down)
    world.pass_time(timedelta(minutes=5))
    (run,) = backend.wait_for_runs()
    world.idle()
    ill = world.sim.faults.add(Fault(Kind.SERVER_ERROR, Match("PATCH", "/check-runs/"), times=1, status=503))
    backend.callback(run, "completed", "success", "test")
    world.settled(lambda: world.sim.faults.met(ill) > 0, "a check that failed")
    world.pass_time(timedelta(minutes=2))
    world.up.wait_for_check(pr.head_sha, "crcr/gate", conclusion="success")
    world.idle()

    late = figures(world)

    assert 1_200 <= late['crcr_effect_age_seconds_sum{kind="dispatch"}'] < 1_600
    assert 0 == late['crcr_effect_age_seconds_bucket{kind="dispatch",le="60.0"}']
    on_time = late['crcr_effect_age_seconds_bucket{kind="reconcile_check",le="60.0"}']
    assert 1 == late['crcr_effect_age_seconds_count{kind="reconcile_check"}'] - on_time


def test_what_was_given_up_is_shown_by_its_cause(world: World) -> None:
    """A dead letter has a kind and a reason, and one that lives again is shown no more."""
    backend = world.backend("org/l1", "L1", BY_HAND)
    backend.uninstall()
    world.start()
    world.up.open_pull_request()
    dead = 'crcr_dead_letters{kind="dispatch",reason="not_installed"}'
    world.settled(lambda: len(world.get("/api/v1/dead-letters")["items"]) == 1, "a dead letter")
    world.clock.advance(timedelta(seconds=6))

    assert 1 == figures(world)[dead]
    backend.install()
    backend.wait_for_runs()
    world.idle()
    world.clock.advance(timedelta(seconds=6))
    assert dead not in figures(world)


@pytest.mark.parametrize("path", ["/readyz", "/version", "/metrics"])
def test_nothing_of_it_names_a_host_or_a_secret(world: World, path: str) -> None:
    """These pages are for everybody who can reach the service."""
    world.start()
    world.settled(lambda: ready(world)[0] == 200, "a service that is ready")
    with urllib.request.urlopen(f"{world.url}{path}", timeout=10) as answer:
        text = answer.read().decode()

    secret = [world.app.webhook_secret, world.sim.url, "127.0.0.1", str(world.folder)]
    assert [] == [word for word in secret if word in text]
