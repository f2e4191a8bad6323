"""Starts ``python -m`` of our modules by a fork of the loaded parent, see ``parent``. Used as ``subprocess`` is.

Each test process has a parent of its own, started with the first child. Tests of the start itself use ``subprocess``.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from tests.started.asking import VARIABLE, ask

ROOT = Path(__file__).parents[2]
BIN = Path(__file__).parent / "bin"


class Started:
    """A process that runs: what tests use of ``subprocess.Popen``. A negative ``returncode`` is the signal it died of.

    ``about`` is the socket over which the parent tells of it.
    """

    def __init__(self, about: socket.socket) -> None:
        self._about = about
        self._said = about.makefile("rb", buffering=0)  # What is read ahead would be waited for in vain.
        self._lock = threading.Lock()
        self.pid = int(self._said.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit status, None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended and return its exit status.

        Raises subprocess.TimeoutExpired after so many seconds, ChildProcessError where its parent is gone.
        """
        with self._lock:
            if self.returncode is None:
                if not select.select([self._about], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
                with self._about, self._said:
                    said = self._said.readline()
                if not said:
                    raise ChildProcessError("the process that forks has ended, so nobody knows of this one")
                self.returncode = int(said)
            return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, where it still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Parent:
    """The process that forks. It ends with this one, however this one ends: its standard input is closed then."""

    def __init__(self) -> None:
        # A Unix socket's path may have about 100 characters, so it does not stand in a test's folder.
        self._folder = tempfile.TemporaryDirectory(prefix="crcr-")
        self.address = f"{self._folder.name}/socket"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(self.address)
            listening.listen(64)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.started.parent", str(listening.fileno())],
                pass_fds=[listening.fileno()],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the tests, which end this one by their own end.
            )

    def close(self) -> None:
        """End it, and with it all that it started."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._folder.cleanup()


@functools.cache
def _parent_of(_process: int) -> Parent:
    parent = Parent()
    atexit.register(parent.close)
    return parent


def for_shells(environment: Mapping[str, str]) -> dict[str, str]:
    """This environment, with a ``crcr`` that is found first and starts at once."""
    return {
        **environment,
        "PATH": f"{BIN}{os.pathsep}{environment['PATH']}",
        VARIABLE: _parent_of(os.getpid()).address,
    }


def start(
    *arguments: str,
    environment: Mapping[str, str],
    folder: Path,
    output: BinaryIO | int,
    errors: BinaryIO | int | None = None,
    given: BinaryIO | int | None = None,
    module: str = "relay",
    parent: Parent | None = None,
) -> Started:
    """Start ``python -m`` of the module with this environment and no other, in this folder.

    ``output`` gets what it prints, and ``errors`` what it prints on standard error, where that is not the same;
    ``given`` is its standard input, else empty.
    """
    with Path(os.devnull).open("rb") as nothing:
        files = [nothing if given is None else given, output, output if errors is None else errors]
        first, second, third = (file if isinstance(file, int) else file.fileno() for file in files)
        return Started(
            ask(
                (parent or _parent_of(os.getpid())).address,
                module=module,
                arguments=arguments,
                environment=environment,
                folder=folder,
                files=(first, second, third),
            )
        )


def run(
    *arguments: str, environment: Mapping[str, str], folder: Path, timeout: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m relay`` to its end. Raises subprocess.TimeoutExpired after so many seconds, and ends it."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = start(*arguments, environment=environment, folder=folder, output=output, errors=errors)
        try:
            status = process.wait(timeout)
        finally:
            process.kill()
        said = []
        for file in (output, errors):
            file.seek(0)
            said.append(file.read().decode())
    return subprocess.CompletedProcess(list(arguments), status, *said)
