"""What breaks during the week, and when: one trouble after another, each for a while, all kinds in turn."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from relay.simulator import Fault, Kind, Match

DISPATCH = r"/dispatches$"
CHECKS = r"/check-runs"
HUD = r"^/hud/"
KEYS = r"jwks"
#: After trouble of so many seconds the next try can be four times as far away, as the retry schedule has it.
_NEXT_TRY = 4.0


class Blow(StrEnum):
    """Kinds of trouble. The first two are done to the process, the third to its database, the others to the network."""

    KILL = "kill -9"
    DEPLOY = "a deploy (SIGTERM)"
    DATABASE_DOWN = "database down"
    GITHUB_DOWN = "GitHub down"
    HUD_DOWN = "HUD down"
    KEYS_DOWN = "key set down"
    ERRORS = "5xx before effect"
    ERRORS_AFTER = "5xx after effect"
    CUTS = "connections cut before effect"
    CUTS_AFTER = "connections cut after effect"
    SLOW = "answers after 10 s"
    SECONDARY = "secondary limit"
    PRIMARY = "primary limit"
    MALFORMED = "malformed JSON"
    ARCHIVED = "one backend archived"


@dataclass(frozen=True, slots=True)
class Spell:
    """One trouble: from when, for how long (seconds), and which scripted faults it is made of."""

    at: float
    seconds: float
    blow: Blow
    faults: tuple[Fault, ...] = ()

    @property
    def felt(self) -> float:
        """For how long what was owed may be late because of it."""
        return self.seconds * (1 + _NEXT_TRY)


def _some(kind: Kind, *matches: Match, times: int, **given: int | float | None) -> tuple[Fault, ...]:
    # Some requests pass before the first is hit, so that not only the first of a fan-out is.
    return tuple(Fault(kind, match, times=times, skip=number, **given) for number, match in enumerate(matches))  # type: ignore[arg-type]


_ANY = Match(path=rf"({DISPATCH}|{CHECKS})")
_MAKERS: dict[Blow, Callable[[random.Random, str], tuple[float, tuple[Fault, ...]]]] = {
    # Longer than the relay waits for a lock, so that it has to refuse.
    Blow.DATABASE_DOWN: lambda chance, _: (chance.uniform(4, 7), ()),
    Blow.GITHUB_DOWN: lambda chance, _: (
        chance.uniform(3, 8),
        (Fault(Kind.SERVER_ERROR, Match(path="^/(repos|app)"), times=None, status=503),),
    ),
    Blow.HUD_DOWN: lambda chance, _: (chance.uniform(3, 8), (Fault(Kind.RESET, Match(path=HUD), times=None),)),
    Blow.KEYS_DOWN: lambda chance, _: (
        chance.uniform(2, 6),
        (Fault(Kind.SERVER_ERROR, Match(path=KEYS), times=None),),
    ),
    Blow.ERRORS: lambda _, __: (2.0, _some(Kind.SERVER_ERROR, _ANY, Match(path="/access_tokens$"), times=25)),
    Blow.ERRORS_AFTER: lambda _, __: (2.0, _some(Kind.SERVER_ERROR_AFTER, _ANY, Match(path=HUD), times=15)),
    Blow.CUTS: lambda _, __: (2.0, _some(Kind.RESET, _ANY, Match(path="/access_tokens$"), times=25)),
    Blow.CUTS_AFTER: lambda _, __: (2.0, _some(Kind.RESET_AFTER, _ANY, Match(path=HUD), times=15)),
    Blow.SLOW: lambda _, __: (11.0, _some(Kind.LATENCY, Match(path=DISPATCH), _ANY, times=5, seconds=10.0)),
    Blow.SECONDARY: lambda _, repo: (
        3.0,
        _some(Kind.SECONDARY_LIMIT, Match(path=DISPATCH, repository=repo), Match(path=CHECKS), times=3, retry_after=3),
    ),
    Blow.PRIMARY: lambda _, repo: (
        4.0,
        _some(Kind.PRIMARY_LIMIT, Match(path=DISPATCH, repository=repo), times=2, seconds=4.0),
    ),
    Blow.MALFORMED: lambda _, __: (
        2.0,
        _some(Kind.MALFORMED_JSON, Match("POST", CHECKS), Match(path="/access_tokens$"), times=5),
    ),
    Blow.ARCHIVED: lambda chance, repo: (
        chance.uniform(2, 5),
        (Fault(Kind.ARCHIVED, Match(path=DISPATCH, repository=repo), times=None),),
    ),
}


def forecast(
    seed: int, seconds: float, backends: Sequence[str], *, every: float = 12.0, kills: bool = True
) -> tuple[Spell, ...]:
    """All trouble of a run that lasts so long, in order: one about every so many seconds, all kinds in turn.

    Nothing begins in the last fifth, so that even a short run ends with everything at work. ``kills`` False leaves
    SIGKILL out: what was claimed then is looked at again only after a lease, a minute, which a short run has not.
    """
    chance = random.Random(f"weather {seed}")
    found: list[Spell] = []
    at = min(4.0, every / 2)
    turn: list[Blow] = []
    while at < seconds * 0.8:
        if not turn:
            turn = [blow for blow in Blow if kills or blow is not Blow.KILL]
            chance.shuffle(turn)
            if kills and not found:
                # Whatever else there is time for, a run with kills has one.
                turn.remove(Blow.KILL)
                turn.append(Blow.KILL)
        blow = turn.pop()
        lasts: float = 0.0
        faults: tuple[Fault, ...] = ()
        if blow in _MAKERS:
            lasts, faults = _MAKERS[blow](chance, chance.choice(backends))
        found.append(Spell(at, lasts, blow, faults))
        at += max(every * chance.uniform(0.7, 1.3), lasts + 1.0)
    return tuple(found)
