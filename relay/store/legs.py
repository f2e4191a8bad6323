"""The fold, kept as rows: after a report has come, its job's legs are folded anew, and the dispatch stands anew.

Only reports of one run and job name are read again, because no others can change those legs. What comes out depends on
the set of reports alone, so it does not matter which replica looks, how often, or in which order reports came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, delete, insert, select, update

from levels.legs import Leg, LegReport, Status, fold
from levels.lifecycle import Standing, times
from levels.outcomes import UNSETTLED, Conclusion
from relay.store.observations import NOTHING, load_seen
from relay.store.standing import (
    JOBS,
    Attempts,
    Changed,
    Told,
    load_attempts,
    stand_on,
    stand_on_rows,
    standing_legs,
    standing_of,
)
from relay.store.tables import Job, Report

__all__ = ["Changed", "Told", "refold", "stand_again"]

_job = Job.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_report = Report.__table__  # type: ignore[attr-defined]

#: Dispatch states whose outcome is our own decision: a report is kept there and changes nothing.
_DECIDED_BY_US = frozenset({"filtered"})

_ALL_SAID: Select[Any] = select(
    _report.c.id,
    _report.c.decides,
    _report.c.run_id,
    _report.c.run_attempt,
    _report.c.job_name,
    _report.c.combination,
    _report.c.backend_version,
    _report.c.suite_version,
    _report.c.environment,
    _report.c.check_run_id,
    _report.c.status,
    _report.c.conclusion,
    _report.c.received_at,
    _report.c.expected_jobs,
    _report.c.failure_class,
    _report.c.passed,
    _report.c.failed,
    _report.c.skipped,
    _report.c.total,
    _report.c.url,
    _report.c.artifact_url,
).where(_report.c.dispatch_id == bindparam("dispatch_id"))
_SAID = _ALL_SAID.where(_report.c.job_name == bindparam("job_name"), _report.c.run_id == bindparam("run_id"))

#: What a job's row says of its leg, beside what the leg is known by.
_DETAILS = (
    "report_id",
    "backend_version",
    "suite_version",
    "environment",
    "status",
    "conclusion",
    "started_at",
    "completed_at",
    "queue_seconds",
    "execution_seconds",
    "passed",
    "failed",
    "skipped",
    "total",
    "failure_class",
    "conflicting",
    "deciding",
    "late",
    "url",
    "artifact_url",
)

# Statements are built once: to build one for each call costs as much as to run it.
_ADD_JOB = insert(_job)
_CHANGE_JOB = (
    update(_job)
    .where(_job.c.id == bindparam("b_id"))
    .values({name: bindparam(f"b_{name}", type_=_job.c[name].type) for name in _DETAILS})
)


def refold(conn: Connection, told: Told, run_id: str, run_attempt: int, job_name: str, now: datetime) -> Changed:
    """Fold the legs of this job of this run anew, and let the dispatch stand anew on all its legs.

    The dispatch row must be locked by this transaction.
    """
    attempts = load_attempts(conn, told.id)
    said = conn.execute(_SAID, {"dispatch_id": told.id, "job_name": job_name, "run_id": run_id}).all()
    kept = conn.execute(JOBS, {"dispatch_id": told.id}).all()
    others = [row for row in kept if (row.run_id, row.job_name) != (run_id, job_name)]
    mine = [row for row in kept if (row.run_id, row.job_name) == (run_id, job_name)]
    legs, values = _fold_rows(told, said)
    legs_changed = _write_difference(conn, mine, values)
    if told.state in _DECIDED_BY_US:
        return Changed(outcome=False, legs=legs_changed, settled=True)
    if not attempts:
        return Changed(outcome=False, legs=legs_changed, settled=told.outcome not in UNSETTLED)
    late = told.late or _is_late(told, attempts, run_id, run_attempt)
    if told.observed_at is not None:
        # GitHub was asked already, and what it showed then is held against what is claimed now.
        seen = load_seen(conn, [told.id]).get(told.id, NOTHING)
        return stand_on_rows(conn, told, attempts, seen, now, late=late, legs_changed=legs_changed)
    every = [*(leg for leg in legs if _decides(leg, attempts)), *standing_legs(others, attempts)]
    return stand_on(conn, told, every, attempts, NOTHING, now, late=late, legs_changed=legs_changed)


def stand_again(conn: Connection, told: Told) -> Standing | None:
    """What all that was reported of a dispatch amounts to, folded from nothing; None where no report decides of it.

    Writes nothing: it says what the rows of jobs and of the dispatch should say.
    """
    attempts = load_attempts(conn, told.id)
    if not attempts or told.state in _DECIDED_BY_US:
        return None
    said: dict[tuple[str, str], list[Row[Any]]] = {}
    for row in conn.execute(_ALL_SAID, {"dispatch_id": told.id}):
        said.setdefault((row.run_id, row.job_name), []).append(row)
    every = [
        replace(leg, expected_jobs=attempts[leg.run_id, leg.run_attempt].claim)
        for rows in said.values()
        for leg in _fold_rows(told, rows)[0]
        if _decides(leg, attempts)
    ]
    seen = NOTHING if told.observed_at is None else load_seen(conn, [told.id]).get(told.id, NOTHING)
    return standing_of(told, every, attempts, seen)


def _fold_rows(told: Told, said: Sequence[Row[Any]]) -> tuple[list[Leg], dict[tuple[object, ...], dict[str, object]]]:
    """The legs of one job, and the row each should have. Reports that decide nothing make legs that decide nothing."""
    by_id = {row.id: row for row in said}
    by_combination = {row.combination: row for row in said}
    recorded = fold(_leg_report(row) for row in said if not row.decides)
    deciding = fold(_leg_report(row) for row in said if row.decides)
    values: dict[tuple[object, ...], dict[str, object]] = {}
    for leg, decides in (*((leg, False) for leg in recorded), *((leg, leg.deciding) for leg in deciding)):
        source, described = by_id[leg.source_report_id], by_combination[leg.combination]
        took = times(leg, sent_at=told.sent_at)
        values[_key(leg)] = {
            "dispatch_id": told.id,
            "report_id": leg.source_report_id,
            "run_id": leg.run_id,
            "run_attempt": leg.run_attempt,
            "job_name": leg.job_name,
            "combination": leg.combination,
            "backend_version": leg.backend_version,
            "suite_version": described.suite_version,
            "environment": described.environment,
            "check_run_id": leg.check_run_id,
            "status": leg.status.value,
            "conclusion": None if leg.conclusion is None else leg.conclusion.value,
            "started_at": leg.started_at,
            "completed_at": leg.completed_at,
            "queue_seconds": None if took.queue is None else took.queue.total_seconds(),
            "execution_seconds": None if took.execution is None else took.execution.total_seconds(),
            "passed": leg.passed,
            "failed": leg.failed,
            "skipped": leg.skipped,
            "total": leg.total,
            "failure_class": leg.failure_class,
            "conflicting": leg.conflicting,
            "deciding": decides,
            "late": _leg_is_late(told, leg),
            "url": source.url,
            "artifact_url": source.artifact_url,
        }
    return list(deciding), values


def _leg_report(row: Row[Any]) -> LegReport:
    return LegReport(
        run_id=row.run_id,
        run_attempt=row.run_attempt,
        job_name=row.job_name,
        combination=row.combination,
        backend_version=row.backend_version,
        check_run_id=row.check_run_id,
        status=Status(row.status),
        conclusion=None if row.conclusion is None else Conclusion(row.conclusion),
        received_at=row.received_at,
        report_id=row.id,
        expected_jobs=row.expected_jobs,
        failure_class=row.failure_class,
        passed=row.passed,
        failed=row.failed,
        skipped=row.skipped,
        total=row.total,
    )


def _key(leg: Leg | Row[Any]) -> tuple[object, ...]:
    return leg.run_id, leg.run_attempt, leg.job_name, leg.combination, leg.check_run_id


def _write_difference(
    conn: Connection, kept: Iterable[Row[Any]], values: Mapping[tuple[object, ...], dict[str, object]]
) -> bool:
    """Make the job rows what they should be. What GitHub was seen to say of a job stays on its row."""
    left = dict(values)
    gone: list[int] = []
    changed = False
    for row in kept:
        wanted = left.pop(_key(row), None)
        if wanted is None:
            gone.append(row.id)
            continue
        if any(getattr(row, name) != wanted[name] for name in _DETAILS):
            conn.execute(_CHANGE_JOB, {"b_id": row.id, **{f"b_{name}": wanted[name] for name in _DETAILS}})
            changed = True
    if gone:
        conn.execute(delete(_job).where(_job.c.id.in_(gone)))
    for wanted in left.values():
        conn.execute(_ADD_JOB, wanted)
    return changed or bool(gone) or bool(left)


def _decides(leg: Leg, attempts: Attempts) -> bool:
    return (leg.run_id, leg.run_attempt) in attempts


def _is_late(told: Told, attempts: Attempts, run_id: str, run_attempt: int) -> bool:
    """Whether we had given up on this attempt. A re-run that began afterwards is not late, it is new."""
    attempt = attempts.get((run_id, run_attempt))
    if told.concluded_at is None or attempt is None:
        return False
    return run_attempt == 1 or attempt.began_at <= told.concluded_at


def _leg_is_late(told: Told, leg: Leg) -> bool:
    """Whether this leg's word came after we had concluded, in an attempt that ran when we did.

    It asks the leg alone: what other jobs of the attempt report later must not change this row.
    """
    came = leg.completed_at or leg.started_at
    if told.concluded_at is None or came is None or came <= told.concluded_at:
        return False
    return leg.run_attempt == 1 or (leg.started_at is not None and leg.started_at <= told.concluded_at)
