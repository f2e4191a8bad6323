"""Deliveries as GitHub keeps them: which count as failed, and how they are sent again."""

from __future__ import annotations

from typing import Any

import pytest

from relay.simulator import App, Simulator, Upstream, wait_until
from tests.simulator.scene import Caller, Clock, Receiver


@pytest.fixture
def up(sim: Simulator, app: App, receiver: Receiver) -> Upstream:
    made = sim.create_upstream("pytorch/pytorch", files={"a.py": "1\n", "docs/x.md": "x\n"})
    sim.webhook_url = receiver.url
    return made


@pytest.mark.parametrize(("status", "ok"), [(200, True), (202, True), (301, False), (401, False), (500, False)])
def test_only_a_2xx_is_a_delivery(up: Upstream, receiver: Receiver, status: Any, ok: bool) -> None:
    """Anything else is listed as failed."""
    receiver.status = status

    delivery = up.push()[0]

    assert (status, ok) == (delivery.response.status, delivery.ok)


def test_an_answer_after_the_timeout_is_a_failed_delivery(sim: Simulator, up: Upstream, receiver: Receiver) -> None:
    """GitHub waits 10 s; here the patience of the test is shorter."""
    assert 10 == sim.webhook_timeout
    sim.webhook_timeout = 0.2
    receiver.hang.clear()

    delivery = up.push()[0]

    receiver.hang.set()
    assert (0, "timed out") == (delivery.response.status, delivery.response.error)


def test_a_receiver_that_is_down_is_a_failed_delivery(sim: Simulator, up: Upstream) -> None:
    """And nothing is ever sent again by itself."""
    sim.webhook_url = "http://127.0.0.1:9/hook"

    delivery = up.push()[0]

    assert (0, True) == (delivery.response.status, "failed to connect" in (delivery.response.error or ""))
    assert 1 == len(sim.deliveries)


def test_failed_deliveries_are_listed_and_redelivered_with_their_guid(
    sim: Simulator, up: Upstream, receiver: Receiver, caller: Caller, clock: Clock
) -> None:
    """By API with the app's JWT; the guid is the same, the delivery another."""
    sim.hold_webhooks = True
    lost = up.push()[0]
    sim.hold_webhooks = False
    up.push()

    listed = caller.as_app("GET", "/app/hook/deliveries").json()
    assert [(lost.guid, 0)] == [(item["guid"], item["status_code"]) for item in listed if item["status"] != "OK"]
    whole = caller.as_app("GET", f"/app/hook/deliveries/{lost.id}").json()
    assert "refs/heads/main" == whole["request"]["payload"]["ref"]
    assert 202 == caller.as_app("POST", f"/app/hook/deliveries/{lost.id}/attempts").status_code
    wait_until(lambda: len(receiver.got) == 2)
    assert lost.guid == receiver.got[-1][0]["x-github-delivery"]
    assert lost.body == receiver.got[-1][1]
    wait_until(lambda: sim.deliveries[-1].ok)
    newest = caller.as_app("GET", "/app/hook/deliveries?per_page=1")
    assert (lost.guid, True) == (newest.json()[0]["guid"], newest.json()[0]["redelivery"])
    assert 'rel="next"' in newest.headers["link"]
    following = newest.headers["link"].partition("<")[2].partition(">")[0].removeprefix(sim.url)
    assert lost.guid != caller.as_app("GET", following).json()[0]["guid"]
    assert (202, lost.guid) == (sim.redeliver(lost.guid).response.status, sim.deliveries[-1].guid)


def test_the_failure_filter_knows_codes_alone(sim: Simulator, up: Upstream, receiver: Receiver, caller: Caller) -> None:
    """A receiver that was down has no code, so GitHub's filter hides just those that a relay must find."""
    receiver.status = 500
    refused = up.push()[0]
    receiver.status = 200
    taken = up.push()[0]
    sim.webhook_url = "http://127.0.0.1:9/hook"
    unheard = up.push()[0]

    def listed(query: str) -> list[str]:
        return [item["guid"] for item in caller.as_app("GET", f"/app/hook/deliveries{query}").json()]

    assert [refused.guid] == listed("?status=failure")
    assert [taken.guid] == listed("?status=success")
    assert [unheard.guid, taken.guid, refused.guid] == listed("")


def test_deliveries_are_gone_after_three_days(sim: Simulator, up: Upstream, caller: Caller, clock: Clock) -> None:
    """Neither listed nor redelivered any more."""
    delivery = up.push()[0]
    clock.forward(days=3, seconds=1)

    assert [] == caller.as_app("GET", "/app/hook/deliveries").json()
    assert 404 == caller.as_app("POST", f"/app/hook/deliveries/{delivery.id}/attempts").status_code
    with pytest.raises(KeyError):
        sim.redeliver(delivery.guid)


def test_a_payload_over_25_mb_is_not_sent(up: Upstream, receiver: Receiver) -> None:
    """GitHub drops it without a delivery."""
    count = len(receiver.got)

    delivery = up.open_pull_request(body="x" * 25_000_001).deliveries[0]

    assert (count, True) == (len(receiver.got), "25 MB" in (delivery.response.error or ""))
