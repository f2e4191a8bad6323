"""The judge is judged: a clean record has no breach, and each way of doctoring it is noticed, under the right name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from allowlist.model import Entry, Level, RepoName
from tests.promises import CheckWrite, Event, Record, Report, Request, Row, Trouble, Verdict, judge
from tests.promises.record import OtherWrite, Refusal
from tests.promises.rules import GATE
from tests.promises.wanted import Fate, asks

CALM = Trouble()
HEAD, NEXT = "a" * 40, "b" * 40
BLOCKS = Entry(RepoName("org", "blocks"), Level.L4, device="dev")
RECORDED = Entry(RepoName("org", "recorded"), Level.L2)
TOLD = Entry(RepoName("org", "told"), Level.L1)
ENTRIES = (BLOCKS, RECORDED, TOLD)


def event(guid: str = "d1", action: str = "opened", head: str = HEAD, at: float = 100.0, **given: Any) -> Event:
    values = {"name": "pull_request", "thread": "pull 7", "base_ref": "main", "accepted": (at, at + 0.1)}
    return Event(guid=guid, action=action, head_sha=head, happened=at, **(values | given))


def request(entry: Entry, guid: str = "d1", head: str = HEAD, at: float = 101.0, **given: Any) -> Request:
    backend = str(entry.repo)
    values: dict[str, Any] = {
        "token": f"{backend} {guid}",
        "origin": guid,
        "kind": "pull_request",
        "action": "opened",
        "ref": "",
    }
    values |= {"status": 204, "effect": True}
    return Request(backend=backend, delivery_id=guid, head_sha=head, began=at, ended=at + 0.1, **(values | given))


def report(entry: Entry, conclusion: str | None = "success", at: float = 110.0, **given: Any) -> Report:
    backend = str(entry.repo)
    values: dict[str, Any] = {
        "token": f"{backend} d1",
        "run_id": "1",
        "attempt": "1",
        "job": "test",
        "check_run_id": "9",
    }
    values |= {"status": "completed", "answer": 200, "began": at, "ended": at + 0.1}
    return Report(backend=backend, delivery_id="d1", conclusion=conclusion, **(values | given))


def row(of: Report) -> Row:
    return Row(
        of.backend, of.delivery_id, of.run_id, of.attempt, of.job, of.check_run_id, of.status, of.conclusion, of.ended
    )


def write(name: str = GATE, conclusion: str | None = None, at: float = 102.0, **given: Any) -> CheckWrite:
    status = "completed" if conclusion else "in_progress"
    values = {"repository": "pytorch/pytorch", "run": 1 if name == GATE else 2, "head_sha": HEAD, "status": status}
    return CheckWrite(name=name, conclusion=conclusion, began=at, ended=at + 0.1, **(values | given))


REPORTS = (report(BLOCKS), report(RECORDED), report(TOLD, answer=403))
CLEAN = Record(
    upstream="pytorch/pytorch",
    events=(event(),),
    requests=tuple(request(entry) for entry in ENTRIES),
    reports=REPORTS,
    rows=tuple(row(one) for one in REPORTS[:2]),
    checks=(write(), write("crcr/org/blocks"), write("crcr/org/blocks", "success", 120), write(GATE, "success", 120)),
    writes=(OtherWrite("org/told", "POST", "/app/installations/1/access_tokens"),),
)


def judged(record: Record, trouble: Trouble = CALM) -> Verdict:
    return judge(record, ENTRIES, trouble)


def broken(record: Record, trouble: Trouble = CALM) -> set[str]:
    return {breach.rule for breach in judged(record, trouble).breaches}


def test_a_clean_record_has_its_figures_and_no_breach() -> None:
    """Three backends want one pull request, all are told once, and two may report."""
    verdict = judged(CLEAN)

    assert () == verdict.breaches
    assert (3, 3, 2, 0) == (verdict.pairs, verdict.runs, verdict.callbacks_accepted, verdict.callbacks_lost)
    assert 3 == verdict.by_fate["delivered"]


DOCTORED = {
    "a wanted backend was never told": replace(CLEAN, requests=CLEAN.requests[:2]),
    "told again without an ambiguous failure": replace(CLEAN, requests=(*CLEAN.requests, request(TOLD, at=130.0))),
    "told a third time": replace(
        CLEAN,
        requests=(
            *CLEAN.requests[:2],
            *(replace(CLEAN.requests[2], status=502, began=at, ended=at + 0.1) for at in (101.0, 111.0)),
            request(TOLD, at=170.0),
        ),
    ),
    "two dispatches of one delivery": replace(CLEAN, requests=(*CLEAN.requests, request(TOLD, token="another"))),
    "told what it does not want": replace(
        CLEAN, requests=(*CLEAN.requests, request(replace(TOLD, repo=RepoName("org", "stranger"))))
    ),
    "told of another head than its webhook": replace(
        CLEAN, requests=(*CLEAN.requests[:2], replace(CLEAN.requests[2], head_sha=NEXT))
    ),
    "an accepted report is lost": replace(CLEAN, rows=CLEAN.rows[:1]),
    "a report came from nowhere": replace(CLEAN, rows=(*CLEAN.rows, row(REPORTS[2]))),
    "a report was accepted below L2": replace(CLEAN, reports=(*REPORTS, report(TOLD, at=111.0))),
    "a report was accepted for another's dispatch": replace(
        CLEAN, reports=(*REPORTS, report(RECORDED, token="org/blocks d1"))
    ),
    "a write went to the wrong place": replace(
        CLEAN, checks=(*CLEAN.checks, write("crcr/org/blocks", "success", 121, head_sha=NEXT, run=3))
    ),
    "a gate is missing or late": replace(CLEAN, checks=CLEAN.checks[1:3]),
    "a check is open past its deadline": replace(CLEAN, checks=(*CLEAN.checks, write(at=121, run=4))),
    "a gate was green without every result": replace(CLEAN, reports=REPORTS[1:], rows=CLEAN.rows[1:]),
}


@pytest.mark.parametrize("rule", DOCTORED)
def test_each_way_of_breaking_a_promise_is_noticed(rule: str) -> None:
    """A check that cannot fail is no check."""
    assert rule in broken(DOCTORED[rule])


def test_every_rule_has_a_record_that_breaks_it() -> None:
    """A rule that is added without its doctored record is noticed here."""
    found = {breach.rule for record in DOCTORED.values() for breach in judged(record).breaches}

    assert set(DOCTORED) == found


@pytest.mark.parametrize(
    ("first", "trouble"),
    [
        ({"status": 502, "fault": "server error after effect"}, CALM),
        ({"status": 0, "fault": "connection reset after effect"}, CALM),
        ({"fault": "latency after effect"}, CALM),
        ({}, Trouble(kills=(101.2,))),
        ({}, Trouble(kills=(100.5,))),
    ],
)
def test_an_ambiguous_failure_explains_one_more_run(first: dict[str, Any], trouble: Trouble) -> None:
    """GitHub did it and its answer was lost, or we died before we noted it: once more, and not twice."""
    sent = (*CLEAN.requests[:2], replace(CLEAN.requests[2], **first), request(TOLD, at=130.0))

    assert (1, set()) == (
        judged(replace(CLEAN, requests=sent), trouble).repeats_explained,
        broken(replace(CLEAN, requests=sent), trouble),
    )
    assert broken(replace(CLEAN, requests=(*sent, request(TOLD, at=150.0))), trouble)


def test_failures_in_a_row_explain_one_run_more_and_no_third() -> None:
    """Each lost answer is followed by another try: that is how one dispatch once became fifty runs."""
    assert {"told a third time"} == broken(DOCTORED["told a third time"])


def test_each_death_beside_a_request_explains_one_run_more() -> None:
    """A new process knows of no answer, and may meet the same end."""
    again = tuple(request(TOLD, at=at) for at in (130.0, 150.0, 170.0))
    record = replace(CLEAN, requests=(*CLEAN.requests, *again))

    assert set() == broken(record, Trouble(kills=(101.2, 130.2, 150.2)))
    assert {"told again without an ambiguous failure"} == broken(record, Trouble(kills=(101.2, 130.2)))


def test_a_kill_long_before_or_after_explains_nothing() -> None:
    """Only a kill between the request and our note of it leaves us in doubt."""
    record = replace(CLEAN, requests=(*CLEAN.requests, request(TOLD, at=130.0)))

    assert {"told again without an ambiguous failure"} == broken(record, Trouble(kills=(90.0, 120.0)))


def test_a_newer_head_excuses_only_what_could_not_be_sent_before_it() -> None:
    """A head that was replaced at once need not be tested; an hour later it is no excuse."""
    unsent = tuple(one for one in CLEAN.requests if one.backend != "org/told")

    def moved(after: float) -> Record:
        newer = event("d2", "synchronize", NEXT, 100.0 + after)
        told = tuple(request(entry, "d2", NEXT, 101.0 + after, action="synchronize") for entry in ENTRIES)
        gate = write(at=101.0 + after, head_sha=NEXT, run=8), write(GATE, "neutral", 5000.0, head_sha=NEXT, run=8)
        checks = (*CLEAN.checks, *gate)
        return replace(CLEAN, events=(*CLEAN.events, newer), requests=(*unsent, *told), checks=checks)

    assert 1 == judged(moved(2.0)).by_fate["superseded"]
    assert set() == broken(moved(2.0))
    assert {"a wanted backend was never told"} == broken(moved(60.0))
    assert set() == broken(moved(60.0), Trouble(spans=((100.0, 90.0 + 100.0),)))


@pytest.mark.parametrize(("others", "fate"), [(3, "late"), (2, "lost"), (0, "lost")])
def test_a_want_that_gave_way_late_is_delay_only_where_others_waited_as_long(others: int, fate: str) -> None:
    """A relay that cannot keep up is late with all; one that is punctual with all but one has forgotten it."""
    more = tuple(Entry(RepoName("org", f"more{number}"), Level.L1) for number in range(3))
    newer = event("d2", "synchronize", NEXT, 160.0)
    told = tuple(request(entry, "d2", NEXT, 161.0, action="synchronize") for entry in (*ENTRIES, *more))
    first = tuple(request(entry, at=170.0 if number < others else 110.0) for number, entry in enumerate(more))
    gate = write(at=161.0, head_sha=NEXT, run=8), write(GATE, "neutral", 5000.0, head_sha=NEXT, run=8)
    record = replace(
        CLEAN,
        events=(*CLEAN.events, newer),
        requests=(*CLEAN.requests[:2], *first, *told),
        checks=(*CLEAN.checks, *gate),
    )

    verdict = judge(record, (*ENTRIES, *more), CALM)

    assert {"late": int(fate == "late"), "lost": int(fate == "lost")} == {
        "late": verdict.by_fate[Fate.LATE],
        "lost": verdict.by_fate[Fate.LOST],
    }
    assert (fate == "lost") == ({"a wanted backend was never told"} == {one.rule for one in verdict.breaches})


def test_a_gate_is_not_owed_to_a_head_that_was_gone_when_it_was_heard_of() -> None:
    """Its webhook was delivered again after the relay was back, and by then it had heard of the close."""
    opening = event("d2", "synchronize", NEXT, 160.0, thread="pull 8")
    closed = event("d3", "closed", NEXT, 150.0, thread="pull 8", closed=True)
    told = tuple(request(entry, "d3", NEXT, 151.0, action="closed") for entry in ENTRIES)
    record = replace(
        CLEAN, events=(*CLEAN.events, replace(opening, happened=140.0), closed), requests=(*CLEAN.requests, *told)
    )

    assert "a gate is missing or late" not in broken(record)
    later = replace(record, events=(*CLEAN.events, opening, closed))
    assert "a gate is missing or late" in broken(later)


def test_a_devices_label_asks_for_no_run_that_the_entry_leaves_out() -> None:
    """It shows the check and starts what is wanted; an entry that wants another label still wants it."""
    entry = Entry(RepoName("org", "shown"), Level.L3, device="dev", labels=("ciflow/trunk",))
    labelled = {"label": "ciflow/crcr/dev", "labels": frozenset({"ciflow/crcr/dev"})}

    assert asks(entry, event(action="labeled", **labelled)) is None
    assert asks(entry, event(action="labeled", **(labelled | {"labels": frozenset({"ciflow/trunk"})}))) is False
    assert asks(replace(entry, labels=()), event(action="labeled", **labelled)) is False


def test_every_commit_is_never_superseded() -> None:
    """An entry that asks for every commit gets it, whatever came after."""
    entries = (*ENTRIES[:2], replace(TOLD, every_commit=True))
    unsent = tuple(one for one in CLEAN.requests if one.backend != "org/told")
    closed = event("d2", "closed", at=100.5, closed=True)
    told = tuple(request(entry, "d2", at=101.0, action="closed") for entry in ENTRIES)
    record = replace(CLEAN, events=(*CLEAN.events, closed), requests=(*unsent, *told))

    assert {"a wanted backend was never told"} == {one.rule for one in judge(record, entries, CALM).breaches}
    assert set() == broken(record)


def test_a_word_of_a_close_is_no_test_of_the_head() -> None:
    """That a backend heard of the end does not mean that it was ever told to begin."""
    closed = event("d2", "closed", at=500.0, closed=True)
    told = tuple(request(entry, "d2", at=501.0, action="closed") for entry in ENTRIES)
    record = replace(CLEAN, events=(*CLEAN.events, closed), requests=(*CLEAN.requests[:2], *told))

    assert {"a wanted backend was never told"} == broken(record)


def test_a_refusal_for_good_is_no_loss() -> None:
    """GitHub said that the repository is gone: that is a dead letter with its reason."""
    record = replace(CLEAN, requests=CLEAN.requests[:2], refusals=(Refusal("org/told", 101.0, 404),))

    assert 1 == judged(record).by_fate["refused"]
    assert set() == broken(record)
    early = replace(record, refusals=(Refusal("org/told", 99.0, 404),))
    assert {"a wanted backend was never told"} == broken(early)


def test_the_end_of_a_pull_request_is_no_loss_to_a_backend_that_is_left_alone() -> None:
    """It was refused over and over, and was not asked again: a dead letter. A head it would be told of later."""
    closed = event("d2", "closed", at=500.0, closed=True)
    told = tuple(request(entry, "d2", at=501.0, action="closed") for entry in ENTRIES[:2])
    refusals = tuple(Refusal("org/told", 400.0 + number, 403) for number in range(5))
    record = replace(CLEAN, events=(*CLEAN.events, closed), requests=(*CLEAN.requests, *told), refusals=refusals)

    assert 1 == judged(record).by_fate["refused"]
    assert set() == broken(record)
    worked = replace(record, requests=(*record.requests, request(TOLD, "d0", at=402.5)))
    assert {"a wanted backend was never told"} == broken(worked)
    assert {"a wanted backend was never told"} == broken(replace(record, refusals=refusals[1:]))
    opened = event("d3", head=NEXT, at=500.0, thread="pull 8")
    heads = tuple(request(entry, "d3", NEXT, at=501.0) for entry in ENTRIES[:2])
    later = replace(CLEAN, events=(*CLEAN.events, opened), requests=(*CLEAN.requests, *heads), refusals=refusals)
    assert "a wanted backend was never told" in broken(later)


def test_what_waits_for_more_to_be_seen_gives_way_to_an_end() -> None:
    """Two tries failed, and may have arrived for all that the runs say: the published wait is kept, and not a loss."""
    tries = tuple(request(TOLD, at=101.0 + number, status=502, effect=False) for number in range(2))
    closed = event("d2", "closed", at=130.0, closed=True)
    told = tuple(request(entry, "d2", at=131.0, action="closed") for entry in ENTRIES)
    record = replace(CLEAN, events=(*CLEAN.events, closed), requests=(*CLEAN.requests[:2], *tries, *told))

    assert set() == broken(record, Trouble(unseen=36.0))
    assert {"a wanted backend was never told"} == broken(record, Trouble(unseen=20.0))
    once = replace(record, requests=tuple(one for one in record.requests if one is not tries[0]))
    assert {"a wanted backend was never told"} == broken(once, Trouble(unseen=36.0))


def test_a_webhook_that_was_not_answered_promises_nothing() -> None:
    """Only a 2xx is a promise; where GitHub has none, it delivers again."""
    record = Record(upstream="pytorch/pytorch", events=(replace(event(), accepted=None),))

    assert (0, ()) == (judged(record).pairs, judged(record).breaches)


@pytest.mark.parametrize(
    "said",
    [
        (report(BLOCKS, "failure"),),
        (report(BLOCKS, job="one"), report(BLOCKS, "failure", job="two")),
        (report(BLOCKS, answer=403),),
        (report(BLOCKS, at=130.0),),
    ],
    ids=["failure", "the worst job decides", "refused", "too late"],
)
def test_a_green_gate_needs_every_word_of_its_backends(said: tuple[Report, ...]) -> None:
    """Not just any report, but an accepted success, in time, and of every job."""
    reports = (*said, *REPORTS[1:])
    record = replace(CLEAN, reports=reports, rows=tuple(row(one) for one in reports if one.answer == 200))

    assert {"a gate was green without every result"} == broken(record)


def test_a_newer_attempt_mends_a_failure() -> None:
    """A job that failed and was run again counts as what it became."""
    reports = (report(BLOCKS, "failure", at=105.0), report(BLOCKS, at=110.0, attempt="2"), *REPORTS[1:])
    record = replace(CLEAN, reports=reports, rows=tuple(row(one) for one in reports if one.answer == 200))

    assert set() == broken(record)


def test_a_level_below_three_has_no_check() -> None:
    """L2 is recorded and shown on the pages, never on the pull request."""
    record = replace(CLEAN, checks=(*CLEAN.checks, write("crcr/org/recorded", "success", 121, run=5)))

    assert {"a write went to the wrong place"} == broken(record)


def test_what_the_opinion_does_not_cover_it_does_not_judge() -> None:
    """A pattern that it cannot read is an error and never a match."""
    entries = (replace(TOLD, base=("release/*",)),)

    with pytest.raises(ValueError, match="not covered here"):
        judge(CLEAN, entries, CALM)
