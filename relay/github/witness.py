"""What GitHub's answers say beside their content: that it is there, that it wants to be left alone, what is left.

The outbox learns of limits when a try is noted, which is soon but not at once. What this process has in its hands at
that moment must not be sent any more: "continuing to make requests while you are rate limited may result in the
banning of your integration",
https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api#exceeding-the-rate-limit
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from weakref import WeakSet

from relay.deciding.effects import pacing_of
from relay.github.errors import Limited
from relay.github.port import Address

#: This share of an hour's requests is kept: 100 of 5,000.
_KEPT = 50
#: GitHub's hour ends within one; a header that says otherwise is none of GitHub's.
_HOUR = timedelta(hours=1, minutes=1)


class Witness:
    """Remembers, for one process. Lost with it: what counts is in the database by then, or said again."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._reached: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._sent: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._resting: dict[int, tuple[datetime, Limited]] = {}  # With the time at which it was said.
        self._sparing: dict[str, datetime] = {}
        self._left: dict[str, tuple[int, datetime]] = {}

    def heard(self, status: int) -> None:
        """An answer came, to the task that runs just now. One of 5xx, or to a bad token, is none to speak of."""
        task = asyncio.current_task()
        if task is not None and status < 500 and status not in (401, 408):
            self._reached.add(task)

    def reached(self) -> bool:
        """Whether the task that runs just now had an answer."""
        task = asyncio.current_task()
        return task is not None and task in self._reached

    def sending(self) -> None:
        """The task that runs just now sends a request that is more than a question."""
        task = asyncio.current_task()
        if task is not None:
            self._sent.add(task)

    def sent(self) -> bool:
        """Whether the task that runs just now sent anything that may have had an effect."""
        task = asyncio.current_task()
        return task is not None and task in self._sent

    def limited(self, installation_id: int, error: Limited) -> None:
        """GitHub told this installation to wait."""
        now, known = self._now(), self._resting.get(installation_id)
        if known is None or now < known[0] or known[1].retry_at < error.retry_at:
            self._resting[installation_id] = (now, error)

    def hold_back(self, installation_id: int) -> None:
        """Raises Limited while this installation must wait: the call is not made."""
        known = self._resting.get(installation_id)
        if known is None:
            return
        said, error = known
        # What was said in the future was said by a clock that was set back since: it would hold for as long.
        if not said <= self._now() < error.retry_at:
            del self._resting[installation_id]
            return
        again = Limited(error.detail, retry_at=error.retry_at, status=error.status, named=error.named)
        again.installation_id = installation_id
        raise again

    def left(self, at: Address, headers: Mapping[str, str]) -> None:
        """What the answer says of the hour's requests. Of the last few, none is spent on what can wait.

        https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api#checking-the-status-of-your-rate-limit
        """
        remaining = _number(headers.get("x-ratelimit-remaining", ""), 6)
        limit = _number(headers.get("x-ratelimit-limit", ""), 6)
        reset = _number(headers.get("x-ratelimit-reset", ""), 10)
        if remaining is None or limit is None or reset is None:
            return
        until, now = datetime.fromtimestamp(reset, UTC), self._now()
        if not now < until <= now + _HOUR:
            return
        account = pacing_of(at.repo)
        self._left[account] = (remaining, until)
        if remaining <= limit // _KEPT:
            self._sparing[account] = until

    def requests_left(self) -> Mapping[str, int]:
        """What each account, by pacing key, may still ask in this hour, as last told. Ended hours are left out."""
        now = self._now()
        self._left = {account: (left, until) for account, (left, until) in self._left.items() if now < until}
        return {account: left for account, (left, _) in self._left.items()}

    def take_sparing(self) -> Mapping[str, datetime]:
        """The accounts, by pacing key, whose requests are nearly used up, and until when. Each is told once."""
        taken, self._sparing = self._sparing, {}
        return taken


def _number(text: str, most_digits: int) -> int | None:
    """A header's number; None for what is none, or none of GitHub's."""
    return int(text) if len(text) <= most_digits and text.isascii() and text.isdigit() else None
