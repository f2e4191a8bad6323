"""What backends and strangers send at once, and what they would have us do: over real sockets, seen from outside."""

from __future__ import annotations

import re
import socket
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from relay.simulator import JobPlan, Listener, Mode, Reports
from tests.stories.world import World

BY_HAND = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)


@contextmanager
def trap() -> Iterator[tuple[str, list[str]]]:
    """A server inside our network, its address, and the first line of whatever it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def handle_one_request(self) -> None:
            asked.append(self.rfile.readline().decode())
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        def log_message(self, *_said: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.slow
def test_a_burst_of_honest_callbacks_is_taken_whole(world: World) -> None:
    """47 jobs end in the same seconds, each with two callbacks, each sent twice by an impatient client (CASES 21)."""
    backend = world.backend("org/l4", "L4", BY_HAND)
    world.start()
    world.up.open_pull_request()
    (run,) = backend.wait_for_runs()
    world.idle()
    calls = [(status, conclusion, f"job {n}") for n in range(47) for status, conclusion in
             (("in_progress", None), ("completed", "success"))] * 2  # fmt: skip

    with ThreadPoolExecutor(50) as together:
        answers = list(together.map(lambda call: backend.callback(run, *call), calls))

    assert {200} == {answer.status for answer in answers}
    world.idle()
    assert "success" == world.up.checks(run.client_payload["relay"]["change"]["head_sha"])["crcr/gate"].conclusion
    (mine,) = world.change(run)["backends"]
    (combination,) = mine["combinations"]
    assert ["success"] * 47 == [leg["conclusion"] for leg in combination["legs"]]


def test_no_address_of_a_report_is_ever_asked(world: World) -> None:
    """They are shown as links. Whoever may report could otherwise have us ask inside our own network."""
    backend = world.backend("org/l4", "L4", BY_HAND)
    world.start()
    world.up.open_pull_request()
    (run,) = backend.wait_for_runs()
    world.idle()
    with trap() as (inside, asked):
        answer = backend.callback(run, "completed", "failure", artifact_url=f"{inside}/artifact")
        world.idle()
        (combination,) = world.change(run)["backends"][0]["combinations"]
        seen = list(asked)
        urllib.request.urlopen(f"{inside}/looked", timeout=5).close()

    assert 200 == answer.status
    assert f"{inside}/artifact" == combination["legs"][0]["artifact_url"]
    assert ([], ["GET /looked HTTP/1.1\r\n"]) == (seen, asked)


@pytest.mark.parametrize("delivery_id", ["x\x1b[2J", "x\x7f", "x\u00e9", "x" * 129, "x\ty"])
def test_a_delivery_s_name_commands_nothing(world: World, delivery_id: str) -> None:
    """It stands in logs, on pages and in the payload of every backend."""
    world.start()

    assert 400 == world.post("ping", {"zen": "x"}, headers={"X-GitHub-Delivery": delivery_id}).status


def test_the_end_of_a_body_and_the_next_request_may_come_together(world: World) -> None:
    """Who was refused before its body was read sends on, and its next request is heard, however long that body was."""
    world.start()
    long = b"x" * 450_000
    refused = b"POST /github/callback HTTP/1.1\r\nHost: relay\r\nContent-Length: %d\r\n\r\n" % len(long) + long
    with socket.create_connection(("127.0.0.1", world.port), timeout=10) as caller:
        caller.sendall(refused + b"GET /healthz HTTP/1.1\r\nHost: relay\r\nConnection: close\r\n\r\n")
        said = b""
        while piece := caller.recv(65_536):
            said += piece

    assert [b"401", b"200"] == re.findall(rb"HTTP/1.1 ([0-9]{3}) ", said)
