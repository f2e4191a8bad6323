"""Callbacks in SQL: what two replicas make of one, what a group of units does, and what the HUD is told."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from allowlist.model import Level, RepoName
from levels.legs import Status
from relay.edge.oidc import CallerKind, VerifiedCaller
from relay.results.binding import Refusal
from relay.results.report import read_report
from relay.settings import GITHUB_ISSUER
from relay.store import tables
from relay.store.checks import CheckTerms
from relay.store.engine import Store
from relay.store.forwarding import load_forwards
from relay.store.observations import AttemptShown
from relay.store.observing import Look, note_observed
from relay.store.reports import Accepted, Callback, KeepTerms, accept
from tests.conftest import Clock
from tests.edge.callers import D1, UPSTREAM, Bench, id_of

TERMS = KeepTerms(CheckTerms(UPSTREAM, "ciflow/crcr/", timedelta(seconds=3)), hud=True)


@pytest.fixture
def bench(store: Store, clock: Clock) -> Bench:
    """A record to report on, on each database."""
    return Bench(store, clock)


def callback(bench: Bench, repo: str, dispatch_id: int, **workflow: Any) -> Callback:
    """A callback of a run of this repository, authenticated and read."""
    name = RepoName.parse(repo)
    caller = VerifiedCaller(
        kind=CallerKind.GITHUB,
        repo=name,
        issuer=GITHUB_ISSUER,
        repository_id=id_of(repo),
        owner_id=id_of(repo) + 1,
        event_name="repository_dispatch",
    )
    report = read_report(bench.body(dispatch_id=dispatch_id, **workflow))
    return Callback(caller, report, bench.entries[name], dispatch_id)


def kept(bench: Bench, said: Callback) -> Accepted | Refusal:
    """What becomes of it."""
    return bench.store.write_now(lambda conn: accept(conn, said, TERMS, bench.clock.now()))


def test_two_replicas_keep_one_report_once(bench: Bench, database_url: str) -> None:
    """The same callback fifty times at once, half to each replica: one row, one set of effects."""
    dispatch_id = bench.told("org/l4", Level.L4)
    unit = partial(accept, callback=callback(bench, "org/l4", dispatch_id), terms=TERMS, now=bench.clock.now())
    other = Store(database_url)

    async def both() -> list[Accepted | Refusal]:
        return await asyncio.gather(*(store.write(unit) for store in (bench.store, other) for _ in range(25)))

    try:
        results = asyncio.run(both())
    finally:
        other.close()

    assert 49 == sum(1 for result in results if isinstance(result, Accepted) and result.replayed)
    assert (1, 1) == (len(bench.rows(tables.Report)), len(bench.rows(tables.Job)))
    assert 1 == len([effect for effect in bench.rows(tables.Effect) if effect.kind == "forward_hud"])


def test_two_replicas_fold_the_legs_of_one_job_together(bench: Bench, database_url: str) -> None:
    """Starts and ends of ten legs of one name, through two replicas at once: ten legs, none lost, none doubled."""
    dispatch_id = bench.told("org/l4", Level.L4)
    other = Store(database_url)
    units = [
        partial(
            accept,
            callback=callback(
                bench, "org/l4", dispatch_id, check_run_id=str(leg), status=status, conclusion=conclusion
            ),
            terms=TERMS,
            now=bench.clock.now(),
        )
        for leg in range(10)
        for status, conclusion in (("in_progress", None), ("completed", "success"))
    ]

    async def both() -> list[Accepted | Refusal]:
        stores = (bench.store, other)
        return await asyncio.gather(*(stores[index % 2].write(unit) for index, unit in enumerate(units)))

    try:
        results = asyncio.run(both())
    finally:
        other.close()

    assert {Accepted} == {type(result) for result in results}
    assert ["completed"] * 10 == [job.status for job in bench.rows(tables.Job)]
    assert (10, "success") == (bench.row(tables.Dispatch).legs_reported, bench.row(tables.Dispatch).outcome)


def test_two_replicas_make_one_night_of_its_first_jobs(bench: Bench, database_url: str) -> None:
    """Neither knows of the night, and both are told of it at once."""
    bench.allow("org/l2", Level.L2)
    other = Store(database_url)
    name = RepoName("org", "l2")
    caller = VerifiedCaller(
        kind=CallerKind.GITHUB, repo=name, issuer=GITHUB_ISSUER, repository_id=id_of("org/l2"), event_name="schedule"
    )
    units = []
    for number in range(20):
        body = {**bench.body(job_name=f"job {number}"), "event_type": "nightly", "payload": {"head_sha": "a" * 40}}
        said = Callback(caller, read_report(body), bench.entries[name], None)
        units.append(partial(accept, callback=said, terms=TERMS, now=bench.clock.now()))

    async def both() -> list[Accepted | Refusal]:
        stores = (bench.store, other)
        return await asyncio.gather(*(stores[index % 2].write(unit) for index, unit in enumerate(units)))

    try:
        asyncio.run(both())
    finally:
        other.close()

    assert (1, 20) == (len(bench.rows(tables.Change)), bench.row(tables.Dispatch).legs_reported)


def test_a_refusal_writes_nothing_and_hurts_no_neighbour(bench: Bench) -> None:
    """Units share a transaction; what one may not do, the others still do."""
    dispatch_id = bench.told("org/l4", Level.L4)
    bench.told("org/l1", Level.L1)
    good = callback(bench, "org/l4", dispatch_id)
    bad = callback(bench, "org/l1", dispatch_id)

    async def together() -> list[Accepted | Refusal]:
        units = [partial(accept, callback=said, terms=TERMS, now=bench.clock.now()) for said in (bad, good, bad)]
        return await asyncio.gather(*(bench.store.write(unit) for unit in units))

    first, second, third = asyncio.run(together())

    assert isinstance(second, Accepted)
    assert ["below_l2", "below_l2"] == [said.code for said in (first, third) if isinstance(said, Refusal)]
    assert 1 == len(bench.rows(tables.Report))


def test_a_unit_that_runs_again_does_the_same(bench: Bench) -> None:
    """A group that was undone for one unit's fault runs each again on its own."""
    dispatch_id = bench.told("org/l4", Level.L4)
    unit = partial(accept, callback=callback(bench, "org/l4", dispatch_id), terms=TERMS, now=bench.clock.now())

    def undone(conn: Any) -> None:
        unit(conn)
        raise RuntimeError("another unit of the group failed")

    with pytest.raises(RuntimeError):
        bench.store.write_now(undone)
    result = bench.store.write_now(unit)

    assert isinstance(result, Accepted)
    assert (False, 1) == (result.replayed, len(bench.rows(tables.Report)))


def test_reports_of_other_jobs_keep_their_rows(bench: Bench) -> None:
    """Only the job that a report names is folded anew."""
    dispatch_id = bench.told("org/l4", Level.L4)
    for name in ("a", "b"):
        kept(bench, callback(bench, "org/l4", dispatch_id, job_name=name, status="in_progress", conclusion=None))
    before = bench.rows(tables.Job)

    kept(bench, callback(bench, "org/l4", dispatch_id, job_name="b"))

    after = bench.rows(tables.Job)
    assert before[0] == after[0]
    assert [before[1].id, "completed"] == [after[1].id, after[1].status]


def test_a_start_that_is_ended_by_another_job_leaves_no_row_behind(bench: Bench) -> None:
    """The leg takes the end's check run id, and the start's row goes."""
    dispatch_id = bench.told("org/l4", Level.L4)
    kept(bench, callback(bench, "org/l4", dispatch_id, check_run_id="1", status="in_progress", conclusion=None))
    kept(bench, callback(bench, "org/l4", dispatch_id, check_run_id="2"))

    assert ["2"] == [job.check_run_id for job in bench.rows(tables.Job)]


def test_what_github_was_seen_to_say_outlives_a_new_report(bench: Bench) -> None:
    """A claimed success that GitHub denies stays disputed, whatever else is claimed (PROTOCOL 3, "Observed")."""
    dispatch_id = bench.told("org/l4", Level.L4)
    kept(bench, callback(bench, "org/l4", dispatch_id, check_run_id="1"))
    (run,) = {job.run_id for job in bench.rows(tables.Job)}
    shown = AttemptShown(run, 1, "completed", "failure", ".github/workflows/crcr.yml", bench.clock.now())
    bench.store.write_now(
        lambda conn: note_observed(conn, dispatch_id, Look((shown,)), TERMS.checks, bench.clock.now())
    )

    kept(bench, callback(bench, "org/l4", dispatch_id, check_run_id="1", name="said again"))

    assert ("failure", "success") == (bench.row(tables.Job).observed, bench.row(tables.Job).conclusion)
    assert "disputed" == bench.row(tables.Dispatch).outcome


def test_a_filtered_dispatch_keeps_the_result_and_its_own_outcome(bench: Bench) -> None:
    """The entry's own filter said that this change is none of its business."""
    bench.allow("org/l4", Level.L4)
    dispatch_id = bench.dispatch("org/l4", bench.change(), state="filtered", outcome="filtered", next_deadline=None)

    kept(bench, callback(bench, "org/l4", dispatch_id, conclusion="failure"))

    assert ("filtered", "failure") == (bench.row(tables.Dispatch).outcome, bench.row(tables.Job).conclusion)


def test_when_a_backend_was_seen_is_written_at_most_every_ten_seconds(bench: Bench) -> None:
    """A burst rewrites no row each time."""
    dispatch_id = bench.told("org/l4", Level.L4)
    first = bench.clock.now()
    kept(bench, callback(bench, "org/l4", dispatch_id, job_name="a"))
    bench.clock.advance(timedelta(seconds=9))
    kept(bench, callback(bench, "org/l4", dispatch_id, job_name="b"))
    assert first == bench.row(tables.Backend).last_seen_at

    second = bench.clock.advance(timedelta(seconds=1))
    kept(bench, callback(bench, "org/l4", dispatch_id, job_name="c"))

    assert second == bench.row(tables.Backend).last_seen_at


def test_the_hud_is_told_of_each_report_with_the_times_of_its_leg(bench: Bench) -> None:
    """A start has no execution time yet, also when it is forwarded after the end has come."""
    dispatch_id = bench.told("org/l2", Level.L2, delivery=D1)
    bench.clock.advance(timedelta(seconds=90))
    kept(bench, callback(bench, "org/l2", dispatch_id, status="in_progress", conclusion=None))
    bench.clock.advance(timedelta(seconds=30))
    kept(bench, callback(bench, "org/l2", dispatch_id))
    bench.relist("org/l2", level=Level.L4)
    start, end = bench.rows(tables.Report)

    found = bench.store.read_now(lambda conn: load_forwards(conn, [start.id, end.id, 99]))
    facts = [found.pop(row.id) for row in (start, end)]

    assert [("org/l2", "L2", 90.0, None), ("org/l2", "L2", 90.0, 30.0)] == [
        (fact.repo, fact.level, fact.queue_seconds, fact.execution_seconds) for fact in facts if fact is not None
    ]
    assert [Status.IN_PROGRESS, Status.COMPLETED] == [
        json.loads(fact.body)["workflow"]["status"] for fact in facts if fact is not None
    ]
    assert {} == found
