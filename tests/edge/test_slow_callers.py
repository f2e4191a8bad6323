"""Callers that never get to the point: none of them holds a place for ever."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from relay.edge.body import read_body
from relay.edge.problems import ProblemError
from relay.patience import PatientProtocol, Room, patient
from relay.serving import connections_of

_WHOLE = b"GET / HTTP/1.1\r\nHost: relay\r\n\r\n"


class _Hasty(PatientProtocol):
    head_seconds = 0.2


async def _service(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers GET at once, and POST when its body has come, for which it waits a fifth of a second."""
    request = Request(scope, receive)
    try:
        if request.method == "POST":
            await read_body(request, 100, seconds=0.2)
    except ProblemError as problem:
        await problem.response()(scope, receive, send)
        return
    await PlainTextResponse("well")(scope, receive, send)


@pytest.fixture
def port() -> Iterator[int]:
    """Where that service answers, behind a protocol that waits a fifth of a second for a request's head."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(_service, log_config=None, lifespan="off", http=_Hasty, ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.005)
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join(10)


def _answer(port: int, *parts: bytes, pause: float = 0.0) -> bytes:
    """What comes back for these parts, with a pause before each but the first, until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as caller:
        with contextlib.suppress(ConnectionError):
            for number, part in enumerate(parts):
                time.sleep(pause if number else 0.0)
                caller.sendall(part)
        heard = b""
        with contextlib.suppress(ConnectionError):
            while more := caller.recv(65_536):
                heard += more
        return heard


@pytest.mark.parametrize(
    ("parts", "pause"),
    [((), 0.0), ((b"GET / HT",), 0.0), (tuple(bytes([byte]) for byte in _WHOLE), 0.05)],
    ids=["nothing", "half a line", "a byte at a time"],
)
def test_a_request_whose_head_does_not_come_is_not_waited_for(
    port: int, parts: tuple[bytes, ...], pause: float
) -> None:
    """Two thousand connections that say nothing would leave no place for GitHub's."""
    assert b"" == _answer(port, *parts, pause=pause)


def test_a_later_request_on_the_same_connection_is_not_waited_for_either(port: int) -> None:
    """One whole request buys no more time for the next."""
    heard = _answer(port, _WHOLE, b"GET / HT", pause=0.05)

    assert 1 == heard.count(b"200 OK")


def test_a_body_that_does_not_come_is_answered_408_and_the_connection_closed(port: int) -> None:
    """A caller that is honest and slow learns why, and one that is not loses its place."""
    heard = _answer(port, b"POST / HTTP/1.1\r\nHost: relay\r\nContent-Length: 9\r\n\r\n", b"a", pause=0.05)

    assert heard.startswith(b"HTTP/1.1 408 ")
    assert b"body_too_slow" in heard


def test_requests_that_come_at_once_are_answered_however_many(port: int) -> None:
    """The wait ends with the head: a connection in use lives longer than the wait for one request."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as caller:
        heard = b""
        for count in range(1, 5):
            caller.sendall(_WHOLE)
            while heard.count(b"well") < count:
                heard += caller.recv(65_536)
            time.sleep(0.1)

    assert 4 == heard.count(b"200 OK")


async def _never(request: Request) -> int:
    try:
        await read_body(request, 10, seconds=0.01)
    except ProblemError as problem:
        return problem.status
    return 200


def test_the_time_is_for_the_whole_body() -> None:
    """Each byte in time does not make the whole in time."""

    async def drip() -> dict[str, object]:
        await asyncio.sleep(0.002)
        return {"type": "http.request", "body": b"", "more_body": True}

    assert 408 == asyncio.run(_never(Request({"type": "http", "method": "POST", "headers": []}, drip)))


# --- How many there may be -------------------------------------------------------------------------------------------

_POST = b"POST / HTTP/1.1\r\nHost: relay\r\nContent-Length: 9\r\n\r\n"
#: More than the kernel takes off a server's hands at both ends of a connection (tcp_wmem, tcp_rmem): at most 37 MB.
_BIG = 40_000_000


@contextlib.contextmanager
def _serving(protocol: type[PatientProtocol]) -> Iterator[int]:
    """A service behind this protocol that answers GET with much, and POST once its body has come."""

    async def service(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        said = (await request.body()).decode() if request.method == "POST" else "x" * _BIG
        await PlainTextResponse(said)(scope, receive, send)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(
            service, log_config=None, lifespan="off", http=protocol, ws="none", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.005)
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join(10)


def _caller(port: int, said: bytes = b"") -> socket.socket:
    caller = socket.create_connection(("127.0.0.1", port), timeout=5)
    caller.sendall(said)
    time.sleep(0.03)
    return caller


def _ended(caller: socket.socket) -> bool:
    """Whether the other side has closed; nothing is read."""
    caller.settimeout(0.3)
    try:
        return caller.recv(1, socket.MSG_PEEK) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def test_whoever_comes_takes_the_place_of_the_longest_idle_one() -> None:
    """Two thousand connections that do nothing hold no place that somebody needs; what is under way is never cut."""
    with _serving(patient(Room(3, 1))) as port, contextlib.ExitStack() as stack:
        busy = stack.enter_context(_caller(port, _POST))
        idle = [stack.enter_context(_caller(port)) for _ in range(2)]
        honest = stack.enter_context(_caller(port, _POST))

        assert [True, False] == [_ended(one) for one in idle]
        for caller in (busy, honest):
            caller.settimeout(5)
            caller.sendall(b"whole day")
            assert caller.recv(65_536).startswith(b"HTTP/1.1 200")


def test_who_was_answered_is_idle_again() -> None:
    """Connections are kept for the next request, and not for ever at the cost of others."""
    with _serving(patient(Room(1, 0))) as port, contextlib.ExitStack() as stack:
        answered = stack.enter_context(_caller(port, _POST + b"whole day"))
        answered.recv(65_536)
        late = stack.enter_context(_caller(port, _POST))

        assert [True, False] == [_ended(one) for one in (answered, late)]


def test_where_all_are_busy_the_next_are_turned_away() -> None:
    """File descriptors are for GitHub and the database, too."""
    with _serving(patient(Room(2, 1))) as port, contextlib.ExitStack() as stack:
        busy = [stack.enter_context(_caller(port, _POST)) for _ in range(3)]
        late = stack.enter_context(_caller(port, _POST))

        assert [False] * 3 == [_ended(one) for one in busy]
        assert _ended(late)
        busy[0].close()
        time.sleep(0.05)
        assert not _ended(stack.enter_context(_caller(port, _POST)))


def test_an_answer_that_is_not_read_is_not_held_for_ever() -> None:
    """uvicorn waits without end for a caller that asks for a page and never takes it."""

    class Hasty(PatientProtocol):
        read_seconds = 0.2

    with _serving(Hasty) as port, _caller(port, _WHOLE) as caller:
        time.sleep(0.5)
        heard = 0
        with contextlib.suppress(ConnectionError):
            while piece := caller.recv(65_536):
                heard += len(piece)

        assert heard < _BIG


@pytest.mark.parametrize(("descriptors", "callers"), [(256, 100), (1_024, 624), (4_096, 1_900), (1_048_576, 1_900)])
def test_callers_leave_descriptors_for_the_rest(descriptors: int, callers: int) -> None:
    """With the usual thousand, a service full of callers would reach neither GitHub nor its database."""
    assert callers == connections_of(descriptors)


@pytest.mark.parametrize(
    "beginning",
    [
        b"GET / HTTP/1.1\r\nHost: relay\r\nX: ",
        b"GET /",
        b"POST / HTTP/1.1\r\nHost: relay\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: ",
    ],
    ids=["a header", "a path", "a trailer"],
)
def test_a_request_that_is_all_headers_is_not_heard_out(beginning: bytes) -> None:
    """The parser keeps what it has of a header, and would keep gigabytes."""
    with _serving(PatientProtocol) as port, _caller(port, beginning) as caller:
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 5_000_000:
                sent += caller.send(b"a" * 10_000)
                time.sleep(0.0005)

        assert sent < 5_000_000


def test_a_body_may_come_in_many_chunks_and_long_headers_beside_it() -> None:
    """What honest callers send is taken, however it is cut."""
    chunks = b"".join(b"1\r\na\r\n" for _ in range(50_000))
    head = b"POST / HTTP/1.1\r\nHost: relay\r\nAuthorization: " + b"b" * 16_000
    whole = head + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    with _serving(PatientProtocol) as port, _caller(port, whole) as caller:
        assert caller.recv(12) == b"HTTP/1.1 200"
