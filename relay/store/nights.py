"""Which dispatch row a callback belongs to: one we sent, or the one kept for a commit that was reported on by itself.

A night's jobs come under as many delivery ids as they like: what they share is the commit and the event (PROTOCOL 4).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, func, select, update

from allowlist.model import Entry, RepoName
from levels.outcomes import Outcome
from relay.deciding.effects import confirm_commit
from relay.deciding.terms import Terms
from relay.results.report import IncomingReport
from relay.store.outbox import enqueue, on_conflict_do_nothing
from relay.store.shared import ForEach
from relay.store.tables import Backend, Change, Dispatch

_backend = Backend.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_change = Change.__table__  # type: ignore[attr-defined]
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]

_BRANCH = "refs/heads/"
_MOST_BRANCHES = 5

#: What a report is bound by, and what it may move. Each column costs something to read, and there are as many again.
_READ = (
    "id",
    "backend",
    "level",
    "purpose",
    "origin_delivery",
    "state",
    "terms",
    "sent_at",
    "started_at",
    "give_up_at",
    "next_deadline",
    "concluded",
    "concluded_at",
    "outcome",
    "outcome_at",
    "legs_reported",
    "legs_expected",
    "late",
    "rerun_at",
    "observed_at",
)

_FOUND: Select[Any] = (
    select(
        *(_dispatch.c[name] for name in _READ),
        _change.c.head_sha,
        _change.c.number,
        _change.c.labels,
        _backend.c.repo.label("seen_repo"),
        _backend.c.repository_id,
        _backend.c.owner_id,
        _backend.c.private,
        _backend.c.last_seen_at,
    )
    .select_from(
        _dispatch.join(_change, _change.c.id == _dispatch.c.change_id).outerjoin(
            _backend, _backend.c.repo == _dispatch.c.backend
        )
    )
    .with_for_update(of=_dispatch)
)

#: The dispatches that capabilities name, with their changes and what is known of their backends. Locks the dispatches.
DISPATCHES_BY_ID = ForEach(_FOUND.order_by(_dispatch.c.id), {"dispatch_ids": _dispatch.c.id})

#: The dispatch to ``caller`` that a delivery id names. A night's row has a name of ours there, which no caller may use.
DISPATCH_BY_DELIVERY = _FOUND.where(
    _dispatch.c.delivery_id == bindparam("delivery_id"),
    _dispatch.c.backend == bindparam("caller"),
    _dispatch.c.purpose != "report",
)

_NIGHT = _FOUND.where(
    _dispatch.c.delivery_id == bindparam("delivery_id"),
    _dispatch.c.backend == bindparam("caller"),
    _dispatch.c.purpose == "report",
)


def night(
    conn: Connection, repo: RepoName, report: IncomingReport, entry: Entry, upstream: RepoName, now: datetime
) -> Row[Any]:
    """The row under which this backend's reports on this commit by itself are kept; made by the first of them.

    The first report of any backend also has upstream asked whether the commit is its own.
    """
    thread = f"{report.event_type} {report.commit}"
    parameters = {"caller": str(repo), "delivery_id": thread}
    found = conn.execute(_NIGHT, parameters).first()
    if found is not None:
        return found
    change_id = _self_reported_change(conn, thread, report.commit or "", upstream, now)
    conn.execute(
        on_conflict_do_nothing(conn, _dispatch),
        {
            "change_id": change_id,
            "backend": str(repo),
            "level": int(entry.level),
            "device": entry.device,
            "purpose": "report",
            "event_type": report.event_type,
            "delivery_id": thread,
            "origin_delivery": report.delivery_id or thread,
            "state": "self_reported",
            "reason_code": "self_reported",
            "reason": "reported by the backend itself; nothing was sent",
            "terms": Terms.of(entry).to_json(),
            "created_at": now,
            "outcome": Outcome.QUEUED.value,
            "outcome_at": now,
            "legs_reported": 0,
            "late": False,
        },
    )
    return conn.execute(_NIGHT, parameters).one()


def _self_reported_change(conn: Connection, thread: str, head_sha: str, upstream: RepoName, now: datetime) -> int:
    added = conn.execute(
        on_conflict_do_nothing(conn, _change).returning(_change.c.id),
        {
            "kind": "self_reported",
            "thread": thread,
            "head_sha": head_sha,
            "title": "",
            "author": "",
            "author_association": "",
            "html_url": "",
            "draft": False,
            "labels": "[]",
            "state": "closed",  # Nobody waits for it, so it is kept as long as any finished change.
            "verified": False,
            "created_at": now,
            "updated_at": now,
            "received_at": now,
            "ended_at": now,
        },
    ).scalar()
    if added is not None:
        enqueue(conn, [confirm_commit(added, head_sha, upstream)], now)
        return int(added)
    same = select(_change.c.id).where(_change.c.thread == thread, _change.c.head_sha == head_sha)
    return int(conn.execute(same).scalar_one())


def confirm(conn: Connection, change_id: int, verified: bool, now: datetime) -> None:
    """Note whether upstream has the commit that a backend reported on by itself.

    The answer holds for every event under which the commit was reported, since one question is asked for all of them.
    """
    commit = select(_change.c.head_sha).where(_change.c.id == change_id).scalar_subquery()
    conn.execute(
        update(_change)
        .where(_change.c.head_sha == commit, _change.c.kind == "self_reported")
        .values(verified=verified, updated_at=now)
    )


def nightly_subject(conn: Connection, change_id: int) -> tuple[str, ...]:
    """The upstream branches on which a self-reported commit may be, beside the default branch.

    Those that upstream was seen to push to, newest first, and the one named as the event, which is where projects that
    keep a branch of nightly commits have them.
    """
    thread = conn.execute(select(_change.c.thread).where(_change.c.id == change_id)).scalar()
    pushed = conn.execute(
        select(_change.c.ref)
        .where(_change.c.kind == "push", _change.c.ref.like(f"{_BRANCH}%"))
        .group_by(_change.c.ref)
        .order_by(func.max(_change.c.id).desc())
        .limit(_MOST_BRANCHES)
    ).scalars()
    named = [] if thread is None else [str(thread).partition(" ")[0]]
    return tuple(dict.fromkeys([*named, *(str(ref).removeprefix(_BRANCH) for ref in pushed)]))
