"""How a dispatch stands, as columns: its legs and what GitHub showed amount to an outcome and a next deadline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, case, func, select, update

from levels.legs import Leg, Status
from levels.lifecycle import Expectation, Standing, stand
from levels.outcomes import UNSETTLED, Conclusion, Outcome
from relay.deciding.terms import Terms
from relay.store.observations import Seen
from relay.store.shared import ForEach
from relay.store.tables import Dispatch, Job, Report

_dispatch = Dispatch.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_job = Job.__table__  # type: ignore[attr-defined]
_report = Report.__table__  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Told:
    """The dispatch a report belongs to, as its locked row has it."""

    id: int
    state: str
    purpose: str
    terms: Terms
    sent_at: datetime | None
    started_at: datetime | None
    next_deadline: datetime | None
    concluded: str | None
    concluded_at: datetime | None
    outcome: str
    outcome_at: datetime
    legs_reported: int
    legs_expected: int | None
    late: bool
    observed_at: datetime | None = None
    give_up_at: datetime | None = None
    rerun_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Changed:
    """What a report did: to the dispatch's outcome, and to any leg at all."""

    outcome: bool
    legs: bool
    settled: bool


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of one run that decides, over all its jobs: its largest claim and when we first heard of it."""

    claim: int | None
    started_at: datetime | None
    began_at: datetime


Attempts = Mapping[tuple[str, int], Attempt]


@dataclass(frozen=True, slots=True)
class Stood:
    """How a dispatch stands after a look at all of its legs; ``row`` is what is to be written of it, if anything."""

    outcome_changed: bool
    settled: bool
    row: Mapping[str, object] | None


_ATTEMPTS = ForEach(
    select(
        _report.c.dispatch_id,
        _report.c.run_id,
        _report.c.run_attempt,
        func.max(_report.c.expected_jobs).label("claim"),
        func.min(case((_report.c.status == "in_progress", _report.c.received_at))).label("started_at"),
        func.min(_report.c.received_at).label("began_at"),
    )
    .where(_report.c.decides)
    .group_by(_report.c.dispatch_id, _report.c.run_id, _report.c.run_attempt),
    {"dispatch_ids": _report.c.dispatch_id},
)

#: The jobs of some dispatches.
JOBS = ForEach(select(_job), {"dispatch_ids": _job.c.dispatch_id})

_SHOW_JOB = update(_job).where(_job.c.id == bindparam("b_id")).values(observed=bindparam("b_observed"))

_STANDING = ("outcome", "outcome_at", "legs_reported", "legs_expected", "started_at", "next_deadline", "late")
_CHANGE_DISPATCH = (
    update(_dispatch)
    .where(_dispatch.c.id == bindparam("b_id"))
    .values({name: bindparam(f"b_{name}", type_=_dispatch.c[name].type) for name in _STANDING})
)


def load_attempts(conn: Connection, dispatch_id: int) -> Attempts:
    """The attempts that decide of one dispatch, by run and number."""
    return load_attempts_of(conn, [dispatch_id]).get(dispatch_id, {})


def load_attempts_of(conn: Connection, dispatch_ids: Sequence[int]) -> dict[int, Attempts]:
    """The attempts that decide of each of these dispatches; one of which nothing decides is missing."""
    found: dict[int, dict[tuple[str, int], Attempt]] = {}
    for row in _ATTEMPTS.execute(conn, {"dispatch_ids": dispatch_ids}):
        attempt = Attempt(row.claim, row.started_at, row.began_at)
        found.setdefault(row.dispatch_id, {})[row.run_id, row.run_attempt] = attempt
    return dict(found)


def standing_legs(rows: Iterable[Row[Any]], attempts: Attempts) -> list[Leg]:
    """The legs of other jobs, read back from their rows. The claim is the attempt's, which is all that counts."""
    return [
        leg_of(row, attempts[row.run_id, row.run_attempt].claim)
        for row in rows
        if (row.run_id, row.run_attempt) in attempts
    ]


def leg_of(row: Row[Any], claim: int | None = None) -> Leg:
    """One leg, read back from its row. ``claim`` is how many jobs its attempt says that it has."""
    return Leg(
        run_id=row.run_id,
        run_attempt=row.run_attempt,
        job_name=row.job_name,
        combination=row.combination,
        backend_version=row.backend_version,
        check_run_id=row.check_run_id,
        status=Status(row.status),
        conclusion=None if row.conclusion is None else Conclusion(row.conclusion),
        started_at=row.started_at,
        completed_at=row.completed_at,
        conflicting=row.conflicting,
        deciding=row.deciding,
        source_report_id=row.report_id,
        expected_jobs=claim,
    )


def _newest_begins(attempts: Attempts) -> dict[str, datetime]:
    """For each run, when its newest attempt first started; when it was first heard of, where no start was reported."""
    begins: dict[str, tuple[int, datetime]] = {}
    for (run_id, number), attempt in attempts.items():
        if run_id not in begins or number > begins[run_id][0]:
            begins[run_id] = number, attempt.started_at or attempt.began_at
    return {run_id: at for run_id, (_, at) in begins.items()}


def _still_concluded(told: Told, attempts: Attempts) -> Outcome | None:
    """What we concluded, unless an attempt has begun since, which has a deadline of its own."""
    if told.concluded is None or told.concluded_at is None:
        return None
    if any(at > told.concluded_at for at in _newest_begins(attempts).values()):
        return None
    return Outcome(told.concluded)


def standing_of(told: Told, legs: Iterable[Leg], attempts: Attempts, seen: Seen) -> Standing:
    """What these legs amount to, with what we concluded and what GitHub showed."""
    expectation = Expectation(jobs=told.terms.expected_jobs, versions=told.terms.versions)
    return stand(legs, expectation, concluded=_still_concluded(told, attempts), observed=seen.observed())


def stand_on(
    conn: Connection,
    told: Told,
    legs: Iterable[Leg],
    attempts: Attempts,
    seen: Seen,
    now: datetime,
    *,
    late: bool,
    legs_changed: bool,
) -> Changed:
    """Let the dispatch stand on these legs. Its row must be locked, and something of it must be reported."""
    stood = how_it_stands(told, legs, attempts, seen, now, late=late)
    write_standings(conn, [stood])
    return Changed(outcome=stood.outcome_changed, legs=legs_changed, settled=stood.settled)


def stand_on_rows(
    conn: Connection, told: Told, attempts: Attempts, seen: Seen, now: datetime, *, late: bool, legs_changed: bool
) -> Changed:
    """Let the dispatch stand on its legs as they are kept, and note on each how GitHub shows it."""
    rows = JOBS.execute(conn, {"dispatch_ids": [told.id]}).all()
    shown = seen.of_legs(rows)
    differing = [{"b_id": row.id, "b_observed": shown[row.id]} for row in rows if row.observed != shown[row.id]]
    if differing:
        conn.execute(_SHOW_JOB, differing)
    legs = standing_legs(rows, attempts)
    return stand_on(conn, told, legs, attempts, seen, now, late=late, legs_changed=legs_changed or bool(differing))


def _deadline(told: Told, begins: Mapping[str, datetime]) -> datetime:
    """Until when the newest attempt is awaited: it has the run's time, and no more of them than somebody asked for.

    A backend may run again by itself as often as GitHub lets it. All that it begins so has one run's time together
    beyond the gate's deadline; what a person asked us for has its whole time, counted from the asking.
    """
    own = max(begins.values()) + told.terms.run
    if told.give_up_at is None:
        return own
    most = told.give_up_at + told.terms.run
    if told.rerun_at is not None:
        most = max(most, told.rerun_at + told.terms.queue + told.terms.run)
    return min(own, most)


def how_it_stands(
    told: Told, legs: Iterable[Leg], attempts: Attempts, seen: Seen, now: datetime, *, late: bool
) -> Stood:
    """What these legs make of the dispatch, of which something must be reported. Writes nothing."""
    standing = standing_of(told, legs, attempts, seen)
    settled = standing.outcome not in UNSETTLED
    begins = _newest_begins(attempts)
    deadline = None if settled else _deadline(told, begins)
    starts = [attempt.started_at for attempt in attempts.values() if attempt.started_at is not None]
    outcome_changed = standing.outcome != told.outcome
    wanted: dict[str, object] = {
        "outcome": standing.outcome.value,
        "outcome_at": now if outcome_changed else told.outcome_at,
        "legs_reported": standing.legs_reported,
        "legs_expected": standing.legs_expected,
        "started_at": min(starts, default=None),
        "next_deadline": deadline,
        "late": late,
    }
    row = None
    if any(getattr(told, name) != wanted[name] for name in _STANDING):
        row = {"b_id": told.id, **{f"b_{name}": wanted[name] for name in _STANDING}}
    return Stood(outcome_changed, settled, row)


def write_standings(conn: Connection, stood: Iterable[Stood]) -> None:
    """Write how dispatches stand, where that has changed. Their rows must be locked."""
    rows = [one.row for one in stood if one.row is not None]
    if rows:
        conn.execute(_CHANGE_DISPATCH, rows)
