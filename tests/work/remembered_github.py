"""A GitHub that remembers the checks written to it, and each state they were in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from allowlist.model import RepoName
from relay.github.errors import GitHubError, Invalid
from relay.github.observed import FoundRun, JobObserved, PullObserved, Rerunning, Role, RunObserved
from relay.github.port import Address, ChangedPaths, CheckRunFound, CheckRunWrite, FileVersion, Located

UPSTREAM = RepoName.parse("up/stream")
S1 = "1" * 40


@dataclass
class Run:
    """A check run at GitHub, and every state it was in."""

    id: int
    states: list[CheckRunWrite] = field(default_factory=list)

    @property
    def now(self) -> CheckRunWrite:
        """What it shows."""
        return self.states[-1]


class RememberedGitHub:
    """The checks part of the port. Refuses what GitHub refuses: a text too long, a check run that is not there."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.faults: list[tuple[str, GitHubError]] = []
        self._late: list[CheckRunWrite] = []
        self.calls: list[str] = []
        self.attempts: dict[tuple[str, int], RunObserved] = {}
        self.jobs: dict[tuple[str, int], tuple[JobObserved, ...]] = {}

    def shows(
        self,
        conclusion: str | None,
        *,
        run: str = "100",
        attempt: int = 1,
        title: str = "ci",
        at: datetime,
        path: str = ".github/workflows/crcr.yml",
        **jobs: str,
    ) -> None:
        """Let a run attempt of a backend stand so; ``jobs`` gives the conclusions of jobs by ``j`` and their ids."""
        status = "in_progress" if conclusion is None else "completed"
        etag = f"{run} {attempt} {conclusion} {sorted(jobs.items())}"
        self.attempts[run, attempt] = RunObserved(
            run, attempt, status, conclusion, path, "repository_dispatch", S1, title, at, at, etag
        )
        self.jobs[run, attempt] = tuple(
            JobObserved(int(name[1:]), "build", "completed", ended, at, at) for name, ended in jobs.items()
        )

    def showing(self, name: str, head_sha: str = S1) -> CheckRunWrite:
        """Of one name the newest run shows."""
        return [run.now for run in self.runs if run.now.name == name and run.now.head_sha == head_sha][-1]

    def named(self, name: str) -> list[Run]:
        """All runs of this name, oldest first."""
        return [run for run in self.runs if run.now.name == name]

    @property
    def writes(self) -> int:
        """How many writes GitHub took."""
        return sum(len(run.states) for run in self.runs)

    def _fault(self, when: str) -> None:
        if self.faults and self.faults[0][0] == when:
            raise self.faults.pop(0)[1]

    async def create_check_run(self, on: Address, check: CheckRunWrite) -> int:
        """Take a new run; a fault ``after create`` takes it and does not say so, ``late create`` takes it later."""
        self.calls.append(f"create {check.name}")
        self._fault("before create")
        self._check(on, check)
        if self.faults and self.faults[0][0] == "late create":
            self._late.append(check)
        self._fault("late create")
        self.runs.append(Run(1000 + len(self.runs), [check]))
        self._fault("after create")
        return self.runs[-1].id

    def catch_up(self) -> None:
        """Take the effect of what was answered before it had one."""
        self.runs += [Run(1000 + len(self.runs) + number, [check]) for number, check in enumerate(self._late)]
        self._late.clear()

    async def update_check_run(self, on: Address, check_run_id: int, check: CheckRunWrite) -> None:
        """Replace what a run shows."""
        self.calls.append(f"update {check.name}")
        self._fault("before update")
        self._check(on, check)
        (run,) = [run for run in self.runs if run.id == check_run_id]
        run.states.append(check)
        self._fault("after update")

    async def find_check_runs(
        self, on: Address, head_sha: str, name: str, external_id: str
    ) -> tuple[CheckRunFound, ...]:
        """The runs of this name, commit and external id, the newest first."""
        self.calls.append(f"find {name}")
        self._fault("before find")
        assert UPSTREAM == on.repo
        wanted = (head_sha, name, external_id)
        mine = [run for run in self.runs if (run.now.head_sha, run.now.name, run.now.external_id) == wanted]
        return tuple(CheckRunFound(run.id, run.now.status, run.now.conclusion) for run in reversed(mine))

    @staticmethod
    def _check(on: Address, check: CheckRunWrite) -> None:
        assert UPSTREAM == on.repo
        assert len(check.summary) <= 65_535
        assert len(check.text) <= 65_535
        assert check.title

    async def locate(self, at: Address, *, fresh: bool = False) -> Located:
        """Not asked for by checks."""
        raise AssertionError(f"checks do not locate {at}: {fresh}")

    async def dispatch(self, to: Address, event_type: str, client_payload: bytes) -> Located:
        """Not asked for by checks."""
        raise AssertionError(f"checks do not dispatch {event_type} to {to}: {len(client_payload)} bytes")

    async def find_run(self, of: Address, delivery_id: str, since: datetime) -> bool | None:
        """Not asked for by checks."""
        raise AssertionError(f"checks do not look for runs of {of}: {delivery_id} {since}")

    async def changed_paths(self, of: Address, number: int) -> ChangedPaths:
        """Not asked for by checks."""
        raise AssertionError(f"checks do not read the paths of {of} {number}")

    async def compare_paths(self, of: Address, base: str, head: str) -> ChangedPaths:
        """Not asked for by checks."""
        raise AssertionError(f"checks do not compare {of} {base} {head}")

    async def read_file(self, of: Address, path: str, ref: str | None, etag: str | None) -> FileVersion | None:
        """Not asked for by checks."""
        raise AssertionError(f"checks do not read {of} {path} {ref} {etag}")

    async def contains_commit(self, of: Address, sha: str, branches: Sequence[str] = ()) -> bool:
        """Not asked for by checks."""
        raise AssertionError(f"checks do not look for {sha} in {of} {branches}")

    async def tree_of(self, at: Address, sha: str) -> str:
        """Not asked for by checks."""
        raise AssertionError(f"checks do not ask for the tree of {sha} in {at}")

    async def role_of(self, at: Address, login: str) -> Role:
        """Not asked for by checks."""
        raise AssertionError(f"checks do not ask for roles in {at}: {login}")

    async def create_comment(self, on: Address, number: int, body: str) -> int:
        """Not asked for by checks."""
        raise AssertionError(f"checks do not comment on {on} {number}: {body}")

    async def update_comment(self, on: Address, comment_id: int, body: str) -> None:
        """Not asked for by checks."""
        raise AssertionError(f"checks do not change comments of {on} {comment_id}: {body}")

    async def find_comment(self, on: Address, number: int, marker: str, since: datetime | None = None) -> int | None:
        """Not asked for by checks."""
        raise AssertionError(f"checks do not look for comments of {on} {number}: {marker} {since}")

    async def pull(self, at: Address, number: int) -> PullObserved:
        """Not asked for by checks."""
        raise AssertionError(f"checks do not look at {at} {number}")

    async def pulls_of_commit(self, at: Address, sha: str) -> tuple[int, ...]:
        """Not asked for by checks."""
        raise AssertionError(f"checks do not ask whose head {sha} is in {at}")

    async def find_runs(self, at: Address, since: datetime, event: str = "") -> tuple[FoundRun, ...]:
        """The newest attempts of the runs that were shown."""
        self.calls.append("find runs")
        self._fault("before find runs")
        newest = {run.run_id: run for run in sorted(self.attempts.values(), key=lambda run: run.run_attempt)}
        return tuple(
            FoundRun(run.run_id, run.title, run.status, run.conclusion, run.run_attempt, run.path, run.created_at)
            for run in newest.values()
            if run.created_at >= since
        )

    async def observe_run(self, at: Address, run_id: str, attempt: int, etag: str | None) -> RunObserved | None:
        """The attempt as it is shown; a run that was never shown is gone."""
        self.calls.append(f"observe {run_id} {attempt}")
        self._fault("before observe")
        shown = self.attempts.get((run_id, attempt))
        if shown is None:
            raise Invalid(f"there is no attempt {attempt} of the run {run_id}", reason="not_found", status=404)
        return None if etag == shown.etag else shown

    async def observe_jobs(self, at: Address, run_id: str, attempt: int) -> tuple[JobObserved, ...]:
        """The jobs that were shown."""
        self.calls.append(f"jobs {run_id} {attempt}")
        self._fault("before jobs")
        return self.jobs[run_id, attempt]

    async def rerun_run(self, at: Address, run_id: str) -> Rerunning:
        """Not asked for by checks."""
        raise AssertionError(f"checks do not rerun {run_id} of {at}")

    async def rerun_failed_jobs(self, at: Address, run_id: str) -> Rerunning:
        """Not asked for by checks."""
        raise AssertionError(f"checks do not rerun {run_id} of {at}")

    async def cancel_run(self, at: Address, run_id: str) -> bool:
        """Not asked for by checks."""
        raise AssertionError(f"checks do not cancel {run_id} of {at}")

    async def aclose(self) -> None:
        """Nothing to close."""
