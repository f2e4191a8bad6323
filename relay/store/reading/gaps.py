"""Gaps as pages and the API show them: what did not reach us, why, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from relay.store.reading.pages import MOST_MESSAGE, USUAL, Page, bounded, name_of, paged
from relay.store.tables_gaps import Gap

_gap: Any = Gap.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.


@dataclass(frozen=True, slots=True)
class GapLine:
    """One gap. ``head_sha`` and ``number`` are None for a delivery; ``delivery_id`` is the one that healed it.

    ``backends`` are those that may be told, as one line; ``how`` is empty while it is open.
    """

    id: int
    cause: str
    subject: str
    head_sha: str | None
    number: int | None
    event: str
    backends: str
    updated_at: datetime
    found_at: datetime
    asked_at: datetime | None
    ended_at: datetime | None
    healed: bool
    how: str
    delivery_id: str | None


def gap_lines(
    conn: Connection, *, before: int | None = None, cause: str | None = None, limit: int = USUAL
) -> Page[GapLine]:
    """Gaps, the last found first; of one cause, where one is given."""
    limit = bounded(limit)
    query = select(_gap).order_by(_gap.c.id.desc()).limit(limit + 1)
    if before is not None:
        query = query.where(_gap.c.id < before)
    if cause is not None:
        query = query.where(_gap.c.cause == cause)
    rows = conn.execute(query).all()
    lines = [
        GapLine(
            id=row.id,
            cause=row.cause,
            subject=name_of(row.subject),
            head_sha=row.head_sha or None,
            number=row.number,
            event=name_of(row.event),
            backends=name_of(row.detail, MOST_MESSAGE),
            updated_at=row.updated_at,
            found_at=row.found_at,
            asked_at=row.asked_at,
            ended_at=row.ended_at,
            healed=row.healed,
            how=row.how,
            delivery_id=row.delivery_id,
        )
        for row in rows
    ]
    return paged(lines, limit, [str(row.id) for row in rows])
