"""What a backend's listener workflow does when a dispatch reaches it, described as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Reports(StrEnum):
    """Which reporting steps a job runs."""

    BOTH = "started and completed"
    COMPLETED = "completed only"
    SILENT = "none"
    DIES = "started, then the runner is lost"


class Mode(StrEnum):
    """How a job reports: by the real script in a process of its own, or by posting the same body directly."""

    PROCESS = "process"
    DIRECT = "direct"


@dataclass(frozen=True)
class JobPlan:
    """One job of the listener. Times are real seconds; ``name`` None means the relay's default name.

    ``failed_tests`` are ``(classname, name, message)``; with ``passed`` and ``skipped`` they become the JUnit file
    that the reporting step reads. A plan whose ``conclusion`` is a failure without failed tests fails before its tests.
    ``flaky_until`` gives the conclusion ``success`` from that run attempt on.
    """

    name: str | None = None
    backend_version: str | None = None
    suite_version: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    duration: float = 0.0
    conclusion: str = "success"
    passed: int = 3
    skipped: int = 0
    failed_tests: tuple[tuple[str, str, str], ...] = ()
    reports: Reports = Reports.BOTH
    flaky_until: int | None = None
    artifact_url: str | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)

    def concludes(self, attempt: int) -> str:
        """The job's conclusion at that run attempt."""
        if self.flaky_until is not None and attempt >= self.flaky_until:
            return "success"
        return self.conclusion


@dataclass(frozen=True)
class Listener:
    """The workflow on a backend's default branch.

    ``types`` are the repository_dispatch types it listens to; empty means every one. ``jobs`` is the plan, or a
    function from the client payload to one, as a matrix made from the payload would be. ``more_paths`` are further
    workflow files that listen too: each dispatch starts a run of each of them, without jobs.
    """

    jobs: tuple[JobPlan, ...] | Callable[[Mapping[str, Any]], tuple[JobPlan, ...]] = (JobPlan(),)
    types: frozenset[str] = frozenset()
    ignores_closed: bool = True
    mode: Mode = Mode.PROCESS
    workflow: str = "backend-ci"
    workflow_path: str = ".github/workflows/crcr.yml"
    more_paths: tuple[str, ...] = ()
    named_runs: bool = True
    expected_jobs: int | None = None
    audience: str = "pytorch-cross-repo-ci-relay"

    def hears(self, event_type: str) -> bool:
        """Whether a dispatch of this type starts a run."""
        return not self.types or event_type in self.types

    def plan(self, client_payload: Mapping[str, Any]) -> tuple[JobPlan, ...]:
        """The jobs that a run of this payload has; none where the workflow's ``if`` leaves ``closed`` out."""
        inner = client_payload.get("payload")
        action = inner.get("action") if isinstance(inner, dict) else None
        if self.ignores_closed and action == "closed":
            return ()
        return self.jobs(client_payload) if callable(self.jobs) else self.jobs
