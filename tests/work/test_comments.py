"""Comments at GitHub: one for each topic, whatever became of the answers to earlier tries."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from relay.github.errors import RetryLater
from relay.github.port import Address
from relay.store.comments import want_comment
from relay.store.engine import Store
from relay.work.comments import CommentReconciler
from tests.work.record import TERMS
from tests.work.remembered_github import UPSTREAM, RememberedGitHub


@dataclass
class Kept:
    """A comment at GitHub, and when it was written by GitHub's clock."""

    body: str
    at: datetime


class CommentingGitHub(RememberedGitHub):
    """A GitHub whose clock is behind ours, and whose first answer gets lost."""

    def __init__(self, now: Any, behind: timedelta) -> None:
        super().__init__()
        self.kept: list[Kept] = []
        self._now = now
        self._behind = behind

    async def create_comment(self, on: Address, number: int, body: str) -> int:
        """Take it; the first answer is lost on its way."""
        self.kept.append(Kept(body, self._now() - self._behind))
        if len(self.kept) == 1:
            raise RetryLater("The answer was lost.", ambiguous=True, reason="timeout")
        return len(self.kept)

    async def update_comment(self, on: Address, comment_id: int, body: str) -> None:
        """Replace the text."""
        self.kept[comment_id - 1].body = body

    async def find_comment(self, on: Address, number: int, marker: str, since: datetime | None = None) -> int | None:
        """The newest with this marker that is no older than ``since``."""
        found = [
            comment_id
            for comment_id, one in enumerate(self.kept, start=1)
            if marker in one.body and (since is None or one.at >= since)
        ]
        return found[-1] if found else None


@pytest.mark.parametrize("behind", [timedelta(), timedelta(seconds=90)])
def test_a_lost_answer_makes_no_second_comment_whatever_the_clocks_say(
    sqlite_store: Store, clock: Any, behind: timedelta
) -> None:
    """GitHub leaves out what is older than asked for, by its own clock: ours may be ahead."""
    github = CommentingGitHub(clock.now, behind)
    reconciler = CommentReconciler(store=sqlite_store, github=github, terms=TERMS, now=clock.now)
    comment_id = sqlite_store.write_now(lambda conn: want_comment(conn, 7, "help", "Hello.", UPSTREAM, clock.now()))

    with pytest.raises(RetryLater):
        asyncio.run(reconciler.reconcile(comment_id))
    asyncio.run(reconciler.reconcile(comment_id))

    assert 1 == len(github.kept)
