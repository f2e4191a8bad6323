"""One pass of the story with deaths in it, held against the promises and against how the story has to end."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from allowlist.parse import parse
from tests.crash.crossings import Crossing, Deaths
from tests.crash.mortal import MortalRelay
from tests.crash.story import ENDS, Told, open_world, people_it, tell
from tests.promises import Trouble, Verdict, judge, record_of

#: How long the relay may take for anything while nothing is broken, on a machine that does much else.
PATIENCE = 20.0


@dataclass(frozen=True)
class Pass:
    """What came of one pass. ``verdict`` is None where the story did not come to its end."""

    die_at: tuple[int | str, ...]
    deaths: tuple[Crossing, ...]
    crossings: tuple[Crossing, ...]
    verdict: Verdict | None
    faults: tuple[str, ...]
    seconds: float


def play(folder: Path, database_url: str, die_at: Deaths = ()) -> Pass:
    """Play the story once, with deaths at these crossings, and judge it. The folder is left only where a fault is."""
    began = time.perf_counter()
    faults: list[str] = []
    verdict = None
    with open_world(folder, database_url) as world:
        people_it(world)
        with MortalRelay(world, die_at) as relay:
            try:
                told = tell(world, relay)
            except TimeoutError as error:
                faults.append(f"the story did not go on: {error}")
            else:
                kills = tuple(at.timestamp() for at in relay.killed_at)
                entries = parse(world.allowlist.read_text()).entries
                verdict = judge(record_of(world.sim), entries, Trouble(kills=kills, patience=PATIENCE))
                faults += [*map(str, verdict.breaches), *_differences(told), *_unseen(told, relay.crossings())]
            faults += relay.strange
            crossings, deaths = tuple(relay.crossings()), tuple(relay.deaths())
    if not faults:
        shutil.rmtree(folder)
    return Pass(tuple(die_at), deaths, crossings, verdict, tuple(faults), time.perf_counter() - began)


def _differences(told: Told) -> list[str]:
    """Where what GitHub shows at the end, or what was answered, is not what it has to be."""
    shown: Mapping[tuple[str, str], str | None] = {
        (place, name): check.conclusion
        for place, head in told.heads.items()
        for name, check in told.world.up.checks(head).items()
    }
    faults = [
        f"{name} of the commit {place} ends {shown.get((place, name), 'missing')} "
        f"instead of {ENDS.get((place, name), 'missing')}"
        for place, name in sorted({*ENDS, *shown})
        if ENDS.get((place, name), "missing") != shown.get((place, name), "missing")
    ]
    if told.night_answered != 200:
        faults.append(f"the report of a night was answered {told.night_answered}")
    return faults


def _unseen(told: Told, crossings: Sequence[Crossing]) -> list[str]:
    """Requests that reached the simulator past the wrapped transport: nobody would ever die beside them."""
    seen = {crossing.what for crossing in crossings}
    asked = {f"{request.method} {request.path}" for request in told.world.sim.log}
    return [f"{request} was no crossing" for request in sorted(asked - seen)]
