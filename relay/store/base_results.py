"""Whether the tests that failed on a change fail on its base branch too, by what the same backend reported there.

Looked at only where a backend failed, and only when a check or a page is made, never in a callback: a statement for
what failed here, one for the newest result on the base, and one each for the tests' names.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, bindparam, exists, func, or_, select

from levels.outcomes import GATE_TABLE, GateEffect, Outcome
from relay.deciding.facts import BaseRun, OnBase
from relay.deciding.terms import Terms
from relay.store.reported import FAILING, environment_of
from relay.store.tables import Change, Dispatch, Job, TestResult
from relay.store.told import outcome_of

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_job = Job.__table__  # type: ignore[attr-defined]
_test = TestResult.__table__  # type: ignore[attr-defined]

#: Bounds of one look: backends, legs and names of each. What is beyond is not known on the base.
MOST_BACKENDS = 20
MOST_LEGS = 5_000
MOST_NAMES = 2_000

#: The base's result is looked for among a backend's newest dispatches; an older one says little of the base as it is.
MOST_LOOKED_AT = 2_000

_HEADS = "refs/heads/"

#: Only these say something of tests: what was skipped, lost or disputed leaves them open.
_TELLING = (Outcome.SUCCESS.value, Outcome.FAILURE.value)


@dataclass(frozen=True, slots=True)
class Base:
    """What a change is to go into. ``head_sha`` is the commit of it that the change names, where it names one."""

    branch: str
    head_sha: str | None


@dataclass(frozen=True, slots=True)
class Compared:
    """What the base says of one dispatch's failures, and the ids of the failing tests that are known there."""

    on_base: OnBase
    known: frozenset[int]


def base_of(kind: str, base_ref: str | None, base_sha: str | None) -> Base | None:
    """The base of a change that can be merged, None for every other one."""
    if base_ref is None or kind not in {"pull_request", "merge_group"}:
        return None
    # A merge group's may be the group before it, which is on no branch yet.
    return Base(base_ref.removeprefix(_HEADS), base_sha if kind == "pull_request" else None)


def compare(conn: Connection, told: Iterable[tuple[Any, Base | None]]) -> dict[int, Compared]:
    """What the base says of each of these rows of ``dispatch`` that failed with tests' names, by its id."""
    failed = [(row, base) for row, base in told if base is not None and _blocks(row)][:MOST_BACKENDS]
    mine = _failures(conn, [row.id for row, _ in failed])
    named = [(row, base, mine[row.id]) for row, base in failed if row.id in mine and mine[row.id].tests]
    if not named:
        return {}
    runs: dict[tuple[str, Base], Any] = {}
    for row, base, _ in named:
        if (row.backend, base) not in runs:
            runs[row.backend, base] = _newest(conn, row.backend, base)
    theirs = _failures(conn, [run.id for run in runs.values() if run is not None and run.outcome == "failure"])
    found = {}
    for row, base, failures in named:
        run = runs[row.backend, base]
        found[row.id] = _compared(row, base, failures, run, None if run is None else theirs.get(run.id))
    return found


def _blocks(row: Any) -> bool:
    return GATE_TABLE[outcome_of(row.state, row.outcome)] is GateEffect.BLOCKS


# --- What failed -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Test:
    id: int
    report_id: int
    backend_version: str | None
    environment: tuple[tuple[str, str], ...]
    name: str
    classname: str


@dataclass(frozen=True, slots=True)
class _Failures:
    """The legs of one dispatch as far as they failed or are open, its tests that failed, and whether these are all."""

    legs: tuple[Any, ...]
    tests: tuple[_Test, ...]
    cut: bool


def _first(most: int, columns: Sequence[Any], source: Any, order: Sequence[Any]) -> Any:
    """The first rows of each dispatch: one more than ``most``, to tell that there are more."""
    ranked = (
        select(*columns, func.row_number().over(partition_by=_job.c.dispatch_id, order_by=order).label("place"))
        .select_from(source)
        .where(_job.c.dispatch_id.in_(bindparam("dispatch_ids", expanding=True)), _job.c.deciding)
        .subquery()
    )
    return select(ranked).where(ranked.c.place <= most + 1).order_by(ranked.c.dispatch_id, ranked.c.place)


_LEGS = _first(
    MOST_LEGS,
    (_job.c.dispatch_id, _job.c.report_id, _job.c.conclusion, _job.c.failed, _job.c.backend_version),
    _job,
    (_job.c.id,),
)
_NAMES = _first(
    MOST_NAMES,
    (
        _job.c.dispatch_id,
        _job.c.report_id,
        _job.c.backend_version,
        _job.c.environment,
        _test.c.id,
        _test.c.name,
        _test.c.classname,
    ),
    _job.join(_test, _test.c.report_id == _job.c.report_id),
    (_job.c.id, _test.c.id),
)


def _failures(conn: Connection, dispatch_ids: Sequence[int]) -> dict[int, _Failures]:
    if not dispatch_ids:
        return {}
    of = {"dispatch_ids": sorted(set(dispatch_ids))}
    tests: defaultdict[int, list[_Test]] = defaultdict(list)
    environments: dict[str, tuple[tuple[str, str], ...]] = {}  # Thousands of tests share a few.
    for row in conn.execute(_NAMES, of):
        environment = environments.get(row.environment)
        if environment is None:
            environment = environments[row.environment] = environment_of(row.environment)
        one = _Test(row.id, row.report_id, row.backend_version, environment, row.name, row.classname)
        tests[row.dispatch_id].append(one)
    if not tests:
        return {}
    legs: defaultdict[int, list[Any]] = defaultdict(list)
    for row in conn.execute(_LEGS, {"dispatch_ids": sorted(tests)}):
        legs[row.dispatch_id].append(row)
    return {
        dispatch_id: _Failures(
            tuple(legs[dispatch_id]),
            tuple(mine[:MOST_NAMES]),
            cut=len(mine) > MOST_NAMES or len(legs[dispatch_id]) > MOST_LEGS,
        )
        for dispatch_id, mine in tests.items()
    }


# --- The base --------------------------------------------------------------------------------------------------------

_pushed = _change.alias("pushed")
_PUSH = and_(_change.c.kind == "push", _change.c.ref == bindparam("ref"))
_NIGHT = and_(_change.c.kind == "self_reported", _change.c.verified)
_COLUMNS = (
    _dispatch.c.id,
    _dispatch.c.change_id,
    _dispatch.c.outcome,
    _dispatch.c.outcome_at,
    _dispatch.c.legs_expected,
    _dispatch.c.legs_reported,
    _dispatch.c.terms,
    _change.c.head_sha,
)
_recent = (
    select(_dispatch.c.id)
    .where(_dispatch.c.backend == bindparam("backend"))
    .order_by(_dispatch.c.id.desc())
    .limit(MOST_LOOKED_AT)
    .subquery()
)
_TOLD = and_(
    _dispatch.c.backend == bindparam("backend"),
    _dispatch.c.purpose != "notify",
    _dispatch.c.outcome.in_(_TELLING),
    _dispatch.c.legs_reported > 0,
)
_BOTH = _dispatch.join(_change, _change.c.id == _dispatch.c.change_id)

#: Of the very commit that the change is based on: its push, or a night on it.
_EXACT = (
    select(*_COLUMNS)
    .select_from(_BOTH)
    .where(_change.c.head_sha == bindparam("base_sha"), or_(_PUSH, _NIGHT), _TOLD)
    .order_by(_dispatch.c.id.desc())
    .limit(1)
)
#: Of any commit that was pushed to the branch.
_NEWEST = (
    select(*_COLUMNS)
    .select_from(_BOTH.join(_recent, _recent.c.id == _dispatch.c.id))
    .where(
        _TOLD,
        or_(
            _PUSH,
            and_(
                _NIGHT,
                exists(_pushed.c.id).where(
                    _pushed.c.head_sha == _change.c.head_sha,
                    _pushed.c.kind == "push",
                    _pushed.c.ref == bindparam("ref"),
                ),
            ),
        ),
    )
    .order_by(_dispatch.c.id.desc())
    .limit(1)
)


def _newest(conn: Connection, backend: str, base: Base) -> Any:
    """The dispatch of the base's result: of the commit that the change names, else the newest on the branch."""
    of = {"backend": backend, "ref": _HEADS + base.branch}
    exact = None if base.head_sha is None else conn.execute(_EXACT, {**of, "base_sha": base.head_sha}).first()
    return exact if exact is not None else conn.execute(_NEWEST, of).first()


# --- One against the other -------------------------------------------------------------------------------------------


def _compared(row: Any, base: Base, mine: _Failures, run: Any, theirs: _Failures | None) -> Compared:
    legs, failing = _counted(mine)
    known = frozenset(_known(mine.tests, () if theirs is None else theirs.tests))
    reports = {test.report_id for test in mine.tests if test.id in known}
    whole = (
        row.outcome == Outcome.FAILURE
        and not mine.cut
        and not _open(row, mine)
        and len(known) == failing
        and all(leg.report_id in reports for leg in legs)
    )
    if run is None:
        return Compared(OnBase(base.branch, None, failing), known)
    told = BaseRun(
        change_id=run.change_id,
        head_sha=run.head_sha,
        at=run.outcome_at,
        passed=run.outcome == Outcome.SUCCESS,
        named=0 if theirs is None else len(theirs.tests),
    )
    sure = _told_in_full(row, mine) and (told.passed or (theirs is not None and _told_in_full(run, theirs)))
    return Compared(OnBase(base.branch, told, failing, len(known), whole, sure), known)


def _counted(one: _Failures) -> tuple[list[Any], int]:
    """The legs that failed, and how many tests did in all of them, named or not."""
    named = Counter(test.report_id for test in one.tests)
    legs = [leg for leg in one.legs if leg.conclusion in FAILING or leg.failed or leg.report_id in named]
    return legs, sum(max(leg.failed or 0, named[leg.report_id]) for leg in legs)


def _told_in_full(row: Any, one: _Failures) -> bool:
    """Whether every leg has ended, and every test that failed was named and is among these."""
    return not one.cut and not _open(row, one) and _counted(one)[1] == len(one.tests)


def _open(row: Any, mine: _Failures) -> bool:
    """Whether legs or versions are still to come, or never came: nobody knows how they would have ended."""
    short = row.legs_expected is not None and row.legs_reported < row.legs_expected
    seen = {leg.backend_version for leg in mine.legs}
    absent = any(version not in seen for version in Terms.from_json(row.terms).versions)
    return short or absent or any(leg.conclusion is None for leg in mine.legs)


def _known(mine: Iterable[_Test], theirs: Iterable[_Test]) -> Iterable[int]:
    """The tests that fail there too: in the same version and environment as far as these are stated here."""
    there: defaultdict[tuple[str, str], set[tuple[str | None, tuple[tuple[str, str], ...]]]] = defaultdict(set)
    for test in theirs:
        there[test.name, test.classname].add((test.backend_version, test.environment))
    for test in mine:
        for version, environment in there.get((test.name, test.classname), ()):
            if (not test.backend_version or test.backend_version == version) and (
                not test.environment or test.environment == environment
            ):
                yield test.id
                break
