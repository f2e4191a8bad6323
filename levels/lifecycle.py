"""One dispatch's life: its reports become legs (``fold``), and the legs amount to one outcome (``stand``).

Beside the outcome stands what is missing from it, and how long each leg took.

The rule behind every line here: a missing result never concludes success. A leg that has not ended, a leg that was
announced and never seen and a backend version without a leg keep the outcome from it, before the deadline and after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from levels.legs import Leg, LegReport, Status, fold
from levels.outcomes import FAILURE_LIKE, Conclusion, Outcome, badness, worst

__all__ = [
    "Expectation",
    "Leg",
    "LegReport",
    "Observed",
    "Standing",
    "Status",
    "Times",
    "disputed",
    "fold",
    "stand",
    "times",
]


@dataclass(frozen=True)
class Expectation:
    """What must be there before a backend is done: legs (None: as many as the runs claim) and backend versions."""

    jobs: int | None = None
    versions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Observed:
    """What GitHub itself showed after a run had ended: by (run id, attempt), and by check run id of a job."""

    runs: Mapping[tuple[str, int], Conclusion] = field(default_factory=dict)
    jobs: Mapping[str, Conclusion] = field(default_factory=dict)


@dataclass(frozen=True)
class Standing:
    """The outcome of one dispatch and what a reader wants to know beside it.

    ``legs_expected`` is None where nobody said how many. ``failing`` holds the legs that decide a failure, worst first.
    ``completed_at`` is None while more is awaited.
    """

    outcome: Outcome
    started_at: datetime | None
    completed_at: datetime | None
    legs_reported: int
    legs_expected: int | None
    missing_versions: tuple[str, ...]
    failing: tuple[Leg, ...]


@dataclass(frozen=True)
class Times:
    """How long a leg waited and ran, by our own receipts; None where an end is missing."""

    queue: timedelta | None
    execution: timedelta | None


#: What we conclude ourselves of a run that had begun. The rest (silent, undelivered, paused ...) says that nothing
#: came, which the first report makes untrue.
_AT_RUN_DEADLINE = frozenset({Outcome.LOST, Outcome.INCOMPLETE, Outcome.TIMED_OUT})

#: What GitHub showed of a run whose reports are not all there (``levels.witness``): they do not make it less failed.
_SHOWN_AT_DEADLINE = frozenset({Outcome.FAILURE, Outcome.CANCELLED, Outcome.ACTION_REQUIRED})

_DENIES_SUCCESS = frozenset({Conclusion.FAILURE, Conclusion.CANCELLED, Conclusion.TIMED_OUT})


def stand(
    legs: Iterable[Leg],
    expectation: Expectation,
    *,
    concluded: Outcome | None,
    observed: Observed | None = None,
) -> Standing:
    """What the legs amount to. ``concluded`` is what we concluded ourselves, at a deadline or before any run.

    It yields to every report that says more: a result, and after silence a start. Time is not known here: a caller that
    grants a new attempt a deadline of its own passes None until that one is over. Raises ValueError for a
    ``concluded`` of success, which only reports can say.
    """
    if concluded is Outcome.SUCCESS:
        raise ValueError("concluded cannot be success: only reports can say so; use None to let them decide")
    every = tuple(legs)
    deciding = tuple(leg for leg in every if leg.deciding)
    failing = tuple(sorted((leg for leg in deciding if leg.conclusion in FAILURE_LIKE), key=_worst_first))
    missing = _missing_versions(deciding, expectation)
    expected, short = _count(every, deciding, expectation)
    outcome = _outcome(deciding, failing, short or bool(missing), concluded)
    if outcome is Outcome.SUCCESS and observed is not None and _any_disputed(every, deciding, observed):
        outcome = Outcome.DISPUTED
    awaited = outcome in (Outcome.QUEUED, Outcome.RUNNING)
    ends = [leg.completed_at for leg in deciding if leg.completed_at is not None]
    return Standing(
        outcome=outcome,
        started_at=min((leg.started_at for leg in deciding if leg.started_at is not None), default=None),
        completed_at=None if awaited else max(ends, default=None),
        legs_reported=len(deciding),
        legs_expected=expected,
        missing_versions=missing,
        failing=failing,
    )


def _outcome(deciding: tuple[Leg, ...], failing: tuple[Leg, ...], short: bool, concluded: Outcome | None) -> Outcome:
    if not deciding:
        return concluded or Outcome.QUEUED
    if failing:
        return _as_outcome(failing[0].conclusion)
    unfinished = any(leg.status is not Status.COMPLETED for leg in deciding)
    if not unfinished and not short:
        return _as_outcome(worst(leg.conclusion for leg in deciding if leg.conclusion is not None))
    if concluded is not None and concluded in _SHOWN_AT_DEADLINE:
        return concluded
    if concluded not in _AT_RUN_DEADLINE:
        return Outcome.RUNNING
    if not unfinished:
        return Outcome.INCOMPLETE
    return Outcome.TIMED_OUT if concluded is Outcome.TIMED_OUT else Outcome.LOST


def _as_outcome(conclusion: Conclusion | None) -> Outcome:
    return Outcome(str(conclusion))


def _worst_first(leg: Leg) -> tuple[int, str, str, str, int]:
    rank = badness(leg.conclusion) if leg.conclusion is not None else -1
    return rank, leg.job_name, leg.combination, leg.run_id, leg.run_attempt


def _missing_versions(deciding: Iterable[Leg], expectation: Expectation) -> tuple[str, ...]:
    seen = {leg.backend_version for leg in deciding}
    return tuple(version for version in dict.fromkeys(expectation.versions) if version not in seen)


def _count(every: Iterable[Leg], deciding: tuple[Leg, ...], expectation: Expectation) -> tuple[int | None, bool]:
    """How many legs are expected, and whether some are still short.

    The entry's number counts all runs together. A claimed one speaks of its own run only, so that what a second run
    reports cannot stand in for what the first never did.
    """
    if expectation.jobs is not None:
        return expectation.jobs, len(deciding) < expectation.jobs
    claims: dict[str, int] = {}
    for leg in every:
        if leg.expected_jobs is not None:
            claims[leg.run_id] = max(leg.expected_jobs, claims.get(leg.run_id, 0))
    if not claims:
        return None, False
    seen = Counter(leg.run_id for leg in deciding)
    expected = sum(claims.get(run_id, count) for run_id, count in seen.items())
    return expected, any(seen[run_id] < claim for run_id, claim in claims.items())


def disputed(claimed: Conclusion, observed: Conclusion | None) -> bool:
    """Whether GitHub, asked after the run had ended, denies a claimed success. The reverse is no dispute."""
    return claimed is Conclusion.SUCCESS and observed in _DENIES_SUCCESS


def _any_disputed(every: Iterable[Leg], deciding: Iterable[Leg], observed: Observed) -> bool:
    """Whether GitHub denies any of the deciding legs, by its job or by its run's newest attempt.

    An older attempt is no witness: that it failed as a whole is why there is a newer one.
    """
    newest: dict[str, int] = {}
    for leg in every:
        newest[leg.run_id] = max(leg.run_attempt, newest.get(leg.run_id, 0))
    for leg in deciding:
        if leg.conclusion is None:
            continue
        shown = [observed.jobs.get(leg.check_run_id or ""), observed.runs.get((leg.run_id, newest[leg.run_id]))]
        if any(disputed(leg.conclusion, conclusion) for conclusion in shown):
            return True
    return False


def times(
    leg: Leg, *, sent_at: datetime | None, first_attempt_started_at: datetime | None = None, first_attempt: int = 1
) -> Times:
    """How long the leg waited and ran.

    ``sent_at`` is when GitHub answered our dispatch 204. ``first_attempt_started_at`` is our receipt of the first
    in_progress of any leg of the run's first attempt; the leg's own start where it is not given. A re-run waited for a
    person and not for a machine, so only the first attempt has a queue time. A callback can overtake the answer to our
    own request, and a start can arrive after its end: both count as no time at all.
    """
    began = (first_attempt_started_at or leg.started_at) if leg.run_attempt == first_attempt else None
    return Times(queue=_between(sent_at, began), execution=_between(leg.started_at, leg.completed_at))


def _between(start: datetime | None, end: datetime | None) -> timedelta | None:
    if start is None or end is None:
        return None
    return max(end - start, timedelta())
