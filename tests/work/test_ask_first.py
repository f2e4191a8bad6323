"""A deadline asks GitHub about the runs before it concludes anything, and waits for the answer less than a minute."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from relay.github.errors import GitHubError, Limited, RetryLater
from relay.store.deadlines import PATIENCE
from relay.store.observing import STRAGGLERS, UNREPORTED_EVERY
from relay.store.tables import Dispatch
from relay.texts.words import GATE_NAME
from tests.work.record import Record
from tests.work.test_observe import NPU_CHECK, QUEUE, RUN, named, planned
from tests.work.test_sweep import HOUR, SOON, outcome, shown, sweep, sweeper


def test_a_run_that_goes_on_is_not_silent(record_on_both: Record) -> None:
    """CASES 27: its start was never reported, and it is found by its name; the gate waits for it as for a start."""
    record = record_on_both
    dispatch = record.told(record.change())
    began = record.clock.now() + HOUR
    record.github.shows(None, title=named(record, dispatch), at=began)
    record.clock.advance(QUEUE)

    made = sweep(record)

    assert ((), ("running", None)) == (made, outcome(record, dispatch))
    row = record.row(Dispatch, dispatch)
    assert (began, began + RUN) == (row.started_at, row.next_deadline)
    assert ("in_progress", None) == shown(record, GATE_NAME)
    assert ("in_progress", None) == shown(record, NPU_CHECK)
    (again,) = planned(record)
    assert UNREPORTED_EVERY >= again.due - record.clock.now() > UNREPORTED_EVERY - timedelta(minutes=1)


@pytest.mark.parametrize("end", ["failure", "cancelled", "timed_out", "action_required"])
def test_a_run_that_failed_without_a_word_blocks(record_on_both: Record, end: str) -> None:
    """Silence would have let the merge go on; what GitHub shows of the run does not."""
    record = record_on_both
    dispatch = record.told(record.change())
    record.github.shows(end, title=named(record, dispatch), at=record.clock.now())
    record.clock.advance(QUEUE)

    sweep(record)

    assert (end, end) == outcome(record, dispatch)
    assert ("completed", "failure") == shown(record, GATE_NAME)
    assert "Nothing was reported" in record.github.showing(NPU_CHECK).summary
    assert record.row(Dispatch, dispatch).next_deadline is None


def test_a_run_that_passed_without_a_word_is_no_success(record_on_both: Record) -> None:
    """A run is no result: its reports have a few more minutes, and then it is incomplete."""
    record = record_on_both
    dispatch = record.told(record.change())
    record.github.shows("success", title=named(record, dispatch), at=record.clock.now())
    record.clock.advance(QUEUE)
    sweep(record)
    assert "running" == outcome(record, dispatch)[0]

    record.clock.advance(STRAGGLERS)
    sweep(record)

    assert ("incomplete", "incomplete") == outcome(record, dispatch)
    assert ("completed", "failure") == shown(record, GATE_NAME)


def test_reports_that_come_after_all_replace_what_the_run_said(record: Record) -> None:
    """The callback was held up, not lost: the result is what it says."""
    dispatch = record.told(record.change())
    record.github.shows("success", title=named(record, dispatch), at=record.clock.now())
    record.clock.advance(QUEUE)
    sweep(record)
    record.clock.advance(STRAGGLERS)
    sweep(record)

    record.report(dispatch, "success")
    record.settle(passing=SOON)

    assert "success" == outcome(record, dispatch)[0]
    assert ("completed", "success") == shown(record, GATE_NAME)


@pytest.mark.parametrize(("end", "becomes"), [(None, "timed_out"), ("failure", "failure"), ("success", "lost")])
def test_github_is_asked_before_a_job_is_called_lost(record: Record, end: str | None, becomes: str) -> None:
    """CASES 27: what still runs has timed out, what failed has failed, and what only fell silent is lost."""
    dispatch = record.told(record.change())
    record.report(dispatch)
    record.github.shows(end, at=record.clock.now())
    record.clock.advance(RUN)

    sweep(record)

    assert becomes == outcome(record, dispatch)[0]
    assert ("completed", "failure") == shown(record, GATE_NAME)


@pytest.mark.parametrize(
    "fault",
    [
        RetryLater("GitHub answered 502", ambiguous=False),
        Limited("secondary rate limit", retry_at=None),  # type: ignore[arg-type]  # Nothing here reads the time.
    ],
)
def test_github_being_down_keeps_no_gate_open(record_on_both: Record, fault: GitHubError) -> None:
    """A deadline waits for an answer less than a minute, whatever GitHub does."""
    record = record_on_both
    dispatch = record.told(record.change())
    deadline = record.row(Dispatch, dispatch).next_deadline
    record.github.faults += [("before find runs", fault)] * 5
    record.clock.advance(QUEUE)
    sweep(record)
    assert "queued" == outcome(record, dispatch)[0]

    record.clock.advance(PATIENCE - SOON)
    sweep(record)

    assert ("silent", "silent") == outcome(record, dispatch)
    assert record.clock.now() - deadline <= timedelta(minutes=1)


def test_the_truth_after_a_deadline_that_could_not_wait_replaces_silence(record: Record) -> None:
    """GitHub came back after we had concluded: a run that goes on is waited for after all."""
    dispatch = record.told(record.change())
    record.github.shows(None, title=named(record, dispatch), at=record.clock.now() + HOUR)
    record.clock.advance(QUEUE + PATIENCE)

    asyncio.run(sweeper(record).turn())
    assert "silent" == outcome(record, dispatch)[0]
    record.settle()
    record.settle(passing=SOON)

    assert ("running", None) == outcome(record, dispatch)
    assert ("in_progress", None) == shown(record, GATE_NAME)


def test_a_deadline_asks_once(record: Record) -> None:
    """However often the sweep comes by while the answer is awaited, GitHub is asked one question."""
    record.told(record.change())
    record.clock.advance(QUEUE)

    for _ in range(5):
        asyncio.run(sweeper(record).turn())
    record.settle()
    for _ in range(5):
        asyncio.run(sweeper(record).turn())

    assert 1 == record.github.calls.count("find runs")


def test_a_deadline_does_not_wait_for_a_look_that_was_planned_later(record: Record) -> None:
    """The next look was due in a quarter of an hour; the deadline is now."""
    dispatch = record.told(record.change())
    record.github.shows(None, title=named(record, dispatch), at=record.clock.now())
    record.clock.advance(QUEUE)
    sweep(record)
    record.settle(passing=RUN - QUEUE - timedelta(minutes=5))
    assert planned(record)[0].due > record.row(Dispatch, dispatch).next_deadline
    record.clock.advance(timedelta(minutes=5))

    sweep(record)

    assert ("timed_out", "timed_out") == outcome(record, dispatch)


def test_the_gate_s_own_time_bounds_a_run_that_was_found(record: Record) -> None:
    """A run found by its name moves the backend's deadline; the gate ends when it was said to end."""
    dispatch = record.told(record.change())
    record.github.shows(None, title=named(record, dispatch), at=record.clock.now() + QUEUE - SOON)
    give_up_at = record.row(Dispatch, dispatch).give_up_at
    record.clock.advance(QUEUE)
    sweep(record)
    record.edit_dispatch(dispatch, next_deadline=give_up_at + HOUR)
    record.clock.advance(give_up_at - record.clock.now())

    sweep(record)

    assert ("timed_out", "timed_out") == outcome(record, dispatch)
    assert record.clock.now() - give_up_at <= timedelta(minutes=1)
