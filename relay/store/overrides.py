"""Where a person has taken responsibility for one backend's answer on one head.

An override holds for the head it was given on, so a new push ends it, and for the merge groups that contain its pull
request at that head.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, bindparam, select, update

from allowlist.model import RepoName
from relay.deciding.facts import OverrideFacts
from relay.store.checks import CheckTerms, touch_head
from relay.store.outbox import on_conflict_do_nothing
from relay.store.tables import Change, Override

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_override = Override.__table__  # type: ignore[attr-defined]

#: A merge queue builds each group on the one before it; no queue is as long as this.
_LONGEST_QUEUE = 100


def set_override(
    conn: Connection,
    head_sha: str,
    backend: RepoName,
    number: int | None,
    who: str,
    why: str,
    now: datetime,
    terms: CheckTerms,
) -> None:
    """Let ``who`` answer for this backend on this head, and have every check that says so looked at again.

    A second override of the same head and backend replaces the person and the reason.
    """
    values = {"head_sha": head_sha, "backend": str(backend), "number": number, "who": who, "why": why, "at": now}
    new = conn.execute(on_conflict_do_nothing(conn, _override).returning(_override.c.id), values).first()
    if new is None:
        conn.execute(
            update(_override)
            .where(_override.c.head_sha == head_sha, _override.c.backend == str(backend))
            .values(number=number, who=who, why=why, at=now)
        )
    for touched in (head_sha, *_groups_holding(conn, number, head_sha)):
        touch_head(conn, touched, terms, now, backend=backend)


_OF_HEADS = (
    select(_override)
    .where(_override.c.head_sha.in_(bindparam("heads", expanding=True)))
    .order_by(_override.c.backend, _override.c.at)
)
_GROUP = select(_change.c.number, _change.c.base_sha).where(
    _change.c.head_sha == bindparam("head_sha"), _change.c.kind == "merge_group"
)
_HEADS_OF_PULLS = select(_change.c.head_sha).where(
    _change.c.kind == "pull_request",
    _change.c.number.in_(bindparam("numbers", expanding=True)),
    _change.c.state == "open",
)


def overrides_of(conn: Connection, head_sha: str, *, group: bool = True) -> tuple[OverrideFacts, ...]:
    """The overrides that hold for a head: its own, and for a merge group those of the pull requests it contains.

    ``group`` False spares the look for one who knows that the head is no merge group's.
    """
    heads = [head_sha]
    numbers = _numbers_in(conn, head_sha) if group else ()
    if numbers:
        heads += conn.execute(_HEADS_OF_PULLS, {"numbers": list(numbers)}).scalars()
    return tuple(
        OverrideFacts(RepoName.parse(row.backend), row.number, row.who, row.why, row.at)
        for row in conn.execute(_OF_HEADS, {"heads": heads})
    )


def _numbers_in(conn: Connection, head_sha: str) -> tuple[int, ...]:
    """The pull requests in the merge group of this head.

    A group's ref names only the last of them. The ones before it are in the group that this one was built on.
    https://docs.github.com/repositories/configuring-branches-and-merges-in-your-repository/configuring-pull-request-merges/managing-a-merge-queue
    """
    found: list[int] = []
    at: str | None = head_sha
    for _ in range(_LONGEST_QUEUE):
        row = None if at is None else conn.execute(_GROUP, {"head_sha": at}).first()
        if row is None:
            break
        if row.number is not None:
            found.append(row.number)
        at = row.base_sha
    return tuple(found)


def _groups_holding(conn: Connection, number: int | None, head_sha: str) -> tuple[str, ...]:
    """The heads of the open merge groups that contain this pull request."""
    if number is None:
        return ()
    groups = conn.execute(
        select(_change.c.head_sha).where(_change.c.kind == "merge_group", _change.c.state == "open")
    ).scalars()
    return tuple(head for head in groups if head != head_sha and number in _numbers_in(conn, head))
