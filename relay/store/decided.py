"""What was decided, as it is kept, for deciding it once more: plans of webhooks, and outcomes of dispatches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, exists, select, tuple_

from levels.lifecycle import Standing
from relay.deciding.terms import Terms
from relay.store.legs import stand_again
from relay.store.standing import Told
from relay.store.tables import Change, Delivery, Dispatch, Job, Report

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_delivery = Delivery.__table__  # type: ignore[attr-defined]
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_job = Job.__table__  # type: ignore[attr-defined]
_report = Report.__table__  # type: ignore[attr-defined]

#: Webhooks on which backends are told, or not.
DECIDED_ON = ("pull_request", "push", "merge_group")

#: Rows that one look reads.
PORTION = 100


@dataclass(frozen=True, slots=True)
class Taken:
    """One webhook's decisions as they were taken. ``ground`` is None where it was not kept."""

    delivery_id: str
    event: str
    action: str | None
    received_at: datetime
    number: int | None
    head_sha: str | None
    plan: str
    ground: str | None


@dataclass(frozen=True, slots=True)
class Stood:
    """One dispatch's outcome as it is kept, and as its reports alone say it.

    ``again`` is None where some of its reports are forgotten already.
    """

    dispatch_id: int
    backend: str
    number: int | None
    head_sha: str
    outcome: str
    legs_reported: int
    legs_expected: int | None
    again: Standing | None


def taken(
    conn: Connection, *, since: datetime | None = None, after: Taken | None = None, limit: int = PORTION
) -> tuple[Taken, ...]:
    """Webhooks in the order of their receipt, from the one behind ``after`` on."""
    query = (
        select(_delivery, _change.c.number, _change.c.head_sha)
        .select_from(_delivery.outerjoin(_change, _change.c.id == _delivery.c.change_id))
        .where(_delivery.c.event.in_(DECIDED_ON))
        .order_by(_delivery.c.received_at, _delivery.c.id)
        .limit(limit)
    )
    if since is not None:
        query = query.where(_delivery.c.received_at >= since)
    if after is not None:
        query = query.where(
            tuple_(_delivery.c.received_at, _delivery.c.id) > tuple_(after.received_at, after.delivery_id)
        )
    return tuple(
        Taken(row.id, row.event, row.action, row.received_at, row.number, row.head_sha, row.plan, row.ground)
        for row in conn.execute(query)
    )


def stood(
    conn: Connection, *, since: datetime | None = None, after: int = 0, limit: int = PORTION
) -> tuple[Stood, ...]:
    """Dispatches of which reports decide, by their numbers from the one behind ``after`` on."""
    decides = exists(_report.c.id).where(_report.c.dispatch_id == _dispatch.c.id, _report.c.decides)
    query = (
        select(_dispatch, _change.c.number, _change.c.head_sha)
        .join(_change, _change.c.id == _dispatch.c.change_id)
        # What was dropped or filtered says what we decided, whatever was reported of it in spite of that.
        .where(_dispatch.c.id > after, _dispatch.c.state.not_in(("filtered", "superseded")), decides)
        .order_by(_dispatch.c.id)
        .limit(limit)
    )
    if since is not None:
        query = query.where(_dispatch.c.created_at >= since)
    rows = conn.execute(query).all()
    torn = _torn(conn, [row.id for row in rows])
    return tuple(
        Stood(
            dispatch_id=row.id,
            backend=row.backend,
            number=row.number,
            head_sha=row.head_sha,
            outcome=row.outcome,
            legs_reported=row.legs_reported,
            legs_expected=row.legs_expected,
            again=None if row.id in torn else stand_again(conn, _told(row)),
        )
        for row in rows
    )


def _torn(conn: Connection, dispatch_ids: Sequence[int]) -> frozenset[int]:
    """Those of which some reports are forgotten: a job stands on a report that is not there any more."""
    gone = select(_job.c.dispatch_id).where(
        _job.c.dispatch_id.in_(dispatch_ids), ~exists(_report.c.id).where(_report.c.id == _job.c.report_id)
    )
    return frozenset(conn.execute(gone).scalars())


def _told(row: Any) -> Told:
    values = {each.name: getattr(row, each.name) for each in fields(Told) if each.name != "terms"}
    return Told(terms=Terms.from_json(row.terms), **values)
