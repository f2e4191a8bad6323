"""Dead letters that somebody wants tried again: what is revived, what is dropped, and what is left, and why."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from allowlist.model import Allowlist, Entry, Level, RepoName
from relay.deciding.effects import Kind, NewEffect
from relay.store import outbox, replaying
from relay.store.engine import Store
from relay.store.redispatch import Asking
from relay.store.replaying import Chosen, Fate, Replayed, replay, tell_again
from relay.store.tables import Audit
from tests.conftest import Clock
from tests.relay.planning import S1, S2, XPU, pull_request
from tests.store.taking_in import TERMS, Intake

NPU = Entry(RepoName("org", "npu"), Level.L4, every_commit=True)
CLOSER = replace(XPU, actions=frozenset({"opened", "closed", "reopened", "synchronize"}))
LISTED = Allowlist((XPU, NPU))


@pytest.fixture
def intake(store: Store, clock: Clock) -> Intake:
    """Two backends, one of which wants every commit."""
    return Intake(store, (XPU, NPU), clock.now())


def give_up(intake: Intake, reason: str = "archived") -> None:
    """Let everything that waits be given up."""
    intake.mark_effects("dead", reason)
    intake.mark_dispatches("dead", "undelivered")


def replayed(intake: Intake, chosen: Chosen | None = None, *, dry_run: bool = False) -> dict[str, tuple[Fate, str]]:
    """What becomes of each backend's newest dead dispatch."""
    found = _replay(intake, chosen, dry_run)
    return {one.backend: (one.fate, one.why) for one in found if one.kind == Kind.DISPATCH}


def _replay(intake: Intake, chosen: Chosen | None, dry_run: bool) -> tuple[Replayed, ...]:
    return intake.store.write_now(
        lambda conn: replay(conn, chosen or Chosen(), listed=LISTED, terms=TERMS, now=intake.now, dry_run=dry_run)
    )


def states(intake: Intake) -> list[tuple[str, str]]:
    """Backend and state of every dispatch."""
    return sorted(intake.dispatches("backend", "state"))


def test_what_was_given_up_is_planned_again_with_a_fresh_schedule(intake: Intake) -> None:
    """The dispatch is awaited anew, and the worker finds its effect."""
    intake.take(pull_request(), "D1")
    give_up(intake)

    assert {"org/xpu": (Fate.REVIVED, "sent again"), "org/npu": (Fate.REVIVED, "sent again")} == replayed(intake)

    assert [("org/npu", "planned"), ("org/xpu", "planned")] == states(intake)
    claimed = intake.store.write_now(lambda conn: outbox.claim(conn, owner="w", count=9, now=intake.now))
    assert {"org/npu", "org/xpu"} == {one.subject for one in claimed if one.kind is Kind.DISPATCH}
    assert {} == replayed(intake)


def test_a_dry_run_says_the_same_and_changes_nothing(intake: Intake) -> None:
    """Whoever looks first must see what will happen."""
    intake.take(pull_request(), "D1")
    give_up(intake)

    assert replayed(intake, dry_run=True) == replayed(intake, dry_run=True)
    assert [("org/npu", "dead"), ("org/xpu", "dead")] == states(intake)
    assert 2 == len(replayed(intake))


def test_a_newer_head_ends_the_wait_for_an_older_one(intake: Intake) -> None:
    """Dropped with the reason, and no dead letter from then on; a backend that wants every commit still gets it."""
    intake.take(pull_request(), "D1")
    give_up(intake)
    intake.take(pull_request("synchronize", S2, 5, before=S1), "D2")

    found = replayed(intake, Chosen(("D1",)))

    assert (Fate.DROPPED, "a newer head took this one's place") == found["org/xpu"]
    assert (Fate.REVIVED, "sent again") == found["org/npu"]
    assert {} == replayed(intake)


def test_what_github_took_is_never_sent_twice(intake: Intake) -> None:
    """A dead effect can be left of a dispatch that was sent by another: one run per dispatch."""
    intake.take(pull_request(), "D1")
    intake.mark_effects("dead", "github_unavailable")
    intake.mark_dispatches("sent")

    assert {Fate.DROPPED} == {fate for fate, _ in replayed(intake).values()}
    assert [("org/npu", "sent"), ("org/xpu", "sent")] == states(intake)


def test_of_two_dispatches_of_one_commit_only_the_newer_comes_back(intake: Intake) -> None:
    """Told anew by a person after the first was given up: reviving both would be two runs."""
    intake.take(pull_request(), "D1")
    give_up(intake)
    asking = Asking("ada: again", "D1")
    intake.mark_dispatches("sent", "failure")
    intake.store.write_now(
        lambda conn: tell_again(
            conn, "D1", XPU.repo, asking=asking, fresh_ids=["F1"], listed=LISTED, terms=TERMS, now=intake.now
        )
    )
    give_up(intake)

    found = [one for one in _replay(intake, None, False) if one.backend == "org/xpu"]

    assert [(Fate.DROPPED, "the backend was told anew of this commit meanwhile"), (Fate.REVIVED, "sent again")] == [
        (one.fate, one.why) for one in found
    ]
    # The same holds where GitHub redelivers: what was dropped here is not revived there.
    assert ["dead", "planned"] == [row[1] for row in intake.dispatches("backend", "state") if row[0] == "org/xpu"]


def test_a_closed_notice_does_not_cancel_what_was_told_after_it(store: Store, clock: Clock) -> None:
    """A listener cancels on closed: one that came after its pull request was reopened would end the new run."""
    intake = Intake(store, (CLOSER,), clock.now())
    intake.take(pull_request(), "D1")
    intake.mark_effects("done")
    intake.mark_dispatches("sent")
    intake.take(pull_request("closed", S1, 5), "D2")
    intake.mark_effects("dead", "github_unavailable")
    notice = intake.dispatches("id", "purpose")[-1]
    assert "notify" == notice[1]
    intake.take(pull_request("reopened", S1, 6), "D3")

    assert {"org/xpu": (Fate.DROPPED, "something newer was told of this pull request meanwhile")} == replayed(
        intake, Chosen(("D2",))
    )


def test_a_backend_that_left_the_allowlist_is_told_nothing(intake: Intake) -> None:
    """Left as it is: should it come back, its dead letter can."""
    gone = replace(intake, entries=(Entry(RepoName("org", "gone"), Level.L4),))
    gone.take(pull_request(), "D1")
    give_up(gone)

    assert {"org/gone": (Fate.LEFT, "the backend is not on the allowlist any more")} == replayed(gone)
    assert [("org/gone", "dead")] == states(gone)


def test_dead_letters_are_chosen_by_delivery_by_time_and_by_backend(intake: Intake) -> None:
    """Each narrows, and a range of deliveries goes by their receipt."""
    later = replace(intake, now=intake.now + timedelta(minutes=10))
    intake.take(pull_request(), "D1")
    later.take(pull_request("synchronize", S2, 5, before=S1), "D2")
    give_up(intake)

    def chosen(wanted: Chosen) -> set[tuple[str, str | None]]:
        found = _replay(intake, wanted, True)
        return {(one.backend, one.delivery_id) for one in found if one.kind == Kind.DISPATCH}

    assert {("org/xpu", "D2"), ("org/npu", "D2")} == chosen(Chosen(("D2",)))
    assert {("org/npu", "D1"), ("org/npu", "D2")} == chosen(Chosen(backend=NPU.repo))
    read = intake.store.read_now
    assert ("D1", "D2") == read(lambda conn: replaying.between(conn, "D2", "D1"))
    assert ("D1",) == read(lambda conn: replaying.between(conn, "D1", "D1"))
    assert read(lambda conn: replaying.between(conn, "D1", "D9")) is None
    assert ("D9",) == read(lambda conn: replaying.unknown(conn, ["D1", "D9"]))


def test_dead_letters_are_chosen_by_when_they_were_given_up(intake: Intake) -> None:
    """Since and until are both inclusive: an outage has a beginning and an end."""
    intake.take(pull_request(), "D1")
    claimed = intake.store.write_now(lambda conn: outbox.claim(conn, owner="w", count=9, now=intake.now))
    ends = [outbox.Ended(one, "dead", 0.1, "archived") for one in claimed if one.kind is Kind.DISPATCH]
    intake.store.write_now(lambda conn: outbox.finish(conn, ends, owner="w", now=intake.now))
    second = timedelta(seconds=1)

    counts = [
        len(_replay(intake, wanted, True))
        for wanted in (
            Chosen(since=intake.now),
            Chosen(since=intake.now + second),
            Chosen(until=intake.now),
            Chosen(until=intake.now - second),
        )
    ]

    assert [2, 0, 2, 0] == counts


def test_a_person_s_request_is_theirs_to_ask_again(intake: Intake) -> None:
    """They were told that it failed; hours later it would come as a surprise. What is ours is simply tried again."""
    intake.take(pull_request(), "D1")
    intake.mark_dispatches("sent")
    intake.mark_effects("done")
    owed = [
        NewEffect(Kind.RERUN, "r", "account org", subject_id=1),
        NewEffect(Kind.OBSERVE, "o", "account org", subject_id=1),
    ]
    intake.store.write_now(lambda conn: outbox.enqueue(conn, owed, intake.now))
    for kind in ("rerun", "observe", "reconcile_check"):
        intake.mark_effects("dead", "suspended", kind)

    found = {one.kind: one.fate for one in _replay(intake, None, False)}

    assert {"rerun": Fate.LEFT, "observe": Fate.REVIVED, "reconcile_check": Fate.REVIVED} == found
    assert ["dead"] == [state for _, state in intake.effects("rerun")]
    assert ["ready"] == [state for _, state in intake.effects("observe")]


def test_again_tells_anew_whom_a_delivery_told_once_their_answer_is_in(intake: Intake) -> None:
    """By a dispatch of its own, audited; one whose answer is still due is not doubled."""
    intake.take(pull_request(), "D1")
    intake.mark_effects("done")
    intake.mark_dispatches("sent", "failure")
    asking = Asking("ada: the pool was full", "D1")

    def again() -> list[tuple[str, bool]]:
        made = intake.store.write_now(
            lambda conn: tell_again(
                conn, "D1", XPU.repo, asking=asking, fresh_ids=["F1"], listed=LISTED, terms=TERMS, now=intake.now
            )
        )
        return [(one.backend, one.dispatch_id is not None) for one in made]

    assert [("org/xpu", True)] == again()
    assert [("org/xpu", False)] == again()

    assert [("sent", "failure", "D1"), ("planned", "queued", "F1")] == [
        row[1:] for row in intake.dispatches("backend", "state", "outcome", "delivery_id") if row[0] == "org/xpu"
    ]
    audit = intake.rows(Audit.__table__, "who", "what", "subject")  # type: ignore[attr-defined]
    assert ("ada", "delivery replayed again", "D1 to org/xpu") in audit
