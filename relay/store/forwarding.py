"""What the HUD is told of reports, read for as many as are sent together; and what it is told after all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, func, select, update

from allowlist.model import Level
from levels.legs import Status
from relay.deciding.effects import Kind
from relay.hud import ForwardFacts
from relay.store.outbox import dead_of
from relay.store.tables import Dispatch, Effect, Job, Report

_dispatch = Dispatch.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_effect = Effect.__table__  # type: ignore[attr-defined]
_job = Job.__table__  # type: ignore[attr-defined]
_report = Report.__table__  # type: ignore[attr-defined]

_Job = tuple[int, str, int, str]

#: Reasons to give a report up that say nothing about the report itself.
OUTLASTED = ("hud_unavailable", "hud_refused", "too_slow")

#: A report that was tried so often is not tried again by itself: it may be what brings the HUD down.
MOST_TRIES = 64

_NEWEST = 50  # Reports in whose forwarding a sign is looked for that the HUD takes reports again.

_REPORTS: Select[Any] = (
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

_LEGS: Select[Any] = select(
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


def revive_forwards(conn: Connection, now: datetime, *, count: int = 200) -> int:
    """Send reports after all that were given up before the HUD last took one; returns how many.

    The schedule of tries ends after half a day, and a HUD may be down, or its key be wrong, for longer.
    """
    newest = (
        select(_effect.c.state, _effect.c.finished_at)
        .where(_effect.c.kind == Kind.FORWARD_HUD.value)
        .order_by(_effect.c.subject_id.desc())
        .limit(_NEWEST)
        .subquery()
    )
    took_at = conn.execute(select(func.max(newest.c.finished_at)).where(newest.c.state == "done")).scalar()
    if took_at is None:
        return 0
    given_up = (
        select(_effect.c.id)
        .where(
            dead_of([Kind.FORWARD_HUD]),
            _effect.c.reason.in_(OUTLASTED),
            _effect.c.finished_at < took_at,
            _effect.c.attempts < MOST_TRIES,
        )
        .order_by(_effect.c.id)
        .limit(count)
    )
    ids = conn.execute(given_up).scalars().all()
    if ids:
        again = {"state": "ready", "due": now, "failures": 0, "finished_at": None}
        conn.execute(update(_effect).where(_effect.c.id.in_(ids), _effect.c.state == "dead").values(**again))
    return len(ids)
