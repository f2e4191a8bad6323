"""Callbacks in SQL: one transaction takes a callback, decides on it, and keeps it with all that follows from it.

The dispatch row is locked first, so that two replicas cannot fold the same legs at once. A refusal writes nothing,
but for what others must hear of: ids that are not known yet are asked for, and another identity is noted.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from allowlist.model import Entry, Level
from relay.edge.oidc import VerifiedCaller
from relay.effects import forward_hud, pin_backend
from relay.results.binding import Bound, KnownDispatch, PinnedIds, Refusal, bind
from relay.results.failures import FailedTest
from relay.results.report import IncomingReport
from relay.store.checks import SHOWN_LEVELS, CheckTerms, touch_head
from relay.store.legs import Told, refold
from relay.store.nights import DISPATCH_BY_DELIVERY, DISPATCH_BY_ID, confirm, night, nightly_subject
from relay.store.observing import OBSERVED_LEVELS, first_look
from relay.store.outbox import enqueue, on_conflict_do_nothing
from relay.store.tables import Backend, Dispatch, Report, TestResult
from relay.terms import Terms

__all__ = ["Accepted", "Callback", "KeepTerms", "accept", "confirm", "nightly_subject"]

_backend = Backend.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_report = Report.__table__  # type: ignore[attr-defined]
_test_result = TestResult.__table__  # type: ignore[attr-defined]

#: When a backend was last seen is kept to this, so that a burst of callbacks does not rewrite one row each time.
SEEN_EVERY = timedelta(seconds=10)

#: Refusals that say nothing about the caller; the same call may work a moment later.
NOT_YET = "not_pinned_yet"

#: The refusal that an admin must hear of: somebody else may sit under a backend's name.
OTHER_IDENTITY = "identity_changed"


@dataclass(frozen=True, slots=True)
class Callback:
    """A callback that was authenticated and read. ``dispatch_id`` is what its capability names, if it is ours."""

    caller: VerifiedCaller
    report: IncomingReport
    entry: Entry
    dispatch_id: int | None


@dataclass(frozen=True, slots=True)
class Accepted:
    """The callback is kept; ``replayed`` when it was before. Unless ``decides``, ``reason`` says why it does not."""

    dispatch_id: int
    origin: str  # The delivery that all of this began with.
    head_sha: str
    replayed: bool
    decides: bool
    reason: str
    notes: tuple[str, ...]
    effects: bool


@dataclass(frozen=True, slots=True)
class KeepTerms:
    """What decides which effects a kept callback has."""

    checks: CheckTerms
    hud: bool


_SEEN: Select[Any] = select(
    _backend.c.repo.label("seen_repo"),
    _backend.c.repository_id,
    _backend.c.owner_id,
    _backend.c.private,
    _backend.c.last_seen_at,
).where(_backend.c.repo == bindparam("caller"))

_NOTE_ERROR = (
    update(_backend)
    .where(
        _backend.c.repo == bindparam("b_repo"),
        or_(_backend.c.last_error.is_(None), _backend.c.last_error != bindparam("b_error")),
    )
    .values(last_error=bindparam("b_error"), last_error_at=bindparam("b_now", type_=_backend.c.last_error_at.type))
)

_ADD_REPORT = {
    "sqlite": sqlite.insert(_report).on_conflict_do_nothing(index_elements=["digest"]).returning(_report.c.id),
    "postgresql": postgresql.insert(_report).on_conflict_do_nothing(index_elements=["digest"]).returning(_report.c.id),
}


def accept(conn: Connection, callback: Callback, terms: KeepTerms, now: datetime) -> Accepted | Refusal:
    """Keep one callback, once: whatever is wrong with it is a Refusal, and then nothing of it was consumed."""
    caller, report = callback.caller, callback.report
    found = None if report.self_reported else _find(conn, callback)
    seen = found if found is not None else conn.execute(_SEEN, {"caller": str(caller.repo)}).first()
    known = None if found is None else _known(found)
    bound = bind(
        caller,
        report,
        callback.entry,
        dispatch=known,
        capability_is_ours=callback.dispatch_id is not None,
        pinned=PinnedIds() if seen is None else PinnedIds(seen.repository_id, seen.owner_id),
        now=now,
    )
    if isinstance(bound, Refusal):
        if bound.code == NOT_YET:
            enqueue(conn, [pin_backend(caller.repo)], now)
        if bound.code == OTHER_IDENTITY:
            conn.execute(_NOTE_ERROR, {"b_repo": str(caller.repo), "b_error": bound.detail, "b_now": now})
        return bound
    if found is None:
        found = night(conn, caller.repo, report, callback.entry, terms.checks.upstream, now)
    told = _told(found, Terms.from_json(found.terms) if known is None else known.terms)
    return _keep(conn, callback, bound, found, told, seen, terms, now)


def _find(conn: Connection, callback: Callback) -> Row[Any] | None:
    repo = str(callback.caller.repo)
    if callback.report.capability is None:
        parameters = {"caller": repo, "delivery_id": callback.report.delivery_id}
        return conn.execute(DISPATCH_BY_DELIVERY, parameters).first()
    if callback.dispatch_id is None:
        return None
    return conn.execute(DISPATCH_BY_ID, {"caller": repo, "dispatch_id": callback.dispatch_id}).first()


def _known(row: Row[Any]) -> KnownDispatch:
    return KnownDispatch(row.backend, Level(row.level), Terms.from_json(row.terms), row.give_up_at)


def _told(row: Row[Any], terms: Terms) -> Told:
    return Told(
        id=row.id,
        state=row.state,
        purpose=row.purpose,
        terms=terms,
        sent_at=row.sent_at,
        started_at=row.started_at,
        next_deadline=row.next_deadline,
        concluded=row.concluded,
        concluded_at=row.concluded_at,
        outcome=row.outcome,
        outcome_at=row.outcome_at,
        legs_reported=row.legs_reported,
        legs_expected=row.legs_expected,
        late=row.late,
        observed_at=row.observed_at,
        give_up_at=row.give_up_at,
        rerun_at=row.rerun_at,
    )


def _keep(
    conn: Connection,
    callback: Callback,
    bound: Bound,
    found: Row[Any],
    told: Told,
    seen: Row[Any] | None,
    terms: KeepTerms,
    now: datetime,
) -> Accepted:
    caller, report = callback.caller, callback.report
    notes = (*report.notes, *(() if report.self_reported else _differences(report, found)))
    values = _report_values(callback, bound, found.id, notes, now)
    report_id = conn.execute(_ADD_REPORT[conn.dialect.name], values).scalar()
    _note_seen(conn, caller, seen, now)
    if report_id is None:
        return Accepted(
            found.id, found.origin_delivery, found.head_sha, True, bound.decides, bound.reason, notes, effects=False
        )
    if report.failed_tests:
        conn.execute(insert(_test_result), [_test_values(report_id, test) for test in report.failed_tests])
    changed = refold(conn, told, bound.run_id, bound.run_attempt, report.job_name, now)
    # Once the outcome stands, what other legs say still belongs into the check's text.
    shows = changed.outcome or (changed.legs and (changed.settled or terms.checks.per_job))
    # A dispatch of a level that neither shows nor blocks is part of no check, whatever becomes of it.
    touches = bound.decides and shows and found.purpose == "test" and found.level in SHOWN_LEVELS
    if touches:
        touch_head(conn, found.head_sha, terms.checks, now, backend=caller.repo)
    effects = [forward_hud(report_id, found.id, report.job_name)] if terms.hud else []
    if changed.outcome and changed.settled and found.purpose == "test" and found.level in OBSERVED_LEVELS:
        effects.append(first_look(found.id, caller.repo, found.level))
    if effects:
        enqueue(conn, effects, now)
    return Accepted(
        found.id,
        found.origin_delivery,
        found.head_sha,
        False,
        bound.decides,
        bound.reason,
        notes,
        effects=touches or terms.hud or report.self_reported,
    )


def _differences(report: IncomingReport, found: Row[Any]) -> list[str]:
    """Where the body repeats the change otherwise than it is on record. Noted, and never followed."""
    notes: list[str] = []
    echo = report.echo
    if echo.head_sha is not None and echo.head_sha.lower() != found.head_sha:
        notes.append(f"the body names the commit {echo.head_sha!r}, this dispatch is of {found.head_sha}")
    if echo.number is not None and found.number is not None and echo.number != found.number:
        notes.append(f"the body names pull request {echo.number}, this dispatch is of {found.number}")
    if echo.labels:
        added = sorted(set(echo.labels) - set(json.loads(found.labels)))
        notes.extend(f"the body names the label {label!r}, which the change does not have" for label in added)
    return notes


def _report_values(
    callback: Callback, bound: Bound, dispatch_id: int, notes: tuple[str, ...], now: datetime
) -> dict[str, object]:
    caller, report = callback.caller, callback.report
    combination = report.combination.id
    same = (
        str(dispatch_id),
        str(caller.repo),
        bound.run_id,
        str(bound.run_attempt),
        report.job_name,
        combination,
        report.check_run_id or "",
        report.status.value,
        "" if report.conclusion is None else report.conclusion.value,
        report.fingerprint,
    )
    return {
        "digest": hashlib.sha256(json.dumps(same).encode()).hexdigest(),
        "dispatch_id": dispatch_id,
        "backend": str(caller.repo),
        "issuer": caller.issuer,
        "event_name": caller.event_name,
        "decides": bound.decides,
        "decides_reason": bound.reason,
        "run_id": bound.run_id,
        "run_attempt": bound.run_attempt,
        "job_name": report.job_name,
        "combination": combination,
        "backend_version": report.combination.backend_version,
        "suite_version": report.combination.suite_version,
        "environment": report.combination.environment_json,
        "check_run_id": report.check_run_id,
        "status": report.status.value,
        "conclusion": None if report.conclusion is None else report.conclusion.value,
        "received_at": now,
        "claimed_started_at": report.started_at,
        "claimed_completed_at": report.completed_at,
        "passed": report.counts.passed,
        "failed": report.counts.failed,
        "skipped": report.counts.skipped,
        "total": report.counts.total,
        "errors": report.counts.errors,
        "suite_digest": None,
        "expected_jobs": report.expected_jobs,
        "failure_class": report.failure_class,
        "workflow_name": report.workflow_name,
        "url": report.url,
        "artifact_url": report.artifact_url,
        "jti": caller.jti,
        "notes": json.dumps(notes),
        "body": report.body,
    }


def _test_values(report_id: int, test: FailedTest) -> dict[str, object]:
    return {
        "report_id": report_id,
        "name": test.name,
        "classname": test.classname,
        "message": test.message,
        "stacktrace": test.stacktrace,
        "duration": test.duration,
    }


def _note_seen(conn: Connection, caller: VerifiedCaller, seen: Row[Any] | None, now: datetime) -> None:
    """When the backend was last heard of; and that it is private, as soon as a token says so."""
    if seen is None or seen.seen_repo is None:
        values = {"repo": str(caller.repo), "private": caller.private, "last_seen_at": now}
        conn.execute(on_conflict_do_nothing(conn, _backend), values)
        return
    hides = caller.private and not seen.private
    if hides or seen.last_seen_at is None or now - seen.last_seen_at >= SEEN_EVERY:
        conn.execute(
            update(_backend)
            .where(_backend.c.repo == str(caller.repo))
            .values(last_seen_at=now, private=seen.private or caller.private)
        )
