"""A process that has loaded the relay and does nothing but fork: ``python -m tests.started.parent FD``.

Each child is a session of its own with the words, the environment, the folder and the three standard files that were
asked for, and then runs a module as ``python -m`` would, to the interpreter's ordinary end. What a start does after
loading modules is done anew in each.

It listens on the socket FD. Whoever connects sends one byte, and with it the child's standard input, output and error,
and then a line of JSON that says what to run, see ``asking``; and is told the child's id, and its exit status when it
has ended. When the parent's own standard input ends, so does the parent, and its children with it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: What any of the processes would load at its start, or at its first request.
MODULES = (
    "psycopg",
    "relay.app",
    "relay.cli",
    "relay.console.override",
    "relay.console.service",
    "relay.demo",
    "relay.doctor",
    "relay.phrases",
    "relay.process",
    "relay.rotation",
    "relay.serving",
    "relay.store.reading.why",
    "relay.store.schema",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.httptools_impl",
)


@dataclass(frozen=True)
class Asked:
    """One child: the module that it runs, its words, its whole environment and its folder."""

    module: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    folder: str


def main() -> None:
    """Load everything, and fork when asked to. Returns in the parent only."""
    for module in MODULES:
        importlib.import_module(module)
    assert threading.active_count() == 1, "a thread would be missing in every child"
    gc.collect()
    gc.freeze()  # The collector would write to every page, and each child would have to copy them.
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        child = until_a_child_begins(listening)
    if child is not None:
        sys.argv[1:] = child.arguments
        runpy.run_module(child.module, run_name="__main__", alter_sys=True)


def until_a_child_begins(listening: socket.socket) -> Asked | None:
    """Fork a child each time that one is asked for. Returns in each child what it is to run, and None at the end."""
    living: dict[int, socket.socket] = {}
    ended, told = os.pipe()
    os.set_blocking(ended, False)
    os.set_blocking(told, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(told)
    while True:
        ready, _, _ = select.select([0, listening.fileno(), ended], [], [])
        if 0 in ready:
            return None
        if ended in ready:
            os.read(ended, 1_000)
            _tell_of_the_ended(living)
        if listening.fileno() not in ready:
            continue
        about, _ = listening.accept()
        _, files, _, _ = socket.recv_fds(about, 1, 3)
        with about.makefile("rb") as lines:
            asked = _read(json.loads(lines.readline()))
        parent = os.getpid()
        if (child := os.fork()) == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (about, *living.values()):
                each.close()
            os.close(ended)
            os.close(told)
            _become(asked, files, parent)
            return asked
        for file in files:
            os.close(file)
        living[child] = about
        with contextlib.suppress(OSError):  # Whoever asked may be gone.
            about.sendall(f"{child}\n".encode())


def _read(raw: dict[str, Any]) -> Asked:
    return Asked(raw["module"], tuple(raw["arguments"]), raw["environment"], raw["folder"])


def _tell_of_the_ended(living: dict[int, socket.socket]) -> None:
    while living:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            return
        with living.pop(child) as about, contextlib.suppress(OSError):
            about.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _become(asked: Asked, files: Sequence[int], parent: int) -> None:
    """Turn this copy of the parent into what a fresh process would be, its modules aside."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
    for file in files:
        if file > 2:
            os.close(file)
    os.chdir(asked.folder)
    os.environ.clear()
    os.environ.update(asked.environment)
    time.tzset()
    tempfile.tempdir = None  # It is found anew, by the environment.
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False, buffering=1 if os.isatty(1) else -1)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)  # noqa: SIM115
    threading.Thread(target=end_with, args=(parent,), daemon=True, name="end with the parent").start()


def end_with(parent: int) -> None:
    """End this process when the one that started it is gone: a test that is interrupted leaves nothing running."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    main()
