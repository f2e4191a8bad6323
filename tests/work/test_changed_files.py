"""One question for all who ask the same, and an answer for each of them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from allowlist.model import RepoName
from relay.github.errors import RetryLater
from relay.github.port import Address, ChangedPaths
from relay.work.changed_files import KEPT, ChangedFiles

pytestmark = pytest.mark.anyio

AT = Address(RepoName("up", "stream"))
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Counting:
    """GitHub's list of files: counts who asks, and fails as often as it is told."""

    def __init__(self, failures: int = 0) -> None:
        self.asked: list[object] = []
        self.tasks: list[object] = []
        self._failures = failures
        self.head = "1"

    async def changed_paths(self, of: Address, number: int) -> ChangedPaths:
        """The same two files, whatever is asked for."""
        self.asked.append(number)
        self.tasks.append(asyncio.current_task())
        await asyncio.sleep(0.01)
        if self._failures:
            self._failures -= 1
            raise RetryLater("GitHub answered 502.", ambiguous=False, status=502)
        return ChangedPaths(("a", "b"), complete=True)

    async def pull(self, at: Address, number: int) -> Any:
        """It has this head by now."""
        return SimpleNamespace(head_sha=self.head)

    async def compare_paths(self, of: Address, base: str, head: str) -> ChangedPaths:
        """No file."""
        self.asked.append((base, head))
        return ChangedPaths((), complete=True)


def head(sha: str = "1", number: int | None = 7, base: str = "main") -> Any:
    """What a dispatch says of its head."""
    return SimpleNamespace(number=number, base_ref=base, base_sha="0", head_sha=sha)


async def test_those_who_ask_together_and_soon_after_share_an_answer() -> None:
    """For a minute; another head, or another base, is another question."""
    github, now = Counting(), [NOW]
    files = ChangedFiles(github, lambda: now[0])  # type: ignore[arg-type]

    answers = await asyncio.gather(*(files.of(AT, head()) for _ in range(5)))
    assert [("a", "b")] * 6 == [one.paths for one in (*answers, await files.of(AT, head()))]
    assert [7] == github.asked

    github.head = "2"
    await files.of(AT, head("2"))
    await files.of(AT, head(base="release"))
    await files.of(AT, head(number=None))
    assert [7, 7, 7, ("0", "1")] == github.asked

    now[0] += KEPT + timedelta(seconds=1)
    await files.of(AT, head())
    assert [7, 7, 7, ("0", "1"), 7] == github.asked


async def test_a_failure_is_everybodys_and_is_not_kept() -> None:
    """Who tries again asks again."""
    github = Counting(failures=1)
    files = ChangedFiles(github, lambda: NOW)  # type: ignore[arg-type]

    failed = await asyncio.gather(*(files.of(AT, head()) for _ in range(3)), return_exceptions=True)

    assert [RetryLater] * 3 == [type(one) for one in failed]
    assert ("a", "b") == (await files.of(AT, head())).paths
    assert [7, 7] == github.asked


async def test_the_answer_is_heard_by_who_asked() -> None:
    """What the request says of the account is known to the task that sent it, so no other may send it."""
    github = Counting()
    files = ChangedFiles(github, lambda: NOW)  # type: ignore[arg-type]

    tasks = [asyncio.ensure_future(files.of(AT, head())) for _ in range(2)]
    await asyncio.gather(*tasks)

    assert [tasks[0]] == github.tasks


async def test_one_who_is_stopped_while_it_asks_leaves_it_to_the_next() -> None:
    """Its time was up before GitHub's answer came; the others' was not."""
    github = Counting()
    files = ChangedFiles(github, lambda: NOW)  # type: ignore[arg-type]
    stopped = asyncio.ensure_future(files.of(AT, head()))
    others = [asyncio.ensure_future(files.of(AT, head())) for _ in range(2)]
    await asyncio.sleep(0.001)

    stopped.cancel()

    assert [("a", "b")] * 2 == [(await one).paths for one in others]
    assert [7, 7] == github.asked


async def test_one_who_gives_up_takes_the_answer_from_nobody() -> None:
    """Its time was up; the others' was not."""
    github = Counting()
    files = ChangedFiles(github, lambda: NOW)  # type: ignore[arg-type]
    other = asyncio.ensure_future(files.of(AT, head()))

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(files.of(AT, head()), 0.001)

    assert ("a", "b") == (await other).paths
    assert [7] == github.asked


async def test_files_of_another_head_decide_nothing() -> None:
    """GitHub lists those of the head that there is by then."""
    github = Counting()
    github.head = "2"
    files = ChangedFiles(github, lambda: NOW)  # type: ignore[arg-type]

    answer = await files.of(AT, head("1"))

    assert ((), False) == (answer.paths, answer.complete)
    assert "another head" in answer.doubt
