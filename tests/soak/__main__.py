"""``python -m tests.soak``: plays the week, prints what came of it, and exits with 1 when a promise was broken."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.site import Databases
from tests.soak.fleet import DEADLINE_SECONDS
from tests.soak.soak import WEEK_MINUTES, Outcome, Plan, Soak


def main() -> int:
    """Play as told. 0: every promise held, 1: one did not, 2: wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=None, help="how much of the week is played; default: all")
    parser.add_argument("--week-minutes", type=float, default=WEEK_MINUTES, help="the week's length (%(default)s)")
    parser.add_argument("--pairs", type=int, default=None, help="end once so many dispatches were made")
    parser.add_argument("--seed", type=int, default=1, help="what happens (default: %(default)s)")
    parser.add_argument("--deadline", type=int, default=DEADLINE_SECONDS, help="seconds a backend has (%(default)s)")
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL, which comes as a wheel")
    parser.add_argument("--database-url", help="on this database, which must be empty")
    parser.add_argument("--processes", type=int, default=1, help="replicas of the relay; needs PostgreSQL")
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--keep", type=Path, help="a folder for logs and the database, kept afterwards")
    options = parser.parse_args()
    if options.processes > 1 and not (options.postgres or options.database_url):
        parser.error("several processes share a database only on PostgreSQL: add --postgres")
    plan = Plan(
        minutes=options.minutes or options.week_minutes,
        week_minutes=options.week_minutes,
        pairs=options.pairs,
        seed=options.seed,
        replicas=options.processes,
        deadline=options.deadline,
    )
    with tempfile.TemporaryDirectory(prefix="crcr-soak-") as made:
        folder = options.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        databases = Databases(folder, postgres=options.postgres)
        try:
            outcome = Soak(plan, folder, options.database_url or databases.fresh(), say).play()
        finally:
            databases.close()
    say(table(outcome))
    if options.json is not None:
        options.json.write_text(json.dumps(outcome.json(), indent=1))
    return 0 if outcome.ok else 1


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()


def table(outcome: Outcome) -> str:
    """The figures for people."""
    verdict, late = outcome.verdict, outcome.delays
    rows: list[tuple[str, object]] = [
        ("played and settled in", f"{outcome.seconds / 60:.1f} min"),
        ("webhooks answered 2xx", outcome.webhooks),
        ("p99 of their answers", f"{outcome.webhook_p99_ms:.0f} ms"),
        ("from answer to dispatch, p50 and p99", f"{late.dispatch_p50:.1f} and {late.dispatch_p99:.1f} s"),
        ("from callback to the HUD, p50 and p99", f"{late.row_p50:.1f} and {late.row_p99:.1f} s"),
        ("pairs (event, backend) wanted", verdict.pairs),
        *((f"  {fate}", count) for fate, count in verdict.by_fate.items()),
        ("runs started", verdict.runs),
        ("  twice, explained", verdict.repeats_explained),
        ("  twice, unexplained", verdict.repeats_unexplained),
        ("callbacks sent", verdict.callbacks),
        ("  accepted", verdict.callbacks_accepted),
        ("  accepted and lost", verdict.callbacks_lost),
        ("rows the HUD got twice", verdict.rows_twice),
        ("check writes", verdict.check_writes),
        ("gates missing or late", verdict.gates_missing),
        ("checks open past their deadline", verdict.checks_open),
        ("bad reports sent", sum(outcome.bad_reports.values())),
        ("  answered wrongly", sum(outcome.wrong_answers.values())),
        ("webhooks refused", outcome.refused_webhooks),
        ("calls before their Retry-After", outcome.early),
        ("calls over GitHub's limits", sum(outcome.limit_hits.values())),
        ("peak memory of one relay", f"{outcome.peak_mb:.0f} MB"),
        ("ended by itself", outcome.crashes),
        *((blow, f"{count} times") for blow, count in sorted(outcome.faults.items())),
        *((f"  requests that met: {kind}", count) for kind, count in sorted(outcome.faults_met.items())),
    ]
    lines = ["what came of it", *(f"  {name:<45} {value:>12}" for name, value in rows)]
    lines += [f"BROKEN: {breach}" for breach in verdict.breaches]
    lines += [f"ANSWERED WRONGLY ({count}): {what}" for what, count in outcome.wrong_answers.items()]
    lines += [f"STILL OWED: {outcome.left}"] if outcome.left else []
    lines.append("every promise held" if outcome.ok else "a promise was broken")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
