"""Did a dispatch arrive whose runs do not name it? What the backend's runs say, by counting; no I/O.

GitHub has no idempotency key for dispatches, returns no run id, and may take one although it answers 5xx. A listener
without ``run-name`` shows the event's type as its runs' title, so that one such run looks like another:
https://docs.github.com/actions/reference/workflows-and-actions/workflow-syntax#run-name
What is left is their number. One dispatch starts one run of each workflow file that listens to it; where there are more
than all other dispatches of ours can have started, ours is among them.

It errs towards sending again, as a lost dispatch is worse than a second run: a run counts as ours only by a title that
ours would have, and everything that others may have started is taken off. Whoever else sends the same type to the
same repository cannot be told apart from us.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

#: So many tries that may each have started a run are made before the runs are counted: one, and one repetition.
BLIND_TRIES = 2
#: How far GitHub's clock and ours may be apart. Beyond that GitHub refuses the app's tokens.
CLOCKS = timedelta(minutes=1)
#: How late a run may start after its dispatch was taken, on a day on which GitHub fails.
LATE = timedelta(minutes=5)
#: How long nothing is sent where it cannot be known whether two tries have arrived: a listener that reports has said
#: so by then, and most outages are over.
UNSEEN_WAIT = timedelta(hours=1)
#: How long it is looked for again and again while others are sent all the time, before it counts as not to be seen.
UNSETTLED_WAIT = timedelta(minutes=5)


class Arrival(Enum):
    """What the runs of a backend say of one dispatch."""

    ARRIVED = "arrived"
    ABSENT = "absent"
    UNSETTLED = "unsettled"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Started:
    """A run that a dispatch of somebody's started, since our first try: its workflow file and its title."""

    path: str
    title: str


@dataclass(frozen=True, slots=True)
class Sibling:
    """Another dispatch of ours to the same backend: how many runs of one file it may have started since our first try.

    ``certain``: it was taken since then, and long enough ago for its run to show. ``fresh``: it was taken just now, or
    is under way, so that its run may show already and may not.
    """

    delivery_id: str
    event_type: str
    most: int
    certain: bool
    fresh: bool = False


def what_runs_say(
    runs: Iterable[Started], *, delivery_id: str, event_type: str, workflow: str | None, siblings: Sequence[Sibling]
) -> Arrival:
    """Whether a dispatch arrived, from the runs since its first try; ``workflow`` is the file that its entry pins.

    Each file is counted by itself. UNKNOWN: there are runs that may be ours, and may be others'. UNSETTLED: they may be
    of others that were taken just now, which will be seen in a moment.
    """
    files: dict[str, list[str]] = {}
    for run in runs:
        if delivery_id in run.title:
            return Arrival.ARRIVED
        files.setdefault(run.path, []).append(run.title)
    alike = [sibling for sibling in siblings if sibling.event_type == event_type]
    others = frozenset(sibling.event_type for sibling in siblings) - {event_type}
    found = Arrival.ABSENT
    for path, titles in files.items():
        named = _named(titles, siblings)
        free = [title for title in titles if title not in named]
        if free.count(event_type) > sum(sibling.most for sibling in alike):
            return Arrival.ARRIVED
        # A pinned file's runs may bear a name that says nothing of us; nobody but us is meant to start them.
        pinned = workflow is not None and path.lower() == workflow.lower()
        if pinned and len(free) > sum(sibling.most for sibling in siblings):
            return Arrival.ARRIVED
        told = frozenset(named.values())
        unnamed = [sibling for sibling in alike if sibling.delivery_id not in told]
        foreign = sum(title not in others for title in free) - sum(sibling.certain for sibling in unnamed)
        if foreign > sum(sibling.fresh for sibling in unnamed):
            found = Arrival.UNKNOWN
        elif foreign > 0 and found is Arrival.ABSENT:
            found = Arrival.UNSETTLED
    return found


def _named(titles: Iterable[str], siblings: Sequence[Sibling]) -> Mapping[str, str]:
    """The titles that name another dispatch of ours, and which."""
    return {
        title: sibling.delivery_id
        for title in titles
        for sibling in siblings
        if sibling.delivery_id and sibling.delivery_id in title
    }
