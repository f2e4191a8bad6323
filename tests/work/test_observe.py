"""Claims are held against what GitHub shows of the same runs, once these have ended."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from allowlist.model import Level
from relay.deciding.effects import Kind
from relay.github.errors import Forbidden, GitHubError, NotInstalled, RetryLater
from relay.store.observing import FIRST_LOOK, LAST_LOOK, ask_now
from relay.store.tables import Backend, Dispatch, Effect, Job, Observation
from relay.texts.words import GATE_NAME
from tests.work.record import NPU, Record
from tests.work.test_sweep import HOUR, SOON, outcome, shown, sweep

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


def test_a_first_look_comes_after_the_run_has_ended(record: Record) -> None:
    """The reporting job is a part of the run it reports on."""
    assert timedelta(seconds=20) == FIRST_LOOK
