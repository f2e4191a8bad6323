"""Figures that are read when somebody asks: cheap however often, and with labels that cannot run away."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy import Connection

from allowlist.model import RepoName
from relay.condition import commit_of
from relay.figures import FRESH, Figures, by_side
from relay.github.port import Address
from relay.github.witness import Witness
from relay.metrics import Metrics
from relay.metrics_waiting import MOST_REASONS, bounded
from relay.store.checks import CheckTerms
from relay.store.engine import Store
from relay.work.allowlist import AllowlistKeeper, FileSource
from tests.conftest import Clock

T = TypeVar("T")
UPSTREAM = RepoName("up", "stream")
TERMS = CheckTerms(UPSTREAM, "ciflow/crcr/", timedelta(seconds=3))


class CountingStore(Store):
    """A store that counts how often it is read."""

    reads = 0

    async def read(self, unit: Callable[[Connection], T]) -> T:
        """Read, and count."""
        self.reads += 1
        return await super().read(unit)


def test_a_storm_of_scrapes_costs_one_reading_at_a_time(sqlite_template: Path, tmp_path: Path, clock: Clock) -> None:
    """A hundred that come together wait for one reading, or for the one after it; what is slow is read but once."""
    shutil.copy(sqlite_template, tmp_path / "relay.db")
    store = CountingStore(f"sqlite:///{tmp_path / 'relay.db'}")
    keeper = AllowlistKeeper(
        FileSource(tmp_path / "none.yml"),
        store,
        now=clock.now,
        terms=TERMS,
        label_prefix="ciflow/crcr/",
        seconds=30,
        wake=lambda: None,
    )
    figures = Figures(store=store, keeper=keeper, metrics=Metrics(), upstream=UPSTREAM, left=dict, now=clock.now)

    async def storm() -> list[int]:
        counted = []
        for _ in range(2):
            before = store.reads
            await asyncio.gather(*(figures.read() for _ in range(100)))
            counted.append(store.reads - before)
        clock.advance(FRESH)
        before = store.reads
        await figures.read()
        return [*counted, store.reads - before]

    # The first is under way when the others come, so what it reads may be older than they are.
    assert [5 + 4, 4 + 4, 5] == asyncio.run(storm())
    store.close()


def test_causes_of_dead_letters_are_bounded() -> None:
    """A reason that somebody makes up a thousand times makes one time series."""
    dead = {("dispatch", f"reason_{n}"): n + 1 for n in range(1_000)} | {("forward_hud", "rare"): 1}

    shown = bounded(dead)

    assert sum(dead.values()) == sum(shown.values())
    assert MOST_REASONS + 2 == len(shown)
    assert 1_000 == shown["dispatch", "reason_999"]
    assert 1 == shown["forward_hud", "other"]


def test_what_is_left_of_an_hour_is_told_by_side() -> None:
    """The poorest account of all backends stands for them; an hour that has ended says nothing."""
    at = datetime(2026, 11, 30, 12, tzinfo=UTC)
    time = [at]
    witness = Witness(lambda: time[0])

    def told(owner: str, left: str, reset: datetime = at + timedelta(minutes=30)) -> None:
        headers = {
            "x-ratelimit-remaining": left,
            "x-ratelimit-limit": "15000",
            "x-ratelimit-reset": str(int(reset.timestamp())),
        }
        witness.left(Address(RepoName(owner, "repo")), headers)

    told("up", "12000")
    told("one", "4000")
    told("two", "3500")
    told("three", "7", at + timedelta(days=2))
    told("four", "-5")
    told("five", "9" * 5_000)

    assert {"upstream": 12_000, "backends": 3_500} == by_side(witness.requests_left(), "account up")
    time[0] = at + timedelta(minutes=31)
    assert {} == by_side(witness.requests_left(), "account up")


def test_only_what_was_accepted_counts_as_answered() -> None:
    """Whoever sends us nonsense cannot make our answers look fast, or slow."""
    metrics = Metrics()
    for path, status in (
        ("/github/webhook", 202),
        ("/github/webhook", 401),
        ("/github/callback/batch", 200),
        ("/github/callback", 503),
        ("/healthz", 200),
    ):
        metrics.answered(path, status, 0.02)

    counts = [
        metrics.registry.get_sample_value("crcr_answer_seconds_count", {"what": what})
        for what in ("webhook", "callback")
    ]
    assert [1.0, 1.0] == counts


@pytest.mark.parametrize(
    ("noted", "commit"),
    [
        (json.dumps({"url": "https://x", "vcs_info": {"vcs": "git", "commit_id": "a" * 40}}), "a" * 40),
        (json.dumps({"url": "https://x", "dir_info": {"editable": True}}), None),
        ("[]", None),
        ("{", None),
        (None, None),
    ],
)
def test_the_commit_is_told_where_pip_knew_it(noted: str | None, commit: str | None) -> None:
    """An install from a repository says which commit it is; any other does not, and that is no fault."""
    assert commit == commit_of(lambda: noted)
