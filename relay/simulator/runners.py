"""Workflow runs: what a dispatch starts, how its jobs go, and how they are run again.

https://docs.github.com/en/actions/reference/workflows-and-actions/events-that-trigger-workflows#repository_dispatch
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from relay.simulator import reporting
from relay.simulator.exchange import Refused
from relay.simulator.listener import JobPlan, Listener, Mode, Reports
from relay.simulator.model import Attempt, Job, Json, Repository, Run

if TYPE_CHECKING:
    from relay.simulator.world import World

#: A run can be re-run for 30 days and at most 50 times.
#: https://docs.github.com/en/actions/how-tos/manage-workflow-runs/re-run-workflows-and-jobs
RERUN_WITHIN = timedelta(days=30)
RERUNS_AT_MOST = 50
#: At most 500 runs may be queued in 10 seconds per repository; what comes on top starts no run.
#: https://docs.github.com/en/actions/reference/limits
QUEUED_AT_MOST, QUEUED_WITHIN = 500, 10.0
#: The worst job decides the run.
_WORST_FIRST = ("failure", "timed_out", "cancelled", "action_required", "success", "neutral", "skipped")


class Runners:
    """Starts runs and carries their jobs out, at most ``processes`` reporting scripts at once. On the event loop."""

    def __init__(self, world: World, processes: int = 2) -> None:
        self._world = world
        self._tasks: dict[int, set[asyncio.Task[None]]] = {}
        self.processes = asyncio.Semaphore(processes)
        self.step = reporting.Step(world)
        self.overflowed = 0
        #: While False, runs stay queued: no runner is free.
        self.free = True
        self._waiting: list[tuple[Run, Attempt]] = []

    def dispatched(self, repository: Repository, event_type: str, client_payload: Json) -> Run | None:
        """Start the run that a dispatch asks for; None where no workflow listens to its type."""
        listener = repository.listener
        if listener is None or not listener.hears(event_type):
            return None
        now = self._world.seconds()
        if len(repository.queued_at) >= QUEUED_AT_MOST:
            repository.queued_at = [at for at in repository.queued_at if now - at < QUEUED_WITHIN]
            if len(repository.queued_at) >= QUEUED_AT_MOST:
                self.overflowed += 1
                return None
        repository.queued_at.append(now)
        run = self._run(repository, listener, listener.workflow_path, event_type, client_payload)
        self._attempt(run, [self._job(plan) for plan in listener.plan(client_payload)], [])
        for path in listener.more_paths:
            self._attempt(self._run(repository, listener, path, event_type, client_payload), [], [])
        return run

    def _run(self, repository: Repository, listener: Listener, path: str, event_type: str, client_payload: Json) -> Run:
        """A new run of a workflow file. One without ``run-name`` bears the name of what started it.

        https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-syntax#run-name
        """
        run = Run(
            id=self._world.next_id("run"),
            number=len(repository.runs) + 1,
            repository=repository,
            name=f"crcr {client_payload.get('delivery_id', '')}" if listener.named_runs else event_type,
            event_type=event_type,
            client_payload=client_payload,
            head_sha=repository.refs[f"refs/heads/{repository.default_branch}"],
            created_at=self._world.now(),
            attempts=[],
            path=path,
        )
        repository.runs[run.id] = run
        return run

    def rerun(self, run: Run, *, only_failed: bool) -> None:
        """Run a run again, whole or what failed. Raises Refused (403) while it runs, after 30 days, past 50 times.

        https://docs.github.com/en/rest/actions/workflow-runs#re-run-a-workflow
        """
        if run.status != "completed":
            raise Refused(403, "This workflow is already running")
        if self._world.now() - run.created_at > RERUN_WITHIN:
            raise Refused(403, "Unable to re-run this workflow run because it was created over a month ago")
        if len(run.attempts) > RERUNS_AT_MOST:
            raise Refused(403, "Unable to re-run this workflow run because it has been re-run too many times")
        again = [job for job in run.jobs if not only_failed or job.conclusion not in {"success", "skipped", "neutral"}]
        if not again:
            raise Refused(403, "This workflow run cannot be retried: it has no failed jobs")
        carried = [job for job in run.jobs if job not in again]
        self._attempt(run, [self._job(job.plan) for job in again], carried)

    def cancel(self, run: Run) -> None:
        """Cancel a run. Raises Refused (409) when it is over.

        https://docs.github.com/en/rest/actions/workflow-runs#cancel-a-workflow-run
        """
        if run.status == "completed":
            raise Refused(409, "Cannot cancel a workflow run that is completed.")
        for task in self._tasks.get(run.id, set()):
            task.cancel()
        attempt = run.attempts[-1]
        for job in attempt.jobs:
            if job.status != "completed":
                self._end(job, "cancelled")
        self._conclude(attempt)

    def release(self) -> None:
        """Runners are free again: start what waited."""
        self.free = True
        waiting, self._waiting = self._waiting, []
        for run, attempt in waiting:
            if attempt.status != "completed":
                self._start(run, attempt)

    def _job(self, plan: JobPlan) -> Job:
        world = self._world
        return Job(
            id=world.next_id("check_run"),
            name=plan.name or "default",
            plan=plan,
            request_token=world.secret(),
            created_at=world.now(),
        )

    def _attempt(self, run: Run, jobs: list[Job], carried: list[Job]) -> None:
        attempt = Attempt(len(run.attempts) + 1, self._world.now(), jobs, carried)
        run.attempts.append(attempt)
        if not jobs:
            # Every job was left out by its condition: the run is over and counts as skipped.
            self._conclude(attempt)
        elif self.free:
            self._start(run, attempt)
        else:
            self._waiting.append((run, attempt))

    def _start(self, run: Run, attempt: Attempt) -> None:
        tasks = self._tasks.setdefault(run.id, set())
        for job in attempt.jobs:
            task = asyncio.get_running_loop().create_task(self._work(run, attempt, job))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _work(self, run: Run, attempt: Attempt, job: Job) -> None:
        plan, listener = job.plan, run.repository.listener
        if plan.delay:
            await asyncio.sleep(plan.delay)
        job.status, job.started_at, attempt.status = "in_progress", self._world.now(), "in_progress"
        mode = listener.mode if listener else Mode.DIRECT
        if plan.reports in {Reports.BOTH, Reports.DIES}:
            await self._report(run, attempt, job, "in_progress", mode)
        if plan.duration:
            await asyncio.sleep(plan.duration)
        if plan.reports in {Reports.BOTH, Reports.COMPLETED}:
            await self._report(run, attempt, job, "completed", mode)
        # A runner that is lost takes its job down with it: GitHub shows the job as failed.
        self._end(job, "failure" if plan.reports is Reports.DIES else plan.concludes(attempt.number))
        if all(other.status == "completed" for other in attempt.jobs):
            self._conclude(attempt)

    async def _report(self, run: Run, attempt: Attempt, job: Job, status: str, mode: Mode) -> None:
        if mode is Mode.PROCESS:
            async with self.processes:
                outcome = await self.step.in_process(run, attempt, job, status)
        else:
            outcome = await self.step.direct(run, attempt, job, status)
        job.reports.append(outcome)

    def _end(self, job: Job, conclusion: str) -> None:
        job.status, job.conclusion, job.completed_at = "completed", conclusion, self._world.now()

    def _conclude(self, attempt: Attempt) -> None:
        conclusions = {job.conclusion for job in [*attempt.jobs, *attempt.carried]}
        attempt.status, attempt.completed_at = "completed", self._world.now()
        attempt.conclusion = next((name for name in _WORST_FIRST if name in conclusions), "skipped")

    async def close(self) -> None:
        """Stop every job that is under way."""
        tasks = [task for group in self._tasks.values() for task in group]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.step.close()
