"""What people ask of us by comments and buttons, kept until it is decided and as long as its pull request is.

A command is one row for each webhook, so a redelivery asks nothing new. It is decided by an effect, because whether
its sender may ask for it is GitHub's to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, func, insert, select, update

from allowlist.model import Allowlist, RepoName
from relay.deciding.effects import run_command
from relay.deciding.facts import CheckFacts
from relay.deciding.reading import GHOST
from relay.store.check_facts import load_check
from relay.store.checks import CheckTerms
from relay.store.outbox import enqueue, on_conflict_do_nothing
from relay.store.tables import Audit, Change, Check, Command

_audit = Audit.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_change = Change.__table__  # type: ignore[attr-defined]
_check = Check.__table__  # type: ignore[attr-defined]
_command = Command.__table__  # type: ignore[attr-defined]

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


# --- Deciding --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommandRow:
    """A command as its row has it."""

    id: int
    delivery_id: str
    source: str
    sender: str
    verb: str
    number: int | None
    head_sha: str | None
    comment_id: int | None
    backend: str | None
    check_id: int | None
    words: str
    state: str
    created_at: datetime


_LOAD = select(_command).where(_command.c.id == bindparam("id"))


def load_command(conn: Connection, command_id: int) -> CommandRow | None:
    """The command of this row, or None where it was forgotten."""
    row = conn.execute(_LOAD, {"id": command_id}).first()
    if row is None:
        return None
    return CommandRow(
        id=row.id,
        delivery_id=row.delivery_id,
        source=row.source,
        sender=row.sender,
        verb=row.verb,
        number=row.number,
        head_sha=row.head_sha,
        comment_id=row.comment_id,
        backend=row.backend,
        check_id=row.check_id,
        words=row.words,
        state=row.state,
        created_at=row.created_at,
    )


def gate_of(conn: Connection, head_sha: str, terms: CheckTerms, listed: Allowlist | None) -> CheckFacts | None:
    """Everything about this head as its gate sees it, or None where it has no gate."""
    check_id = conn.execute(
        select(_check.c.id).where(_check.c.head_sha == head_sha, _check.c.backend.is_(None))
    ).scalar()
    return None if check_id is None else load_check(conn, check_id, terms, listed=listed)


def authors_of(conn: Connection, head_sha: str, number: int | None) -> frozenset[str]:
    """Who wrote the pull request; where none is named, those of the pull requests that have this head.

    An account that is gone is nobody, or all who are gone would be one author.
    """
    authors = select(_change.c.author).where(_change.c.kind == "pull_request")
    if number is not None:
        authors = authors.where(_change.c.number == number)
    else:
        authors = authors.where(_change.c.head_sha == head_sha)
    return frozenset(
        author.lower() for author in conn.execute(authors.distinct()).scalars() if author and author != GHOST
    )


def done_for(conn: Connection, sender: str, head_sha: str, verbs: Sequence[str]) -> int:
    """How many such commands of this person were carried out on this head."""
    counted = select(func.count()).where(
        _command.c.head_sha == head_sha,
        func.lower(_command.c.sender) == sender.lower(),
        _command.c.verb.in_(verbs),
        _command.c.state == "done",
    )
    return int(conn.execute(counted).scalar() or 0)


def last_role(conn: Connection, sender: str) -> str | None:
    """The role that GitHub told of this person last, at whatever they asked for; None where it never told one."""
    role: str | None = conn.execute(
        select(_command.c.role)
        .where(func.lower(_command.c.sender) == sender.lower(), _command.c.role.is_not(None))
        .order_by(_command.c.id.desc())
        .limit(1)
    ).scalar()
    return role


def finish(conn: Connection, command_id: int, *, state: str, role: str | None, outcome: str, now: datetime) -> bool:
    """Note how a command ended; False where that was noted before."""
    ended = conn.execute(
        update(_command)
        .where(_command.c.id == command_id, _command.c.state == "asked")
        .values(state=state, role=role, outcome=outcome, decided_at=now)
        .returning(_command.c.id)
    ).first()
    return ended is not None


def audit(conn: Connection, *, who: str, what: str, subject: str, why: str, after: str, now: datetime) -> None:
    """Put on record what a person did."""
    row = {"at": now, "who": who, "what": what, "subject": subject, "why": why, "before": "", "after": after}
    conn.execute(insert(_audit), row)
