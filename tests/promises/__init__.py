"""DESIGN's promises, checked from outside: from what the simulated GitHub, the backends and the HUD saw, and no more.

Whoever tries to break a promise (kills, outages, a week of traffic) ends with::

    record = record_of(sim)
    verdict = judge(record, entries, Trouble(kills=...))
    assert () == verdict.breaches

``record`` takes the simulator's notes, ``wanted`` is a small second opinion of what each webhook asks for, ``rules``
holds one function for each rule, and ``verdict`` puts them together. Nothing here asks the relay.
"""

from tests.promises.record import (
    CheckWrite,
    Event,
    Record,
    Report,
    Request,
    Row,
    record_of,
)
from tests.promises.trouble import Trouble
from tests.promises.verdict import Breach, Verdict, judge
from tests.promises.wanted import Fate, Want, wants_of

__all__ = [
    "Breach",
    "CheckWrite",
    "Event",
    "Fate",
    "Record",
    "Report",
    "Request",
    "Row",
    "Trouble",
    "Verdict",
    "Want",
    "judge",
    "record_of",
    "wants_of",
]
