"""A backend's repository: its runs, and the callbacks that a test makes by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from relay.simulator.listener import Listener
from relay.simulator.log import LoggedRequest
from relay.simulator.model import Attempt, Job, Json, Run
from relay.simulator.oidc import AUDIENCE
from relay.simulator.site import Place, wait_until


@dataclass(frozen=True)
class CallbackAnswer:
    """What the relay answered to a callback; status 0 means that no answer came."""

    status: int
    text: str

    @property
    def json(self) -> Any:
        """The body as JSON. Raises ValueError when it is not."""
        return json.loads(self.text)


class Backend(Place):
    """A downstream repository with a listener workflow."""

    @property
    def listener(self) -> Listener | None:
        """The workflow on the default branch; runs that exist keep the plan they were started with."""
        return self.repository.listener

    @listener.setter
    def listener(self, listener: Listener | None) -> None:
        self.repository.listener = listener

    def disable_actions(self, off: bool = True) -> None:
        """Turn Actions off for the repository, or on again."""
        self.repository.actions_enabled = not off

    @property
    def runs(self) -> list[Run]:
        """The workflow runs, oldest first. They are live: read again to see them move."""
        return list(self.repository.runs.values())

    @property
    def dispatches(self) -> list[LoggedRequest]:
        """The dispatches that took effect here."""
        wanted = self.repository.id
        return [entry for entry in self._site.world.log.dispatches() if entry.repository == wanted]

    def wait_for_runs(self, count: int = 1, timeout: float = 10.0) -> list[Run]:
        """Block until so many runs exist. Raises TimeoutError."""
        wait_until(lambda: len(self.repository.runs) >= count, timeout, what=f"{count} runs at {self.name}")
        return self.runs

    def wait_until_done(self, count: int = 1, timeout: float = 30.0) -> list[Run]:
        """Block until so many runs exist and all are completed. Raises TimeoutError."""
        wait_until(
            lambda: len(self.runs) >= count and all(run.status == "completed" for run in self.runs),
            timeout,
            what=f"{count} finished runs at {self.name}",
        )
        return self.runs

    def rerun(self, run: Run, *, only_failed: bool = False) -> Attempt:
        """Run a run again by hand, as its maintainer would."""
        self._site.call(lambda: self._site.world.runners.rerun(run, only_failed=only_failed))
        return run.attempts[-1]

    def cancel(self, run: Run) -> None:
        """Cancel a run by hand."""
        self._site.call(lambda: self._site.world.runners.cancel(run))

    def callback(
        self,
        of: Run | LoggedRequest | Json,
        status: str = "completed",
        conclusion: str | None = None,
        job: str = "default",
        *,
        run_id: int | str | None = None,
        attempt: int | str | None = None,
        token: str | None = None,
        claims: Json | None = None,
        event_name: str = "repository_dispatch",
        audience: str = AUDIENCE,
        change: Json | None = None,
        drop: tuple[str, ...] = (),
        url: str | None = None,
        **workflow: Any,
    ) -> CallbackAnswer:
        """Send one callback with a freshly minted token and the client payload as received.

        ``of`` is a run, a logged dispatch, or a client payload. ``change`` replaces top-level keys of the body and
        ``drop`` removes some; further keywords become fields of ``workflow`` (None included).
        """
        payload = _payload(of)
        named = run_id if run_id is not None else of.id if isinstance(of, Run) else self._run_of(payload)
        number = attempt if attempt is not None else of.attempt if isinstance(of, Run) else 1
        stated: Json = {
            "schema_version": "1",
            "status": status,
            "conclusion": conclusion,
            "name": self.listener.workflow if self.listener else "backend-ci",
            "url": f"{self._site.world.url}/{self.name}/actions/runs/{named}",
            "run_id": str(named),
            "run_attempt": str(number),
            "job_name": job,
            **workflow,
        }
        body = {**payload, "workflow": stated, **(change or {})}
        for key in drop:
            body.pop(key, None)
        world = self._site.world
        target = url or world.runners.step.target(payload)
        if target is None:
            raise ValueError("no callback URL: set sim.callback_url, or send relay.callback_url with the dispatch")
        minted = token or self._site.call(
            lambda: world.oidc.mint(
                self.repository,
                run_id=named,
                run_attempt=number,
                event_name=event_name,
                audience=audience,
                claims=claims,
            )
        )
        return CallbackAnswer(*self._site.loop.wait_for(world.runners.step.send(target, minted, body, self.name)))

    def job_named(self, run: Run, name: str) -> Job:
        """The job of that name in the run's newest attempt. Raises LookupError."""
        for job in run.jobs:
            if job.name == name:
                return job
        raise LookupError(f"run {run.id} has no job {name!r}")

    def _run_of(self, payload: Json) -> int:
        """The run that a payload started; where none listens, an id that no run has."""
        for run in self.runs:
            if run.client_payload is payload or (
                run.delivery_id == payload.get("delivery_id") and run.client_payload == payload
            ):
                return run.id
        return self._site.call(lambda: self._site.world.next_id("run"))


def _payload(of: Run | LoggedRequest | Json) -> Json:
    if isinstance(of, Run):
        return of.client_payload
    if isinstance(of, LoggedRequest):
        payload: Json = of.body["client_payload"]
        return payload
    return of
