"""Callbacks that come into one transaction: what is kept of them is what would be, had each come alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event

from allowlist.model import Level
from relay.results.binding import Refusal
from relay.store import tables
from relay.store.engine import Store
from relay.store.reports import Accepted, Incoming
from tests.conftest import Clock
from tests.edge.callers import D1, S1, S2, Bench
from tests.store.test_reports import TERMS, callback

ALONE, TOGETHER = "org/alone", "org/together"

#: A matrix of three jobs: starts, ends, a second attempt, two that disagree, and two that are said twice, one of them
#: when others have been said in between.
SAID: tuple[dict[str, Any], ...] = (
    {"job_name": "a", "status": "in_progress", "conclusion": None},
    {"job_name": "b", "conclusion": "failure", "failed_tests": [{"name": "test_one"}, {"name": "test_two"}]},
    {"job_name": "a", "conclusion": "success"},
    {"job_name": "a", "conclusion": "success"},
    {"job_name": "c", "check_run_id": "7", "status": "in_progress", "conclusion": None, "expected_jobs": 3},
    {"job_name": "c", "check_run_id": "7", "conclusion": "success"},
    {"job_name": "b", "run_attempt": "2", "conclusion": "success"},
    {"job_name": "c", "check_run_id": "7", "conclusion": "failure"},
    {"job_name": "b", "conclusion": "failure", "failed_tests": [{"name": "test_one"}, {"name": "test_two"}]},
)


@pytest.fixture
def bench(store: Store, clock: Clock) -> Bench:
    """A record to report on, on each database, with two backends that were each told of a change of its own."""
    bench = Bench(store, clock)
    for repo, head_sha, number in ((ALONE, S1, 1), (TOGETHER, S2, 2)):
        bench.allow(repo, Level.L4)
        bench.dispatch(repo, bench.change(head_sha, number), D1)
    return bench


@pytest.fixture
def statements(store: Store) -> Iterator[list[str]]:
    """Every statement that the writer has sent."""
    sent: list[str] = []

    def note(_conn: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        sent.append(statement)

    event.listen(store.write_engine, "before_cursor_execute", note)
    yield sent
    event.remove(store.write_engine, "before_cursor_execute", note)


def incoming(bench: Bench, repo: str, **workflow: Any) -> Incoming:
    """One of this repository's callbacks, about the dispatch that it was told of."""
    dispatch_id = next(row.id for row in bench.rows(tables.Dispatch) if row.backend == repo)
    return Incoming(callback(bench, repo, dispatch_id, **workflow), TERMS, bench.clock.now())


def together(bench: Bench, units: list[Incoming]) -> list[Accepted | Refusal]:
    """What becomes of callbacks that one transaction takes."""
    return list(bench.store.write_now(lambda conn: Incoming.do_all(conn, units)))


def record(bench: Bench, repo: str) -> dict[str, Any]:
    """All that is kept of one of the two, without what names which of them it is."""
    (dispatch,) = (row for row in bench.rows(tables.Dispatch) if row.backend == repo)
    reports = {row.id: row for row in bench.rows(tables.Report) if row.backend == repo}
    jobs = [row for row in bench.rows(tables.Job) if row.dispatch_id == dispatch.id]
    head_sha = S1 if repo == ALONE else S2
    checks = {row.id: row.backend == repo for row in bench.rows(tables.Check) if row.head_sha == head_sha}
    effects = bench.rows(tables.Effect)
    return {
        "dispatch": (dispatch.outcome, dispatch.legs_reported, dispatch.legs_expected, dispatch.next_deadline),
        "reports": [(row.job_name, row.run_attempt, row.status, row.conclusion) for row in reports.values()],
        "jobs": sorted((row.job_name, row.run_attempt, row.status, row.conclusion, row.conflicting) for row in jobs),
        "tests": [row.name for row in bench.rows(tables.TestResult) if row.report_id in reports],
        "checks": sorted(checks.values()),
        "looks": sorted(checks[row.subject_id] for row in effects if row.subject_id in checks and "check" in row.kind),
        "forwards": sum(row.kind == "forward_hud" and row.subject_id in reports for row in effects),
        "observes": sum(row.kind == "observe" and row.subject_id == dispatch.id for row in effects),
    }


def test_what_comes_together_is_kept_as_if_it_came_one_by_one(bench: Bench) -> None:
    """Starts, ends, a new attempt, a conflict and a replay: the same legs, the same outcome, the same work."""
    alone = [together(bench, [incoming(bench, ALONE, **said)])[0] for said in SAID]
    answers = together(bench, [incoming(bench, TOGETHER, **said) for said in SAID])

    assert record(bench, ALONE) == record(bench, TOGETHER)
    assert (7, 7) == (len(record(bench, ALONE)["reports"]), record(bench, ALONE)["forwards"])
    assert [3, 8] == [place for place, one in enumerate(answers) if isinstance(one, Accepted) and one.replayed]
    assert [one.urgent for one in alone if isinstance(one, Accepted)] == [
        one.urgent for one in answers if isinstance(one, Accepted)
    ]


def test_each_of_many_is_refused_by_itself(bench: Bench) -> None:
    """One about another's dispatch, and one whose capability is none, between two that are good."""
    good = [incoming(bench, TOGETHER, job_name=name) for name in ("a", "b")]
    others = Incoming(callback(bench, TOGETHER, good[0].callback.dispatch_id or 0), TERMS, bench.clock.now())
    stranger = incoming(bench, ALONE)
    stray = Incoming(
        callback(bench, TOGETHER, stranger.callback.dispatch_id or 0, job_name="c"), TERMS, bench.clock.now()
    )
    unknown = Incoming(callback(bench, TOGETHER, 999_999), TERMS, bench.clock.now())

    answers = together(bench, [good[0], stray, unknown, good[1], others])

    assert ["kept", "other_backend", "no_such_dispatch", "kept", "kept"] == [
        one.code if isinstance(one, Refusal) else "kept" for one in answers
    ]
    assert ["a", "b", "test"] == sorted(row.job_name for row in bench.rows(tables.Report))


def test_thirty_callbacks_take_as_many_statements_as_one(bench: Bench, statements: list[str]) -> None:
    """The statements are shared, so that a matrix which ends at once costs hardly more than its rows."""
    ones = [incoming(bench, TOGETHER, job_name=f"test ({number})") for number in range(31)]
    together(bench, ones[:1])
    statements.clear()
    together(bench, ones[1:2])
    alone = len(statements)
    statements.clear()

    together(bench, ones[2:])

    assert alone + 2 >= len(statements)
    assert 31 == len(bench.rows(tables.Report))
