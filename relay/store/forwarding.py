"""What the HUD is told of reports, read for as many as are sent together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from allowlist.model import Level
from levels.legs import Status
from relay.hud import ForwardFacts
from relay.store.tables import Dispatch, Job, Report

_dispatch = Dispatch.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_job = Job.__table__  # type: ignore[attr-defined]
_report = Report.__table__  # type: ignore[attr-defined]

_Job = tuple[int, str, int, str]

_REPORTS = (
    select(
        _report.c.id,
        _report.c.dispatch_id,
        _report.c.backend,
        _report.c.run_id,
        _report.c.run_attempt,
        _report.c.job_name,
        _report.c.combination,
        _report.c.check_run_id,
        _report.c.status,
        _report.c.body,
        _dispatch.c.level,
    )
    .join(_dispatch, _dispatch.c.id == _report.c.dispatch_id)
    .where(_report.c.id.in_(bindparam("ids", expanding=True)))
)

_LEGS = select(
    _job.c.id,
    _job.c.dispatch_id,
    _job.c.report_id,
    _job.c.run_id,
    _job.c.run_attempt,
    _job.c.job_name,
    _job.c.combination,
    _job.c.check_run_id,
    _job.c.queue_seconds,
    _job.c.execution_seconds,
).where(
    _job.c.dispatch_id.in_(bindparam("dispatch_ids", expanding=True)),
    _job.c.job_name.in_(bindparam("job_names", expanding=True)),
)


def load_forwards(conn: Connection, report_ids: Sequence[int]) -> dict[int, ForwardFacts]:
    """What the HUD is told of these reports, by id; those that are gone are missing."""
    reports = conn.execute(_REPORTS, {"ids": list(report_ids)}).all()
    if not reports:
        return {}
    legs: defaultdict[_Job, list[Row[Any]]] = defaultdict(list)
    of = {
        "dispatch_ids": sorted({row.dispatch_id for row in reports}),
        "job_names": sorted({row.job_name for row in reports}),
    }
    for leg in conn.execute(_LEGS, of):
        legs[_job_of(leg)].append(leg)
    return {row.id: _facts(row, _leg_of(row, legs[_job_of(row)])) for row in reports}


def _job_of(row: Row[Any]) -> _Job:
    return row.dispatch_id, row.run_id, row.run_attempt, row.job_name


def _leg_of(report: Row[Any], legs: Sequence[Row[Any]]) -> Row[Any] | None:
    """The leg this report made, else the one it became part of."""
    return min(
        legs,
        key=lambda leg: (
            leg.report_id != report.id,
            (leg.check_run_id or "") != (report.check_run_id or ""),
            leg.combination != report.combination,
            leg.id,
        ),
        default=None,
    )


def _facts(report: Row[Any], leg: Row[Any] | None) -> ForwardFacts:
    ended = report.status == Status.COMPLETED
    return ForwardFacts(
        report_id=report.id,
        repo=report.backend,
        level=str(Level(report.level)),
        queue_seconds=None if leg is None else leg.queue_seconds,
        execution_seconds=leg.execution_seconds if leg is not None and ended else None,
        body=report.body,
    )
