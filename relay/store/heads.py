"""The row of a head: what an event says of the pull request's, or the ref's, commit under test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, update
from sqlalchemy.dialects import postgresql, sqlite

from relay.deciding.events import PullRequestEvent, PushEvent
from relay.deciding.plan import HeadState, Plan, time_of
from relay.store.tables import Change

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.

_NO_COMMIT = "0"
_ADD_CHANGE: Mapping[str, Any] = {
    "sqlite": sqlite.insert(_change).on_conflict_do_nothing().returning(_change.c.id),
    "postgresql": postgresql.insert(_change).on_conflict_do_nothing().returning(_change.c.id),
}


def write_head(
    conn: Connection, event: PullRequestEvent | PushEvent, decided: Plan, delivery_id: str, now: datetime
) -> int:
    """Insert or update the event's head and return its id."""
    facts = _pull_request_facts(event) if isinstance(event, PullRequestEvent) else _push_facts(event)
    row = {
        **facts,
        "thread": decided.thread,
        "head_sha": decided.head_sha,
        "state": decided.head_state.value,
        "verified": True,
        "delivery_id": delivery_id,
        "created_at": now,
        "updated_at": time_of(event, now),
        "received_at": now,
        "ended_at": _ended_at(event, decided, now),
    }
    made = conn.execute(_ADD_CHANGE[conn.dialect.name], row).scalar()
    if made is not None:
        return int(made)
    changes: dict[str, Any] = {
        "state": decided.head_state.value,
        "received_at": now,
        "ended_at": _ended_at(event, decided, now),
    }
    if decided.newest:
        changes |= facts | {"updated_at": time_of(event, now)}
    if decided.describes:
        changes["delivery_id"] = delivery_id
    found = conn.execute(
        update(_change)
        .where(_change.c.thread == decided.thread, _change.c.head_sha == decided.head_sha)
        .values(**changes)
        .returning(_change.c.id)
    ).scalar_one()
    return int(found)


def _ended_at(event: PullRequestEvent | PushEvent, decided: Plan, now: datetime) -> datetime | None:
    """Since when nobody waits for this head. Nobody closes a push, so it is kept from its receipt on."""
    waits = isinstance(event, PullRequestEvent) and decided.head_state is HeadState.OPEN
    return None if waits else now


def _pull_request_facts(event: PullRequestEvent) -> dict[str, Any]:
    return {
        "kind": "pull_request",
        "number": event.number,
        "ref": event.head_ref,
        "base_ref": event.base_ref,
        "base_sha": event.base_sha,
        "merge_sha": event.merge_commit_sha,
        # GitHub names the commit that landed only where GitHub itself merged.
        "landed_sha": event.merge_commit_sha if event.merged else None,
        "title": event.title,
        "author": event.author,
        "author_association": event.author_association,
        "html_url": event.html_url,
        "draft": event.draft,
        "labels": json.dumps(event.labels, ensure_ascii=False),
    }


def _push_facts(event: PushEvent) -> dict[str, Any]:
    return {
        "kind": "push",
        "ref": event.ref,
        "base_ref": event.base_ref,
        "base_sha": event.before if event.before.strip(_NO_COMMIT) else None,
        "title": event.message.partition("\n")[0][:200],
        "author": event.sender,
        "author_association": "",
        "html_url": "",
        "draft": False,
        "labels": "[]",
    }
