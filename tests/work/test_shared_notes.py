"""Notes that are cheaper together are written together, and each of them once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from sqlalchemy import Connection, text

from relay.store.dispatching import load_to_send, note_sent
from relay.store.engine import Store
from relay.work.verdicts import SharedNote, write_notes
from tests.relay.planning import NPU, XPU, pull_request
from tests.store.taking_in import Intake

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Named(SharedNote):
    """Notes how many came together, and their names."""

    name: str

    @classmethod
    def write_all(cls, conn: Connection, notes: Sequence[Self], now: datetime) -> None:
        reason = " ".join(note.name for note in notes)
        row = {"key": f"{len(notes)} together", "at": now.isoformat(" "), "reason": reason}
        conn.execute(text("INSERT INTO pacing (key, not_before, reason) VALUES (:key, :at, :reason)"), row)


def _alone(conn: Connection, now: datetime) -> None:
    row = {"at": now.isoformat(" ")}
    conn.execute(text("INSERT INTO pacing (key, not_before, reason) VALUES ('alone', :at, '')"), row)


def rows(store: Store) -> list[tuple[str, str]]:
    """What is noted."""
    said = text("SELECT key, reason FROM pacing ORDER BY key")
    return store.read_now(lambda conn: [(row.key, row.reason) for row in conn.execute(said)])


def test_those_of_one_kind_share_their_statements(store: Store) -> None:
    """Fifty dispatches end together; to note each by itself would hold up whoever writes next."""
    store.write_now(lambda conn: write_notes(conn, [Named("a"), _alone, Named("b")], NOW))

    assert [("2 together", "a b"), ("alone", "")] == rows(store)


def test_one_alone_is_a_note_like_any_other(store: Store) -> None:
    """A worker that writes notes one by one, after one of them spoiled the batch, calls each."""
    store.write_now(lambda conn: Named("a")(conn, NOW))

    assert [("1 together", "a")] == rows(store)


def test_all_that_a_webhook_sent_is_noted_at_once(store: Store) -> None:
    """What cannot be noted together is noted one by one, each in a transaction of its own, and webhooks wait for it."""
    intake = Intake(store, (XPU, NPU), NOW)
    intake.take(pull_request())

    def note(conn: Connection) -> None:
        note_sent(conn, [(one, None) for one in load_to_send(conn, [1, 2]).values()], NOW)

    store.write_now(note)

    assert [("sent",), ("sent",)] == intake.dispatches("state")
