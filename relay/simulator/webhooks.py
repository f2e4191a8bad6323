"""Webhooks: signed, sent once, listed for redelivery.

https://docs.github.com/en/webhooks/webhook-events-and-payloads#delivery-headers
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx2

from relay.simulator import payloads
from relay.simulator.keys import plain_http
from relay.simulator.model import Account, App, Installation, Json, Repository

if TYPE_CHECKING:
    from relay.simulator.world import World

#: An app gets these whether it asked for them or not.
#: https://docs.github.com/en/webhooks/webhook-events-and-payloads#installation
ALWAYS = frozenset({"installation", "installation_repositories", "ping"})
#: Payloads are capped at 25 MB: a larger one is not sent at all.
#: https://docs.github.com/en/webhooks/webhook-events-and-payloads#payload-cap
PAYLOAD_CAP = 25_000_000
#: GitHub waits 10 seconds for an answer.
#: https://docs.github.com/en/webhooks/using-webhooks/best-practices-for-using-webhooks#respond-within-10-seconds
TIMEOUT = 10.0
#: Deliveries can be listed and redelivered for three days.
#: https://docs.github.com/en/webhooks/testing-and-troubleshooting-webhooks/redelivering-webhooks
KEPT = timedelta(days=3)


@dataclass(frozen=True)
class Response:
    """What the receiver answered. ``status`` 0 means no answer; ``error`` says why."""

    status: int
    text: str
    seconds: float
    headers: dict[str, str] = field(default_factory=dict)
    error: str | None = None

    @property
    def json(self) -> Any:
        """The body as JSON. Raises ValueError when it is not."""
        return json.loads(self.text)


@dataclass
class Delivery:
    """One attempt to deliver one event. A redelivery is another one with the same ``guid``."""

    id: int
    guid: str
    event: str
    action: str | None
    app: App
    installation_id: int | None
    repository_id: int | None
    body: bytes
    headers: dict[str, str]
    delivered_at: datetime
    redelivery: bool = False
    response: Response = Response(0, "", 0.0, error="under way")
    _done: threading.Event = field(default_factory=threading.Event)

    @property
    def ok(self) -> bool:
        """Whether GitHub counts it as delivered: a 2xx in time."""
        return 200 <= self.response.status < 300

    @property
    def payload(self) -> Json:
        """The body as it was sent, parsed."""
        parsed: Json = json.loads(self.body)
        return parsed

    def wait(self, timeout: float = 15.0) -> Response:
        """Block until the receiver has answered or failed, and return what came of it. Not for the event loop."""
        if not self._done.wait(timeout):
            raise TimeoutError(f"delivery {self.guid} ({self.event}) is still under way after {timeout} s")
        return self.response

    def finish(self, response: Response) -> None:
        """Note how it ended."""
        self.response = response
        self._done.set()


def signature(secret: str, body: bytes) -> str:
    """The value of ``X-Hub-Signature-256``.

    https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
    """
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


class Webhooks:
    """Builds deliveries, sends them, and keeps them. Runs on the event loop."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.timeout = TIMEOUT
        self.held = False
        self.deliveries: list[Delivery] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._client: httpx2.AsyncClient | None = None

    def emit(
        self, event: str, payload: Json, repository: Repository, sender: Account, *, only: App | None = None
    ) -> list[Delivery]:
        """Send an event of a repository to every app that is installed there and asked for it."""
        world = self._world
        whole = {
            **payload,
            "repository": payloads.repository(world, repository),
            "sender": payloads.user(world, sender),
        }
        if repository.owner.type == "Organization":
            whole["organization"] = payloads.user(world, repository.owner)
        return [
            self.send(
                event,
                {**whole, "installation": {"id": installation.id, "node_id": f"I_{installation.id}"}},
                installation.app,
                installation,
                repository,
            )
            for installation in world.installed_on(repository)
            if event in installation.app.events
            and (only is None or installation.app is only)
            and self.target(installation.app)
        ]

    def target(self, app: App) -> str | None:
        """Where the app's webhook points; None when it is off."""
        return app.webhook_url or self._world.webhook_url

    def send(
        self, event: str, payload: Json, app: App, installation: Installation | None, repository: Repository | None
    ) -> Delivery:
        """Sign and send one event to one app."""
        body = json.dumps(payload, separators=(",", ":")).encode()
        guid = self._world.guid()
        delivery = Delivery(
            id=self._world.next_id("delivery"),
            guid=guid,
            event=event,
            action=payload.get("action"),
            app=app,
            installation_id=installation.id if installation else None,
            repository_id=repository.id if repository else None,
            body=body,
            headers={
                "Accept": "*/*",
                "Content-Type": "application/json",
                "User-Agent": "GitHub-Hookshot/044aadd",
                "X-GitHub-Delivery": guid,
                "X-GitHub-Event": event,
                "X-GitHub-Hook-ID": str(app.id + 1_000_000),
                "X-GitHub-Hook-Installation-Target-ID": str(app.id),
                "X-GitHub-Hook-Installation-Target-Type": "integration",
                "X-Hub-Signature-256": signature(app.webhook_secret, body),
            },
            delivered_at=self._world.now(),
        )
        self._start(delivery)
        return delivery

    def redeliver(self, earlier: Delivery) -> Delivery:
        """Send a delivery again, with its GUID and body, signed with the secret of now."""
        headers = {**earlier.headers, "X-Hub-Signature-256": signature(earlier.app.webhook_secret, earlier.body)}
        again = Delivery(
            id=self._world.next_id("delivery"),
            guid=earlier.guid,
            event=earlier.event,
            action=earlier.action,
            app=earlier.app,
            installation_id=earlier.installation_id,
            repository_id=earlier.repository_id,
            body=earlier.body,
            headers=headers,
            delivered_at=self._world.now(),
            redelivery=True,
        )
        self._start(again)
        return again

    def kept(self, app: App) -> list[Delivery]:
        """The app's deliveries of the last three days, newest first."""
        since = self._world.now() - KEPT
        return [item for item in reversed(self.deliveries) if item.app is app and item.delivered_at >= since]

    def _start(self, delivery: Delivery) -> None:
        if len(delivery.body) > PAYLOAD_CAP:
            delivery.finish(Response(0, "", 0.0, error="the payload is larger than 25 MB, so it is not sent"))
            return
        self.deliveries.append(delivery)
        if self.held:
            delivery.finish(Response(0, "", 0.0, error="held back by the scenario"))
            return
        task = asyncio.get_running_loop().create_task(self._deliver(delivery))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, delivery: Delivery) -> None:
        url = self.target(delivery.app)
        began = time.perf_counter()
        if self._client is None:
            limits = httpx2.Limits(max_connections=200, max_keepalive_connections=50)
            self._client = httpx2.AsyncClient(trust_env=False, verify=plain_http(), timeout=None, limits=limits)
        try:
            async with asyncio.timeout(self.timeout):
                answer = await self._client.post(url or "", content=delivery.body, headers=delivery.headers)
        except TimeoutError:
            response = Response(0, "", time.perf_counter() - began, error="timed out")
        except Exception as error:  # noqa: BLE001 (a peer that is killed right after it accepted makes anyio stumble)
            response = Response(0, "", time.perf_counter() - began, error=f"failed to connect to host: {error}")
        except asyncio.CancelledError:
            delivery.finish(Response(0, "", time.perf_counter() - began, error="the simulator stopped"))
            raise
        else:
            response = Response(
                answer.status_code, answer.text, time.perf_counter() - began, dict(answer.headers.items())
            )
        delivery.finish(response)

    async def close(self) -> None:
        """Stop what is under way and close the connections."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()
