"""What GitHub showed of the runs of dispatches, as rows: kept for each attempt, and read back as values."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, select
from sqlalchemy.dialects import postgresql, sqlite

from levels.lifecycle import Observed
from levels.outcomes import FAILURE_LIKE, Conclusion
from levels.witness import RunShown, conclusion_shown
from relay.github.observed import JobObserved
from relay.store.tables import Observation

_observation = Observation.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.

#: An attempt's jobs that are kept. GitHub starts at most 256 from one matrix.
MOST_JOBS = 1_000
_MOST_NAME = 200

COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class AttemptShown:
    """One attempt of a run, as GitHub answered. ``jobs`` are asked for once it has ended."""

    run_id: str
    run_attempt: int
    status: str
    conclusion: str | None
    path: str
    created_at: datetime
    etag: str | None = None
    jobs: tuple[JobObserved, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """All that GitHub showed of one dispatch: its runs' attempts, and the ended jobs by their ids."""

    runs: tuple[RunShown, ...] = ()
    jobs: Mapping[tuple[str, str], Conclusion] = field(default_factory=dict)

    def observed(self) -> Observed:
        """As ``levels.lifecycle.stand`` takes it."""
        return Observed(
            {(run.run_id, run.run_attempt): run.conclusion for run in self.runs if run.conclusion is not None},
            {job_id: conclusion for (_, job_id), conclusion in self.jobs.items()},
        )

    def of_legs(self, legs: Collection[Any]) -> dict[int, str | None]:
        """For each leg's row, by its id, how GitHub shows it: by its job where the id is known, else by its run.

        A run that failed because another leg did, as that leg says itself, tells nothing of this one.
        """
        explained = {(leg.run_id, leg.run_attempt) for leg in legs if leg.conclusion in _FAILING}
        ended = {(run.run_id, run.run_attempt): run.conclusion for run in self.runs}
        shown: dict[int, str | None] = {}
        for leg in legs:
            attempt = leg.run_id, leg.run_attempt
            conclusion = self.jobs.get((leg.run_id, leg.check_run_id or ""))
            if conclusion is None and not (attempt in explained and leg.conclusion not in _FAILING):
                conclusion = ended.get(attempt)
            shown[leg.id] = None if conclusion is None else conclusion.value
        return shown


NOTHING = Seen()

#: What another look may show otherwise.
_SHOWN = ("status", "conclusion", "workflow", "jobs", "etag", "seen_at")

_FAILING = frozenset(conclusion.value for conclusion in FAILURE_LIKE)

_OF = (
    select(
        _observation.c.dispatch_id,
        _observation.c.run_id,
        _observation.c.run_attempt,
        _observation.c.status,
        _observation.c.conclusion,
        _observation.c.jobs,
    )
    .where(_observation.c.dispatch_id.in_(bindparam("dispatch_ids", expanding=True)))
    .order_by(_observation.c.id)
)


def load_seen(conn: Connection, dispatch_ids: Sequence[int]) -> dict[int, Seen]:
    """What GitHub showed of these dispatches; those of which it showed nothing are missing."""
    runs: dict[int, list[RunShown]] = {}
    jobs: dict[int, dict[tuple[str, str], Conclusion]] = {}
    for row in conn.execute(_OF, {"dispatch_ids": list(dispatch_ids)}):
        ended = conclusion_shown(row.conclusion) if row.status == COMPLETED else None
        runs.setdefault(row.dispatch_id, []).append(RunShown(row.run_id, row.run_attempt, ended))
        for job in json.loads(row.jobs):
            conclusion = conclusion_shown(job["conclusion"])
            if conclusion is not None:
                jobs.setdefault(row.dispatch_id, {})[row.run_id, str(job["id"])] = conclusion
    return {dispatch_id: Seen(tuple(shown), jobs.get(dispatch_id, {})) for dispatch_id, shown in runs.items()}


def keep_attempts(conn: Connection, dispatch_id: int, attempts: Iterable[AttemptShown], now: datetime) -> None:
    """Write down what GitHub showed; what it shows now replaces what it showed before."""
    values = [
        {
            "dispatch_id": dispatch_id,
            "run_id": one.run_id,
            "run_attempt": one.run_attempt,
            "status": one.status,
            "conclusion": one.conclusion,
            "workflow": one.path,
            "jobs": json.dumps([_job(job) for job in one.jobs[:MOST_JOBS]]),
            "etag": one.etag,
            "seen_at": now,
        }
        for one in attempts
    ]
    if not values:
        return
    insert = postgresql.insert if conn.dialect.name == "postgresql" else sqlite.insert
    adding = insert(_observation)
    conn.execute(
        adding.on_conflict_do_update(
            index_elements=["dispatch_id", "run_id", "run_attempt"],
            set_={
                name: adding.excluded[name] for name in ("status", "conclusion", "workflow", "jobs", "etag", "seen_at")
            },
        ),
        values,
    )


def _job(job: JobObserved) -> dict[str, object]:
    return {"id": job.job_id, "name": job.name[:_MOST_NAME], "status": job.status, "conclusion": job.conclusion}
