"""Heads that move, levels that change and one check per job: each check ends, and shows what holds then."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from allowlist.model import Level
from relay.github.errors import RetryLater
from relay.store.checks import touch_backends
from relay.store.engine import Store
from relay.texts.words import GATE_NAME
from tests.work.record import NPU, S2, TERMS, Record, allowlist
from tests.work.remembered_github import S1

NPU_CHECK = "crcr/org/npu"
SOON = timedelta(seconds=4)
PER_JOB = replace(TERMS, per_job=True)


def shown(record: Record, name: str, head_sha: str = S1) -> tuple[str, str | None]:
    """Status and conclusion of what GitHub shows under this name."""
    check = record.github.showing(name, head_sha)
    return check.status, check.conclusion


def lost(*, ambiguous: bool) -> RetryLater:
    """A 502, after or before its effect."""
    return RetryLater("GitHub answered 502.", ambiguous=ambiguous, status=502)


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
    assert "Label ciflow/crcr/dev1 is not set" == record.github.showing(NPU_CHECK).title

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
