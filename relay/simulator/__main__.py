"""``python -m relay.simulator``: the simulator as a process of its own, told what to do under ``/_sim/``."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence

from relay.simulator.simulator import Simulator


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal ends it. Prints the API's root as its first line."""
    parser = argparse.ArgumentParser(prog="python -m relay.simulator", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one (default)")
    parser.add_argument("--latency", type=float, default=0.0, metavar="SECONDS", help="delay of each API answer")
    parser.add_argument("--seed", type=int, default=0, help="what ids and shas are made from (default: %(default)s)")
    parser.add_argument("--webhook-url", help="where every app's webhook points")
    parser.add_argument("--callback-url", help="where backends report, instead of what each dispatch names")
    options = parser.parse_args(arguments)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    try:
        simulator = Simulator(seed=options.seed, latency=options.latency, host=options.host, port=options.port)
    except OSError as error:
        sys.stderr.write(f"cannot listen on {options.host}:{options.port}: {error.strerror}\n")
        return 2
    with simulator:
        simulator.webhook_url, simulator.callback_url = options.webhook_url, options.callback_url
        sys.stdout.write(f"{simulator.url}\n")
        sys.stdout.flush()
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
