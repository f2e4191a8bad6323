"""Merge groups as the chain they are: which pull requests are in one, and which groups hold a pull request.

Each group is built on the branch or on the group before it, so it contains what that one contains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, select

from relay.deciding.plan_queue import Link, groups_above, numbers_in
from relay.store.tables import Change

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.


@dataclass(frozen=True, slots=True)
class Member:
    """A pull request in a group, by its newest head."""

    change_id: int
    number: int
    head_sha: str


_UNDER = select(_change.c.head_sha, _change.c.base_sha, _change.c.number).where(
    _change.c.head_sha == bindparam("b_head"), _change.c.kind == "merge_group", _change.c.state == "open"
)
_PULLS = (
    select(_change.c.id, _change.c.number, _change.c.head_sha)
    .where(
        _change.c.number.in_(bindparam("b_numbers", expanding=True)),
        _change.c.kind == "pull_request",
        _change.c.state != "superseded",
    )
    .order_by(_change.c.updated_at, _change.c.id)
)
_DIRECT = select(_change.c.head_sha, _change.c.base_sha, _change.c.number, _change.c.updated_at).where(
    _change.c.number.in_(bindparam("b_numbers", expanding=True)),
    _change.c.kind == "merge_group",
    _change.c.state == "open",
)
# A group is never older than the one that it was built on, so the index on this time leads to the few that matter.
_SINCE = select(_change.c.head_sha, _change.c.base_sha, _change.c.number).where(
    _change.c.updated_at >= bindparam("b_since", type_=_change.c.updated_at.type),
    _change.c.kind == "merge_group",
    _change.c.state == "open",
)


def members_of(conn: Connection, head_sha: str) -> tuple[Member, ...]:
    """The pull requests in the open group of this head, by number; those that we never heard of are missing."""
    groups: dict[str, Link] = {}
    at: str | None = head_sha
    while at is not None and at not in groups:
        row = conn.execute(_UNDER, {"b_head": at}).first()
        if row is None:
            break
        groups[at] = Link(row.head_sha, row.base_sha, row.number)
        at = row.base_sha
    numbers = numbers_in(head_sha, groups)
    if not numbers:
        return ()
    newest = {
        row.number: Member(row.id, row.number, row.head_sha)
        for row in conn.execute(_PULLS, {"b_numbers": list(numbers)})
    }
    return tuple(newest[number] for number in sorted(newest))


def groups_holding(conn: Connection, numbers: Sequence[int]) -> tuple[str, ...]:
    """The heads of the open groups that contain one of these pull requests."""
    direct = conn.execute(_DIRECT, {"b_numbers": list(numbers)}).all()
    if not direct:
        return ()
    since = min(row.updated_at for row in direct)
    return groups_above([row.head_sha for row in direct], _links(conn, since))


def groups_on(conn: Connection, head_shas: Sequence[str], since: datetime) -> tuple[str, ...]:
    """The heads of the open groups that were built on these groups, which are no older than ``since``."""
    above = groups_above(head_shas, _links(conn, since))
    return tuple(head for head in above if head not in head_shas)


def _links(conn: Connection, since: datetime) -> Mapping[str, Link]:
    rows = conn.execute(_SINCE, {"b_since": since})
    return {row.head_sha: Link(row.head_sha, row.base_sha, row.number) for row in rows}
