"""A runner's surroundings for the action: an event file, an environment, and the two services that it calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

REPORT = Path(__file__).parents[2] / "callback_action" / "report.py"
CAPABILITY = "cap-0123456789abcdef"
BEARER = "runtime-bearer-0123456789"
JWT = "aaaa.bbbb.cccc"
DISPATCH: dict[str, Any] = {
    "event_type": "pull_request",
    "delivery_id": "a8f5f167-6e5b-4c3d-8a2e-4b5c6d7e8f9a",
    "payload": {"action": "opened", "pull_request": {"number": 7, "title": "a title", "head": {"sha": "3" * 40}}},
    "relay": {"schema": 1, "token": CAPABILITY, "deadline": "2026-11-30T12:00:00Z"},
}


@dataclass(frozen=True)
class Reply:
    """One scripted answer; `drop` closes the connection without any."""

    status: int = 200
    body: bytes = b'{"ok": true, "status": "recorded"}'
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: bool = False

    @staticmethod
    def problem(status: int, code: str, detail: str, **headers: str) -> Reply:
        body = json.dumps({"code": code, "detail": detail, "status": status}).encode()
        return Reply(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Services:
    """GitHub's token service at /token and a relay at /github/callback, with the answers a test writes down.

    The last answer of a script stands for all that follow.
    """

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self.callback_url = f"http://{self.address}/github/callback"
        self.token_url = f"http://{self.address}/token?api-version=2.0"
        self.token_script = [Reply(body=json.dumps({"value": JWT}).encode())]
        self.relay_script = [Reply()]
        self.mints: list[Request] = []
        self.reports: list[Request] = []

    def answer(self, request: Request) -> Reply:
        minting = request.path.startswith("/token")
        seen, script = (self.mints, self.token_script) if minting else (self.reports, self.relay_script)
        seen.append(request)
        return script[min(len(seen), len(script)) - 1]

    @property
    def body(self) -> dict[str, Any]:
        """The last report's body."""
        value: dict[str, Any] = json.loads(self.reports[-1].body)
        return value

    @property
    def workflow(self) -> dict[str, Any]:
        value: dict[str, Any] = self.body["workflow"]
        return value


def handler_for(holder: list[Services]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def exchange(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            reply = holder[0].answer(Request(self.command, self.path, dict(self.headers), body))
            self.close_connection = True
            if reply.drop:
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        def do_GET(self) -> None:
            self.exchange()

        def do_POST(self) -> None:
            self.exchange()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it
            """Says nothing: pytest's output is for people."""

    return Handler


@pytest.fixture
def services() -> Iterator[Services]:
    holder: list[Services] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), handler_for(holder)) as server:
        holder.append(Services(server.server_port))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield holder[0]
        server.shutdown()
        thread.join()


@dataclass(frozen=True)
class Step:
    """What a step left behind."""

    code: int
    log: str
    outputs: dict[str, str]
    summary: str


class Runner:
    """Runs report.py as a runner does: as a process of its own, with nothing but a runner's environment."""

    def __init__(self, folder: Path, services: Services) -> None:
        self.folder, self.services = folder, services
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.event: Any = {"action": "pull_request", "client_payload": DISPATCH}
        self.python = sys.executable
        self.env = {
            "PATH": os.environ["PATH"],
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": "repository_dispatch",
            "GITHUB_JOB": "report",
            "GITHUB_REPOSITORY": "org/backend",
            "GITHUB_RUN_ATTEMPT": "2",
            "GITHUB_RUN_ID": "24033272679",
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_WORKFLOW": "npu-ci",
            "GITHUB_WORKSPACE": str(self.workspace),
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": BEARER,
            "ACTIONS_ID_TOKEN_REQUEST_URL": services.token_url,
            "CRCR_JOB_CHECK_RUN_ID": "98765432100",
            "CRCR_RETRY_BASE": "0.01",
        }

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def run(self, **inputs: str) -> Step:
        """One step with these inputs; the callback URL is the test's relay unless given."""
        event, output, summary = (self.folder / name for name in ("event.json", "output", "summary"))
        event.write_text(self.event if isinstance(self.event, str) else json.dumps(self.event))
        output.write_text("")
        summary.write_text("")
        env = {
            **self.env,
            "GITHUB_EVENT_PATH": str(event),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(summary),
        }
        env |= {
            f"CRCR_INPUT_{name.upper()}": value
            for name, value in ({"callback_url": self.services.callback_url} | inputs).items()
        }
        done = subprocess.run(
            [self.python, str(REPORT)], env=env, cwd=self.workspace, capture_output=True, timeout=60, check=False
        )
        assert b"" == done.stderr, done.stderr.decode()
        return Step(done.returncode, done.stdout.decode(), outputs_of(output.read_text()), summary.read_text())

    def completed(self, conclusion: str = "success", **inputs: str) -> Step:
        return self.run(status="completed", conclusion=conclusion, **inputs)


def outputs_of(text: str) -> dict[str, str]:
    """The step outputs in a GITHUB_OUTPUT file, read as the runner reads them."""
    found: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        name, _, fence = line.partition("<<")
        value: list[str] = []
        for part in lines:
            if part == fence:
                break
            value.append(part)
        found[name] = "\n".join(value)
    return found


@pytest.fixture
def runner(tmp_path: Path, services: Services) -> Runner:
    return Runner(tmp_path, services)
