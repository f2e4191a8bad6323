"""How late things were: from a webhook's answer to its dispatches, and from a callback's answer to its HUD row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.promises import Record


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds, with all trouble in them; 0 where there was nothing."""

    dispatch_p50: float
    dispatch_p99: float
    row_p50: float
    row_p99: float


def delays_of(record: Record) -> Delays:
    """The first dispatch of each webhook and backend, and the first row of each report that was accepted."""
    taken = {event.guid: event.accepted[1] for event in record.events if event.accepted is not None}
    sent: dict[tuple[str, str], float] = {}
    for one in record.delivered:
        if one.delivery_id in taken:
            key = (one.backend, one.delivery_id)
            sent[key] = min(sent.get(key, one.ended), one.ended)
    rows: dict[tuple[str, ...], float] = {}
    for row in record.rows:
        rows[row.key] = min(rows.get(row.key, row.at), row.at)
    dispatches = [at - taken[delivery] for (_, delivery), at in sent.items()]
    reports = [rows[one.key] - one.ended for one in record.reports if one.answer == 200 and one.key in rows]
    return Delays(_at(dispatches, 0.5), _at(dispatches, 0.99), _at(reports, 0.5), _at(reports, 0.99))


def _at(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return max(0.0, ordered[int(share * (len(ordered) - 1))]) if ordered else 0.0
