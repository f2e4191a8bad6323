"""What people asked for on one change, by comments and buttons, and what became of it, as its page shows it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, or_, select

from relay.store.reading.pages import name_of
from relay.store.tables_people import Command

_command = Command.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.

#: The newest ones. Anybody may write comments, so there may be any number.
MOST_ASKED = 20
_MOST_WORDS = 300


@dataclass(frozen=True, slots=True)
class AskedLine:
    """One command. ``sender``, ``backend`` and ``words`` are as people wrote them: hostile text.

    ``state`` is asked, done, refused or failed; ``outcome`` says why, or what was done; ``role`` is None until GitHub
    has told it.
    """

    at: datetime
    sender: str
    role: str | None
    source: str
    verb: str
    backend: str
    words: str
    state: str
    outcome: str


def asked_on(conn: Connection, head_sha: str, number: int | None) -> tuple[AskedLine, ...]:
    """What was asked on this pull request, and at the checks of this head, the newest first."""
    here = _command.c.head_sha == head_sha
    found = conn.execute(
        select(_command)
        .where(here if number is None else or_(_command.c.number == number, here))
        .order_by(_command.c.id.desc())
        .limit(MOST_ASKED)
    ).all()
    return tuple(_line(row) for row in found)


def _line(row: Any) -> AskedLine:
    return AskedLine(
        at=row.created_at,
        sender=name_of(row.sender),
        role=row.role,
        source=row.source,
        verb=row.verb,
        backend=name_of(row.backend or ""),
        words=name_of(row.words, _MOST_WORDS),
        state=row.state,
        outcome=name_of(row.outcome, _MOST_WORDS),
    )
