"""One transaction for a merge queue's webhook, and the end of a group's time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, select, update
from sqlalchemy.dialects import postgresql, sqlite

from allowlist.model import Allowlist, RepoName
from relay.deciding.events import MergeGroupEvent
from relay.deciding.grounds import ground_of
from relay.deciding.plan import HeadState, Purpose
from relay.deciding.plan_queue import GroupPlan, KnownGroup, KnownTold, group_thread, plan_group, pull_number
from relay.store.cancelling import want_cancelled
from relay.store.checks import CheckTerms, touch_head
from relay.store.intake import (
    Received,
    Recorded,
    note_delivery,
    note_plan,
    revive_delivery,
    supersede,
    write_dispatches,
)
from relay.store.queued import groups_on, members_of
from relay.store.tables import Change, Dispatch
from relay.store.thread import lock_threads, paused_backends

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]

#: Groups whose time one pass ends at most; a queue is far shorter.
BATCH = 200

_ADD_CHANGE: Mapping[str, Any] = {
    "sqlite": sqlite.insert(_change).on_conflict_do_nothing().returning(_change.c.id),
    "postgresql": postgresql.insert(_change).on_conflict_do_nothing().returning(_change.c.id),
}
_TOLD = select(_dispatch.c.id, _dispatch.c.backend, _dispatch.c.state).where(
    _dispatch.c.change_id == bindparam("b_change"), _dispatch.c.purpose == Purpose.TEST.value
)
_HELD = (
    select(_dispatch.c.id)
    .where(
        _dispatch.c.change_id.in_(bindparam("b_changes", expanding=True)),
        _dispatch.c.purpose == Purpose.TEST.value,
    )
    .order_by(_dispatch.c.id)
    .with_for_update(of=_dispatch)
)
_OVERDUE = (
    select(_change.c.id, _change.c.head_sha)
    .where(
        _change.c.updated_at <= bindparam("b_before", type_=_change.c.updated_at.type),
        _change.c.ended_at.is_(None),
        _change.c.kind == "merge_group",
        _change.c.state == HeadState.OPEN.value,
    )
    .order_by(_change.c.id)
    .limit(BATCH)
    .with_for_update(of=_change, skip_locked=True)
)


def record_group(
    conn: Connection,
    event: MergeGroupEvent,
    received: Received,
    *,
    allowlist: Allowlist,
    terms: CheckTerms,
    now: datetime,
) -> Recorded:
    """Write down a merge queue's webhook and everything that follows from it."""
    repository = str(terms.upstream)
    if not note_delivery(conn, received, action=event.action, repository=repository, sender=event.sender, now=now):
        return Recorded("duplicate", revive_delivery(conn, received.delivery_id, terms, now))
    thread = group_thread(event.head_sha)
    lock_threads(conn, {thread})
    row = conn.execute(
        select(_change.c.id, _change.c.state, _change.c.created_at)
        .where(_change.c.thread == thread, _change.c.head_sha == event.head_sha)
        .with_for_update(of=_change)
    ).first()
    known = _known(conn, row, now)
    decided = plan_group(event, delivery_id=received.delivery_id, allowlist=allowlist, known=known)
    change_id = _write_group(conn, event, decided, received.delivery_id, now)
    _hold_verdicts(conn, event.head_sha)
    supersede(conn, decided.superseded_dispatches, "change_closed", now)
    if decided.head_state is HeadState.CLOSED:
        # The queue builds a group anew for each change in it, so most end before their runs do.
        want_cancelled(conn, thread, now)
    since = now if row is None else row.created_at
    write_dispatches(
        conn,
        decided.dispatches,
        change_id,
        thread,
        received.delivery_id,
        terms.upstream,
        now,
        until=since + terms.group_deadline,
    )
    # Groups that were built on this one contain what it contains, as long as it is there.
    for head_sha in (event.head_sha, *groups_on(conn, [event.head_sha], since)):
        touch_head(conn, head_sha, terms, now)
    note_plan(conn, received.delivery_id, decided.decisions, change_id, ground_of(event, known, allowlist))
    return Recorded("accepted", decided.decisions)


def _known(conn: Connection, row: Any, now: datetime) -> KnownGroup:
    if row is None:
        return KnownGroup(paused=paused_backends(conn, now))
    told = conn.execute(_TOLD, {"b_change": row.id})
    return KnownGroup(
        state=row.state,
        told=tuple(KnownTold(one.id, RepoName.parse(one.backend), one.state) for one in told),
        paused=paused_backends(conn, now),
    )


def _hold_verdicts(conn: Connection, head_sha: str) -> None:
    """Wait for reports that are being written on the pull requests in this group, and let later ones wait for us.

    Such a report looks for groups whose gates it changes, and could not see this one before it is committed.
    """
    members = [member.change_id for member in members_of(conn, head_sha)]
    if members:
        conn.execute(_HELD, {"b_changes": members}).all()


def _write_group(conn: Connection, event: MergeGroupEvent, decided: GroupPlan, delivery_id: str, now: datetime) -> int:
    gone = decided.head_state is HeadState.CLOSED
    landed = event.head_sha if event.reason == "merged" else None
    row = {
        "kind": "merge_group",
        "thread": decided.thread,
        "head_sha": event.head_sha,
        "number": pull_number(event.head_ref),
        "ref": event.head_ref,
        "base_ref": event.base_ref,
        "base_sha": event.base_sha,
        "landed_sha": landed,
        "title": event.message.partition("\n")[0][:200],
        "author": event.sender,
        "author_association": "",
        "html_url": "",
        "draft": False,
        "labels": "[]",
        "state": decided.head_state.value,
        "verified": True,
        "delivery_id": delivery_id,
        "created_at": now,
        # These events carry no time of their own, and a group has but one head to order.
        "updated_at": now,
        "received_at": now,
        "ended_at": now if gone else None,
    }
    made = conn.execute(_ADD_CHANGE[conn.dialect.name], row).scalar()
    if made is not None:
        return int(made)
    changes: dict[str, Any] = {"state": decided.head_state.value, "received_at": now}
    if gone:
        changes["ended_at"] = now
    if landed is not None:
        changes["landed_sha"] = landed
    found = conn.execute(
        update(_change)
        .where(_change.c.thread == decided.thread, _change.c.head_sha == event.head_sha)
        .values(**changes)
        .returning(_change.c.id)
    ).scalar_one()
    return int(found)


def end_groups(conn: Connection, now: datetime, terms: CheckTerms) -> tuple[str, ...]:
    """Let the gates of groups whose time is over wait no longer; returns the groups' heads.

    A queue that is not answered drops the pull request without a reason, so the gate answers before that.
    """
    rows = conn.execute(_OVERDUE, {"b_before": now - terms.group_deadline}).all()
    if not rows:
        return ()
    # From here on nobody waits for it, which is what this time says; the group itself is open until it is destroyed.
    conn.execute(update(_change).where(_change.c.id.in_([row.id for row in rows])).values(ended_at=now))
    for row in rows:
        touch_head(conn, row.head_sha, terms, now)
    return tuple(row.head_sha for row in rows)
