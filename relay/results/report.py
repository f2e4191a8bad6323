"""The wire of a callback (PROTOCOL 3 and 4), read once into values; no dict of it travels further.

A verdict must not be lost for a detail: long texts are cut, bad links dropped, unknown fields kept. What would change
the verdict's meaning (a conclusion that is none, a negative count) is refused with everything that is wrong at once.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from pydantic_core import from_json, to_json

from levels.legs import Status
from levels.outcomes import Conclusion
from relay.results.combinations import Combination
from relay.results.failures import Counts, FailedTest, read_counts, read_failed_tests
from relay.results.faults import Faults, MalformedReportError, shown
from relay.results.fields import Fields, cut

__all__ = ["Echo", "IncomingReport", "MalformedReportError", "read_report"]

SELF_REPORTED_EVENTS = frozenset({"nightly", "periodic"})
DEFAULT_JOB = "default"

_CONCLUSIONS = tuple(conclusion.value for conclusion in Conclusion)
_STATUSES = tuple(status.value for status in Status)
_FAILURE_CLASSES = ("test", "infra", "timeout")
_SCHEMA_VERSIONS = frozenset({"1", "1.0"})
_COMMIT = re.compile(r"(?!0{40})[0-9a-f]{40}", re.ASCII)
#: A capability, wherever in a body somebody echoed it: it must not be stored, logged or forwarded.
_CAPABILITY = re.compile(r"crcr1\.[0-9]{1,19}\.[0-9a-f]{64}", re.ASCII)
_MOST_LABELS = 100
_MOST_ENVIRONMENT = 32


@dataclass(frozen=True, slots=True)
class Echo:
    """What the body repeats of the change. Never a source, only compared with our own record."""

    head_sha: str | None = None
    number: int | None = None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IncomingReport:
    """One callback, read. ``run_id`` and ``run_attempt`` are None where the body states none.

    ``commit`` is the first of ``payload.head_sha``, ``payload.after`` and ``delivery_id`` that is a commit id: what a
    self-report is about. ``body`` is the JSON text to keep and to forward, without ``relay`` and with long texts cut;
    ``fingerprint`` is the digest of its ``workflow``, equal for equal reports.
    """

    event_type: str
    delivery_id: str
    capability: str | None
    commit: str | None
    echo: Echo
    status: Status
    conclusion: Conclusion | None
    run_id: str | None
    run_attempt: int | None
    job_name: str
    check_run_id: str | None
    combination: Combination
    workflow_name: str
    url: str
    artifact_url: str
    started_at: datetime | None
    completed_at: datetime | None
    counts: Counts
    failed_tests: tuple[FailedTest, ...]
    expected_jobs: int | None
    failure_class: str | None
    notes: tuple[str, ...]
    fingerprint: str
    body: str

    @property
    def self_reported(self) -> bool:
        """Whether this speaks of a commit by itself, with no dispatch of ours before it (PROTOCOL 4)."""
        return self.capability is None and self.event_type in SELF_REPORTED_EVENTS


def read_report(raw: object) -> IncomingReport:
    """Read a callback's parsed JSON. Raises MalformedReportError with all faults; ``raw`` is not changed."""
    faults, notes = Faults(), list[str]()
    if not isinstance(raw, dict):
        faults.add("(body)", f"must be a JSON object, got {shown(raw)}", "Send the client_payload plus `workflow`.")
        raise MalformedReportError(faults.found)
    capability = Fields(raw, "", faults, notes).inner("relay").text("token", 200)
    body = _scrubbed({name: value for name, value in raw.items() if name != "relay"})
    top = Fields(body, "", faults, notes)
    if body.get("workflow") is None:
        top.fault("workflow", "is required", "Send what became of the job as the object `workflow`.")
    workflow = top.inner("workflow")
    failed_tests, cut_tests = read_failed_tests(workflow)
    if cut_tests is not None:
        workflow = Fields({**workflow.values, "failed_tests": cut_tests}, workflow.path, faults, notes)
        body = {**body, "workflow": workflow.values}
    status, conclusion = _verdict(workflow)
    _check_schema_version(workflow)
    event_type = top.text("event_type", 100) or ""
    delivery_id = top.text("delivery_id", 200) or ""
    payload = top.inner("payload").values
    commit = _commit(payload, delivery_id)
    if capability is None:
        _check_addressed(top, event_type, delivery_id, commit)
    report = IncomingReport(
        event_type=event_type,
        delivery_id=delivery_id,
        capability=capability,
        commit=commit,
        echo=_echo(payload),
        status=status,
        conclusion=conclusion,
        run_id=workflow.identity("run_id"),
        run_attempt=workflow.number("run_attempt", least=1, most=1_000_000),
        job_name=workflow.identity("job_name") or DEFAULT_JOB,
        check_run_id=workflow.identity("check_run_id"),
        combination=_combination(workflow.inner("combination")),
        workflow_name=workflow.text("name", 300) or "",
        url=workflow.link("url"),
        artifact_url=workflow.link("artifact_url"),
        started_at=workflow.instant("started_at"),
        completed_at=workflow.instant("completed_at"),
        counts=read_counts(workflow),
        failed_tests=failed_tests,
        expected_jobs=workflow.number("expected_jobs", least=1, most=100_000),
        failure_class=workflow.word("failure_class", _FAILURE_CLASSES),
        notes=tuple(notes),
        fingerprint=_fingerprint(workflow.values),
        body=to_json(body).decode(),
    )
    if faults.found:
        raise MalformedReportError(faults.found)
    return report


def _scrubbed(body: dict[str, Any]) -> dict[str, Any]:
    """The body without capabilities, which a test's output or an echoed environment may hold as well."""
    text = to_json(body).decode()
    if "crcr1." not in text or not _CAPABILITY.search(text):
        return body
    cleaned: dict[str, Any] = from_json(_CAPABILITY.sub("[capability]", text))
    return cleaned


def _verdict(workflow: Fields) -> tuple[Status, Conclusion | None]:
    status, conclusion = workflow.values.get("status"), workflow.values.get("conclusion")
    if not isinstance(status, str) or status not in _STATUSES:
        workflow.unknown_word("status", status, _STATUSES)
    if status == Status.IN_PROGRESS:
        if conclusion not in (None, ""):
            workflow.notes.append(
                f"workflow.conclusion was ignored, because the job has not ended: {shown(conclusion)}"
            )
        return Status.IN_PROGRESS, None
    if isinstance(conclusion, str) and conclusion in _CONCLUSIONS:
        return Status.COMPLETED, Conclusion(conclusion)
    if conclusion not in (None, ""):
        workflow.unknown_word("conclusion", conclusion, _CONCLUSIONS)
    elif status == Status.COMPLETED:
        workflow.fault(
            "conclusion",
            f"is required when status is completed: one of {', '.join(_CONCLUSIONS)}",
            "Send how the job ended, for example from `needs.<job>.result`.",
        )
    # The pair is only returned so that the other fields can still be read: a fault has been noted.
    return Status.IN_PROGRESS, None


def _check_schema_version(workflow: Fields) -> None:
    version = workflow.values.get("schema_version", "1")
    if isinstance(version, bool) or not isinstance(version, str | int | float | None):
        workflow.fault("schema_version", f"must be a string or a number, got {shown(version)}", 'Send "1".')
    elif version is not None and str(version) not in _SCHEMA_VERSIONS:
        workflow.notes.append(f"workflow.schema_version {shown(version)} is not known here; read as version 1")


def _check_addressed(top: Fields, event_type: str, delivery_id: str, commit: str | None) -> None:
    """Without a capability something else must say what the report is about."""
    if event_type in SELF_REPORTED_EVENTS:
        if commit is None:
            top.fault(
                "payload.head_sha",
                "none of payload.head_sha, payload.after and delivery_id is a commit id of 40 hexadecimal digits",
                "Send the upstream commit that was tested as payload.head_sha.",
            )
    elif not delivery_id:
        top.fault("delivery_id", "is required", "Send the client_payload as received.")


def _commit(payload: Mapping[str, Any], delivery_id: str) -> str | None:
    for value in (payload.get("head_sha"), payload.get("after"), delivery_id):
        if isinstance(value, str) and _COMMIT.fullmatch(lower := value.strip().lower()):
            return lower
    return None


def _combination(stated: Fields) -> Combination:
    environment: dict[str, str] = {}
    inner = stated.inner("environment")
    if len(inner.values) > _MOST_ENVIRONMENT:
        stated.fault("environment", f"may have at most {_MOST_ENVIRONMENT} keys, got {len(inner.values)}")
        return Combination()
    for name in inner.values:
        value = inner.values[name]
        if isinstance(value, float):
            # 3.10 and 3.1 are the same number and not the same Python.
            inner.fault(name, f"must be a string, got the number {value}", f'Quote it: "{value}".')
        elif (text := inner.identity(name)) is not None:
            environment[cut(name, 100)] = text
    return Combination(
        backend_version=stated.identity("backend_version"),
        suite_version=stated.identity("suite_version"),
        environment=MappingProxyType(environment),
    )


def _echo(payload: Mapping[str, Any]) -> Echo:
    pull_request = _object(payload.get("pull_request"))
    shas = (
        _object(pull_request.get("head")).get("sha"),
        _object(payload.get("merge_group")).get("head_sha"),
        payload.get("after"),
        payload.get("head_sha"),
    )
    sha = next((value for value in shas if isinstance(value, str) and value), None)
    number = next((n for n in (pull_request.get("number"), payload.get("number")) if type(n) is int), None)
    labels = pull_request.get("labels")
    names = [_object(label).get("name") for label in labels[:_MOST_LABELS]] if isinstance(labels, list) else []
    return Echo(
        None if sha is None else cut(sha, 64), number, tuple(cut(name, 100) for name in names if isinstance(name, str))
    )


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _fingerprint(workflow: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(workflow, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
