"""A worker that starts tells dead ones from living ones, and takes over from the dead only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from relay.deciding.effects import Kind, NewEffect
from relay.store import outbox
from relay.store.engine import Store
from relay.store.handover import begin_work, lock_file

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SETTLE = timedelta(seconds=10)
SOON = NOW + SETTLE + timedelta(seconds=1)
OVER = NOW + outbox.LEASE + timedelta(seconds=1)


def claimed(store: Store) -> None:
    """One effect is in somebody's hands."""
    effect = NewEffect(Kind.DISPATCH, "lane", "account org", 1)
    store.write_now(lambda conn: outbox.enqueue(conn, [effect], NOW))
    assert 1 == take(store, "the first", NOW)


def take(store: Store, owner: str, at: datetime) -> int:
    """How much this worker gets when it claims."""
    return len(store.write_now(lambda conn: outbox.claim(conn, owner=owner, count=10, now=at)))


def test_what_a_dead_worker_held_is_free_within_seconds(store: Store) -> None:
    """On SQLite the kernel says who lives; on PostgreSQL only the lease does. Neither frees it before it may show."""
    claimed(store)

    end = begin_work(store, NOW, SETTLE)
    at_once, soon, later = take(store, "me", NOW), take(store, "me", SOON), take(store, "me", OVER)
    end()

    expected = (0, 1, 0) if store.dialect == "sqlite" else (0, 0, 1)
    assert expected == (at_once, soon, later)


def test_what_a_living_worker_holds_stays_with_it(store: Store) -> None:
    """A second worker beside the first, as in a deploy with an overlap: it waits for the lease like anybody else."""
    first = begin_work(store, NOW, SETTLE)
    claimed(store)

    second = begin_work(store, NOW, SETTLE)
    beside = take(store, "the second", SOON)
    first()
    third = begin_work(store, NOW, SETTLE)
    after = take(store, "the third", SOON)
    second()
    third()

    assert (0, 0) == (beside, after)  # When the third came the first was gone, but the second was there.
    last = begin_work(store, NOW, SETTLE)
    assert (1 if store.dialect == "sqlite" else 0) == take(store, "the last", SOON)
    last()


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("sqlite:///crcr.db", Path("crcr.db-workers")),
        ("sqlite:////var/lib/crcr/crcr.db", Path("/var/lib/crcr/crcr.db-workers")),
        ("sqlite://", None),
        ("sqlite:///:memory:", None),
        ("postgresql://relay@db/crcr", None),
        ("postgres://relay@db/crcr", None),
    ],
)
def test_workers_meet_at_a_file_beside_the_database(url: str, file: Path | None) -> None:
    """Where there is no such place, there is no such file."""
    assert file == lock_file(url)


def test_a_file_that_cannot_be_had_is_no_reason_not_to_start(store: Store) -> None:
    """The leases decide then, as they do on a server."""
    claimed(store)
    path = lock_file(store.url)
    if path is not None:
        path.mkdir()

    end = begin_work(store, NOW, SETTLE)
    soon, later = take(store, "me", SOON), take(store, "me", OVER)
    end()

    assert (0, 1) == (soon, later)
