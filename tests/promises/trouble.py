"""When something was broken on purpose: what a driver tells the rules, so that they know what may be late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trouble:
    """Kills, and spans of time in which something did not work; seconds since the epoch.

    ``patience`` is how long the relay may take for anything when all is well, ``lease`` how long a claim stands that
    its holder will not come back for. A kill after which the process was not started again until later is a span, too.
    ``unseen`` is the published wait of a dispatch of which two tries met an answer that leaves open whether it arrived.
    """

    kills: tuple[float, ...] = ()
    spans: tuple[tuple[float, float], ...] = ()
    patience: float = 5.0
    lease: float = 61.0
    unseen: float = 0.0

    def excused_until(self, at: float) -> float:
        """Until when something that was owed from ``at`` on may be late, with all that was broken meanwhile."""
        until = at + self.patience
        for began, ended in self._slow:
            if began <= until and ended >= at:
                until = max(until, ended + self.patience)
        return until

    @property
    def _slow(self) -> Sequence[tuple[float, float]]:
        leases = tuple((kill, kill + self.lease) for kill in self.kills)
        return sorted((*self.spans, *leases))

    def killed_in(self, began: float, ended: float) -> bool:
        """Whether the relay was killed at that time."""
        return any(began <= kill <= ended for kill in self.kills)
