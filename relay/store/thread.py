"""What is known of the pull request or ref an event belongs to, loaded as ``relay.deciding.plan`` looks at it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, bindparam, func, or_, select

from allowlist.model import RepoName
from relay.deciding.events import PullRequestEvent, PushEvent
from relay.deciding.known import Elsewhere, Known, KnownDispatch, KnownHead
from relay.deciding.plan import LIVE, UNSENT, HeadState, Purpose, head_of, thread_of, time_of
from relay.deciding.terms import Terms
from relay.store.tables import Backend, Change, Delivery, Dispatch

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_delivery = Delivery.__table__  # type: ignore[attr-defined]
_backend = Backend.__table__  # type: ignore[attr-defined]


#: How many of a thread's newest heads are asked for dispatches that still wait. All would be too many on a long one.
_RECENT = 4


def take_turns(conn: Connection, event: PullRequestEvent | PushEvent) -> None:
    """Let replicas decide one after another about one thread, and about one pushed commit.

    Locks on rows would not do: the first two events of a pull request find no row that they could lock.
    SQLite has one writer in any case.
    """
    keys = {thread_of(event)}
    if isinstance(event, PushEvent):
        keys.add(f"commit {event.after}")
    lock_threads(conn, keys)


def lock_threads(conn: Connection, keys: Collection[str]) -> None:
    """Wait until nobody else decides about these, and keep others waiting until this transaction ends."""
    if conn.dialect.name != "postgresql":
        return
    for key in sorted(keys):
        number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big", signed=True)
        conn.execute(select(func.pg_advisory_xact_lock(number)))


_HEADS = (
    select(
        _change.c.id,
        _change.c.head_sha,
        _change.c.state,
        _change.c.updated_at,
        _change.c.labels,
        _change.c.delivery_id,
        _delivery.c.action,
    )
    .select_from(_change.outerjoin(_delivery, _delivery.c.id == _change.c.delivery_id))
    .where(_change.c.thread == bindparam("b_thread"))
    .with_for_update(of=_change)
)

_DISPATCHES = (
    select(
        _dispatch.c.id,
        _dispatch.c.change_id,
        _dispatch.c.backend,
        _dispatch.c.purpose,
        _dispatch.c.state,
        _dispatch.c.reason_code,
        _dispatch.c.terms,
    )
    .where(
        _dispatch.c.change_id.in_(bindparam("b_heads", expanding=True)),
        _dispatch.c.purpose == Purpose.TEST.value,
        or_(
            _dispatch.c.state.in_(sorted(UNSENT)),
            and_(_dispatch.c.change_id == bindparam("b_head"), _dispatch.c.state.in_(sorted(LIVE))),
        ),
    )
    .order_by(_dispatch.c.id)
)

_ELSEWHERE = (
    select(_dispatch.c.id, _dispatch.c.backend, _dispatch.c.state, _change.c.ref)
    .join(_change, _change.c.id == _dispatch.c.change_id)
    .where(
        _change.c.head_sha == bindparam("b_sha"),
        _change.c.kind == "push",
        _change.c.thread != bindparam("b_thread"),
        _dispatch.c.purpose == Purpose.TEST.value,
        _dispatch.c.state.in_(sorted(LIVE)),
    )
    .order_by(_dispatch.c.id)
)

_PAUSED = select(_backend.c.repo, _backend.c.pause_reason).where(
    _backend.c.paused_until > bindparam("b_now", type_=_backend.c.paused_until.type)
)

_PAYLOADS = (
    select(_change.c.id, _delivery.c.payload)
    .join(_delivery, _delivery.c.id == _change.c.delivery_id)
    .where(_change.c.id.in_(bindparam("b_heads", expanding=True)))
)


def load_known(conn: Connection, event: PullRequestEvent | PushEvent, now: datetime) -> Known:
    """Everything a plan for this event looks at. The thread's change rows are locked until the transaction ends."""
    thread, head_sha = thread_of(event), head_of(event)
    rows = conn.execute(_HEADS, {"b_thread": thread}).all()
    at = time_of(event, now)
    # The links between heads matter only where GitHub's time, in whole seconds, does not tell two heads apart.
    tied = [row.id for row in rows if row.updated_at == at and row.head_sha != head_sha]
    links = _links(conn, tied) if tied else {}
    heads = tuple(
        KnownHead(
            id=row.id,
            head_sha=row.head_sha,
            state=row.state,
            updated_at=row.updated_at,
            labels=tuple(json.loads(row.labels)),
            came_from=links.get(row.id),
            action=row.action,
            payload_delivery=row.delivery_id,
        )
        for row in rows
    )
    paused = paused_backends(conn, now)
    elsewhere: tuple[Elsewhere, ...] = ()
    if isinstance(event, PushEvent):
        found = conn.execute(_ELSEWHERE, {"b_sha": head_sha, "b_thread": thread})
        elsewhere = tuple(Elsewhere(row.id, RepoName.parse(row.backend), row.ref or "", row.state) for row in found)
    return Known(heads, _dispatches(conn, heads, head_sha), elsewhere, paused)


def paused_backends(conn: Connection, now: datetime) -> Mapping[RepoName, str]:
    """The backends that an admin has paused, each with the reason."""
    rows = conn.execute(_PAUSED, {"b_now": now})
    return {RepoName.parse(row.repo): row.pause_reason or "no reason was given" for row in rows}


def _links(conn: Connection, heads: list[int]) -> Mapping[int, str | None]:
    return {row.id: _before(json.loads(row.payload)) for row in conn.execute(_PAYLOADS, {"b_heads": heads})}


def _before(payload: Any) -> str | None:
    before = payload.get("before") if isinstance(payload, dict) else None
    return before.lower() if isinstance(before, str) else None


def _dispatches(conn: Connection, heads: tuple[KnownHead, ...], head_sha: str) -> tuple[KnownDispatch, ...]:
    """Those of the event's head, and unsent ones of heads that were open until now or shortly before.

    The worker may have held a dispatch when its head was superseded, and put it back to try it again later.
    """
    newest = sorted(heads, key=lambda head: head.updated_at, reverse=True)[:_RECENT]
    by_id = {head.id: head for head in heads if head.head_sha == head_sha or head.state == HeadState.OPEN}
    by_id |= {head.id: head for head in newest}
    if not by_id:
        return ()
    mine = next((head.id for head in heads if head.head_sha == head_sha), 0)
    return tuple(
        KnownDispatch(
            id=row.id,
            head_sha=by_id[row.change_id].head_sha,
            backend=RepoName.parse(row.backend),
            purpose=row.purpose,
            state=row.state,
            reason_code=row.reason_code,
            every_commit=row.state in UNSENT and Terms.from_json(row.terms).every_commit,
        )
        for row in conn.execute(_DISPATCHES, {"b_heads": sorted(by_id), "b_head": mine})
    )
