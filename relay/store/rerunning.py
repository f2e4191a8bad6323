"""The runs of a dispatch that may be run again, and what is noted when somebody asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, func, select, update

from allowlist.model import RepoName
from levels.outcomes import FAILURE_LIKE
from relay.deciding.effects import Kind, rerun
from relay.github.port import Address
from relay.store.checks import CheckTerms, touch_head
from relay.store.dispatching import address_of, note_backend_error
from relay.store.outbox import enqueue
from relay.store.tables import Change, Dispatch, Effect, Job, Observation, Report

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_effect = Effect.__table__  # type: ignore[attr-defined]
_job = Job.__table__  # type: ignore[attr-defined]
_observation = Observation.__table__  # type: ignore[attr-defined]
_report = Report.__table__  # type: ignore[attr-defined]

#: "Re-run failed" sends one event for each failed check, and they come one after another. What was asked for within
#: this time of each other is one wish.
ONE_WISH = timedelta(minutes=1)

_FAILING = frozenset(str(conclusion) for conclusion in FAILURE_LIKE)


@dataclass(frozen=True, slots=True)
class KnownRun:
    """One run of a dispatch in its newest attempt: whether anything of it failed, and whether anything still runs."""

    run_id: str
    run_attempt: int
    failed: bool
    running: bool

    @property
    def at_github(self) -> bool:
        """Whether GitHub can run it again: the ids of other systems are no numbers."""
        return self.run_id.isascii() and self.run_id.isdigit()


@dataclass(frozen=True, slots=True)
class ToRerun:
    """A run that GitHub is to be asked for again. ``current`` is False once a newer dispatch decides."""

    dispatch_id: int
    change_id: int
    head_sha: str
    backend: RepoName
    address: Address
    run_id: str
    only_failed: bool
    run_attempt: int  # The newest that was known when it was asked for.
    origin: str
    asked_by: str
    current: bool


_LOAD = (
    select(_dispatch, _change.c.head_sha, _change.c.state.label("change_state"))
    .join(_change, _change.c.id == _dispatch.c.change_id)
    .where(_dispatch.c.id == bindparam("id"))
)


def runs_of(conn: Connection, dispatch_id: int) -> tuple[KnownRun, ...]:
    """The runs of this dispatch that reported, or that GitHub was seen to have."""
    found: dict[str, KnownRun] = {}
    legs = conn.execute(
        select(_job.c.run_id, _job.c.run_attempt, _job.c.conclusion)
        .where(_job.c.dispatch_id == dispatch_id, _job.c.deciding)
        .order_by(_job.c.id)
    )
    for leg in legs:
        known = found.get(leg.run_id, KnownRun(leg.run_id, 0, failed=False, running=False))
        found[leg.run_id] = KnownRun(
            leg.run_id,
            max(known.run_attempt, leg.run_attempt),
            failed=known.failed or leg.conclusion in _FAILING,
            running=known.running or leg.conclusion is None,
        )
    seen = conn.execute(
        select(_observation.c.run_id, _observation.c.run_attempt, _observation.c.conclusion)
        .where(_observation.c.dispatch_id == dispatch_id)
        .order_by(_observation.c.run_attempt)
    )
    reported = set(found)
    for run in seen:
        if run.run_id not in reported:
            found[run.run_id] = KnownRun(
                run.run_id,
                run.run_attempt,
                failed=run.conclusion in _FAILING,
                running=run.conclusion is None,
            )
    return tuple(found.values())


def asked_lately(conn: Connection, dispatch_id: int, now: datetime) -> bool:
    """Whether its runs were asked for again a moment ago, so that this wish is the same."""
    return (
        conn.execute(
            select(_effect.c.id)
            .where(
                _effect.c.kind == Kind.RERUN.value,
                _effect.c.subject_id == dispatch_id,
                _effect.c.created_at > now - ONE_WISH,
            )
            .limit(1)
        ).first()
        is not None
    )


def ask_rerun(
    conn: Connection,
    dispatch_id: int,
    backend: RepoName,
    runs: tuple[KnownRun, ...],
    *,
    only_failed: bool,
    by: str,
    terms: CheckTerms,
    now: datetime,
) -> None:
    """Owe a rerun of each of these runs, and let the backend's check say who asked."""
    enqueue(conn, [rerun(dispatch_id, backend, run.run_id, only_failed=only_failed) for run in runs], now)
    conn.execute(update(_dispatch).where(_dispatch.c.id == dispatch_id).values(rerun_at=now, rerun_by=by))
    # Not always the head that was asked about: a merge group's gate shows what was said of its pull requests.
    head_sha = conn.execute(_LOAD, {"id": dispatch_id}).one().head_sha
    touch_head(conn, head_sha, terms, now, backend=backend)


def load_rerun(conn: Connection, dispatch_id: int, subject: str) -> ToRerun | None:
    """What a rerun needs. ``subject`` is the effect's: the mode and the run."""
    row = conn.execute(_LOAD, {"id": dispatch_id}).first()
    if row is None:
        return None
    mode, _, run_id = subject.partition(" ")
    newest = conn.execute(
        select(func.max(_dispatch.c.id)).where(
            _dispatch.c.change_id == row.change_id, _dispatch.c.backend == row.backend, _dispatch.c.purpose == "test"
        )
    ).scalar()
    repo = RepoName.parse(row.backend)
    return ToRerun(
        dispatch_id=dispatch_id,
        change_id=row.change_id,
        head_sha=row.head_sha,
        backend=repo,
        address=address_of(conn, repo),
        run_id=run_id,
        only_failed=mode == "failed",
        run_attempt=_attempt_then(conn, dispatch_id, run_id, row.rerun_at),
        origin=row.origin_delivery,
        asked_by=row.rerun_by,
        current=newest == dispatch_id and row.change_state == "open",
    )


def _attempt_then(conn: Connection, dispatch_id: int, run_id: str, asked_at: datetime | None) -> int:
    """The newest attempt that was known when somebody asked. One that was heard of since may be what was asked for."""
    reported = select(func.max(_report.c.run_attempt)).where(
        _report.c.dispatch_id == dispatch_id, _report.c.run_id == run_id
    )
    seen = select(func.max(_observation.c.run_attempt)).where(
        _observation.c.dispatch_id == dispatch_id, _observation.c.run_id == run_id
    )
    if asked_at is not None:
        reported = reported.where(_report.c.received_at <= asked_at)
        seen = seen.where(_observation.c.seen_at <= asked_at)
    return max(1, *(conn.execute(newest).scalar() or 1 for newest in (reported, seen)))


def note_not_rerun(conn: Connection, dispatch_id: int, why: str, terms: CheckTerms, now: datetime) -> None:
    """What was asked for will not come: the check does not promise it any more, and the backend's page says why."""
    row = conn.execute(_LOAD, {"id": dispatch_id}).first()
    if row is None:
        return
    conn.execute(update(_dispatch).where(_dispatch.c.id == dispatch_id).values(rerun_at=None, rerun_by=""))
    note_backend_error(conn, RepoName.parse(row.backend), f"not run again: {why}", now)
    touch_head(conn, row.head_sha, terms, now, backend=row.backend)
