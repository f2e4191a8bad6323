"""The client over real connections: what resets, silence and floods do to a dispatch."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from allowlist.model import RepoName
from relay.github.client import GitHubClient
from relay.github.errors import GitHubError, Invalid, RetryLater
from relay.github.http import new_http_client
from relay.github.keys import Apps
from relay.github.port import Address
from tests.github.loopback import Loopback, answer, serving
from tests.github.stand_in import UPSTREAM, Clock

pytestmark = pytest.mark.anyio

NPU = Address(RepoName("org", "npu"), repository_id=7, installation_id=50)
DISPATCHES = "/repos/org/npu/dispatches"


@pytest.fixture(params=["", "/api/v3"], ids=["plain", "enterprise"])
def loopback(request: pytest.FixtureRequest) -> Iterator[Loopback]:
    with serving(request.param) as server:
        yield server


@pytest.fixture
def client_of(apps: Apps, clock: Clock, trust: ssl.SSLContext) -> Any:
    """Makes a client for a URL, with a timeout that a test can wait for."""

    def make(url: str) -> GitHubClient:
        http = new_http_client(user_agent="crcr-test", timeout=0.3, trust=trust)
        return GitHubClient(apps=apps, upstream=UPSTREAM, http=http, api_url=url, now=clock)

    return make


def reset(request: BaseHTTPRequestHandler) -> None:
    """Read the request and hang up, as a balancer does whose backend died."""
    request.connection.shutdown(socket.SHUT_RDWR)
    request.close_connection = True


def hang(request: BaseHTTPRequestHandler) -> None:
    """Take the request and say nothing."""
    time.sleep(0.6)
    request.close_connection = True


async def test_a_dispatch_arrives_whole(client_of: Any, loopback: Loopback) -> None:
    """Method, path below the API's own prefix, length and body, over one connection that is kept."""
    loopback.answers["POST", DISPATCHES] = lambda request: answer(request, 204)
    client = client_of(loopback.url)
    for _ in range(3):
        assert 7 == (await client.dispatch(NPU, "push", b'{"a":1}')).repository_id
    await client.aclose()

    assert [b'{"event_type":"push","client_payload":{"a":1}}'] * 3 == [
        one.body for one in loopback.asked("POST", "/dispatches")
    ]
    assert 1 == len(loopback.asked("POST", "/access_tokens"))


@pytest.mark.parametrize(("breaking", "reason"), [(reset, "network"), (hang, "timeout")])
async def test_a_dispatch_that_was_read_is_ambiguous_and_sent_once(
    client_of: Any, loopback: Loopback, breaking: Any, reason: str
) -> None:
    """Case 2: the server has the request, so only the outbox may decide to send another."""
    loopback.answers["POST", DISPATCHES] = breaking
    client = client_of(loopback.url)

    with pytest.raises(RetryLater) as caught:
        await client.dispatch(NPU, "push", b"{}")
    await client.aclose()

    assert (True, reason) == (caught.value.ambiguous, caught.value.reason)
    assert 1 == len(loopback.asked("POST", "/dispatches"))


async def test_a_server_that_is_not_there_is_not_ambiguous(client_of: Any) -> None:
    """Nothing was sent, so nothing can have happened."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        client = client_of(f"http://127.0.0.1:{unused.getsockname()[1]}")
        with pytest.raises(RetryLater) as caught:
            await client.dispatch(NPU, "push", b"{}")
        await client.aclose()

    assert (False, "network") == (caught.value.ambiguous, caught.value.reason)


@pytest.mark.parametrize("status", [201, 403, 422, 502])
async def test_ten_megabytes_are_read_no_further_than_needed(client_of: Any, loopback: Loopback, status: int) -> None:
    """A flood in place of a mint's answer costs a megabyte of memory and ends as a short sentence."""
    loopback.answers["POST", "/app/installations/50/access_tokens"] = lambda request: answer(
        request, status, b"x" * 10_000_000
    )
    client = client_of(loopback.url)

    with pytest.raises(GitHubError) as caught:
        await client.dispatch(NPU, "push", b"{}")
    await client.aclose()

    assert len(caught.value.detail) < 600


async def test_a_file_beyond_eight_megabytes_is_refused(client_of: Any, loopback: Loopback) -> None:
    """Half a file must not be taken for the file."""
    path = "/repos/org/npu/contents/a.yml"
    loopback.answers["GET", path] = lambda request: answer(request, 200, b"#" * ((8 << 20) + 1))
    client = client_of(loopback.url)

    with pytest.raises(Invalid, match="too large"):
        await client.read_file(NPU, "a.yml", None, None)
    await client.aclose()


async def test_garbage_in_place_of_http_is_a_network_fault(client_of: Any, loopback: Loopback) -> None:
    """A captive portal or a broken proxy answers something that is no HTTP."""

    def garble(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"\x00\x01 this is no HTTP\r\n\r\n")
        request.close_connection = True

    loopback.answers["POST", DISPATCHES] = garble
    client = client_of(loopback.url)

    with pytest.raises(RetryLater) as caught:
        await client.dispatch(NPU, "push", b"{}")
    await client.aclose()

    assert (True, "network") == (caught.value.ambiguous, caught.value.reason)


async def test_a_cancelled_dispatch_frees_its_place(client_of: Any, loopback: Loopback, clock: Clock) -> None:
    """A worker that is stopped in the middle leaves no slot taken behind."""
    loopback.answers["POST", DISPATCHES] = hang
    client = client_of(loopback.url)
    await client.locate(NPU)
    for _ in range(150):
        task = asyncio.ensure_future(client.dispatch(NPU, "push", b"{}"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    loopback.answers["POST", DISPATCHES] = lambda request: answer(request, 204)

    async with asyncio.timeout(5):
        assert 7 == (await client.dispatch(NPU, "push", b"{}")).repository_id
    await client.aclose()


@pytest.mark.parametrize("url", ["", "api.github.com", "ftp://x", "https://u:p@x", "https://x/?q", "https://x y/"])
def test_an_api_url_that_is_none_is_refused(client_of: Any, url: str) -> None:
    """Said at start-up, with the form that is wanted."""
    with pytest.raises(ValueError, match="must look like https://HOST"):
        client_of(url)
