"""Checks on the pull request: whatever happens in whatever order, GitHub ends up showing what the record says."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection

from allowlist.model import Level
from relay.github.errors import Forbidden, Limited, RetryLater
from relay.store.checks import note_unchanged, touch_backends
from relay.store.engine import Store
from relay.words import GATE_NAME
from tests.work.record import NPU, S1, S2, TERMS, Record, allowlist

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
    assert (False, None, record.github.runs[0].id) == (row.creating, row.last_error, row.github_id)


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


# --- Heads that move -------------------------------------------------------------------------------------------------


def test_a_superseded_head_ends_as_cancelled(record_on_both: Record) -> None:
    """CASES 32: S2 comes while S1 runs. S1's open checks end; its late result shows nowhere on S2."""
    record = record_on_both
    first = record.change()
    old = record.told(first)
    record.report(old)
    record.settle()

    record.change(S2)
    record.edit_change(first, state="superseded")
    record.settle(passing=SOON)
    assert ("completed", "cancelled") == shown(record, GATE_NAME)
    assert ("completed", "cancelled") == shown(record, NPU_CHECK)
    assert "Superseded by 2222222" == record.github.showing(GATE_NAME).title

    record.report(old, "failure")
    record.settle(passing=SOON)

    assert ("completed", "cancelled") == shown(record, NPU_CHECK)
    assert ("completed", "success") == shown(record, GATE_NAME, S2)
    assert {GATE_NAME} == {run.now.name for run in record.github.runs if run.now.head_sha == S2}


def test_a_finished_check_of_a_superseded_head_stays(record: Record) -> None:
    """What was concluded there is still true of that commit."""
    first = record.change()
    record.report(record.told(first), "success")
    record.settle()
    before = record.github.writes

    record.edit_change(first, state="superseded")
    record.settle(passing=SOON)

    assert before == record.github.writes
    assert ("completed", "success") == shown(record, GATE_NAME)


def test_a_head_that_comes_back_is_computed_anew(record: Record) -> None:
    """CASES 32: forced back to S1, its gate shows what the record says of S1, the late failure included."""
    first = record.change()
    old = record.told(first)
    record.report(old)
    record.settle()
    record.edit_change(first, state="superseded")
    record.settle(passing=SOON)
    record.report(old, "failure")

    record.edit_change(first, state="open")
    record.settle(passing=SOON)

    assert ("completed", "failure") == shown(record, GATE_NAME)
    assert ("completed", "failure") == shown(record, NPU_CHECK)


def test_a_closed_change_ends_its_open_checks(record: Record) -> None:
    """A superseded or closed gate ends cancelled, never neutral: neutral would satisfy a ruleset."""
    change = record.change()
    record.told(change)
    record.settle()

    record.edit_change(change, state="closed")
    record.settle(passing=SOON)

    assert ("completed", "cancelled") == shown(record, GATE_NAME)
    assert "Cancelled: the pull request was closed" == record.github.showing(NPU_CHECK).title


def test_a_check_that_never_was_is_not_made_to_be_cancelled(record: Record) -> None:
    """GitHub was slow and the head moved on: the old commit needs no check any more."""
    change = record.change()
    record.told(change)
    record.edit_change(change, state="closed")

    record.settle()

    assert [] == record.github.calls
    assert {None} == {row.wanted for row in record.checks().values()}


def test_a_lost_create_is_ended_too(record: Record) -> None:
    """It may stand at GitHub although we never heard so, and then it must not wait for ever."""
    change = record.change()
    record.told(change)
    record.github.faults.append(("after create", lost(ambiguous=True)))
    record.settle()
    record.edit_change(change, state="closed")

    record.settle(passing=timedelta(seconds=11))

    assert {"cancelled"} == {run.now.conclusion for run in record.github.runs}


def test_one_commit_in_two_pull_requests_has_one_gate(record_on_both: Record) -> None:
    """A check belongs to a commit: it is computed over all open changes with that head, and the worst decides."""
    record = record_on_both
    record.report(record.told(record.change(number=7)), "success")
    second = record.change(number=8)
    record.report(record.told(second), "failure")
    record.settle()
    assert ("completed", "failure") == shown(record, GATE_NAME)
    assert "### For pull request 8" in record.github.showing(NPU_CHECK).summary

    record.edit_change(second, state="closed")
    record.settle(passing=SOON)

    assert ("completed", "success") == shown(record, GATE_NAME)


def test_a_merge_group_has_a_gate(record: Record) -> None:
    """CASES 35: without the check on its head the queue would hang."""
    record.change(kind="merge_group")

    record.settle()

    assert ("completed", "success") == shown(record, GATE_NAME)


def test_a_push_has_no_checks(record: Record) -> None:
    """Nothing waits for a commit that is on the branch already."""
    change = record.change(kind="push")
    record.told(change)

    record.settle()

    assert {} == record.checks()


# --- Levels ----------------------------------------------------------------------------------------------------------


def test_only_l4_shows_unasked(record: Record) -> None:
    """L1 and L2 never show, L3 only with its label; all of them are named in the gate as not required."""
    change = record.change()
    for level in Level:
        record.told(change, f"org/{level.name.lower()}", level, device="dev1")

    record.settle()

    assert {GATE_NAME, "crcr/org/l4"} == set(record.checks())
    assert "`org/l2` (L2)" in record.github.showing(GATE_NAME).summary
    assert "Waiting for org/l4 since 12:00 UTC" == record.github.showing(GATE_NAME).title


@pytest.mark.parametrize("when", ["before", "during", "after"])
@pytest.mark.parametrize("label", ["ciflow/crcr/dev1", "ciflow/oot/dev1", "CIFlow/CRCR/Dev1"])
def test_l3_shows_with_its_label_whenever_it_comes(record: Record, when: str, label: str) -> None:
    """CASES 31: label before, during and after the run all work, and never hold anything back."""
    labels = f'["{label}"]'
    change = record.change()
    if when == "before":
        record.edit_change(change, labels=labels)
    dispatch = record.told(change, level=Level.L3, device="dev1")
    record.report(dispatch)
    record.settle()
    if when == "during":
        record.edit_change(change, labels=labels)
    record.report(dispatch, "failure")
    record.settle(passing=SOON)
    if when == "after":
        assert NPU_CHECK not in record.checks()
        record.edit_change(change, labels=labels)
        record.settle(passing=SOON)

    assert ("completed", "failure") == shown(record, NPU_CHECK)
    assert ("completed", "success") == shown(record, GATE_NAME)


def test_removing_the_label_ends_an_open_check_as_neutral(record: Record) -> None:
    """It was information that somebody asked for, and asks for no more."""
    change = record.change(labels=["ciflow/crcr/dev1"])
    dispatch = record.told(change, level=Level.L3, device="dev1")
    record.settle()

    record.edit_change(change, labels="[]")
    record.settle(passing=SOON)
    assert ("completed", "neutral") == shown(record, NPU_CHECK)
    assert "Label ciflow/crcr/dev1 was removed" == record.github.showing(NPU_CHECK).title

    record.report(dispatch, "success")
    record.edit_change(change, labels='["ciflow/crcr/dev1"]')
    record.settle(passing=SOON)
    assert ("completed", "success") == shown(record, NPU_CHECK)


@pytest.mark.parametrize(
    ("now", "title"),
    [({"npu": "L2"}, "org/npu is at L2 now, which has no check"), ({}, "org/npu has left the allowlist")],
)
def test_a_backend_that_lost_its_level_holds_nobody_up(record: Record, now: dict[str, str], title: str) -> None:
    """CASES 36: every check that exists is finished, and the gate no longer waits."""
    record.listed = allowlist(npu="L4")
    record.report(record.told(record.change()))
    record.settle()
    assert ("in_progress", None) == shown(record, GATE_NAME)

    record.listed = allowlist(**now)
    heads = record.store.write_now(lambda conn: touch_backends(conn, [NPU], TERMS, record.clock.now()))
    record.settle(passing=SOON)

    assert (S1,) == heads
    assert ("completed", "success") == shown(record, GATE_NAME)
    assert ("completed", "neutral") == shown(record, NPU_CHECK)
    assert title == record.github.showing(NPU_CHECK).title


def test_a_promotion_does_not_gate_what_was_told_before(record: Record) -> None:
    """The level at dispatch was the promise; only what is told from now on gates."""
    record.told(record.change(), level=Level.L2)
    record.listed = allowlist(npu="L4")

    record.settle()

    assert ("completed", "success") == shown(record, GATE_NAME)


def test_a_backend_left_out_by_its_own_filters_is_named(record_on_both: Record) -> None:
    """Every decision explains itself: why this gate does not wait for that backend."""
    record = record_on_both
    record.listed = allowlist(npu="L4", xpu="L2")
    change = record.change()
    record.planned(
        change,
        [
            {"effect": "none", "backend": "org/npu", "reason": "filtered_paths", "detail": "no path matches src/**"},
            {"effect": "none", "backend": "org/xpu", "reason": "filtered_events"},
        ],
    )

    record.settle()

    summary = record.github.showing(GATE_NAME).summary
    assert "`org/npu` (no path matches src/\\*\\*)" in summary
    assert "xpu" not in summary


@pytest.mark.parametrize("state", ["filtered", "pending_paths"])
def test_a_backend_that_may_not_be_called_has_no_check(record: Record, state: str) -> None:
    """Until its paths are decided the gate waits; once it is filtered the gate says so and waits no more."""
    outcome = "filtered" if state == "filtered" else "queued"
    record.dispatch(record.change(), state=state, outcome=outcome, reason="no path matches")

    record.settle()

    assert {GATE_NAME} == set(record.checks())
    assert ("success" if state == "filtered" else None) == shown(record, GATE_NAME)[1]


def test_closing_deliveries_owe_nothing(record: Record) -> None:
    """A dispatch that only notifies never shows in a check."""
    record.told(record.change(), purpose="notify")

    record.settle()

    assert {GATE_NAME} == set(record.checks())
    assert ("completed", "success") == shown(record, GATE_NAME)


# --- One check per job -----------------------------------------------------------------------------------------------


def test_production_names_one_check_per_job(sqlite_store: Store, clock: Any) -> None:
    """CRCR_CHECKS=job adds production's names for a merge bot that parses them."""
    record = Record(sqlite_store, clock, PER_JOB)
    dispatch = record.told(record.change(), expected_jobs=2)
    record.report(dispatch, job="build / linux")
    record.settle(passing=SOON)
    assert ("in_progress", None) == shown(record, "crcr/org/npu/ci/build / linux")

    record.report(dispatch, "success", job="build / linux", counts=(5, 0, 0))
    record.report(dispatch, "failure", job="test")
    record.settle(passing=SOON)

    assert ("completed", "success") == shown(record, "crcr/org/npu/ci/build / linux")
    assert ("completed", "failure") == shown(record, "crcr/org/npu/ci/test")
    assert "Passed: 1 job, 5 tests passed" == record.github.showing("crcr/org/npu/ci/build / linux").title
    assert ("completed", "failure") == shown(record, NPU_CHECK)


def test_a_job_check_ends_with_its_backend(sqlite_store: Store, clock: Any) -> None:
    """A job that never ends must not leave its check open when the backend is given up."""
    record = Record(sqlite_store, clock, PER_JOB)
    dispatch = record.told(record.change())
    record.report(dispatch, job="build")
    record.settle(passing=SOON)

    record.edit_dispatch(dispatch, outcome="lost", concluded="lost", concluded_at=record.clock.now())
    record.settle(passing=SOON)

    assert ("completed", "timed_out") == shown(record, "crcr/org/npu/ci/build")
