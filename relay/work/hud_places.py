"""The places at the HUD that one worker has taken, and when it should look for more rows to go there.

The HUD may hear half a second late: nobody wakes a worker for a row alone, so that those which come together are
claimed, told and noted together. At 500 callbacks a second, five rows at a time cost twice as much CPU as fifty.
"""

from __future__ import annotations

from collections.abc import Iterable

from relay.deciding.effects import Kind

_NEVER = -1


class HudPlaces:
    """What one worker has claimed of them and not noted yet."""

    def __init__(self) -> None:
        self._held = 0
        self._look_at = _NEVER

    def claimed(self, kinds: Iterable[Kind], *, full: bool) -> None:
        """These were claimed together; ``full``: no place was left then, whichever workers have them."""
        self._held += sum(kind is Kind.FORWARD_HUD for kind in kinds)
        # Others may be behind, and wait until most of what is held here has ended.
        self._look_at = self._held // 4 if full else _NEVER

    def noted(self, kinds: Iterable[Kind]) -> bool:
        """These have ended; whether to look at once for what can go now, and not when the worker looks anyway."""
        every = list(kinds)
        rows = sum(kind is Kind.FORWARD_HUD for kind in every)
        # What the database did not take is noted once more.
        self._held = max(0, self._held - rows)
        return rows < len(every) or self._held <= self._look_at
