"""What our comments on pull requests should say, and what GitHub last took of each.

As with checks, a comment is a state and not a message: one row for each topic of a pull request, written in place.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select, update

from allowlist.model import RepoName
from relay.deciding.effects import reconcile_comment
from relay.store.outbox import enqueue, on_conflict_do_nothing
from relay.store.sooner import sooner
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
        effect = reconcile_comment(old.id, number, upstream)
        enqueue(conn, [effect], now)
        # A retry of the former text may be hours away, and this one would wait behind it.
        sooner(conn, [effect.lane], now)
    return int(old.id)


# --- What came of writing a comment ----------------------------------------------------------------------------------

#: Kept on a row whose comment somebody deleted, once another was written in its place. That happens once.
CREATED_ANEW = "it was deleted and has been written anew once"


@dataclass(frozen=True, slots=True)
class CommentRow:
    """One comment as its row has it."""

    id: int
    number: int
    topic: str
    body: str
    wanted: str
    applied: str | None
    github_id: int | None
    creating: bool
    created_at: datetime
    created_anew: bool


def load_comment(conn: Connection, comment_id: int) -> CommentRow | None:
    """The comment of this row, or None where it was forgotten."""
    row = conn.execute(select(_comment).where(_comment.c.id == comment_id)).first()
    if row is None:
        return None
    return CommentRow(
        id=row.id,
        number=row.number,
        topic=row.topic,
        body=row.body,
        wanted=row.wanted,
        applied=row.applied,
        github_id=row.github_id,
        creating=row.creating,
        created_at=row.created_at,
        created_anew=row.last_error == CREATED_ANEW,
    )


@dataclass(frozen=True, slots=True)
class Said:
    """What one topic's comment should say, and the head for which people were last named in it."""

    head_sha: str | None
    body: str


def said_about(conn: Connection, number: int, topic: str) -> Said | None:
    """What was said about this topic, or None where nothing was."""
    row = conn.execute(
        select(_comment.c.head_sha, _comment.c.body).where(_comment.c.number == number, _comment.c.topic == topic)
    ).first()
    return None if row is None else Said(row.head_sha, row.body)


def note_creating(conn: Connection, comment_id: int, *, creating: bool) -> None:
    """A create is about to be sent, or it is certain that none had an effect."""
    conn.execute(update(_comment).where(_comment.c.id == comment_id).values(creating=creating))


def note_error(conn: Connection, comment_id: int, error: str) -> None:
    """A write failed."""
    conn.execute(
        update(_comment)
        .where(_comment.c.id == comment_id, _comment.c.last_error.is_distinct_from(CREATED_ANEW))
        .values(last_error=error)
    )


def note_written(
    conn: Connection, row: CommentRow, *, github_id: int | None, anew: bool, upstream: RepoName, now: datetime
) -> None:
    """GitHub took this text, or it is wanted no more (``github_id`` None). A newer text is owed another look."""
    wanted = conn.execute(
        update(_comment)
        .where(_comment.c.id == row.id)
        .values(
            applied=row.wanted,
            github_id=github_id,
            creating=False,
            written_at=now,
            last_error=CREATED_ANEW if anew else None,
        )
        .returning(_comment.c.wanted)
    ).scalar()
    if wanted is not None and wanted != row.wanted:
        enqueue(conn, [reconcile_comment(row.id, row.number, upstream)], now)
