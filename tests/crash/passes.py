"""One pass of the story with deaths in it, held against the promises and against the story without any."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from allowlist.parse import parse
from tests.crash.crossings import Crossing
from tests.crash.mortal import MortalRelay
from tests.crash.story import Told, open_world, people_it, tell
from tests.promises import Trouble, Verdict, judge, record_of

_NUMBERS = re.compile(r"(?<=/)(?:\d+|[0-9a-f]{40})(?=/|$)|(?<=compare/)[^/]+")


@dataclass(frozen=True)
class Pass:
    """What came of one pass. ``shown`` holds the conclusion of each check by the place of its commit in the story."""

    die_at: tuple[int, ...]
    deaths: tuple[Crossing, ...]
    crossings: tuple[Crossing, ...]
    shown: Mapping[tuple[str, str], str | None]
    verdict: Verdict | None
    faults: tuple[str, ...]
    seconds: float


def place_of(crossing: Crossing) -> str:
    """The crossing without what differs from pass to pass: ids, and which of several tables a group wrote."""
    return f"{_NUMBERS.sub('*', crossing.what)} {crossing.moment}"


def play(folder: Path, database_url: str, die_at: Collection[int], expected: Pass | None = None) -> Pass:
    """Play the story once, with deaths at these crossings, and judge it. ``expected`` is the pass without any."""
    began = time.perf_counter()
    faults: list[str] = []
    verdict, shown = None, {}
    with open_world(folder, database_url) as world:
        people_it(world)
        with MortalRelay(world, die_at) as relay:
            try:
                told = tell(world, relay)
            except TimeoutError as error:
                faults.append(f"the story did not go on: {error}")
            else:
                shown = _shown(told)
                trouble = Trouble(kills=tuple(at.timestamp() for at in relay.killed_at), patience=20.0)
                entries = parse(world.allowlist.read_text()).entries
                verdict = judge(record_of(world.sim), entries, trouble)
                faults += map(str, verdict.breaches)
                if told.night_answered != 200:
                    faults.append(f"the report of a night was answered {told.night_answered}")
            faults += relay.strange
            crossings, deaths = tuple(relay.crossings()), tuple(relay.deaths())
    if expected is not None and verdict is not None:
        faults += _differences(expected, shown)
    if not faults:
        shutil.rmtree(folder)
    return Pass(
        die_at=tuple(sorted(die_at)),
        deaths=deaths,
        crossings=crossings,
        shown=shown,
        verdict=verdict,
        faults=tuple(faults),
        seconds=time.perf_counter() - began,
    )


def _shown(told: Told) -> dict[tuple[str, str], str | None]:
    return {
        (place, name): check.conclusion
        for place, head in told.heads.items()
        for name, check in told.world.up.checks(head).items()
    }


def _differences(expected: Pass, shown: Mapping[tuple[str, str], str | None]) -> list[str]:
    """Where the checks that GitHub shows at the end are others than without any death."""
    return [
        f"{name} of the commit {place} ends {shown.get((place, name), 'missing')}, without deaths "
        f"{expected.shown.get((place, name), 'missing')}"
        for place, name in sorted({*expected.shown, *shown})
        if expected.shown.get((place, name), "missing") != shown.get((place, name), "missing")
    ]
