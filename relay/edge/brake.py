"""How often one caller may call: a moving window of a minute, in this process.

The ``limits`` package would do, but its memory storage starts a thread for its housekeeping on nearly every call and
waits for it, which under load took a fifth of the event loop's time.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta

from relay.clock import Now

WINDOW = timedelta(minutes=1)


class Brake:
    """Counts calls by key. A refused call is not counted, so that it costs its caller nothing."""

    def __init__(self, per_minute: int, *, now: Now) -> None:
        self.per_minute = per_minute
        self._now = now
        self._calls: dict[str, deque[datetime]] = {}

    def wait(self, key: str) -> timedelta | None:
        """None, and the call is counted; or how long this caller has to wait."""
        now = self._now()
        calls = self._calls.setdefault(key, deque())
        # A call that seems to come from the future was counted before the clock was put back.
        while calls and not timedelta() <= now - calls[0] < WINDOW:
            calls.popleft()
        if len(calls) >= self.per_minute:
            return calls[0] + WINDOW - now
        calls.append(now)
        return None
