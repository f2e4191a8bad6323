"""The legs of a run, by combination of backend version, suite version and environment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, and_, func, select

from levels.outcomes import FAILURE_LIKE, Conclusion, Outcome, badness
from relay.deciding.facts import LegFacts
from relay.store.reading.pages import MOST_MESSAGE, MOST_NAME, name_of, url_of, version_of
from relay.store.reported import FAILING, Listed, failed_tests, has_failed, leg_facts
from relay.store.tables import Job, Report

_job = Job.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_report = Report.__table__  # type: ignore[attr-defined]

#: What one page lists: legs of one backend and of all, legs whose failing tests are named, and tests of one leg.
MOST_LEGS_OF_ONE = 400
MOST_LEGS = 2_000
MOST_LEGS_WITH_TESTS = 60
MOST_TESTS = 10

_RUNNING = 4  # After what failed, before what passed.


@dataclass(frozen=True, slots=True)
class LegLine:
    """One leg with the facts that a check says, and those only pages and programs show. Text is clean and cut.

    ``deciding``: False where a newer attempt has replaced it, or its run decides nothing. ``late``: it came after we
    had concluded. ``private``: tests, URLs and messages were left out.
    """

    facts: LegFacts
    combination: str
    check_run_id: str | None
    queue_seconds: float | None
    total: int | None
    deciding: bool
    late: bool
    private: bool

    @property
    def outcome(self) -> Outcome:
        """Its claimed conclusion as an outcome; RUNNING without one, DISPUTED where GitHub shows otherwise."""
        if self.facts.conclusion is None:
            return Outcome.RUNNING
        disputed = self.facts.conclusion == Conclusion.SUCCESS and self.facts.observed in FAILING
        return Outcome.DISPUTED if disputed else Outcome(self.facts.conclusion)


@dataclass(frozen=True, slots=True)
class Combination:
    """All deciding legs of one backend version with one suite version in one environment, the worst first."""

    id: str
    backend_version: str | None
    suite_version: str | None
    environment: tuple[tuple[str, str], ...]
    legs: tuple[LegLine, ...]

    @property
    def outcome(self) -> Outcome:
        """The outcome of the worst leg."""
        return self.legs[0].outcome

    @property
    def failing(self) -> int:
        """How many of the legs failed, or are disputed."""
        return sum(1 for leg in self.legs if _rank(leg) < _RUNNING)


def combinations(legs: Iterable[LegLine]) -> tuple[Combination, ...]:
    """The deciding legs in their combinations: what fails first, then by version."""
    groups: defaultdict[tuple[Any, ...], list[LegLine]] = defaultdict(list)
    for leg in legs:
        if leg.deciding:
            facts = leg.facts
            groups[leg.combination, facts.backend_version, facts.suite_version, facts.environment].append(leg)
    found = [
        Combination(key[0], key[1], key[2], key[3], tuple(sorted(mine, key=lambda leg: (_rank(leg), _name(leg)))))
        for key, mine in groups.items()
    ]
    return tuple(
        sorted(
            found,
            key=lambda one: (_rank(one.legs[0]), one.backend_version or "", one.suite_version or "", one.environment),
        )
    )


def _name(leg: LegLine) -> tuple[str, str, int]:
    return leg.facts.job_name, leg.facts.run_id, leg.facts.run_attempt


def _rank(leg: LegLine) -> int:
    outcome = leg.outcome
    if outcome is Outcome.DISPUTED:
        return 0
    if outcome is Outcome.RUNNING:
        return _RUNNING
    conclusion = Conclusion(outcome.value)
    return badness(conclusion) if conclusion in FAILURE_LIKE else _RUNNING + 1 + badness(conclusion)


def load_legs(
    conn: Connection, private: Mapping[int, bool], known: Collection[int] = frozenset()
) -> dict[int, tuple[tuple[LegLine, ...], int]]:
    """The legs of these dispatches, and how many more each has.

    ``private`` says of each whether its tests are left out; ``known`` are the tests that fail on the base too.
    """
    if not private:
        return {}
    bad_first = _job.c.conclusion.in_(sorted(FAILING))
    ranked = (
        select(
            _job.c.id,
            func.row_number()
            .over(partition_by=_job.c.dispatch_id, order_by=(_job.c.deciding.desc(), bad_first.desc(), _job.c.id))
            .label("place"),
            func.count().over(partition_by=_job.c.dispatch_id).label("in_all"),
        )
        .where(_job.c.dispatch_id.in_(sorted(private)))
        .subquery()
    )
    rows = conn.execute(
        select(_job, _report.c.workflow_name, ranked.c.in_all)
        .select_from(
            _job.join(ranked, and_(ranked.c.id == _job.c.id, ranked.c.place <= MOST_LEGS_OF_ONE)).outerjoin(
                _report, _report.c.id == _job.c.report_id
            )
        )
        .order_by(ranked.c.place, _job.c.id)
        .limit(MOST_LEGS)
    ).all()
    naming = [row.report_id for row in rows if not private[row.dispatch_id] and has_failed(row)]
    tests = failed_tests(conn, naming[:MOST_LEGS_WITH_TESTS], MOST_TESTS, known)
    legs: defaultdict[int, list[LegLine]] = defaultdict(list)
    counts: dict[int, int] = {}
    for row in rows:
        mine = tests.get(row.report_id, ((), 0))
        legs[row.dispatch_id].append(_leg(row, mine, private=private[row.dispatch_id]))
        counts[row.dispatch_id] = row.in_all
    return {dispatch_id: (tuple(some), counts[dispatch_id] - len(some)) for dispatch_id, some in legs.items()}


def _leg(row: Any, tests: Listed, *, private: bool) -> LegLine:
    facts = _clean(leg_facts(row, tests), private=private)
    return LegLine(
        facts=facts,
        combination=row.combination,
        check_run_id=row.check_run_id and name_of(row.check_run_id, 60),
        queue_seconds=row.queue_seconds,
        total=row.total,
        deciding=row.deciding,
        late=row.late,
        private=private,
    )


def _clean(facts: LegFacts, *, private: bool) -> LegFacts:
    """The same with every text as one line of bounded length, and without the URLs of a private backend."""
    return replace(
        facts,
        job_name=name_of(facts.job_name),
        workflow_name=name_of(facts.workflow_name),
        run_id=name_of(facts.run_id),
        backend_version=version_of(facts.backend_version),
        suite_version=version_of(facts.suite_version),
        environment=tuple((name_of(key, 60), name_of(value, 120)) for key, value in facts.environment),
        failure_class=facts.failure_class and name_of(facts.failure_class, 40),
        url="" if private else url_of(facts.url) or "",
        artifact_url="" if private else url_of(facts.artifact_url) or "",
        failed_tests=tuple(
            replace(
                test,
                name=name_of(test.name, MOST_NAME),
                classname=name_of(test.classname, MOST_NAME),
                message=name_of(test.message, MOST_MESSAGE),
            )
            for test in facts.failed_tests
        ),
    )
