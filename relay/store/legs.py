"""The fold, kept as rows: after a report has come, its job's legs are folded anew, and the dispatch stands anew.

Only reports of one run and job name are read again, because no others can change those legs. What comes out depends on
the set of reports alone, so it does not matter which replica looks, how often, or in which order reports came.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, delete, insert, select, update

from levels.legs import Leg, LegReport, Status, fold
from levels.lifecycle import Standing, times
from levels.outcomes import UNSETTLED, Conclusion
from relay.store.observations import NOTHING, load_seen
from relay.store.shared import ForEach
from relay.store.standing import (
    JOBS,
    Attempts,
    Changed,
    Stood,
    Told,
    how_it_stands,
    load_attempts,
    load_attempts_of,
    stand_on_rows,
    standing_legs,
    standing_of,
    write_standings,
)
from relay.store.tables import Job, Report

__all__ = ["Changed", "Said", "Told", "refold", "refold_all", "stand_again"]

_job = Job.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_report = Report.__table__  # type: ignore[attr-defined]

#: Dispatch states whose outcome is our own decision: a report is kept there and changes nothing.
_DECIDED_BY_US = frozenset({"filtered"})

_REPORTS: Select[Any] = select(
    _report.c.id,
    _report.c.dispatch_id,
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
)
_ALL_SAID = _REPORTS.where(_report.c.dispatch_id == bindparam("dispatch_id"))
# Of a matrix the same few jobs report at the same time, so this brings few rows that nobody asked for.
_SAID = ForEach(
    _REPORTS,
    {"dispatch_ids": _report.c.dispatch_id, "job_names": _report.c.job_name, "run_ids": _report.c.run_id},
)

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


@dataclass(frozen=True, slots=True)
class Said:
    """A report that was just kept: the dispatch that it is of, and the job and attempt whose legs it may change."""

    told: Told
    run_id: str
    run_attempt: int
    job_name: str

    @property
    def job(self) -> _Job:
        """What is folded anew for it."""
        return self.told.id, self.run_id, self.job_name


_Job = tuple[int, str, str]


def refold(conn: Connection, told: Told, run_id: str, run_attempt: int, job_name: str, now: datetime) -> Changed:
    """Fold the legs of this job of this run anew, and let the dispatch stand anew on all its legs.

    The dispatch row must be locked by this transaction.
    """
    return refold_all(conn, [Said(told, run_id, run_attempt, job_name)], now)[told.id]


def refold_all(conn: Connection, kept: Sequence[Said], now: datetime) -> dict[int, Changed]:
    """As ``refold``, for reports that were kept together; what they did to each dispatch, by its id.

    Which of a dispatch's reports came first does not matter to a fold, so it is told of all of them at once.
    """
    if not kept:
        return {}
    of: defaultdict[int, list[Said]] = defaultdict(list)
    for one in kept:
        of[one.told.id].append(one)
    dispatch_ids = sorted(of)
    attempts = load_attempts_of(conn, dispatch_ids)
    jobs = {one.job for one in kept}
    said = _said(conn, jobs)
    rows: defaultdict[int, list[Row[Any]]] = defaultdict(list)
    for row in JOBS.execute(conn, {"dispatch_ids": dispatch_ids}):
        rows[row.dispatch_id].append(row)
    folded = {job: _fold_rows(of[job[0]][0].told, said[job]) for job in sorted(jobs)}
    mine = [row for kept_rows in rows.values() for row in kept_rows if _job_of(row) in jobs]
    differing = _write_differences(conn, mine, folded)
    changed: dict[int, Changed] = {}
    stood: list[Stood] = []
    for dispatch_id, reports in of.items():
        told, decisive = reports[0].told, attempts.get(dispatch_id, {})
        legs_changed = dispatch_id in differing
        if told.state in _DECIDED_BY_US:
            changed[dispatch_id] = Changed(outcome=False, legs=legs_changed, settled=True)
        elif not decisive:
            changed[dispatch_id] = Changed(outcome=False, legs=legs_changed, settled=told.outcome not in UNSETTLED)
        else:
            late = told.late or any(_is_late(told, decisive, one.run_id, one.run_attempt) for one in reports)
            if told.observed_at is not None:
                # GitHub was asked already, and what it showed then is held against what is claimed now.
                seen = load_seen(conn, [dispatch_id]).get(dispatch_id, NOTHING)
                changed[dispatch_id] = stand_on_rows(
                    conn, told, decisive, seen, now, late=late, legs_changed=legs_changed
                )
                continue
            legs = [leg for one in {one.job for one in reports} for leg in folded[one][0] if _decides(leg, decisive)]
            others = [row for row in rows[dispatch_id] if _job_of(row) not in jobs]
            every = [*legs, *standing_legs(others, decisive)]
            stands = how_it_stands(told, every, decisive, NOTHING, now, late=late)
            stood.append(stands)
            changed[dispatch_id] = Changed(stands.outcome_changed, legs_changed, stands.settled)
    write_standings(conn, stood)
    return changed


def _said(conn: Connection, jobs: Collection[_Job]) -> Mapping[_Job, Sequence[Row[Any]]]:
    """All that was reported of these jobs."""
    said: defaultdict[_Job, list[Row[Any]]] = defaultdict(list)
    asked: dict[str, Sequence[object]] = {
        "dispatch_ids": sorted({dispatch_id for dispatch_id, _, _ in jobs}),
        "run_ids": sorted({run_id for _, run_id, _ in jobs}),
        "job_names": sorted({job_name for _, _, job_name in jobs}),
    }
    for row in _SAID.execute(conn, asked):
        said[_job_of(row)].append(row)
    return said


def _job_of(row: Row[Any]) -> _Job:
    return row.dispatch_id, row.run_id, row.job_name


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


#: The legs of one job that may decide, and the row that each of its legs should have.
_Folded = tuple[list[Leg], dict[tuple[object, ...], dict[str, object]]]


def _fold_rows(told: Told, said: Sequence[Row[Any]]) -> _Folded:
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


def _write_differences(conn: Connection, kept: Iterable[Row[Any]], folded: Mapping[_Job, _Folded]) -> set[int]:
    """Make the rows of these jobs what they should be; the dispatches of which any was not.

    What GitHub was seen to say of a job stays on its row.
    """
    left = {(job, key): wanted for job, (_, values) in folded.items() for key, wanted in values.items()}
    gone: list[Row[Any]] = []
    rows: list[dict[str, object]] = []
    changed: set[int] = set()
    for row in kept:
        wanted = left.pop((_job_of(row), _key(row)), None)
        if wanted is None:
            gone.append(row)
        elif any(getattr(row, name) != wanted[name] for name in _DETAILS):
            rows.append({"b_id": row.id, **{f"b_{name}": wanted[name] for name in _DETAILS}})
            changed.add(row.dispatch_id)
    if rows:
        conn.execute(_CHANGE_JOB, rows)
    if gone:
        conn.execute(delete(_job).where(_job.c.id.in_([row.id for row in gone])))
    if left:
        conn.execute(_ADD_JOB, list(left.values()))
    return changed | {row.dispatch_id for row in gone} | {job[0] for job, _ in left}


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
