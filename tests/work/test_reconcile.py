"""Checks on the pull request: whatever happens in whatever order, GitHub ends up showing what the record says."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection

from relay.github.errors import Forbidden, Invalid, Limited, RetryLater
from relay.store.check_notes import note_unchanged
from relay.store.checks import LATE
from relay.texts.words import GATE_NAME
from tests.work.record import TERMS, Record
from tests.work.remembered_github import S1

NPU_CHECK = "crcr/org/npu"
SOON = timedelta(seconds=4)
PER_JOB = replace(TERMS, per_job=True)


def shown(record: Record, name: str, head_sha: str = S1) -> tuple[str, str | None]:
    """Status and conclusion of what GitHub shows under this name."""
    check = record.github.showing(name, head_sha)
    return check.status, check.conclusion


def test_a_gate_without_backends_passes_at_once(record: Record) -> None:
    """A required check that nobody writes would hang the pull request for ever."""
    record.change()

    record.settle()

    assert ("completed", "success") == shown(record, GATE_NAME)
    assert "No backend holds this back" == record.github.showing(GATE_NAME).title


def test_from_dispatch_to_success(record_on_both: Record) -> None:
    """An L4 backend's check stands from the moment of dispatch, and the gate follows it."""
    record = record_on_both
    dispatch = record.dispatch(record.change())
    record.settle()
    assert ("queued", None) == shown(record, NPU_CHECK)
    assert "Queued since 12:00 UTC" == record.github.showing(NPU_CHECK).title
    assert ("in_progress", None) == shown(record, GATE_NAME)
    assert "Waiting for org/npu since 12:00 UTC" == record.github.showing(GATE_NAME).title

    record.sent(dispatch)
    record.settle(passing=timedelta(minutes=31))
    record.report(dispatch)
    record.settle()
    assert ("in_progress", None) == shown(record, NPU_CHECK)
    assert "Running since 12:31 UTC" == record.github.showing(NPU_CHECK).title

    record.settle(passing=timedelta(minutes=2))
    record.report(dispatch, "success", counts=(120, 0, 3))
    record.settle()
    assert ("completed", "success") == shown(record, NPU_CHECK)
    assert "Passed: 1 job, 120 tests passed, 3 skipped" == record.github.showing(NPU_CHECK).title
    assert ("completed", "success") == shown(record, GATE_NAME)
    assert "org/npu passed" == record.github.showing(GATE_NAME).title


def test_each_check_is_one_run_updated_in_place(record: Record) -> None:
    """A new run for each report would spend GitHub's limit on writes and cannot be required."""
    dispatch = record.told(record.change())
    record.report(dispatch)
    record.settle()
    record.report(dispatch, "failure")
    record.settle(passing=SOON)

    assert [1, 1] == [len(record.github.named(GATE_NAME)), len(record.github.named(NPU_CHECK))]
    assert ("completed", "failure") == shown(record, GATE_NAME)
    assert str(record.checks()[NPU_CHECK].id) == record.github.showing(NPU_CHECK).external_id


@pytest.mark.parametrize("ending", ["success", "failure"])
def test_ten_jobs_cost_at_most_six_writes(record: Record, ending: str) -> None:
    """GitHub allows 80 content-creating requests a minute for all pull requests together (DESIGN, Speed)."""
    dispatch = record.dispatch(record.change(), expected_jobs=10)
    record.settle()
    record.sent(dispatch)
    record.settle(passing=SOON)
    for job in range(10):
        record.report(dispatch, job=f"job {job}")
        record.settle(passing=SOON)
    for job in range(10):
        conclusion = ending if job == 0 else "success"
        record.report(dispatch, conclusion, job=f"job {job}", counts=(10, 0, 0))
        record.settle(passing=SOON)

    assert record.github.writes <= 6
    assert ("completed", ending) == shown(record, NPU_CHECK)
    assert ("completed", ending) == shown(record, GATE_NAME)
    for job in range(10):
        assert f"`job {job}`" in record.github.showing(NPU_CHECK).text


def test_a_check_run_that_is_gone_is_written_anew(record: Record) -> None:
    """A required check that GitHub lost would hold its commit for ever: what cannot be edited is created."""
    dispatch = record.told(record.change())
    record.settle()
    record.github.faults = [("before update", Invalid("nowhere (404)", reason="not_found", status=404))]

    record.report(dispatch, "success")
    record.settle(passing=SOON)

    assert [] == record.github.faults
    assert ("completed", "success") == shown(record, NPU_CHECK)
    assert ("completed", "success") == shown(record, GATE_NAME)


def test_a_burst_is_written_once_per_interval(record: Record) -> None:
    """The first state goes out at once; what changes within three seconds of it shares one write."""
    dispatch = record.told(record.change(), expected_jobs=2)
    record.settle()
    before = record.github.writes

    record.report(dispatch)
    record.report(dispatch, "success")
    record.report(dispatch, job="second")
    record.report(dispatch, "success", job="second")
    assert 0 == record.settle(passing=timedelta(seconds=1))
    record.settle(passing=timedelta(seconds=2))

    assert 2 == record.github.writes - before
    assert ("completed", "success") == shown(record, NPU_CHECK)


def test_an_unchanged_check_is_not_written_again(record: Record) -> None:
    """A touch is a reason to look, not to write."""
    record.told(record.change())
    record.settle()
    before = record.github.writes

    record.touch()
    assert 2 == record.settle(passing=SOON)

    assert before == record.github.writes


def test_failure_is_known_before_the_last_job(record_on_both: Record) -> None:
    """CASES 19: a reviewer learns of the first failure; when all jobs are in, the whole table stands there."""
    record = record_on_both
    dispatch = record.told(record.change(), expected_jobs=3)
    record.report(dispatch, "success", job="test", check="1")
    record.report(dispatch, "failure", job="test", check="2")
    record.settle()
    early = record.github.showing(NPU_CHECK)
    assert ("completed", "failure") == (early.status, early.conclusion)
    assert "Failed; not all jobs have reported yet" == early.title

    record.report(dispatch, "success", job="test", check="3")
    record.settle(passing=SOON)

    assert "Failed: 1 of 3 jobs" == record.github.showing(NPU_CHECK).title


def test_a_slow_answer_does_not_leave_an_older_state(record: Record) -> None:
    """CASES 17: while GitHub takes its time with in_progress the job completes; the check ends as completed."""
    dispatch = record.told(record.change())
    record.settle()
    record.report(dispatch)
    mark = record.checks()[NPU_CHECK].wanted
    real = record.github.update_check_run

    async def slow(on: Any, check_run_id: int, check: Any) -> None:
        record.github.update_check_run = real  # type: ignore[method-assign]
        record.report(dispatch, "success")
        await real(on, check_run_id, check)

    record.github.update_check_run = slow  # type: ignore[method-assign]
    record.settle(passing=SOON)
    assert mark is not None
    record.settle(passing=SOON)

    assert ("completed", "success") == shown(record, NPU_CHECK)
    assert ("completed", "success") == shown(record, GATE_NAME)


def test_a_touch_during_a_look_owes_another_look(record_on_both: Record) -> None:
    """On two replicas a touch may find an effect that was claimed already: the note sees it and looks again."""
    record = record_on_both
    record.told(record.change())
    record.settle(passing=SOON)
    record.clock.advance(SOON)
    record.touch()
    gate = record.checks()[GATE_NAME]

    def answered_late(conn: Connection) -> None:
        note_unchanged(conn, gate.id, "a mark read before the touch", TERMS, record.clock.now())

    claimed = record.claim()
    record.store.write_now(answered_late)
    for effect in claimed:
        record.perform(effect)

    assert 1 == record.settle()
    row = record.checks()[GATE_NAME]
    assert row.applied == row.wanted


def test_waiting_again_is_a_new_run(record: Record) -> None:
    """A completed check that must wait again is a new check run of the same name; the newest of a name shows."""
    change = record.change()
    record.report(record.told(change), "failure")
    record.settle()
    assert ("completed", "failure") == shown(record, GATE_NAME)

    record.told(change)
    record.settle(passing=SOON)

    assert [2, 2] == [len(record.github.named(GATE_NAME)), len(record.github.named(NPU_CHECK))]
    assert ("in_progress", None) == shown(record, GATE_NAME)
    assert ("queued", None) == shown(record, NPU_CHECK)
    assert "failure" == record.github.named(GATE_NAME)[0].now.conclusion


def test_a_later_truth_replaces_a_conclusion_in_place(record: Record) -> None:
    """Completed to completed is an update: nothing waits, so nothing new needs to show."""
    dispatch = record.told(record.change())
    record.edit_dispatch(dispatch, outcome="silent", concluded="silent", concluded_at=record.clock.now())
    record.settle()
    assert ("completed", "neutral") == shown(record, GATE_NAME)

    record.report(dispatch, "success")
    record.settle(passing=SOON)

    assert ("completed", "success") == shown(record, GATE_NAME)
    assert 1 == len(record.github.named(GATE_NAME))


# --- A create whose answer is lost -----------------------------------------------------------------------------------


def lost(*, ambiguous: bool) -> RetryLater:
    """A 502, after or before its effect."""
    return RetryLater("GitHub answered 502.", ambiguous=ambiguous, status=502)


def test_a_create_that_took_effect_unheard_is_found_again(record_on_both: Record) -> None:
    """Without a look first each lost answer would leave a check run that waits for ever."""
    record = record_on_both
    record.change()
    record.github.faults.append(("after create", lost(ambiguous=True)))
    record.settle()
    assert record.checks()[GATE_NAME].creating
    assert "GitHub answered 502." == record.checks()[GATE_NAME].last_error

    record.settle(passing=timedelta(seconds=11))

    assert ["create crcr/gate", "find crcr/gate", "update crcr/gate"] == record.github.calls
    assert 1 == len(record.github.runs)
    row = record.checks()[GATE_NAME]
    assert (None, record.github.runs[0].id) == (row.last_error, row.github_id)

    record.heal(passing=LATE)

    assert not record.checks()[GATE_NAME].creating
    assert ["find crcr/gate"] == record.github.calls[3:]


def test_a_create_that_had_no_effect_is_sent_again(record: Record) -> None:
    """An ambiguous failure may have had none: then there is nothing to find."""
    record.change()
    record.github.faults.append(("before create", lost(ambiguous=True)))
    record.settle()

    record.settle(passing=timedelta(seconds=11))

    assert ["create crcr/gate", "find crcr/gate", "create crcr/gate"] == record.github.calls
    assert ("completed", "success") == shown(record, GATE_NAME)


def test_an_open_question_outlives_a_failed_look(record: Record) -> None:
    """That the look itself failed says nothing about the create before it."""
    record.change()
    record.github.faults += [
        ("after create", lost(ambiguous=True)),
        ("before find", lost(ambiguous=False)),
    ]
    record.settle()
    record.settle(passing=timedelta(seconds=11))
    assert record.checks()[GATE_NAME].creating

    record.settle(passing=timedelta(seconds=11))

    assert 1 == len(record.github.runs)


def test_a_create_that_comes_late_is_found_all_the_same(record_on_both: Record) -> None:
    """GitHub may take effect after the look that found nothing: the newest run would then show the older state."""
    record = record_on_both
    change = record.change()
    record.settle()
    dispatch = record.told(change)
    record.github.faults.append(("late create", lost(ambiguous=True)))
    record.settle(passing=SOON)
    record.settle(passing=timedelta(seconds=11))
    record.report(dispatch, "success")
    record.settle(passing=SOON)
    assert ("completed", "success") == shown(record, GATE_NAME)
    record.github.catch_up()
    assert ("in_progress", None) == shown(record, GATE_NAME)

    record.heal(passing=LATE)

    assert ("completed", "success") == shown(record, GATE_NAME)
    assert 3 == len(record.github.named(GATE_NAME))
    row = record.checks()[GATE_NAME]
    assert (False, record.github.named(GATE_NAME)[-1].id) == (row.creating, row.github_id)


def test_of_two_open_runs_the_older_is_ended(record: Record) -> None:
    """GitHub shows the newest, and the other would wait for ever in the list of all runs."""
    change = record.change()
    record.settle()
    record.told(change)
    record.github.faults.append(("late create", lost(ambiguous=True)))
    record.settle(passing=SOON)
    record.settle(passing=timedelta(seconds=11))
    record.github.catch_up()

    record.heal(passing=LATE)

    _, second, late = record.github.named(GATE_NAME)
    assert ("cancelled", "Replaced by a newer check run") == (second.now.conclusion, second.now.title)
    assert (None, "Waiting for org/npu since 12:00 UTC") == (late.now.conclusion, late.now.title)


def test_a_create_that_nobody_waits_for_any_more_is_ended(record_on_both: Record) -> None:
    """Nothing was noted of GitHub's answer, and then the change goes: what is open there must not stay so."""
    record = record_on_both
    change = record.change()
    record.settle()
    record.told(change)
    record.github.faults.append(("after create", lost(ambiguous=True)))
    record.settle(passing=SOON)
    assert [None] == [run.now.conclusion for run in record.github.named(GATE_NAME)[1:]]
    record.edit_change(change, state="closed", ended_at=record.clock.now())

    record.settle(passing=timedelta(seconds=11))

    assert ["success", "cancelled"] == [run.now.conclusion for run in record.github.named(GATE_NAME)]


@pytest.mark.parametrize("error", [Forbidden("no."), lost(ambiguous=False)])
def test_a_refused_create_leaves_no_question(record: Record, error: Exception) -> None:
    """Where GitHub said no, there is no check run to look for."""
    record.change()
    record.github.faults.append(("before create", error))  # type: ignore[arg-type]

    record.settle()

    assert not record.checks()[GATE_NAME].creating


def test_errors_reach_the_worker(record: Record) -> None:
    """The reconciler decides nothing about when to try again: a limit is the account's."""
    record.change()
    until = record.clock.now() + timedelta(minutes=1)
    record.github.faults.append(("before create", Limited("slow down", retry_at=until)))

    with pytest.raises(Limited):
        asyncio.run(record.reconciler().reconcile(record.checks()[GATE_NAME].id))


def test_a_lost_create_of_a_second_run_is_not_mistaken_for_the_first(record: Record) -> None:
    """The first run of the name is completed and known; only another one answers the question."""
    change = record.change()
    record.report(record.told(change), "failure")
    record.settle()
    record.told(change)
    record.github.faults.append(("after create", lost(ambiguous=True)))
    record.settle(passing=SOON)

    record.settle(passing=timedelta(seconds=11))

    assert 2 == len(record.github.named(GATE_NAME))
    assert 2 == len(record.github.named(NPU_CHECK))
    assert ("in_progress", None) == shown(record, GATE_NAME)


def test_a_second_run_that_never_came_to_be_is_not_taken_for_the_first(record: Record) -> None:
    """The look finds only the completed first run: that one stays as it is, and the second is created after all."""
    change = record.change()
    record.report(record.told(change), "failure")
    record.settle()
    record.told(change)
    record.github.faults.append(("before create", lost(ambiguous=True)))
    record.settle(passing=SOON)

    record.settle(passing=timedelta(seconds=11))

    assert ["failure", None] == [run.now.conclusion for run in record.github.named(GATE_NAME)]
