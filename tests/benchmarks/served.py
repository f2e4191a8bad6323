"""The relay as a process, and where asked with a profile of each of its threads: ``python -m tests.benchmarks.served``.

The first argument is the port; a second one names the file that the profile goes to when the process is told to end.
"""

from __future__ import annotations

import cProfile
import pstats
import signal
import sys
import threading
import time
from pathlib import Path

from relay.app import build
from relay.console.service import configure_logs
from relay.serving import run
from relay.settings import load_settings


def main(port: int, profile_to: Path | None) -> None:
    """Serve until told to end."""
    configure_logs()
    if profile_to is None:
        run(build(load_settings()), host="127.0.0.1", port=port, role="all")
        return
    # Time of the CPU, since what a thread waits for would fill the list.
    profiles = [cProfile.Profile(time.thread_time)]

    def begin(*_event: object) -> None:
        # Called at a thread's first event; the profile takes this function's place for the rest of its life.
        mine = cProfile.Profile(time.thread_time)
        profiles.append(mine)
        mine.enable()

    # uvicorn hands the signal on once it has drained, and by default that ends the process at once.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    threading.setprofile(begin)
    profiles[0].enable()
    try:
        run(build(load_settings()), host="127.0.0.1", port=port, role="all")
    finally:
        profiles[0].disable()
        threading.setprofile(None)
        whole = pstats.Stats(profiles[0])
        for profile in profiles[1:]:
            whole.add(profile)
        whole.dump_stats(profile_to)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
