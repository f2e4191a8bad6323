"""One id from the webhook to the check run: in the answers, in the dispatch, and on every line of the log."""

from __future__ import annotations

import json
from typing import Any

from relay.simulator import JobPlan, Listener, Mode, Reports
from relay.tracing import trace_id
from tests.stories.relay_process import relay_process
from tests.stories.world import World

BY_HAND = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)


def lines(world: World, event: str) -> list[dict[str, Any]]:
    """What the process logged of this kind."""
    read = [json.loads(line) for line in (world.folder / "relay.log").read_text().splitlines() if line.startswith("{")]
    return [line for line in read if line["event"] == event]


def failures(world: World) -> list[dict[str, Any]]:
    """Dispatches that did not go through."""
    return [line for line in lines(world, "effect_not_done") if line["kind"] == "dispatch"]


def test_a_trace_leads_from_the_webhook_to_the_check(world: World) -> None:
    """Whoever holds one end, a delivery at GitHub or a listener's run, finds all that came of it in the log."""
    backend = world.backend("org/l4", "L4", BY_HAND)
    with relay_process(world):
        pull = world.up.open_pull_request()
        (run,) = backend.wait_for_runs()
        reported = backend.callback(run, "completed", "success")
        # A report may come before any check was written: then each is written once.
        world.up.wait_for_check(pull.head_sha, "crcr/gate", conclusion="success")
        world.up.wait_for_check(pull.head_sha, "crcr/org/l4", conclusion="success")
        ended = {"crcr/gate", "crcr/org/l4"}
        world.settled(
            lambda: ended == {one["check"] for one in lines(world, "check_written") if one["conclusion"] == "success"},
            "the checks' lines",
        )

    trace = trace_id(pull.delivery.guid)
    relay = run.client_payload["relay"]
    assert (pull.delivery.guid, trace) == (relay["origin_delivery"], relay["trace_id"])
    assert trace == pull.delivery.response.json["trace_id"]
    assert trace == reported.json["trace_id"]
    about = {"delivery": pull.delivery.guid, "trace": trace, "head": pull.head_sha, "backend": "org/l4"}
    for event in ("dispatched", "callback_recorded"):
        (line,) = lines(world, event)
        assert about == {name: line.get(name) for name in about}
    (line,) = [line for line in lines(world, "webhook") if line["delivery"] == pull.delivery.guid]
    assert (trace, pull.head_sha) == (line["trace"], line["head"])
    written = [line for line in lines(world, "check_written") if line["check"] == "crcr/org/l4"]
    assert {(pull.head_sha, "org/l4", trace)} == {(line["head"], line["backend"], line["trace"]) for line in written}
    shown = world.up.checks(pull.head_sha)["crcr/org/l4"]
    assert trace in f"{shown.summary}{shown.text}"


def test_a_failure_says_what_it_is_about(world: World) -> None:
    """The line that wakes an admin names delivery, head and backend by itself."""
    world.sim.create_backend("org/gone", listener=BY_HAND, installed=False)
    world.allow("org/gone", "L2")
    with relay_process(world):
        pull = world.up.open_pull_request()
        world.settled(lambda: failures(world) != [], "a failure")

    line = failures(world)[0]
    assert ("org/gone", pull.head_sha, pull.delivery.guid) == (line["backend"], line["head"], line["delivery"])
