"""Decisions made once more from what is kept: of real intake, of queues, and of folded reports, on both databases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import delete, update

from allowlist.model import Allowlist, Entry, Level, RepoName
from relay.deciding.events import MergeGroupEvent
from relay.deciding.replayed import Again, again
from relay.store.decided import stood, taken
from relay.store.documents import ALLOWLIST, allowlist_version, keep
from relay.store.engine import Store
from relay.store.intake import Received
from relay.store.queue import record_group
from relay.store.retention import forget
from relay.store.tables import AllowlistVersion, Dispatch, Report
from tests.conftest import Clock
from tests.relay.planning import NPU, PATHS, PICKY, S1, S2, S3, XPU, labeled, pull_request, push
from tests.store.taking_in import TERMS, Intake
from tests.work.record import Record

_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_report = Report.__table__  # type: ignore[attr-defined]

QUEUED = Entry(RepoName("org", "queued"), Level.L4, events=frozenset({"pull_request", "merge_group"}))
ENTRIES = (XPU, NPU, PICKY, PATHS, QUEUED)


def decided_again(store: Store, instead: Allowlist | None = None) -> dict[str, Again]:
    """Each webhook decided once more, by the list that was in force or by another."""
    return {
        one.delivery_id: again(
            one.plan,
            one.ground,
            delivery_id=one.delivery_id,
            received_at=one.received_at,
            versions={"": Allowlist(ENTRIES)},
            instead=instead,
        )
        for one in store.read_now(taken)
    }


def history(store: Store, clock: Clock) -> None:
    """Webhooks of many kinds, in an order in which each depends on what came before it."""
    intake = Intake(store, ENTRIES, clock.now())
    later = replace(intake, now=clock.now() + timedelta(minutes=30))
    intake.take(pull_request(), "D01")
    intake.mark_dispatches("sent")
    intake.take(labeled("ciflow/crcr/npu"), "D02")
    intake.take(labeled("ciflow/crcr/nobody", 6), "D03")
    intake.take(pull_request("synchronize", S2, 10, before=S1), "D04")
    later.take(pull_request("synchronize", S1, 11, before=S2), "D05")
    later.take(pull_request("synchronize", S2, 9, before=S1), "D06")
    intake.take(push("refs/tags/v1", S3, 12), "D07")
    intake.take(push("refs/heads/main", S3, 12), "D08")
    intake.take(push("refs/heads/other", S2, 13), "D09")
    intake.mark_effects("running")  # The worker holds what waits, so that it cannot be taken back any more.
    intake.take(push("refs/tags/v2", S1, 14), "D10")
    intake.mark_effects("running")
    intake.take(push("refs/heads/release", S1, 14), "D11")
    group = MergeGroupEvent(
        "checks_requested", "", S2, "refs/heads/gh-readonly-queue/main/pr-7-x", "main", S1, "", "ada"
    )
    received = Received("D12", "merge_group", "{}")
    store.write_now(
        lambda conn: record_group(conn, group, received, allowlist=Allowlist(ENTRIES), terms=TERMS, now=clock.now())
    )
    later.take(pull_request("closed", S1, 20, merged=True), "D13")


def test_every_decision_comes_out_as_it_was_taken(store: Store, clock: Clock) -> None:
    """Late and repeated webhooks, labels, tags that gave way and tags that did not, a queue: all are kept whole."""
    history(store, clock)

    found = decided_again(store)

    assert [f"D{number:02}" for number in range(1, 14)] == sorted(found)
    assert dict.fromkeys(found, ()) == {key: one.differences for key, one in found.items()}
    assert sum(one.decisions for one in found.values()) > 60


def test_another_allowlist_is_told_by_what_it_would_have_changed(store: Store, clock: Clock) -> None:
    """One backend fewer, and one more that nobody called: neither is a difference of anybody else."""
    history(store, clock)
    new = replace(XPU, repo=RepoName("org", "new"))

    found = decided_again(store, Allowlist((NPU, PICKY, PATHS, QUEUED, new)))

    assert {"org/xpu", "org/new"} == {each.backend for one in found.values() for each in one.differences}
    assert {("org/xpu", "lost"), ("org/new", "added")} == {
        (each.backend, str(each.kind)) for each in found["D01"].differences
    }


def test_webhooks_come_in_portions_none_is_left_out(store: Store, clock: Clock) -> None:
    """Many are received within one moment, so that their ids decide the order."""
    history(store, clock)
    ids: list[str] = []
    last = None
    while some := store.read_now(lambda conn, after=last: taken(conn, after=after, limit=4)):  # type: ignore[misc]
        ids += [one.delivery_id for one in some]
        last = some[-1]

    assert len(set(ids)) == len(ids) == 13
    since = clock.now() + timedelta(minutes=1)
    assert {"D05", "D06", "D13"} == {one.delivery_id for one in store.read_now(lambda conn: taken(conn, since=since))}


def reported(record: Record) -> int:
    """A dispatch with two jobs in two attempts of one run."""
    dispatch = record.told(record.change(), expected_jobs=2)
    for attempt in (1, 2):
        record.report(dispatch, job="a", attempt=attempt)
        record.clock.advance(timedelta(minutes=1))
        record.report(dispatch, "failure" if attempt == 1 else "success", job="a", attempt=attempt, expected=2)
    return dispatch


@pytest.mark.parametrize(
    ("then", "outcome"),
    [
        (lambda record, dispatch: None, "running"),
        (lambda record, dispatch: record.report(dispatch, "success", job="b", attempt=2), "success"),
        (lambda record, dispatch: record.report(dispatch, "timed_out", job="b", attempt=2), "timed_out"),
    ],
)
def test_outcomes_come_out_of_reports_alone(
    store: Store, clock: Clock, then: Callable[[Record, int], None], outcome: str
) -> None:
    """The fold gives the same from nothing as it gave step by step."""
    record = Record(store, clock)
    dispatch = reported(record)
    then(record, dispatch)

    (found,) = store.read_now(stood)

    assert found.again is not None
    assert (outcome, outcome) == (found.outcome, found.again.outcome.value)
    assert (found.legs_reported, found.legs_expected) == (found.again.legs_reported, found.again.legs_expected)


def test_an_outcome_that_was_tampered_with_is_found(store: Store, clock: Clock) -> None:
    """What the reports say is what was reported; a row that says otherwise was not made by them."""
    record = Record(store, clock)
    reported(record)
    store.write_now(lambda conn: conn.execute(update(_dispatch).values(outcome="success")).rowcount)

    (found,) = store.read_now(stood)

    assert found.again is not None
    assert ("success", "running") == (found.outcome, found.again.outcome.value)


def test_a_dispatch_whose_reports_are_partly_forgotten_is_not_judged(store: Store, clock: Clock) -> None:
    """Retention takes reports in portions, and half of them tell nothing."""
    reported(Record(store, clock))
    newest = store.read_now(lambda conn: conn.execute(_report.select().order_by(_report.c.id.desc())).first())
    assert newest is not None
    store.write_now(lambda conn: conn.execute(delete(_report).where(_report.c.id == newest.id)).rowcount)

    assert [None] == [one.again for one in store.read_now(stood)]


def test_allowlists_stay_as_long_as_something_was_decided_by_them(store: Store, clock: Clock) -> None:
    """The one that was in force when the oldest kept webhook came, and all since."""
    day = timedelta(days=1)
    start = clock.now()
    for number in range(4):
        now = start + number * 30 * day
        store.write_now(
            lambda conn, n=number, at=now: keep(conn, ALLOWLIST, f"# {n}", etag=None, digest=f"d{n}", now=at)  # type: ignore[misc]
        )

    store.write_now(lambda conn: forget(conn, start + 45 * day))

    kept = store.read_now(lambda conn: conn.execute(AllowlistVersion.__table__.select()).all())  # type: ignore[attr-defined]
    assert ["d1", "d2", "d3"] == sorted(row.digest for row in kept)
    assert ("# 3", None) == store.read_now(lambda conn: (allowlist_version(conn, "d3"), allowlist_version(conn, "d0")))
