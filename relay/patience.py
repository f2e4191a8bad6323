"""How long the relay waits for a caller that is slow to say what it wants.

uvicorn closes an idle connection only after its first answer. A connection that never sends a request, or sends it a
byte a minute, would be held for as long as it likes, and a few thousand of them would leave no place for anybody else.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: From a connection's begin, or from a request's first byte, to the end of the request's headers, in seconds.
HEAD_SECONDS = 20.0


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which also closes a connection whose request does not get as far as its body."""

    head_seconds = HEAD_SECONDS
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A caller connected, and has so long to ask for something."""
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, and nothing is waited for any more."""
        self._head_came()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """The first byte of a request, also of a later one on this connection."""
        super().on_message_begin()
        if self._head_timer is None:
            self._wait_for_head()

    def on_headers_complete(self) -> None:
        """What is asked for is known; how long its body may take is the reader's to say."""
        self._head_came()
        super().on_headers_complete()

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_seconds, self.transport.close)

    def _head_came(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
