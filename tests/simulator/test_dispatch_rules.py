"""repository_dispatch: every limit, and what a dispatch that is accepted starts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from relay.simulator import App, Backend, JobPlan, Listener, Mode, Reports, Simulator
from tests.simulator.scene import Caller, Clock

SILENT = Listener(jobs=(JobPlan(reports=Reports.SILENT),), mode=Mode.DIRECT)


@pytest.fixture
def be(sim: Simulator, app: App) -> Backend:
    return sim.create_backend("org/npu", listener=SILENT)


@pytest.fixture
def send(be: Backend, caller: Caller) -> Callable[..., Any]:
    token = caller.mint(be.installation.id)
    return lambda **body: caller.call(token, "POST", "/repos/org/npu/dispatches", json=body)


def test_a_dispatch_answers_204_without_a_run_id_and_starts_a_run(be: Backend, send: Callable[..., Any]) -> None:
    """The caller learns of the run only by its name, which carries the delivery id."""
    answer = send(event_type="pull_request", client_payload={"delivery_id": "d-1", "relay": {"token": "cap"}})

    assert (204, b"") == (answer.status_code, answer.content)
    run = be.wait_until_done()[0]
    assert ("crcr d-1", "d-1", "cap", 1) == (run.name, run.delivery_id, run.capability, run.attempt)
    assert 1 == len(be.dispatches)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, '"event_type" wasn\'t supplied'),
        ({"event_type": ""}, "from 1 to 100"),
        ({"event_type": "x" * 101}, "from 1 to 100"),
        ({"event_type": 7}, "not a string"),
        ({"event_type": "x", "extra": 1}, "not a permitted key"),
        ({"event_type": "x", "client_payload": []}, "not an object"),
        ({"event_type": "x", "client_payload": {str(n): n for n in range(11)}}, "No more than 10 properties"),
    ],
)
def test_a_malformed_dispatch_is_422_and_starts_nothing(
    be: Backend, send: Callable[..., Any], body: dict[str, Any], words: str
) -> None:
    """Each rule of the endpoint has its own words."""
    answer = send(**body)

    assert (422, True) == (answer.status_code, words in answer.json()["message"])
    assert ([], []) == (be.runs, be.dispatches)


def test_event_type_and_keys_are_accepted_up_to_their_limits(be: Backend, send: Callable[..., Any]) -> None:
    """100 characters and 10 keys pass."""
    answer = send(event_type="x" * 100, client_payload={str(number): number for number in range(10)})

    assert 204 == answer.status_code


@pytest.mark.parametrize("letter", ["x", "€"])
def test_a_payload_of_65535_characters_passes_and_one_more_does_not(
    be: Backend, send: Callable[..., Any], letter: str
) -> None:
    """Characters are counted, not bytes, and not the escapes of JSON on the wire."""
    frame = len(json.dumps({"a": ""}, separators=(",", ":")))

    assert 204 == send(event_type="x", client_payload={"a": letter * (65_535 - frame)}).status_code
    assert 422 == send(event_type="x", client_payload={"a": letter * (65_536 - frame)}).status_code


def test_bytes_are_counted_when_the_stricter_reading_is_asked_for(
    sim: Simulator, be: Backend, send: Callable[..., Any]
) -> None:
    """GitHub's page says "less than 64KB": a scenario may read that as bytes."""
    sim.limits.dispatch_unit = "bytes"

    assert 422 == send(event_type="x", client_payload={"a": "€" * 30_000}).status_code


def test_an_archived_repository_takes_no_dispatch(be: Backend, send: Callable[..., Any]) -> None:
    """403, with words that are no permission's."""
    be.archive()

    answer = send(event_type="push")

    assert (403, "Repository was archived so is read-only.") == (answer.status_code, answer.json()["message"])


def test_a_repository_with_actions_off_takes_no_dispatch(be: Backend, send: Callable[..., Any]) -> None:
    """422, and nothing starts."""
    be.disable_actions()

    assert 422 == send(event_type="push").status_code
    assert [] == be.runs


def test_a_dispatch_where_the_app_is_not_installed_is_404(be: Backend, send: Callable[..., Any]) -> None:
    """A repository that the token does not cover does not exist for it."""
    other = be
    other.uninstall()

    assert 401 == send(event_type="push").status_code


def test_types_that_no_workflow_listens_to_start_nothing(be: Backend, send: Callable[..., Any]) -> None:
    """204 all the same: GitHub does not say whether anybody listens."""
    be.listener = Listener(jobs=(JobPlan(reports=Reports.SILENT),), types=frozenset({"nightly"}), mode=Mode.DIRECT)

    assert 204 == send(event_type="push").status_code
    assert [] == be.runs
    assert 204 == send(event_type="nightly").status_code
    assert 1 == len(be.runs)


def test_closed_is_a_run_without_jobs_where_the_workflow_leaves_it_out(be: Backend, send: Callable[..., Any]) -> None:
    """The listener's condition skips its jobs; the run is there and counts as skipped."""
    assert 204 == send(event_type="pull_request", client_payload={"payload": {"action": "closed"}}).status_code

    run = be.wait_until_done()[0]
    assert ("skipped", []) == (run.conclusion, run.jobs)


def test_more_than_500_runs_in_ten_seconds_are_not_queued(
    sim: Simulator, be: Backend, send: Callable[..., Any], clock: Clock
) -> None:
    """What comes on top is accepted and starts no run, until ten seconds are over."""
    sim.limits.points = False
    be.repository.queued_at = [clock.now().timestamp()] * 500

    assert 204 == send(event_type="push").status_code
    assert ([], 1) == (be.runs, sim.world.runners.overflowed)
    clock.forward(seconds=11)
    assert 204 == send(event_type="push").status_code
    assert 1 == len(be.runs)


def test_a_body_that_is_no_json_is_400(sim: Simulator, be: Backend, caller: Caller) -> None:
    """Problems parsing JSON."""
    token = caller.mint(be.installation.id)

    for content in (b"{", b"\xff", b"[" * 100_000):
        answer = caller.call(token, "POST", "/repos/org/npu/dispatches", content=content)
        assert (400, "Problems parsing JSON") == (answer.status_code, answer.json()["message"])


def test_a_renamed_repository_redirects_writes_by_307_to_its_id(be: Backend, caller: Caller) -> None:
    """Method and body survive a 307; reads get a 301; the new owner of the old name ends it."""
    token = caller.mint(be.installation.id)
    be.rename("org/renamed")

    answer = caller.call(token, "POST", "/repos/org/npu/dispatches", json={"event_type": "push"})
    assert (307, f"/repositories/{be.id}/dispatches") == (
        answer.status_code,
        answer.headers["location"].removeprefix(caller.sim.url),
    )
    assert 301 == caller.call(token, "GET", "/repos/org/npu").status_code
    again = caller.call(token, "POST", f"/repositories/{be.id}/dispatches", json={"event_type": "push"})
    assert (204, 1) == (again.status_code, len(be.dispatches))

    squatter = caller.sim.create_backend("org/npu", installed=False)
    assert squatter.id != be.id
    assert 404 == caller.call(token, "POST", "/repos/org/npu/dispatches", json={"event_type": "push"}).status_code
    squatter.delete()
    assert 404 == caller.call(token, "POST", "/repos/org/npu/dispatches", json={"event_type": "push"}).status_code


def test_a_deleted_repository_is_404(be: Backend, caller: Caller) -> None:
    """Gone is gone, by name and by id."""
    token = caller.mint(be.installation.id)
    be.delete()

    assert 404 == caller.call(token, "GET", "/repos/org/npu").status_code
    assert 404 == caller.call(token, "GET", f"/repositories/{be.id}").status_code
