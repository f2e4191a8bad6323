"""Who takes part in the simulator's tests: a clock, a caller of its API, and a receiver of its webhooks."""

from __future__ import annotations

import contextlib
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import jwt

from relay.simulator import App, Simulator
from relay.simulator.keys import plain_http


class Clock:
    """A clock that moves only when it is told to."""

    def __init__(self) -> None:
        self.at = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def forward(self, **span: float) -> None:
        self.at += timedelta(**span)


class Caller:
    """Calls the simulated API as an app does: by JWT, and by installation tokens that it asks for."""

    def __init__(self, sim: Simulator, app: App, clock: Clock) -> None:
        self.sim, self.app, self.clock = sim, app, clock
        self.http = httpx2.Client(base_url=sim.url, trust_env=False, timeout=5.0, verify=plain_http())

    def jwt(self, *, key: str | None = None, algorithm: str = "RS256", **claims: Any) -> str:
        now = int(self.clock.now().timestamp())
        whole = {"iat": now - 60, "exp": now + 540, "iss": str(self.app.id), **claims}
        whole = {name: value for name, value in whole.items() if value is not None}
        return jwt.encode(whole, key or self.app.private_key_pem, algorithm=algorithm)

    def as_app(self, method: str, path: str, *, token: str | None = None, **more: Any) -> httpx2.Response:
        headers = {"authorization": f"Bearer {token or self.jwt()}"}
        return self.http.request(method, path, headers=headers, **more)

    def mint(self, installation: int, **body: Any) -> str:
        answer = self.as_app("POST", f"/app/installations/{installation}/access_tokens", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])

    def call(
        self, token: str | None, method: str, path: str, headers: dict[str, str] | None = None, **more: Any
    ) -> httpx2.Response:
        given = {"authorization": f"Bearer {token}"} if token else {}
        return self.http.request(method, path, headers={**given, **(headers or {})}, **more)


class Receiver:
    """A webhook receiver that keeps what it got and answers as it is told."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.status = 202
        self.hang = threading.Event()
        self.hang.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                receiver.hang.wait(5)
                with contextlib.suppress(ConnectionError):  # Who sent it may not have waited.
                    self.send_response(receiver.status)
                    self.send_header("content-length", "2")
                    self.end_headers()
                    self.wfile.write(b"{}")

            def log_message(self, *_: Any) -> None:
                """Keep the test output clean."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.hang.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
