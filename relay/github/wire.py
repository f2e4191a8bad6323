"""One request out, one answer in: concurrency, time limits, sizes, redirects and what a broken connection means."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random

from relay.github.errors import IdentityChanged, Invalid, RetryLater
from relay.github.http import (
    NEVER_SENT,
    AsyncClient,
    HTTPError,
    HttpPool,
    InvalidURL,
    Request,
    Response,
    TimeoutException,
)

#: Told of every request: method, route template, status (None: no answer), seconds, installation (None: the app's own).
Observe = Callable[[str, str, int | None, float, int | None], None]
Clock = Callable[[], datetime]
Headers = list[tuple[bytes, bytes]]

# GitHub refuses more than 100 requests at once of one app,
# https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api#about-secondary-rate-limits
IN_FLIGHT = 100
_WHOLE_CALL_SECONDS = 30.0
_HOPS = 2
_SMALL_ANSWER = 1 << 20
LARGE_ANSWER = 32 << 20

API_VERSION = b"2022-11-28"
ACCEPT_JSON = ((b"accept", b"application/vnd.github+json"),)


@dataclass(frozen=True, slots=True)
class Call:
    """A request to GitHub, complete but for who makes it. ``route`` is the path's template, for counting."""

    method: str
    route: str
    target: str
    body: bytes | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ACCEPT_JSON
    largest_answer: int = _SMALL_ANSWER

    @property
    def only_asks(self) -> bool:
        """Whether it has no effect, whatever becomes of it."""
        return self.method in ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Answer:
    """What GitHub answered. ``whole`` is False when the body went over its limit and was cut."""

    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool

    def json(self) -> Any:
        """The body as JSON. Raises ValueError when it is none or was cut."""
        if not self.whole:
            raise ValueError("the body is too large")
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("the body is nested too deeply") from None


class Wire:
    """Sends calls to one API over one HTTP client or pool, at most ``in_flight`` at once. Owns them."""

    def __init__(
        self,
        *,
        http: AsyncClient | HttpPool,
        api_url: str,
        observe: Observe,
        in_flight: int = IN_FLIGHT,
        heard: Callable[[int], None] = lambda _status: None,
        sending: Callable[[], None] = lambda: None,
    ) -> None:
        base = re.fullmatch(r"(https?://(?:\[[0-9a-fA-F:]+\]|[\w.-]+)(?::\d+)?)((?:/[\w.-]+)*)/?", api_url, re.ASCII)
        if base is None:
            raise ValueError(f"the GitHub API URL must look like https://HOST or https://HOST/api/v3, got {api_url!r}")
        self._origin, self._prefix = base.groups()
        self._base = self._origin + self._prefix
        self._moved = re.compile(re.escape(self._prefix) + r"/repositories/(\d{1,19})(?=[/?]|\Z)")
        self._pool = http if isinstance(http, HttpPool) else HttpPool([http])
        # Requests are built without the client's help, which takes half the time; these two it would have added.
        self._ours = [(name.encode(), http.headers[name].encode()) for name in ("user-agent", "accept-encoding")]
        self._observe = observe
        self._heard = heard
        self._sending = sending
        self._slots = asyncio.Semaphore(in_flight)
        # Only reads and mints come here, so a second try costs nothing but itself.
        self._send_twice = AsyncRetrying(
            stop=stop_after_attempt(2),
            wait=wait_random(0.05, 0.25),
            retry=retry_if_exception(lambda error: isinstance(error, RetryLater) and error.reason == "network"),
            reraise=True,
        ).wraps(self.send)

    async def send(
        self, call: Call, authority: Headers, *, installation_id: int | None = None, repository_id: int | None = None
    ) -> Answer:
        """Send once. An answer of any status is returned; no answer raises RetryLater.

        A redirect is followed only to the same host, and only to ``repository_id`` where that is known: another id
        raises IdentityChanged.
        """
        url = self._base + call.target
        for _ in range(_HOPS):
            answer = await self._once(call, url, authority, installation_id)
            target = self._redirect(call, answer, repository_id)
            if target is None:
                return answer
            url = target
        raise Invalid("GitHub redirects in a circle.", reason="redirect_refused", status=answer.status)

    async def send_repeatable(
        self, call: Call, authority: Headers, *, installation_id: int | None = None, repository_id: int | None = None
    ) -> Answer:
        """Like ``send`` for a call without an effect: a broken connection is tried once more at once."""
        try:
            return await self._send_twice(call, authority, installation_id=installation_id, repository_id=repository_id)
        except RetryLater as error:
            error.ambiguous = False
            raise

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    async def _once(self, call: Call, url: str, authority: Headers, installation_id: int | None) -> Answer:
        status: int | None = None
        async with self._slots:
            began = time.perf_counter()
            try:
                request = Request(call.method, url, headers=[*self._ours, *authority, *call.headers], content=call.body)
                # httpx2 bounds each read, not their sum: a body that drips would hold its slot for ever.
                async with asyncio.timeout(_WHOLE_CALL_SECONDS):
                    if not call.only_asks:
                        self._sending()
                    with self._pool.lend() as http:
                        response = await http.send(request, stream=True)
                        status = response.status_code
                        body = await _read(response, call.largest_answer)
                self._heard(status)
                whole = len(body) <= call.largest_answer
                return Answer(status, dict(response.headers), bytes(body[: call.largest_answer]), whole)
            except (TimeoutException, TimeoutError) as error:
                raise _no_answer("timeout", call, error) from None
            except (HTTPError, InvalidURL) as error:
                raise _no_answer("network", call, error) from None
            finally:
                self._observe(call.method, call.route, status, time.perf_counter() - began, installation_id)

    def _redirect(self, call: Call, answer: Answer, repository_id: int | None) -> str | None:
        """Where to go next, if this is the redirect of a renamed repository.

        https://docs.github.com/rest/using-the-rest-api/best-practices-for-using-the-rest-api#follow-redirects
        """
        follow = (301, 302, 307, 308) if call.method == "GET" else (307, 308)
        if answer.status not in follow:
            return None
        location = answer.headers.get("location", "")
        path = location.removeprefix(self._origin)
        found = self._moved.match(path)
        if found is None or ".." in path or not (path.isascii() and path.isprintable()):
            # Followed anywhere else, our token would go to whoever wrote the header.
            return None
        if repository_id is not None and int(found[1]) != repository_id:
            raise IdentityChanged(
                f"GitHub leads to repository {found[1]}, not to the pinned {repository_id}.",
                expected_id=repository_id,
                found_id=int(found[1]),
            )
        return self._origin + path


async def _read(response: Response, most: int) -> bytearray:
    """The body, but no more than one piece beyond ``most`` bytes; the connection is given back or closed."""
    body = bytearray()
    try:
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > most:
                break
    finally:
        await response.aclose()
    return body


def _no_answer(reason: str, call: Call, error: Exception) -> RetryLater:
    # The cause is named but not chained: it carries the request, and that the token.
    return RetryLater(
        f"No answer from GitHub to {call.method} {call.route} ({type(error).__name__}).",
        reason=reason,
        ambiguous=not call.only_asks and not isinstance(error, (*NEVER_SENT, InvalidURL)),
    )
