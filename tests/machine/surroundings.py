"""What a history is played on: a GitHub that takes or refuses what fate says, and a store without threads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import Connection, event

from allowlist.model import RepoName
from relay.github.errors import Limited, NotInstalled, RetryLater
from relay.github.port import Address, Located
from relay.store.engine import Store
from tests.conftest import Clock
from tests.work.remembered_github import RememberedGitHub

T = TypeVar("T")

#: What becomes of the dispatches of one turn of the worker: GitHub takes them; takes them and does not say so; refuses
#: them once, for good, or for hours; or the worker dies before it notes that they were taken, or before it sends them.
FATES = ("taken", "unsaid", "refused", "gone", "limited", "unnoted", "held")


class GitHubOfHistories(RememberedGitHub):
    """Takes dispatches and comments besides checks, and does with a dispatch what its fate is."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.fate = "taken"
        self.sending = 0
        self.taken: Counter[int] = Counter()
        self.started: set[tuple[RepoName, str]] = set()
        self.comments: list[str] = []

    async def dispatch(self, to: Address, event_type: str, client_payload: bytes) -> Located:
        """Start a run, unless fate has it otherwise."""
        if self.fate == "refused":
            raise RetryLater("GitHub answered 502.", ambiguous=True, status=502)
        if self.fate == "gone":
            raise NotInstalled("The app is not installed there.", status=404)
        if self.fate == "limited":
            raise Limited("Slow down.", retry_at=self.clock.now() + timedelta(hours=9), status=403)
        self.taken[self.sending] += 1
        self.started.add((to.repo, json.loads(client_payload)["delivery_id"]))
        if self.fate == "unsaid":
            raise RetryLater("GitHub answered 502.", ambiguous=True, status=502)
        return Located(1, to.repository_id or 1, 2, False, to.repo)

    async def find_run(self, of: Address, delivery_id: str, since: datetime) -> bool | None:
        """Whether a run carries this delivery id in its name."""
        return (of.repo, delivery_id) in self.started

    async def create_comment(self, on: Address, number: int, body: str) -> int:
        """Take a comment."""
        self.comments.append(body)
        return len(self.comments)

    async def update_comment(self, on: Address, comment_id: int, body: str) -> None:
        """Change a comment."""
        self.comments[comment_id - 1] = body

    async def find_comment(self, on: Address, number: int, marker: str, since: datetime | None = None) -> int | None:
        """The comment with this marker."""
        return next((place for place, body in enumerate(self.comments, 1) if marker in body), None)


class AtOnce(Store):
    """A store whose units run where they are asked for: a history is one thread, and nothing is to survive it."""

    def __init__(self, url: str) -> None:
        super().__init__(url, readers=1)
        if self.dialect == "sqlite":
            event.listen(self.write_engine, "connect", _carelessly)

    async def write(self, unit: Callable[[Connection], T], *, waited_for: bool = False) -> T:
        """At once."""
        return self.write_now(unit)

    async def read(self, unit: Callable[[Connection], T]) -> T:
        """At once."""
        return self.read_now(unit)

    def write_now(self, unit: Callable[[Connection], T]) -> T:
        """In a transaction of its own."""
        with self.write_engine.begin() as conn:
            return unit(conn)


def _carelessly(dbapi: Any, _record: Any) -> None:
    dbapi.execute("PRAGMA synchronous=OFF")
