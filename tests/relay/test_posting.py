"""How the HUD is posted to: over kept connections, whatever answers servers give, well or badly."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from relay.hud import ForwardFacts, HudClient, HudRefusedError, HudRetryError, build_body
from relay.posting import KEPT_BYTES, MOST_BYTES, ClientError, Poster

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
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
async def serving(
    *answers: bytes, ends: Sequence[int] = (), silent: bool = False, shows: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    """A server that gives these answers in turn, and closes the connection after those whose numbers ``ends`` has.

    ``shows``: the certificate that it has; without one it speaks HTTP.
    """
    server, left = Server(), list(enumerate(answers))
    open_now: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        open_now.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
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

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=shows)
    server.url = f"{'https' if shows else 'http'}://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        yield server
        for one in open_now:
            one.close()
        await asyncio.sleep(0.002)


@dataclass
class Client:
    """Posts to this server."""

    server: Server
    post: Poster = field(default_factory=lambda: Poster(trust=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)))

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.post.aclose()

    async def posted(self, body: bytes = b"{}") -> tuple[int, str]:
        """Status and text of one answer."""
        answer = await self.post.post(f"{self.server.url}/api/crcr/results?a=1", {"x-key": "secret"}, body)
        return answer.status, answer.text


def own_certificate(folder: Path) -> ssl.SSLContext:
    """What a server shows that vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "hud.invalid")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(NOW - timedelta(days=1)).not_valid_after(NOW + timedelta(days=1))
    path = folder / "own.pem"
    path.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        + made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


async def test_one_connection_serves_one_after_another() -> None:
    """What is sent is what was asked for, and a connection is kept."""
    async with serving(OK, OK, OK) as server, Client(server) as client:
        for number in range(3):
            assert (200, "ok") == await client.posted(b"body %d" % number)

    assert (1, [b"body 0", b"body 1", b"body 2"]) == (server.connections, server.bodies)
    assert b"POST /api/crcr/results?a=1 HTTP/1.1\r\n" in server.heads[0]
    assert b"\r\nx-key: secret\r\n" in server.heads[0]


async def test_what_is_under_way_together_has_a_connection_each() -> None:
    """And none gets another's answer; afterwards all of them are kept."""
    async with serving(*[OK] * 20) as server, Client(server) as client:
        for _ in range(2):
            assert [(200, "ok")] * 10 == await asyncio.gather(*(client.posted() for _ in range(10)))

    assert 10 == server.connections


@pytest.mark.parametrize(
    ("answer", "ends", "status"),
    [
        (b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n3\r\nway\r\n0\r\n\r\n", (), 503),
        (b"HTTP/1.1 503 Busy\r\n\r\nnoway", (0,), 503),
        (b"HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 5\r\n\r\nnoway", (), 503),
        (b"HTTP/1.1 307 There\r\nLocation: /elsewhere\r\nContent-Length: 5\r\n\r\nnoway", (), 307),
    ],
)
async def test_an_answer_is_taken_as_it_is(answer: bytes, ends: tuple[int, ...], status: int) -> None:
    """Whatever its form, and nobody is sent elsewhere with our key; the next request has an answer of its own."""
    async with serving(answer, OK, ends=ends) as server, Client(server) as client:
        assert (status, "noway") == await client.posted()
        await asyncio.sleep(0.01)
        assert (200, "ok") == await client.posted()

    assert 2 == len(server.heads)


@pytest.mark.parametrize(
    ("answer", "ends"),
    [
        (b"SSH-2.0-OpenSSH\r\n", ()),
        (b"", (0,)),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\ntoo short", (0,)),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", (0,)),
    ],
)
async def test_what_is_no_answer_is_an_error(answer: bytes, ends: tuple[int, ...]) -> None:
    """No part of one passes for it, and its connection serves nobody else."""
    async with serving(answer, OK, ends=ends) as server, Client(server) as client:
        with pytest.raises((ClientError, OSError)):
            await client.posted()
        assert (200, "ok") == await client.posted()

    assert 2 == server.connections


async def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    """Its status counts, its beginning is kept, and no more of it."""
    flood = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n" + b"x" * (MOST_BYTES + 70_000)
    async with serving(flood) as server, Client(server) as client:
        status, text = await client.posted()

    assert (200, KEPT_BYTES) == (status, len(text))


async def test_a_connection_that_was_closed_meanwhile_is_not_used() -> None:
    """Servers close what is idle; the next report must not have to wait for a retry because of that."""
    async with serving(OK, OK, ends=(0,)) as server, Client(server) as client:
        assert (200, "ok") == await client.posted()
        await asyncio.sleep(0.01)
        assert (200, "ok") == await client.posted()

    assert 2 == server.connections


async def test_who_gives_up_takes_no_other_s_answer() -> None:
    """A request that was cancelled takes its connection with it."""
    async with serving(silent=True) as server, Client(server) as client:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.posted(), 0.05)

    assert 2 == server.connections


async def test_the_hud_is_told_by_it() -> None:
    """The whole request, and what its answers mean."""
    busy = b"HTTP/1.1 503 Busy\r\nRetry-After: 120\r\nContent-Length: 0\r\n\r\n"
    async with serving(OK, busy, OK) as server:
        post = Poster(trust=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        hud = HudClient(post, url=server.url, key="secret", now=lambda: NOW, agent="crcr/1")
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


@pytest.mark.parametrize(
    ("url", "error"),
    [("http://127.0.0.1:1", HudRetryError), ("no address", HudRefusedError), ("http://", HudRefusedError)],
)
async def test_an_address_without_a_hud_is_somebody_s_to_mend(url: str, error: type[Exception]) -> None:
    """Nobody there may come back; what is no address never will."""
    hud = HudClient(Poster(trust=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)), url=url, key="k", now=lambda: NOW)
    with pytest.raises(error):
        await hud.forward(FACTS)
    await hud.aclose()


async def test_a_bad_certificate_is_not_the_key_s_fault(tmp_path: Path) -> None:
    """One that is renewed too late is renewed after all: no report is given up until then, and no key goes out."""
    async with serving(OK, shows=own_certificate(tmp_path)) as server:
        hud = HudClient(Poster(trust=ssl.create_default_context()), url=server.url, key="k", now=lambda: NOW)
        async with aclosing(hud):
            with pytest.raises(HudRetryError, match="Certificate"):
                await hud.forward(FACTS)

    assert [] == server.heads


async def test_a_report_that_cannot_be_written_is_not_the_key_s_fault() -> None:
    """Whoever looks for the fault must not be sent to a key that is right."""
    async with serving(OK) as server:
        hud = HudClient(Poster(trust=ssl.create_default_context()), url=server.url, key="k", now=lambda: NOW)
        async with aclosing(hud):
            with pytest.raises(UnicodeEncodeError):
                await hud.forward(replace(FACTS, body='"\ud800"'))

    assert [] == server.heads


async def test_a_proxy_that_the_environment_names_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing gets out but by a proxy, the HUD must be told by it, too."""
    async with serving(OK) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        async with Client(Server("http://hud.invalid")) as client:
            assert (200, "ok") == await client.posted()

    assert proxy.heads[0].startswith(b"POST http://hud.invalid/api/crcr/results?a=1 HTTP/1.1\r\n")
