"""The relay as ``crcr serve`` runs it, in a process that dies where it is told: ``python -m tests.crash.serve``.

It takes its settings from the environment, as the service does.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from relay.app import build
from relay.console.service import configure_logs
from relay.serving import run
from relay.settings import load_settings
from tests.crash.crossings import Crossings, Deaths, WatchedTransport, watched_store


def shared_clock(file: Path) -> Callable[[], datetime]:
    """Real time, and as many seconds more as stand in the file, which the test may change at any moment."""
    ahead = os.open(file, os.O_RDONLY)

    def now() -> datetime:
        return datetime.now(UTC) + timedelta(seconds=float(os.pread(ahead, 32, 0)))

    return now


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
    """Serve with what was asked for."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--port", type=int, required=True)
    arguments.add_argument("--record", type=Path, required=True, help="the crossings are added to this file")
    arguments.add_argument("--clock", type=Path, required=True, help="holds by how many seconds to be ahead")
    arguments.add_argument("--die-at", type=json.loads, required=True, help="a JSON list of the crossings to die at")
    given = arguments.parse_args()
    configure_logs(level=logging.INFO)
    serve(given.port, given.record, given.clock, given.die_at)


if __name__ == "__main__":
    main()
