"""Claims are held against what GitHub shows, and a deadline asks GitHub before it concludes anything."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from allowlist.model import Level
from relay.effects import Kind
from relay.github.errors import Forbidden, GitHubError, Limited, NotInstalled, RetryLater
from relay.store.deadlines import PATIENCE
from relay.store.observing import FIRST_LOOK, LAST_LOOK, STRAGGLERS, UNREPORTED_EVERY, ask_now
from relay.store.tables import Backend, Dispatch, Effect, Job, Observation
from relay.words import GATE_NAME
from tests.work.record import NPU, Record
from tests.work.test_sweep import HOUR, SOON, outcome, shown, sweep, sweeper

NPU_CHECK = "crcr/org/npu"
QUEUE, RUN = 2 * HOUR, 6 * HOUR


def look(record: Record, dispatch: int) -> None:
    """Have this dispatch looked at now, and its checks after that."""
    level = record.row(Dispatch, dispatch).level
    record.store.write_now(lambda conn: ask_now(conn, dispatch, NPU, level, record.clock.now()))
    record.settle()
    record.settle(passing=SOON)


def passed(record: Record, **terms: Any) -> int:
    """A backend that was told and claims success for its one job."""
    dispatch = record.told(record.change(), **terms)
    record.report(dispatch, "success", check="7")
    record.settle(passing=SOON)
    return dispatch


def planned(record: Record) -> list[Any]:
    """The looks that wait."""
    return [row for row in record.rows(Effect) if row.kind == Kind.OBSERVE and row.state == "ready"]


def named(record: Record, dispatch: int) -> str:
    """A run's name that carries the delivery id of this dispatch."""
    return f"crcr {record.row(Dispatch, dispatch).delivery_id}"


# --- Claims -----------------------------------------------------------------------------------------------------------


def test_a_claim_that_github_bears_out_is_verified(record_on_both: Record) -> None:
    """The job's own conclusion stands beside the claim, and the gate stays as it was."""
    record = record_on_both
    dispatch = passed(record)
    record.github.shows("success", at=record.clock.now(), j7="success")

    look(record, dispatch)

    assert ("success", "success") == (record.rows(Job)[0].observed, outcome(record, dispatch)[0])
    assert ("completed", "success") == shown(record, GATE_NAME)
    assert "| verified |" in record.github.showing(NPU_CHECK).text
    assert "" == record.row(Dispatch, dispatch).observe_note
    assert [] == record.audit()
    (kept,) = record.rows(Observation)
    assert ("100", 1, "completed", "success", ".github/workflows/crcr.yml") == (
        kept.run_id,
        kept.run_attempt,
        kept.status,
        kept.conclusion,
        kept.workflow,
    )


@pytest.mark.parametrize("end", ["failure", "cancelled", "timed_out", "startup_failure"])
def test_a_claimed_success_of_a_run_that_failed_is_disputed(record_on_both: Record, end: str) -> None:
    """The gate blocks, and everybody can see why: the check, the audit trail and the backend's page."""
    record = record_on_both
    dispatch = passed(record)
    assert ("completed", "success") == shown(record, GATE_NAME)
    record.github.shows(end, at=record.clock.now())

    look(record, dispatch)

    assert "disputed" == outcome(record, dispatch)[0]
    assert ("completed", "failure") == shown(record, GATE_NAME)
    assert ("completed", "failure") == shown(record, NPU_CHECK)
    assert "GitHub shows run 100 (attempt 1) as" in record.github.showing(NPU_CHECK).summary
    assert "disputed: GitHub shows" in record.github.showing(NPU_CHECK).text
    assert [("observed", "success", "disputed")] == record.audit()
    assert "disputed at" in record.row(Backend, "org/npu").last_error


def test_one_job_can_deny_its_own_claim(record: Record) -> None:
    """Of a run that is allowed to fail in parts, the job that a claim names is what counts."""
    dispatch = passed(record)
    record.github.shows("success", at=record.clock.now(), j7="failure", j8="success")

    look(record, dispatch)

    assert ("failure", "disputed") == (record.rows(Job)[0].observed, outcome(record, dispatch)[0])


def test_a_run_that_goes_on_is_looked_at_again_and_then_left(record: Record) -> None:
    """Each look comes after twice the time, an unchanged answer is free, and some day nobody looks any more."""
    dispatch = passed(record)
    record.github.shows(None, at=record.clock.now())
    look(record, dispatch)
    assert "success" == outcome(record, dispatch)[0]

    began = record.row(Dispatch, dispatch).outcome_at
    looks = 0
    while waiting := planned(record):
        record.settle(passing=waiting[0].due - record.clock.now())
        looks += 1

    assert 3 <= looks <= 10
    assert record.clock.now() - began >= LAST_LOOK
    assert 1 == len(record.rows(Observation))


def test_a_run_that_fails_after_its_last_report_is_disputed_then(record: Record) -> None:
    """The first look found it still going; the next one finds the end."""
    dispatch = passed(record)
    record.github.shows(None, at=record.clock.now())
    look(record, dispatch)
    record.github.shows("failure", at=record.clock.now())

    record.settle(passing=timedelta(minutes=2))

    assert "disputed" == outcome(record, dispatch)[0]
    assert [] == planned(record)


def test_a_better_attempt_ends_the_dispute(record_on_both: Record) -> None:
    """A later truth replaces: the run was done again, and GitHub agrees with what it reports."""
    record = record_on_both
    dispatch = passed(record)
    record.github.shows("failure", at=record.clock.now())
    look(record, dispatch)
    assert "disputed" == outcome(record, dispatch)[0]

    record.clock.advance(HOUR)
    record.report(dispatch, attempt=2)
    record.report(dispatch, "success", attempt=2)
    record.github.shows("success", attempt=2, at=record.clock.now())
    look(record, dispatch)

    assert "success" == outcome(record, dispatch)[0]
    assert ["success"] == [job.observed for job in record.rows(Job) if job.deciding]


def test_a_failure_that_says_so_is_no_dispute_of_the_others(record: Record) -> None:
    """Its run failed because one job did; the job that passed is not called a liar for that."""
    dispatch = record.told(record.change(), expected_jobs=2)
    record.report(dispatch, "success", job="one")
    record.report(dispatch, "failure", job="two")
    record.github.shows("failure", at=record.clock.now())

    look(record, dispatch)

    assert "failure" == outcome(record, dispatch)[0]
    assert {"one": None, "two": "failure"} == {job.job_name: job.observed for job in record.rows(Job)}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Forbidden("needs actions: read", permission="actions"), "needs actions: read"),
        (NotInstalled("the app is not installed on org"), "the app is not installed on org"),
    ],
)
def test_what_cannot_be_seen_is_called_claimed_only(record_on_both: Record, fault: GitHubError, said: str) -> None:
    """No fault of the change: the claim stands, with the reason why nobody could check it."""
    record = record_on_both
    dispatch = passed(record)
    record.github.faults.append(("before observe", fault))

    look(record, dispatch)

    assert "success" == outcome(record, dispatch)[0]
    assert said in record.row(Dispatch, dispatch).observe_note
    assert "claimed only" in record.github.showing(NPU_CHECK).text
    assert "Claimed only" in record.github.showing(NPU_CHECK).summary
    assert [] == planned(record)


def test_a_run_that_is_gone_is_claimed_only(record: Record) -> None:
    """Somebody deleted the run before it was looked at."""
    dispatch = passed(record)

    look(record, dispatch)

    assert "success" == outcome(record, dispatch)[0]
    assert "does not have the run 100 any more" in record.row(Dispatch, dispatch).observe_note


def test_another_workflow_than_the_pinned_one_is_told(record: Record) -> None:
    """The file of the run is compared with the one that the entry names."""
    dispatch = passed(record)
    terms = record.row(Dispatch, dispatch).terms.replace('"workflow":null', '"workflow":".github/workflows/crcr.yml"')
    record.edit_dispatch(dispatch, terms=terms)
    record.github.shows("success", at=record.clock.now(), path=".github/workflows/other.yml")

    look(record, dispatch)

    assert "workflow file .github/workflows/other.yml" in record.row(Dispatch, dispatch).observe_note


@pytest.mark.parametrize("end", ["before observe", "before jobs"])
def test_a_look_that_fails_is_repeated(record: Record, end: str) -> None:
    """GitHub was down for a moment: nothing is noted, and the next try finds the truth."""
    dispatch = passed(record)
    record.github.shows("failure", at=record.clock.now(), j7="failure")
    record.github.faults.append((end, RetryLater("GitHub answered 502", ambiguous=False)))
    look(record, dispatch)
    assert "success" == outcome(record, dispatch)[0]

    record.settle(passing=timedelta(seconds=11))

    assert "disputed" == outcome(record, dispatch)[0]


def test_nobody_looks_where_no_result_is_recorded(record: Record) -> None:
    """A backend at L1 claims nothing that a reader could see, and costs no call."""
    record.told(record.change(), level=Level.L1)

    record.clock.advance(QUEUE)
    sweep(record)

    assert [] == [call for call in record.github.calls if call.startswith(("find runs", "observe"))]


# --- Deadlines --------------------------------------------------------------------------------------------------------


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


def test_a_first_look_comes_after_the_run_has_ended(record: Record) -> None:
    """The reporting job is a part of the run it reports on."""
    assert timedelta(seconds=20) == FIRST_LOOK
