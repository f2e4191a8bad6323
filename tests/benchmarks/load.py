"""Load that costs little itself: requests as ready bytes over plain sockets, closed loop or at a fixed rate."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass
class Answers:
    """What came back: seconds for each request, how many of each status, and how long all took."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    took: float = 0.0

    @property
    def rate(self) -> float:
        """Answers for each second."""
        return len(self.seconds) / self.took if self.took else 0.0

    def note(self, seconds: float, status: int) -> None:
        """One answer, or with status 0 none."""
        self.seconds.append(seconds)
        self.statuses[status] += 1

    @property
    def refused(self) -> str:
        """What was not 2xx, in words; empty where all went well."""
        odd = {status: count for status, count in sorted(self.statuses.items()) if not 200 <= status < 300}
        return "".join(f"; {count} answered {status}" for status, count in odd.items())


def post(path: str, body: bytes, headers: dict[str, str]) -> bytes:
    """A whole request, ready to be sent."""
    lines = [f"POST {path} HTTP/1.1", "host: relay", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class _Line:
    """One kept connection; opened again where the other side closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> int:
        """Send one request, read its answer whole, and return the status; 0 when there was none."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._streams
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            found = _LENGTH.search(head)
            if found is not None and int(found[1]):
                await reader.readexactly(int(found[1]))
            return int(head[9:12])
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return 0

    def close(self) -> None:
        """Let go of the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Load:
    """Connections to one port, lent to whoever sends next."""

    def __init__(self, port: int, lines: int) -> None:
        self._free = [_Line(port) for _ in range(lines)]
        self._port = port

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        for line in self._free:
            line.close()

    async def once(self, request: bytes) -> int:
        """Send one request on a free connection; a further one is opened where none is free."""
        line = self._free.pop() if self._free else _Line(self._port)
        try:
            return await line.ask(request)
        finally:
            self._free.append(line)

    async def closed(self, requests: Sequence[bytes], in_flight: int) -> Answers:
        """All requests with so many always under way."""
        answers, waiting = Answers(), iter(requests)
        began = time.perf_counter()

        async def one_after_another() -> None:
            for request in waiting:
                sent = time.perf_counter()
                status = await self.once(request)
                answers.note(time.perf_counter() - sent, status)

        await asyncio.gather(*(one_after_another() for _ in range(in_flight)))
        answers.took = time.perf_counter() - began
        return answers

    async def paced(self, requests: Sequence[bytes], per_second: float) -> Answers:
        """All requests at a fixed rate, whatever the answers do: a slow answer holds no other request back.

        The time of an answer counts from when its request was due.
        """
        answers = Answers()
        began = time.perf_counter()

        async def at(due: float, request: bytes) -> None:
            status = await self.once(request)
            answers.note(time.perf_counter() - due, status)

        tasks = []
        for number, request in enumerate(requests):
            due = began + number / per_second
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            tasks.append(asyncio.create_task(at(due, request)))
        await asyncio.gather(*tasks)
        answers.took = time.perf_counter() - began
        return answers
