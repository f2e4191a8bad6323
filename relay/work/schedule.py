"""When a failed effect is tried again. Published, so that everybody can tell how long we go on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import accumulate

#: The wait before each try, the first included. After the last one the effect becomes a dead letter.
SCHEDULE = (
    timedelta(),
    timedelta(seconds=10),
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(minutes=15),
    timedelta(hours=1),
    timedelta(hours=3),
    timedelta(hours=6),
)

#: How long what was asked of GitHub may take to show there, where its answer was lost: looked for sooner, it might be
#: asked for twice. A process that died is such a loss as well.
UNSURE = SCHEDULE[1]

#: Waits are spread by this share either way, so that what failed together does not come back together.
JITTER = 0.2

#: The longest that a next try is waited for, after so many failures, where nobody has named a time.
LONGEST = tuple(wait * (1 + JITTER) for wait in SCHEDULE)


def counted(failures: int, age: timedelta, *, scale: float = 1.0) -> int:
    """How many of so many failures count for what was written down this long ago: as many as the schedule has by then.

    Tries that were brought forward, because something was new or worked again, would use it up in minutes.
    """
    waits = (wait * (1 - JITTER) * scale for wait in SCHEDULE)
    return min(failures, max(1, sum(begun <= age for begun in accumulate(waits))))


def next_try(failures: int, now: datetime, random: Callable[[], float], *, scale: float = 1.0) -> datetime | None:
    """When to try again after this many failures; None when it is time to give up.

    ``random`` gives a number from 0 up to 1; ``scale`` shortens the waits for demonstrations.
    """
    if failures >= len(SCHEDULE):
        return None
    spread = 1 + JITTER * (2 * random() - 1)
    return now + SCHEDULE[failures] * spread * scale
