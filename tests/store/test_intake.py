"""One transaction holds a webhook and all that follows from it, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from sqlalchemy import event as sqlalchemy_event
from sqlalchemy import insert

from allowlist.model import Entry, Level, RepoName
from relay.deciding.events import PullRequestEvent
from relay.store.engine import Store
from relay.store.intake import Recorded
from relay.store.reading.why import why
from relay.store.tables import Backend
from tests.conftest import Clock
from tests.relay.planning import EVERY, NPU, PATHS, PICKY, S1, S2, S3, XPU, at, labeled, pull_request, push
from tests.store.taking_in import Intake

CALM = replace(XPU, repo=RepoName("org", "calm"), level=Level.L1)


@pytest.fixture
def intake(store: Store, clock: Clock) -> Intake:
    """Two backends, one of which would block."""
    return Intake(store, (XPU, CALM), clock.now())


def test_a_webhook_is_kept_with_everything_that_follows(intake: Intake) -> None:
    """Delivery, change, dispatches, their effects and the gate: all of it or nothing."""
    taken = intake.take(pull_request(labels=("bug",), merge_commit_sha=S2))

    assert "accepted" == taken.status
    assert [("D1", "pull_request", "opened", "up/stream", "ada", 1, '{"of":"D1"}')] == intake.deliveries(
        "id", "event", "action", "repository", "sender", "change_id", "payload"
    )
    assert [("pull_request", "pull 7", S1, 7, '["bug"]', "open", "D1", at(0), S2)] == intake.changes(
        "kind", "thread", "head_sha", "number", "labels", "state", "delivery_id", "updated_at", "merge_sha"
    )
    give_up = intake.now + timedelta(hours=8)
    assert {
        ("org/xpu", 4, "test", "pull_request", "D1", "D1", "D1", "planned", "wanted", give_up, give_up, "queued"),
        ("org/calm", 1, "test", "pull_request", "D1", "D1", "D1", "planned", "wanted", give_up, give_up, "queued"),
    } == set(
        intake.dispatches(
            "backend",
            "level",
            "purpose",
            "event_type",
            "delivery_id",
            "origin_delivery",
            "payload_delivery",
            "state",
            "reason_code",
            "give_up_at",
            "next_deadline",
            "outcome",
        )
    )
    assert {("org/xpu", "ready"), ("org/calm", "ready")} == set(intake.effects())
    assert 2 == len(intake.effects("reconcile_check")), "the gate's and that of L4"


def test_a_redelivery_changes_nothing(intake: Intake) -> None:
    """CASES 1: GitHub keeps the delivery id when somebody presses "Redeliver"."""
    intake.take(pull_request())

    again = intake.take(pull_request())

    assert ("duplicate", ()) == (again.status, again.planned)
    assert 2 == len(intake.dispatches("id"))
    assert 2 == len(intake.effects())


def test_a_redelivery_looks_again_at_checks_that_were_given_up(intake: Intake) -> None:
    """A gate that could not be written waits for somebody, and this is somebody."""
    intake.take(pull_request())
    intake.mark_effects("dead", "missing_permission", kind="reconcile_check")

    again = intake.take(pull_request())

    assert [("check", "revived")] == [(decision.effect, decision.reason) for decision in again.planned]
    assert {"ready"} == {state for _, state in intake.effects("reconcile_check")}


def test_fifty_at_once_are_one(intake: Intake) -> None:
    """CASES 1: whoever comes second finds the delivery taken, in one transaction or in many."""

    async def all_at_once() -> list[str]:
        units = [intake.store.write(lambda conn: intake.unit(conn, pull_request(), "D1")) for _ in range(50)]
        return [taken.status for taken in await asyncio.gather(*units)]

    statuses = asyncio.run(all_at_once())

    assert ["accepted", *["duplicate"] * 49] == sorted(statuses)
    assert 2 == len(intake.dispatches("id"))


def test_a_redelivery_revives_what_had_been_given_up(intake: Intake) -> None:
    """The dispatch is planned again and its outcome open; what was sent is not sent twice."""
    intake.take(pull_request())
    intake.mark_effects("dead", "not_installed", subject="org/xpu")
    intake.mark_effects("done", subject="org/calm")
    intake.mark_dispatches("dead", "undelivered")

    again = intake.take(pull_request())

    assert ("duplicate", [("dispatch", "org/xpu", "revived")]) == (
        again.status,
        [(decision.effect, decision.backend, decision.reason) for decision in again.planned],
    )
    assert {("org/xpu", "planned", "queued"), ("org/calm", "dead", "undelivered")} == set(
        intake.dispatches("backend", "state", "outcome")
    )
    assert {("org/xpu", "ready"), ("org/calm", "done")} == set(intake.effects())


def test_a_revived_look_at_the_files_is_still_a_look(store: Store, clock: Clock) -> None:
    """Reviving must not turn a decision that is owed into a dispatch that nobody decided."""
    intake = Intake(store, (PATHS,), clock.now())
    intake.take(pull_request())
    intake.mark_effects("dead", "github_unavailable", kind="decide_paths")
    intake.mark_dispatches("dead", "undelivered")

    intake.take(pull_request())

    assert [("pending_paths",)] == intake.dispatches("state")
    assert [("org/paths", "ready")] == intake.effects("decide_paths")


def test_filtered_backends_leave_a_reason_and_no_row(store: Store, clock: Clock) -> None:
    """CASES 12: ``why`` answers from the delivery's plan."""
    nightly = Entry(RepoName("org", "nightly"), Level.L2, events=frozenset({"nightly"}))
    intake = Intake(store, (nightly,), clock.now())

    intake.take(pull_request())

    assert [] == intake.dispatches("id")
    (reason,) = store.read_now(lambda conn: why(conn, 7, nightly.repo))
    assert ("none", "filtered_events", "entry wants events [nightly], this is pull_request", None) == (
        reason.effect,
        reason.reason,
        reason.detail,
        reason.dispatch_id,
    )
    assert () == store.read_now(lambda conn: why(conn, 8, nightly.repo))
    assert () == store.read_now(lambda conn: why(conn, 7, XPU.repo))


def test_why_tells_the_story_in_order(intake: Intake) -> None:
    """One decision for each webhook, with what has become of it."""
    intake.take(pull_request(), "D1")
    intake.mark_effects("done")
    intake.mark_dispatches("sent")
    later = replace(intake, now=intake.now + timedelta(minutes=1))
    later.take(pull_request("synchronize", S2, 1, before=S1), "D2")

    story = intake.store.read_now(lambda conn: why(conn, 7, XPU.repo))

    assert [("D1", S1, "wanted", "sent"), ("D2", S2, "wanted", "planned")] == [
        (one.delivery_id, one.head_sha, one.reason, one.state) for one in story
    ]


def test_a_new_head_cancels_what_was_not_sent(store: Store, clock: Clock) -> None:
    """CASES 10: six pushes in a minute, and only who asked for every commit gets every one."""
    intake = Intake(store, (XPU, EVERY), clock.now())
    heads = [str(number) * 40 for number in range(1, 7)]
    intake.take(pull_request("opened", heads[0]), "D0")
    for number, (old, new) in enumerate(pairwise(heads), 1):
        intake.take(pull_request("synchronize", new, number / 6, before=old), f"D{number}")

    assert [("superseded",)] * 5 + [("open",)] == intake.changes("state")
    rows = intake.dispatches("backend", "state", "reason_code", "outcome", "next_deadline")
    assert [("org/xpu", "superseded", "newer_head", "not_required", None)] * 5 == [
        row for row in rows if row[1] == "superseded"
    ]
    assert {"org/every": 6, "org/xpu": 1} == _count(intake.effects(), "ready")
    assert {"org/xpu": 5} == _count(intake.effects(), "cancelled")


def _count(effects: list[tuple[str, str]], state: str) -> dict[str, int]:
    backends = [backend for backend, found in effects if found == state]
    return {backend: backends.count(backend) for backend in backends}


def test_what_the_worker_holds_is_not_taken_back(intake: Intake) -> None:
    """It may be out already; to say that it was not sent would be a lie."""
    intake.take(pull_request())
    intake.mark_effects("running", subject="org/xpu")

    intake.take(pull_request("synchronize", S2, 1, before=S1), "D2")

    states = {row[0]: row[1] for row in intake.dispatches("backend", "state") if row[1] != "planned"}
    assert {"org/calm": "superseded"} == states


def test_what_the_worker_put_back_is_taken_back_next_time(intake: Intake) -> None:
    """It was held when its head was superseded, met a failure, and waits for another try that nobody wants."""
    intake.take(pull_request())
    intake.mark_effects("running")
    intake.take(pull_request("synchronize", S2, 1, before=S1), "D2")
    intake.mark_effects("ready", from_state="running")

    intake.take(pull_request("synchronize", S3, 2, before=S2), "D3")

    changes = dict(intake.changes("id", "head_sha"))
    rows = {(changes[row[0]], row[1]) for row in intake.dispatches("change_id", "state")}
    assert {(S1, "superseded"), (S2, "superseded"), (S3, "planned")} == rows


def test_an_older_event_is_history(intake: Intake) -> None:
    """Its head is recorded, and neither the newer head nor its dispatches move."""
    intake.take(pull_request("synchronize", S2, 5, before=S1), "D2")

    intake.take(pull_request("opened", S1, 0), "D1")

    assert [(S2, "open"), (S1, "superseded")] == intake.changes("head_sha", "state")
    assert {"D2"} == {row[0] for row in intake.dispatches("origin_delivery")}


def test_older_facts_do_not_replace_newer_ones(intake: Intake) -> None:
    """Labels come from the newest webhook, whatever came last."""
    intake.take(pull_request("labeled", S1, 5, labels=("new",), label="new"), "D2")
    intake.take(pull_request("opened", S1, 0, labels=()), "D1")

    assert [('["new"]', at(5), "D1")] == intake.changes("labels", "updated_at", "delivery_id")


def test_links_are_read_from_the_stored_payload(intake: Intake) -> None:
    """Two pushes of one second, in the wrong order."""
    intake.take(push(after=S2, before=S1), "D2")
    intake.take(push(after=S1, before="9" * 40), "D1")

    assert [(S2, "open"), (S1, "superseded")] == intake.changes("head_sha", "state")


def test_closing_ends_the_change(intake: Intake) -> None:
    """What waits is taken back; the word of it goes out in the same lane, behind what was sent."""
    intake.take(pull_request(), "D1")
    intake.take(pull_request("closed", S1, 1, merged=True, merge_commit_sha=S2), "D2")

    assert [("closed", S2)] == intake.changes("state", "landed_sha")
    assert {
        ("test", "superseded", "change_closed"),
        ("notify", "planned", "wanted"),
    } == set(intake.dispatches("purpose", "state", "reason_code"))
    assert {None} == {row[0] for row in intake.dispatches("next_deadline")}


def test_a_paused_backend_has_a_row_and_no_effect(intake: Intake) -> None:
    """Its pause shows where people look for its result."""
    intake.store.write_now(
        lambda conn: (
            conn.execute(
                insert(Backend.__table__),  # type: ignore[attr-defined]
                [
                    {
                        "repo": "org/xpu",
                        "private": False,
                        "paused_until": intake.now + timedelta(hours=1),
                        "pause_reason": "moving house",
                    },
                    {
                        "repo": "org/calm",
                        "private": False,
                        "paused_until": intake.now - timedelta(hours=1),
                        "pause_reason": "has moved",
                    },
                ],
            ).rowcount
        )
    )

    intake.take(pull_request())

    assert {("org/xpu", "paused", "paused", "moving house"), ("org/calm", "planned", "queued", "")} == set(
        intake.dispatches("backend", "state", "outcome", "reason")
    )
    assert [("org/calm", "ready")] == intake.effects()


def test_a_label_repeats_the_head_s_newest_payload(store: Store, clock: Clock) -> None:
    """CASES 31: no run is live, since the one that was planned has been given up."""
    intake = Intake(store, (NPU, PICKY), clock.now())
    intake.take(pull_request(), "D1")
    intake.mark_dispatches("dead")

    intake.take(labeled("ciflow/crcr/npu"), "D2")
    intake.take(labeled("test me", 6), "D3")

    made = intake.dispatches("backend", "origin_delivery", "payload_delivery", "reason_code", "delivery_id")
    assert [("org/npu", "D1"), ("org/npu", "D2"), ("org/picky", "D3")] == [row[:2] for row in made]
    assert {("D1", "labelled")} == {row[2:4] for row in made[1:]}
    assert {36} == {len(row[4]) for row in made[1:]}
    assert [('["test me"]',)] == intake.changes("labels")


def test_the_cost_does_not_grow_with_the_backends(store: Store, clock: Clock) -> None:
    """Fifty backends take as many statements as five."""
    statements: list[str] = []

    @sqlalchemy_event.listens_for(store.write_engine, "before_cursor_execute")
    def _note(_conn: object, _cursor: object, statement: str, *_rest: object) -> None:
        statements.append(statement)

    counts = []
    for number, size in enumerate((5, 50)):
        entries = tuple(replace(XPU, repo=RepoName("org", f"b{index}")) for index in range(size))
        statements.clear()
        Intake(store, entries, clock.now()).take(
            pull_request(number=number + 1, head_sha=str(number) * 40), f"D{number}"
        )
        counts.append(len(statements))

    assert counts[0] == counts[1]
    assert counts[0] <= 20


@pytest.mark.postgres
def test_replicas_decide_one_after_another(postgres_url: str, clock: Clock) -> None:
    """Two processes take in two heads of one new pull request at once: neither can miss the other's."""
    from tests.conftest import empty

    empty(postgres_url)
    stores = [Store(postgres_url) for _ in range(2)]

    intakes = [Intake(store, (XPU,), clock.now()) for store in stores]

    def take(replica: int, event: PullRequestEvent, delivery_id: str) -> Awaitable[Recorded]:
        return stores[replica].write(lambda conn: intakes[replica].unit(conn, event, delivery_id))

    async def race() -> None:
        for number in range(1, 21):
            await asyncio.gather(
                take(0, pull_request("opened", S1, 0, number=number), f"A{number}"),
                take(1, pull_request("synchronize", S2, 1, number=number, before=S1), f"B{number}"),
            )

    try:
        asyncio.run(race())
        changes = intakes[0].changes("head_sha", "state")
        assert {(S1, "superseded"), (S2, "open")} == set(changes)
        assert 40 == len(changes)
    finally:
        for store in stores:
            store.close()
