"""The one module that imports httpx2, so that changing the HTTP library is a change of this file's imports.

A client costs 20 to 50 ms to build (its TLS context), so a process builds one per kind of peer and keeps it.
"""

from __future__ import annotations

import ssl

from httpx2 import (
    AsyncBaseTransport,
    AsyncClient,
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
)

__all__ = [
    "NEVER_SENT",
    "AsyncClient",
    "HTTPError",
    "InvalidURL",
    "Request",
    "Response",
    "TimeoutException",
    "new_http_client",
]

#: Failures after which the peer cannot have seen the request. After any other it may have acted on it.
NEVER_SENT = (ConnectError, ConnectTimeout, PoolTimeout)


# httpx2 looks at the socket of every idle connection at each request. Measured on loopback, CPU per request one at a
# time: 2.9 ms with 100 kept idle, 1.5 with 20, 1.2 with 10. A burst opens what it needs beyond these.
_KEPT_IDLE = 10


def new_http_client(
    *,
    user_agent: str,
    timeout: float = 10.0,
    max_connections: int = 100,
    keepalive_seconds: float = 20.0,
    trust: ssl.SSLContext | None = None,
    transport: AsyncBaseTransport | None = None,
) -> AsyncClient:
    """An HTTP client that follows no redirect and repeats nothing.

    ``timeout`` is in seconds and bounds connecting, each read, each write and the wait for a free connection. Idle
    connections are kept for ``keepalive_seconds``, shorter than servers keep theirs, so that few are found closed.
    ``trust`` replaces the usual certificate authorities, and spares building a TLS context where one is at hand.
    ``transport`` replaces the network, for in-process servers. Raises HTTPError or InvalidURL when used.
    """
    return AsyncClient(
        headers={"User-Agent": user_agent},
        timeout=Timeout(timeout),
        limits=Limits(
            max_connections=max_connections,
            max_keepalive_connections=_KEPT_IDLE,
            keepalive_expiry=keepalive_seconds,
        ),
        follow_redirects=False,
        verify=trust if trust is not None else True,
        transport=transport,
    )
