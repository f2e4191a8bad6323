"""Workflow runs, their attempts and jobs, re-runs and cancelling.

https://docs.github.com/en/rest/actions/workflow-runs and https://docs.github.com/en/rest/actions/workflow-jobs
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import takewhile
from typing import TYPE_CHECKING

from relay.simulator import payloads
from relay.simulator.exchange import Answer, Call, Refused, Route, paged
from relay.simulator.model import Attempt, Job, Json, Run

if TYPE_CHECKING:
    from relay.simulator.world import World

#: "This endpoint will return up to 1,000 results for each search" when it filters.
#: https://docs.github.com/en/rest/actions/workflow-runs#list-workflow-runs-for-a-repository
SEARCH_RESULTS = 1000


def _run_json(world: World, run: Run, attempt: Attempt) -> Json:
    repository = run.repository
    url = f"{world.url}/repos/{repository.full_name}/actions/runs/{run.id}"
    listener = repository.listener
    return {
        "id": run.id,
        "name": listener.workflow if listener else "backend-ci",
        "node_id": f"WFR_{run.id}",
        "head_branch": repository.default_branch,
        "head_sha": run.head_sha,
        "path": run.path,
        "display_title": run.name,
        "run_number": run.number,
        "run_attempt": attempt.number,
        "event": "repository_dispatch",
        "status": attempt.status,
        "conclusion": attempt.conclusion,
        "workflow_id": repository.id,
        "url": url,
        "html_url": f"{world.url}/{repository.full_name}/actions/runs/{run.id}",
        "pull_requests": [],
        "created_at": payloads.stamp(run.created_at),
        "updated_at": payloads.stamp(attempt.completed_at or attempt.started_at),
        "run_started_at": payloads.stamp(attempt.started_at),
        "actor": payloads.user(world, repository.owner),
        "triggering_actor": payloads.user(world, repository.owner),
        "jobs_url": f"{url}/jobs",
        "logs_url": f"{url}/logs",
        "cancel_url": f"{url}/cancel",
        "rerun_url": f"{url}/rerun",
        "repository": payloads.repository_brief(repository),
        "head_repository": payloads.repository_brief(repository),
    }


def _job_json(world: World, run: Run, attempt: Attempt, job: Job) -> Json:
    base = f"{world.url}/repos/{run.repository.full_name}"
    return {
        "id": job.id,
        "run_id": run.id,
        "run_url": f"{base}/actions/runs/{run.id}",
        "run_attempt": attempt.number,
        "node_id": f"CR_{job.id}",
        "head_sha": run.head_sha,
        "head_branch": run.repository.default_branch,
        "url": f"{base}/actions/jobs/{job.id}",
        "html_url": f"{world.url}/{run.repository.full_name}/actions/runs/{run.id}/job/{job.id}",
        "status": job.status,
        "conclusion": job.conclusion,
        "created_at": payloads.stamp(job.created_at),
        "started_at": payloads.stamp(job.started_at),
        "completed_at": payloads.stamp(job.completed_at),
        "name": job.name,
        "steps": [],
        "check_run_url": f"{base}/check-runs/{job.id}",
        "labels": ["ubuntu-latest"],
        "runner_id": None if job.started_at is None else 1,
        "runner_name": None if job.started_at is None else "simulator",
        "workflow_name": run.name,
    }


def _find(call: Call) -> Run:
    text = call.params["run"]
    found = call.repo.runs.get(int(text)) if text.isdigit() and len(text) < 19 else None
    if found is None:
        raise Refused(404, "Not Found")
    return found


def _attempt(call: Call, run: Run) -> Attempt:
    text = call.params["attempt"]
    number = int(text) if text.isdigit() and len(text) < 9 else 0
    if not 1 <= number <= len(run.attempts):
        raise Refused(404, "Not Found")
    return run.attempts[number - 1]


def _list(world: World, call: Call) -> Answer:
    query = call.query
    runs = list(reversed(call.repo.runs.values()))
    if "event" in query and query["event"] != "repository_dispatch":
        runs = []
    if "status" in query:
        runs = [run for run in runs if query["status"] in {run.status, run.conclusion}]
    if "head_sha" in query:
        runs = [run for run in runs if run.head_sha == query["head_sha"]]
    if "created" in query:
        first, last = _range(query["created"])
        # The newest come first, so that those of a week need not all be looked at for those of a minute.
        runs = list(takewhile(lambda run: run.created_at.replace(microsecond=0) >= first, runs))
        runs = [run for run in runs if run.created_at.replace(microsecond=0) <= last]
    if set(query) & {"actor", "branch", "check_suite_id", "created", "event", "head_sha", "status"}:
        runs = runs[:SEARCH_RESULTS]
    return paged(
        call, runs, key="workflow_runs", url=world.url, shown=lambda run: _run_json(world, run, run.attempts[-1])
    )


def _range(text: str) -> tuple[datetime, datetime]:
    """https://docs.github.com/en/search-github/getting-started-with-searching-on-github/understanding-the-search-syntax#query-for-dates"""
    least, most = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    try:
        if ".." in text:
            first, _, last = text.partition("..")
            return (least if first == "*" else _time(first), most if last == "*" else _time(last))
        if text.startswith((">=", ">")):
            return _time(text.lstrip(">=")), most
        if text.startswith(("<=", "<")):
            return least, _time(text.lstrip("<="))
        day = _time(text)
        return day, day.replace(hour=23, minute=59, second=59)
    except ValueError as error:
        raise Refused(422, f"{text!r} is not a range of dates") from error


def _time(text: str) -> datetime:
    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def _get(world: World, call: Call) -> Answer:
    run = _find(call)
    return Answer(200, _run_json(world, run, run.attempts[-1]))


def _get_attempt(world: World, call: Call) -> Answer:
    run = _find(call)
    return Answer(200, _run_json(world, run, _attempt(call, run)))


def _attempt_jobs(world: World, call: Call) -> Answer:
    run = _find(call)
    attempt = _attempt(call, run)
    items = [_job_json(world, run, attempt, job) for job in [*attempt.carried, *attempt.jobs]]
    return paged(call, items, key="jobs", url=world.url)


def _jobs(world: World, call: Call) -> Answer:
    run = _find(call)
    wanted = run.attempts if call.query.get("filter") == "all" else run.attempts[-1:]
    items = [
        _job_json(world, run, attempt, job)
        for attempt in wanted
        for job in (attempt.jobs if len(wanted) > 1 else [*attempt.carried, *attempt.jobs])
    ]
    return paged(call, items, key="jobs", url=world.url)


def _job(world: World, call: Call) -> Answer:
    for run in call.repo.runs.values():
        for attempt in run.attempts:
            for job in attempt.jobs:
                if str(job.id) == call.params["job"]:
                    return Answer(200, _job_json(world, run, attempt, job))
    raise Refused(404, "Not Found")


def _rerun(world: World, call: Call) -> Answer:
    world.runners.rerun(_find(call), only_failed=False)
    return Answer(201, {}, effect=True)


def _rerun_failed(world: World, call: Call) -> Answer:
    world.runners.rerun(_find(call), only_failed=True)
    return Answer(201, {}, effect=True)


def _cancel(world: World, call: Call) -> Answer:
    world.runners.cancel(_find(call))
    return Answer(202, {}, effect=True)


_RUN = "/repo/actions/runs/{run}"
ROUTES = [
    Route("GET", "/repo/actions/runs", _list, needs=("actions", "read")),
    Route("GET", _RUN, _get, needs=("actions", "read")),
    Route("GET", f"{_RUN}/jobs", _jobs, needs=("actions", "read")),
    Route("GET", f"{_RUN}/attempts/{{attempt}}", _get_attempt, needs=("actions", "read")),
    Route("GET", f"{_RUN}/attempts/{{attempt}}/jobs", _attempt_jobs, needs=("actions", "read")),
    Route("GET", "/repo/actions/jobs/{job}", _job, needs=("actions", "read")),
    Route("POST", f"{_RUN}/rerun", _rerun, needs=("actions", "write")),
    Route("POST", f"{_RUN}/rerun-failed-jobs", _rerun_failed, needs=("actions", "write")),
    Route("POST", f"{_RUN}/cancel", _cancel, needs=("actions", "write")),
]
