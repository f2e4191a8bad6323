"""What a callback becomes in rows: its report, and the tests that did not pass."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from allowlist.model import Entry
from relay.edge.oidc import VerifiedCaller
from relay.results.binding import Bound
from relay.results.failures import FailedTest
from relay.results.report import IncomingReport


@dataclass(frozen=True, slots=True)
class Callback:
    """A callback that was authenticated and read. ``dispatch_id`` is what its capability names, if it is ours."""

    caller: VerifiedCaller
    report: IncomingReport
    entry: Entry
    dispatch_id: int | None


def differences(report: IncomingReport, found: Row[Any]) -> list[str]:
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


def report_values(
    callback: Callback, bound: Bound, dispatch_id: int, notes: tuple[str, ...], now: datetime
) -> dict[str, object]:
    """The row of one report. Its digest is over all that makes two reports the same."""
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


def test_values(report_id: int, test: FailedTest) -> dict[str, object]:
    """The row of one test that did not pass."""
    return {
        "report_id": report_id,
        "name": test.name,
        "classname": test.classname,
        "message": test.message,
        "stacktrace": test.stacktrace,
        "duration": test.duration,
    }
