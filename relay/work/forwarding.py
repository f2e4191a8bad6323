"""Rows on their way to the HUD, and when a worker should look for more of them.

The HUD may hear half a second late: nobody wakes a worker for a row alone, so that those which come together are
claimed, told and noted together. At 500 callbacks a second, five rows at a time cost twice as much CPU as fifty.
"""

from __future__ import annotations

from collections.abc import Iterable

from relay.deciding.effects import Kind
from relay.store.claiming import HUD_IN_FLIGHT


class Forwarding:
    """What one worker has claimed of it and not noted yet."""

    def __init__(self) -> None:
        self._held = 0
        self._more = False

    def claimed(self, kinds: Iterable[Kind]) -> None:
        """These were claimed together."""
        self._held += sum(kind is Kind.FORWARD_HUD for kind in kinds)
        # All places were taken, so there may be others behind.
        self._more = self._held >= HUD_IN_FLIGHT

    def noted(self, kinds: Iterable[Kind]) -> bool:
        """These have ended; whether to look at once for what can go now, and not when the worker looks anyway."""
        every = list(kinds)
        rows = sum(kind is Kind.FORWARD_HUD for kind in every)
        # What the database did not take is noted once more.
        self._held = max(0, self._held - rows)
        return rows < len(every) or (self._more and self._held <= HUD_IN_FLIGHT // 4)
