"""The synchronous, thread-safe face of the simulator: what tests, the demo and the benchmarks hold in their hands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from relay.simulator import (
    api_actions,
    api_apps,
    api_checks,
    api_dispatch,
    api_pulls,
    api_repos,
    installing,
)
from relay.simulator.backend import Backend
from relay.simulator.control import Control
from relay.simulator.exchange import Route
from relay.simulator.faults import Faults
from relay.simulator.hud import ROUTES as HUD_ROUTES
from relay.simulator.hud import Hud
from relay.simulator.limits import Limits
from relay.simulator.listener import Listener
from relay.simulator.log import RequestLog, SentCallback
from relay.simulator.loop import LoopThread
from relay.simulator.model import App, Json, Repository, Run
from relay.simulator.oidc import AUDIENCE, Oidc
from relay.simulator.oidc import ROUTES as OIDC_ROUTES
from relay.simulator.runners import Runners
from relay.simulator.server import Application, ResettableProtocol
from relay.simulator.site import Site
from relay.simulator.upstream import Upstream
from relay.simulator.webhooks import Delivery, Webhooks
from relay.simulator.world import World

ROUTES: list[Route] = [
    *api_dispatch.ROUTES,
    *api_checks.ROUTES,
    *api_apps.ROUTES,
    *api_pulls.ROUTES,
    *api_actions.ROUTES,
    *api_repos.ROUTES,
    *OIDC_ROUTES,
    *HUD_ROUTES,
]

#: What one app needs on both sides: upstream's permissions and the backends'.
PERMISSIONS: Mapping[str, str] = {
    "actions": "write",
    "checks": "write",
    "contents": "write",
    "issues": "write",
    "merge_queues": "read",
    "pull_requests": "write",
}
EVENTS = frozenset({"pull_request", "push", "check_run", "check_suite", "issue_comment", "merge_group", "repository"})


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Simulator:
    """A GitHub on loopback. Use it as a context manager; every method may be called from any thread.

    ``now`` is its clock, ``seed`` decides its ids and shas, ``latency`` (seconds) delays each API answer, ``port`` 0
    takes a free one, ``processes`` bounds how many reporting scripts run at once.
    """

    def __init__(
        self,
        now: Callable[[], datetime] = _utc_now,
        seed: int = 0,
        latency: float = 0.0,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        processes: int = 2,
    ) -> None:
        world = World(now, seed)
        world.latency = latency
        world.webhooks = Webhooks(world)
        world.runners = Runners(world, processes)
        world.oidc = Oidc(world)
        world.hud = Hud()
        application = Application(world, ROUTES, Control(self).answer)
        self._loop = LoopThread(application, ResettableProtocol, host, port, [world.webhooks, world.runners])
        world.url = f"http://{self._loop.host}:{self._loop.port}"
        self.world = world
        self._site = Site(world, self._loop)

    def start(self) -> Self:
        """Serve. Raises RuntimeError when the server does not come up."""
        self._loop.start()
        return self

    def stop(self) -> None:
        """Stop serving and end what is under way; stopping twice is no error."""
        self._loop.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def join(self) -> None:
        """Wait until it is stopped from elsewhere."""
        self._loop.join()

    @property
    def url(self) -> str:
        """The API's root, without a trailing slash."""
        return self.world.url

    @property
    def log(self) -> RequestLog:
        """Every request that was answered, the control interface's own left out."""
        return self.world.log

    @property
    def callbacks(self) -> list[SentCallback]:
        """Every callback that was sent without a process of its own, each try for itself."""
        return self.world.callbacks

    @property
    def faults(self) -> Faults:
        """The scripted faults."""
        return self.world.faults

    @property
    def limits(self) -> Limits:
        """The rate limits."""
        return self.world.limits

    @property
    def oidc(self) -> Oidc:
        """The token issuers: ``issuer``, ``jwks_url``, ``github.rotate()``, ``buildkite`` and so on."""
        return self.world.oidc

    @property
    def hud(self) -> Hud:
        """The fake HUD: ``rows`` and ``key``."""
        return self.world.hud

    @property
    def hud_url(self) -> str:
        """What the relay takes as ``HUD_API_URL``."""
        return f"{self.url}/hud"

    @property
    def latency(self) -> float:
        """Seconds by which each API answer is delayed."""
        return self.world.latency

    @latency.setter
    def latency(self, seconds: float) -> None:
        self.world.latency = seconds

    @property
    def webhook_url(self) -> str | None:
        """Where every app's webhook points, unless the app has its own; None sends nothing."""
        return self.world.webhook_url

    @webhook_url.setter
    def webhook_url(self, url: str | None) -> None:
        self.world.webhook_url = url

    @property
    def callback_url(self) -> str | None:
        """Where backends report; None leaves it to ``relay.callback_url`` of the dispatch."""
        return self.world.callback_url

    @callback_url.setter
    def callback_url(self, url: str | None) -> None:
        self.world.callback_url = url

    @property
    def wait(self) -> bool:
        """Whether an act returns only when its webhooks have been answered (the default)."""
        return self._site.wait

    @wait.setter
    def wait(self, on: bool) -> None:
        self._site.wait = on

    @property
    def webhook_timeout(self) -> float:
        """Seconds that the receiver of a webhook has to answer; GitHub gives 10."""
        return self.world.webhooks.timeout

    @webhook_timeout.setter
    def webhook_timeout(self, seconds: float) -> None:
        self.world.webhooks.timeout = seconds

    @property
    def hold_webhooks(self) -> bool:
        """While True, deliveries fail unsent, as when the receiver is down; they can be redelivered."""
        return self.world.webhooks.held

    @hold_webhooks.setter
    def hold_webhooks(self, on: bool) -> None:
        self.world.webhooks.held = on

    def create_app(
        self,
        app_id: int = 4242,
        permissions: Mapping[str, str] = PERMISSIONS,
        *,
        events: Iterable[str] = EVENTS,
        webhook_url: str | None = None,
    ) -> App:
        """Register an app with its key and webhook secret. Raises ValueError when the id is taken."""
        return self._loop.call(lambda: self.world.add_app(app_id, permissions, frozenset(events), webhook_url))

    def create_upstream(
        self,
        name: str,
        *,
        files: Mapping[str, str] | None = None,
        app: App | None = None,
        installed: bool = True,
        permissions: Mapping[str, str] | None = None,
        private: bool = False,
    ) -> Upstream:
        """Create an upstream repository and install the app there: ``app``, else the first one that was created."""
        repository = self._loop.call(lambda: self.world.add_repository(name, files=files, private=private))
        upstream = Upstream(self._site, repository, self._app(app))
        if installed:
            upstream.install(permissions)
        return upstream

    def create_backend(
        self,
        name: str,
        *,
        listener: Listener | None = None,
        app: App | None = None,
        installed: bool = True,
        permissions: Mapping[str, str] | None = None,
        private: bool = False,
        files: Mapping[str, str] | None = None,
    ) -> Backend:
        """Create a backend's repository with a listener workflow and install the app: ``app``, else the last one.

        ``listener`` None is a repository without a workflow. ``installed`` False leaves the app out.
        """
        repository = self._loop.call(lambda: self.world.add_repository(name, files=files, private=private))
        repository.listener = listener
        backend = Backend(self._site, repository, self._app(app, last=True))
        if installed:
            backend.install(permissions)
        return backend

    def upstream(self, name: str) -> Upstream:
        """The upstream repository of that name. Raises KeyError when there is none."""
        repository = self._repository(name)
        return Upstream(self._site, repository, self._installed(repository) or self._app(None))

    def backend(self, name: str) -> Backend:
        """The backend's repository of that name. Raises KeyError when there is none."""
        repository = self._repository(name)
        return Backend(self._site, repository, self._installed(repository) or self._app(None, last=True))

    def ping(self, app: App | None = None) -> list[Delivery]:
        """Send the ``ping`` of a webhook that was set up."""
        return self._site.act(lambda: installing.ping(self.world, self._app(app)))

    @property
    def deliveries(self) -> list[Delivery]:
        """Every delivery so far, oldest first, redeliveries included."""
        return list(self.world.webhooks.deliveries)

    def redeliver(self, guid: str) -> Delivery:
        """Send a delivery again with its GUID. Raises KeyError when there is none, or none of the last three days."""

        def again() -> list[Delivery]:
            for app in self.world.apps.values():
                for item in self.world.webhooks.kept(app):
                    if item.guid == guid:
                        return [self.world.webhooks.redeliver(item)]
            raise KeyError(f"no delivery {guid} of the last three days")

        return self._site.act(again)[0]

    def mint(
        self,
        repository: str | Upstream | Backend,
        *,
        run_id: int | str,
        run_attempt: int | str = 1,
        event_name: str = "repository_dispatch",
        audience: str = AUDIENCE,
        **claims: Any,
    ) -> str:
        """A token of GitHub's issuer with its full claim set; ``claims`` replace or add, None removes one."""
        repo = self._repository(repository) if isinstance(repository, str) else repository.repository
        return self._loop.call(
            lambda: self.world.oidc.mint(
                repo, run_id=run_id, run_attempt=run_attempt, event_name=event_name, audience=audience, claims=claims
            )
        )

    def mint_buildkite(self, *, organization_id: str, pipeline_id: str, audience: str = AUDIENCE, **claims: Any) -> str:
        """A token of Buildkite's issuer; ``claims`` replace or add, None removes one."""
        return self._loop.call(
            lambda: self.world.oidc.mint_buildkite(
                organization_id=organization_id, pipeline_id=pipeline_id, audience=audience, claims=claims
            )
        )

    def dispatch(self, repository: str, event_type: str, client_payload: Json) -> Run | None:
        """Start a run as somebody else's dispatch would, past the API: for runs that are not the relay's doing."""
        repo = self._repository(repository)
        return self._loop.call(lambda: self.world.runners.dispatched(repo, event_type, client_payload))

    @property
    def free_runners(self) -> bool:
        """Whether runs start; while False they stay queued, and setting it True again starts them."""
        return self.world.runners.free

    @free_runners.setter
    def free_runners(self, on: bool) -> None:
        if on:
            self._loop.call(self.world.runners.release)
        else:
            self.world.runners.free = False

    def _app(self, app: App | None, *, last: bool = False) -> App:
        if app is not None:
            return app
        apps = list(self.world.apps.values())
        if not apps:
            raise ValueError("create_app() comes first: a repository has to be installed on some app")
        return apps[-1 if last else 0]

    def _installed(self, repository: Repository) -> App | None:
        found = self._loop.call(lambda: self.world.installed_on(repository))
        return found[0].app if found else None

    def _repository(self, name: str) -> Repository:
        return self.world.by_name[name.lower()]
