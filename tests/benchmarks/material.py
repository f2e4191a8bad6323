"""Webhooks and callbacks as ready bytes, made before the clock runs."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relay.simulator import Simulator
from tests.benchmarks.load import post
from tests.benchmarks.site import UPSTREAM, GitHub

_RUN = 9_000_000_000
_HOURS = 3 * 3600


class Webhooks:
    """Makes ``pull_request`` webhooks of pull requests that exist at the simulated GitHub."""

    def __init__(self, github: GitHub) -> None:
        self._github = github
        with Simulator() as sample:
            sample.create_app()
            # With an address there is a delivery; held back, it goes nowhere.
            sample.webhook_url, sample.hold_webhooks = sample.url, True
            pull = sample.create_upstream(UPSTREAM).open_pull_request()
            self._body = pull.deliveries[0].body.decode()
            self._sha, self._number = pull.head_sha, pull.number

    def opened(self, count: int) -> list[bytes]:
        """So many requests, each for a pull request of its own."""
        return [self._request() for _ in range(count)]

    def _request(self) -> bytes:
        pull = self._github.tell("open", upstream=UPSTREAM)
        body = self._body.replace(self._sha, pull["head_sha"])
        body = body.replace(f'"number":{self._number},', f'"number":{pull["number"]},')
        body = body.replace(f"/pull/{self._number}", f"/pull/{pull['number']}")
        digest = hmac.new(self._github.secret.encode(), body.encode(), hashlib.sha256).hexdigest()
        headers = {
            "content-type": "application/json",
            "x-github-event": "pull_request",
            "x-github-delivery": str(uuid.uuid4()),
            "x-hub-signature-256": f"sha256={digest}",
        }
        return post("/github/webhook", body.encode(), headers)


@dataclass(frozen=True)
class Told:
    """One backend told of one change, and the token of the run that it started."""

    backend: str
    payload: dict[str, Any]
    run_id: int
    token: str


def told(github: GitHub, since: int) -> list[Told]:
    """Every dispatch since then, each with a run of its own at its backend."""
    entries = github.tell("log", since=since, dispatches=True)
    expires = int(time.time()) + _HOURS
    made = []
    for number, entry in enumerate(entries):
        run_id = _RUN + since * 1_000 + number
        name = entry["repository_name"]
        (token,) = github.tell("mint", repository=name, run_id=run_id, count=1, exp=expires)
        made.append(Told(name, entry["body"]["client_payload"], run_id, token))
    return made


def report(to: Told, job: str, status: str, conclusion: str | None = None) -> bytes:
    """One callback as the action sends it."""
    workflow: dict[str, Any] = {
        "schema_version": "1",
        "status": status,
        "conclusion": conclusion,
        "name": "backend-ci",
        "url": f"https://github.com/{to.backend}/actions/runs/{to.run_id}",
        "run_id": str(to.run_id),
        "run_attempt": "1",
        "job_name": job,
    }
    if conclusion is not None:
        workflow["test_results"] = {"passed": 1200, "failed": 0, "skipped": 31}
    body = json.dumps({**to.payload, "workflow": workflow}).encode()
    headers = {"content-type": "application/json", "authorization": f"Bearer {to.token}"}
    return post("/github/callback", body, headers)


def reports(dispatches: Sequence[Told], jobs: int) -> list[bytes]:
    """Each job of each dispatch begins, then ends well; backends take turns, as they would."""
    made = []
    for number in range(jobs):
        made += [report(to, f"test ({number})", "in_progress") for to in dispatches]
        made += [report(to, f"test ({number})", "completed", "success") for to in dispatches]
    return made
