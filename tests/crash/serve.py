"""The relay as ``crcr serve`` runs it, in processes that die where they are told: ``python -m tests.crash.serve``.

It takes its settings from the environment, as the service does. Each line on standard input is a JSON list of the
crossings at which to die, and starts one process that serves; its id is printed, and once it has ended, its status.
The processes are forked from this one, which has loaded all modules and done nothing else: a start takes a tenth of
the time, and whatever a start does after loading is done anew.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import sqlalchemy.dialects.postgresql.psycopg
import uvicorn.lifespan.on
import uvicorn.loops.auto

from relay.app import build
from relay.cli import configure_logs
from relay.serving import run
from relay.settings import load_settings
from tests.crash.crossings import Crossings, Deaths, WatchedTransport, watched_store

#: Named so that the modules which a start would load are loaded before the fork.
LOADED = (psycopg, sqlalchemy.dialects.postgresql.psycopg, uvicorn.lifespan.on, uvicorn.loops.auto)


def shared_clock(file: Path) -> Callable[[], datetime]:
    """Real time, and as many seconds more as stand in the file, which the test may change at any moment."""
    ahead = os.open(file, os.O_RDONLY)

    def now() -> datetime:
        return datetime.now(UTC) + timedelta(seconds=float(os.pread(ahead, 32, 0)))

    return now


def end_with(parent: int) -> None:
    """End this process when the one that started it is gone: a test that is interrupted leaves nothing running."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def serve(port: int, record: Path, clock: Path, die_at: Deaths) -> None:
    """Serve until told to end, or until dead."""
    crossings = Crossings(record, die_at)
    relay = build(
        load_settings(),
        now=shared_clock(clock),
        open_store=watched_store(crossings),
        transport=lambda: WatchedTransport(crossings),
    )
    run(relay, host="127.0.0.1", port=port, role="all")


def main() -> None:
    """Start one process after the other, as asked."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--port", type=int, required=True)
    arguments.add_argument("--record", type=Path, required=True, help="the crossings are added to this file")
    arguments.add_argument("--clock", type=Path, required=True, help="holds by how many seconds to be ahead")
    given = arguments.parse_args()
    for line in iter(sys.stdin.readline, ""):
        die_at: list[int | str] = json.loads(line)
        me = os.getpid()
        if (child := os.fork()) == 0:
            sys.stdin.close()
            threading.Thread(target=end_with, args=(me,), daemon=True).start()
            configure_logs(level=logging.INFO)
            with contextlib.suppress(KeyboardInterrupt):
                serve(given.port, given.record, given.clock, die_at)
            os._exit(0)
        print(f"serves {child}", flush=True)
        _, status = os.waitpid(child, 0)
        print(f"ended {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    main()
