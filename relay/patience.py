"""How long the relay waits for a caller that is slow to ask or to listen, and how many may be connected at all.

uvicorn closes an idle connection only after its first answer. A connection that never sends a request, sends it a byte
a minute, or never reads its answer would be held for as long as it likes, and a few thousand of them would leave no
place, or no file descriptor, for anybody else.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: From a connection's begin, or from a request's first byte, to the end of the request's headers, in seconds.
HEAD_SECONDS = 20.0
#: How long a caller may leave the next piece of its answer unread, in seconds.
READ_SECONDS = 60.0
#: What a request may hold beside its body, in bytes: headers, trailers, and the sizes of chunks. GitHub's and our
#: action's are below 20,000; uvicorn's parser has no bound of its own, and keeps in memory whatever comes.
MOST_BESIDE = 131_072
#: So many bytes beside each byte of body are the sizes of its chunks.
_PER_BYTE = 8


class Room:
    """The connections of one server. When ``most`` are there, whoever comes takes the place of the longest idle one.

    A connection is idle while nothing is being answered on it: what is under way is never cut off. Where all are busy,
    ``spare`` more may come in, to be told so, and the others are turned away.
    """

    def __init__(self, most: int, spare: int) -> None:
        self._most = most
        self._spare = spare
        self._inside: set[PatientProtocol] = set()
        self._idle: dict[PatientProtocol, None] = {}  # The longest idle first.

    def enter(self, caller: PatientProtocol) -> bool:
        """Whether there is a place."""
        if len(self._inside) >= self._most and self._idle:
            longest = next(iter(self._idle))
            self.leave(longest)
            # Closed in good manners, it would stay until its last answer is read.
            longest.transport.abort()
        if len(self._inside) >= self._most + self._spare:
            return False
        self._inside.add(caller)
        self._idle[caller] = None
        return True

    def leave(self, caller: PatientProtocol) -> None:
        """The connection is gone, or as good as gone."""
        self._inside.discard(caller)
        self._idle.pop(caller, None)

    def busy(self, caller: PatientProtocol) -> None:
        """Something is being answered on it."""
        self._idle.pop(caller, None)

    def idle(self, caller: PatientProtocol) -> None:
        """Nothing is, any more."""
        if caller in self._inside:
            self._idle[caller] = None


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which also closes a connection whose request does not get as far as its body."""

    head_seconds = HEAD_SECONDS
    read_seconds = READ_SECONDS
    room: Room | None = None
    _head_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None
    _piece = 0
    _beside = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A caller connected, and has so long to ask for something."""
        super().connection_made(transport)
        if self.room is not None and not self.room.enter(self):
            transport.abort()
            return
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, and nothing is waited for any more."""
        self._head_came()
        self._was_read()
        if self.room is not None:
            self.room.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some bytes came. A caller that sends more than any request needs is not heard out."""
        self._piece = len(data)
        self._beside += self._piece
        super().data_received(data)
        if self._beside > MOST_BESIDE and not self.transport.is_closing():
            self.send_400_response("The request's headers are too large.")

    def on_body(self, body: bytes) -> None:
        """Some bytes of a body, which its reader counts."""
        # The end of one body and the next request may come in one piece: then only the rest of it is the request's.
        self._piece -= len(body)
        self._beside -= len(body) * (1 + _PER_BYTE)
        super().on_body(body)

    def on_message_begin(self) -> None:
        """The first byte of a request, also of a later one on this connection."""
        super().on_message_begin()
        self._beside = self._piece
        if self._head_timer is None:
            self._wait_for_head()

    def on_headers_complete(self) -> None:
        """What is asked for is known; how long its body may take is the reader's to say."""
        self._head_came()
        if self.room is not None:
            self.room.busy(self)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """A request was answered, and perhaps the next one waits already."""
        super().on_response_complete()
        if self.room is not None and self.timeout_keep_alive_task is not None:
            self.room.idle(self)

    def pause_writing(self) -> None:
        """The caller does not read as fast as we answer."""
        super().pause_writing()
        self._read_timer = self.loop.call_later(self.read_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """It has read on."""
        self._was_read()
        super().resume_writing()

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_seconds, self.transport.close)

    def _head_came(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _was_read(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None


def patient(among: Room) -> type[PatientProtocol]:
    """The protocol of a server whose connections share this room."""

    class Here(PatientProtocol):
        room = among

    return Here
