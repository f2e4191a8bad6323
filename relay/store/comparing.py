"""What the store knows of upstream's pull requests, branches and merge groups, for comparing it with upstream itself.

Read only, and without locks: what is found here is looked at again by whoever acts on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select, update

from allowlist.model import RepoName
from relay.deciding.gaps import QUEUE, Cause, SeenHead, SeenRef
from relay.deciding.plan import HeadState, Purpose
from relay.store.tables import Change, Delivery, Dispatch
from relay.store.tables_gaps import Gap

_change: Any = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_dispatch: Any = Dispatch.__table__  # type: ignore[attr-defined]
_delivery: Any = Delivery.__table__  # type: ignore[attr-defined]
_gap: Any = Gap.__table__  # type: ignore[attr-defined]

#: A dispatch in one of these states is as none: nobody was told, and nobody decided not to tell.
_NOT_TOLD = ("superseded", "self_reported")


def known_pulls(conn: Connection, numbers: Sequence[int]) -> Mapping[int, tuple[SeenHead, ...]]:
    """The heads of these pull requests; of the open ones also who has a dispatch."""
    rows = conn.execute(
        select(
            _change.c.id,
            _change.c.number,
            _change.c.head_sha,
            _change.c.state,
            _change.c.labels,
            _change.c.base_ref,
            _change.c.created_at,
            _change.c.updated_at,
            _delivery.c.action,
        )
        .select_from(_change.outerjoin(_delivery, _delivery.c.id == _change.c.delivery_id))
        .where(_change.c.kind == "pull_request", _change.c.number.in_(numbers))
        .order_by(_change.c.id)
    ).all()
    told: dict[int, set[RepoName]] = {row.id: set() for row in rows}
    found = conn.execute(
        select(_dispatch.c.change_id, _dispatch.c.backend).where(
            _dispatch.c.change_id.in_(told),
            _dispatch.c.purpose == Purpose.TEST.value,
            _dispatch.c.state.not_in(_NOT_TOLD),
        )
    )
    for change_id, backend in found:
        told[change_id].add(RepoName.parse(backend))
    heads: dict[int, list[SeenHead]] = {number: [] for number in numbers}
    for row in rows:
        heads[row.number].append(
            SeenHead(
                head_sha=row.head_sha,
                state=row.state,
                labels=tuple(json.loads(row.labels)),
                base_ref=row.base_ref or "",
                created_at=row.created_at,
                updated_at=row.updated_at,
                action=row.action,
                told=frozenset(told[row.id]),
            )
        )
    return {number: tuple(listed) for number, listed in heads.items()}


def open_pulls(conn: Connection) -> Mapping[int, tuple[str, datetime]]:
    """The pull requests that are open here, each with its head and GitHub's time of it."""
    rows = conn.execute(
        select(_change.c.number, _change.c.head_sha, _change.c.updated_at)
        .where(_change.c.kind == "pull_request", _change.c.state == HeadState.OPEN.value)
        .order_by(_change.c.id)
    )
    return {row.number: (row.head_sha, row.updated_at) for row in rows if row.number is not None}


def known_branch(conn: Connection, ref: str) -> SeenRef | None:
    """The newest push of a branch, None where none is known."""
    row = conn.execute(
        select(_change.c.head_sha, _change.c.received_at)
        .where(_change.c.kind == "push", _change.c.ref == ref, _change.c.state == HeadState.OPEN.value)
        .order_by(_change.c.updated_at.desc(), _change.c.id.desc())
        .limit(1)
    ).first()
    return None if row is None else SeenRef(row.head_sha, row.received_at)


def branches_pushed_to(conn: Connection, most: int) -> tuple[str, ...]:
    """The branches that were pushed to, the last one first."""
    rows = conn.execute(
        select(_change.c.ref)
        .where(
            _change.c.kind == "push",
            _change.c.ref.like("refs/heads/%"),
            _change.c.ref.not_like(f"refs/{QUEUE}%"),
        )
        .order_by(_change.c.id.desc())
        .limit(most)
    )
    return tuple(dict.fromkeys(rows.scalars()))


def known_groups(conn: Connection, heads: Sequence[str], before: datetime) -> tuple[frozenset[str], Mapping[str, str]]:
    """Which of these merge groups we know; and of all that wait here since before then, the ref by head."""
    known = conn.execute(
        select(_change.c.head_sha).where(_change.c.kind == "merge_group", _change.c.head_sha.in_(heads))
    ).scalars()
    waiting = conn.execute(
        select(_change.c.head_sha, _change.c.ref).where(
            _change.c.kind == "merge_group",
            _change.c.state == HeadState.OPEN.value,
            _change.c.created_at <= before,
            _change.c.ref.is_not(None),
        )
    )
    return frozenset(known), {row.head_sha: row.ref for row in waiting}


def first_heads(conn: Connection, subjects: Sequence[str] | None = None) -> frozenset[tuple[str, str]]:
    """The threads and heads that were open before we first looked: nobody is told of those, whatever came since."""
    query = select(_gap.c.subject, _gap.c.head_sha).where(_gap.c.cause == Cause.FIRST_START.value)
    if subjects is not None:
        query = query.where(_gap.c.subject.in_(subjects))
    return frozenset((row.subject, row.head_sha) for row in conn.execute(query))


def date_head(conn: Connection, thread: str, head_sha: str, at: datetime) -> None:
    """A head that was noted late is as old as GitHub says: whoever asks from a later time on is not told of it."""
    conn.execute(
        update(_change)
        .where(_change.c.thread == thread, _change.c.head_sha == head_sha, _change.c.created_at > at)
        .values(created_at=at)
    )


def note_missed(conn: Connection, delivery_id: str) -> None:
    """The dispatches that this event made say for what reason they are (``relay.change.reason``)."""
    conn.execute(
        update(_dispatch)
        .where(_dispatch.c.origin_delivery == delivery_id, _dispatch.c.reason_code == "wanted")
        .values(reason_code="missed")
    )
