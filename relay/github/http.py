"""The one module that imports httpx2, so that changing the HTTP library is a change of this file's imports.

A client costs 20 to 50 ms to build (its TLS context), so a process builds one per kind of peer and keeps it.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from urllib.request import getproxies

from httpx2 import (
    AsyncBaseTransport,
    AsyncClient,
    AsyncHTTPTransport,
    ConnectError,
    ConnectTimeout,
    HTTPError,
    InvalidURL,
    Limits,
    PoolTimeout,
    Request,
    Response,
    Timeout,
    TimeoutException,
    create_ssl_context,
)

__all__ = [
    "NEVER_SENT",
    "AsyncBaseTransport",
    "AsyncClient",
    "AsyncHTTPTransport",
    "HTTPError",
    "HttpPool",
    "InvalidURL",
    "OpenTransport",
    "Request",
    "Response",
    "TimeoutException",
    "create_ssl_context",
    "new_http_client",
    "new_http_pool",
]

#: Failures after which the peer cannot have seen the request. After any other it may have acted on it.
NEVER_SENT = (ConnectError, ConnectTimeout, PoolTimeout)

#: What one client sends its requests through; each client asks for one of its own.
OpenTransport = Callable[[], AsyncBaseTransport]


# httpx2 looks at the socket of every idle connection of a client at each request, so many small clients cost less than
# one large one. CPU per request on loopback, 1 and 100 in flight: one client with 20 kept idle 2.3 and 1.8 ms, with 10
# 1.3 and 1.6 ms; twenty clients with 5 each 1.05 and 0.95 ms, and all hundred connections stay warm.
_CLIENTS = 20
_PER_CLIENT = 5


class HttpPool:
    """Several clients for one busy peer. The first ones are filled first, so that quiet times keep few connections."""

    def __init__(self, clients: Sequence[AsyncClient], per_client: int = _PER_CLIENT) -> None:
        self._clients = tuple(clients)
        self._busy = [0] * len(self._clients)
        self._per_client = per_client
        self.headers = self._clients[0].headers

    @contextmanager
    def lend(self) -> Iterator[AsyncClient]:
        """A client with a connection to spare, for one request and its answer; the least busy one where none has."""
        chosen = next((n for n, busy in enumerate(self._busy) if busy < self._per_client), None)
        if chosen is None:
            chosen = self._busy.index(min(self._busy))
        self._busy[chosen] += 1
        try:
            yield self._clients[chosen]
        finally:
            self._busy[chosen] -= 1

    async def aclose(self) -> None:
        """Close all clients."""
        for client in self._clients:
            await client.aclose()


def new_http_pool(
    *,
    user_agent: str,
    timeout: float = 10.0,
    trust: ssl.SSLContext | None = None,
    transport: OpenTransport | None = None,
) -> HttpPool:
    """A pool of clients as ``new_http_client`` makes them, for a hundred requests in flight to one peer."""
    shared = trust if trust is not None else create_ssl_context()
    # Each client would read the whole environment for proxies, 1 ms each time.
    proxied = bool(getproxies())
    return HttpPool(
        [
            new_http_client(
                user_agent=user_agent,
                timeout=timeout,
                trust=shared,
                proxied=proxied,
                transport=None if transport is None else transport(),
            )
            for _ in range(_CLIENTS)
        ]
    )


def new_http_client(
    *,
    user_agent: str,
    timeout: float = 10.0,
    max_connections: int = 100,
    keepalive_seconds: float = 20.0,
    trust: ssl.SSLContext | None = None,
    proxied: bool = True,
    transport: AsyncBaseTransport | None = None,
) -> AsyncClient:
    """An HTTP client that follows no redirect and repeats nothing.

    ``timeout`` is in seconds and bounds connecting, each read, each write and the wait for a free connection. Idle
    connections are kept for ``keepalive_seconds``, shorter than servers keep theirs, so that few are found closed.
    ``trust`` replaces the usual certificate authorities, and spares building a TLS context where one is at hand.
    ``proxied`` is false where the environment is known to name no proxy.
    ``transport`` replaces the network, for in-process servers. Raises HTTPError or InvalidURL when used.
    """
    return AsyncClient(
        headers={"User-Agent": user_agent},
        timeout=Timeout(timeout),
        limits=Limits(
            max_connections=max_connections,
            max_keepalive_connections=_PER_CLIENT,
            keepalive_expiry=keepalive_seconds,
        ),
        follow_redirects=False,
        verify=trust if trust is not None else True,
        trust_env=proxied or trust is None,
        transport=transport,
    )
