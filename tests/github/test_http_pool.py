"""Which client of a pool serves a request."""

from __future__ import annotations

import ssl
from contextlib import ExitStack

import pytest

from relay.github.http import HttpPool, new_http_client, new_http_pool
from tests.github.loopback import serving

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_the_first_client_is_filled_first(trust: ssl.SSLContext) -> None:
    """In quiet times one client's connections stay warm; a burst goes on to the next, then to the least busy."""
    clients = [new_http_client(user_agent="t", trust=trust) for _ in range(3)]
    pool = HttpPool(clients, per_client=2)

    with pool.lend() as alone:
        assert clients[0] is alone
    with ExitStack() as burst:
        lent = [clients.index(burst.enter_context(pool.lend())) for _ in range(8)]
    with pool.lend() as again:
        assert clients[0] is again
    await pool.aclose()

    assert [0, 0, 1, 1, 2, 2, 0, 1] == lent
    assert all(client.is_closed for client in clients)


async def test_a_failure_gives_the_client_back(trust: ssl.SSLContext) -> None:
    """A request that fails must not count as under way for ever."""
    pool = HttpPool([new_http_client(user_agent="t", trust=trust) for _ in range(2)], per_client=1)
    with pytest.raises(RuntimeError, match="broken"), pool.lend():
        raise RuntimeError("broken")

    with pool.lend() as first, pool.lend() as second:
        assert first is not second
    await pool.aclose()


@pytest.mark.parametrize("name", ["http_proxy", "ALL_PROXY"])
async def test_a_proxy_of_the_environment_is_used(
    trust: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Where the way out leads through a proxy, as it does in many companies, requests go there."""
    with serving() as proxy:
        monkeypatch.setenv(name, proxy.url)
        pool = new_http_pool(user_agent="t", trust=trust)
        with pool.lend() as client:
            await client.get("http://github.invalid/meta")
        await pool.aclose()

    assert ["github.invalid"] == [seen.headers["host"] for seen in proxy.seen]
