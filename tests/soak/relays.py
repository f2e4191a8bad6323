"""The relay as people run it: one process or several on one database, killed, stopped and started again."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from relay.serving import listening_socket
from tests.stories.relay_process import environment

START_SECONDS = 60.0


@dataclass
class Replica:
    """One process on a port of its own, for all its lives."""

    folder: Path
    settings: Mapping[str, Any]
    number: int = 0
    port: int = 0
    peak: float = 0.0
    #: Whether it is ready and meant to be; False while it is being ended and started again.
    standing: bool = False
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        with listening_socket() as (_, self.port):
            pass

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """What it said."""
        return self.folder / f"relay-{self.number}.log"

    def start(self) -> None:
        """Start it and wait until it is ready. Raises RuntimeError with what it said."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "relay", "serve", "--port", str(self.port)],
                env=environment(self.settings),
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        end = time.monotonic() + START_SECONDS
        while not self.ready():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the relay did not start: {self.log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)
        self.standing = True

    def ready(self) -> bool:
        """Whether it can do its work."""
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5):
                return True
        except OSError:
            return False

    def end(self, number: signal.Signals) -> None:
        """End it with this signal, and wait until it is gone."""
        if self._process is not None:
            self._process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(40)
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait(10)
            self._process = None

    def look(self) -> None:
        """Note how much memory it holds, where it is more than ever before; in MB."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                self.peak = max(self.peak, psutil.Process(self._process.pid).memory_info().rss / 1e6)

    def crashed(self) -> bool:
        """Whether it ended by itself, which it never may."""
        return self._process is not None and self._process.poll() is not None

    def cpu(self) -> float:
        """Seconds of CPU of the present life."""
        if self._process is None:
            return 0.0
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)
