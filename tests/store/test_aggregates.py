"""Figures for ever: forgotten and live rows together always amount to the same, however they are forgotten."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allowlist.model import Level, RepoName
from relay.store.aggregates import (
    CombinationFigures,
    CombinationKey,
    DayFigures,
    DayKey,
    Wanted,
    by_combination,
    by_day,
)
from relay.store.engine import Store
from relay.store.retention import forget
from relay.store.tables import Dispatch, Report
from tests.conftest import Clock
from tests.work.record import Record

XPU = RepoName.parse("org/xpu")
KEEP = timedelta(days=90)
EVERYTHING = Wanted()


def ended(record: Record, head_sha: str, number: int, backends: Sequence[RepoName], jobs: int) -> None:
    """A closed pull request, of which some backends reported some jobs."""
    change = record.change(head_sha, number=number)
    for place, backend in enumerate(backends):
        dispatch = record.told(change, backend, Level.L4)
        for job in range(jobs):
            record.clock.advance(timedelta(seconds=1.25))
            record.report(dispatch, job=f"job {job}", version="2.9", suite="s1")
            record.clock.advance(timedelta(seconds=2 + place))
            ends = "failure" if job == 1 else "success"
            record.report(dispatch, ends, job=f"job {job}", version="2.9", suite="s1", counts=(10, job, 1))
    record.edit_change(change, state="closed", ended_at=record.clock.now())


def read(store: Store, wanted: Wanted = EVERYTHING) -> tuple[dict[DayKey, DayFigures], object]:
    """All figures, by both keys."""
    return store.read_now(lambda conn: (by_day(conn, wanted), by_combination(conn, wanted)))


def test_the_figures_say_what_came_of_what_was_told(store: Store, clock: Clock) -> None:
    """By day, backend, level and outcome; times from our own receipts; tests by the versions of backend and suite."""
    record = Record(store, clock)
    ended(record, "1" * 40, 7, [XPU], 2)

    days, combinations = read(store)

    key = DayKey("2026-11-30", "org/xpu", 4, "pull_request", "test", "failure")
    assert {
        key: DayFigures(1, 1, 0, 4, 2, 2, 1250 + 4500, 4500, 2, 4000, 2000),
    } == days
    assert {
        CombinationKey("2026-11-30", "org/xpu", "2.9", "s1", "failure"): CombinationFigures(1, 10, 1, 1, 0),
        CombinationKey("2026-11-30", "org/xpu", "2.9", "s1", "success"): CombinationFigures(1, 10, 0, 1, 0),
    } == combinations


def test_days_and_backends_can_be_chosen_and_both_ends_belong(store: Store, clock: Clock) -> None:
    """What is asked for is the same before rows are forgotten and after."""
    record = Record(store, clock)
    for number, head_sha in enumerate(("1" * 40, "2" * 40, "3" * 40), 7):
        ended(record, head_sha, number, [XPU, RepoName.parse("org/npu")], 1)
        record.clock.advance(timedelta(days=1))
    asked = Wanted(date(2026, 12, 1), date(2026, 12, 2), XPU)
    before = read(store, asked)

    assert ["2026-12-01", "2026-12-02"] == [key.day for key in before[0]]
    record.clock.advance(KEEP)
    for _ in range(3):
        store.write_now(lambda conn: forget(conn, record.clock.now() - KEEP, reports=5))
        assert before == read(store, asked)
    assert [] == record.rows(Dispatch)


@pytest.mark.slow
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.integers(1, 2), st.integers(1, 3)), min_size=1, max_size=3),
    portions=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 3)), min_size=1, max_size=4),
)
def test_however_rows_are_forgotten_the_totals_are_the_same(
    sqlite_template: Path,
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[tuple[int, int]],
    portions: list[tuple[int, int]],
) -> None:
    """Each row is counted exactly once: after every step, also where one leaves a dispatch half forgotten."""
    path = tmp_path_factory.mktemp("history") / "relay.db"
    shutil.copy(sqlite_template, path)
    with contextlib.closing(Store(f"sqlite:///{path}")) as store:
        record = Record(store, Clock(datetime(2026, 11, 30, 12, tzinfo=UTC)))
        for number, (backends, jobs) in enumerate(changes, 1):
            told = [RepoName.parse(f"org/b{place}") for place in range(backends)]
            ended(record, str(number) * 40, number, told, jobs)
        expected = read(store)
        before = record.clock.advance(KEEP + timedelta(days=1)) - KEEP
        for reports, dispatches in itertools.cycle(portions):
            step = store.write_now(
                lambda conn, r=reports, d=dispatches: forget(conn, before, reports=r, dispatches=d)  # type: ignore[misc]
            )
            assert expected == read(store)
            if not step.more:
                break
        assert ([], []) == (record.rows(Dispatch), record.rows(Report))
