"""State is a fold over the set of callbacks: whatever order they come in, and however often, the rows are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allowlist.model import Level
from relay.store import tables
from relay.store.engine import Store
from tests.conftest import Clock
from tests.edge.callers import Bench

#: What of a row depends on when it was made and not on what it says.
_MADE = {"id", "dispatch_id", "report_id", "delivery_id", "origin_delivery", "change_id", "outcome_at"}


@dataclass(frozen=True)
class Said:
    """One callback, and when it is received."""

    run: str
    attempt: int
    job: str
    version: str | None
    check_run_id: str | None
    conclusion: str | None
    expected_jobs: int | None
    event: str = "repository_dispatch"


_SAID = st.builds(
    Said,
    run=st.sampled_from("12"),
    attempt=st.integers(1, 2),
    job=st.sampled_from("ab"),
    version=st.sampled_from([None, "2.8", "2.9"]),
    check_run_id=st.sampled_from([None, "1", "2"]),
    conclusion=st.sampled_from([None, "success", "failure", "skipped"]),
    expected_jobs=st.sampled_from([None, None, 2]),
    event=st.sampled_from(["repository_dispatch"] * 4 + ["schedule"]),
)

_START = Said("1", 1, "a", None, "1", None, None)
_END = Said("1", 1, "a", None, "2", "success", None)
_AGAIN = Said("1", 2, "a", None, "3", "failure", None)


@pytest.fixture
def bench(store: Store, clock: Clock) -> Bench:
    """A callback edge on each database, with a backend whose every report counts."""
    bench = Bench(store, clock, per_minute=1_000_000)
    bench.allow("org/l4", Level.L4)
    bench.change()
    return bench


def outcome(bench: Bench, name: str, order: Sequence[int], said: Sequence[Said], gave_up: bool) -> tuple[Any, ...]:
    """Everything that a dispatch has become after these callbacks, posted in this order."""
    start = bench.clock.now()
    columns = {"concluded": "lost", "concluded_at": start + timedelta(minutes=3), "outcome": "lost"} if gave_up else {}
    dispatch_id = bench.dispatch("org/l4", bench.rows(tables.Change)[0].id, name, **columns)
    for index in order:
        item = said[index]
        bench.clock.advance(start + timedelta(minutes=index) - bench.clock.now())
        body = bench.body(
            delivery=name,
            dispatch_id=dispatch_id,
            run_id=item.run,
            run_attempt=item.attempt,
            job_name=item.job,
            check_run_id=item.check_run_id,
            status="completed" if item.conclusion else "in_progress",
            conclusion=item.conclusion,
            expected_jobs=item.expected_jobs,
            combination={"backend_version": item.version},
            name=f"callback {index}",
            failed_tests=[{"name": f"test {index}"}] if item.conclusion == "failure" else None,
        )
        claims = {"run_id": item.run, "run_attempt": str(item.attempt), "event_name": item.event}
        assert bench.post(body, bench.issuers.github("org/l4", **claims)).status_code == 200
    bench.clock.advance(start - bench.clock.now())
    (dispatch,) = [row for row in bench.rows(tables.Dispatch) if row.id == dispatch_id]
    jobs = [comparable(row, start) for row in bench.rows(tables.Job) if row.dispatch_id == dispatch_id]
    mine = {row.id for row in bench.rows(tables.Report) if row.dispatch_id == dispatch_id}
    tests = [row.name for row in bench.rows(tables.TestResult) if row.report_id in mine]
    return comparable(dispatch, start), sorted(jobs, key=repr), sorted(tests)


def comparable(row: Any, start: datetime) -> dict[str, object]:
    """A row without what tells when it was made; moments count from the start of the story."""
    values = {name: value for name, value in row._mapping.items() if name not in _MADE}
    return {name: value - start if isinstance(value, datetime) else value for name, value in values.items()}


@given(data=st.data(), said=st.lists(_SAID, min_size=2, max_size=6), gave_up=st.booleans())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.slow
def test_any_order_and_any_repetition_give_the_same_rows(
    bench: Bench, data: st.DataObject, said: list[Said], gave_up: bool
) -> None:
    """Retries, replicas and reruns mix callbacks up; a verdict must not depend on it."""
    once = list(range(len(said)))
    mixed = data.draw(st.permutations(once + data.draw(st.lists(st.sampled_from(once), max_size=3))))
    number = len(bench.rows(tables.Dispatch))

    in_order = outcome(bench, f"in order {number}", once, said, gave_up)
    in_any = outcome(bench, f"in any {number}", mixed, said, gave_up)

    assert in_order == in_any


def test_what_one_job_reports_makes_no_other_job_late(bench: Bench) -> None:
    """Two jobs of a re-run, begun at the moment we gave up and after it: each row tells of its own job."""
    again = [Said("1", 2, job, None, None, None, None) for job in "ab"]
    said = [Said("1", 1, "a", None, None, None, None), _START, _START, *again]

    in_order = outcome(bench, "in order", [0, 3, 4], said, True)
    in_any = outcome(bench, "in any", [0, 4, 3], said, True)

    assert in_order == in_any


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1), (1, 1, 2, 0, 0)])
@pytest.mark.parametrize("gave_up", [False, True])
def test_start_end_and_a_failed_rerun_mean_the_same_in_any_order(
    bench: Bench, order: tuple[int, ...], gave_up: bool
) -> None:
    """The smallest story in which pairing, attempts and lateness all take part."""
    said = (_START, _END, _AGAIN)

    dispatch, jobs, tests = outcome(bench, "mixed", order, said, gave_up)

    assert ("failure", 2) == (dispatch["outcome"], dispatch["legs_reported"] + 1)
    assert [(1, "success", False), (2, "failure", True)] == [
        (job["run_attempt"], job["conclusion"], job["deciding"]) for job in jobs
    ]
    assert ["test 2"] == tests
