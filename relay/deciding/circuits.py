"""Circuits: what does not answer is left alone but for a probe now and then, and comes back gently when one works.

There is one for GitHub as a whole, one for each account (and the HUD), and one for each backend. Several failures in a
row open it. While it is open one probe at a time goes through, at growing intervals. One that works closes it: what
waits goes on, a few at first and twice as many with each round trip. Nothing here does I/O or asks the clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from relay.deciding.budgets import IN_FLIGHT
from relay.deciding.effects import HUD_PACING, Kind

#: So many failures in a row, of at least two effects, open a circuit.
ENOUGH = 5
#: After so many failures in a row, a success brings forward what waits for its next try by the schedule.
MORE_THAN_A_HICCUP = 3
#: A backend that did not work once for so long is switched off.
OFF_AFTER = timedelta(days=2)
#: The wait before the first probe; each further one is twice as long, up to those below.
FIRST_PROBE = timedelta(seconds=10)
#: GitHub and accounts are asked often: each minute that is not noticed keeps everybody waiting.
LONGEST = timedelta(minutes=2)
LONGEST_BACKEND = timedelta(minutes=10)
#: A backend that was switched off.
LONGEST_OFF = timedelta(hours=1)
#: How many accounts are probed at once while GitHub as a whole does not answer, as one of them may be ill by itself.
ACCOUNTS_PROBED = 3
#: What went well for so long needs no care any more.
WELL_AFTER = timedelta(minutes=5)
#: How many effects are in flight at first after a probe worked, and after a limit that GitHub named has ended.
AT_FIRST = 4
AFTER_LIMIT = 2

GITHUB = "github"
_BACKEND = "backend "


class State(StrEnum):
    """How a circuit stands. Where there is none, all is well."""

    COUNTING = "counting"  # Failures in a row, too few to conclude anything.
    OPEN = "open"
    RECOVERING = "recovering"  # A probe worked; more goes out step by step.
    OFF = "off"  # A backend that failed for days.
    RETURNED = "returned"  # A backend works again, and what it missed is still to be planned anew.


@dataclass(frozen=True, slots=True)
class Failure:
    """Something failed. ``refused``: by an answer that waiting does not mend; else there was none, or a broken one."""

    who: str  # What failed: an effect, or for GitHub as a whole an account.
    reason: str
    detail: str
    refused: bool = False
    not_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """How waits are varied: ``scale`` shortens them for demonstrations, ``share`` from 0 to 1 spreads them."""

    scale: float = 1.0
    share: float = 0.5

    @property
    def budgets(self) -> float:
        """How many of GitHub's budgets a minute of ours has: who squeezes time squeezes those minutes too."""
        return 1 / min(1.0, self.scale)

    def stretch(self, wait: timedelta) -> timedelta:
        """The wait, a fifth longer or shorter at most."""
        return wait * self.scale * (0.8 + 0.4 * self.share)


@dataclass(frozen=True, slots=True)
class Circuit:
    """One circuit in trouble. ``held_until`` is when the next probe may go."""

    key: str
    state: State
    since: datetime
    failures: int = 0
    first_failed: str = ""
    several: bool = False
    refusing: bool = False
    held_until: datetime | None = None
    probes: int = 0
    allowed: int | None = None
    reason: str = ""
    detail: str = ""

    @property
    def backend(self) -> str | None:
        """The repository's name where this is a backend's circuit."""
        return self.key.removeprefix(_BACKEND) if self.key.startswith(_BACKEND) else None

    @property
    def shut_off(self) -> bool:
        """Whether nothing but probes goes through."""
        return self.state in (State.OPEN, State.OFF)

    @property
    def ends_what_comes(self) -> bool:
        """Whether what is not a probe becomes a dead letter at once. Otherwise it waits for a probe that works."""
        return self.state is State.OFF or (self.state is State.OPEN and self.refusing)

    @property
    def was_ill(self) -> bool:
        """Whether what failed should be tried again at once when something works: it was more than a hiccup.

        Of GitHub as a whole one account alone says nothing: what works in another does not mend it.
        """
        return self.shut_off or (self.failures >= MORE_THAN_A_HICCUP and (self.several or self.key != GITHUB))

    def due(self, now: datetime) -> bool:
        """Whether a probe may go now."""
        return self.held_until is None or self.held_until <= now

    def probed(self, now: datetime, pace: Pace) -> Circuit:
        """A probe goes out: nobody else sends one until the next is due."""
        wait = min(FIRST_PROBE * 2 ** min(self.probes + 1, 12), self._longest)
        return replace(self, probes=self.probes + 1, held_until=now + pace.stretch(wait))

    def worked(self, now: datetime) -> Circuit | None:
        """Something worked. None: all is well and there is nothing to remember."""
        if self.backend is not None:
            # Something may have been ended even where its last failure was no refusal.
            if self.shut_off or self.state is State.RETURNED:
                return Circuit(self.key, State.RETURNED, self.since)
            return None
        if self.state is State.COUNTING:
            return None
        if self.state is State.RECOVERING:
            # One more for each that worked is twice as many with each round trip.
            allowed = (self.allowed or 1) + 1
            if allowed >= IN_FLIGHT or now - self.since >= WELL_AFTER:
                return None
            return replace(self, allowed=allowed, failures=0, first_failed="", several=False)
        return Circuit(self.key, State.RECOVERING, now, allowed=AT_FIRST)

    def failed(self, failure: Failure, now: datetime, pace: Pace) -> Circuit:
        """One more failure."""
        counted = replace(
            self,
            # What it missed is counted from there, and that is not told yet.
            since=self.since if self.failures or self.state is State.RETURNED else now,
            failures=self.failures + 1,
            first_failed=self.first_failed or failure.who,
            several=self.several or self.first_failed not in ("", failure.who),
            refusing=failure.refused,
            reason=failure.reason,
            detail=failure.detail,
            allowed=None if self.allowed is None else max(1, self.allowed // 2),
        )
        if counted.shut_off:
            if counted.backend is not None and now - counted.since >= OFF_AFTER * pace.scale:
                counted = replace(counted, state=State.OFF)
        elif counted.failures >= ENOUGH and counted.several:
            counted = replace(counted, state=State.OPEN, probes=0, allowed=None, held_until=None)
        if counted.shut_off:
            ends = [counted.held_until or now, failure.not_before or now]
            if max(ends) <= now:
                # The circuit has just opened, or its probe failed so late that the next is due: never one at once.
                ends.append(now + pace.stretch(FIRST_PROBE))
            counted = replace(counted, held_until=max(ends))
        return counted

    @property
    def _longest(self) -> timedelta:
        if self.state is State.OFF:
            return LONGEST_OFF
        return LONGEST_BACKEND if self.backend is not None else LONGEST


def first_failure(key: str, failure: Failure, now: datetime, pace: Pace) -> Circuit:
    """The circuit of something that was well until now."""
    return Circuit(key, State.COUNTING, now).failed(failure, now, pace)


def after_limit(key: str, now: datetime) -> Circuit:
    """The circuit of an account that GitHub has just told to rest: it begins again with a few at once."""
    return Circuit(key, State.RECOVERING, now, allowed=AFTER_LIMIT)


def stopped_text(circuit: Circuit) -> str:
    """Why something was not tried, with the time by which people find it in logs."""
    since = f"{circuit.since:%Y-%m-%d %H:%M} UTC"
    if circuit.state is State.OFF:
        said = f"Switched off: nothing that was sent there has worked since {since}."
    else:
        said = f"Its circuit is open: nothing that was sent there has worked since {since}."
    return f"{said} The last answer: {circuit.detail} It is tried again by itself, and told of what is current then."


def waiting_text(circuit: Circuit) -> str:
    """Why something has not been sent yet, and when that is tried next."""
    whose = "its" if circuit.backend is not None else "GitHub's" if circuit.key == GITHUB else "its account's"
    probe = "" if circuit.held_until is None else f", the next probe goes out from {circuit.held_until:%H:%M} UTC on"
    return f"{whose} circuit is open since {circuit.since:%Y-%m-%d %H:%M} UTC{probe}; the last answer: {circuit.detail}"


def backend_key(repo: str) -> str:
    """The key of a backend's circuit."""
    return f"{_BACKEND}{repo}"


def keys_of(kind: Kind, pacing: str, subject: str) -> tuple[str, ...]:
    """The circuits that an effect goes through, the widest first."""
    if pacing == HUD_PACING:
        return (pacing,)
    if kind is Kind.DISPATCH:
        return (GITHUB, pacing, backend_key(subject))
    return (GITHUB, pacing)
