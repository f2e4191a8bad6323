"""Merge groups as rows: what is told, what is taken back, whose gate is looked at again, and when nobody waits."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from allowlist.model import Allowlist, Entry
from relay.deciding.events import MergeGroupEvent
from relay.deciding.plan import Decision
from relay.store.checks import touch_head
from relay.store.engine import Store
from relay.store.intake import Received, Recorded
from relay.store.queue import end_groups, record_group
from relay.store.queued import groups_holding, members_of
from relay.store.retention import forget
from relay.store.tables import Check
from tests.conftest import Clock
from tests.relay.planning import S1, S2, XPU, pull_request
from tests.store.taking_in import TERMS, Intake

_check: Any = Check.__table__  # type: ignore[attr-defined]
G1, G2, MAIN = "a1" * 20, "a2" * 20, "f0" * 20
ASKS = replace(XPU, events=frozenset({"pull_request", "merge_group"}))


@pytest.fixture
def kept(store: Store, clock: Clock) -> Intake:
    """Pull requests 7 at S1 and 8 at S2."""
    intake = Intake(store, (XPU,), clock.now())
    intake.take(pull_request(), "seven")
    intake.take(pull_request(head_sha=S2, number=8), "eight")
    return intake


def group(head: str = G1, number: int = 7, base: str = MAIN, action: str = "checks_requested") -> MergeGroupEvent:
    """A group that adds this pull request to what it was built on."""
    ref = f"refs/heads/gh-readonly-queue/main/pr-{number}-{base}"
    return MergeGroupEvent(action, "", head, ref, "main", base, f"Merge #{number}", "queue")


def take(
    kept: Intake, event: MergeGroupEvent, delivery_id: str = "G", entries: tuple[Entry, ...] = (ASKS,)
) -> Recorded:
    """Take in one webhook of the queue."""
    received = Received(delivery_id, "merge_group", json.dumps({"action": event.action}))
    return kept.store.write_now(
        lambda conn: record_group(conn, event, received, allowlist=Allowlist(entries), terms=TERMS, now=kept.now)
    )


def touched(kept: Intake, head: str) -> int:
    """How often the gate of this head was touched."""
    (wanted,) = [row[2] for row in kept.rows(_check, "head_sha", "name", "wanted") if row[:2] == (head, "crcr/gate")]
    return len(wanted or "")


def test_a_group_s_dispatch_has_no_more_time_than_the_group(kept: Intake) -> None:
    """Whatever its entry allows: the queue does not wait."""
    take(kept, group())

    rows = kept.dispatches("event_type", "state", "purpose", "delivery_id", "payload_delivery", "give_up_at")
    assert ("merge_group", "planned", "test", "G", "G", kept.now + TERMS.group_deadline) == rows[-1]
    assert (G1, "crcr/gate") in kept.rows(_check, "head_sha", "name")
    assert (G1, "crcr/org/xpu") in kept.rows(_check, "head_sha", "name")


def test_a_destroyed_group_takes_back_what_nobody_has_heard_of(kept: Intake) -> None:
    """Its dispatch is not sent any more, and its change grows old."""
    take(kept, group())
    take(kept, group(action="destroyed"), "gone")

    assert ("superseded", "change_closed", None) == kept.dispatches("state", "reason_code", "next_deadline")[-1]
    assert ("merge_group", "closed", kept.now) == kept.changes("kind", "state", "ended_at")[-1]
    assert "cancelled" == [state for subject, state in kept.effects() if subject == "org/xpu"][-1]


def test_a_redelivery_changes_nothing_but_what_was_given_up(kept: Intake) -> None:
    """Somebody pressed "Redeliver"."""
    take(kept, group())
    kept.mark_effects("dead")
    kept.mark_dispatches("dead", "undelivered")

    again = take(kept, group())

    assert ("duplicate", ["org/xpu"]) == (again.status, [one.backend for one in again.planned if one.backend])
    assert 3 == len(kept.dispatches("id"))


def test_a_revived_dispatch_has_no_more_time_than_its_group(kept: Intake) -> None:
    """Given up and redelivered: the queue waits for its own time still, counted from its first request."""
    take(kept, group())
    kept.mark_effects("dead")
    kept.mark_dispatches("dead", "undelivered")
    later = replace(kept, now=kept.now + timedelta(minutes=20))

    take(later, group())

    assert ("planned", kept.now + TERMS.group_deadline) == kept.dispatches("state", "give_up_at")[-1]


def test_what_is_in_a_group_is_followed_both_ways(kept: Intake) -> None:
    """From a group to its pull requests by their newest heads, and from a pull request to all groups that hold it."""
    take(kept, group(), "one")
    take(kept, group(G2, 8, G1), "two")
    kept.take(pull_request("synchronize", "3" * 40, 5), "pushed")

    members = kept.store.read_now(lambda conn: members_of(conn, G2))
    holding = kept.store.read_now(lambda conn: [groups_holding(conn, [number]) for number in (7, 8, 9)])

    assert [(7, "3" * 40), (8, S2)] == [(member.number, member.head_sha) for member in members]
    assert [(G1, G2), (G2,), ()] == holding


def test_a_touch_of_a_pull_request_is_one_of_its_groups(kept: Intake) -> None:
    """Their gates say what it says; nobody else's do."""
    take(kept, group(), "one")
    take(kept, group(G2, 8, G1), "two")
    before = touched(kept, G1), touched(kept, G2)

    kept.store.write_now(lambda conn: touch_head(conn, S2, TERMS, kept.now, backend=XPU.repo))
    after_second = touched(kept, G1), touched(kept, G2)
    kept.store.write_now(lambda conn: touch_head(conn, S1, TERMS, kept.now, backend=XPU.repo))

    assert (before[0], before[1] + 1) == after_second
    assert (before[0] + 1, before[1] + 2) == (touched(kept, G1), touched(kept, G2))


def test_the_end_of_a_group_has_its_followers_looked_at(kept: Intake) -> None:
    """What they contain has changed."""
    take(kept, group(), "one")
    take(kept, group(G2, 8, G1), "two")
    before = touched(kept, G2)

    take(kept, group(action="destroyed"), "gone")

    assert before + 1 == touched(kept, G2)
    assert [8] == [member.number for member in kept.store.read_now(lambda conn: members_of(conn, G2))]
    assert () == kept.store.read_now(lambda conn: members_of(conn, G1))


def test_a_group_s_time_ends_once(kept: Intake) -> None:
    """Not a moment before, and the sweep does not come back to it."""
    take(kept, group())
    over = kept.now + TERMS.group_deadline

    def ends(at: Any) -> tuple[str, ...]:
        return kept.store.write_now(lambda conn: end_groups(conn, at, TERMS))

    assert [(), (G1,), ()] == [ends(over - timedelta(seconds=1)), ends(over), ends(over)]
    assert ("open", over) == kept.changes("state", "ended_at")[-1]


def test_a_group_that_was_destroyed_or_asked_twice_has_one_row(kept: Intake) -> None:
    """A second request finds the dispatch of the first, and one that comes last asks nothing."""
    take(kept, group(), "one")
    second = take(kept, group(), "two")
    take(kept, group(action="destroyed"), "gone")
    late = take(kept, group(), "late")

    assert "already_dispatched" == second.planned[0].reason
    assert (Decision("check", "", "gate_closed"), "group_gone") == (late.planned[-1], late.planned[0].reason)
    assert 1 == len([kind for (kind,) in kept.changes("kind") if kind == "merge_group"])
    assert 3 == len(kept.dispatches("id"))


def test_a_group_is_forgotten_with_all_that_hangs_on_it(kept: Intake) -> None:
    """Its rows are as old as any other's, once it is over."""
    take(kept, group())
    take(kept, group(action="destroyed"), "gone")

    kept.store.write_now(lambda conn: forget(conn, kept.now + timedelta(days=1)))

    assert ["pull_request", "pull_request"] == [kind for (kind,) in kept.changes("kind")]
    assert ["pull_request", "pull_request"] == [kind for (kind,) in kept.dispatches("event_type")]
    assert {S1, S2} == {head for (head,) in kept.rows(_check, "head_sha")}
    assert {"seven", "eight"} == {name for (name,) in kept.deliveries("id")}
