"""What GitHub lets us ask in one account: what each effect costs, and what was spent in the last minute and hour.

An installation may spend 900 points a minute (a read costs 1, a write 5) and create about 80 contents a minute and 500
an hour: https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api#about-secondary-rate-limits
What counts as creating content GitHub marks at the endpoint ("creating content too quickly using this endpoint may
result in secondary rate limiting"): comments of ours. Dispatches and check runs are not marked and cost their points.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from relay.deciding.effects import GATE_PRIORITY, Kind

#: What everything but gates may spend. What GitHub allows beyond it is kept for gates, and for calls that an effect
#: makes rarely and that its price leaves out (a second page, a second token).
POINTS_A_MINUTE = 850
POINTS_WITH_GATES = 895
CONTENTS_A_MINUTE = 78
CONTENTS_AN_HOUR = 490
#: Effects in flight in one account, of all replicas. GitHub allows 100 requests, and some are no effects.
IN_FLIGHT = 90

#: Spending is kept in slots, so that any minute of GitHub's, wherever it begins, lies within the slots that we count.
_SLOT = timedelta(seconds=5)
_LONG_SLOT = timedelta(minutes=5)
_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Price:
    """What an effect costs: points, and contents created."""

    points: int
    contents: int = 0


# What each kind usually asks: its writes, and the looks before them. The HUD is none of GitHub's.
PRICES: Mapping[Kind, Price] = MappingProxyType(
    {
        Kind.DISPATCH: Price(5),
        Kind.DECIDE_PATHS: Price(1),
        Kind.RECONCILE_CHECK: Price(5),
        Kind.FORWARD_HUD: Price(0),
        Kind.PIN_BACKEND: Price(1),
        Kind.CONFIRM_COMMIT: Price(2),
        Kind.RUN_COMMAND: Price(2),
        Kind.RERUN: Price(6),
        Kind.CANCEL_RUNS: Price(6),
        Kind.OBSERVE: Price(3),
        Kind.RECONCILE_COMMENT: Price(6, contents=1),
    }
)


def price_of(kind: Kind, attempts: int) -> Price:
    """What the next try costs. Before a write is repeated, somebody looks whether it took effect."""
    price = PRICES[kind]
    return Price(price.points + 1, price.contents) if attempts and price.points >= 5 else price


def is_urgent(priority: int) -> bool:
    """Whether an effect may spend what is kept for gates."""
    return priority <= GATE_PRIORITY


@dataclass(frozen=True, slots=True)
class Spent:
    """What was spent in one account: (slot, points, contents) of the last minute, (slot, contents) of the last hour."""

    minute: tuple[tuple[int, int, int], ...] = ()
    hour: tuple[tuple[int, int], ...] = ()

    @classmethod
    def from_json(cls, text: str | None) -> Spent:
        """As ``to_json`` wrote it; nothing spent where nothing was kept."""
        if not text:
            return cls()
        minute, hour = json.loads(text)
        return cls(tuple(tuple(slot) for slot in minute), tuple(tuple(slot) for slot in hour))

    def to_json(self) -> str:
        """For the database."""
        return json.dumps((self.minute, self.hour), separators=(",", ":"))

    def recent(self, now: datetime) -> Spent:
        """Without what GitHub has forgotten by now. What lies in the future (a clock was put back) counts as now."""
        oldest, newest = _first(now, _SLOT, _MINUTE), _slot(now, _SLOT)
        oldest_long, newest_long = _first(now, _LONG_SLOT, _HOUR), _slot(now, _LONG_SLOT)
        return Spent(
            tuple((min(slot, newest), points, contents) for slot, points, contents in self.minute if slot >= oldest),
            tuple((min(slot, newest_long), contents) for slot, contents in self.hour if slot >= oldest_long),
        )

    def plus(self, price: Price, now: datetime) -> Spent:
        """With one more effect begun now."""
        slot, points, contents = _slot(now, _SLOT), price.points, price.contents
        minute = self.minute
        if minute and minute[-1][0] == slot:
            points, contents = points + minute[-1][1], contents + minute[-1][2]
            minute = minute[:-1]
        hour = self.hour
        if price.contents:
            long, created = _slot(now, _LONG_SLOT), price.contents
            if hour and hour[-1][0] == long:
                created += hour[-1][1]
                hour = hour[:-1]
            hour = (*hour, (long, created))
        return Spent((*minute, (slot, points, contents)), hour)

    def free_at(self, price: Price, *, urgent: bool, times: float = 1.0) -> datetime | None:
        """When there is room for this; None where there is now. ``self`` must be ``recent``.

        ``times`` is how many of GitHub's minutes pass in one of ours, where time is squeezed.
        """
        most = times * (POINTS_WITH_GATES if urgent else POINTS_A_MINUTE)
        points = _room([(slot, points) for slot, points, _ in self.minute], price.points, most, _SLOT, _MINUTE)
        return _last(points, self.contents_free_at(price, times=times))

    def contents_free_at(self, price: Price, *, times: float = 1.0) -> datetime | None:
        """As ``free_at``, of the contents alone: what creates none need not wait for them."""
        if not price.contents:
            return None
        created = [(slot, contents) for slot, _, contents in self.minute]
        return _last(
            _room(created, price.contents, times * CONTENTS_A_MINUTE, _SLOT, _MINUTE),
            _room(list(self.hour), price.contents, times * CONTENTS_AN_HOUR, _LONG_SLOT, _HOUR),
        )


def _last(*waits: datetime | None) -> datetime | None:
    return max((wait for wait in waits if wait is not None), default=None)


def _slot(at: datetime, length: timedelta) -> int:
    return (at - _EPOCH) // length


def _first(now: datetime, length: timedelta, window: timedelta) -> int:
    """The oldest slot of which any part lies within the window that ends now."""
    return _slot(now - window, length)


def _room(
    slots: list[tuple[int, int]], wanted: int, most: float, length: timedelta, window: timedelta
) -> datetime | None:
    over = sum(spent for _, spent in slots) + wanted - most
    if over <= 0:
        return None
    end = _EPOCH
    for slot, spent in slots:
        over -= spent
        end = _EPOCH + (slot + 1) * length + window
        if over <= 0:
            break
    return end
