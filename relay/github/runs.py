"""Workflow runs: found by their names, observed, run again and cancelled.

A failure's words decide between "wait", "dispatch anew" and "a person must grant something", since GitHub answers 403
to all three. https://docs.github.com/rest/actions/workflow-runs
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime
from functools import partial

from relay.github import answers, calls
from relay.github.asking import Asking, read
from relay.github.errors import Forbidden, GitHubError, Invalid, RetryLater
from relay.github.observed import FoundRun, JobObserved, Rerun, Rerunning, RunObserved
from relay.github.port import Address, Located
from relay.github.wire import Call

# GitHub lists at most 1,000 runs of a search, https://docs.github.com/rest/actions/workflow-runs
_MOST_RUN_PAGES = 10
_MOST_JOB_PAGES = 10
_RUNS_ALREADY = re.compile(r"already running", re.IGNORECASE)
# What GitHub says of a run that is too old, was run too often or has nothing to repeat; no permission is called so.
_OF_THE_RUN = re.compile(r"\bre-?run|\bretr(?:y|ied)\b|\bworkflow run\b", re.IGNORECASE)
_OF_PERMISSIONS = re.compile(r"not accessible by integration|must have|permission", re.IGNORECASE)
_SETTINGS = frozenset({"archived", "suspended", "actions_disabled"})


class Runs(Asking):
    """The runs part of the port."""

    async def find_run(self, of: Address, delivery_id: str, since: datetime) -> bool | None:
        """See ``relay.github.port.GitHub.find_run``."""
        try:
            async with aclosing(self._pages(of, since, "repository_dispatch")) as pages:
                async for listed in pages:
                    if any(delivery_id in run.title for run in listed):
                        return True
        except (Forbidden, Invalid):
            # Reading Actions is optional for the app on backends, and Actions may be off.
            return None
        return False

    async def find_runs(self, at: Address, since: datetime, event: str = "repository_dispatch") -> tuple[FoundRun, ...]:
        """See ``relay.github.port.GitHub.find_runs``."""
        # A run that starts between two pages pushes another one onto the next page once more.
        found = {run.run_id: run async for listed in self._pages(at, since, event) for run in listed}
        return tuple(run for run in found.values() if run.created_at >= since)

    async def observe_run(self, at: Address, run_id: str, attempt: int, etag: str | None) -> RunObserved | None:
        """See ``relay.github.port.GitHub.observe_run``."""
        answer, _ = await self._ask(
            at,
            calls.RUNS,
            partial(calls.run_attempt, run_id=run_id, attempt=attempt, etag=etag),
            good=(304,),
            missing=f"attempt {attempt} of the run {run_id}",
        )
        if answer.status == 304:
            return None
        return read(answer, lambda body: answers.run_attempt(body, answer.headers.get("etag")), "the run")

    async def observe_jobs(self, at: Address, run_id: str, attempt: int) -> tuple[JobObserved, ...]:
        """See ``relay.github.port.GitHub.observe_jobs``."""
        found: dict[int, JobObserved] = {}
        for page in range(1, _MOST_JOB_PAGES + 1):
            answer, _ = await self._ask(
                at,
                calls.RUNS,
                partial(calls.attempt_jobs, run_id=run_id, attempt=attempt, page=page),
                missing=f"attempt {attempt} of the run {run_id}",
            )
            listed = read(answer, answers.jobs, "the run's jobs")
            found |= {job.job_id: job for job in listed}
            if len(listed) < calls.PER_PAGE:
                break
        return tuple(found.values())

    async def rerun_run(self, at: Address, run_id: str) -> Rerunning:
        """See ``relay.github.port.GitHub.rerun_run``."""
        return await self._rerun(at, run_id, partial(calls.rerun, run_id=run_id))

    async def rerun_failed_jobs(self, at: Address, run_id: str) -> Rerunning:
        """See ``relay.github.port.GitHub.rerun_failed_jobs``."""
        return await self._rerun(at, run_id, partial(calls.rerun_failed_jobs, run_id=run_id))

    async def cancel_run(self, at: Address, run_id: str) -> bool:
        """See ``relay.github.port.GitHub.cancel_run``."""
        try:
            await self._ask(
                at,
                calls.RERUNS,
                partial(calls.cancel_run, run_id=run_id),
                repeatable=False,
                missing=f"the run {run_id}",
            )
        except Invalid as error:
            # 409: it was over before, https://docs.github.com/rest/actions/workflow-runs#cancel-a-workflow-run
            if error.status == 409 or error.reason in ("not_found", "gone"):
                return False
            raise
        return True

    async def _rerun(self, at: Address, run_id: str, make: Callable[[Located], Call]) -> Rerunning:
        try:
            await self._ask(at, calls.RERUNS, make, repeatable=False, missing=f"the run {run_id}")
        except GitHubError as error:
            understood = not_run_again(error)
            if understood is None:
                raise
            return understood
        return Rerunning(Rerun.STARTED)

    async def _pages(self, of: Address, since: datetime, event: str) -> AsyncGenerator[tuple[FoundRun, ...], None]:
        """Pages of runs, newest first, until one ends before ``since``."""
        for page in range(1, _MOST_RUN_PAGES + 1):
            answer, _ = await self._ask(of, calls.RUNS, partial(calls.runs_of, event=event, page=page))
            listed = read(answer, answers.runs, "workflow runs")
            yield listed
            if len(listed) < calls.PER_PAGE or listed[-1].created_at < since:
                return


def not_run_again(error: GitHubError) -> Rerunning | None:
    """What a refused rerun means for the run; None where it is no answer about the run and the error stands.

    GitHub names the permission that a call needs on any 403, so the words are looked at, not the header.
    """
    if isinstance(error, RetryLater) or error.status is None:
        return None
    if error.status == 409 or (error.status == 403 and _RUNS_ALREADY.search(error.said)):
        return Rerunning(Rerun.RUNNING)
    if error.status in (404, 410, 422) and isinstance(error, Invalid):
        return Rerunning(Rerun.IMPOSSIBLE, error.said)
    if not isinstance(error, Forbidden) or error.reason in _SETTINGS:
        return None
    # The sentence about the permission is ours and follows GitHub's.
    said = error.said.partition(". The app's installation needs")[0]
    if _OF_THE_RUN.search(said) and not _OF_PERMISSIONS.search(said):
        return Rerunning(Rerun.IMPOSSIBLE, f"{said.rstrip('.')}.")
    return None
