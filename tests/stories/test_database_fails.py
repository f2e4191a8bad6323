"""The database beneath the relay fails: nothing is promised that is not kept, and an admin is told what to mend."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from relay.simulator import Fault, JobPlan, Kind, Listener, Match, Mode, Reports, wait_until
from tests.stories.world import World

#: It reports nothing: a report that is still under way when the relay stops is tried again for a while.
SILENT = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)


def _readiness(world: World) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"{world.url}/readyz", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_webhook_is_not_accepted_into_a_file_that_was_deleted(world: World) -> None:
    """A careless clean-up takes the database away: GitHub hears 503, the admin why, and put back it all goes on."""
    backend = world.backend("org/backend", "L4", SILENT)
    world.start()
    world.idle()
    path = Path(world.database_url.removeprefix("sqlite:///"))

    moved = path.rename(path.with_name("moved.db"))
    refused = world.up.open_pull_request()
    status, said = _readiness(world)
    moved.rename(path)
    taken = world.sim.redeliver(refused.delivery.guid)
    backend.wait_for_runs()

    assert 503 == refused.delivery.response.status
    assert 503 == status
    assert "relay.db is" in said["parts"]["database"]["detail"]
    assert 202 == taken.response.status
    assert 1 == len(backend.runs)


def test_what_was_sent_while_the_database_was_away_is_noted_and_not_sent_again(world: World) -> None:
    """Between the dispatch and its note the database goes away: the worker keeps the note until it is back."""
    backend = world.backend("org/backend", "L1", SILENT)
    world.start()
    world.idle()
    path = Path(world.database_url.removeprefix("sqlite:///"))
    slow = world.sim.faults.add(Fault(Kind.LATENCY, Match("POST", "/dispatches$"), times=1, seconds=0.5))

    pr = world.up.open_pull_request()
    wait_until(lambda: world.sim.faults.met(slow) == 1, what="a dispatch under way")
    moved = path.rename(path.with_name("moved.db"))
    backend.wait_for_runs()
    refused = world.up.open_pull_request()
    moved.rename(path)
    world.sim.redeliver(refused.delivery.guid)
    backend.wait_for_runs(2)
    world.idle()

    assert 503 == refused.delivery.response.status
    told = [run.client_payload["relay"]["change"]["head_sha"] for run in backend.runs]
    assert [pr.head_sha, refused.head_sha] == told
