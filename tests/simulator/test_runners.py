"""Backends' runs: jobs by the real reporting script, directly, or by hand; re-runs; the tokens of runners."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest

from relay.simulator import App, Backend, JobPlan, Listener, Mode, Reports, Simulator, wait_until
from tests.simulator.scene import Caller, Clock

PAYLOAD = {"event_type": "pull_request", "delivery_id": "d-1", "payload": {"action": "opened"}, "relay": {"token": "t"}}


class FakeRelay:
    """Takes callbacks, keeps them, and answers as scripted; 200 when the script is over."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, Any]]] = []
        self.script: list[int] = []
        relay = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                relay.got.append((self.headers["authorization"].removeprefix("Bearer "), json.loads(body)))
                answer = b'{"ok": true, "status": "recorded"}'
                self.send_response(relay.script.pop(0) if relay.script else 200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                """Keep the test output clean."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/github/callback"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def relay(sim: Simulator) -> Iterator[FakeRelay]:
    made = FakeRelay()
    sim.callback_url = made.url
    yield made
    made.close()


@pytest.fixture
def start(sim: Simulator, app: App, caller: Caller) -> Callable[..., Backend]:
    """Create a backend with a listener and dispatch to it."""

    def make(listener: Listener, name: str = "org/npu", payload: dict[str, Any] | None = None) -> Any:
        be = sim.create_backend(name, listener=listener)
        token = caller.mint(be.installation.id)
        body = {"event_type": "pull_request", "client_payload": payload or PAYLOAD}
        assert 204 == caller.call(token, "POST", f"/repos/{name}/dispatches", json=body).status_code
        return be

    return make


def test_a_job_reports_by_the_real_script(start: Callable[..., Backend], relay: FakeRelay) -> None:
    """Start and end are told by callback_action/report.py in a process, with a token minted in the step."""
    failing = JobPlan(
        name="test / x86",
        backend_version="7.1",
        suite_version="2.9",
        environment={"python": "3.11"},
        conclusion="failure",
        passed=2,
        failed_tests=(("TestAdd", "test_add", 'Tensor-likes are not "close" <&>'),),
    )
    be = start(Listener(jobs=(failing,), expected_jobs=1))

    run = be.wait_until_done(timeout=40)[0]

    steps = run.jobs[0].reports
    assert [("in_progress", 0), ("completed", 0)] == [(step.status, step.exit_code) for step in steps], steps
    told = [body["workflow"] for _, body in relay.got]
    assert ["in_progress", "completed"] == [item["status"] for item in told]
    last = told[-1]
    assert ("failure", "test / x86", str(run.id), "1") == (
        last["conclusion"],
        last["job_name"],
        str(last["run_id"]),
        str(last["run_attempt"]),
    )
    assert {"backend_version": "7.1", "suite_version": "2.9"}.items() <= last["combination"].items()
    assert (2, 1) == (last["test_results"]["passed"], last["test_results"]["failed"])
    assert ["test_add"] == [item["name"] for item in last["failed_tests"]]
    claims = jwt.decode(relay.got[-1][0], options={"verify_signature": False})
    assert ("org/npu", str(be.id), str(run.id), "repository_dispatch") == (
        claims["repository"],
        claims["repository_id"],
        claims["run_id"],
        claims["event_name"],
    )
    assert str(run.jobs[0].id) == claims["check_run_id"]


def test_the_end_of_the_simulator_is_the_end_of_its_scripts(
    sim: Simulator, start: Callable[..., Backend], relay: FakeRelay
) -> None:
    """A script tries for minutes to reach a relay that is down, and nobody waits for it who wants to go home."""
    relay.script = [503] * 100
    start(Listener(jobs=(JobPlan(reports=Reports.COMPLETED),)))
    wait_until(lambda: relay.got != [], what="a script that tries")
    began = time.monotonic()

    sim.stop()

    # It waits a second and more between its tries, and would go on for two minutes.
    assert time.monotonic() - began < 5
    tried = len(relay.got)
    time.sleep(1.5)
    assert tried == len(relay.got)


def test_a_step_without_a_relay_to_reach_keeps_its_output(sim: Simulator, start: Callable[..., Backend]) -> None:
    """The exit code and the words of the script are there to be looked at."""
    be = start(Listener(jobs=(JobPlan(reports=Reports.COMPLETED),)))

    run = be.wait_until_done(timeout=40)[0]

    assert 1 == len(run.jobs[0].reports)
    assert run.jobs[0].reports[0].output


def test_direct_reports_carry_what_the_script_would_send(start: Callable[..., Backend], relay: FakeRelay) -> None:
    """The same body without a process, for stories that run by the hundred."""
    plan = JobPlan(name="leg", backend_version="7.1", conclusion="failure", failed_tests=(("C", "t", "m"),))
    be = start(Listener(jobs=(plan, JobPlan(name="other")), mode=Mode.DIRECT, expected_jobs=2))

    run = be.wait_until_done()[0]

    assert "failure" == run.conclusion
    assert 4 == len(relay.got)
    body = next(item for _, item in relay.got if item["workflow"]["conclusion"] == "failure")
    assert PAYLOAD == {key: value for key, value in body.items() if key != "workflow"}
    assert (2, "leg", {"backend_version": "7.1"}) == (
        body["workflow"]["expected_jobs"],
        body["workflow"]["job_name"],
        body["workflow"]["combination"],
    )


def test_a_direct_report_that_was_not_taken_is_sent_again(start: Callable[..., Backend], relay: FakeRelay) -> None:
    """503 and 429 are tried again, as the script does; 422 is final."""
    relay.script = [503, 429, 200]
    be = start(Listener(jobs=(JobPlan(reports=Reports.COMPLETED),), mode=Mode.DIRECT))
    assert 200 == be.wait_until_done()[0].jobs[0].reports[0].answer
    assert 3 == len(relay.got)

    relay.script = [422]
    other = start(Listener(jobs=(JobPlan(reports=Reports.COMPLETED),), mode=Mode.DIRECT), name="org/gpu")
    assert (422, 1) == (
        other.wait_until_done()[0].jobs[0].reports[0].answer,
        other.runs[0].jobs[0].reports[0].exit_code,
    )
    assert 4 == len(relay.got)


@pytest.mark.parametrize(
    ("reports", "told", "conclusion"),
    [
        (Reports.BOTH, ["in_progress", "completed"], "success"),
        (Reports.COMPLETED, ["completed"], "success"),
        (Reports.SILENT, [], "success"),
        (Reports.DIES, ["in_progress"], "failure"),
    ],
)
def test_a_job_reports_as_its_plan_says(
    start: Callable[..., Backend], relay: FakeRelay, reports: Reports, told: list[str], conclusion: str
) -> None:
    """A silent job is one that GitHub shows as done and nobody heard of; a lost runner's job fails at GitHub."""
    be = start(Listener(jobs=(JobPlan(reports=reports),), mode=Mode.DIRECT))

    run = be.wait_until_done()[0]

    assert told == [body["workflow"]["status"] for _, body in relay.got]
    assert conclusion == run.conclusion


def test_rerun_failed_runs_only_what_failed(
    sim: Simulator, start: Callable[..., Backend], relay: FakeRelay, caller: Caller
) -> None:
    """The others are carried over, the run has one attempt more, and the payload is the old one."""
    plans = (JobPlan(name="good"), JobPlan(name="flaky", conclusion="failure", flaky_until=2))
    be = start(Listener(jobs=plans, mode=Mode.DIRECT))
    run = be.wait_until_done()[0]
    token = caller.mint(be.installation.id)
    assert ("failure", 1) == (run.conclusion, run.attempt)

    answer = caller.call(token, "POST", f"/repos/org/npu/actions/runs/{run.id}/rerun-failed-jobs")

    assert 201 == answer.status_code
    wait_until(lambda: run.status == "completed" and run.attempt == 2)
    assert ("success", ["flaky"]) == (run.conclusion, [job.name for job in run.attempts[1].jobs])
    jobs = caller.call(token, "GET", f"/repos/org/npu/actions/runs/{run.id}/attempts/2/jobs").json()
    assert {"good", "flaky"} == {job["name"] for job in jobs["jobs"]}
    first = caller.call(token, "GET", f"/repos/org/npu/actions/runs/{run.id}/attempts/1").json()
    assert ("failure", 1) == (first["conclusion"], first["run_attempt"])
    assert "2" == relay.got[-1][1]["workflow"]["run_attempt"]
    nothing_failed = caller.call(token, "POST", f"/repos/org/npu/actions/runs/{run.id}/rerun-failed-jobs")
    assert 403 == nothing_failed.status_code


def test_a_run_that_runs_cannot_be_rerun_and_one_that_ended_not_cancelled(
    sim: Simulator, start: Callable[..., Backend], caller: Caller
) -> None:
    """403 "already running", 409 when it is over."""
    be = start(Listener(jobs=(JobPlan(reports=Reports.SILENT, duration=30),), mode=Mode.DIRECT))
    token = caller.mint(be.installation.id)
    run = be.wait_for_runs()[0]
    wait_until(lambda: run.status == "in_progress")
    path = f"/repos/org/npu/actions/runs/{run.id}"

    running = caller.call(token, "POST", f"{path}/rerun")
    assert (403, "This workflow is already running") == (running.status_code, running.json()["message"])
    assert 202 == caller.call(token, "POST", f"{path}/cancel").status_code
    assert ("completed", "cancelled") == (run.status, run.conclusion)
    assert 409 == caller.call(token, "POST", f"{path}/cancel").status_code


def test_a_run_is_rerun_within_30_days_and_50_times(
    start: Callable[..., Backend], caller: Caller, clock: Clock
) -> None:
    """Both limits are GitHub's, and past them a new dispatch is the only way."""
    be = start(Listener(jobs=(JobPlan(reports=Reports.SILENT),), mode=Mode.DIRECT))
    run = be.wait_until_done()[0]
    for _ in range(50):
        be.rerun(run)
        wait_until(lambda: run.status == "completed")
    token = caller.mint(be.installation.id)
    path = f"/repos/org/npu/actions/runs/{run.id}/rerun"

    assert (51, 403) == (run.attempt, caller.call(token, "POST", path).status_code)

    other = start(Listener(jobs=(JobPlan(reports=Reports.SILENT),), mode=Mode.DIRECT), name="org/gpu")
    late = other.wait_until_done()[0]
    clock.forward(days=30, seconds=1)
    path = f"/repos/org/gpu/actions/runs/{late.id}/rerun"
    answer = caller.call(caller.mint(other.installation.id), "POST", path)
    assert (403, True) == (answer.status_code, "over a month ago" in answer.json()["message"])


def test_runs_are_found_by_event_time_and_title(start: Callable[..., Backend], caller: Caller, clock: Clock) -> None:
    """A dispatch's run is known by its title; filters narrow the list."""
    be = start(Listener(jobs=(JobPlan(reports=Reports.SILENT),), mode=Mode.DIRECT))
    be.wait_until_done()
    token = caller.mint(be.installation.id)

    def titles(query: str) -> list[str]:
        found = caller.call(token, "GET", f"/repos/org/npu/actions/runs?{query}")
        assert 200 == found.status_code, found.text
        return [item["display_title"] for item in found.json()["workflow_runs"]]

    assert ["crcr d-1"] == titles("event=repository_dispatch")
    assert [] == titles("event=push")
    assert ["crcr d-1"] == titles("created=>=2026-11-30T12:00:00Z")
    assert [] == titles("created=>=2026-11-30T12:00:01Z")
    assert ["crcr d-1"] == titles("created=2026-11-30T11:00:00Z..2026-11-30T12:00:00Z")
    assert [] == titles("status=failure")
    assert 422 == caller.call(token, "GET", "/repos/org/npu/actions/runs?created=soon").status_code


def test_no_runner_is_free_until_one_is(sim: Simulator, start: Callable[..., Backend]) -> None:
    """Runs stay queued, as those of self-hosted runners do for hours."""
    sim.free_runners = False
    be = start(Listener(jobs=(JobPlan(reports=Reports.SILENT),), mode=Mode.DIRECT))
    assert "queued" == be.runs[0].status

    sim.free_runners = True

    assert "success" == be.wait_until_done()[0].conclusion


def test_the_runner_s_token_endpoint_serves_only_a_job_that_runs(start: Callable[..., Backend], caller: Caller) -> None:
    """The request token is the job's own, and it ends with the job."""
    be = start(Listener(jobs=(JobPlan(reports=Reports.SILENT, duration=30),), mode=Mode.DIRECT))
    run = be.wait_for_runs()[0]
    wait_until(lambda: run.status == "in_progress")
    path, shown = f"/_actions/idtoken/{run.id}?api-version=2.0&audience=me", run.jobs[0].request_token

    answer = caller.call(shown, "GET", path)
    assert "me" == jwt.decode(answer.json()["value"], options={"verify_signature": False})["aud"]
    assert 401 == caller.call("guessed", "GET", path).status_code
    assert 404 == caller.call(shown, "GET", "/_actions/idtoken/1?audience=me").status_code
    be.cancel(run)
    assert 401 == caller.call(shown, "GET", path).status_code


def test_a_callback_by_hand_can_say_anything(start: Callable[..., Backend], relay: FakeRelay) -> None:
    """A test forges what it likes, with a token that is as real as any."""
    be = start(Listener(jobs=(JobPlan(reports=Reports.SILENT),), mode=Mode.DIRECT))
    run = be.wait_until_done()[0]

    answer = be.callback(run, conclusion="banana", job="j", event_name="schedule", drop=("relay",), check_run_id="9")

    assert (200, True) == (answer.status, answer.json["ok"])
    token, body = relay.got[-1]
    claims = jwt.decode(token, options={"verify_signature": False})
    assert ("schedule", str(run.id)) == (claims["event_name"], claims["run_id"])
    assert ("banana", "9", str(run.id)) == (
        body["workflow"]["conclusion"],
        body["workflow"]["check_run_id"],
        body["workflow"]["run_id"],
    )
    assert "relay" not in body
    assert (str(run.id), "2") == (
        be.callback(be.dispatches[0], attempt=2).json and relay.got[-1][1]["workflow"]["run_id"],
        relay.got[-1][1]["workflow"]["run_attempt"],
    )


def test_a_filtered_list_of_runs_ends_at_a_thousand(start: Callable[..., Backend], caller: Caller) -> None:
    """Older runs cannot be found by a search, only by walking all."""
    be = start(Listener(jobs=(JobPlan(reports=Reports.SILENT),), mode=Mode.DIRECT))
    sample = be.wait_until_done()[0]
    for number in range(1000):
        be.repository.runs[number] = dataclasses.replace(sample, id=number)
    token = caller.mint(be.installation.id)

    def total(query: str) -> int:
        return int(caller.call(token, "GET", f"/repos/org/npu/actions/runs{query}").json()["total_count"])

    assert (1001, 1000) == (total(""), total("?event=repository_dispatch"))


def test_at_most_so_many_scripts_run_at_once(clock: Clock, tmp_path: Path) -> None:
    """Six jobs and two places: the demo must not start thirty processes on a small machine."""
    script = tmp_path / "report.py"
    script.write_text(
        "import os, pathlib, time\n"
        f"place = pathlib.Path({str(tmp_path)!r})\n"
        "mine = place / f'{os.getpid()}.running'\n"
        "mine.touch()\n"
        "print(len(list(place.glob('*.running'))))\n"
        "time.sleep(0.1)\n"
        "mine.unlink()\n"
    )
    with Simulator(now=clock.now, processes=2) as sim:
        sim.create_app()
        sim.world.runners.step.script = script
        plans = tuple(JobPlan(name=str(number), reports=Reports.COMPLETED) for number in range(6))
        be = sim.create_backend("org/npu", listener=Listener(jobs=plans))
        sim.dispatch("org/npu", "push", {"delivery_id": "d"})
        run = be.wait_until_done()[0]

    seen = [int(job.reports[0].output) for job in run.jobs]
    assert (6, True) == (len(seen), max(seen) <= 2)
