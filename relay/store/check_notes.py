"""What came of writing a check: what GitHub took, that there was nothing to write, or that a write failed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Boolean, Connection, bindparam, func, select, update

from relay.store.checks import CheckTerms, Due, look
from relay.store.outbox import enqueue
from relay.store.tables import Check

_check = Check.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.


@dataclass(frozen=True, slots=True)
class Applied:
    """What GitHub took: the state's hash, the check run that shows it, and the words."""

    digest: str
    github_id: int
    status: str
    conclusion: str | None
    title: str
    summary: str
    text: str
    details_url: str


_APPLIED = ("github_id", "status", "conclusion", "title", "summary", "text", "details_url")
_APPLY = (
    update(_check)
    .where(_check.c.id == bindparam("b_id"))
    .values(
        applied=bindparam("b_applied"),
        creating=bindparam("b_creating", type_=Boolean()),
        written_at=bindparam("b_now", type_=_check.c.written_at.type),
        writes=_check.c.writes + 1,
        last_error=None,
        **{name: bindparam(f"b_{name}", type_=_check.c[name].type) for name in _APPLIED},
    )
)
_CREATING = (
    update(_check)
    .where(_check.c.id == bindparam("b_id"))
    .values(
        creating=bindparam("b_creating", type_=Boolean()),
        create_sent_at=func.coalesce(
            bindparam("b_sent_at", type_=_check.c.create_sent_at.type), _check.c.create_sent_at
        ),
    )
)
_ADOPTED = (
    update(_check)
    .where(_check.c.id == bindparam("b_id"))
    .values(
        github_id=bindparam("b_github_id", type_=_check.c.github_id.type),
        status=bindparam("b_status"),
        conclusion=bindparam("b_conclusion", type_=_check.c.conclusion.type),
        applied=None,
    )
)
_ANSWER = (
    update(_check)
    .where(_check.c.id == bindparam("b_id"), _check.c.wanted.is_not_distinct_from(bindparam("b_mark")))
    .values(wanted=bindparam("b_digest"))
    .returning(_check.c.id)
)


def note_creating(conn: Connection, check_id: int, *, creating: bool, sent_at: datetime | None = None) -> None:
    """A create is about to be sent at this time, or it is certain that none is under way any more.

    While this stands each look asks GitHub which check runs there are before it does anything else.
    """
    conn.execute(_CREATING, {"b_id": check_id, "b_creating": creating, "b_sent_at": sent_at})


def note_adopted(conn: Connection, check_id: int, github_id: int, status: str, conclusion: str | None) -> None:
    """GitHub has a newer check run than we knew of, and what it shows is yet to be written."""
    said = {"b_github_id": github_id, "b_status": status, "b_conclusion": conclusion}
    conn.execute(_ADOPTED, {"b_id": check_id, **said})


def note_applied(
    conn: Connection,
    check_id: int,
    mark: str | None,
    applied: Applied,
    terms: CheckTerms,
    now: datetime,
    *,
    doubtful: bool = False,
) -> None:
    """GitHub took this state. If the check was touched since ``mark`` was read, another look is owed.

    ``doubtful``: a create whose answer was lost may still come, so that it is asked for once more (``heal``).
    """
    words = {f"b_{name}": getattr(applied, name) for name in _APPLIED}
    said = {"b_applied": applied.digest, "b_now": now, "b_creating": doubtful}
    conn.execute(_APPLY, {"b_id": check_id, **said, **words})
    _answer(conn, check_id, mark, applied.digest, terms, now)


def note_unchanged(conn: Connection, check_id: int, mark: str | None, terms: CheckTerms, now: datetime) -> None:
    """GitHub shows what it should already, or nothing is to be shown."""
    applied = conn.execute(select(_check.c.applied).where(_check.c.id == check_id)).scalar()
    _answer(conn, check_id, mark, applied, terms, now)


def note_error(conn: Connection, check_id: int, error: str) -> None:
    """A write failed; the relay's pages show why."""
    conn.execute(update(_check).where(_check.c.id == check_id).values(last_error=error))


def _answer(
    conn: Connection, check_id: int, mark: str | None, digest: str | None, terms: CheckTerms, now: datetime
) -> None:
    """The look that read ``mark`` is over. A touch that came in between has changed the mark and is answered anew."""
    answered = conn.execute(_ANSWER, {"b_id": check_id, "b_mark": mark, "b_digest": digest}).first()
    if answered is not None:
        return
    row = conn.execute(
        select(_check.c.id, _check.c.name, _check.c.head_sha, _check.c.written_at).where(_check.c.id == check_id)
    ).first()
    if row is not None:
        enqueue(conn, [look(Due(row.id, row.name, row.written_at), row.head_sha, terms, now)], now)
