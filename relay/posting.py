"""Posts to the HUD over aiohttp, for the one request that is made for every report.

On loopback such a post takes 0.2 ms of CPU there, and 0.9 in httpx2, through which all else goes (see
``relay.github.http``).
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.request import getproxies

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, InvalidURL, TCPConnector

__all__ = ["ClientError", "InvalidURL", "Posted", "Poster"]

#: How long, in seconds, a connection may take to open, and an idle one is kept: shorter than servers keep theirs.
OPEN_SECONDS = 10.0
KEEP_SECONDS = 20.0
#: As much of an answer is kept as its reader looks at, and one of more than this is not read to its end. In bytes.
KEPT_BYTES = 8_000
MOST_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Posted:
    """The answer: its status, its headers (looked up without case), and how its body begins."""

    status: int
    headers: Mapping[str, str]
    text: str


class Poster:
    """Posts bodies over kept connections. Belongs to the event loop that first uses it.

    ``trust`` says which certificates are taken. Proxies come from the environment. No redirect is followed, no cookie
    kept, nothing unpacked and nothing repeated.
    """

    def __init__(self, *, trust: ssl.SSLContext) -> None:
        self._trust = trust
        self._session: ClientSession | None = None

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Posted:
        """Send one body and wait for its answer. How long it may take is the caller's to say.

        Raises InvalidURL, ValueError for a header that cannot be sent, and ClientError or OSError when the way there
        fails or what comes back is no answer.
        """
        session = self._session = self._session or self._open()
        async with session.post(url, data=body, headers=headers, allow_redirects=False) as answer:
            kept, seen = bytearray(), 0
            async for piece in answer.content.iter_any():
                seen += len(piece)
                kept += piece[: KEPT_BYTES - len(kept)]
                if seen > MOST_BYTES:
                    # Its status says all that matters, and its rest is nobody's concern.
                    break
            return Posted(answer.status, answer.headers, kept.decode("utf-8", "replace"))

    def _open(self) -> ClientSession:
        return ClientSession(
            connector=TCPConnector(limit=0, keepalive_timeout=KEEP_SECONDS, ssl=self._trust),
            timeout=ClientTimeout(total=None, sock_connect=OPEN_SECONDS),
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            # It would read the whole environment for each post, which takes longer than the post.
            trust_env=bool(getproxies()),
        )

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
