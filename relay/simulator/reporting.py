"""A job's reporting step: the real script in a process with a runner's environment, or the same body sent directly.

https://docs.github.com/en/actions/reference/workflows-and-actions/variables
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

import httpx2

import relay
from relay.simulator import payloads
from relay.simulator.keys import plain_http
from relay.simulator.listener import JobPlan
from relay.simulator.log import SentCallback
from relay.simulator.model import Attempt, Job, Json, Run, StepOutcome

if TYPE_CHECKING:
    from relay.simulator.world import World

#: The script that backends run, as it lies beside the relay in a checkout and in an installed distribution alike.
REPORT_SCRIPT = Path(relay.__file__).parent.parent / "callback_action" / "report.py"
#: A reporting step that hangs is ended as a failed one.
STEP_SECONDS = 60.0
#: How often a direct report is sent when it cannot be taken, unless a scenario sets ``tries``; the waits between double
#: up to a second. The script tries for longer, and so it should where the receiver is to be away for longer.
DIRECT_TRIES = 3
LONGEST_WAIT = 1.0


def junit_xml(plan: JobPlan) -> str:
    """The JUnit file that the plan's tests would leave."""
    cases = [f'<testcase classname="suite" name="test_{number}" time="0.01"/>' for number in range(plan.passed)]
    cases += [
        f'<testcase classname="suite" name="test_skipped_{number}"><skipped/></testcase>'
        for number in range(plan.skipped)
    ]
    for classname, name, message in plan.failed_tests:
        cases.append(
            f'<testcase classname={quoteattr(classname)} name={quoteattr(name)} time="0.41">'
            f"<failure message={quoteattr(message)}>Traceback (most recent call last)</failure></testcase>"
        )
    total = plan.passed + plan.skipped + len(plan.failed_tests)
    head = f'<testsuite name="suite" tests="{total}" failures="{len(plan.failed_tests)}" skipped="{plan.skipped}">'
    return f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites>{head}{"".join(cases)}</testsuite></testsuites>\n'


class Step:
    """Runs reporting steps for the jobs of backends."""

    def __init__(self, world: World, script: Path = REPORT_SCRIPT) -> None:
        self._world = world
        self.script = script
        self.tries = DIRECT_TRIES
        self._client: httpx2.AsyncClient | None = None
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    async def in_process(self, run: Run, attempt: Attempt, job: Job, status: str) -> StepOutcome:
        """Execute the script as a runner would, and keep its exit code and output."""
        return await asyncio.to_thread(self._execute, run, attempt, job, status)

    def _execute(self, run: Run, attempt: Attempt, job: Job, status: str) -> StepOutcome:
        with tempfile.TemporaryDirectory(prefix="crcr-runner-") as folder:
            place = Path(folder)
            environment = self.environment(run, attempt, job, status, place)
            with subprocess.Popen(
                [sys.executable, "-I", str(self.script)],
                env=environment,
                cwd=place,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            ) as process:
                self._running.add(process)
                if self._closed:
                    process.kill()
                try:
                    said, _ = process.communicate(timeout=STEP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    return StepOutcome(status, 124, f"the step was ended after {STEP_SECONDS:g} s")
                finally:
                    self._running.discard(process)
            summary = (place / "summary.md").read_text("utf-8", "replace")
            output = said.decode("utf-8", "replace")
            return StepOutcome(status, process.returncode, output + (f"\n--- summary\n{summary}" if summary else ""))

    def environment(self, run: Run, attempt: Attempt, job: Job, status: str, place: Path) -> dict[str, str]:
        """A runner's environment for one step, with the files it names made in ``place``."""
        repository, plan, url = run.repository, job.plan, self._world.url
        event = place / "event.json"
        whole = {
            "action": run.event_type,
            "branch": repository.default_branch,
            "client_payload": run.client_payload,
            "repository": payloads.repository(self._world, repository),
            "sender": payloads.user(self._world, repository.owner),
        }
        event.write_text(json.dumps(whole), encoding="utf-8")
        for name in ("output", "summary.md", "state", "env", "path"):
            (place / name).touch()
        conclusion = plan.concludes(attempt.number)
        junit = ""
        if status == "completed" and (plan.passed or plan.skipped or plan.failed_tests):
            failed = plan.failed_tests if conclusion != "success" else ()
            results = place / "results" / "junit.xml"
            results.parent.mkdir()
            results.write_text(junit_xml(_with_failures(plan, failed)), encoding="utf-8")
            junit = "results/*.xml"
        listener = repository.listener
        inputs = {
            "STATUS": status,
            "CONCLUSION": conclusion if status == "completed" else "",
            "JOB_NAME": plan.name or "",
            "BACKEND_VERSION": plan.backend_version or "",
            "SUITE_VERSION": plan.suite_version or "",
            "ENVIRONMENT": json.dumps(dict(plan.environment)) if plan.environment else "",
            "JUNIT": junit,
            "EXPECTED_JOBS": str(listener.expected_jobs) if listener and listener.expected_jobs else "",
            "ARTIFACT_URL": plan.artifact_url or "",
            "CALLBACK_URL": self._world.callback_url or "",
            "FAIL_ON_ERROR": "false",
            "AUDIENCE": listener.audience if listener else "",
            **plan.inputs,
        }
        workflow = listener.workflow if listener else "backend-ci"
        path = listener.workflow_path if listener else ".github/workflows/crcr.yml"
        ref = f"refs/heads/{repository.default_branch}"
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(place),
            "LANG": "C.UTF-8",
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION": "report",
            "GITHUB_ACTION_PATH": str(self.script.parent),
            "GITHUB_ACTOR": repository.owner.login,
            "GITHUB_API_URL": url,
            "GITHUB_BASE_REF": "",
            "GITHUB_ENV": str(place / "env"),
            "GITHUB_EVENT_NAME": "repository_dispatch",
            "GITHUB_EVENT_PATH": str(event),
            "GITHUB_HEAD_REF": "",
            "GITHUB_JOB": "report",
            "GITHUB_OUTPUT": str(place / "output"),
            "GITHUB_PATH": str(place / "path"),
            "GITHUB_REF": ref,
            "GITHUB_REF_NAME": repository.default_branch,
            "GITHUB_REF_TYPE": "branch",
            "GITHUB_REPOSITORY": repository.full_name,
            "GITHUB_REPOSITORY_ID": str(repository.id),
            "GITHUB_REPOSITORY_OWNER": repository.owner.login,
            "GITHUB_REPOSITORY_OWNER_ID": str(repository.owner.id),
            "GITHUB_RUN_ATTEMPT": str(attempt.number),
            "GITHUB_RUN_ID": str(run.id),
            "GITHUB_RUN_NUMBER": str(run.number),
            "GITHUB_SERVER_URL": url,
            "GITHUB_SHA": run.head_sha,
            "GITHUB_STATE": str(place / "state"),
            "GITHUB_STEP_SUMMARY": str(place / "summary.md"),
            "GITHUB_WORKFLOW": workflow,
            "GITHUB_WORKFLOW_REF": f"{repository.full_name}/{path}@{ref}",
            "GITHUB_WORKFLOW_SHA": run.head_sha,
            "GITHUB_WORKSPACE": str(place),
            "RUNNER_ARCH": "X64",
            "RUNNER_ENVIRONMENT": "github-hosted",
            "RUNNER_NAME": "simulator",
            "RUNNER_OS": "Linux",
            "RUNNER_TEMP": str(place),
            "RUNNER_TOOL_CACHE": str(place),
            # https://docs.github.com/en/actions/reference/security/oidc#methods-for-requesting-the-oidc-token
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"{url}/_actions/idtoken/{run.id}?api-version=2.0",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": job.request_token,
            "CRCR_JOB_CHECK_RUN_ID": str(job.id),
            **{f"CRCR_INPUT_{name}": value for name, value in inputs.items()},
        }

    async def direct(self, run: Run, attempt: Attempt, job: Job, status: str) -> StepOutcome:
        """Send the body that the script would send, without a process. Tries again when it could not be taken."""
        conclusion = job.plan.concludes(attempt.number) if status == "completed" else None
        body = self.body(run, attempt, job, status, conclusion)
        target = self.target(run.client_payload)
        if target is None:
            return StepOutcome(status, 1, "no callback URL is known")
        outcome = StepOutcome(status, 1, "not sent")
        for number in range(self.tries):
            if number:
                await asyncio.sleep(min(0.1 * 2**number, LONGEST_WAIT))
            code, text = await self.send(target, self._token(run, attempt, job), body, run.repository.full_name)
            outcome = StepOutcome(status, 0 if code == 200 else 1, text, code or None)
            if code and code != 429 and code < 500:
                break
        return outcome

    def target(self, client_payload: Json) -> str | None:
        """Where callbacks go: what the scenario set, else what the dispatch names."""
        inner = client_payload.get("relay")
        named = inner.get("callback_url") if isinstance(inner, dict) else None
        return self._world.callback_url or (str(named) if named else None)

    async def send(self, url: str, token: str, body: Json, backend: str) -> tuple[int, str]:
        """Post one callback and note it: the status and the text of the answer; status 0 where none came."""
        began = self._world.now()
        status, text = await self._post(url, token, body)
        self._world.callbacks.append(_sent(body, backend, status, began, self._world.now()))
        return status, text

    async def _post(self, url: str, token: str, body: Json) -> tuple[int, str]:
        if self._client is None:
            self._client = httpx2.AsyncClient(trust_env=False, verify=plain_http(), timeout=30.0)
        headers = {"authorization": f"Bearer {token}"}
        try:
            answer = await self._client.post(url, json=body, headers=headers)
        except Exception as error:  # noqa: BLE001 (a peer that is killed right after it accepted makes anyio stumble)
            return 0, str(error)
        return answer.status_code, answer.text

    def body(self, run: Run, attempt: Attempt, job: Job, status: str, conclusion: str | None) -> Json:
        """The callback of one job: the client payload as received, and ``workflow``."""
        plan, listener = job.plan, run.repository.listener
        workflow: Json = {
            "schema_version": "1",
            "status": status,
            "conclusion": conclusion,
            "name": listener.workflow if listener else "backend-ci",
            "url": f"{self._world.url}/{run.repository.full_name}/actions/runs/{run.id}",
            "run_id": str(run.id),
            "run_attempt": str(attempt.number),
            "job_name": job.name,
            "check_run_id": str(job.id),
            "started_at": payloads.stamp(job.started_at),
            "completed_at": payloads.stamp(self._world.now()) if status == "completed" else None,
        }
        combination: Json = {
            "backend_version": plan.backend_version,
            "suite_version": plan.suite_version,
            "environment": dict(plan.environment),
        }
        if any(combination.values()):
            workflow["combination"] = {name: value for name, value in combination.items() if value}
        if listener is not None and listener.expected_jobs:
            workflow["expected_jobs"] = listener.expected_jobs
        if plan.artifact_url:
            workflow["artifact_url"] = plan.artifact_url
        if status == "completed":
            workflow.update(_results(plan, conclusion))
        return {**run.client_payload, "workflow": workflow}

    def _token(self, run: Run, attempt: Attempt, job: Job) -> str:
        listener = run.repository.listener
        return self._world.oidc.mint(
            run.repository,
            run_id=run.id,
            run_attempt=attempt.number,
            audience=listener.audience if listener else "pytorch-cross-repo-ci-relay",
            claims={"check_run_id": str(job.id)},
        )

    async def close(self) -> None:
        """Close the connections, and end scripts that still try: whom they report to may be gone, and they try long."""
        self._closed = True
        for process in list(self._running):
            process.kill()
        if self._client is not None:
            await self._client.aclose()


def _sent(body: Json, backend: str, answer: int, began: datetime, ended: datetime) -> SentCallback:
    stated, inner = body.get("workflow"), body.get("relay")
    stated = stated if isinstance(stated, dict) else {}
    conclusion = stated.get("conclusion")
    return SentCallback(
        began=began,
        ended=ended,
        backend=backend,
        token=str(inner.get("token", "")) if isinstance(inner, dict) else "",
        delivery_id=str(body.get("delivery_id", "")),
        run_id=str(stated.get("run_id", "")),
        attempt=str(stated.get("run_attempt", "")),
        job=str(stated.get("job_name", "")),
        check_run_id=str(stated.get("check_run_id", "")),
        status=str(stated.get("status", "")),
        conclusion=None if conclusion is None else str(conclusion),
        answer=answer,
    )


def _with_failures(plan: JobPlan, failed: tuple[tuple[str, str, str], ...]) -> JobPlan:
    return JobPlan(passed=plan.passed, skipped=plan.skipped, failed_tests=failed)


def _results(plan: JobPlan, conclusion: str | None) -> Json:
    failed = plan.failed_tests if conclusion != "success" else ()
    counted = plan.passed + plan.skipped + len(failed)
    if not counted:
        return {}
    results: Json = {"passed": plan.passed, "failed": len(failed), "skipped": plan.skipped, "total": counted}
    tests: list[dict[str, Any]] = [
        {"name": name, "classname": classname, "message": message, "stacktrace": "", "duration": 0.41}
        for classname, name, message in failed
    ]
    return {"test_results": results, "failed_tests": tests}
