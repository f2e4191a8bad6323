"""Figures for ever: what dispatches, reports and jobs amount to by day, whether their rows are still there or not.

``count_forgotten`` runs in the transaction that forgets rows, so each row is counted exactly once: among the live ones
until then, and in the history from then on. ``by_day`` and ``by_combination`` give both together. All figures are whole
numbers, so that the sums are the same in whatever portions rows are forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, TypeVar

from sqlalchemy import BigInteger, ColumnElement, Connection, Select, and_, case, cast, func, select
from sqlalchemy.dialects import postgresql, sqlite

from allowlist.model import RepoName
from relay.store.tables import Change, CombinationHistory, Dispatch, DispatchHistory, Job, Report

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_job = Job.__table__  # type: ignore[attr-defined]
_report = Report.__table__  # type: ignore[attr-defined]
_days = DispatchHistory.__table__  # type: ignore[attr-defined]
_combinations = CombinationHistory.__table__  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True, order=True)
class DayKey:
    """What figures are kept by: the day a dispatch was planned (UTC, 2026-11-30), whom it told, and how it ended."""

    day: str
    backend: str
    level: int
    kind: str
    purpose: str
    outcome: str


@dataclass(frozen=True, slots=True)
class DayFigures:
    """Counts, and times in whole milliseconds: how many are known, their sum, and the longest."""

    dispatches: int = 0
    sent: int = 0
    late: int = 0
    reports: int = 0
    jobs: int = 0
    queue_count: int = 0
    queue_ms: int = 0
    queue_ms_most: int = 0
    execution_count: int = 0
    execution_ms: int = 0
    execution_ms_most: int = 0

    def __add__(self, other: DayFigures) -> DayFigures:
        """Both together."""
        return _added(self, other)


@dataclass(frozen=True, slots=True, order=True)
class CombinationKey:
    """A day, a backend, and the versions of backend and suite (empty: not stated) with a conclusion (empty: none)."""

    day: str
    backend: str
    backend_version: str
    suite_version: str
    conclusion: str


@dataclass(frozen=True, slots=True)
class CombinationFigures:
    """Jobs, and the tests that they counted."""

    jobs: int = 0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    total: int = 0

    def __add__(self, other: CombinationFigures) -> CombinationFigures:
        """Both together."""
        return _added(self, other)


_F = TypeVar("_F", DayFigures, CombinationFigures)
_Key = TypeVar("_Key", DayKey, CombinationKey)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which days, both inclusive, and whose figures; None: from the first, up to the last, everybody's."""

    since: date | None = None
    until: date | None = None
    backend: RepoName | None = None


def by_day(conn: Connection, wanted: Wanted) -> dict[DayKey, DayFigures]:
    """The figures of forgotten and of live rows together. Reads all live dispatches of those days."""
    found: dict[DayKey, DayFigures] = {}
    for row in conn.execute(select(_days).where(*_of_history(_days, wanted))):
        _merge(found, {_key(DayKey, row): _figures(DayFigures, row)})
    live = _live(wanted)
    for counted in (_count_dispatches(conn, live), _count_jobs(conn, live), _count_reports(conn, live)):
        _merge(found, counted)
    return dict(sorted(found.items()))


def by_combination(conn: Connection, wanted: Wanted) -> dict[CombinationKey, CombinationFigures]:
    """The figures of each combination of versions, of forgotten and of live rows together."""
    found: dict[CombinationKey, CombinationFigures] = {}
    for row in conn.execute(select(_combinations).where(*_of_history(_combinations, wanted))):
        _merge(found, {_key(CombinationKey, row): _figures(CombinationFigures, row)})
    _merge(found, _count_combinations(conn, _live(wanted)))
    return dict(sorted(found.items()))


def count_forgotten(conn: Connection, *, report_ids: Sequence[int], dispatch_ids: Sequence[int]) -> None:
    """Put down what these rows amount to, before this transaction forgets them.

    A dispatch goes with its jobs, its reports may have gone before it.
    """
    days: dict[DayKey, DayFigures] = {}
    combinations: dict[CombinationKey, CombinationFigures] = {}
    if report_ids:
        _merge(days, _count_reports(conn, [_report.c.id.in_(report_ids)]))
    if dispatch_ids:
        these = [_dispatch.c.id.in_(dispatch_ids)]
        _merge(days, _count_dispatches(conn, these))
        _merge(days, _count_jobs(conn, these))
        _merge(combinations, _count_combinations(conn, these))
    _keep(conn, _days, days, most=("queue_ms_most", "execution_ms_most"))
    _keep(conn, _combinations, combinations)


# --- Counting --------------------------------------------------------------------------------------------------------


def _count_dispatches(conn: Connection, where: Sequence[ColumnElement[bool]]) -> dict[DayKey, DayFigures]:
    counted = _by_day(
        conn,
        _dispatch.join(_change, _change.c.id == _dispatch.c.change_id),
        func.count().label("dispatches"),
        func.count(_dispatch.c.sent_at).label("sent"),
        func.sum(case((_dispatch.c.late, 1), else_=0)).label("late"),
    )
    return {_key(DayKey, row, "of_"): _figures(DayFigures, row) for row in conn.execute(counted.where(*where))}


def _count_jobs(conn: Connection, where: Sequence[ColumnElement[bool]]) -> dict[DayKey, DayFigures]:
    queue, execution = _ms(_job.c.queue_seconds), _ms(_job.c.execution_seconds)
    counted = _by_day(
        conn,
        _job.join(_dispatch, _dispatch.c.id == _job.c.dispatch_id).join(_change, _change.c.id == _dispatch.c.change_id),
        func.count().label("jobs"),
        func.count(queue).label("queue_count"),
        func.sum(queue).label("queue_ms"),
        func.max(queue).label("queue_ms_most"),
        func.count(execution).label("execution_count"),
        func.sum(execution).label("execution_ms"),
        func.max(execution).label("execution_ms_most"),
    )
    return {_key(DayKey, row, "of_"): _figures(DayFigures, row) for row in conn.execute(counted.where(*where))}


def _count_reports(conn: Connection, where: Sequence[ColumnElement[bool]]) -> dict[DayKey, DayFigures]:
    counted = _by_day(
        conn,
        _report.join(_dispatch, _dispatch.c.id == _report.c.dispatch_id).join(
            _change, _change.c.id == _dispatch.c.change_id
        ),
        func.count().label("reports"),
    )
    return {_key(DayKey, row, "of_"): _figures(DayFigures, row) for row in conn.execute(counted.where(*where))}


def _count_combinations(
    conn: Connection, where: Sequence[ColumnElement[bool]]
) -> dict[CombinationKey, CombinationFigures]:
    keys = (
        _day(conn).label("of_day"),
        _dispatch.c.backend.label("of_backend"),
        func.coalesce(_job.c.backend_version, "").label("of_backend_version"),
        func.coalesce(_job.c.suite_version, "").label("of_suite_version"),
        func.coalesce(_job.c.conclusion, "").label("of_conclusion"),
    )
    counted = (
        select(
            *keys,
            func.count().label("jobs"),
            *(func.sum(_job.c[name]).label(name) for name in ("passed", "failed", "skipped", "total")),
        )
        .select_from(_job.join(_dispatch, _dispatch.c.id == _job.c.dispatch_id))
        .where(*where)
        .group_by(*_places(keys))
    )
    return {_key(CombinationKey, row, "of_"): _figures(CombinationFigures, row) for row in conn.execute(counted)}


def _by_day(conn: Connection, of: Any, *counts: ColumnElement[Any]) -> Select[Any]:
    keys = (
        _day(conn).label("of_day"),
        _dispatch.c.backend.label("of_backend"),
        _dispatch.c.level.label("of_level"),
        _change.c.kind.label("of_kind"),
        _dispatch.c.purpose.label("of_purpose"),
        _dispatch.c.outcome.label("of_outcome"),
    )
    return select(*keys, *counts).select_from(of).group_by(*_places(keys))


def _places(keys: Sequence[Any]) -> list[Any]:
    """The keys by their labels, which no column has.

    An expression with values in it, written twice, is two different ones to PostgreSQL.
    """
    return [key.name for key in keys]


def _day(conn: Connection) -> Any:
    if conn.dialect.name == "postgresql":
        return func.to_char(func.timezone("UTC", _dispatch.c.created_at), "YYYY-MM-DD")
    return func.substr(_dispatch.c.created_at, 1, 10)  # SQLite keeps a moment as text, in UTC.


def _ms(seconds: Any) -> Any:
    return cast(func.round(seconds * 1000), BigInteger)


# --- Keeping and reading back ----------------------------------------------------------------------------------------


def _keep(conn: Connection, table: Any, counted: Mapping[Any, Any], most: Sequence[str] = ()) -> None:
    """Add to what is kept. In the order of the keys, so that two replicas cannot wait for each other's rows."""
    if not counted:
        return
    keys = [column.name for column in table.primary_key]
    make = postgresql.insert if conn.dialect.name == "postgresql" else sqlite.insert
    larger = func.greatest if conn.dialect.name == "postgresql" else func.max
    adding = make(table)
    statement = adding.on_conflict_do_update(
        index_elements=keys,
        set_={
            column.name: larger(column, adding.excluded[column.name])
            if column.name in most
            else column + adding.excluded[column.name]
            for column in table.c
            if column.name not in keys
        },
    )
    rows = [{**_values(key), **_values(counted[key])} for key in sorted(counted)]
    conn.execute(statement, rows)


def _live(wanted: Wanted) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if wanted.since is not None:
        found.append(_dispatch.c.created_at >= _midnight(wanted.since))
    if wanted.until is not None:
        found.append(_dispatch.c.created_at < _midnight(wanted.until + timedelta(days=1)))
    if wanted.backend is not None:
        found.append(_dispatch.c.backend == str(wanted.backend))
    return found or [and_(True)]


def _of_history(table: Any, wanted: Wanted) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if wanted.since is not None:
        found.append(table.c.day >= wanted.since.isoformat())
    if wanted.until is not None:
        found.append(table.c.day <= wanted.until.isoformat())
    if wanted.backend is not None:
        found.append(table.c.backend == str(wanted.backend))
    return found


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _merge(into: dict[_Key, _F], more: Mapping[_Key, _F]) -> None:
    for key, figures in more.items():
        into[key] = into[key] + figures if key in into else figures


def _added(one: _F, other: _F) -> _F:
    kind = type(one)
    return kind(
        **{
            each.name: max(getattr(one, each.name), getattr(other, each.name))
            if each.name.endswith("_most")
            else getattr(one, each.name) + getattr(other, each.name)
            for each in fields(one)
        }
    )


def _key(kind: type[_Key], row: Any, prefix: str = "") -> _Key:
    return kind(**{each.name: getattr(row, f"{prefix}{each.name}") for each in fields(kind)})


def _figures(kind: type[_F], row: Any) -> _F:
    """PostgreSQL sums whole numbers to a decimal, and a sum over nothing is NULL."""
    return kind(**{each.name: int(getattr(row, each.name, 0) or 0) for each in fields(kind)})


def _values(of: Any) -> dict[str, object]:
    return {each.name: getattr(of, each.name) for each in fields(of)}


def total(figures: Iterable[DayFigures]) -> DayFigures:
    """All of these together."""
    found = DayFigures()
    for each in figures:
        found += each
    return found
