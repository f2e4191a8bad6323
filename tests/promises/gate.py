"""Promise 6: the gate is a success only with every result that is owed. Read from check writes and reports alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from allowlist.model import Entry, Level
from tests.promises.record import CheckWrite, Record, Report
from tests.promises.rules import GATE
from tests.promises.wanted import Want

#: What a webhook asks for may reach a gate that is being written in that very moment a little later.
_IN_WRITING = 5.0


def rash_successes(record: Record, wants: Iterable[Want], entries: Iterable[Entry]) -> tuple[str, ...]:
    """Each success of a gate while a backend at L4 that was wanted on that head had not said so itself.

    A verdict counts from the moment its callback was begun: the gate can be written before its answer arrives.
    """
    blocking = {str(entry.repo): entry for entry in entries if entry.level is Level.L4}
    owed: dict[str, dict[str, float]] = {}
    for want in wants:
        event = want.event
        starts = event.action in {"opened", "synchronize", "reopened", "checks_requested"}
        if want.backend in blocking and event.accepted is not None and starts:
            at_head = owed.setdefault(event.head_sha, {})
            at_head[want.backend] = min(at_head.get(want.backend, event.accepted[1]), event.accepted[1])
    verdicts = _verdicts(record)
    found: list[str] = []
    for check in record.checks:
        if check.name == GATE and check.conclusion == "success":
            for backend, since in owed.get(check.head_sha, {}).items():
                if since + _IN_WRITING < check.began:
                    said = verdicts.get((backend, check.head_sha), ())
                    why = _missing(said, blocking[backend], check)
                    if why:
                        found.append(f"the gate on {check.head_sha[:9]} was green although {backend} {why}")
    return tuple(found)


def _verdicts(record: Record) -> Mapping[tuple[str, str], list[Report]]:
    heads = {sent.token: (sent.backend, sent.head_sha) for sent in record.delivered}
    found: dict[tuple[str, str], list[Report]] = {}
    for report in record.reports:
        key = heads.get(report.token)
        mine = key is not None and key[0] == report.backend
        if key is not None and mine and report.status == "completed" and report.may_be_kept:
            found.setdefault(key, []).append(report)
    return found


def _missing(said: Iterable[Report], entry: Entry, check: CheckWrite) -> str:
    """What speaks against a success at that time, or nothing."""
    before = [report for report in said if report.began <= check.ended]
    if not before:
        return "had not reported"
    if entry.expected_jobs is not None and len({(one.job, one.check_run_id) for one in before}) < entry.expected_jobs:
        return f"had reported fewer than {entry.expected_jobs} jobs"
    if all(report.conclusion != "success" for report in before):
        return f"had said {before[-1].conclusion}"
    # What was answered in good time must show; a failure that came while the gate was written shows in the next write.
    worst = _against(before, check.began - _IN_WRITING)
    return f"had said {worst}" if worst else ""


def _against(said: Iterable[Report], until: float) -> str:
    """What the newest attempts of the newest dispatch, answered by then, say against a success; the worst job decides.

    What came later does not count against it, but it may have replaced what came before.
    """
    reports = list(said)
    newest = max(reports, key=lambda report: report.began).token
    attempts: dict[tuple[str, str], int] = {}
    for report in reports:
        leg = (report.run_id, report.job)
        attempts[leg] = max(attempts.get(leg, 0), int(report.attempt))
    return next(
        (
            str(one.conclusion)
            for one in reports
            if one.answer == 200
            and one.ended < until
            and one.token == newest
            and int(one.attempt) == attempts[one.run_id, one.job]
            and one.conclusion in {"failure", "timed_out", "cancelled", "action_required"}
        ),
        "",
    )
