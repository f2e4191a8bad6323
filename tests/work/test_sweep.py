"""Deadlines: a silent backend holds nobody up, a missing result is never success, and a later truth replaces all."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import update

from allowlist.model import Level, OnSilence
from levels.outcomes import Outcome
from relay.store.deadlines import PATIENCE, Concluded, sweep_deadlines
from relay.store.engine import Store, StoreDownError
from relay.store.tables import Backend, Check, Dispatch, Effect
from relay.texts.words import GATE_NAME
from relay.work.sweep import Sweep
from tests.work.record import TERMS, Record

NPU_CHECK = "crcr/org/npu"
HOUR = timedelta(hours=1)
SOON = timedelta(seconds=4)


def sweep(record: Record) -> tuple[Concluded, ...]:
    """Turns of the sweep, with the looks at GitHub's runs that come between, and the looks at checks that follow."""
    made = asyncio.run(sweeper(record).turn())
    record.settle()
    made += asyncio.run(sweeper(record).turn())
    record.settle(passing=SOON)
    return made


def sweeper(record: Record, woken: list[str] | None = None) -> Sweep:
    """A sweep over this record."""
    wake = partial(([] if woken is None else woken).append, "woken")
    return Sweep(store=record.store, terms=record.terms, now=record.clock.now, wake=wake, seconds=0.01)


def outcome(record: Record, dispatch_id: int) -> tuple[str, str | None]:
    """The outcome as it stands, and what we concluded."""
    row = record.row(Dispatch, dispatch_id)
    return row.outcome, row.concluded


def shown(record: Record, name: str) -> tuple[str, str | None]:
    """Status and conclusion at GitHub."""
    check = record.github.showing(name)
    return check.status, check.conclusion


def test_a_silent_backend_steps_down_at_its_queue_deadline(record_on_both: Record) -> None:
    """CASES 30: pending at once, and at the deadline neutral with the reason; never success, never stuck."""
    record = record_on_both
    dispatch = record.told(record.change())
    record.settle()
    record.clock.advance(2 * HOUR - timedelta(seconds=1))
    assert () == sweep(record)
    assert ("in_progress", None) == shown(record, GATE_NAME)

    record.clock.advance(timedelta(seconds=1))
    (made,) = sweep(record)

    assert (Outcome.QUEUED, Outcome.SILENT) == (made.before, made.outcome)
    assert ("silent", "silent") == outcome(record, dispatch)
    assert ("completed", "neutral") == shown(record, GATE_NAME)
    assert "No verdict: org/npu did not answer" == record.github.showing(GATE_NAME).title
    assert "Nothing was tested there" in record.github.showing(GATE_NAME).summary
    assert ("completed", "neutral") == shown(record, NPU_CHECK)
    assert "Silent: nothing reported by 14:00 UTC" == record.github.showing(NPU_CHECK).title
    assert [("deadline", "queued", "silent")] == record.audit()
    assert "nothing was reported within 2 h" in record.row(Backend, "org/npu").last_error
    assert record.row(Dispatch, dispatch).next_deadline is None


def test_silence_blocks_where_the_entry_says_so(record: Record) -> None:
    """CASES 30: the declared outcome, and the check of what blocks does not look passed."""
    record.told(record.change(), on_silence=OnSilence.BLOCK)
    record.clock.advance(2 * HOUR)

    sweep(record)

    assert ("completed", "failure") == shown(record, GATE_NAME)
    assert ("completed", "failure") == shown(record, NPU_CHECK)
    assert "Its entry says that silence blocks." in record.github.showing(GATE_NAME).summary


def test_a_start_without_an_end_is_lost(record_on_both: Record) -> None:
    """Started, then vanished: that blocks, for it may well be this change that killed it."""
    record = record_on_both
    dispatch = record.told(record.change())
    record.clock.advance(HOUR)
    record.report(dispatch)
    record.clock.advance(6 * HOUR - timedelta(seconds=1))
    assert () == sweep(record)

    record.clock.advance(timedelta(seconds=1))
    sweep(record)

    assert ("lost", "lost") == outcome(record, dispatch)
    assert ("completed", "failure") == shown(record, GATE_NAME)
    assert ("completed", "timed_out") == shown(record, NPU_CHECK)
    assert "Started and not finished: `build`." in record.github.showing(NPU_CHECK).summary


def test_what_is_missing_is_named(record: Record) -> None:
    """CASES 22: 347 jobs expected, 14 reported: running until the deadline, then incomplete, and never green."""
    dispatch = record.told(record.change(), expected_jobs=347, versions=("2.9", "2.10"))
    for job in range(14):
        record.report(dispatch, "success", job=f"job {job}", version="2.9")
    record.settle()
    assert ("in_progress", None) == shown(record, GATE_NAME)

    record.clock.advance(7 * HOUR)
    sweep(record)

    assert ("incomplete", "incomplete") == outcome(record, dispatch)
    assert ("completed", "failure") == shown(record, GATE_NAME)
    summary = record.github.showing(NPU_CHECK).summary
    assert "14 of 347 jobs reported, 333 missing" in summary
    assert "No job of these backend versions: `2.10`." in summary


def test_never_told_by_the_gates_deadline_is_undelivered(record: Record) -> None:
    """The relay's own trouble holds nobody up either."""
    dispatch = record.dispatch(record.change())
    record.clock.advance(8 * HOUR - timedelta(seconds=1))
    assert () == sweep(record)
    record.clock.advance(timedelta(seconds=1))

    sweep(record)

    assert ("undelivered", "undelivered") == outcome(record, dispatch)
    assert ("completed", "neutral") == shown(record, GATE_NAME)


def test_paths_never_decided_is_undelivered(record: Record) -> None:
    """A question to GitHub that was never answered must not keep the gate open."""
    dispatch = record.dispatch(record.change(), state="pending_paths")
    record.clock.advance(8 * HOUR)

    sweep(record)

    assert "undelivered" == outcome(record, dispatch)[0]
    assert ("completed", "neutral") == shown(record, GATE_NAME)


def test_the_gate_does_not_wait_for_a_late_start(record_on_both: Record) -> None:
    """Promise 6: told late and started late, a run may outlast the gate's deadline, and the gate ends all the same."""
    record = record_on_both
    dispatch = record.dispatch(record.change())
    record.clock.advance(HOUR)
    record.sent(dispatch)
    record.clock.advance(2 * HOUR - SOON)
    record.report(dispatch)
    record.settle()

    record.clock.advance(5 * HOUR + SOON)
    (made,) = sweep(record)

    assert Outcome.TIMED_OUT == made.outcome
    assert ("completed", "failure") == shown(record, GATE_NAME)
    assert "still running when the gate's time was over" in made.reason


def test_a_change_that_cannot_wait_ends_its_gate_sooner(record: Record) -> None:
    """A merge group has 50 minutes in all, whatever the backend's own times are."""
    record.told(record.change(kind="merge_group"), patience=timedelta(minutes=50))
    record.clock.advance(timedelta(minutes=50))

    (made,) = sweep(record)

    assert Outcome.SILENT == made.outcome
    assert "within 50 min" in made.reason
    assert ("completed", "neutral") == shown(record, GATE_NAME)


def test_timeouts_are_the_entrys(record: Record) -> None:
    """CASES 27: each backend has its own."""
    change = record.change()
    quick = record.told(change, "org/quick", queue=timedelta(minutes=10))
    slow = record.told(change, "org/slow", queue=3 * HOUR)
    record.clock.advance(HOUR)

    sweep(record)

    assert ["silent", "queued"] == [outcome(record, quick)[0], outcome(record, slow)[0]]


def test_a_later_truth_replaces_our_conclusion(record_on_both: Record) -> None:
    """CASES 27: given up after 6 h; the true success comes 10 minutes later, and is marked late."""
    record = record_on_both
    dispatch = record.told(record.change())
    record.report(dispatch)
    record.clock.advance(6 * HOUR)
    sweep(record)
    assert ("completed", "failure") == shown(record, GATE_NAME)

    record.clock.advance(timedelta(minutes=10))
    record.report(dispatch, "success")
    record.settle(passing=SOON)

    assert ("completed", "success") == shown(record, GATE_NAME)
    assert "(reported late)" in record.github.showing(NPU_CHECK).title
    assert 1 == len(record.github.named(GATE_NAME))
    assert () == sweep(record)


def test_a_second_attempt_that_passed_stays_green(record: Record) -> None:
    """CASES 28: attempt 1 died silently, attempt 2 passed, the sweep runs."""
    dispatch = record.told(record.change())
    record.report(dispatch, attempt=1)
    record.clock.advance(HOUR)
    record.report(dispatch, attempt=2)
    record.report(dispatch, "success", attempt=2)

    record.clock.advance(24 * HOUR)

    assert () == sweep(record)
    assert ("completed", "success") == shown(record, GATE_NAME)


def test_a_new_attempt_has_a_deadline_of_its_own(record: Record) -> None:
    """A re-run that begins after the gate's deadline is not ended by it."""
    dispatch = record.told(record.change())
    record.report(dispatch, "failure")
    record.clock.advance(9 * HOUR)
    record.report(dispatch, attempt=2)
    record.settle(passing=SOON)
    assert ("in_progress", None) == shown(record, GATE_NAME)
    assert () == sweep(record)

    record.clock.advance(6 * HOUR)
    (made,) = sweep(record)

    assert Outcome.LOST == made.outcome


def test_what_is_settled_is_left_alone(record: Record) -> None:
    """A deadline that was not taken away meets nothing to conclude, and is taken away."""
    dispatch = record.told(record.change())
    record.report(dispatch, "success")
    record.edit_dispatch(dispatch, next_deadline=record.clock.now())

    assert () == sweep(record)

    assert ("success", None) == outcome(record, dispatch)
    assert record.row(Dispatch, dispatch).next_deadline is None


def test_nothing_is_concluded_of_what_owes_nothing(record: Record) -> None:
    """A dispatch that only notifies has no deadline, even if a row should have one."""
    dispatch = record.told(record.change(), purpose="notify")
    record.clock.advance(48 * HOUR)

    assert () == sweep(record)

    assert ("queued", None) == outcome(record, dispatch)


@pytest.mark.parametrize("level", [Level.L2, Level.L3])
def test_deadlines_hold_for_every_level(record: Record, level: Level) -> None:
    """A backend that gates nothing still wants to know that nobody heard of it."""
    dispatch = record.told(record.change(), level=level, device="dev1")
    record.clock.advance(2 * HOUR)

    sweep(record)

    assert "silent" == outcome(record, dispatch)[0]
    assert ("completed", "success") == shown(record, GATE_NAME)


def test_two_sweeps_at_once_conclude_once(store: Store, record_on_both: Record) -> None:
    """Replicas share the work: what one has locked the other leaves to it, and what is done is not done again."""
    record = record_on_both
    change = record.change()
    for number in range(5):
        record.told(change, f"org/b{number}")
    record.clock.advance(2 * HOUR)
    other = Store(store.url)

    async def both() -> list[tuple[Concluded, ...]]:
        now = record.clock.now()
        units = [one.write(lambda conn: sweep_deadlines(conn, now, TERMS)) for one in (store, other)]
        return await asyncio.gather(*units)

    made = [one for each in asyncio.run(both()) for one in each]
    other.close()
    made += sweep(record)

    assert [f"org/b{number}" for number in range(5)] == sorted(str(one.backend) for one in made)
    assert 5 == len(record.audit())


def test_a_batch_that_is_full_is_not_the_last(record: Record) -> None:
    """After an outage more is due than one pass takes."""
    change = record.change()
    for number in range(3):
        record.told(change, f"org/b{number}")
    record.clock.advance(2 * HOUR + PATIENCE)
    now = record.clock.now()

    passes = [record.store.write_now(lambda conn: sweep_deadlines(conn, now, TERMS, count=2)) for _ in range(3)]

    assert [2, 1, 0] == [len(made) for made in passes]


def test_the_worker_is_woken_when_something_was_concluded(record: Record) -> None:
    """The check must not wait for the worker's next look around."""
    woken: list[str] = []
    record.told(record.change())
    one = sweeper(record, woken)
    asyncio.run(one.turn())
    assert [] == woken

    record.clock.advance(2 * HOUR)
    asyncio.run(one.turn())

    assert ["woken"] == woken
    assert record.clock.now() == one.last_turn


def test_a_look_that_got_lost_is_healed(record_on_both: Record) -> None:
    """A touch may rely on an effect that was claimed in the same moment by a process that then died."""
    record = record_on_both
    record.told(record.change())
    effects = Effect.__table__  # type: ignore[attr-defined]
    record.store.write_now(lambda conn: conn.execute(update(effects).values(state="done")))

    sweep(record)

    assert {GATE_NAME, NPU_CHECK} == {run.now.name for run in record.github.runs}
    assert {True} == {row.wanted == row.applied for row in record.rows(Check)}


def test_a_dead_look_is_not_repeated_for_ever(record: Record) -> None:
    """A missing permission is a person's to mend; asking GitHub each minute would get the app banned."""
    record.told(record.change())
    effects = Effect.__table__  # type: ignore[attr-defined]
    record.store.write_now(
        lambda conn: conn.execute(update(effects).values(state="dead", finished_at=record.clock.now()))
    )

    sweep(record)
    assert [] == record.github.calls

    record.touch()
    record.settle()
    assert 2 == len(record.github.runs)


def test_a_dead_dispatch_nobody_marked_is_healed(record_on_both: Record) -> None:
    """The worker marks it with the effect; what a dying process left behind is found here."""
    record = record_on_both
    dispatch = record.dispatch(record.change())
    effects = Effect.__table__  # type: ignore[attr-defined]
    values = {
        "lane": "x",
        "pacing": "account org",
        "kind": "dispatch",
        "subject_id": dispatch,
        "subject": "org/npu",
        "state": "dead",
        "priority": 0,
        "due": record.clock.now(),
        "attempts": 1,
        "failures": 1,
        "created_at": record.clock.now(),
        "finished_at": record.clock.now(),
        "reason": "not_installed",
        "detail": "GitHub answered 404.",
    }
    record.store.write_now(lambda conn: conn.execute(effects.insert().values(**values)))

    sweep(record)

    assert ("dead", "undelivered") == (record.row(Dispatch, dispatch).state, outcome(record, dispatch)[0])
    assert ("completed", "neutral") == shown(record, GATE_NAME)
    assert "Reason: GitHub answered 404" in record.github.showing(GATE_NAME).summary


def test_the_loop_outlives_a_turn_that_fails(record: Record) -> None:
    """A database that is away for a minute must not end the sweep for good."""
    turns: list[int] = []

    class Failing(Sweep):
        async def turn(self) -> tuple[Concluded, ...]:
            turns.append(len(turns))
            if len(turns) == 1:
                raise StoreDownError("away")
            if len(turns) == 2:
                raise ValueError("a fault of ours")
            self.stop()
            return ()

    failing = Failing(store=record.store, terms=TERMS, now=record.clock.now, wake=lambda: None, seconds=0.001)
    asyncio.run(asyncio.wait_for(failing.run(), 5))

    assert [0, 1, 2] == turns
