"""Who waits for whom inside one process: requests that somebody waits for come before work that can wait a moment."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

#: A round of the event loop that takes longer than this has a request wait for others' work.
BUSY_SECONDS = 0.003

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
#: Told of each answer: the path, the status, and the seconds it took.
Answered = Callable[[str, int, float], None]


class Traffic:
    """Counts the requests that are being answered."""

    def __init__(self) -> None:
        self._under_way = 0
        self._calm = asyncio.Event()
        self._calm.set()

    def began(self) -> None:
        """One more request is being answered."""
        self._under_way += 1
        self._calm.clear()

    def ended(self) -> None:
        """A request was answered."""
        self._under_way -= 1
        if self._under_way == 0:
            self._calm.set()

    async def calm(self, seconds: float) -> None:
        """Wait until no request is being answered, but no longer than this: slow callers must not stop the work."""
        if self._under_way:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._calm.wait()

    async def give_way(self, seconds: float) -> None:
        """Let whatever waits for the event loop have its turn, and then requests be answered, for so long at most each.

        While one round of the loop takes long there is more than enough under way, and what is begun besides would
        only stand in the way of the next request.
        """
        began = after = time.perf_counter()
        while after - began < seconds:
            before = after
            await asyncio.sleep(0)
            after = time.perf_counter()
            if after - before < BUSY_SECONDS:
                break
        await self.calm(seconds)


class CountTraffic:
    """ASGI middleware that tells ``traffic`` of each request, and ``answered`` how it was answered."""

    def __init__(self, app: Application, traffic: Traffic, answered: Answered) -> None:
        self._app = app
        self._traffic = traffic
        self._answered = answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()

        async def tell(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._answered(scope["path"], message["status"], time.perf_counter() - began)
            await send(message)

        self._traffic.began()
        try:
            await self._app(scope, receive, tell)
        finally:
            self._traffic.ended()
