"""One function for each rule that does not need to know what was wanted. Each says what broke it, in words.

A rule that finds nothing returns an empty tuple.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from allowlist.model import Entry, Level
from tests.promises.record import Event, Record, Request
from tests.promises.trouble import Trouble
from tests.promises.wanted import Want

GATE = "crcr/gate"
#: Between GitHub's answer and our note of it there is one commit, which a busy machine may delay.
_NOTING_SECONDS = 5.0
#: A request may be read a little after its sender died.
_UNDER_WAY_SECONDS = 1.0
#: What a client waits for an answer at most; an effect that took longer had nobody left to tell.
_CLIENT_SECONDS = 10.0
_AFTER = frozenset(
    {
        "latency after effect",
        "server error after effect",
        "timeout after effect",
        "connection reset after effect",
        "malformed JSON",
    }
)


@dataclass(frozen=True, slots=True)
class Repeats:
    """Runs beyond one for each dispatch: those that an ambiguous failure explains, and those that nothing does.

    ``third`` are those beyond two, however many answers in a row were lost. A process that died beside a request knows
    nothing of it in its next life, so that each such death explains one.
    """

    explained: tuple[str, ...] = ()
    unexplained: tuple[str, ...] = ()
    third: tuple[str, ...] = ()


def repeats(record: Record, trouble: Trouble) -> Repeats:
    """Promise 2: the run after a dispatch's first needs an ambiguous failure of it, and no answers explain a third."""
    explained: list[str] = []
    unexplained: list[str] = []
    third: list[str] = []
    for token, sent in _by_token(record.delivered).items():
        for before, extra in pairwise(sent):
            told = f"{extra.backend} was told again of {extra.head_sha[:9]} (…{token[-8:]})"
            (explained if _ambiguous(before, trouble) else unexplained).append(told)
        if len(sent) - sum(_died_beside(before, trouble) for before in sent[:-1]) > 2:
            third.append(f"{sent[2].backend} was told {len(sent)} times of {sent[2].head_sha[:9]} (…{token[-8:]})")
    return Repeats(tuple(explained), tuple(unexplained), tuple(third))


def _by_token(sent: Iterable[Request]) -> Mapping[str, list[Request]]:
    found: dict[str, list[Request]] = {}
    for one in sorted(sent, key=lambda request: request.ended):
        found.setdefault(one.token, []).append(one)
    return found


def _ambiguous(sent: Request, trouble: Trouble) -> bool:
    return (
        sent.status != 204
        or sent.fault in _AFTER
        or sent.ended - sent.began >= _CLIENT_SECONDS
        or _died_beside(sent, trouble)
    )


def _died_beside(sent: Request, trouble: Trouble) -> bool:
    return trouble.killed_in(sent.began - _UNDER_WAY_SECONDS, sent.ended + _NOTING_SECONDS)


def planned_twice(record: Record) -> tuple[str, ...]:
    """Promise 2: one delivery makes one dispatch for each backend; two capabilities are two dispatches."""
    tokens: dict[tuple[str, str], set[str]] = {}
    for sent in record.requests:
        tokens.setdefault((sent.backend, sent.delivery_id), set()).add(sent.token)
    return tuple(
        f"{backend} has {len(found)} dispatches for delivery {delivery}"
        for (backend, delivery), found in tokens.items()
        if len(found) > 1
    )


def wrong_heads(record: Record) -> tuple[str, ...]:
    """Promise 5: a dispatch speaks of the head of the webhook that it comes from."""
    heads = {event.guid: event.head_sha for event in record.events if event.head_sha}
    return tuple(
        f"{sent.backend} was told of {sent.head_sha[:9]}, and {sent.delivery_id} is of {heads[sent.delivery_id][:9]}"
        for sent in record.requests
        if heads.get(sent.delivery_id, sent.head_sha) != sent.head_sha
    )


def lost_reports(record: Record) -> tuple[str, ...]:
    """Promise 3: each report that was answered 200 is a row at the HUD."""
    rows = {row.key for row in record.rows}
    lost = {report.key for report in record.reports if report.answer == 200} - rows
    return tuple(f"accepted and gone: {' '.join(key)}" for key in sorted(lost))


def invented_reports(record: Record) -> tuple[str, ...]:
    """Promise 5: a row at the HUD is a report that its backend sent, and that was not refused."""
    may_be_kept = {report.key for report in record.reports if report.may_be_kept}
    wrong = {row.key for row in record.rows} - may_be_kept
    return tuple(f"a row without an accepted report: {' '.join(key)}" for key in sorted(wrong))


def repeated_rows(record: Record) -> int:
    """How many rows the HUD got twice. Forwarding is at least once: a figure, no breach."""
    return sum(count - 1 for count in Counter(row.key for row in record.rows).values())


def wrongly_accepted(record: Record, entries: Iterable[Entry]) -> tuple[str, ...]:
    """Levels: nothing is accepted from who is not listed, or stands below L2."""
    may = {str(entry.repo) for entry in entries if entry.level >= Level.L2}
    return tuple(
        f"{report.backend} may not report, and was answered 200"
        for report in record.reports
        if report.answer == 200 and report.backend not in may
    )


def wrong_tokens(record: Record) -> tuple[str, ...]:
    """Promise 5: a report is accepted only for a dispatch of the backend that sends it."""
    owner = {sent.token: sent.backend for sent in record.requests if sent.token}
    return tuple(
        f"{report.backend} was answered 200 for a dispatch of {owner.get(report.token, 'nobody')}"
        for report in record.reports
        if report.answer == 200 and report.token and owner.get(report.token) != report.backend
    )


def wrong_places(record: Record, entries: Iterable[Entry], wants: Iterable[Want]) -> tuple[str, ...]:
    """Promise 5: checks stand on commits that webhooks told of, at upstream, and only for those who may have one."""
    listed = tuple(entries)
    levels = {str(entry.repo): entry.level for entry in listed}
    known = {event.head_sha for event in record.events if event.name != "push"}
    asked = {(sent.backend, sent.head_sha) for sent in record.requests}
    asked |= {(want.backend, want.event.head_sha) for want in wants}
    found: list[str] = []
    for check in record.checks:
        backend = check.name.removeprefix("crcr/").lower()
        if check.repository != record.upstream or check.head_sha not in known:
            found.append(f"{check.name} was written to {check.head_sha[:9]} of {check.repository}")
        elif check.name == GATE:
            continue
        elif levels.get(backend, Level.L1) < Level.L3:
            found.append(f"{check.name} was written, and {backend} stands at {levels.get(backend, 'no level')}")
        elif levels[backend] is Level.L3 and (backend, check.head_sha) not in asked:
            found.append(f"{check.name} was written to {check.head_sha[:9]}, which it never asked for")
    allowed = ("/access_tokens", "/rerun", "/rerun-failed-jobs", "/cancel")
    found += [
        f"{write.method} {write.path}"
        for write in record.writes
        if not write.path.endswith(allowed) and not (write.repository == record.upstream and "/comments" in write.path)
    ]
    return tuple(found)


def open_checks(record: Record) -> tuple[str, ...]:
    """Promise 6, once all deadlines are over: no check is left open that GitHub still shows."""
    newest: dict[tuple[str, str], tuple[int, str]] = {}
    for check in record.checks:
        key = (check.head_sha, check.name)
        if check.run >= newest.get(key, (0, ""))[0]:
            newest[key] = (check.run, check.status)
    return tuple(
        f"{name} on {head[:9]} is still {status or 'open'}"
        for (head, name), (_, status) in newest.items()
        if status != "completed"
    )


def missing_gates(record: Record, trouble: Trouble) -> tuple[str, ...]:
    """Promise 6: the required check is there within the time that all trouble allows for."""
    first: dict[str, float] = {}
    for check in record.checks:
        if check.name == GATE:
            first[check.head_sha] = min(first.get(check.head_sha, check.ended), check.ended)
    threads: dict[str, list[tuple[float, Event]]] = {}
    for event in record.events:
        if event.accepted is not None:
            threads.setdefault(event.thread, []).append((event.accepted[0], event))
    found: list[str] = []
    for event in record.events:
        opens = event.action in {"opened", "synchronize", "reopened", "checks_requested"} and not event.closed
        if event.accepted is None or not opens:
            continue
        until = trouble.excused_until(event.accepted[1])
        # Where the thread moved on before, there was nothing left to show; what came late was gone when it came.
        moved = any(
            at <= until and (event.accepted[0] < at or event.happened < other.happened)
            for at, other in threads[event.thread]
        )
        if first.get(event.head_sha, until + 1) > until and not moved:
            late = first.get(event.head_sha)
            when = "never" if late is None else f"{late - event.accepted[1]:.1f} s after it was owed"
            found.append(f"the gate on {event.head_sha[:9]} came {when}")
    return tuple(found)
