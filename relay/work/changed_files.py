"""The changed files of a head, asked for once for all backends whose entries name paths.

Fifty such backends would ask GitHub the same question fifty times within seconds, at the expense of what upstream's
installation may spend on checks.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from cachetools import TLRUCache

from relay.clock import Now
from relay.github.errors import GitHubError
from relay.github.port import Address, GitHub
from relay.store.dispatching import ToSend
from relay.store.intake import PathsAnswer

#: How long an answer stands. It belongs to one head on one base, so it does not grow old; it is only wanted for long.
KEPT = timedelta(minutes=1)
_MOST = 200
_NOWHERE = "0" * 40
_MOVED = "The changed files are not known: the pull request had another head by the time they were listed."

_Key = tuple[int | None, str | None, str | None, str]
#: None: whoever asked was stopped before there was an answer.
_Asked = asyncio.Future[PathsAnswer | None]


class ChangedFiles:
    """Asks GitHub, and has whoever asks the same meanwhile or soon after wait for that answer.

    The first who asks does so for all, in its own task: that an answer came is known to whoever sent the request.
    """

    def __init__(self, github: GitHub, now: Now) -> None:
        self._github = github
        self._asked: TLRUCache[_Key, _Asked, datetime] = TLRUCache(
            maxsize=_MOST, ttu=lambda _key, _asked, at: at + KEPT, timer=now
        )

    async def of(self, at: Address, sent: ToSend) -> PathsAnswer:
        """What this head changes, and whether that is all. Raises GitHubError; a failure is not kept."""
        key = (sent.number, sent.base_ref, sent.base_sha, sent.head_sha)
        while (asked := self._asked.get(key)) is not None:
            # One who gives up does not take the answer from the others.
            if (answer := await asyncio.shield(asked)) is not None:
                return answer
        return await self._ask_for_all(key, at, sent)

    async def _ask_for_all(self, key: _Key, at: Address, sent: ToSend) -> PathsAnswer:
        asked = self._asked[key] = asyncio.get_running_loop().create_future()
        try:
            answer = await self._ask(at, sent)
        except BaseException as error:
            if self._asked.get(key) is asked:
                del self._asked[key]
            if isinstance(error, GitHubError):
                asked.set_exception(error)
                asked.exception()  # Perhaps nobody waits for it, which is no fault to be warned of.
            else:
                asked.set_result(None)
            raise
        asked.set_result(answer)
        return answer

    async def _ask(self, at: Address, sent: ToSend) -> PathsAnswer:
        if sent.number is None:
            compared = await self._github.compare_paths(at, sent.base_sha or _NOWHERE, sent.head_sha)
            return PathsAnswer(compared.paths, compared.complete)
        changed = await self._github.changed_paths(at, sent.number)
        # GitHub lists the files of whatever head the pull request has by then. One that is pushed back to an earlier
        # head would be held to what a later one changed, and its gate be green without those who asked for it.
        if (await self._github.pull(at, sent.number)).head_sha != sent.head_sha:
            return PathsAnswer((), complete=False, doubt=_MOVED)
        return PathsAnswer(changed.paths, changed.complete)
