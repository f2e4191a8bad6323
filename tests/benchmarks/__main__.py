"""``python -m tests.benchmarks``: prints the speed table with what was reached on this machine."""

from __future__ import annotations

import argparse
import io
import pstats
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks import measures
from tests.benchmarks.material import Webhooks
from tests.benchmarks.measures import Bench
from tests.benchmarks.site import Databases, simulated_github
from tests.benchmarks.table import HEADING, Figure, line

MEASURES: dict[str, Callable[[Bench], list[Figure]]] = {
    "webhooks": measures.fan_out,
    "webhooks5": measures.small_fan_out,
    "last10": lambda bench: measures.last_out(bench, 10),
    "last200": lambda bench: measures.last_out(bench, 200, "under 450 ms"),
    "callbacks": measures.callbacks,
    "callbacks4": measures.callbacks_with_checks,
    "callbacks2": measures.callbacks_without_checks,
    "checks": measures.check_writes,
    "kill": measures.killed,
    "outage": measures.outage,
}
_QUICK = ("webhooks", "callbacks", "checks")
_PROFILE_LINES = 45


def main() -> int:
    """Measure what was asked for and print each line as soon as it is known."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("only", nargs="*", help=f"which to run, of {', '.join(MEASURES)}; default all")
    parser.add_argument("--quick", action="store_true", help="a subset in about 30 s")
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL as well")
    parser.add_argument("--seconds", type=float, default=8.0, help="how long each load lasts (default: %(default)s)")
    parser.add_argument("--profile", action="store_true", help="profile the relay, and print where its time goes")
    options = parser.parse_args()
    if unknown := sorted(set(options.only) - set(MEASURES)):
        parser.error(f"there is no {unknown[0]}")
    names = options.only or (list(_QUICK) if options.quick else list(MEASURES))
    with tempfile.TemporaryDirectory(prefix="crcr-bench-") as folder, simulated_github() as github:
        webhooks = Webhooks(github)
        for postgres in (False, True) if options.postgres else (False,):
            sys.stdout.write(f"\n{'PostgreSQL' if postgres else 'SQLite'}\n\n{HEADING}\n")
            databases = Databases(Path(folder), postgres=postgres)
            bench = Bench(github, webhooks, databases, options.seconds, repeats=7, profile=options.profile)
            try:
                for name in names:
                    for figure in MEASURES[name](measures.quick(bench) if options.quick else bench):
                        sys.stdout.write(f"{line(figure)}\n")
                        sys.stdout.flush()
                    if options.profile:
                        _print_profile(databases.folder / "profile")
            finally:
                databases.close()
    return 0


def _print_profile(path: Path) -> None:
    for order in ("tottime", "cumulative"):
        text = io.StringIO()
        pstats.Stats(str(path), stream=text).sort_stats(order).print_stats(_PROFILE_LINES)
        sys.stdout.write(text.getvalue())


if __name__ == "__main__":
    sys.exit(main())
