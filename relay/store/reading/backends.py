"""Backends: who is listed, what GitHub knows of them, when they were last told and heard, and how their runs ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select, union_all

from allowlist.model import Allowlist, Entry, Level, RepoName
from levels.outcomes import Outcome
from relay.deciding.circuits import Circuit
from relay.store.circuits import circuits_of
from relay.store.reading.changes import OutcomeCount
from relay.store.reading.pages import MOST_MESSAGE, MOST_TITLE, USUAL, Page, bounded, name_of, paged
from relay.store.tables import Backend, Change, Dispatch
from relay.store.told import OWES, owes, standing

_backend = Backend.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_change = Change.__table__  # type: ignore[attr-defined]
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]

#: Over how many of its newest tests a backend's outcomes are counted, in the list and on its own page.
COUNTED_IN_LIST = 20
COUNTED = 100


@dataclass(frozen=True, slots=True)
class CircuitLine:
    """What is left alone just now, since when, and when it is tried again. ``scope``: backend, account or github."""

    state: str
    scope: str
    since: datetime
    next_probe: datetime | None
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class BackendLine:
    """A backend: its entry (None: not on the allowlist now), and what we know of its repository.

    ``private`` also stands while GitHub has not told us: nothing more is shown of it than of one that is.
    """

    repo: RepoName
    entry: Entry | None
    private: bool
    repository_id: int | None
    owner_id: int | None
    installation_id: int | None
    pinned_at: datetime | None
    paused_until: datetime | None
    pause_reason: str | None
    demoted_to: Level | None
    demoted_until: datetime | None
    demote_reason: str | None
    last_seen_at: datetime | None
    last_sent_at: datetime | None
    last_error: str | None
    last_error_at: datetime | None
    circuit: CircuitLine | None
    outcomes: tuple[OutcomeCount, ...]


@dataclass(frozen=True, slots=True)
class RecentDispatch:
    """One time the backend was told of a change, or was to be."""

    id: int
    change_id: int
    change_kind: str
    number: int | None
    ref: str | None
    head_sha: str
    title: str
    level: int
    purpose: str
    state: str
    reason_code: str
    reason: str
    outcome: Outcome
    created_at: datetime
    sent_at: datetime | None
    started_at: datetime | None
    outcome_at: datetime
    legs_reported: int
    legs_expected: int | None
    late: bool

    @property
    def owes(self) -> bool:
        """Whether a result of it is awaited, or was."""
        return owes(purpose=self.purpose, level=self.level, state=self.state, legs_reported=self.legs_reported)


@dataclass(frozen=True, slots=True)
class BackendPage:
    """One backend and what it was told of, newest first."""

    backend: BackendLine
    dispatches: Page[RecentDispatch]


def backends(
    conn: Connection, listed: Allowlist, *, after: RepoName | None = None, limit: int = USUAL
) -> Page[BackendLine]:
    """All backends by name: those on the allowlist and those that we know from before, from ``after`` on."""
    limit = bounded(limit)
    query = select(_backend).order_by(_backend.c.repo).limit(limit + 1)
    if after is not None:
        query = query.where(_backend.c.repo > str(after))
    names = {str(entry.repo) for entry in listed.entries}
    names |= set(conn.execute(query.with_only_columns(_backend.c.repo)).scalars())
    page = sorted(name for name in names if after is None or name > str(after))[: limit + 1]
    rows = {row.repo: row for row in conn.execute(select(_backend).where(_backend.c.repo.in_(page)))}
    counts = _outcomes(conn, page[:limit], COUNTED_IN_LIST)
    shut = circuits_of(conn, page)
    lines = [_line(RepoName.parse(name), rows.get(name), listed, shut.get(name), counts.get(name, ())) for name in page]
    return paged(lines, limit, page)


def backend_page(
    conn: Connection, repo: RepoName, listed: Allowlist, *, before: int | None = None, limit: int = USUAL
) -> BackendPage | None:
    """One backend, or None where it is neither listed nor known. ``before`` pages through its dispatches."""
    limit = bounded(limit)
    row = conn.execute(select(_backend).where(_backend.c.repo == str(repo))).first()
    query = (
        select(
            _dispatch,
            _change.c.kind,
            _change.c.number,
            _change.c.ref,
            _change.c.head_sha,
            _change.c.title,
            _change.c.state.label("change_state"),
        )
        .join(_change, _change.c.id == _dispatch.c.change_id)
        .where(_dispatch.c.backend == str(repo))
        .order_by(_dispatch.c.id.desc())
        .limit(limit + 1)
    )
    if before is not None:
        query = query.where(_dispatch.c.id < before)
    told = conn.execute(query).all()
    if row is None and listed.get(repo) is None and not told:
        return None
    counts = _outcomes(conn, [str(repo)], COUNTED)
    return BackendPage(
        _line(repo, row, listed, circuits_of(conn, [str(repo)]).get(str(repo)), counts.get(str(repo), ())),
        paged([_recent(one) for one in told], limit, [str(one.id) for one in told]),
    )


def _circuit(shut: Circuit) -> CircuitLine:
    scope = "backend" if shut.backend is not None else shut.key.partition(" ")[0]
    return CircuitLine(
        shut.state.value, scope, shut.since, shut.held_until, shut.reason, name_of(shut.detail, MOST_MESSAGE)
    )


def _line(
    repo: RepoName, row: Any, listed: Allowlist, shut: Circuit | None, outcomes: tuple[OutcomeCount, ...]
) -> BackendLine:
    return BackendLine(
        repo=repo,
        entry=listed.get(repo),
        private=row is None or row.repository_id is None or bool(row.private),
        repository_id=None if row is None else row.repository_id,
        owner_id=None if row is None else row.owner_id,
        installation_id=None if row is None else row.installation_id,
        pinned_at=None if row is None else row.pinned_at,
        paused_until=None if row is None else row.paused_until,
        pause_reason=None if row is None or row.pause_reason is None else name_of(row.pause_reason, MOST_MESSAGE),
        demoted_to=None if row is None or row.demoted_to is None else Level(row.demoted_to),
        demoted_until=None if row is None else row.demoted_until,
        demote_reason=None if row is None or row.demote_reason is None else name_of(row.demote_reason, MOST_MESSAGE),
        last_seen_at=None if row is None else row.last_seen_at,
        last_sent_at=None if row is None else row.last_sent_at,
        last_error=None if row is None or row.last_error is None else name_of(row.last_error, MOST_MESSAGE),
        last_error_at=None if row is None else row.last_error_at,
        circuit=None if shut is None else _circuit(shut),
        outcomes=outcomes,
    )


def _recent(row: Any) -> RecentDispatch:
    return RecentDispatch(
        id=row.id,
        change_id=row.change_id,
        change_kind=row.kind,
        number=row.number,
        ref=row.ref and name_of(row.ref),
        head_sha=row.head_sha,
        title=name_of(row.title, MOST_TITLE),
        level=row.level,
        purpose=row.purpose,
        state=row.state,
        reason_code=row.reason_code,
        reason=name_of(row.reason, MOST_MESSAGE),
        outcome=standing(row.change_state, row.state, row.outcome),
        created_at=row.created_at,
        sent_at=row.sent_at,
        started_at=row.started_at,
        outcome_at=row.outcome_at,
        legs_reported=row.legs_reported,
        legs_expected=row.legs_expected,
        late=row.late,
    )


def _outcomes(conn: Connection, repos: Sequence[str], newest: int) -> dict[str, tuple[OutcomeCount, ...]]:
    """How the newest tests of each backend stand. One indexed look for each, in one statement."""
    if not repos:
        return {}
    recent = [
        select(
            select(_dispatch.c.backend, _dispatch.c.state, _dispatch.c.outcome, _change.c.state.label("change_state"))
            .join(_change, _change.c.id == _dispatch.c.change_id)
            .where(_dispatch.c.backend == repo, OWES)
            .order_by(_dispatch.c.id.desc())
            .limit(newest)
            .subquery()
        )
        for repo in repos
    ]
    found: defaultdict[str, dict[Outcome, int]] = defaultdict(dict)
    for row in conn.execute(union_all(*recent)):
        outcome = standing(row.change_state, row.state, row.outcome)
        counts = found[row.backend]
        counts[outcome] = counts.get(outcome, 0) + 1
    order = list(Outcome)
    return {
        repo: tuple(OutcomeCount(outcome, counts[outcome]) for outcome in sorted(counts, key=order.index))
        for repo, counts in found.items()
    }
