"""Nights that report by themselves: no dispatch before them, one row for all their jobs (PROTOCOL 4, CASES 29)."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest

from allowlist.model import Level
from relay.store import tables
from relay.store.engine import Store
from relay.store.reports import confirm, nightly_subject
from tests.conftest import Clock
from tests.edge.callers import UPSTREAM, Bench, sample

SHA = "4f1d9c0e7b2a58d3c6e0f9a1b8d7c6e5f4a3b2c1"


@pytest.fixture
def bench(store: Store, clock: Clock) -> Bench:
    """A callback edge with a backend at L2 that nothing was dispatched to."""
    bench = Bench(store, clock)
    bench.allow("org/l2", Level.L2)
    return bench


def night(**workflow: Any) -> dict[str, Any]:
    """Production's nightly body, with other words in its workflow."""
    body = sample("callback_nightly_production.json")
    body["workflow"].update(workflow)
    return body


def token(bench: Bench, **claims: Any) -> str:
    """The token of a scheduled run."""
    return bench.issuers.github("org/l2", **{"run_id": "24033272679", "event_name": "schedule", **claims})


def test_production_s_nightly_is_kept_as_unverified(bench: Bench) -> None:
    """Nothing was dispatched, and the commit may be a fork's until upstream says otherwise."""
    answer = bench.post(night(), token(bench))

    change, dispatch = bench.row(tables.Change), bench.row(tables.Dispatch)
    assert answer.status_code == 200
    assert ("self_reported", SHA, False, None) == (change.kind, change.head_sha, change.verified, change.number)
    assert ("report", "self_reported", "success", None) == (
        dispatch.purpose,
        dispatch.state,
        dispatch.outcome,
        dispatch.sent_at,
    )
    assert bench.row(tables.Job).queue_seconds is None
    assert [("confirm_commit", change.id, SHA)] == [
        (effect.kind, effect.subject_id, effect.subject) for effect in bench.rows(tables.Effect)
    ]
    assert not bench.rows(tables.Check)
    assert bench.woken == 1


def test_production_s_buildkite_nightly_works_as_it_is(bench: Bench) -> None:
    """Run ids and check run ids of another CI are opaque."""
    answer = bench.post(sample("callback_nightly_buildkite_production.json"), bench.issuers.buildkite())

    assert answer.status_code == 200
    assert ("0190aaaa-bbbb-cccc-dddd-eeeeffff0000", ":docker: build image", "failure") == (
        bench.row(tables.Job).run_id,
        bench.row(tables.Job).job_name,
        bench.row(tables.Dispatch).outcome,
    )


def test_many_jobs_under_many_delivery_ids_are_one_night(bench: Bench) -> None:
    """65 jobs of one commit share it, whatever they call their delivery (CASES 29)."""
    for number in range(65):
        body = night(job_name=f"job {number}")
        body["delivery_id"] = str(uuid.uuid5(uuid.NAMESPACE_DNS, str(number)))
        assert bench.post(body, token(bench)).status_code == 200

    assert (1, 65) == (len(bench.rows(tables.Dispatch)), bench.row(tables.Dispatch).legs_reported)
    assert len([effect for effect in bench.rows(tables.Effect) if effect.kind == "confirm_commit"]) == 1


@pytest.mark.parametrize(
    ("payload", "delivery"), [({"head_sha": SHA}, "x"), ({"after": SHA.upper()}, "x"), ({"head_sha": "main"}, SHA)]
)
def test_the_first_field_that_holds_a_commit_names_it(bench: Bench, payload: dict[str, str], delivery: str) -> None:
    """head_sha, after, delivery_id: in this order, in either case."""
    body = {**night(), "payload": payload, "delivery_id": delivery}

    assert bench.post(body, token(bench)).status_code == 200
    assert bench.row(tables.Change).head_sha == SHA


@pytest.mark.parametrize("sha", ["main", "0" * 40, SHA[:-1], SHA + "0", 7, None])
def test_a_night_of_no_commit_is_refused_naming_all_three_fields(bench: Bench, sha: object) -> None:
    """Nothing to show it under (CASES 29)."""
    body = {**night(), "payload": {"head_sha": sha}, "delivery_id": "nightly-2026"}

    answer = bench.post(body, token(bench))

    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert all(name in error["rule"] for name in ("payload.head_sha", "payload.after", "delivery_id"))
    assert not bench.rows(tables.Change)


def test_a_night_whose_conclusion_is_unknown_is_refused(bench: Bench) -> None:
    """As everywhere (CASES 29)."""
    assert bench.post(night(conclusion="unknown"), token(bench)).status_code == 422
    assert not bench.rows(tables.Dispatch)


def test_the_newest_attempt_decides_and_history_stays(bench: Bench) -> None:
    """The same night reported again, with another conclusion (CASES 29)."""
    bench.post(night(conclusion="failure"), token(bench))
    bench.clock.advance(timedelta(hours=1))
    bench.post(night(run_attempt=2), token(bench, run_attempt="2"))

    assert bench.row(tables.Dispatch).outcome == "success"
    assert [(1, "failure", False), (2, "success", True)] == [
        (job.run_attempt, job.conclusion, job.deciding) for job in bench.rows(tables.Job)
    ]


@pytest.mark.parametrize(("event", "status"), [("workflow_dispatch", 200), ("repository_dispatch", 200), ("push", 403)])
def test_a_night_may_be_started_by_the_backend_s_own_people(bench: Bench, event: str, status: int) -> None:
    """And by nobody else."""
    assert status == bench.post(night(), token(bench, event_name=event)).status_code


def test_a_night_of_an_l1_backend_is_refused(bench: Bench) -> None:
    """There is no dispatch that could have stood higher."""
    bench.relist("org/l2", level=Level.L1)

    assert (403, "below_l2") == (
        bench.post(night(), token(bench)).status_code,
        bench.post(night(), token(bench)).json()["code"],
    )
    assert not bench.rows(tables.Change)


def test_a_night_cannot_be_reached_as_a_dispatch(bench: Bench) -> None:
    """The name under which it is kept is ours, and no delivery id leads to it."""
    bench.post(night(), token(bench))
    body = bench.body(delivery=f"nightly {SHA}")

    assert bench.post(body).status_code == 404


def test_one_commit_is_confirmed_for_all_events_at_once(bench: Bench) -> None:
    """Upstream is asked once for a commit, however many events and backends reported on it."""
    bench.post(night(), token(bench))
    bench.post({**night(), "event_type": "periodic"}, token(bench))
    first, second = bench.rows(tables.Change)

    bench.store.write_now(lambda conn: confirm(conn, first.id, True, bench.clock.now()))

    assert [True, True] == [change.verified for change in bench.rows(tables.Change)]
    assert ["nightly 4f1d", "periodic 4f1d"] == [first.thread[:12], second.thread[:13]]


def test_a_pull_request_s_own_head_is_not_touched_by_a_confirmation(bench: Bench) -> None:
    """Only what was reported by itself needs confirming."""
    bench.post(night(), token(bench))
    bench.change(SHA)
    reported, pull = bench.rows(tables.Change)

    bench.store.write_now(lambda conn: confirm(conn, reported.id, False, bench.clock.now()))

    assert (False, True) == (bench.rows(tables.Change)[0].verified, pull.verified)


def test_upstream_is_asked_for_the_branches_it_pushes_to(bench: Bench) -> None:
    """A night may be of a branch of its own, beside the default one."""
    bench.post(night(), token(bench))
    now = bench.clock.now()
    for number, ref in enumerate(
        ("refs/heads/release/2.9", "refs/tags/ciflow/x", "refs/heads/main", "refs/heads/main")
    ):
        columns = {"created_at": now, "updated_at": now, "received_at": now, "draft": False, "verified": True}
        texts = dict.fromkeys(("title", "author", "author_association", "html_url"), "")
        bench.add(
            tables.Change,
            kind="push",
            thread=f"{UPSTREAM} {ref} {number}",
            head_sha=f"{number:040}",
            ref=ref,
            labels="[]",
            state="landed",
            **columns,
            **texts,
        )
    night_id = bench.rows(tables.Change)[0].id

    branches = bench.store.read_now(lambda conn: nightly_subject(conn, night_id))

    assert ("nightly", "main", "release/2.9") == branches
