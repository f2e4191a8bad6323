"""All rules together: the figures of a run, and what broke which promise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from allowlist.model import Entry
from tests.promises import gate, rules
from tests.promises.record import Event, Record, Request
from tests.promises.trouble import Trouble
from tests.promises.wanted import Fate, asks, fates, wants_of

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Breach:
    """One rule that did not hold: how often, and some of the cases in words."""

    rule: str
    count: int
    cases: tuple[str, ...]

    def __str__(self) -> str:
        more = f", and {self.count - len(self.cases)} more" if self.count > len(self.cases) else ""
        return f"{self.rule} ({self.count}): " + "; ".join(self.cases) + more


@dataclass(frozen=True, slots=True)
class Verdict:
    """The figures, and every breach. ``pairs`` counts what was wanted, as (event, backend)."""

    pairs: int
    by_fate: dict[str, int]
    runs: int
    repeats_explained: int
    repeats_unexplained: int
    callbacks: int
    callbacks_accepted: int
    callbacks_lost: int
    rows_twice: int
    gates_missing: int
    checks_open: int
    check_writes: int
    breaches: tuple[Breach, ...]


def judge(
    record: Record,
    entries: Iterable[Entry],
    trouble: Trouble,
    *,
    hud: bool = True,
    prefix: str = "ciflow/crcr/",
) -> Verdict:
    """Hold the record against the promises. The relay must have had the time to finish, deadlines included.

    ``entries`` are those that were in force throughout. ``hud`` False leaves the rows out, where none is set up.
    """
    listed = tuple(entries)
    wants = tuple(wants_of(record.events, listed, prefix))
    found = fates(record, wants, trouble)
    repeats = rules.repeats(record, trouble)
    lost = rules.lost_reports(record) if hud else ()
    missing, still_open = rules.missing_gates(record, trouble), rules.open_checks(record)
    broken = {
        "a wanted backend was never told": tuple(
            f"{want.backend} of {want.event.name} {want.event.action} {want.event.head_sha[:9]} ({want.event.guid})"
            for want in found[Fate.LOST]
        ),
        "told again without an ambiguous failure": repeats.unexplained,
        "told a third time": repeats.third,
        "two dispatches of one delivery": rules.planned_twice(record),
        "told what it does not want": unwanted(record, listed, prefix),
        "told of another head than its webhook": rules.wrong_heads(record),
        "an accepted report is lost": lost,
        "a report came from nowhere": rules.invented_reports(record) if hud else (),
        "a report was accepted below L2": rules.wrongly_accepted(record, listed),
        "a report was accepted for another's dispatch": rules.wrong_tokens(record),
        "a write went to the wrong place": rules.wrong_places(record, listed, wants),
        "a gate is missing or late": missing,
        "a check is open past its deadline": still_open,
        "a gate was green without every result": gate.rash_successes(record, wants, listed),
    }
    return Verdict(
        pairs=len(wants),
        by_fate={str(fate): len(those) for fate, those in found.items()},
        runs=len(record.delivered),
        repeats_explained=len(repeats.explained),
        repeats_unexplained=len(repeats.unexplained),
        callbacks=len(record.reports),
        callbacks_accepted=sum(report.answer == 200 for report in record.reports),
        callbacks_lost=len(lost),
        rows_twice=rules.repeated_rows(record),
        gates_missing=len(missing),
        checks_open=len(still_open),
        check_writes=len(record.checks),
        breaches=tuple(Breach(rule, len(cases), cases[:_SHOWN]) for rule, cases in broken.items() if cases),
    )


def unwanted(record: Record, entries: Iterable[Entry], prefix: str = "ciflow/crcr/") -> tuple[str, ...]:
    """Promise 7 and 8: nobody is told of what its entry leaves out.

    ``paths`` may be undecidable and is not held against the relay; a comment may ask for any run of a head.
    """
    by_name = {str(entry.repo): entry for entry in entries}
    events: dict[str, list[Event]] = {}
    for event in record.events:
        events.setdefault(event.head_sha, []).append(event)
    commented = any(event.name == "issue_comment" for event in record.events)
    found: list[str] = []
    judged: set[tuple[str, str, str]] = set()
    for sent in record.requests:
        key = (sent.backend, sent.head_sha, sent.delivery_id)
        if key in judged:
            continue
        judged.add(key)
        entry = by_name.get(sent.backend)
        if entry is None or not _is_wanted(entry, sent, events.get(sent.head_sha, ()), prefix, commented=commented):
            found.append(f"{sent.backend} of {sent.kind} {sent.action} {sent.head_sha[:9]} ({sent.delivery_id})")
    return tuple(found)


def _is_wanted(entry: Entry, sent: Request, events: Iterable[Event], prefix: str, *, commented: bool) -> bool:
    guids = {event.guid: event for event in events}
    own = guids.get(sent.delivery_id)
    if own is not None:
        return asks(entry, own, prefix) is not None
    # Not a webhook's own: a label's or a command's, for a head whose events it wants.
    return commented or any(asks(entry, event, prefix) is not None for event in guids.values())
