"""A small HTTP server on loopback, for what only real sockets show: resets, drips, floods, and PyGithub."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAR = "2099-01-01T00:00:00Z"
MINTED = {
    "token": "ghs_loopback",
    "expires_at": FAR,
    "repositories": [{"id": 7, "full_name": "org/npu", "private": False, "owner": {"id": 1}}],
}


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Handler = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Loopback:
    """What the server was asked, and how it answers each method and path (without query)."""

    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    answers: dict[tuple[str, str], Handler] = field(default_factory=dict)

    def says(self, method: str, path: str, body: Any, status: int = 200, **headers: str) -> None:
        """Answer so in JSON; header names are given with underscores."""
        self.answers[method, path] = lambda request: answer(request, status, json.dumps(body).encode(), **headers)

    def asked(self, method: str, ending: str) -> list[Seen]:
        return [one for one in self.seen if one.method == method and one.path.split("?")[0].endswith(ending)]


def answer(request: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    request.send_response(status)
    request.send_header("Content-Type", "application/json")
    if status != 204:
        request.send_header("Content-Length", str(len(body)))
    for name, value in headers.items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()
    request.wfile.write(body)


@contextmanager
def serving(prefix: str = "") -> Iterator[Loopback]:
    """Serve on a free port below ``prefix``, as an enterprise server does below /api/v3."""
    loopback = Loopback()
    loopback.says("POST", "/app/installations/50/access_tokens", MINTED, 201)

    class Request(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:
                self.close_connection = True

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.removeprefix(prefix)
            loopback.seen.append(Seen(self.command, path, {k.lower(): v for k, v in self.headers.items()}, body))
            known = loopback.answers.get((self.command, path.split("?")[0]))
            if known is None or not self.path.startswith(prefix):
                answer(self, 404, b'{"message":"Not Found"}')
            else:
                known(self)

        do_GET = do_POST = do_PATCH = _serve  # noqa: N815  The names that http.server looks for.

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Request)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    loopback.url = f"http://127.0.0.1:{server.server_port}{prefix}"
    try:
        yield loopback
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
