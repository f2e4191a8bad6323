"""The simulator's own HTTP interface, for those who run it as a process of its own.

Every verb is ``POST /_sim/<verb>`` with a JSON object and answers JSON; a GET with query parameters does as well.
Answers are 200, or 400 with ``{"error": ...}``. Verbs and their keys:

======================  ================================================================================
``app``                 app_id, permissions, events, webhook_url -> id, private_key_pem, webhook_secret
``upstream``            name, files, app_id, installed, permissions -> id
``backend``             name, listener, app_id, installed, permissions -> id
``settings``            webhook_url, callback_url, latency, wait, hold_webhooks, free_runners, hud_key, limits
``open``                upstream and what ``Upstream.open_pull_request`` takes -> number, head_sha, deliveries
``pull``                upstream, number, act (push, force_push, label, ...) and its keywords -> deliveries
``push``, ``push_tags`` upstream and the keywords of that method -> deliveries
``comment``             upstream, number, user, body -> deliveries
``queue``               upstream, number -> head_sha, deliveries
``require``             upstream, context, integration_id
``required``            upstream, head_sha -> mergeable, contexts
``checks``              upstream, head_sha -> checks by name
``place``               at, act (install, uninstall, suspend, rename, archive, ...) and its keywords
``runs``                backend -> runs
``callback``            backend, run_id or payload, and the keywords of ``Backend.callback`` -> status, text
``mint``                repository, run_id, count and further keywords -> tokens
``mint_buildkite``      organization_id, pipeline_id and further keywords -> tokens
``fault``               kind, match, times, skip, status, seconds, retry_after; ``clear_faults`` ends them all
``redeliver``           guid -> delivery
``deliveries``, ``hud`` -> what was sent; what the HUD accepted
``log``                 since, dispatches -> requests; ``clear_log`` forgets them
``summary``             since -> counts by endpoint, and when dispatches began and ended
======================  ================================================================================
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from relay.simulator.exchange import Answer, Call, Refused
from relay.simulator.faults import Fault, Kind, Match
from relay.simulator.listener import JobPlan, Listener, Mode, Reports
from relay.simulator.log import LoggedRequest
from relay.simulator.model import App, CheckRun, Json, Run
from relay.simulator.payloads import stamp
from relay.simulator.webhooks import Delivery

if TYPE_CHECKING:
    from relay.simulator.simulator import Simulator

_PULL_ACTS = frozenset(
    {"push", "force_push", "label", "unlabel", "close", "reopen", "edit_base", "edit_title"}
    | {"ready_for_review", "convert_to_draft"}
)
_PLACE_ACTS = frozenset(
    {"install", "uninstall", "suspend", "grant", "rename", "archive", "make_private", "delete", "set_role"}
)
_LIMITS = frozenset({"primary", "concurrency", "points", "content"})


class Control:
    """Turns control requests into calls of the façade, each in a thread, so that they may block."""

    def __init__(self, simulator: Simulator) -> None:
        self._sim = simulator
        self._verbs: dict[str, Callable[[Json], Any]] = {
            "app": self._app,
            "upstream": self._upstream,
            "backend": self._backend,
            "settings": self._settings,
            "open": self._open,
            "pull": self._pull,
            "push": lambda body: self._deliveries(self._at(body).push(**body)),
            "push_tags": lambda body: self._deliveries(self._at(body).push_tags(**body)),
            "comment": self._comment,
            "queue": self._queue,
            "require": lambda body: self._at(body).require(**body),
            "required": self._required,
            "checks": self._checks,
            "place": self._place,
            "runs": lambda body: [run_json(run) for run in self._sim.backend(body["backend"]).runs],
            "callback": self._callback,
            "mint": self._mint,
            "mint_buildkite": self._mint_buildkite,
            "fault": self._fault,
            "clear_faults": lambda body: self._sim.faults.clear(),
            "redeliver": lambda body: delivery_json(self._sim.redeliver(body["guid"])),
            "deliveries": lambda body: self._deliveries(self._sim.deliveries),
            "hud": lambda body: [{"at": row.at.isoformat(), "body": row.body} for row in self._sim.hud.rows],
            "log": self._log,
            "clear_log": lambda body: self._sim.log.clear(),
            "summary": self._summary,
        }

    async def answer(self, call: Call) -> Answer:
        """Answer one control request."""
        verb = self._verbs.get(call.path.removeprefix("/_sim/"))
        if verb is None:
            return Answer(404, {"error": f"no such verb; there are {', '.join(sorted(self._verbs))}"})
        try:
            body = {**call.query, **call.mapping()}
            result = await asyncio.to_thread(verb, body)
        except Refused as error:
            return Answer(400, {"error": str(error)})
        except (LookupError, ValueError, TypeError, TimeoutError) as error:
            return Answer(400, {"error": f"{type(error).__name__}: {error}"})
        return Answer(200, json.dumps({"result": result}, default=str).encode())

    def _which(self, body: Json) -> App | None:
        app_id = body.pop("app_id", None)
        return None if app_id is None else self._sim.world.apps[str(app_id)]

    def _at(self, body: Json) -> Any:
        return self._sim.upstream(body.pop("upstream"))

    def _deliveries(self, deliveries: list[Delivery]) -> list[Json]:
        return [delivery_json(item) for item in deliveries]

    def _app(self, body: Json) -> Json:
        app = self._sim.create_app(**body)
        return {"id": app.id, "private_key_pem": app.private_key_pem, "webhook_secret": app.webhook_secret}

    def _upstream(self, body: Json) -> Json:
        made = self._sim.create_upstream(body.pop("name"), app=self._which(body), **body)
        return {"id": made.id, "head": made.head}

    def _backend(self, body: Json) -> Json:
        plan = body.pop("listener", None)
        listener = None if plan is None else listener_of(plan)
        made = self._sim.create_backend(body.pop("name"), app=self._which(body), listener=listener, **body)
        return {"id": made.id}

    def _settings(self, body: Json) -> Json:
        sim = self._sim
        for name, value in body.items():
            if name in {"webhook_url", "callback_url", "latency", "wait", "hold_webhooks", "free_runners"}:
                setattr(sim, name, value)
            elif name == "hud_key":
                sim.hud.key = value
            elif name == "limits" and isinstance(value, dict) and set(value) <= _LIMITS:
                for limit, on in value.items():
                    setattr(sim.limits, limit, bool(on))
            else:
                raise ValueError(f"{name} is no setting")
        return {
            "url": sim.url,
            "issuer": sim.oidc.issuer,
            "jwks_url": sim.oidc.jwks_url,
            "buildkite_issuer": sim.oidc.buildkite_issuer,
            "buildkite_jwks_url": sim.oidc.buildkite_jwks_url,
            "hud_url": sim.hud_url,
            "webhook_url": sim.webhook_url,
            "callback_url": sim.callback_url,
            "latency": sim.latency,
            "limit_hits": dict(sim.limits.hits),
        }

    def _open(self, body: Json) -> Json:
        made = self._at(body).open_pull_request(**body)
        return {"number": made.number, "head_sha": made.head_sha, "deliveries": self._deliveries(made.deliveries)}

    def _pull(self, body: Json) -> list[Json]:
        pull = self._at(body).pull_request(int(body.pop("number")))
        act = body.pop("act")
        if act not in _PULL_ACTS:
            raise ValueError(f"act must be one of {', '.join(sorted(_PULL_ACTS))}")
        return self._deliveries(getattr(pull, act)(**body))

    def _place(self, body: Json) -> Any:
        act = body.pop("act")
        if act not in _PLACE_ACTS:
            raise ValueError(f"act must be one of {', '.join(sorted(_PLACE_ACTS))}")
        done = getattr(self._sim.backend(body.pop("at")), act)(**body)
        return self._deliveries(done) if done else None

    def _comment(self, body: Json) -> list[Json]:
        upstream = self._at(body)
        return self._deliveries(
            upstream.comment(upstream.pull_request(int(body["number"])), body["user"], body["body"])
        )

    def _queue(self, body: Json) -> Json:
        upstream = self._at(body)
        group = upstream.add_to_merge_queue(upstream.pull_request(int(body["number"])))
        return {"head_sha": group.head_sha, "deliveries": self._deliveries(group.deliveries)}

    def _required(self, body: Json) -> Json:
        box = self._at(body).required_status(body["head_sha"])
        return {"mergeable": box.mergeable, "contexts": dict(box.contexts)}

    def _checks(self, body: Json) -> Json:
        return {name: check_json(run) for name, run in self._at(body).checks(body["head_sha"]).items()}

    def _callback(self, body: Json) -> Json:
        backend = self._sim.backend(body.pop("backend"))
        payload = body.pop("payload", None)
        if payload is None:
            payload = backend.repository.runs[int(body.pop("run_id"))]
        answer = backend.callback(payload, **body)
        return {"status": answer.status, "text": answer.text}

    def _mint(self, body: Json) -> list[str]:
        return [self._sim.mint(**body) for _ in range(int(body.pop("count", 1)))]

    def _mint_buildkite(self, body: Json) -> list[str]:
        return [self._sim.mint_buildkite(**body) for _ in range(int(body.pop("count", 1)))]

    def _fault(self, body: Json) -> None:
        match = Match(**body.pop("match", {}))
        self._sim.faults.add(Fault(kind=Kind(body.pop("kind")), match=match, **body))

    def _log(self, body: Json) -> list[Json]:
        entries = self._sim.log.since(int(body.get("since", 0)))
        if body.get("dispatches"):
            entries = [entry for entry in entries if entry.path.endswith("/dispatches") and entry.effect]
        return [entry_json(entry) for entry in entries]

    def _summary(self, body: Json) -> Json:
        entries = self._sim.log.since(int(body.get("since", 0)))
        sent = [entry for entry in entries if entry.path.endswith("/dispatches") and entry.effect]
        return {
            "position": len(self._sim.log),
            "requests": len(entries),
            "by_endpoint": Counter(f"{entry.method} {_shape(entry)} {entry.status}" for entry in entries),
            "dispatches": len(sent),
            # Times of the monotonic clock, in seconds: only their differences mean something.
            "first_dispatch_began": min((entry.began for entry in sent), default=None),
            "last_dispatch_ended": max((entry.ended for entry in sent), default=None),
            "last_dispatch_at": max((entry.at.timestamp() for entry in sent), default=None),
            "most_at_once": max(self._sim.limits.most_at_once.values(), default=0),
        }


def listener_of(plan: Json) -> Listener:
    """A listener from JSON: the fields of Listener, ``jobs`` as a list of the fields of JobPlan."""
    known = {item.name for item in fields(JobPlan)}
    jobs = []
    for job in plan.get("jobs", [{}]):
        unknown = set(job) - known
        if unknown:
            raise ValueError(f"{sorted(unknown)[0]} is no field of a job")
        values = dict(job)
        if "reports" in values:
            values["reports"] = Reports[values["reports"].upper()]
        if "failed_tests" in values:
            values["failed_tests"] = tuple((item[0], item[1], item[2]) for item in values["failed_tests"])
        jobs.append(JobPlan(**values))
    rest = {name: value for name, value in plan.items() if name not in {"jobs", "mode", "types"}}
    mode = Mode[plan.get("mode", "direct").upper()]
    return Listener(jobs=tuple(jobs), mode=mode, types=frozenset(plan.get("types", ())), **rest)


def delivery_json(item: Delivery) -> Json:
    """A delivery in brief."""
    return {
        "guid": item.guid,
        "event": item.event,
        "action": item.action,
        "redelivery": item.redelivery,
        "status": item.response.status,
        "text": item.response.text,
        "seconds": item.response.seconds,
        "error": item.response.error,
    }


def run_json(run: Run) -> Json:
    """A run with its jobs and what their steps said."""
    return {
        "id": run.id,
        "attempt": run.attempt,
        "name": run.name,
        "event_type": run.event_type,
        "delivery_id": run.delivery_id,
        "status": run.status,
        "conclusion": run.conclusion,
        "client_payload": run.client_payload,
        "jobs": [
            {
                "id": job.id,
                "name": job.name,
                "status": job.status,
                "conclusion": job.conclusion,
                "reports": [
                    {"status": step.status, "exit_code": step.exit_code, "answer": step.answer, "output": step.output}
                    for step in job.reports
                ],
            }
            for job in run.jobs
        ],
    }


def check_json(run: CheckRun) -> Json:
    """A check run with the number of its writes."""
    return {
        "id": run.id,
        "name": run.name,
        "status": run.status,
        "conclusion": run.conclusion,
        "title": run.title,
        "summary": run.summary,
        "text": run.text,
        "external_id": run.external_id,
        "started_at": stamp(run.started_at),
        "completed_at": stamp(run.completed_at),
        "writes": len(run.writes),
    }


def entry_json(entry: LoggedRequest) -> Json:
    """A logged request."""
    return {item.name: getattr(entry, item.name) for item in fields(entry)}


def _shape(entry: LoggedRequest) -> str:
    """The path with its ids taken out, so that calls of one kind are counted together."""
    parts = entry.path.split("/")
    if len(parts) > 3 and parts[1] == "repos":
        parts[2:4] = ["*", "*"]
    return "/".join("*" if part.isdigit() or len(part) == 40 else part for part in parts)
