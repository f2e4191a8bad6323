"""The relay as a process of its own with its environment, which can be killed at any moment.

It is started from what is loaded already, see ``tests.started``; ``tests.test_cli`` starts it as people do.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from relay.serving import listening_socket
from tests.started import process as processes
from tests.stories.world import World

#: What a process needs of ours to find its interpreter's modules; no setting of the caller's may reach it.
_KEPT = ("PATH", "HOME", "LANG", "PYTHONPATH")


def environment(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings as the environment holds them."""
    found = {name: os.environ[name] for name in _KEPT if name in os.environ}
    for name, value in settings.items():
        if name == "oidc_issuers":
            text = json.dumps(value)
        elif isinstance(value, tuple):
            text = ",".join(value)
        else:
            text = str(value)
        found[f"CRCR_{name.upper()}"] = text
    return found


def run(world: World, *arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, with the world's settings and those given."""
    return processes.run(*arguments, environment=environment(world.settings() | settings), folder=world.folder)


class RelayProcess:
    """One process that serves the world's backends on a port of its own, with the world's settings and those given."""

    def __init__(self, world: World, log: Path, *, role: str = "all", **settings: Any) -> None:
        with listening_socket() as (_, port):
            self.url = f"http://127.0.0.1:{port}"
        self._log = log.open("ab")
        self._told = False
        self.log = log
        self._process = processes.start(
            *("serve", "--role", role, "--port", str(port)),
            environment=environment(world.settings() | {"public_url": self.url} | settings),
            folder=world.folder,
            output=self._log,
        )

    def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Block until it can do its work. Raises TimeoutError with what it said."""
        end = time.monotonic() + timeout
        while time.monotonic() < end and self._process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.url}/readyz", timeout=5).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        raise TimeoutError(f"the relay did not become ready: {self.log.read_text()[-2000:]}")

    @property
    def worker(self) -> str:
        """The name under which it holds what it has claimed, as its log says."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        (name,) = [line["worker"] for line in lines if line["event"] == "started"]
        return str(name)

    def terminate(self) -> None:
        """SIGTERM; it goes on for as long as it takes to finish what it has begun."""
        self._told = True
        self._process.terminate()

    def kill(self) -> None:
        """SIGKILL: no handler runs, nothing is flushed."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(30)
        self._log.close()

    def stop(self) -> int:
        """SIGTERM, as a deploy does; returns the exit status."""
        if self._process.poll() is None and not self._told:
            self.terminate()  # Once: a second signal means "at once".
        status = self._process.wait(30)
        self._log.close()
        return status


@contextlib.contextmanager
def relay_process(world: World) -> Iterator[RelayProcess]:
    """A ready process, ended with the block at the latest. The simulator's webhooks point at it."""
    process = RelayProcess(world, world.folder / "relay.log")
    try:
        process.wait_until_ready()
        world.sim.webhook_url = f"{process.url}/github/webhook"
        yield process
    finally:
        process.stop()
