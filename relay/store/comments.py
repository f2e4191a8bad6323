"""What our comments on pull requests should say, and what GitHub last took of each.

As with checks, a comment is a state and not a message: one row for each topic of a pull request, written in place.
"""

from __future__ import annotations

import hashlib
from datetime import datetime

from sqlalchemy import Connection, select, update

from allowlist.model import RepoName
from relay.effects import reconcile_comment
from relay.store.outbox import enqueue, on_conflict_do_nothing
from relay.store.tables import Comment

_comment = Comment.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.


def digest_of(body: str) -> str:
    """What tells two texts of a comment apart."""
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()


def want_comment(
    conn: Connection,
    number: int,
    topic: str,
    body: str,
    upstream: RepoName,
    now: datetime,
    head_sha: str | None = None,
) -> int:
    """The comment about ``topic`` on pull request ``number`` should say ``body``; returns its row.

    ``head_sha`` is kept as the head for which the comment was written last. A text that stands already owes nothing.
    """
    wanted = digest_of(body)
    row = {
        "number": number,
        "topic": topic,
        "body": body,
        "wanted": wanted,
        "creating": False,
        "head_sha": head_sha,
        "created_at": now,
    }
    new = conn.execute(on_conflict_do_nothing(conn, _comment).returning(_comment.c.id), row).first()
    if new is not None:
        enqueue(conn, [reconcile_comment(new.id, number, upstream)], now)
        return int(new.id)
    old = conn.execute(
        select(_comment.c.id, _comment.c.wanted)
        .where(_comment.c.number == number, _comment.c.topic == topic)
        .with_for_update()
    ).one()
    if old.wanted != wanted:
        conn.execute(
            update(_comment).where(_comment.c.id == old.id).values(body=body, wanted=wanted, head_sha=head_sha)
        )
        enqueue(conn, [reconcile_comment(old.id, number, upstream)], now)
    return int(old.id)
