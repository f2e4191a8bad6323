"""The changed files of a head, asked for once for all backends whose entries name paths.

Fifty such backends would ask GitHub the same question fifty times within seconds, at the expense of what upstream's
installation may spend on checks.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from cachetools import TLRUCache

from relay.clock import Now
from relay.github.port import Address, ChangedPaths, GitHub
from relay.store.dispatching import ToSend

#: How long an answer stands. It belongs to one head on one base, so it does not grow old; it is only wanted for long.
KEPT = timedelta(minutes=1)
_MOST = 200
_NOWHERE = "0" * 40

_Key = tuple[int | None, str | None, str | None, str]


class ChangedFiles:
    """Asks GitHub, and has whoever asks the same meanwhile or soon after wait for that answer."""

    def __init__(self, github: GitHub, now: Now) -> None:
        self._github = github
        self._asked: TLRUCache[_Key, asyncio.Task[ChangedPaths], datetime] = TLRUCache(
            maxsize=_MOST, ttu=lambda _key, _asked, at: at + KEPT, timer=now
        )

    async def of(self, at: Address, sent: ToSend) -> ChangedPaths:
        """What this head changes; see ``GitHub.changed_paths`` and ``compare_paths``. A failure is not kept."""
        key = (sent.number, sent.base_ref, sent.base_sha, sent.head_sha)
        asked = self._asked.get(key)
        if asked is None or (asked.done() and (asked.cancelled() or asked.exception() is not None)):
            asked = self._asked[key] = asyncio.ensure_future(self._ask(at, sent))
        # One who gives up does not take the answer from the others.
        return await asyncio.shield(asked)

    async def _ask(self, at: Address, sent: ToSend) -> ChangedPaths:
        if sent.number is not None:
            return await self._github.changed_paths(at, sent.number)
        return await self._github.compare_paths(at, sent.base_sha or _NOWHERE, sent.head_sha)
