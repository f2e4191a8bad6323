"""Why a backend was, or was not, told of a pull request: what was decided at each webhook, and what came of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select

from allowlist.model import RepoName
from relay.deciding.circuits import waiting_text
from relay.store.circuits import circuits_of
from relay.store.tables import Change, Delivery, Dispatch
from relay.store.told import owes_of

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_delivery = Delivery.__table__  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Why:
    """One decision about one backend at one delivery; the last fields stand where a dispatch was planned."""

    delivery_id: str
    event: str
    action: str | None
    received_at: datetime
    head_sha: str
    effect: str  # dispatch, decide_paths, none
    reason: str
    detail: str
    dispatch_id: int | None = None
    state: str | None = None
    state_reason: str | None = None  # What became of it since: filtered by its paths, superseded, dead.
    state_detail: str | None = None
    purpose: str | None = None
    outcome: str | None = None
    owes: bool = False  # Whether a result of it is awaited, or was.
    sent_at: datetime | None = None
    waits: str | None = None  # What holds it back, where it is planned and something does.


def why(conn: Connection, number: int, backend: RepoName) -> tuple[Why, ...]:
    """Every decision about this backend for a pull request, oldest first. Empty: the relay knows of neither.

    A backend that was not on the allowlist when a webhook came has no decision at that webhook.
    """
    deliveries = conn.execute(
        select(_delivery, _change.c.head_sha)
        .join(_change, _change.c.id == _delivery.c.change_id)
        .where(_change.c.number == number, _change.c.kind == "pull_request")
        .order_by(_delivery.c.received_at, _delivery.c.id)
    ).all()
    told = {
        row.origin_delivery: row
        for row in conn.execute(
            select(_dispatch)
            .join(_change, _change.c.id == _dispatch.c.change_id)
            .where(
                _change.c.number == number,
                _change.c.kind == "pull_request",
                _dispatch.c.backend == str(backend),
            )
            .order_by(_dispatch.c.id)
        )
    }
    circuit = circuits_of(conn, [str(backend)]).get(str(backend))
    waits = None if circuit is None or circuit.ends_what_comes else waiting_text(circuit)
    found: list[Why] = []
    for row in deliveries:
        for decision in json.loads(row.plan):
            if decision["backend"] != str(backend):
                continue
            dispatch = told.get(row.id)
            found.append(
                Why(
                    delivery_id=row.id,
                    event=row.event,
                    action=row.action,
                    received_at=row.received_at,
                    head_sha=row.head_sha,
                    effect=decision["effect"],
                    reason=decision["reason"],
                    detail=decision.get("detail", ""),
                    dispatch_id=None if dispatch is None else dispatch.id,
                    state=None if dispatch is None else dispatch.state,
                    state_reason=None if dispatch is None else dispatch.reason_code,
                    state_detail=None if dispatch is None else dispatch.reason,
                    purpose=None if dispatch is None else dispatch.purpose,
                    outcome=None if dispatch is None else dispatch.outcome,
                    owes=dispatch is not None and owes_of(dispatch),
                    sent_at=None if dispatch is None else dispatch.sent_at,
                    waits=waits if dispatch is not None and dispatch.state == "planned" else None,
                )
            )
    return tuple(found)
