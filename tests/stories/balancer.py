"""What stands before several web processes: requests go to them in turns, and past those that nobody answers at."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_KEPT = {"content-type", "retry-after"}


class Balancer:
    """A reverse proxy on a port of its own. ``members`` are the URLs it spreads requests over; change them at will.

    A member that refuses the connection is passed over. One that dies in the middle of a request costs a 502: nobody
    in between can know whether it was taken.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.members: list[str] = []
        self.answered: list[tuple[str, str, int]] = []
        self._turn = itertools.count()

    def pass_on(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """The answer of the first member in turn that takes the request."""
        members, turn = list(self.members), next(self._turn)
        for number in range(len(members)):
            member = members[(turn + number) % len(members)]
            where = urlsplit(member)
            with contextlib.closing(http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)) as line:
                try:
                    line.connect()
                except OSError:
                    continue
                try:
                    line.request(method, path, body, headers)
                    answer = line.getresponse()
                    text = answer.read()
                except (OSError, http.client.HTTPException):
                    break
                self.answered.append((member, path, answer.status))
                return answer.status, dict(answer.getheaders()), text
        return 502, {}, b""


@contextlib.contextmanager
def balancing() -> Iterator[Balancer]:
    """A balancer that serves for as long as the block runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, text = balancer.pass_on(self.command, self.path, dict(self.headers.items()), body)
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() in _KEPT:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = _serve  # noqa: N815  # The names that http.server looks for.

        def log_message(self, *_arguments: object) -> None:
            """The tests ask ``answered``."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        balancer = Balancer(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="balancer")
        thread.start()
        try:
            yield balancer
        finally:
            server.shutdown()
            thread.join()
