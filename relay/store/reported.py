"""What was reported of a dispatch, as checks and pages both tell it: its legs, and the tests that did not pass."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, and_, func, select

from levels.outcomes import FAILURE_LIKE
from relay.deciding.facts import FailedTest, LegFacts
from relay.store.tables import TestResult

_test = TestResult.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.

#: Conclusions of a leg that failed, as its row has them.
FAILING = frozenset(str(conclusion) for conclusion in FAILURE_LIKE)

#: A leg's failing tests that are listed, and how many were told by name.
Listed = tuple[tuple[FailedTest, ...], int]

#: Both databases bound the parameters of a statement; what is known beyond this is marked, but not put last.
_MOST_PUT_LAST = 20_000


def has_failed(row: Any) -> bool:
    """Whether this row of ``job`` failed, or names tests that did."""
    return row.conclusion in FAILING or bool(row.failed)


def leg_facts(row: Any, tests: Listed = ((), 0)) -> LegFacts:
    """One row of ``job`` with its report's ``workflow_name``, as it was told: hostile text."""
    listed, kept = tests
    return LegFacts(
        job_name=row.job_name,
        workflow_name=row.workflow_name or "",
        run_id=row.run_id,
        run_attempt=row.run_attempt,
        backend_version=row.backend_version,
        suite_version=row.suite_version,
        environment=environment_of(row.environment),
        status=row.status,
        conclusion=row.conclusion,
        observed=row.observed,
        started_at=row.started_at,
        completed_at=row.completed_at,
        seconds=row.execution_seconds,
        passed=row.passed,
        failed=row.failed,
        skipped=row.skipped,
        failure_class=row.failure_class,
        conflicting=row.conflicting,
        url=row.url,
        artifact_url=row.artifact_url,
        failed_tests=listed,
        failed_tests_kept=kept,
    )


def failed_tests(
    conn: Connection, report_ids: Sequence[int], most: int, known: Collection[int] = frozenset()
) -> dict[int, Listed]:
    """For each report its first ``most`` tests that did not pass, and how many there are.

    ``known`` are the ids of those that fail on the base too. They are marked and come last: what is new here is what a
    reader looks for.
    """
    if not report_ids:
        return {}
    last = sorted(known)[:_MOST_PUT_LAST]
    order = (_test.c.id.in_(last), _test.c.id) if last else (_test.c.id,)
    ranked = (
        select(
            _test.c.report_id,
            _test.c.id,
            func.row_number().over(partition_by=_test.c.report_id, order_by=order).label("place"),
            func.count().over(partition_by=_test.c.report_id).label("kept"),
        )
        .where(_test.c.report_id.in_(report_ids))
        .subquery()
    )
    rows = conn.execute(
        select(ranked.c.report_id, ranked.c.kept, _test.c.id, _test.c.name, _test.c.classname, _test.c.message)
        .select_from(ranked.join(_test, and_(_test.c.id == ranked.c.id, ranked.c.place <= most)))
        .order_by(ranked.c.report_id, ranked.c.place)
    )
    listed: defaultdict[int, list[FailedTest]] = defaultdict(list)
    kept: dict[int, int] = {}
    for row in rows:
        listed[row.report_id].append(FailedTest(row.name, row.classname, row.message, on_base=row.id in known))
        kept[row.report_id] = row.kept
    return {report_id: (tuple(tests), kept[report_id]) for report_id, tests in listed.items()}


def environment_of(text: str) -> tuple[tuple[str, str], ...]:
    """The environment that a report stated, in the order of its keys; what is no mapping of plain values is none."""
    try:
        raw = json.loads(text)
    except ValueError:
        return ()
    if not isinstance(raw, dict):
        return ()
    return tuple(sorted((str(key), str(value)) for key, value in raw.items() if isinstance(value, str | int | float)))
