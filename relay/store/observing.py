"""What is to be looked at at GitHub, and what a look makes of a dispatch.

Claims are held against what GitHub shows once a run has ended; where reports are missing, the run itself is looked for
by the delivery id in its name. A look never concludes success: only reports do.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from allowlist.model import Level, RepoName
from levels.outcomes import UNSETTLED, Outcome
from levels.powers import POWERS
from levels.witness import filled_in, newest_attempts
from relay.deciding.effects import Kind, NewEffect, observe
from relay.deciding.terms import Terms
from relay.github.port import Address
from relay.store.checks import SHOWN_LEVELS, CheckTerms, touch_head
from relay.store.dispatching import note_backend_error
from relay.store.observations import COMPLETED, NOTHING, AttemptShown, Seen, keep_attempts, load_seen
from relay.store.outbox import enqueue
from relay.store.standing import Told, load_attempts, stand_on_rows
from relay.store.tables import Audit, Backend, Change, Dispatch, Effect, Job, Observation, Report
from relay.texts.words import clock, denied, outcome_phrase, seen_unreported

_audit = Audit.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_backend = Backend.__table__  # type: ignore[attr-defined]
_change = Change.__table__  # type: ignore[attr-defined]
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_effect = Effect.__table__  # type: ignore[attr-defined]
_job = Job.__table__  # type: ignore[attr-defined]
_observation = Observation.__table__  # type: ignore[attr-defined]
_report = Report.__table__  # type: ignore[attr-defined]

#: Dispatches of these levels are looked at: where no result is recorded there is no claim to check.
OBSERVED_LEVELS = tuple(int(level) for level in Level if POWERS[level].recorded)

#: The reporting job is a part of its run, so the run ends a moment after its last report.
FIRST_LOOK = timedelta(seconds=20)
#: A run that goes on is looked at again after twice the time that has passed, and not any more after this.
LAST_LOOK = timedelta(hours=6)
#: A run that is known by its name alone has nobody to tell us of its end.
UNREPORTED_EVERY = timedelta(minutes=15)
#: What a run that has ended may take to have its reports sent again, before they count as missing.
STRAGGLERS = timedelta(minutes=10)

#: A dispatch starts one run; a listener in several workflow files starts a few.
MOST_RUNS = 10


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run attempt to look at. ``etag`` makes a look free that shows nothing new; ``jobs``: legs name theirs."""

    run_id: str
    run_attempt: int
    etag: str | None
    ended: bool
    jobs: bool


@dataclass(frozen=True, slots=True)
class ToObserve:
    """One dispatch whose runs are to be looked at. ``elsewhere``: reports came, and none from a run at GitHub."""

    dispatch_id: int
    address: Address
    delivery_id: str
    since: datetime
    workflow: str | None
    runs: tuple[KnownRun, ...]
    elsewhere: bool


@dataclass(frozen=True, slots=True)
class Look:
    """What a look showed that is new. ``note`` says what is odd about it; ``blind``: nothing may be seen there."""

    attempts: tuple[AttemptShown, ...] = ()
    note: str = ""
    blind: bool = False


def first_look(dispatch_id: int, backend: RepoName, level: int, *, delay: timedelta = FIRST_LOOK) -> NewEffect:
    """Look at a dispatch's runs; those that can hold a merge back go first."""
    effect = observe(dispatch_id, backend, delay=delay)
    return replace(effect, priority=effect.priority - level)


def load_observe(conn: Connection, dispatch_id: int) -> ToObserve | None:
    """What to look at, or None where nothing of this dispatch is to be seen at GitHub."""
    row = conn.execute(
        select(_dispatch, _backend.c.repository_id, _backend.c.installation_id)
        .select_from(_dispatch.outerjoin(_backend, _backend.c.repo == _dispatch.c.backend))
        .where(_dispatch.c.id == dispatch_id)
    ).first()
    if row is None or not _observable(row):
        return None
    # Where an issuer has no events, its runs are not GitHub's.
    reported = conn.execute(
        select(
            _report.c.run_id,
            func.max(_report.c.run_attempt).label("run_attempt"),
            func.max(_report.c.event_name).label("event_name"),
            func.max(_report.c.check_run_id).label("job"),
        )
        .where(_report.c.dispatch_id == dispatch_id, _report.c.decides)
        .group_by(_report.c.run_id)
        .order_by(_report.c.run_id)
    ).all()
    kept = conn.execute(select(_observation).where(_observation.c.dispatch_id == dispatch_id)).all()
    seen = {(one.run_id, one.run_attempt): one for one in kept}
    wanted = {one.run_id: (one.run_attempt, one.job is not None) for one in reported if one.event_name}
    for one in kept:
        attempt, jobs = wanted.get(one.run_id, (0, False))
        wanted[one.run_id] = max(attempt, one.run_attempt), jobs
    runs = []
    for run_id, (attempt, jobs) in sorted(wanted.items())[:MOST_RUNS]:
        known = seen.get((run_id, attempt))
        ended = known is not None and known.status == COMPLETED
        runs.append(KnownRun(run_id, attempt, None if known is None else known.etag, ended, jobs))
    return ToObserve(
        dispatch_id=dispatch_id,
        address=Address(RepoName.parse(row.backend), row.repository_id, row.installation_id),
        delivery_id=row.delivery_id,
        since=row.created_at - timedelta(minutes=5),
        workflow=Terms.from_json(row.terms).workflow,
        runs=tuple(runs),
        elsewhere=bool(reported) and not runs,
    )


def _observable(row: Row[Any]) -> bool:
    return row.purpose == "test" and row.state == "sent" and row.level in OBSERVED_LEVELS


def note_observed(conn: Connection, dispatch_id: int, look: Look, terms: CheckTerms, now: datetime) -> None:
    """Keep what a look showed, let the dispatch stand on it anew, and plan the next look where one is due."""
    row = conn.execute(
        select(_dispatch, _change.c.head_sha)
        .join(_change, _change.c.id == _dispatch.c.change_id)
        .where(_dispatch.c.id == dispatch_id)
        .with_for_update(of=_dispatch)
    ).first()
    if row is None or not _observable(row):
        return
    keep_attempts(conn, dispatch_id, look.attempts, now)
    seen = load_seen(conn, [dispatch_id]).get(dispatch_id, NOTHING)
    told = _told(row)
    attempts = load_attempts(conn, dispatch_id)
    if attempts:
        changed = stand_on_rows(conn, told, attempts, seen, now, late=told.late, legs_changed=False)
        touched = changed.outcome or changed.legs
    else:
        touched = _fill_in(conn, told, look, seen, now)
    after = conn.execute(
        select(_dispatch.c.outcome, _dispatch.c.outcome_at, _dispatch.c.next_deadline).where(
            _dispatch.c.id == dispatch_id
        )
    ).one()
    note = " ".join(filter(None, [look.note, _said(seen, Outcome(after.outcome), reported=bool(attempts))]))
    conn.execute(update(_dispatch).where(_dispatch.c.id == dispatch_id).values(observed_at=now, observe_note=note))
    if after.outcome != row.outcome:
        _mark(conn, row, Outcome(after.outcome), note, now)
    if (touched or note != row.observe_note) and row.level in SHOWN_LEVELS:
        touch_head(conn, row.head_sha, terms, now, backend=row.backend)
    delay = None if look.blind else _next_look(after, seen, now, reported=bool(attempts))
    if delay is not None:
        enqueue(conn, [first_look(dispatch_id, RepoName.parse(row.backend), row.level, delay=delay)], now)


def _told(row: Row[Any]) -> Told:
    values = {each.name: getattr(row, each.name) for each in fields(Told)}
    return Told(**{**values, "terms": Terms.from_json(row.terms)})


def _fill_in(conn: Connection, told: Told, look: Look, seen: Seen, now: datetime) -> bool:
    """What runs say of a backend that reported nothing. It replaces silence, and nothing else that was concluded."""
    outcome = filled_in(seen.runs)
    if not look.attempts or outcome is None or told.outcome not in (*UNSETTLED, Outcome.SILENT):
        return False
    if outcome is not Outcome.RUNNING:
        values: dict[str, object] = {
            "concluded": outcome.value,
            "concluded_at": now,
            "outcome": outcome.value,
            "outcome_at": now,
            "next_deadline": None,
        }
    else:
        began = told.started_at or min(one.created_at for one in look.attempts)
        deadline = began + told.terms.run
        if all(run.conclusion is not None for run in newest_attempts(seen.runs)):
            # It is over, and no report of it will come but one that is on its way.
            deadline = min(deadline, now + STRAGGLERS)
        values = {
            "concluded": None,
            "concluded_at": None,
            "outcome": outcome.value,
            "started_at": began,
            "next_deadline": deadline,
        }
        if told.outcome != outcome.value:
            values["outcome_at"] = now
    conn.execute(update(_dispatch).where(_dispatch.c.id == told.id).values(**values))
    return told.outcome != outcome.value


def _said(seen: Seen, outcome: Outcome, *, reported: bool) -> str:
    """What the look adds to the claims, in a sentence for checks and pages; nothing where it bears them out."""
    runs = newest_attempts(seen.runs)
    if not reported:
        return seen_unreported(runs)
    return denied(runs) if outcome is Outcome.DISPUTED else ""


def _mark(conn: Connection, row: Row[Any], outcome: Outcome, note: str, now: datetime) -> None:
    """An outcome that moved by what GitHub showed is told to admins; what turned out worse, on the backend's page."""
    conn.execute(
        insert(_audit),
        {
            "at": now,
            "who": "relay",
            "what": "observed",
            "subject": f"dispatch {row.id} to {row.backend} of {row.head_sha}",
            "why": note,
            "before": row.outcome,
            "after": outcome.value,
        },
    )
    if outcome not in UNSETTLED and outcome is not Outcome.SUCCESS:
        told = f"{outcome_phrase(outcome)} at {clock(now)} for commit {row.head_sha[:12]}: {note}"
        note_backend_error(conn, RepoName.parse(row.backend), told, now)


def _next_look(after: Row[Any], seen: Seen, now: datetime, *, reported: bool) -> timedelta | None:
    """When to look again, None where there is nothing more to see or the sweep will ask in time."""
    if all(run.conclusion is not None for run in newest_attempts(seen.runs)):
        return None
    if after.outcome in UNSETTLED:
        return None if reported else UNREPORTED_EVERY
    passed = now - after.outcome_at
    return max(FIRST_LOOK, passed * 2) if passed < LAST_LOOK else None


def ask_now(conn: Connection, dispatch_id: int, backend: RepoName, level: int, now: datetime) -> None:
    """Have this dispatch looked at at once, also where a later look is planned already."""
    conn.execute(
        update(_effect)
        .where(
            _effect.c.kind == Kind.OBSERVE.value,
            _effect.c.subject_id == dispatch_id,
            _effect.c.state == "ready",
            _effect.c.failures == 0,
            _effect.c.due > now,
        )
        .values(due=now)
    )
    enqueue(conn, [first_look(dispatch_id, backend, level, delay=timedelta())], now)
