"""What people ask of us by comments and buttons, kept until it is decided and as long as its pull request is.

A command is one row for each webhook, so a redelivery asks nothing new. It is decided by an effect, because whether
its sender may ask for it is GitHub's to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from allowlist.model import RepoName
from relay.effects import run_command
from relay.store.outbox import enqueue, on_conflict_do_nothing
from relay.store.tables import Command

_command = Command.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.

#: GitHub's logins are far shorter; a sender beyond this is cut, and then is nobody.
_LONGEST_SENDER = 100


@dataclass(frozen=True, slots=True)
class Asked:
    """What one webhook asks.

    ``source`` is comment, check_run, check_suite or action. A comment names its pull request (``number``) and may name
    a backend; an event about a check names its head and, but for a whole suite, the check's row (``check_id``).
    ``words`` are an override's reason, or what could not be understood. All text is as people wrote it: hostile.
    """

    delivery_id: str
    source: str
    sender: str
    verb: str
    number: int | None = None
    head_sha: str | None = None
    comment_id: int | None = None
    backend: str | None = None
    check_id: int | None = None
    words: str = ""


def ask(conn: Connection, asked: Asked, now: datetime, *, upstream: RepoName) -> bool:
    """Keep a command and owe its decision; False where this delivery has asked already."""
    row = {
        "delivery_id": asked.delivery_id,
        "source": asked.source,
        "number": asked.number,
        "head_sha": asked.head_sha,
        "comment_id": asked.comment_id,
        "sender": asked.sender[:_LONGEST_SENDER],
        "verb": asked.verb,
        "backend": asked.backend,
        "check_id": asked.check_id,
        "words": asked.words,
        "state": "asked",
        "outcome": "",
        "created_at": now,
    }
    kept = conn.execute(on_conflict_do_nothing(conn, _command).returning(_command.c.id), row).first()
    if kept is None:
        return False
    enqueue(conn, [run_command(kept.id, asked.number, upstream)], now)
    return True
