"""Check runs: what GitHub refuses, what it shows, and what lets a pull request be merged."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from relay.simulator import App, PullRequest, Simulator, Upstream
from relay.simulator.model import CheckRun
from tests.simulator.scene import Caller, Clock, Receiver


@pytest.fixture
def up(sim: Simulator, app: App) -> Upstream:
    return sim.create_upstream("pytorch/pytorch")


@pytest.fixture
def pr(up: Upstream) -> PullRequest:
    return up.open_pull_request()


@pytest.fixture
def write(up: Upstream, pr: PullRequest, caller: Caller) -> Callable[..., Any]:
    """Create a check run, or update the one of the given id."""
    token = caller.mint(up.installation.id)

    def send(number: int | None = None, **body: Any) -> Any:
        if number is None:
            body = {"name": "crcr/gate", "head_sha": pr.head_sha, **body}
            body = {name: value for name, value in body.items() if value is not None}
            return caller.call(token, "POST", "/repos/pytorch/pytorch/check-runs", json=body)
        return caller.call(token, "PATCH", f"/repos/pytorch/pytorch/check-runs/{number}", json=body)

    return send


def test_a_check_run_is_created_and_updated_in_place(
    up: Upstream, pr: PullRequest, write: Callable[..., Any], clock: Clock
) -> None:
    """What an update leaves out stays; a conclusion completes the run."""
    made = write(external_id="row-1", output={"title": "Waiting", "summary": "Two backends."})
    assert (201, "queued", None) == (made.status_code, made.json()["status"], made.json()["conclusion"])

    clock.forward(minutes=5)
    done = write(made.json()["id"], conclusion="success", output={"title": "Passed", "summary": "All."})

    assert (200, "completed", "2026-11-30T12:05:00Z") == (
        done.status_code,
        done.json()["status"],
        done.json()["completed_at"],
    )
    check = up.checks(pr.head_sha)["crcr/gate"]
    assert ("row-1", "Passed", 2) == (check.external_id, check.title, len(check.writes))
    again = write(made.json()["id"], status="in_progress").json()
    assert ("in_progress", None, None) == (again["status"], again["conclusion"], again["completed_at"])


def _long(name: str, size: int) -> dict[str, Any]:
    return {"output": {"title": "t", "summary": "s", name: "x" * size}}


_NOTE = {"path": "a", "start_line": 1, "end_line": 1, "annotation_level": "failure", "message": "m"}
_BUTTON = {"label": "Again", "description": "Run it again", "identifier": "rerun"}


@pytest.mark.parametrize(
    "body",
    [
        {"name": None},
        {"name": ""},
        {"head_sha": None},
        {"head_sha": "f" * 40},
        {"status": "running"},
        {"status": "waiting"},
        {"status": "completed"},
        {"completed_at": "2026-11-30T12:00:00Z"},
        {"conclusion": "stale"},
        {"conclusion": "banana"},
        {"started_at": "noon"},
        {"output": "text"},
        {"output": {"title": "t"}},
        {"output": {"summary": "s"}},
        _long("summary", 65_536),
        _long("text", 65_536),
        {"output": {"title": "t", "summary": "s", "annotations": [_NOTE] * 51}},
        {"output": {"title": "t", "summary": "s", "annotations": [{"path": "a"}]}},
        {"actions": [_BUTTON] * 4},
        {"actions": [{**_BUTTON, "label": "x" * 21}]},
        {"actions": [{**_BUTTON, "description": "x" * 41}]},
        {"actions": [{**_BUTTON, "identifier": "x" * 21}]},
        {"actions": [{"label": "Again"}]},
    ],
    ids=lambda body: json.dumps(body)[:60],
)
def test_a_check_run_that_breaks_a_rule_is_422_and_changes_nothing(
    up: Upstream, pr: PullRequest, write: Callable[..., Any], body: dict[str, Any]
) -> None:
    """Each rule of the endpoint, one at a time."""
    answer = write(**body)

    assert (422, {}) == (answer.status_code, up.checks(pr.head_sha))


def test_a_check_run_at_its_limits_is_accepted(write: Callable[..., Any]) -> None:
    """Every limit itself is allowed."""
    output = {"title": "t", "summary": "x" * 65_535, "text": "x" * 65_535, "annotations": [_NOTE] * 50}
    action = {"label": "x" * 20, "description": "x" * 40, "identifier": "x" * 20}

    assert 201 == write(output=output, actions=[action] * 3).status_code


def test_only_the_app_that_created_a_check_may_change_it(
    sim: Simulator, up: Upstream, pr: PullRequest, write: Callable[..., Any], caller: Caller, clock: Clock
) -> None:
    """Another app's token is refused, with the app named."""
    number = write().json()["id"]
    other = sim.create_app(4343)
    installation = sim.world.installation_of(other, up.repository)
    assert installation is None
    place = type(up)(sim._site, up.repository, other)
    place.install()
    foreign = type(caller)(sim, other, clock)
    token = foreign.mint(place.installation.id)

    answer = caller.call(token, "PATCH", f"/repos/pytorch/pytorch/check-runs/{number}", json={"status": "in_progress"})

    foreign.http.close()
    assert (403, True) == (answer.status_code, "Invalid app_id `4343`" in answer.json()["message"])
    assert "queued" == up.checks(pr.head_sha)["crcr/gate"].status


def test_of_one_name_the_newest_shows_and_an_app_has_one_suite_per_commit(
    up: Upstream, pr: PullRequest, write: Callable[..., Any], caller: Caller
) -> None:
    """An older check run of the name is kept, and hidden."""
    first = write(conclusion="failure").json()
    second = write(status="in_progress").json()
    token = caller.mint(up.installation.id)
    path = f"/repos/pytorch/pytorch/commits/{pr.head_sha}"

    latest = caller.call(token, "GET", f"{path}/check-runs").json()
    assert [second["id"]] == [item["id"] for item in latest["check_runs"]]
    assert first["check_suite"]["id"] == second["check_suite"]["id"]
    assert 1 == caller.call(token, "GET", f"{path}/check-suites").json()["total_count"]
    assert 2 == caller.call(token, "GET", f"{path}/check-runs?filter=all").json()["total_count"]
    assert 0 == caller.call(token, "GET", f"{path}/check-runs?check_name=other").json()["total_count"]
    assert ([first["id"], second["id"]], second["id"]) == (
        [item.id for item in up.check_runs(pr.head_sha, "crcr/gate")],
        up.checks(pr.head_sha)["crcr/gate"].id,
    )


def test_a_suite_keeps_a_thousand_check_runs_of_one_name(
    up: Upstream, pr: PullRequest, write: Callable[..., Any]
) -> None:
    """The oldest goes first."""
    first = write().json()["id"]
    kept = up.repository.check_runs
    sample = kept[first]
    for number in range(1, 1000):
        kept[number] = CheckRun(number, sample.name, sample.head_sha, sample.app, sample.suite, sample.started_at)
        sample.suite.runs.append(kept[number])

    write()

    assert (1000, False) == (len(up.check_runs(pr.head_sha, "crcr/gate")), first in kept)


def test_an_unknown_check_or_archived_repository_is_refused(up: Upstream, write: Callable[..., Any]) -> None:
    """404 for what is not there, 403 for what is read-only."""
    assert 404 == write(1, status="queued").status_code
    assert 404 == write(10**30, status="queued").status_code
    up.archive()
    assert 403 == write().status_code


def test_required_checks_are_matched_by_name_app_and_conclusion(
    up: Upstream, pr: PullRequest, write: Callable[..., Any], app: App
) -> None:
    """Success, skipped and neutral satisfy; what never came is expected; a foreign app's check does not count."""
    up.require("crcr/gate", app.id)
    up.require("lint", app.id + 1)
    assert {"crcr/gate": "expected", "lint": "expected"} == up.required_status(pr).contexts

    write(name="lint", conclusion="success")
    write(name="CRCR/gate", conclusion="success")
    assert {"crcr/gate": "expected", "lint": "expected"} == up.required_status(pr).contexts
    up.repository.required.pop()

    number = write().json()["id"]
    assert ({"crcr/gate": "pending"}, False) == (up.required_status(pr).contexts, up.required_status(pr).mergeable)
    for conclusion in ("success", "skipped", "neutral", "failure", "cancelled", "timed_out", "action_required"):
        write(number, conclusion=conclusion)
        assert (conclusion in {"success", "skipped", "neutral"}) == up.required_status(pr).mergeable, conclusion


def test_the_newest_check_of_a_name_decides(up: Upstream, pr: PullRequest, write: Callable[..., Any]) -> None:
    """A new check run of the name that is still pending takes an older success back."""
    up.require("crcr/gate")
    write(conclusion="success")
    write(status="in_progress")

    assert ({"crcr/gate": "pending"}, False) == (up.required_status(pr).contexts, up.required_status(pr).mergeable)


def test_a_required_check_must_be_on_the_newest_head(up: Upstream, pr: PullRequest, write: Callable[..., Any]) -> None:
    """A push makes the merge box wait anew."""
    up.require("crcr/gate")
    write(conclusion="success")
    assert up.required_status(pr).mergeable

    pr.push()

    assert {"crcr/gate": "expected"} == up.required_status(pr).contexts


def test_check_events_reach_every_app_but_presses_only_their_own(
    sim: Simulator, up: Upstream, pr: PullRequest, write: Callable[..., Any], receiver: Receiver
) -> None:
    """created and completed go to all who listen; rerequested and requested_action to the check's app alone."""
    write(conclusion="failure", actions=[_BUTTON])
    other = sim.create_app(4343)
    type(up)(sim._site, up.repository, other).install()
    sim.webhook_url = receiver.url

    up.rerequest_check(pr.head_sha, "crcr/gate", "reviewer")
    up.press_action(pr.head_sha, "crcr/gate", "rerun", "reviewer")
    up.rerequest_suite(pr.head_sha, "reviewer")
    sent = [(json.loads(body)["action"], head["x-github-hook-installation-target-id"]) for head, body in receiver.got]

    own = str(up.app.id)
    assert [("rerequested", own), ("requested_action", own), ("rerequested", own)] == sent
    pressed = json.loads(receiver.got[1][1])
    assert ("rerun", "reviewer", []) == (
        pressed["requested_action"]["identifier"],
        pressed["sender"]["login"],
        pressed["check_run"]["pull_requests"],
    )
    write(conclusion="success")
    deliveries = [(item.action, item.app.id) for item in sim.deliveries if item.event == "check_run"]
    assert {("created", up.app.id), ("created", 4343), ("completed", up.app.id), ("completed", 4343)} == set(
        deliveries[2:]
    )


def test_a_check_names_its_pull_request_unless_it_comes_from_a_fork(
    up: Upstream, pr: PullRequest, write: Callable[..., Any]
) -> None:
    """So a map from head to pull request has to be kept by whoever needs it."""
    own = up.open_pull_request(fork=False)

    assert [] == write().json()["pull_requests"]
    assert [own.number] == [item["number"] for item in write(head_sha=own.head_sha).json()["pull_requests"]]
