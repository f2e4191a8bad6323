"""What a failed try means, and who knows what GitHub said beside it: the words between a performer and its worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, Self

from sqlalchemy import Connection

from relay.deciding.effects import Kind
from relay.store.claiming import Claimed

#: What is noted in the transaction that ends an effect, once it is certain that the lease is still ours.
Note = Callable[[Connection, datetime], None]
Job = Callable[[], Awaitable[Note | None]]


class SharedNote(ABC):
    """A note that is cheaper to write with others of its kind."""

    __slots__ = ()

    def __call__(self, conn: Connection, now: datetime) -> None:
        """Write this one alone."""
        self.write_all(conn, [self], now)

    @classmethod
    @abstractmethod
    def write_all(cls, conn: Connection, notes: Sequence[Self], now: datetime) -> None:
        """Write as many as have come together."""


def write_notes(conn: Connection, notes: Iterable[Note], now: datetime) -> None:
    """Write notes in their order; those that can be shared come last, together with others of their kind."""
    shared: dict[type[SharedNote], list[SharedNote]] = {}
    for note in notes:
        if isinstance(note, SharedNote):
            shared.setdefault(type(note), []).append(note)
        else:
            note(conn, now)
    for kind, together in shared.items():
        kind.write_all(conn, together, now)


@dataclass(frozen=True, slots=True)
class Again:
    """Try again: by the schedule, or not before ``at`` where the other side named a time.

    ``down``: it says nothing of the effect, but that whoever was asked gives no sensible answers just now. ``unsure``:
    what was asked for may have been done all the same.
    """

    reason: str
    detail: str
    at: datetime | None = None
    down: bool = False
    unsure: bool = False


@dataclass(frozen=True, slots=True)
class Rest:
    """The whole account must rest until then; it does not count as a failure of this effect.

    ``named``: the time was named by GitHub, and is not the least that is asked for where it names none.
    """

    reason: str
    detail: str
    until: datetime
    named: bool = True


@dataclass(frozen=True, slots=True)
class Later:
    """Its time has not come: nothing was tried, which is no failure and says nothing of whom it would have gone to."""

    reason: str
    detail: str
    at: datetime


class NotYetError(Exception):
    """What it needs is not known yet, and will be by then. Whoever performs an effect raises it to have it put back."""

    def __init__(self, detail: str, *, reason: str, at: datetime) -> None:
        super().__init__(detail)
        self.reason = reason
        self.at = at


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Trying again is pointless until somebody changes something. ``refused``: GitHub said so, and not we."""

    reason: str
    detail: str
    refused: bool = False


Verdict = Again | Rest | Later | GiveUp


class Performer(Protocol):
    """Knows how to do each kind of effect and what its failures mean."""

    async def begin(self, effects: Sequence[Claimed]) -> list[tuple[Claimed, Job]]:
        """Load what these effects need, together, and return one job for each."""
        ...

    def judge(self, error: Exception) -> Verdict | None:
        """What this failure means; None for one that only a fault of ours explains."""
        ...

    def put_back(self, effect: Claimed) -> Note | None:
        """What to note with an effect that failed and waits for its next try."""
        ...

    def gave_up(self, effect: Claimed, reason: str, detail: str) -> Note | None:
        """What to note with an effect that becomes a dead letter."""
        ...


class Observer(Protocol):
    """Told of every attempt, for metrics."""

    def attempt(self, kind: Kind, outcome: str, seconds: float, age: float) -> None:
        """One attempt at an effect of this kind ended so; in seconds, what it took and how long ago it was decided."""
        ...


class Witness(Protocol):
    """Knows what GitHub's answers say beside their content."""

    def reached(self) -> bool:
        """Whether the task that runs just now had an answer."""
        ...

    def sent(self) -> bool:
        """Whether the task that runs just now sent anything that may have had an effect."""
        ...

    def take_sparing(self) -> Mapping[str, datetime]:
        """Accounts whose hour of requests is nearly used up, and until when. Each is told once."""
        ...


class NoWitness:
    """For whoever asks nobody: what was done was answered."""

    def reached(self) -> bool:
        """Always."""
        return True

    def sent(self) -> bool:
        """Who can tell?"""
        return True

    def take_sparing(self) -> Mapping[str, datetime]:
        """None."""
        return {}
