"""What a deadline makes of runs that were heard of: lost or out of time, whatever the relay noted of its own request.

Attempts that a backend begins by itself are not waited for without end.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Connection, update

from allowlist.model import Level
from levels.outcomes import Outcome
from relay.deciding.effects import send_dispatch
from relay.store.deadlines import note_dead_letters
from relay.store.outbox import enqueue
from relay.store.rerunning import KnownRun, ask_rerun
from relay.store.tables import Effect
from relay.texts.words import GATE_NAME
from tests.work.record import NPU, TERMS, Record
from tests.work.test_sweep import HOUR, SOON, shown, sweep

MINUTE = timedelta(minutes=1)


def ask_again(record: Record, dispatch: int) -> None:
    """Somebody who may has asked us for its run again."""
    now, runs = record.clock.now(), (KnownRun("100", 1, failed=True, running=False),)

    def unit(conn: Connection) -> None:
        ask_rerun(conn, dispatch, NPU, runs, only_failed=False, by="ada", terms=TERMS, now=now)

    record.store.write_now(unit)


def test_a_run_that_began_before_our_request_was_answered_is_lost_and_not_undelivered(record_on_both: Record) -> None:
    """CASES 23: a callback may come while the dispatch call is open. Its silence afterwards blocks: it did start."""
    record = record_on_both
    dispatch = record.dispatch(record.change())
    record.report(dispatch)
    record.clock.advance(6 * HOUR)

    (made,) = sweep(record)

    assert Outcome.LOST == made.outcome
    assert ("completed", "failure") == shown(record, GATE_NAME)


def test_attempts_that_a_backend_begins_by_itself_do_not_hold_a_gate_for_ever(record_on_both: Record) -> None:
    """Promise 6: whatever reruns itself every five hours is waited for until 14 h, and not for 50 attempts."""
    record = record_on_both
    dispatch = record.told(record.change())
    for attempt in range(1, 4):
        record.report(dispatch, attempt=attempt)
        assert () == sweep(record)
        record.clock.advance(5 * HOUR - 2 * SOON)

    record.clock.advance(MINUTE - HOUR)
    (made,) = sweep(record)

    assert Outcome.TIMED_OUT == made.outcome
    assert ("completed", "failure") == shown(record, GATE_NAME)


def test_an_attempt_that_begins_too_late_is_no_secret_and_its_result_counts(record: Record) -> None:
    """The gate does not wait for it, and says that it is running; when it ends well, it lets the merge go."""
    dispatch = record.told(record.change())
    record.report(dispatch, "failure")
    record.clock.advance(24 * HOUR)
    record.report(dispatch, attempt=2)
    (made,) = sweep(record)
    late = shown(record, GATE_NAME)

    record.report(dispatch, "success", attempt=2)
    record.settle(passing=SOON)

    assert (Outcome.TIMED_OUT, ("completed", "failure")) == (made.outcome, late)
    assert "still running when the gate's time was over" in made.reason
    assert ("completed", "success") == shown(record, GATE_NAME)


def test_an_attempt_that_somebody_asked_for_has_its_whole_time(record: Record) -> None:
    """A person may ask on the next day, and the gate waits for what they asked for."""
    dispatch = record.told(record.change())
    record.report(dispatch, "failure")
    record.clock.advance(24 * HOUR)
    ask_again(record, dispatch)
    record.clock.advance(HOUR)
    record.report(dispatch, attempt=2)
    record.settle(passing=SOON)
    record.clock.advance(5 * HOUR)
    assert () == sweep(record)
    assert ("in_progress", None) == shown(record, GATE_NAME)

    record.clock.advance(HOUR)
    (made,) = sweep(record)

    assert Outcome.LOST == made.outcome


def test_the_gates_deadline_asks_github_first(record: Record) -> None:
    """Started late and reported no end: GitHub shows that its run failed, which is more than that it took too long."""
    dispatch = record.dispatch(record.change())
    record.clock.advance(HOUR)
    record.sent(dispatch)
    record.clock.advance(2 * HOUR - SOON)
    record.report(dispatch)
    record.settle()
    record.github.shows("failure", at=record.clock.now())
    record.clock.advance(5 * HOUR + SOON)

    (made,) = sweep(record)

    assert Outcome.FAILURE == made.outcome
    assert ("completed", "failure") == shown(record, GATE_NAME)


def test_a_dead_letter_that_is_tried_again_is_none(record: Record) -> None:
    """Somebody had it sent once more: until that is over nobody says that it could not be delivered."""
    dispatch = record.dispatch(record.change())
    effects, now = Effect.__table__, record.clock.now()  # type: ignore[attr-defined]

    def twice(conn: Connection) -> None:
        for state in ("dead", "ready"):
            enqueue(conn, [send_dispatch(dispatch, NPU, "pull 7", Level.L4)], now)
            waiting = (effects.c.kind == "dispatch") & (effects.c.state == "ready")
            conn.execute(update(effects).where(waiting).values(state=state, finished_at=now))

    record.store.write_now(twice)

    assert 0 == record.store.write_now(lambda conn: note_dead_letters(conn, now, TERMS))


def test_a_start_that_was_reported_is_more_than_a_run_that_skipped(record: Record) -> None:
    """GitHub calls the run skipped in the end; a job of it had begun, and nobody knows what became of it."""
    dispatch = record.told(record.change())
    record.report(dispatch)
    record.github.shows("skipped", at=record.clock.now())
    record.clock.advance(6 * HOUR)

    (made,) = sweep(record)

    assert Outcome.LOST == made.outcome


def test_the_time_of_an_attempt_begins_with_its_first_job(record: Record) -> None:
    """A second job that starts an hour later gives the first one no more time: it is lost, and not merely late."""
    dispatch = record.told(record.change())
    record.report(dispatch)
    record.clock.advance(HOUR)
    record.report(dispatch, job="test")
    record.clock.advance(5 * HOUR)

    (made,) = sweep(record)

    assert Outcome.LOST == made.outcome


def test_silence_says_nothing_where_nothing_that_is_said_is_taken(record_on_both: Record) -> None:
    """An L1 backend may not report, so its queue deadline is no trouble of it; what never reached it still is."""
    record = record_on_both
    change = record.change()
    record.told(change, "org/listening", Level.L1)
    record.dispatch(change, "org/unreached", Level.L1)
    record.clock.advance(8 * HOUR)

    (made,) = sweep(record)

    assert ("org/unreached", Outcome.UNDELIVERED) == (str(made.backend), made.outcome)
    assert () == sweep(record)
