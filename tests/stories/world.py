"""A whole world for a story: a simulated GitHub, the real relay over HTTP, and time that can be told to pass."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import time
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Self

from relay.app import Chance, Relay, build
from relay.github.http import OpenTransport
from relay.github.keys import read_key
from relay.rotation import SecretFiles
from relay.serving import listening_socket, serving
from relay.settings import load_settings
from relay.simulator import App, Backend, Listener, Run, Simulator, Upstream, signature, wait_until
from relay.simulator.keys import plain_http

UPSTREAM = "pytorch/pytorch"
HUD_KEY = "the key of the hud"

# All worlds of a process have the same app's key.
_read_once = cache(read_key)


class TravelClock:
    """Real time, and as much more as a story lets pass at once."""

    def __init__(self) -> None:
        self._ahead = timedelta()

    def now(self) -> datetime:
        """The time in this story."""
        return datetime.now(UTC) + self._ahead

    def advance(self, by: timedelta) -> None:
        """Let time pass."""
        self._ahead += by


@dataclass(frozen=True)
class Posted:
    """What the relay answered to what a story sent by hand, and after how many seconds."""

    status: int
    headers: Mapping[str, str]
    text: str
    seconds: float

    @property
    def json(self) -> Any:
        """The answer as JSON. Raises ValueError when it is none."""
        return json.loads(self.text)


class World:
    """Upstream, backends, GitHub between them, and one relay process's worth of service in a thread.

    Everything a story asserts about it is read from ``sim``: what GitHub's API was asked, what its checks show, which
    runs there were.
    """

    def __init__(self, folder: Path, database_url: str) -> None:
        self.folder = folder
        self.database_url = database_url
        self.clock = TravelClock()
        self.sim = Simulator(now=self.clock.now)
        self.given: dict[str, Any] = {}
        #: Variables of the environment that name secrets' files, for stories in which secrets change.
        self.environ: dict[str, str] = {}
        #: Waits in a story are short, and what follows should not take ten times as long.
        self.poll_seconds = 0.1
        #: What the relay sends its requests through, where a story must see or change them on their way.
        self.transport: OpenTransport | None = None
        self.relay: Relay | None = None
        self._stack = contextlib.ExitStack()
        self._running: contextlib.ExitStack | None = None
        self._entries: dict[str, list[str]] = {}
        self.allowlist = folder / "allowlist.yml"
        self.allowlist.write_text("")

    def __enter__(self) -> Self:
        self._stack.enter_context(self.sim)
        self.app: App = self.sim.create_app()
        self.up: Upstream = self.sim.create_upstream(UPSTREAM)
        self._socket, self.port = self._stack.enter_context(listening_socket())
        self._socket.listen(512)
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()
        self._stack.close()

    @property
    def url(self) -> str:
        """Where the relay answers."""
        return f"http://127.0.0.1:{self.port}"

    def backend(self, name: str, level: str, listener: Listener | None = None, **entry: Any) -> Backend:
        """A backend at GitHub and its entry on the allowlist: ``entry`` holds the mapping's keys, in JSON's form."""
        backend = self.sim.create_backend(name, listener=listener or Listener())
        self.allow(name, level, **entry)
        return backend

    def allow(self, name: str, level: str, **entry: Any) -> None:
        """Add an entry to the allowlist, or change the one that is there."""
        self.disallow(name)
        device = entry.pop("device", "dev1")
        text = f"{name}: {json.dumps(entry)}"
        line = f"  {device}:\n    {text}" if level == "L3" else f"  - {text}"
        self._entries.setdefault(level, []).append(line)
        self._write_allowlist()

    def disallow(self, name: str) -> None:
        """Take an entry off the allowlist."""
        for level in self._entries:
            self._entries[level] = [line for line in self._entries[level] if f" {name}: " not in line]
        self._write_allowlist()

    def _write_allowlist(self) -> None:
        lines = [f"{level}:\n" + "\n".join(entries) for level, entries in self._entries.items() if entries]
        self.allowlist.write_text("\n".join(lines) + "\n")

    def settings(self) -> dict[str, Any]:
        """What the relay is started with; ``given`` holds what a story sets differently."""
        return {
            "upstream": UPSTREAM,
            "github_api_url": self.sim.url,
            "github_app_id": self.app.id,
            "github_private_key": self.app.private_key_pem,
            "webhook_secrets": (self.app.webhook_secret,),
            "allowlist": str(self.allowlist),
            "allowlist_seconds": 0.1,
            "database_url": self.database_url,
            "public_url": self.url,
            "oidc_issuers": ({"issuer": self.sim.oidc.issuer, "jwks_url": self.sim.oidc.jwks_url},),
            "check_interval_seconds": 0.05,
            "sweep_seconds": 0.1,
            **self.given,
        }

    def start(self, **given: Any) -> Self:
        """Start the relay; ``given`` settings differ from the usual ones, from now on."""
        self.given |= given
        running = contextlib.ExitStack()
        settings = {
            name: value for name, value in self.settings().items() if f"CRCR_{name.upper()}_FILE" not in self.environ
        }
        self.relay = build(
            load_settings(self.environ, **settings),
            now=self.clock.now,
            # Python's own generator is Hypothesis's while it makes up a story.
            chance=Chance(share=random.Random().random),
            migrate=False,
            transport=self.transport,
            secret_files=SecretFiles.of(self.environ, seconds=0.05, **settings),
            trust=plain_http(),
            read=_read_once,
            poll_seconds=self.poll_seconds,
        )
        running.enter_context(serving(self.relay, self._socket.dup()))
        self._running = running
        # Only now: installing the app on backends would wait for an answer that nobody gives yet.
        self.sim.webhook_url = f"{self.url}/github/webhook"
        return self

    def stop(self) -> None:
        """Stop the relay as a deploy does; requests that come meanwhile wait in the socket's backlog."""
        if self._running is not None:
            self._running.close()
            self._running = None

    def post(
        self,
        event: str,
        body: bytes | Mapping[str, Any],
        *,
        delivery_id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Posted:
        """Send a webhook by hand, signed as GitHub signs it; ``headers`` replace the usual ones."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        whole = {
            "Content-Type": "application/json",
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": delivery_id or str(uuid.uuid4()),
            "X-Hub-Signature-256": signature(self.app.webhook_secret, content),
            **(headers or {}),
        }
        return self._send("/github/webhook", content, whole)

    def call_back(self, token: str, body: Any, path: str = "/github/callback") -> Posted:
        """Send a callback by hand with this token; ``body`` is sent as JSON, whatever it is."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        return self._send(path, json.dumps(body).encode(), headers)

    def _send(self, path: str, content: bytes, headers: Mapping[str, str]) -> Posted:
        began = time.perf_counter()
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request("POST", path, content, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        return Posted(answer.status, dict(answer.getheaders()), text, time.perf_counter() - began)

    def pass_time(self, by: timedelta) -> None:
        """Let the relay finish what is due, let time pass, and have it look at once at what is due then."""
        self.idle()
        self.clock.advance(by)
        if self.relay is not None:
            self.relay.worker.wake()

    def idle(self, timeout: float = 15.0) -> None:
        """Wait until the relay owes nothing that is due."""
        wait_until(lambda: self.metric("crcr_oldest_due_seconds") == 0, timeout, what="an outbox without backlog")

    def hushed(self, seconds: float = 0.5) -> None:
        """Wait until GitHub has been asked nothing for so long.

        Where lanes are blocked by retries there is no idle relay to wait for; and time that passes in the middle of a
        request would run out its lease, which is another story.
        """
        asked, since = len(self.sim.log), time.monotonic()
        while time.monotonic() - since < seconds:
            time.sleep(0.05)
            if len(self.sim.log) != asked:
                asked, since = len(self.sim.log), time.monotonic()

    def metric(self, name: str) -> float:
        """One figure of the relay's own page; for waiting, never for asserting."""
        with urllib.request.urlopen(f"{self.url}/metrics?name[]={name}", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

    def get(self, path: str) -> Any:
        """What the relay's API says, as JSON."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as answer:
            return json.loads(answer.read())

    def change(self, run: Run) -> Any:
        """What the API says of the change that this run was dispatched for."""
        number = run.client_payload["relay"]["dashboard_url"].rpartition("/")[2]
        return self.get(f"/api/v1/changes/{number}")

    def combinations(self, run: Run) -> list[tuple[str | None, str | None, str]]:
        """The run's backend on that change: each combination's versions of backend and suite, and its outcome."""
        (mine,) = [one for one in self.change(run)["backends"] if one["backend"] == run.repository.full_name.lower()]
        found = [(one["backend_version"], one["suite_version"], one["outcome"]) for one in mine["combinations"]]
        return sorted(found, key=str)

    def settled(self, condition: Callable[[], bool], what: str, timeout: float = 15.0) -> None:
        """Wait for something that the outside can see."""
        wait_until(condition, timeout, what=what)
