"""The fold, kept as rows: after a report has come, its job's legs are folded anew, and the dispatch stands anew.

Only reports of one run and job name are read again, because no others can change those legs. What comes out depends on
the set of reports alone, so it does not matter which replica looks, how often, or in which order reports came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, case, delete, func, insert, select, update

from levels.legs import Leg, LegReport, Status, fold
from levels.lifecycle import Expectation, Observed, Standing, stand, times
from levels.outcomes import UNSETTLED, Conclusion, Outcome
from relay.store.tables import Dispatch, Job, Report
from relay.terms import Terms

_dispatch = Dispatch.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_job = Job.__table__  # type: ignore[attr-defined]
_report = Report.__table__  # type: ignore[attr-defined]

#: Dispatch states whose outcome is our own decision: a report is kept there and changes nothing.
_DECIDED_BY_US = frozenset({"filtered"})

_CONCLUSIONS = frozenset(conclusion.value for conclusion in Conclusion)


@dataclass(frozen=True, slots=True)
class Told:
    """The dispatch a report belongs to, as its locked row has it."""

    id: int
    state: str
    purpose: str
    terms: Terms
    sent_at: datetime | None
    started_at: datetime | None
    next_deadline: datetime | None
    concluded: str | None
    concluded_at: datetime | None
    outcome: str
    outcome_at: datetime
    legs_reported: int
    legs_expected: int | None
    late: bool


@dataclass(frozen=True, slots=True)
class Changed:
    """What a report did: to the dispatch's outcome, and to any leg at all."""

    outcome: bool
    legs: bool
    settled: bool


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt of one run that decides, over all its jobs: its largest claim and when we first heard of it."""

    claim: int | None
    started_at: datetime | None
    began_at: datetime


_Attempts = Mapping[tuple[str, int], _Attempt]

_ATTEMPTS = (
    select(
        _report.c.run_id,
        _report.c.run_attempt,
        func.max(_report.c.expected_jobs).label("claim"),
        func.min(case((_report.c.status == "in_progress", _report.c.received_at))).label("started_at"),
        func.min(_report.c.received_at).label("began_at"),
    )
    .where(_report.c.dispatch_id == bindparam("dispatch_id"), _report.c.decides)
    .group_by(_report.c.run_id, _report.c.run_attempt)
)

_SAID: Select[Any] = select(
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
).where(
    _report.c.dispatch_id == bindparam("dispatch_id"),
    _report.c.job_name == bindparam("job_name"),
    _report.c.run_id == bindparam("run_id"),
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

_JOBS: Select[Any] = select(_job).where(_job.c.dispatch_id == bindparam("dispatch_id"))

# Statements are built once: to build one for each call costs as much as to run it.
_ADD_JOB = insert(_job)
_CHANGE_JOB = (
    update(_job)
    .where(_job.c.id == bindparam("b_id"))
    .values({name: bindparam(f"b_{name}", type_=_job.c[name].type) for name in _DETAILS})
)

_STANDING = ("outcome", "outcome_at", "legs_reported", "legs_expected", "started_at", "next_deadline", "late")
_CHANGE_DISPATCH = (
    update(_dispatch)
    .where(_dispatch.c.id == bindparam("b_id"))
    .values({name: bindparam(f"b_{name}", type_=_dispatch.c[name].type) for name in _STANDING})
)


def refold(conn: Connection, told: Told, run_id: str, run_attempt: int, job_name: str, now: datetime) -> Changed:
    """Fold the legs of this job of this run anew, and let the dispatch stand anew on all its legs.

    The dispatch row must be locked by this transaction.
    """
    attempts = _attempts(conn, told.id)
    said = conn.execute(_SAID, {"dispatch_id": told.id, "job_name": job_name, "run_id": run_id}).all()
    kept = conn.execute(_JOBS, {"dispatch_id": told.id}).all()
    others = [row for row in kept if (row.run_id, row.job_name) != (run_id, job_name)]
    mine = [row for row in kept if (row.run_id, row.job_name) == (run_id, job_name)]
    legs, values = _fold_rows(told, said, attempts)
    legs_changed = _write_difference(conn, mine, values)
    if told.state in _DECIDED_BY_US:
        return Changed(outcome=False, legs=legs_changed, settled=True)
    standing_legs = [*(leg for leg in legs if _decides(leg, attempts)), *_standing_legs(others, attempts)]
    observed = _observed(kept)
    concluded = _still_concluded(told, attempts)
    standing = stand(standing_legs, _expectation(told.terms), concluded=concluded, observed=observed)
    if not attempts:
        return Changed(outcome=False, legs=legs_changed, settled=told.outcome not in UNSETTLED)
    late = told.late or _is_late(told, attempts, run_id, run_attempt)
    return _write_standing(conn, told, standing, attempts, late, legs_changed, now)


def _attempts(conn: Connection, dispatch_id: int) -> _Attempts:
    rows = conn.execute(_ATTEMPTS, {"dispatch_id": dispatch_id})
    return {(row.run_id, row.run_attempt): _Attempt(row.claim, row.started_at, row.began_at) for row in rows}


def _fold_rows(
    told: Told, said: Sequence[Row[Any]], attempts: _Attempts
) -> tuple[list[Leg], dict[tuple[object, ...], dict[str, object]]]:
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
            "late": _came_after_conclusion(told, leg) and _is_late(told, attempts, leg.run_id, leg.run_attempt),
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


def _standing_legs(rows: Iterable[Row[Any]], attempts: _Attempts) -> list[Leg]:
    """The legs of other jobs, read back from their rows. The claim is the attempt's, which is all that counts."""
    return [
        Leg(
            run_id=row.run_id,
            run_attempt=row.run_attempt,
            job_name=row.job_name,
            combination=row.combination,
            backend_version=row.backend_version,
            check_run_id=row.check_run_id,
            status=Status(row.status),
            conclusion=None if row.conclusion is None else Conclusion(row.conclusion),
            started_at=row.started_at,
            completed_at=row.completed_at,
            conflicting=row.conflicting,
            deciding=row.deciding,
            source_report_id=row.report_id,
            expected_jobs=attempts[row.run_id, row.run_attempt].claim,
        )
        for row in rows
        if (row.run_id, row.run_attempt) in attempts
    ]


def _decides(leg: Leg, attempts: _Attempts) -> bool:
    return (leg.run_id, leg.run_attempt) in attempts


def _observed(rows: Iterable[Row[Any]]) -> Observed:
    """What GitHub was seen to say: of a job where its id is known, else of its run attempt."""
    runs: dict[tuple[str, int], Conclusion] = {}
    jobs: dict[str, Conclusion] = {}
    for row in rows:
        if row.observed in _CONCLUSIONS:
            if row.check_run_id is not None:
                jobs[row.check_run_id] = Conclusion(row.observed)
            else:
                runs[row.run_id, row.run_attempt] = Conclusion(row.observed)
    return Observed(runs, jobs)


def _expectation(terms: Terms) -> Expectation:
    return Expectation(jobs=terms.expected_jobs, versions=terms.versions)


def _newest_begins(attempts: _Attempts) -> dict[str, datetime]:
    """For each run, when its newest attempt first started; when it was first heard of, where no start was reported."""
    begins: dict[str, tuple[int, datetime]] = {}
    for (run_id, number), attempt in attempts.items():
        if run_id not in begins or number > begins[run_id][0]:
            begins[run_id] = number, attempt.started_at or attempt.began_at
    return {run_id: at for run_id, (_, at) in begins.items()}


def _still_concluded(told: Told, attempts: _Attempts) -> Outcome | None:
    """What we concluded, unless an attempt has begun since, which has a deadline of its own."""
    if told.concluded is None or told.concluded_at is None:
        return None
    if any(at > told.concluded_at for at in _newest_begins(attempts).values()):
        return None
    return Outcome(told.concluded)


def _is_late(told: Told, attempts: _Attempts, run_id: str, run_attempt: int) -> bool:
    """Whether we had given up on this attempt. A re-run that began afterwards is not late, it is new."""
    attempt = attempts.get((run_id, run_attempt))
    if told.concluded_at is None or attempt is None:
        return False
    return run_attempt == 1 or attempt.began_at <= told.concluded_at


def _came_after_conclusion(told: Told, leg: Leg) -> bool:
    came = leg.completed_at or leg.started_at
    return told.concluded_at is not None and came is not None and came > told.concluded_at


def _write_standing(
    conn: Connection,
    told: Told,
    standing: Standing,
    attempts: _Attempts,
    late: bool,
    legs_changed: bool,
    now: datetime,
) -> Changed:
    settled = standing.outcome not in UNSETTLED
    begins = _newest_begins(attempts)
    deadline = None if settled else max(begins.values()) + told.terms.run
    starts = [attempt.started_at for attempt in attempts.values() if attempt.started_at is not None]
    outcome_changed = standing.outcome != told.outcome
    wanted: dict[str, object] = {
        "outcome": standing.outcome.value,
        "outcome_at": now if outcome_changed else told.outcome_at,
        "legs_reported": standing.legs_reported,
        "legs_expected": standing.legs_expected,
        "started_at": min(starts, default=None),
        "next_deadline": deadline,
        "late": late,
    }
    if any(getattr(told, name) != wanted[name] for name in _STANDING):
        conn.execute(_CHANGE_DISPATCH, {"b_id": told.id, **{f"b_{name}": wanted[name] for name in _STANDING}})
    return Changed(outcome=outcome_changed, legs=legs_changed, settled=settled)
