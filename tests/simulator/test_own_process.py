"""The simulator as a process of its own, told what to do over HTTP."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from relay.simulator import Simulator
from relay.simulator.keys import plain_http
from tests.simulator.scene import Caller, Receiver


@pytest.fixture
def verb(sim: Simulator, caller: Caller) -> Callable[..., Any]:
    """Call one verb of the control interface."""

    def call(name: str, /, **body: Any) -> Any:
        answer = caller.http.post(f"/_sim/{name}", json=body)
        assert 200 == answer.status_code, answer.text
        return answer.json()["result"]

    return call


def test_every_verb_does_what_the_facade_does(sim: Simulator, verb: Callable[..., Any], receiver: Receiver) -> None:
    """One story told over HTTP only: set up, open, dispatch, run, report, look."""
    verb("app", app_id=7, permissions={"contents": "write", "checks": "write", "actions": "read"})
    verb("upstream", name="pytorch/pytorch", app_id=7)
    assert 7 == sim.upstream("pytorch/pytorch").installation.app.id
    verb("backend", name="org/npu", app_id=7, listener={"jobs": [{"name": "a", "reports": "silent", "passed": 1}]})
    verb("settings", webhook_url=receiver.url, callback_url=receiver.url, limits={"points": False}, hud_key="k")
    opened = verb("open", upstream="pytorch/pytorch", title="T", labels=["x"])
    assert (1, 202, "opened") == (
        opened["number"],
        opened["deliveries"][0]["status"],
        opened["deliveries"][0]["action"],
    )
    for act, more in (
        ("push", {}),
        ("label", {"name": "y"}),
        ("unlabel", {"name": "y"}),
        ("force_push", {"to_sha": opened["head_sha"]}),
        ("close", {}),
        ("reopen", {}),
        ("edit_title", {"title": "U"}),
    ):
        assert 1 == len(verb("pull", upstream="pytorch/pytorch", number=1, act=act, **more)), act
    assert 1 == len(verb("push", upstream="pytorch/pytorch", ref="refs/heads/main"))
    assert 1 == len(verb("push_tags", upstream="pytorch/pytorch", tags=["v1"]))
    assert 1 == len(verb("comment", upstream="pytorch/pytorch", number=1, user="bob", body="hi"))
    assert 40 == len(verb("queue", upstream="pytorch/pytorch", number=1)["head_sha"])
    verb("require", upstream="pytorch/pytorch", context="crcr/gate", integration_id=7)
    box = verb("required", upstream="pytorch/pytorch", head_sha=opened["head_sha"])
    assert {"mergeable": False, "contexts": {"crcr/gate": "expected"}} == box
    assert {} == verb("checks", upstream="pytorch/pytorch", head_sha=opened["head_sha"])
    sim.dispatch("org/npu", "push", {"delivery_id": "d"})
    sim.backend("org/npu").wait_until_done()
    run = verb("runs", backend="org/npu")[0]
    assert ("crcr d", "success", ["a"]) == (run["name"], run["conclusion"], [job["name"] for job in run["jobs"]])
    assert 202 == verb("callback", backend="org/npu", run_id=run["id"], conclusion="success")["status"]
    assert 202 == verb("callback", backend="org/npu", payload={"delivery_id": "d"}, conclusion="failure")["status"]
    assert 3 == len(set(verb("mint", repository="org/npu", run_id=run["id"], count=3)))
    assert 1 == len(verb("mint_buildkite", organization_id="o", pipeline_id="p"))
    guid = opened["deliveries"][0]["guid"]
    assert (guid, True) == (verb("redeliver", guid=guid)["guid"], verb("deliveries")[-1]["redelivery"])
    assert [] == verb("hud")
    verb("place", at="org/npu", act="rename", name="org/new")
    assert "org/new" == sim.backend("org/new").name


def test_faults_and_the_log_are_reached_too(sim: Simulator, verb: Callable[..., Any], caller: Caller) -> None:
    """A fault is scripted, met, seen in the log and cleared."""
    verb("upstream", name="pytorch/pytorch")
    verb("fault", kind="server error before effect", match={"path": "/pulls"}, status=503, times=None)

    assert 503 == caller.call(None, "GET", "/repos/pytorch/pytorch/pulls").status_code
    verb("clear_faults")
    assert 200 == caller.call(None, "GET", "/repos/pytorch/pytorch/pulls").status_code
    assert [503, 200] == [entry["status"] for entry in verb("log")]
    summary = verb("summary")
    assert {"GET /repos/*/*/pulls 503": 1, "GET /repos/*/*/pulls 200": 1} == summary["by_endpoint"]
    assert (2, 0) == (summary["requests"], summary["dispatches"])
    assert [] == verb("log", since=summary["position"])
    verb("clear_log")
    assert 0 == len(sim.log)


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("push", {"upstream": "no/body"}, "KeyError"),
        ("app", {"nonsense": 1}, "TypeError"),
        ("settings", {"nonsense": 1}, "is no setting"),
        ("settings", {"limits": {"nonsense": True}}, "is no setting"),
        ("backend", {"name": "org/npu", "listener": {"jobs": [{"nonsense": 1}]}}, "no field of a job"),
        ("pull", {"upstream": "pytorch/pytorch", "number": 1, "act": "deliveries"}, "KeyError"),
        ("place", {"at": "pytorch/pytorch", "act": "did"}, "act must be one of"),
        ("fault", {"kind": "earthquake"}, "earthquake"),
    ],
)
def test_a_verb_that_is_misused_says_so(
    sim: Simulator, caller: Caller, name: str, body: dict[str, Any], words: str
) -> None:
    """400 with the reason, and the simulator lives on."""
    sim.create_upstream("pytorch/pytorch")

    answer = caller.http.post(f"/_sim/{name}", json=body)

    assert (400, True) == (answer.status_code, words in answer.json()["error"])
    assert 404 == caller.http.post("/_sim/nothing").status_code


@pytest.fixture
def process() -> Iterator[tuple[subprocess.Popen[str], str]]:
    started = subprocess.Popen(
        [sys.executable, "-m", "relay.simulator", "--latency", "0.05"], stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    yield started, started.stdout.readline().strip()
    if started.poll() is None:
        started.terminate()
    started.wait(10)
    started.stdout.close()


@pytest.mark.slow
def test_it_runs_as_a_process_and_ends_by_a_signal(process: tuple[subprocess.Popen[str], str]) -> None:
    """The first line is its address; the latency is as asked; SIGTERM ends it with 0."""
    started, url = process

    settings = httpx2.post(f"{url}/_sim/settings", json={}, trust_env=False, verify=plain_http()).json()["result"]

    assert (0.05, url, f"{url}/oidc") == (settings["latency"], settings["url"], settings["issuer"])
    started.terminate()
    assert 0 == started.wait(10)


@pytest.mark.slow
def test_a_port_that_is_taken_is_exit_2_and_one_line() -> None:
    """No traceback for an ordinary mistake."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "relay.simulator", "--port", str(port)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "error"},
            check=False,
        )

    assert (2, 1, True) == (done.returncode, len(done.stderr.splitlines()), "cannot listen on" in done.stderr)
