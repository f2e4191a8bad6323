"""The database beneath the relay fails: nothing is promised that is not kept, and an admin is told what to mend."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.stories.world import World


def _readiness(world: World) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"{world.url}/readyz", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_webhook_is_not_accepted_into_a_file_that_was_deleted(world: World) -> None:
    """A careless clean-up takes the database away: GitHub hears 503, the admin why, and put back it all goes on."""
    backend = world.backend("org/backend", "L4")
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
