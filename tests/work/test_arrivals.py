"""Before a dispatch is repeated: what the runs leave open is waited for, and whoever waits holds nothing meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from allowlist.model import RepoName
from relay.github.errors import RetryLater
from relay.github.port import Address
from relay.store.claiming import Claimed
from relay.store.doubts import MAYBE_DELIVERED, UNSETTLED
from relay.store.engine import Store
from relay.work.arrivals import Arrivals
from relay.work.verdicts import NotYetError
from tests.store.test_doubts import NOW, Try, put

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
#: Two tries that GitHub failed after they had been sent, the second a minute after the first.
FAILED_TWICE = ((1, 1, "retry", True), (2, 2, "retry", True))


class Runs:
    """GitHub, as far as a backend's runs go; ``titles`` None: they may not be read. ``seconds``: how long it thinks."""

    def __init__(self, titles: Sequence[str] | None = (), seconds: float = 0.0) -> None:
        self._titles = titles
        self._seconds = seconds

    async def find_run(self, at: Address, delivery_id: str, since: datetime) -> bool | None:
        """Nobody's name has a delivery id."""
        await asyncio.sleep(self._seconds)
        return None if self._titles is None else False

    async def find_runs(self, at: Address, since: datetime) -> list[Any]:
        """All runs, of one workflow file."""
        return [SimpleNamespace(path=".github/workflows/a.yml", title=title) for title in self._titles or ()]


def sent() -> Any:
    """The first dispatch, as it is loaded before it is sent."""
    return SimpleNamespace(
        id=1,
        reported=False,
        created_at=NOW,
        address=Address(RepoName("org", "npu")),
        delivery_id="d-1",
        event_type="pull_request",
        terms=SimpleNamespace(workflow=None),
    )


def arrivals(store: Store, github: Runs, now: datetime, **given: Any) -> Arrivals:
    """Asks this GitHub at that time."""
    return Arrivals(store=store, github=github, now=lambda: now, **given)  # type: ignore[arg-type]


def doubtful(store: Store, now: datetime, *looks: Try) -> Claimed:
    """The dispatch in doubt, with its looks, and two others that were taken twelve and three seconds ago."""
    effect = put(store, 1, *FAILED_TWICE, *looks, state="planned", effect="running", reason=UNSETTLED)
    for number, ago in ((2, 12), (3, 3)):
        put(store, number, (1, (now - NOW - ago * SECOND) / timedelta(minutes=1), "done", False))
    return effect


async def test_what_others_have_just_started_is_seen_in_a_moment(sqlite_store: Store) -> None:
    """Behind an outage many go out one after the other: each is a reason to look again soon, and none to wait long."""
    now = NOW + timedelta(minutes=50)
    effect = doubtful(sqlite_store, now, (3, 49, "limited", False))

    with pytest.raises(NotYetError) as waits:
        await arrivals(sqlite_store, Runs(["pull_request"] * 2), now).arrived(effect, sent())

    assert ("unsettled", now + 15 * SECOND) == (waits.value.reason, waits.value.at)


async def test_a_backend_that_is_never_at_rest_does_not_hold_a_dispatch_back_for_good(sqlite_store: Store) -> None:
    """Where others go out all the time it will not be seen; then it waits once as what cannot be seen at all does."""
    now = NOW + timedelta(minutes=50)
    effect = doubtful(sqlite_store, now, *((number, 40 + number, "limited", False) for number in range(3, 10)))

    with pytest.raises(NotYetError) as waits:
        await arrivals(sqlite_store, Runs(["pull_request"] * 2), now).arrived(effect, sent())

    assert (MAYBE_DELIVERED, now + timedelta(hours=1)) == (waits.value.reason, waits.value.at)


async def test_what_cannot_be_seen_waits_an_hour(sqlite_store: Store) -> None:
    """The backend's Actions may not be read."""
    effect = put(sqlite_store, 1, *FAILED_TWICE, state="planned", effect="running")
    now = NOW + timedelta(minutes=3)

    with pytest.raises(NotYetError) as waits:
        await arrivals(sqlite_store, Runs(None), now).arrived(effect, sent())

    assert (MAYBE_DELIVERED, now + timedelta(hours=1)) == (waits.value.reason, waits.value.at)


async def test_a_look_that_takes_too_long_sent_nothing(sqlite_store: Store) -> None:
    """It ends before the try does, and does not count as one that may have arrived."""
    effect = put(sqlite_store, 1, *FAILED_TWICE, state="planned", effect="running")

    with pytest.raises(RetryLater) as failed:
        await arrivals(sqlite_store, Runs(seconds=30), NOW, look_seconds=0.02).arrived(effect, sent())

    assert ("timeout", False) == (failed.value.reason, failed.value.ambiguous)
