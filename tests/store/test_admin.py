"""What an admin does to a backend, as rows on both databases: held back, told later, audited."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, select

from allowlist.model import Entry, Level
from relay.store import admin
from relay.store.admin import Demotion, Ended, Pause
from relay.store.dispatching import load_to_send
from relay.store.engine import Store
from relay.store.holding import hold_one
from relay.store.tables import Audit
from tests.conftest import Clock
from tests.relay.planning import EVERY, PATHS, S2, XPU, pull_request
from tests.store.taking_in import TERMS, Intake

_audit: Any = Audit.__table__  # type: ignore[attr-defined]

HOURS = timedelta(hours=3)


class Admin:
    """An admin beside the intake of webhooks."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock

    def intake(self, *entries: Entry) -> Intake:
        """A relay with these backends, now."""
        return Intake(self.store, entries, self.clock.now())

    def pause(self, entry: Entry, until: datetime | None = None) -> None:
        """Pause this backend."""
        now = self.clock.now()
        wanted = Pause(entry.repo, until or now + HOURS, "its runners are down")
        self._do(lambda conn: admin.pause(conn, wanted, "ada", TERMS, now))

    def resume(self, entry: Entry) -> int | None:
        """End its pause."""
        now = self.clock.now()
        return self.store.write_now(lambda conn: admin.resume(conn, entry.repo, "bob", "mended", TERMS, now))

    def sweep(self) -> Ended:
        """Look at what has run out."""
        now = self.clock.now()
        return self.store.write_now(lambda conn: admin.end_expired(conn, TERMS, now))

    def audited(self) -> list[tuple[str, ...]]:
        """Who, what, subject, why, before and after of each act."""
        columns = [_audit.c[name] for name in ("who", "what", "subject", "why", "before", "after")]
        rows = self.store.read_now(lambda conn: conn.execute(select(*columns).order_by(_audit.c.id)).all())
        return [tuple(row) for row in rows]

    def _do(self, unit: Any) -> None:
        self.store.write_now(unit)


@pytest.fixture
def ada(store: Store, clock: Clock) -> Admin:
    """An admin on each database."""
    return Admin(store, clock)


def states(intake: Intake) -> list[tuple[Any, ...]]:
    """Each dispatch: whom, in which state and with which outcome."""
    return intake.dispatches("backend", "state", "reason_code", "outcome")


def test_a_pause_keeps_back_what_was_not_sent_and_only_that(ada: Admin) -> None:
    """One waits in the outbox, one is in the worker's hands, one is another backend's: only the first is held."""
    intake = ada.intake(XPU)
    intake.take(pull_request(), "D1")
    intake.mark_effects("running")
    intake.take(pull_request("synchronize", S2, 1), "D2")

    ada.pause(XPU)

    assert [("org/xpu", "planned", "wanted", "queued"), ("org/xpu", "paused", "paused", "paused")] == states(intake)
    assert [("org/xpu", "running"), ("org/xpu", "cancelled")] == intake.effects()


def test_what_the_worker_holds_is_looked_at_before_it_is_sent(ada: Admin) -> None:
    """It was claimed before the pause: the worker reads of the pause with the dispatch, and keeps it back as well."""
    intake = ada.intake(XPU)
    intake.take(pull_request(), "D1")
    intake.mark_effects("running")
    ada.pause(XPU)

    sent = ada.store.read_now(lambda conn: load_to_send(conn, [1]))[1]
    ada.store.write_now(lambda conn: hold_one(conn, 1, sent.pause_reason or "", TERMS, ada.clock.now()))

    assert (ada.clock.now() + HOURS, "its runners are down") == (sent.paused_until, sent.pause_reason)
    assert [("org/xpu", "paused", "paused", "paused")] == states(intake)
    assert 1 == ada.resume(XPU)


def test_the_end_of_a_pause_tells_what_waited(ada: Admin) -> None:
    """What came before the pause and what came in it is told once it is over, with all its time before it."""
    intake = ada.intake(XPU)
    intake.take(pull_request(), "D1")
    ada.pause(XPU)
    later = replace(intake, now=ada.clock.advance(timedelta(hours=1)))
    later.take(pull_request("opened", S2, 1, number=8), "D2")
    assert ["paused", "paused"] == [row[1] for row in states(intake)]
    now = ada.clock.advance(timedelta(hours=1))

    assert 2 == ada.resume(XPU)

    assert 2 * [("org/xpu", "planned", "wanted", "queued")] == states(intake)
    assert 2 * [(now + timedelta(hours=8), now + timedelta(hours=8))] == intake.dispatches(
        "give_up_at", "next_deadline"
    )
    assert ["cancelled", "ready", "ready"] == [state for _, state in intake.effects()]
    assert ada.resume(XPU) is None


def test_what_nobody_waits_for_any_more_is_not_told_after_a_pause(ada: Admin) -> None:
    """The newest head is told, and every head of a backend that wants every commit; one run for each, not three."""
    intake = ada.intake(XPU, EVERY)
    for entry in (XPU, EVERY):
        ada.pause(entry)
    intake.take(pull_request(), "D1")
    intake.take(pull_request("synchronize", S2, 1), "D2")
    intake.take(pull_request("reopened", S2, 2), "D3")

    for entry in (XPU, EVERY):
        ada.resume(entry)

    found = sorted(zip(intake.dispatches("backend", "state"), intake.dispatches("delivery_id"), strict=True))
    assert [
        (("org/every", "planned"), ("D1",)),
        (("org/every", "planned"), ("D3",)),
        (("org/every", "superseded"), ("D2",)),
        (("org/xpu", "planned"), ("D3",)),
        (("org/xpu", "superseded"), ("D1",)),
        (("org/xpu", "superseded"), ("D2",)),
    ] == found


def test_changed_files_are_still_asked_for_after_a_pause(ada: Admin) -> None:
    """A pause does not let a change past the entry's filter of paths."""
    intake = ada.intake(PATHS)
    ada.pause(PATHS)
    intake.take(pull_request(), "D1")

    ada.resume(PATHS)

    assert ["pending_paths"] == [row[1] for row in states(intake)]
    assert ["ready"] == [state for _, state in intake.effects("decide_paths")]
    assert [] == intake.effects()


def test_a_pause_ends_by_itself(ada: Admin) -> None:
    """Nobody need remember it: what waited is told, and the audit says that time ended it. Twice is once."""
    intake = ada.intake(XPU)
    ada.pause(XPU)
    intake.take(pull_request(), "D1")
    ada.clock.advance(HOURS - timedelta(seconds=1))
    assert Ended((), (), 0) == ada.sweep()

    ada.clock.advance(timedelta(seconds=1))
    ended = ada.sweep()

    assert Ended((XPU.repo,), (), 1) == ended
    assert Ended((), (), 0) == ada.sweep()
    assert ["planned"] == [row[1] for row in states(intake)]
    said = "paused until 2026-11-30 15:00:00 UTC: its runners are down"
    assert [
        ("ada", "backend paused", "org/xpu", "its runners are down", "", said),
        ("relay", "pause expired", "org/xpu", "its runners are down", said, ""),
    ] == ada.audited()


def test_what_was_held_back_in_the_moment_after_a_pause_is_told(ada: Admin) -> None:
    """A webhook that read of the pause and was written down after its end would otherwise wait for ever."""
    intake = ada.intake(XPU)
    ada.pause(XPU)
    intake.take(pull_request(), "D1")
    ada.resume(XPU)
    intake.mark_dispatches("paused", "paused")

    assert Ended((), (), 1) == ada.sweep()
    assert [("org/xpu", "planned", "wanted", "queued")] == states(intake)


def test_acts_replace_each_other_and_the_audit_has_them_all(ada: Admin) -> None:
    """Who, what, why, before and after: also of a second demotion in place of a first, and of its end."""
    now = ada.clock.now()

    def demoted(conn: Connection, to: Level, who: str) -> None:
        admin.demote(conn, Demotion(XPU.repo, to, now + HOURS, "flaky"), who, TERMS, now)

    ada.store.write_now(lambda conn: demoted(conn, Level.L3, "ada"))
    ada.store.write_now(lambda conn: demoted(conn, Level.L2, "bob"))
    in_force = ada.store.read_now(admin.demotions)
    ended = ada.store.write_now(lambda conn: admin.restore(conn, XPU.repo, "cleo", "steady", TERMS, now))
    again = ada.store.write_now(lambda conn: admin.restore(conn, XPU.repo, "cleo", "steady", TERMS, now))

    assert (Demotion(XPU.repo, Level.L2, now + HOURS, "flaky"),) == in_force
    assert (True, False) == (ended, again)
    third, second = (f"at most {level} until 2026-11-30 15:00:00 UTC: flaky" for level in ("L3", "L2"))
    assert [
        ("ada", "backend demoted", "org/xpu", "flaky", "", third),
        ("bob", "backend demoted", "org/xpu", "flaky", third, second),
        ("cleo", "backend restored", "org/xpu", "steady", second, ""),
    ] == ada.audited()
