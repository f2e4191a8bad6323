"""Telling a backend once more of a change it was told of: a dispatch of its own, which then decides."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, insert, select

from allowlist.model import Allowlist, Level, RepoName
from levels.outcomes import UNSETTLED, Outcome
from relay.deciding.effects import send_dispatch
from relay.deciding.terms import Terms
from relay.store.checks import CheckTerms, touch_head
from relay.store.outbox import enqueue
from relay.store.tables import Backend, Change, Dispatch

_backend = Backend.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_change = Change.__table__  # type: ignore[attr-defined]
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]

#: Why a backend is told once more, as the listener reads it in ``relay.change.reason``.
REDISPATCHED = "redispatched"

_NEWEST = (
    select(_dispatch)
    .where(
        _dispatch.c.change_id == bindparam("change_id"),
        _dispatch.c.backend == bindparam("backend"),
        _dispatch.c.purpose == "test",
    )
    .order_by(_dispatch.c.id.desc())
    .limit(1)
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a backend is not told anew. ``code`` is stable, ``sentence`` is ours and for people."""

    code: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Asking:
    """Who or what wants a backend told anew: in words (``cause``), and the webhook by which it came (``origin``)."""

    cause: str
    origin: str


def redispatch(
    conn: Connection,
    change_id: int,
    backend: RepoName,
    asking: Asking,
    *,
    fresh_id: str,
    allowlist: Allowlist,
    terms: CheckTerms,
    now: datetime,
) -> int | Refusal:
    """Tell the backend anew with the original event and payload; returns the new dispatch, which decides from now on.

    Refused where the change is over, the backend is not listed or paused, or an answer to an earlier dispatch is due.
    """
    change = conn.execute(select(_change).where(_change.c.id == change_id).with_for_update()).first()
    if change is None or change.state != "open":
        return Refusal("change_over", "this commit is not the newest of an open change any more")
    entry = allowlist.get(backend)
    if entry is None:
        return Refusal("not_listed", f"`{backend}` is not on the allowlist")
    paused = conn.execute(
        select(_backend.c.paused_until).where(_backend.c.repo == str(backend), _backend.c.paused_until > now)
    ).scalar()
    if paused is not None:
        return Refusal("paused", f"`{backend}` is paused at the relay")
    last = conn.execute(_NEWEST, {"change_id": change_id, "backend": str(backend)}).first()
    if last is not None and last.state in {"pending_paths", "planned"}:
        return Refusal("already_planned", f"`{backend}` is about to be told already")
    if last is not None and last.state == "sent" and Outcome(last.outcome) in UNSETTLED:
        return Refusal("already_awaited", f"`{backend}` was told already and its answer is still due")
    payload = change.delivery_id if last is None else last.payload_delivery or change.delivery_id
    if payload is None:
        return Refusal("no_payload", "the event that it would be told of is not known any more")
    promised = Terms.of(entry)
    patience = promised.queue + promised.run
    if last is not None and change.kind == "merge_group" and last.give_up_at is not None:
        # A merge queue waits for its own time and not for a backend's.
        patience = min(patience, max(last.give_up_at - last.created_at, timedelta()))
    # What was owed at a level is owed at it still: a level that is lowered for a time lowers whoever looks meanwhile
    # (``relay.store.check_facts``), and must not let a failed backend off for good.
    level = entry.promised if last is None else max(Level(last.level), entry.promised)
    row = {
        "change_id": change_id,
        "backend": str(backend),
        "level": int(level),
        "device": entry.device,
        "purpose": "test",
        # A change's kind is the name of the event it came by.
        "event_type": change.kind if last is None else last.event_type,
        "delivery_id": fresh_id,
        "origin_delivery": asking.origin,
        "payload_delivery": payload,
        "state": "planned",
        "reason_code": REDISPATCHED,
        "reason": asking.cause,
        "terms": promised.to_json(),
        "created_at": now,
        "give_up_at": now + patience,
        "next_deadline": now + patience,
        "outcome": Outcome.QUEUED.value,
        "outcome_at": now,
        "legs_reported": 0,
        "late": False,
        "cause": asking.cause,
    }
    dispatch_id = int(conn.execute(insert(_dispatch).returning(_dispatch.c.id), row).scalar_one())
    enqueue(conn, [send_dispatch(dispatch_id, backend, change.thread, entry.level)], now)
    touch_head(conn, change.head_sha, terms, now)
    return dispatch_id
