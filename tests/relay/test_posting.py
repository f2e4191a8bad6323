"""The poster: one address, kept connections, and answers as servers give them, well or badly."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from relay.hud import ForwardFacts, HudClient, HudRefusedError, HudRetryError, build_body
from relay.posting import KEPT_BYTES, MOST_BYTES, Poster

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
FACTS = ForwardFacts(1, "org/l2", "L2", 1.5, None, '{"workflow":{"name":"é"}}')


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """The service runs on asyncio, and where there is uvloop on that, whose transports are of other types."""
    return "asyncio", {"use_uvloop": request.param}


@dataclass
class Server:
    """What it was sent, head and body, and on how many connections."""

    url: str = ""
    connections: int = 0
    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)


@asynccontextmanager
async def serving(*answers: bytes, ends: Sequence[int] = (), silent: bool = False) -> AsyncIterator[Server]:
    """A server that gives these answers in turn, and closes the connection after those whose numbers ``ends`` has."""
    server, left = Server(), list(enumerate(answers))
    open_now: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        open_now.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head)
                assert length is not None
                server.heads.append(head)
                server.bodies.append(await reader.readexactly(int(length[1])))
                if silent:
                    continue
                number, answer = left.pop(0)
                writer.write(answer)
                if number in ends:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        yield server
        for one in open_now:
            one.close()
        await asyncio.sleep(0.002)


def poster(server: Server) -> Poster:
    """One that posts to this server."""
    return Poster(f"{server.url}/api/crcr/results?a=1", trust=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


async def posted(post: Poster, body: bytes = b"{}") -> tuple[int, str]:
    """Status and text of one answer."""
    answer = await post.post(post.head({"x-key": "secret"}), body)
    return answer.status, answer.text


async def test_one_connection_serves_one_after_another() -> None:
    """What is sent is what was asked for, and a connection is kept."""
    async with serving(OK, OK, OK) as server:
        post = poster(server)
        for number in range(3):
            assert (200, "ok") == await posted(post, b"body %d" % number)
        await post.aclose()

    assert (1, [b"body 0", b"body 1", b"body 2"]) == (server.connections, server.bodies)
    assert b"POST /api/crcr/results?a=1 HTTP/1.1\r\nhost: 127.0.0.1:" in server.heads[0]
    assert b"\r\nx-key: secret\r\n" in server.heads[0]


async def test_what_is_under_way_together_has_a_connection_each() -> None:
    """And none gets another's answer; afterwards all of them are kept."""
    async with serving(*[OK] * 20) as server:
        post = poster(server)
        for _ in range(2):
            assert [(200, "ok")] * 10 == await asyncio.gather(*(posted(post) for _ in range(10)))
        await post.aclose()

    assert 10 == server.connections


@pytest.mark.parametrize(
    ("answer", "ends", "text"),
    [
        (b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n3\r\nway\r\n0\r\n\r\n", (), "noway"),
        (b"HTTP/1.1 503 Busy\r\n\r\nuntil the end", (0,), "until the end"),
        (b"HTTP/1.0 503 Busy\r\nContent-Length: 2\r\n\r\nno", (), "no"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno", (), "no"),
        (b"HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno", (), "no"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno and more than it said", (), "no"),
    ],
)
async def test_answers_come_in_every_form(answer: bytes, ends: tuple[int, ...], text: str) -> None:
    """Whatever the form, it is read whole, and the next request has an answer of its own."""
    async with serving(answer, OK, ends=ends) as server:
        post = poster(server)
        assert (503, text) == await posted(post)
        await asyncio.sleep(0.01)
        assert (200, "ok") == await posted(post)
        await post.aclose()


@pytest.mark.parametrize(
    ("answer", "ends"),
    [
        (b"SSH-2.0-OpenSSH\r\n", ()),
        (b"", (0,)),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\ntoo short", (0,)),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", (0,)),
        (b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: %b\r\n" % (n, b"y" * 1000) for n in range(60)) + b"\r\n", ()),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", (0,)),
    ],
)
async def test_what_is_no_answer_is_an_error(answer: bytes, ends: tuple[int, ...]) -> None:
    """No part of one passes for it, and its connection serves nobody else."""
    async with serving(answer, OK, ends=ends) as server:
        post = poster(server)
        with pytest.raises(OSError, match="answer"):
            await posted(post)
        assert (200, "ok") == await posted(post)
        await post.aclose()

    assert 2 == server.connections


async def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    """Its status counts, its beginning is kept, and no more of it."""
    flood = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n" + b"x" * (MOST_BYTES + 70_000)
    async with serving(flood) as server:
        status, text = await posted(poster(server))

    assert (200, KEPT_BYTES) == (status, len(text))


async def test_a_connection_that_was_closed_meanwhile_is_not_used() -> None:
    """Servers close what is idle; the next report must not have to wait for a retry because of that."""
    async with serving(OK, OK, ends=(0,)) as server:
        post = poster(server)
        assert (200, "ok") == await posted(post)
        await asyncio.sleep(0.01)
        assert (200, "ok") == await posted(post)
        await post.aclose()

    assert 2 == server.connections


async def test_who_gives_up_takes_no_other_s_answer() -> None:
    """A request that was cancelled takes its connection with it."""
    async with serving(silent=True) as server:
        post = poster(server)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(posted(post), 0.05)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(posted(post), 0.05)

    assert 2 == server.connections


async def test_nobody_at_the_address_is_an_error() -> None:
    """As any failure of the network is."""
    async with serving() as server:
        post = poster(server)
    with pytest.raises(OSError, match="Connect"):
        await posted(post)


@pytest.mark.parametrize(
    "url", ["ftp://hud.example/", "https://", "https://user:pass@hud.example", "https://hüd.example"]
)
def test_an_address_that_it_cannot_post_to_is_left_to_others(url: str) -> None:
    """It does not guess."""
    with pytest.raises(ValueError, match="URL"):
        Poster(url, trust=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


async def test_the_hud_is_told_by_it() -> None:
    """The whole request, and what its answers mean."""
    busy = b"HTTP/1.1 503 Busy\r\nRetry-After: 120\r\nContent-Length: 0\r\n\r\n"
    async with serving(OK, busy, OK) as server:
        post = poster(server)
        now = datetime(2026, 11, 30, 12, tzinfo=UTC)
        hud = HudClient(post, url=server.url, key="secret", now=lambda: now, agent="crcr/1")
        await hud.forward(FACTS)
        with pytest.raises(HudRetryError) as retry:
            await hud.forward(FACTS)
        hud.renew("another")
        await hud.forward(FACTS)
        hud.renew("no\r\nheader: this")
        with pytest.raises(HudRefusedError, match="CRCR_HUD_KEY"):
            await hud.forward(FACTS)
        await hud.aclose()

    assert [build_body(FACTS)] * 3 == server.bodies
    assert json.loads(server.bodies[0])["trusted"]["verified_repo"] == "org/l2"
    assert datetime(2026, 11, 30, 12, 2, tzinfo=UTC) == retry.value.retry_at
    keys = [re.search(rb"x-hud-internal-bot: (.*)\r", head) for head in server.heads]
    assert [b"secret", b"secret", b"another"] == [key and key[1] for key in keys]
    assert b"content-type: application/json\r\n" in server.heads[0]
    assert b"user-agent: crcr/1\r\n" in server.heads[0]
