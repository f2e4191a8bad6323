"""The list of changes: what is under test, what its gate shows, and how its backends stand, newest first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, exists, func, select

from allowlist.model import RepoName
from levels.outcomes import Outcome
from relay.store.reading.pages import MOST_TITLE, USUAL, Page, bounded, labels_of, name_of, paged, url_of
from relay.store.tables import Change, Check, Dispatch
from relay.store.told import OWES, standing
from relay.texts.words import GATE_NAME

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_check = Check.__table__  # type: ignore[attr-defined]
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]

KINDS = ("pull_request", "push", "merge_group", "self_reported")
STATES = ("open", "superseded", "closed", "landed")


@dataclass(frozen=True, slots=True)
class CheckLine:
    """One check run as GitHub took it last. ``conclusion`` is None until it is completed."""

    name: str
    backend: str | None
    status: str
    conclusion: str | None
    title: str
    written_at: datetime | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    """How many backends have this outcome."""

    outcome: Outcome
    count: int


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """One head of a pull request, a push, a merge group, or a commit that somebody reported on."""

    id: int
    kind: str
    number: int | None
    ref: str | None
    base_ref: str | None
    head_sha: str
    title: str
    author: str
    html_url: str | None
    draft: bool
    labels: tuple[str, ...]
    state: str
    verified: bool
    received_at: datetime
    updated_at: datetime
    gate: CheckLine | None
    outcomes: tuple[OutcomeCount, ...]


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Which changes are wanted; None lets everything through."""

    kind: str | None = None
    state: str | None = None
    number: int | None = None
    backend: RepoName | None = None


def changes(
    conn: Connection, wanted: ChangeFilter | None = None, *, before: int | None = None, limit: int = USUAL
) -> Page[ChangeLine]:
    """Changes whose id is smaller than ``before``, newest first. Three statements, whatever the page holds."""
    wanted = wanted or ChangeFilter()
    limit = bounded(limit)
    query = select(_change).order_by(_change.c.id.desc()).limit(limit + 1)
    if before is not None:
        query = query.where(_change.c.id < before)
    for column, value in ((_change.c.kind, wanted.kind), (_change.c.state, wanted.state)):
        if value is not None:
            query = query.where(column == value)
    if wanted.number is not None:
        query = query.where(_change.c.number == wanted.number)
    if wanted.backend is not None:
        query = query.where(
            exists().where(_dispatch.c.change_id == _change.c.id, _dispatch.c.backend == str(wanted.backend))
        )
    rows = conn.execute(query).all()
    return paged(change_lines(conn, rows), limit, [str(row.id) for row in rows])


def change_lines(conn: Connection, rows: Sequence[Any]) -> list[ChangeLine]:
    """The changes of these rows, with their gates and how their backends stand."""
    gates = _gates(conn, [row.head_sha for row in rows])
    outcomes = _outcomes(conn, {row.id: row.state for row in rows})
    return [
        ChangeLine(
            id=row.id,
            kind=row.kind,
            number=row.number,
            ref=row.ref and name_of(row.ref),
            base_ref=row.base_ref and name_of(row.base_ref),
            head_sha=row.head_sha,
            title=name_of(row.title, MOST_TITLE),
            author=name_of(row.author),
            html_url=url_of(row.html_url),
            draft=row.draft,
            labels=labels_of(row.labels),
            state=row.state,
            verified=row.verified,
            received_at=row.received_at,
            updated_at=row.updated_at,
            gate=gates.get(row.head_sha),
            outcomes=outcomes.get(row.id, ()),
        )
        for row in rows
    ]


def newest_change(conn: Connection, number: int) -> int | None:
    """The id of the pull request's current head: the open one, else the one that was replaced or closed last."""
    found = conn.execute(
        select(_change.c.id)
        .where(_change.c.number == number, _change.c.kind == "pull_request")
        .order_by((_change.c.state == "superseded"), _change.c.updated_at.desc(), _change.c.id.desc())
        .limit(1)
    ).scalar()
    return None if found is None else int(found)


def check_line(row: Any) -> CheckLine:
    """One row of ``check``."""
    return CheckLine(
        name=name_of(row.name, MOST_TITLE),
        backend=row.backend,
        status=row.status,
        conclusion=row.conclusion,
        title=name_of(row.title, MOST_TITLE),
        written_at=row.written_at,
        last_error=row.last_error and name_of(row.last_error, MOST_TITLE),
    )


def _gates(conn: Connection, heads: Sequence[str]) -> dict[str, CheckLine]:
    if not heads:
        return {}
    found = conn.execute(select(_check).where(_check.c.head_sha.in_(sorted(set(heads))), _check.c.name == GATE_NAME))
    return {row.head_sha: check_line(row) for row in found}


def _outcomes(conn: Connection, states: dict[int, str]) -> dict[int, tuple[OutcomeCount, ...]]:
    """For each change how its backends stand, by the newest dispatch of each that owes a result."""
    if not states:
        return {}
    newest = (
        select(func.max(_dispatch.c.id))
        .where(_dispatch.c.change_id.in_(sorted(states)), OWES)
        .group_by(_dispatch.c.change_id, _dispatch.c.backend)
    )
    found: defaultdict[int, dict[Outcome, int]] = defaultdict(dict)
    for row in conn.execute(
        select(_dispatch.c.change_id, _dispatch.c.state, _dispatch.c.outcome, func.count().label("many"))
        .where(_dispatch.c.id.in_(newest))
        .group_by(_dispatch.c.change_id, _dispatch.c.state, _dispatch.c.outcome)
    ):
        outcome = standing(states[row.change_id], row.state, row.outcome)
        counts = found[row.change_id]
        counts[outcome] = counts.get(outcome, 0) + row.many
    order = list(Outcome)
    return {
        change_id: tuple(OutcomeCount(outcome, counts[outcome]) for outcome in sorted(counts, key=order.index))
        for change_id, counts in found.items()
    }
