"""The HUD: an optional second home for every report, told of each one after it was kept (PROTOCOL 5).

A HUD that is down, slow or refuses never changes what a caller is told: forwarding is an effect with a retry schedule.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Protocol

from pydantic_core import to_json

from relay.clock import Now
from relay.github.errors import clean
from relay.github.http import (
    AsyncClient,
    HTTPError,
    HttpPool,
    InvalidURL,
    OpenTransport,
    Request,
    create_ssl_context,
    new_http_pool,
)
from relay.posting import ClientError, Posted, Poster
from relay.posting import InvalidURL as NoURL

_MOST_WAIT = timedelta(hours=24)
_WHOLE_CALL_SECONDS = 15.0
_LEAST_WAIT = timedelta(seconds=1)
_OF_THE_REPORT = frozenset({400, 406, 409, 413, 415, 422})


class HudRetryError(Exception):
    """The HUD did not take the report now; it may later, not before ``retry_at`` where that is set."""

    def __init__(self, detail: str, retry_at: datetime | None = None) -> None:
        super().__init__(detail)
        self.retry_at = retry_at


class HudRefusedError(Exception):
    """The HUD will not take this report as it stands; repeating it is pointless until somebody mends something.

    ``reason`` is a stable code: ``hud_refused`` where it takes nothing from us (a wrong key or address), and
    ``hud_refused_report`` where it is this report that it does not like.
    """

    def __init__(self, detail: str, reason: str = "hud_refused") -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ForwardFacts:
    """What the HUD is told of one report. ``body`` is the JSON text as kept; times are in seconds."""

    report_id: int
    repo: str
    level: str
    queue_seconds: float | None
    execution_seconds: float | None
    body: str


class Hud(Protocol):
    """Where reports are forwarded to."""

    async def forward(self, facts: ForwardFacts) -> None:
        """Send one report. Raises HudRetryError to be tried again, HudRefusedError when that is pointless."""
        ...


def build_body(facts: ForwardFacts) -> bytes:
    """The request's body. What we verified stands under ``trusted``, what the backend said under ``untrusted``."""
    trusted = {
        "ci_metrics": {"queue_time": facts.queue_seconds, "execution_time": facts.execution_seconds},
        "verified_repo": facts.repo,
        "downstream_repo_level": facts.level,
    }
    # The kept body is JSON already; parsing it again would only cost time.
    return b'{"trusted":%b,"untrusted":{"callback_payload":%b}}' % (to_json(trusted), facts.body.encode())


class HudClient:
    """The HUD over HTTP: by a ``Poster``, which costs little, or over a transport of those who watch."""

    def __init__(self, http: AsyncClient | HttpPool | Poster, *, url: str, key: str, now: Now, agent: str = "") -> None:
        self._http = HttpPool([http]) if isinstance(http, AsyncClient) else http
        self._url = f"{url.rstrip('/')}/crcr/results"
        # Requests are built without the client's help, which takes half the time; these it would have added.
        usual = {"user-agent": agent, "accept": "*/*", "accept-encoding": "identity"}
        if isinstance(self._http, HttpPool):
            usual = {name: self._http.headers[name] for name in ("user-agent", "accept", "accept-encoding")}
        self._headers = {**usual, "x-hud-internal-bot": key, "content-type": "application/json"}
        self._now = now

    def renew(self, key: str) -> None:
        """Send another key from now on."""
        self._headers = {**self._headers, "x-hud-internal-bot": key}

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def forward(self, facts: ForwardFacts) -> None:
        """Send one report; see ``Hud``."""
        body = build_body(facts)
        try:
            async with asyncio.timeout(_WHOLE_CALL_SECONDS):
                answer = await self._post(body)
        except (InvalidURL, NoURL) as error:
            raise HudRefusedError("CRCR_HUD_API_URL cannot be used as a URL.") from error
        # Some of these are a ValueError too, as that of a certificate which is not to be trusted.
        except (HTTPError, ClientError, OSError) as error:
            raise HudRetryError(f"The HUD did not answer: {type(error).__name__}.") from error
        except ValueError as error:
            raise HudRefusedError("CRCR_HUD_KEY cannot be sent in a header.") from error
        judge(answer.status, answer.headers, answer.text[:2_000], self._now())

    async def _post(self, body: bytes) -> Posted:
        if isinstance(self._http, Poster):
            return await self._http.post(self._url, self._headers, body)
        request = Request("POST", self._url, content=body, headers=self._headers)
        with self._http.lend() as http:
            answer = await http.send(request)
        return Posted(answer.status_code, answer.headers, answer.text)


def open_way(agent: str, transport: OpenTransport | None, trust: ssl.SSLContext | None) -> HttpPool | Poster:
    """What posts to the HUD: the cheap way, unless whoever watches stands between us and it."""
    if transport is None:
        return Poster(trust=trust or create_ssl_context())
    return new_http_pool(user_agent=agent, transport=transport, trust=trust)


def judge(status: int, headers: Mapping[str, str], text: str, now: datetime) -> None:
    """Return for a success; raise for anything else, by what is to be done about it."""
    if 200 <= status < 300:
        return
    said = f"The HUD answered {status}" + (f": {clean(text)}" if text else "") + "."
    if status in {408, 429} or status >= 500:
        raise HudRetryError(said, _retry_at(headers.get("retry-after"), now))
    raise HudRefusedError(said, "hud_refused_report" if status in _OF_THE_REPORT else "hud_refused")


def _retry_at(text: str | None, now: datetime) -> datetime | None:
    """``Retry-After`` as a moment, whether it names seconds or a date; never in the past, never past a day."""
    if text is None:
        return None
    try:
        if text.strip().isdigit():
            seconds = min(int(text), int(_MOST_WAIT.total_seconds()))
            return now + max(timedelta(seconds=seconds), _LEAST_WAIT)
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return min(max(at, now + _LEAST_WAIT), now + _MOST_WAIT)
