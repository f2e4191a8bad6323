"""Reports in a few words, for the tests of the fold: times are minutes after a fixed morning."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from levels.lifecycle import Leg, LegReport, Status, fold
from levels.outcomes import Conclusion

MORNING = datetime(2026, 10, 5, 8, 0, tzinfo=UTC)


def at(minute: float) -> datetime:
    """The moment this many minutes after the morning."""
    return MORNING + timedelta(minutes=minute)


def report(
    said: str,
    minute: float,
    *,
    job: str = "build",
    run: str = "100",
    attempt: int = 1,
    check: str | None = None,
    combination: str = "",
    version: str | None = None,
    report_id: int = 0,
    expected_jobs: int | None = None,
    failure_class: str | None = None,
    passed: int | None = None,
) -> LegReport:
    """A report that said "start", or the conclusion with which it completed."""
    conclusion = None if said == "start" else Conclusion(said)
    return LegReport(
        run_id=run,
        run_attempt=attempt,
        job_name=job,
        combination=combination,
        backend_version=version,
        check_run_id=check,
        status=Status.IN_PROGRESS if conclusion is None else Status.COMPLETED,
        conclusion=conclusion,
        received_at=at(minute),
        report_id=report_id or int(minute * 10) + 1,
        expected_jobs=expected_jobs,
        failure_class=failure_class,
        passed=passed,
    )


def only_leg(*reports: LegReport) -> Leg:
    """The one leg that these reports make; fails where they make another number of legs."""
    (leg,) = fold(reports)
    return leg


def results(*reports: LegReport) -> list[tuple[str | None, str | None]]:
    """The (check run id, conclusion) of each leg that decides, in the fold's order."""
    return [(leg.check_run_id, leg.conclusion) for leg in fold(reports) if leg.deciding]
