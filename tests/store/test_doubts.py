"""What tries leave open, in SQL: those that may have arrived, since when, and what others may have started since."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert

from relay.deciding.arrival import Sibling
from relay.deciding.effects import Kind
from relay.store.claiming import Claimed
from relay.store.doubts import MAYBE_DELIVERED, UNSETTLED, Tries, siblings_of, tries_of
from relay.store.engine import Store
from relay.store.tables import Attempt, Change, Dispatch, Effect

NOW = datetime.fromisoformat("2026-11-30T12:00:00+00:00")
MINUTE = timedelta(minutes=1)
LATER = NOW + 30 * MINUTE

#: A try by its number: when it ended, in minutes, how, and what it left open.
Try = tuple[int, float, str, bool | None]


def put(
    store: Store,
    number: int,
    *tries: Try,
    state: str = "sent",
    effect: str = "done",
    attempts: int | None = None,
    reason: str = "",
    **dispatch: Any,
) -> Claimed:
    """A dispatch with its effect and the tries that were noted; planned at NOW."""
    claims = len(tries) if attempts is None else attempts
    ended = NOW + timedelta(minutes=tries[-1][1]) if tries else NOW
    planned: dict[str, Any] = {
        "id": number,
        "change_id": 1,
        "backend": "org/npu",
        "level": 1,
        "purpose": "test",
        "terms": "{}",
    }
    planned |= {"event_type": "pull_request", "delivery_id": f"d-{number}", "origin_delivery": f"d-{number}"}
    planned |= {"state": state, "reason_code": "wanted", "created_at": NOW, "outcome": "queued", "outcome_at": NOW}
    planned |= {"sent_at": ended if state == "sent" else None} | dispatch
    owed: dict[str, Any] = {
        "id": number,
        "lane": f"l{number}",
        "pacing": "account org",
        "kind": Kind.DISPATCH.value,
        "due": NOW,
    }
    owed |= {"subject_id": number, "state": effect, "attempts": claims, "created_at": NOW}
    owed |= {"subject": planned["backend"], "finished_at": ended if effect in {"done", "dead"} else None}
    noted: list[dict[str, Any]] = [
        {"effect_id": number, "number": place, "finished_at": NOW + timedelta(minutes=at), "seconds": 6.0}
        | {"outcome": outcome, "unsure": unsure, "reason": "" if unsure or outcome == "done" else reason}
        for place, at, outcome, unsure in tries
    ]

    def unit(conn: Any) -> None:
        if number == 1:
            head: dict[str, Any] = {"id": 1, "kind": "pull_request", "thread": "pull 7", "head_sha": "a" * 40}
            times: dict[str, Any] = {"created_at": NOW, "updated_at": NOW, "received_at": NOW}
            conn.execute(insert(Change), Change(**head, **times).model_dump())
        conn.execute(insert(Dispatch), Dispatch(**planned).model_dump())
        conn.execute(insert(Effect), Effect(**owed).model_dump())
        if noted:
            conn.execute(insert(Attempt), [Attempt(**one).model_dump(exclude={"id"}) for one in noted])

    store.write_now(unit)
    return Claimed(number, f"l{number}", "account org", Kind.DISPATCH, number, "org/npu", claims + 1, 0, NOW)


def left_open(store: Store, effect: Claimed) -> Tries:
    """What the tries before this claim leave open."""
    return store.read_now(lambda conn: tries_of(conn, effect))


def test_only_tries_that_may_have_arrived_are_counted(store: Store) -> None:
    """A refused connection and a limit started nothing; a 502 may have; whose end nobody noted died, or may have."""
    effect = put(store, 1, (1, 1, "retry", False), (2, 2, "limited", False), (3, 5, "retry", True), attempts=4)

    assert Tries(1, 1, NOW + timedelta(minutes=4, seconds=54), waited=False) == left_open(store, effect)


def test_a_first_try_that_died_began_when_it_was_planned(store: Store) -> None:
    """And one of an older version, which did not keep what was certain, counts as a doubt."""
    effect = put(store, 1, (2, 5, "retry", None), attempts=2)

    assert Tries(1, 1, NOW, waited=False) == left_open(store, effect)


def test_what_was_given_up_and_revived_begins_anew(store: Store) -> None:
    """Whoever revives it wants it sent, however often it was before."""
    effect = put(store, 1, (1, 1, "retry", True), (2, 2, "retry", True), (3, 3, "dead", False), (4, 9, "retry", True))

    assert Tries(1, 0, NOW + timedelta(minutes=8, seconds=54), waited=False) == left_open(store, effect)


@pytest.mark.parametrize("outcome", ["limited", "retry"], ids=["now", "as versions before noted it"])
def test_a_wait_is_known_afterwards(store: Store, outcome: str) -> None:
    """It is waited for once; what was tried before and what after it is not the same."""
    effect = put(store, 1, (1, 1, outcome, False), (2, 9, "retry", True), reason=MAYBE_DELIVERED)
    found = left_open(store, effect)

    assert (True, 1, 1) == (found.waited, found.failed, found.since)


def test_since_when_others_hide_it_is_known(store: Store) -> None:
    """From the first such look on, without anything else in between."""
    looks = ((2, 4, "limited", False), (3, 5, "limited", False))
    effect = put(store, 1, (1, 1, "retry", True), *looks, reason=UNSETTLED)
    again = put(store, 2, (1, 1, "limited", False), (2, 2, "done", False), (3, 5, "limited", False), reason=UNSETTLED)

    assert NOW + 4 * MINUTE == left_open(store, effect).unsettled_since
    assert NOW + 5 * MINUTE == left_open(store, again).unsettled_since


def test_others_count_by_what_they_may_have_started_meanwhile(store: Store) -> None:
    """Each try that was taken or left a doubt, and each under way; not what ended before, nor another backend's."""
    put(store, 1)
    put(store, 2, (1, 12, "done", False))
    put(store, 3, (1, 12, "retry", True), (2, 14, "retry", False), state="planned", effect="ready")
    put(store, 4, state="planned", effect="running", attempts=1)
    put(store, 5, (1, 1, "done", False))
    put(store, 6, (1, 12, "done", False), backend="org/other")
    put(store, 7, (1, 29, "done", False), event_type="push")
    put(store, 8, (1, 12, "retry", False), state="planned", effect="ready")
    put(store, 9, (1, 1, "retry", True), (2, 12, "done", True))
    put(store, 10, (1, 1, "retry", True), (2, 12, "done", False))

    found = store.read_now(
        lambda conn: siblings_of(
            conn, 1, "org/npu", since=NOW + 5 * MINUTE, first_at=NOW + 10 * MINUTE, shown_before=LATER - 2 * MINUTE
        )
    )

    assert {
        Sibling("d-2", "pull_request", 1, certain=True),
        Sibling("d-3", "pull_request", 1, certain=False),
        Sibling("d-4", "pull_request", 1, certain=False, fresh=True),
        Sibling("d-7", "push", 1, certain=False, fresh=True),  # Taken a moment ago: its run may not show yet.
        Sibling("d-9", "pull_request", 1, certain=False),  # Its run is of the first try, long before.
        Sibling("d-10", "pull_request", 1, certain=True),
    } == set(found)
