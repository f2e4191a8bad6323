"""Posts to one address over kept connections, for the one request that is made for every report.

A library that can do anything with any server takes 0.9 ms of CPU for a post on loopback, and this takes a tenth of it:
one address, one method, no redirects, no proxies, no compression, and of an answer only what is looked at. Where any of
that is wanted, ``relay.github.http`` is used instead.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

#: How long, in seconds, a connection may take to open, and an idle one is kept: shorter than servers keep theirs.
OPEN_SECONDS = 10.0
KEEP_SECONDS = 20.0
CLOSE_SECONDS = 1.0
#: As much of an answer is kept as its reader looks at, and one of more than this is not read to its end. In bytes.
KEPT_BYTES = 8_000
MOST_BYTES = 1_000_000
_MOST_HEADERS = 32_768


@dataclass(frozen=True, slots=True)
class Posted:
    """The answer: its status, its headers by their names in lower case, and how its body begins."""

    status: int
    headers: Mapping[str, str]
    text: str


class Poster:
    """Posts bodies to one URL. Belongs to the event loop that first uses it.

    ``trust`` says which certificates are taken, where the URL is https. Raises ValueError for what is no http(s) URL,
    and for one with user info.
    """

    def __init__(self, url: str, *, trust: ssl.SSLContext) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc or not url.isascii():
            raise ValueError("expected an http(s) URL in ASCII and without user info")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._trust = None if parts.scheme == "http" else trust
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        self._line = f"POST {target} HTTP/1.1\r\nhost: {parts.netloc}\r\n"
        self._idle: list[_Connection] = []
        self._all: set[_Connection] = set()

    def head(self, headers: Mapping[str, str]) -> bytes:
        """These headers, ready for ``post``. Raises ValueError for a value that no header can carry."""
        if any(not value.isprintable() or not value.isascii() for value in headers.values()):
            raise ValueError("a header's value must be printable ASCII")
        return (self._line + "".join(f"{name}: {value}\r\n" for name, value in headers.items())).encode()

    async def post(self, head: bytes, body: bytes) -> Posted:
        """Send one body and wait for its answer. Nothing is repeated.

        Raises OSError when the way there fails or the answer is none. How long it may take is the caller's to say.
        """
        connection = self._ready() or await self._open()
        try:
            answer = await connection.ask(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body))
        except BaseException:
            # An answer that nobody waits for any more must not be taken for that to the next request.
            connection.close()
            raise
        if connection.usable:
            self._idle.append(connection)
        return answer

    async def aclose(self) -> None:
        """Close all connections, and wait until they are: the event loop may end after this."""
        self._idle.clear()
        for connection in self._all:
            connection.close()
        if self._all:
            await asyncio.wait([connection.lost for connection in self._all], timeout=CLOSE_SECONDS)

    def _ready(self) -> _Connection | None:
        """A kept connection, the one that was used last: in quiet times the others grow old."""
        while self._idle:
            connection = self._idle.pop()
            if connection.fresh():
                return connection
            connection.close()
        return None

    async def _open(self) -> _Connection:
        loop = asyncio.get_running_loop()
        name = None if self._trust is None else self._host
        async with asyncio.timeout(OPEN_SECONDS):
            _, connection = await loop.create_connection(
                _Connection, self._host, self._port, ssl=self._trust, server_hostname=name
            )
        self._all.add(connection)
        connection.lost.add_done_callback(lambda _: self._all.discard(connection))
        return connection


class _Connection(asyncio.Protocol):
    """One connection, with at most one request under way."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Posted] | None = None
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self._parser = HttpResponseParser(self)
        self._poll = select.poll()
        self._used_at = 0.0
        self._ended = False
        self._forget()

    def _forget(self) -> None:
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._seen = self._header_bytes = 0
        self._whole_head = False

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return not self._ended

    def fresh(self) -> bool:
        """Whether the other side has kept it, as far as one can tell."""
        # It may have said so already, and we not have come to hear of it.
        return not self._ended and self._loop.time() - self._used_at < KEEP_SECONDS and not self._poll.poll(0)

    async def ask(self, request: bytes) -> Posted:
        """Send a request; its answer."""
        if self._transport is None or self._ended:
            raise ConnectionResetError("the connection was closed")
        self._forget()
        self._answer = self._loop.create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        """Let go of it, whatever is under way."""
        self._ended = True
        if self._transport is not None:
            self._transport.abort()

    # What the event loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        # Not every loop's transports are asyncio's own by type.
        self._transport = cast(asyncio.Transport, transport)
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        """A piece of an answer, or of something that nobody asked for."""
        if self._answer is None or self._answer.done():
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._fail(ConnectionError(f"the answer is no HTTP: {type(error).__name__}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed. An answer without a length ends so."""
        self._ended = True
        if self._whole_head and exc is None and not self._headers.keys() & {"content-length", "transfer-encoding"}:
            self._done()
        self._fail(ConnectionResetError("the connection ended before the answer did"))
        self.lost.set_result(None)

    # What the parser tells.

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header of an answer."""
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > _MOST_HEADERS:
            self._fail(ConnectionError("the answer's headers are too large"))
        else:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """All headers are there."""
        self._whole_head = True

    def on_body(self, body: bytes) -> None:
        """A piece of an answer's body."""
        self._seen += len(body)
        self._body += body[: KEPT_BYTES - len(self._body)]
        if self._seen > MOST_BYTES:
            # Its status says all that matters, and its rest is nobody's concern.
            self._ended = True
            self._done()
            self.close()

    def on_message_complete(self) -> None:
        """The whole answer is there, or one of those that come before it."""
        if 100 <= self._parser.get_status_code() < 200:
            self._forget()
            return
        self._ended = self._ended or not self._parser.should_keep_alive()
        self._used_at = self._loop.time()
        self._done()
        if self._ended:
            self.close()

    def _done(self) -> None:
        if self._answer is not None and not self._answer.done():
            text = self._body.decode("utf-8", "replace")
            self._answer.set_result(Posted(self._parser.get_status_code(), self._headers, text))

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self.close()
