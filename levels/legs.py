"""The fold, first half: the set of one dispatch's reports becomes legs. ``levels.lifecycle`` makes one outcome of them.

Nothing here depends on the order in which reports arrived or on how often they came: ``received_at`` is data. That is
what lets any replica, after any crash, compute the same state again (PROTOCOL 3, "The fold").

The fold has three steps. Reports of one name within one run attempt are paired: a start with the completed report
that ends it. Each pair, and each report left alone, is a leg. Then newer attempts replace older legs, job by job.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, StrEnum

from levels.outcomes import Conclusion, worst


class Status(StrEnum):
    """Whether a leg has ended."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class LegReport:
    """What one callback said of one leg. Raises ValueError where it claims to be completed without a conclusion.

    ``combination`` is the combination's id, "" where the report states none. ``report_id`` only breaks ties.
    """

    run_id: str
    run_attempt: int
    job_name: str
    combination: str
    backend_version: str | None
    check_run_id: str | None
    status: Status
    conclusion: Conclusion | None
    received_at: datetime
    report_id: int
    expected_jobs: int | None = None
    failure_class: str | None = None
    passed: int | None = None
    failed: int | None = None
    skipped: int | None = None
    total: int | None = None

    def __post_init__(self) -> None:
        if self.status is Status.COMPLETED and self.conclusion is None:
            raise ValueError(f"report {self.report_id} of job {self.job_name!r} is completed without a conclusion")


@dataclass(frozen=True, slots=True)
class Leg:
    """One leg of one run attempt.

    ``check_run_id`` is the completed report's, else the start's. ``started_at`` is our receipt of the earliest start,
    ``completed_at`` that of the earliest report with the standing conclusion; None where there was none.
    ``deciding`` is False once a newer attempt has replaced the leg. The details (counts, failed tests, URL) that stand
    are those of ``source_report_id``. ``expected_jobs`` is the largest number that a report of this leg claimed.
    """

    run_id: str
    run_attempt: int
    job_name: str
    combination: str
    backend_version: str | None
    check_run_id: str | None
    status: Status
    conclusion: Conclusion | None
    started_at: datetime | None
    completed_at: datetime | None
    conflicting: bool
    deciding: bool
    source_report_id: int
    expected_jobs: int | None = None
    failure_class: str | None = None
    passed: int | None = None
    failed: int | None = None
    skipped: int | None = None
    total: int | None = None


def fold(reports: Iterable[LegReport]) -> tuple[Leg, ...]:
    """All legs of one dispatch, from all its reports in any order and with any repetition.

    Legs that a newer attempt replaced are still there, with ``deciding`` False.
    """
    names: defaultdict[tuple[str, int, str], list[LegReport]] = defaultdict(list)
    for report in reports:
        names[report.run_id, report.run_attempt, report.job_name].append(report)
    legs = [leg for of_one_name in names.values() for leg in _legs_of_one_name(of_one_name)]
    return tuple(sorted(_settle_attempts(legs), key=_leg_order))


def _leg_order(leg: Leg) -> tuple[str, str, str, int, bool, str]:
    own = leg.check_run_id
    return leg.run_id, leg.job_name, leg.combination, leg.run_attempt, own is not None, own or ""


# --- Pairing: which completed report ends which start ----------------------------------------------------------------


class _Any(Enum):
    """Stands for a part of a key that does not matter to a look-up; no report can say it."""

    ANY = "any"


_ANY = _Any.ANY
_UNSTATED = ""

#: What tells reports of one name in one attempt apart: the combination and the check run id.
_Key = tuple[str, str | None]
_Lookup = tuple[str | _Any, str | _Any | None]

#: Where a completed report that has no start of its own key looks for one, best place first. Each place is asked for
#: all completed reports before the next is tried, so that none takes the start that belongs more closely to another.
#: Within a place the oldest goes first. Two stated combinations meet only inside one check run, where a start may not
#: know yet all that the end knows: anywhere else they are two legs, and to pair them would hide that one never ended.
_PLACES: tuple[Callable[[_Key], _Lookup | None], ...] = (
    lambda end: (_ANY, end[1]) if end[1] is not None else None,
    lambda end: (end[0], _ANY),
    lambda end: (_UNSTATED, _ANY) if end[0] != _UNSTATED else (_ANY, _ANY),
)


def _legs_of_one_name(reports: Iterable[LegReport]) -> Iterator[Leg]:
    starts: defaultdict[_Key, list[LegReport]] = defaultdict(list)
    ends: defaultdict[_Key, list[LegReport]] = defaultdict(list)
    for report in reports:
        side = ends if report.status is Status.COMPLETED else starts
        side[report.combination, report.check_run_id].append(report)
    _merge_starts(starts)
    start_of = _pair(starts, ends)
    for end, said in ends.items():
        start = start_of.get(end)
        combination = end[0] or _inherited(end, start, starts, ends)
        yield _leg(combination, end[1], starts[start] if start is not None else [], said)
    for start in starts.keys() - set(start_of.values()):
        yield _leg(start[0], start[1], starts[start], [])


def _merge_starts(starts: defaultdict[_Key, list[LegReport]]) -> None:
    """Where one check run said that it started first without and then with a combination, that was one start.

    Else the first of the two would be a leg that never ends. With several combinations the oldest has it.
    """
    by_check: defaultdict[str | None, list[_Key]] = defaultdict(list)
    for start in _oldest_first(starts):
        by_check[start[1]].append(start)
    for check_run_id, of_one_check in by_check.items():
        unstated = (_UNSTATED, check_run_id)
        others = [start for start in of_one_check if start != unstated]
        if check_run_id is not None and unstated in starts and others:
            starts[others[0]].extend(starts.pop(unstated))


def _pair(starts: Mapping[_Key, list[LegReport]], ends: Mapping[_Key, list[LegReport]]) -> dict[_Key, _Key]:
    """For each completed key the start it takes, where there is one. A start ends at most once."""
    start_of = {end: end for end in ends if end in starts}
    free = starts.keys() - start_of.keys()
    waiting = _oldest_first({end: said for end, said in ends.items() if end not in start_of})
    if not free or not waiting:
        return start_of
    shelves = _shelve({start: starts[start] for start in free})
    for place in _PLACES:
        for end in waiting:
            shelf = place(end)
            found = _take(shelves[shelf], free, _version(ends[end]), starts) if shelf in shelves else None
            if found is not None:
                free.remove(found)
                start_of[end] = found
        waiting = [end for end in waiting if end not in start_of]
    return start_of


def _shelve(starts: Mapping[_Key, list[LegReport]]) -> dict[_Lookup, deque[_Key]]:
    """Each start, oldest first, under every key by which an end may look for it."""
    shelves: defaultdict[_Lookup, deque[_Key]] = defaultdict(deque)
    for start in _oldest_first(starts):
        combination, check_run_id = start
        lookups: tuple[_Lookup, ...] = ((_ANY, check_run_id), (combination, _ANY), (_ANY, _ANY))
        for lookup in lookups:
            shelves[lookup].append(start)
    return dict(shelves)


def _take(
    shelf: deque[_Key], free: set[_Key], version: str | None, starts: Mapping[_Key, list[LegReport]]
) -> _Key | None:
    """The oldest free start on the shelf whose backend version does not contradict this one."""
    while shelf and shelf[0] not in free:
        shelf.popleft()
    for start in shelf:
        stated = _version(starts[start])
        if start in free and (version is None or stated is None or stated == version):
            return start
    return None


def _oldest_first(sides: Mapping[_Key, list[LegReport]]) -> list[_Key]:
    """Keys by their earliest receipt; equal receipts go by what was said, since arrival must not matter."""
    receipts = {key: min(report.received_at for report in reports) for key, reports in sides.items()}
    return sorted(sides, key=lambda key: (receipts[key], key[0], key[1] is not None, key[1] or ""))


def _version(reports: Iterable[LegReport]) -> str | None:
    return min((report.backend_version for report in reports if report.backend_version is not None), default=None)


def _inherited(
    end: _Key, start: _Key | None, starts: Mapping[_Key, list[LegReport]], ends: Mapping[_Key, list[LegReport]]
) -> str:
    """The combination that an end which states none has from its start, unless a leg of that key exists already."""
    if start is None:
        return _UNSTATED
    key = (start[0], end[1])
    taken = key in ends or (key in starts and key != start)
    return _UNSTATED if taken else start[0]


def _leg(combination: str, check_run_id: str | None, starts: list[LegReport], ends: list[LegReport]) -> Leg:
    conclusions = {end.conclusion for end in ends if end.conclusion is not None}
    conclusion = worst(conclusions) if conclusions else None
    standing = [end for end in ends if end.conclusion is conclusion] or starts
    # A retry may bring counts that the first call did not have yet; otherwise the first to say it stands.
    source = min(standing, key=lambda report: (report.passed is None, report.received_at, report.report_id))
    claims = [report.expected_jobs for report in (*starts, *ends) if report.expected_jobs is not None]
    return Leg(
        run_id=source.run_id,
        run_attempt=source.run_attempt,
        job_name=source.job_name,
        combination=combination,
        backend_version=_version(ends) or _version(starts),
        check_run_id=check_run_id,
        status=Status.COMPLETED if ends else Status.IN_PROGRESS,
        conclusion=conclusion,
        started_at=min((start.received_at for start in starts), default=None),
        completed_at=min(report.received_at for report in standing) if ends else None,
        conflicting=len(conclusions) > 1,
        deciding=True,
        source_report_id=source.report_id,
        expected_jobs=max(claims, default=None),
        failure_class=source.failure_class,
        passed=source.passed,
        failed=source.failed,
        skipped=source.skipped,
        total=source.total,
    )


# --- Attempts: what a newer attempt of the same run replaces ---------------------------------------------------------


def _settle_attempts(legs: Iterable[Leg]) -> Iterator[Leg]:
    """Mark what newer attempts have replaced. Runs never replace each other, and neither do jobs."""
    jobs: defaultdict[tuple[str, str], list[Leg]] = defaultdict(list)
    for leg in legs:
        jobs[leg.run_id, leg.job_name].append(leg)
    for of_one_job in jobs.values():
        newest: defaultdict[str, int] = defaultdict(int)
        several: set[str] = set()
        for (combination, attempt), count in Counter((leg.combination, leg.run_attempt) for leg in of_one_job).items():
            newest[combination] = max(newest[combination], attempt)
            if count > 1:
                several.add(combination)
        for leg in of_one_job:
            yield replace(leg, deciding=False) if _replaced(leg, newest, several) else leg


def _replaced(leg: Leg, newest: Mapping[str, int], several: set[str]) -> bool:
    """Whether a newer attempt took this leg's place.

    Legs that differ only by check run id cannot be told apart over attempts, and "re-run failed" runs only what had not
    succeeded: of those, what had succeeded stays. The same care holds where one side does not state its combination,
    as a leg that died after an unstated start.
    """
    same = newest.get(leg.combination, 0) > leg.run_attempt
    if same and leg.combination not in several:
        return True
    unstated = newest.get(_UNSTATED, 0) > leg.run_attempt
    any_stated = leg.combination == _UNSTATED and max(newest.values()) > leg.run_attempt
    return (same or unstated or any_stated) and leg.conclusion is not Conclusion.SUCCESS
