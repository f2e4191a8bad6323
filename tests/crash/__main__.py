"""``make crash``: the relay dies at every crossing of the story, and each promise is held against what became of it.

A pass without deaths tells how many crossings there are. Then each of them is a death in one pass, with others before
and after it, as far apart as there are passes; a pass goes on to its end, so that what a death left to be done is
interrupted as well. Places that were met and where, by chance, no process died, are died at in further passes.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from tests.crash.crossings import Deaths
from tests.crash.databases import fresh, server
from tests.crash.passes import Pass, play

#: How far apart the deaths of one pass are. A start needs a dozen crossings to get to anything.
APART = 80
#: The longest story with all that was done again, in multiples of the one without deaths.
LONGEST = 4
#: How many places are died at in one of the further passes.
PLACES = 8


def one(folder: Path, admin_url: str | None, numbered: tuple[int, Deaths]) -> Pass:
    """One pass in a folder and a database of its own."""
    number, die_at = numbered
    place = folder / f"pass{number}"
    place.mkdir()
    with fresh(place, f"crash{number}", admin_url) as url:
        return play(place, url, die_at)


def whole(first: Pass) -> list[Deaths]:
    """Deaths for which every crossing of the pass without any is one."""
    last = len(first.crossings) * LONGEST
    starts = random.Random(0).sample(range(1, APART + 1), APART)  # In no order, should time be up before the end.
    return [range(start, last, APART) for start in starts]


def sample(first: Pass, count: int, seed: int) -> list[Deaths]:
    """So many deaths, drawn from the crossings of the pass without any."""
    drawn = random.Random(seed).sample(range(1, len(first.crossings) + 1), count)
    return [drawn[start : start + PLACES] for start in range(0, count, PLACES)]


def unmet(passes: Iterable[Pass]) -> list[str]:
    """The places that were met and where nobody died."""
    met = {crossing.place for each in passes for crossing in each.crossings}
    return sorted(met - {death.place for each in passes for death in each.deaths})


def run(name: str, admin_url: str | None, folder: Path, given: argparse.Namespace) -> int:
    """All passes on one database; returns how many of them had a fault."""
    began = time.perf_counter()
    folder.mkdir()
    play_one = partial(one, folder, admin_url)
    if given.die_at:
        passes = [play_one((0, [int(part) if part.isdigit() else part for part in given.die_at.split(";")]))]
        report(name, passes, time.perf_counter() - began, left_out=0)
        return bool(passes[0].faults)
    passes = [play_one((0, ()))]
    planned = sample(passes[0], given.sample, given.seed) if given.sample else whole(passes[0])
    print(f"{name}: {len(passes[0].crossings)} crossings without deaths, {len(planned)} passes", flush=True)
    until = began + 60 * given.minutes
    with ProcessPoolExecutor(given.processes) as pool:
        passes += _all(pool, play_one, planned, 1, until)
        if not given.sample and time.perf_counter() < until:
            left = unmet(passes)
            further: list[Deaths] = [left[start : start + PLACES] for start in range(0, len(left), PLACES)]
            passes += _all(pool, play_one, further, 1 + len(planned), until)
            planned += further
    report(name, passes, time.perf_counter() - began, left_out=1 + len(planned) - len(passes))
    return sum(bool(each.faults) for each in passes)


def _all(
    pool: ProcessPoolExecutor, play_one: partial[Pass], planned: Sequence[Deaths], first: int, until: float
) -> list[Pass]:
    """Play them, several at a time; those that were not begun when time is up are left out."""
    waiting = [pool.submit(play_one, numbered) for numbered in enumerate(planned, start=first)]
    passes = []
    for done in as_completed(waiting):
        if not done.cancelled():
            passes.append(done.result())
            print("." if not passes[-1].faults else "\n".join(["F", *passes[-1].faults, ""]), end="", flush=True)
        if time.perf_counter() > until:
            for each in waiting:
                each.cancel()
    print()
    return passes


def report(name: str, passes: Sequence[Pass], seconds: float, *, left_out: int) -> None:
    """Print where processes died, what became of everything, and each fault with the way to see it again."""
    deaths = Counter(death.place for each in passes for death in each.deaths)
    print(f"\n{name}: deaths by place")
    for place in sorted(deaths):
        print(f"  {deaths[place]:5}  {place}")
    verdicts = [each.verdict for each in passes if each.verdict is not None]
    rows = {
        "passes": len(passes),
        "passes left out, since time was up": left_out,
        "crossings without deaths": len(passes[0].crossings),
        "deaths": sum(deaths.values()),
        "places died at": len(deaths),
        "places met where nobody died": len(unmet(passes)),
        "pairs of event and backend": sum(verdict.pairs for verdict in verdicts),
        "lost": sum(verdict.by_fate["lost"] for verdict in verdicts),
        "runs": sum(verdict.runs for verdict in verdicts),
        "told twice, after an ambiguous failure": sum(verdict.repeats_explained for verdict in verdicts),
        "told twice otherwise": sum(verdict.repeats_unexplained for verdict in verdicts),
        "callbacks answered 200": sum(verdict.callbacks_accepted for verdict in verdicts),
        "callbacks lost": sum(verdict.callbacks_lost for verdict in verdicts),
        "rows that the HUD got twice": sum(verdict.rows_twice for verdict in verdicts),
        "checks left open": sum(verdict.checks_open for verdict in verdicts),
        "passes with a fault": sum(bool(each.faults) for each in passes),
        "seconds": round(seconds),
    }
    print(f"\n{name}")
    for what, figure in rows.items():
        print(f"  {figure:9}  {what}")
    for each in passes:
        if each.faults:
            print(f"\nFAULT with deaths at {'; '.join(map(str, each.deaths))}")
            print(f"  again: --die-at '{';'.join(map(str, (death.ordinal for death in each.deaths)))}'")
            for fault in each.faults:
                print(f"  {fault}")


def main() -> int:
    """Run what was asked for; returns 1 where any promise was broken."""
    arguments = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    arguments.add_argument("--database", choices=("sqlite", "postgres", "both"), default="both")
    arguments.add_argument("--sample", type=int, default=0, help="only so many deaths, drawn at random")
    arguments.add_argument("--seed", type=int, default=0, help="of the drawing")
    arguments.add_argument("--die-at", default="", help="one pass with these deaths: numbers or places, with ; between")
    arguments.add_argument("--minutes", type=float, default=180, help="begin no pass on a database after so many")
    arguments.add_argument("--processes", type=int, default=2, help="passes at a time")
    given = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="crcr-crash-"))
    faults = 0
    for name in ("sqlite", "postgres"):
        if given.database in {name, "both"}:
            with server(folder) if name == "postgres" else nullcontext() as admin_url:
                faults += run(name, admin_url, folder / name, given)
    print(f"\n{faults} passes with a fault; what they left is in {folder}" if faults else "\nEvery promise was kept.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
