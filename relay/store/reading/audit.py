"""The audit as pages and the API show it: who did what to which subject, why, and what it was before and after."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select

from relay.store.reading.pages import MOST_MESSAGE, USUAL, Page, bounded, name_of, paged
from relay.store.tables import Audit

_audit = Audit.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One act. ``subject`` is what it was done to; ``before`` and ``after`` are empty where there was nothing."""

    id: int
    at: datetime
    who: str
    what: str
    subject: str
    why: str
    before: str
    after: str


def audit_lines(conn: Connection, *, before: int | None = None, limit: int = USUAL) -> Page[AuditLine]:
    """Acts, newest first."""
    limit = bounded(limit)
    query = select(_audit).order_by(_audit.c.id.desc()).limit(limit + 1)
    if before is not None:
        query = query.where(_audit.c.id < before)
    rows = conn.execute(query).all()
    lines = [
        AuditLine(
            id=row.id,
            at=row.at,
            who=name_of(row.who),
            what=name_of(row.what),
            subject=name_of(row.subject),
            why=name_of(row.why, MOST_MESSAGE),
            before=name_of(row.before, MOST_MESSAGE),
            after=name_of(row.after, MOST_MESSAGE),
        )
        for row in rows
    ]
    return paged(lines, limit, [str(row.id) for row in rows])
