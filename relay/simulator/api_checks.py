"""Check runs and check suites.

https://docs.github.com/en/rest/checks/runs and https://docs.github.com/en/rest/checks/suites
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from relay.simulator import payloads
from relay.simulator.exchange import Answer, Call, Refused, Route, invalid, paged
from relay.simulator.model import App, CheckRun, CheckSuite, Json, Repository

if TYPE_CHECKING:
    from relay.simulator.webhooks import Delivery
    from relay.simulator.world import World

#: ``stale`` is GitHub's alone to set, and ``waiting``, ``requested`` and ``pending`` are Actions' alone.
STATUSES = frozenset({"queued", "in_progress", "completed"})
CONCLUSIONS = frozenset({"action_required", "cancelled", "failure", "neutral", "success", "skipped", "timed_out"})
TEXT_CHARACTERS = 65_535
ANNOTATIONS_AT_ONCE = 50
ACTIONS_AT_MOST = 3
ACTION_CHARACTERS = {"label": 20, "description": 40, "identifier": 20}
#: https://docs.github.com/en/rest/checks/runs: of one name a suite keeps 1,000 check runs.
KEPT_OF_ONE_NAME = 1000


def _create(world: World, call: Call) -> Answer:
    repository, body = call.repo, call.mapping()
    app = _writer(call)
    _writable(repository)
    name, head_sha = body.get("name"), body.get("head_sha")
    if not isinstance(name, str) or not name:
        raise Refused(422, 'Invalid request.\n\n"name" wasn\'t supplied.')
    if not isinstance(head_sha, str) or not head_sha:
        raise Refused(422, 'Invalid request.\n\n"head_sha" wasn\'t supplied.')
    if head_sha not in repository.network.commits:
        raise Refused(422, f"No commit found for SHA: {head_sha}")
    _check(body)
    run = CheckRun(
        id=world.next_id("check_run"),
        name=name,
        head_sha=head_sha,
        app=app,
        suite=suite_of(world, repository, app, head_sha),
        started_at=world.now(),
    )
    _apply(world, run, body)
    repository.check_runs[run.id] = run
    run.suite.runs.append(run)
    same = [item for item in run.suite.runs if item.name == name]
    if len(same) > KEPT_OF_ONE_NAME:
        run.suite.runs.remove(same[0])
        del repository.check_runs[same[0].id]
    emit(world, repository, run, "created")
    if run.status == "completed":
        emit(world, repository, run, "completed")
    return Answer(201, payloads.check_run(world, repository, run), effect=True)


def _update(world: World, call: Call) -> Answer:
    repository, body = call.repo, call.mapping()
    run = _find(call)
    app = _writer(call)
    _writable(repository)
    if run.app is not app:
        raise Refused(
            403, f"Invalid app_id `{app.id}` - check run can only be modified by the GitHub App that created it."
        )
    _check(body)
    before = run.status
    if isinstance(body.get("name"), str) and body["name"]:
        run.name = body["name"]
    _apply(world, run, body)
    if run.status == "completed" and before != "completed":
        emit(world, repository, run, "completed")
    return Answer(200, payloads.check_run(world, repository, run), effect=True)


def suite_of(world: World, repository: Repository, app: App, head_sha: str) -> CheckSuite:
    """The app's suite on a commit, of which there is one."""
    key = (app.id, head_sha)
    if key not in repository.suites:
        repository.suites[key] = CheckSuite(world.next_id("suite"), app, head_sha, world.now())
    return repository.suites[key]


def _writer(call: Call) -> App:
    # Only apps write checks. https://docs.github.com/en/rest/guides/using-the-rest-api-to-interact-with-checks
    if call.token is None:
        raise Refused(403, "You must authenticate via a GitHub App.")
    return call.token.installation.app


def _writable(repository: Repository) -> None:
    if repository.archived:
        raise Refused(403, "Repository was archived so is read-only.")


def _check(body: Json) -> None:
    status, conclusion = body.get("status"), body.get("conclusion")
    if status is not None and status not in STATUSES:
        raise Refused(422, f"Invalid request.\n\n{status!r} is not a possible value of status.")
    if conclusion is not None and conclusion not in CONCLUSIONS:
        raise Refused(422, f"Invalid request.\n\n{conclusion!r} is not a possible value of conclusion.")
    # "Required if you provide completed_at or a status of completed."
    if conclusion is None and (status == "completed" or body.get("completed_at") is not None):
        raise invalid("CheckRun", "conclusion", "missing_field")
    for name in ("started_at", "completed_at"):
        if body.get(name) is not None:
            _time(body[name], name)
    _check_output(body.get("output"))
    _check_actions(body.get("actions"))


def _check_output(output: Any) -> None:
    if output is None:
        return
    if not isinstance(output, dict):
        raise Refused(422, "Invalid request.\n\noutput is not an object.")
    for name in ("title", "summary"):
        if not isinstance(output.get(name), str):
            raise Refused(422, f'Invalid request.\n\n"{name}" wasn\'t supplied.')
    for name in ("summary", "text"):
        if isinstance(output.get(name), str) and len(output[name]) > TEXT_CHARACTERS:
            raise invalid("CheckRun", name, "too_long", f"{name} exceeds a maximum of 65535 characters")
    annotations = output.get("annotations") or []
    if len(annotations) > ANNOTATIONS_AT_ONCE:
        raise Refused(422, f"Invalid request.\n\nNo more than 50 items are allowed; {len(annotations)} were supplied.")
    for annotation in annotations:
        for name in ("path", "start_line", "end_line", "annotation_level", "message"):
            if name not in annotation:
                raise invalid("CheckAnnotation", name, "missing_field")


def _check_actions(actions: Any) -> None:
    if actions is None:
        return
    if not isinstance(actions, list) or len(actions) > ACTIONS_AT_MOST:
        raise Refused(422, "Invalid request.\n\nNo more than 3 items are allowed.")
    for action in actions:
        for name, most in ACTION_CHARACTERS.items():
            value = action.get(name) if isinstance(action, dict) else None
            if not isinstance(value, str):
                raise invalid("CheckAction", name, "missing_field")
            if len(value) > most:
                raise invalid("CheckAction", name, "too_long", f"{name} is too long (maximum is {most} characters)")


def _time(value: Any, name: str) -> datetime:
    try:
        parsed = datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise Refused(422, f"Invalid request.\n\n{value!r} is not a valid date-time for {name}.") from error
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def _apply(world: World, run: CheckRun, body: Json) -> None:
    """Write what the body names; what it leaves out stays."""
    output = body.get("output") or {}
    run.title = output.get("title", run.title)
    run.summary = output.get("summary", run.summary)
    run.text = output.get("text", run.text)
    run.annotations = [*run.annotations, *(output.get("annotations") or [])]
    run.external_id = str(body.get("external_id", run.external_id) or "")
    run.details_url = str(body.get("details_url", run.details_url) or "")
    if body.get("actions") is not None:
        run.actions = body["actions"]
    if body.get("started_at") is not None:
        run.started_at = _time(body["started_at"], "started_at")
    if body.get("conclusion") is not None:
        # "Providing conclusion will automatically set the status parameter to completed."
        run.status, run.conclusion = "completed", body["conclusion"]
        given = body.get("completed_at")
        run.completed_at = world.now() if given is None else _time(given, "completed_at")
    elif body.get("status") is not None:
        run.status, run.conclusion, run.completed_at = body["status"], None, None
    run.writes.append({"at": world.now(), **body})


def emit(
    world: World,
    repository: Repository,
    run: CheckRun,
    action: str,
    extra: Json | None = None,
    sender: str | None = None,
) -> list[Delivery]:
    """Send a ``check_run`` event: created and completed to every app, the others to the check's own.

    https://docs.github.com/en/webhooks/webhook-events-and-payloads#check_run
    """
    only = run.app if action in {"rerequested", "requested_action"} else None
    who = world.account(sender, "User") if sender else world.account(f"{run.app.slug}[bot]", "Bot")
    installed = world.installed_on(repository)
    if not any("check_run" in item.app.events and world.webhooks.target(item.app) for item in installed):
        return []
    shown = payloads.check_run(world, repository, run)
    shown["check_suite"] = payloads.check_suite(world, repository, run.suite)
    payload = {"action": action, "check_run": shown, **(extra or {})}
    return world.webhooks.emit("check_run", payload, repository, who, only=only)


def _find(call: Call) -> CheckRun:
    text = call.params["run"]
    found = call.repo.check_runs.get(int(text)) if text.isdigit() and len(text) < 19 else None
    if found is None:
        raise Refused(404, "Not Found")
    return found


def _get(world: World, call: Call) -> Answer:
    return Answer(200, payloads.check_run(world, call.repo, _find(call)))


def _annotations(world: World, call: Call) -> Answer:
    return paged(call, _find(call).annotations, url=world.url)


def newest_of_each(runs: list[CheckRun]) -> list[CheckRun]:
    """Of each name and app the newest check run: what GitHub shows."""
    shown: dict[tuple[int, str], CheckRun] = {}
    for run in runs:
        shown[run.app.id, run.name] = run
    return list(shown.values())


def _list_for_ref(world: World, call: Call) -> Answer:
    """https://docs.github.com/en/rest/checks/runs#list-check-runs-for-a-git-reference"""
    sha = world.resolve(call.repo, call.params["ref"])
    suites = [suite for suite in call.repo.suites.values() if suite.head_sha == sha]
    return _listed(world, call, sorted((run for suite in suites for run in suite.runs), key=lambda run: run.id))


def _list_for_suite(world: World, call: Call) -> Answer:
    wanted = call.params["suite"]
    return _listed(world, call, [run for run in call.repo.check_runs.values() if str(run.suite.id) == wanted])


def _listed(world: World, call: Call, runs: list[CheckRun]) -> Answer:
    query = call.query
    if query.get("filter", "latest") != "all":
        runs = newest_of_each(runs)
    if "check_name" in query:
        runs = [run for run in runs if run.name == query["check_name"]]
    if "status" in query:
        runs = [run for run in runs if run.status == query["status"]]
    if "app_id" in query:
        runs = [run for run in runs if str(run.app.id) == query["app_id"]]
    items = [payloads.check_run(world, call.repo, run) for run in reversed(runs)]
    return paged(call, items, key="check_runs", url=world.url)


def _suites(world: World, call: Call) -> Answer:
    sha = world.resolve(call.repo, call.params["ref"])
    items = [
        payloads.check_suite(world, call.repo, suite) for suite in call.repo.suites.values() if suite.head_sha == sha
    ]
    return paged(call, items, key="check_suites", url=world.url)


def _rerequest(world: World, call: Call) -> Answer:
    """https://docs.github.com/en/rest/checks/runs#rerequest-a-check-run"""
    emit(world, call.repo, _find(call), "rerequested")
    return Answer(201, {}, effect=True)


ROUTES = [
    Route("POST", "/repo/check-runs", _create, needs=("checks", "write")),
    Route("PATCH", "/repo/check-runs/{run}", _update, needs=("checks", "write")),
    Route("GET", "/repo/check-runs/{run}", _get, needs=("checks", "read")),
    Route("GET", "/repo/check-runs/{run}/annotations", _annotations, needs=("checks", "read")),
    Route("POST", "/repo/check-runs/{run}/rerequest", _rerequest, needs=("checks", "write")),
    Route("GET", "/repo/commits/{ref...}/check-runs", _list_for_ref, needs=("checks", "read")),
    Route("GET", "/repo/commits/{ref...}/check-suites", _suites, needs=("checks", "read")),
    Route("GET", "/repo/check-suites/{suite}/check-runs", _list_for_suite, needs=("checks", "read")),
]
