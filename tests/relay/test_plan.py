"""What follows from an event: table by table, with everything the store might know spelled out."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from allowlist.model import Entry, Level, RepoName
from relay.deciding.events import PullRequestEvent
from relay.deciding.known import Known, KnownHead
from relay.deciding.plan import LIVE, UNSENT, Decision, HeadState, Purpose
from tests.relay.planning import (
    EVERY,
    NPU,
    PATHS,
    PICKY,
    S1,
    S2,
    S3,
    XPU,
    head,
    planned,
    pull_request,
    reasons,
    told,
    told_of,
)


def test_everyone_listed_is_told_or_has_a_reason() -> None:
    """Every entry gets a decision, and the decision is the same that is written down."""
    nightly = Entry(RepoName("org", "nightly"), Level.L2, events=frozenset({"nightly"}))

    found = planned(pull_request(), XPU, nightly, PATHS, PICKY)

    assert [
        Decision("dispatch", "org/xpu", "wanted"),
        Decision(
            "none", "org/nightly", "filtered_events", "entry wants events [nightly], this is pull_request"
        ),  # CASES 12
        Decision("decide_paths", "org/paths", "pending_paths"),
        Decision("none", "org/picky", "filtered_labels", "entry wants labels [test me], this carries []"),
        Decision("check", "", "gate"),
    ] == list(found.decisions)
    assert [("xpu", "test", "planned"), ("paths", "test", "pending_paths")] == told_of(found)


def test_a_webhooks_own_dispatch_carries_its_delivery_and_payload() -> None:
    """Listeners name their runs by the delivery id that GitHub gave."""
    (made,) = planned(pull_request(), XPU, delivery_id="D1").dispatches

    assert ("pull_request", "D1", "D1", "wanted", timedelta()) == (
        made.event_type,
        made.delivery_id,
        made.payload_delivery,
        made.reason,
        made.delay,
    )


def test_the_same_facts_make_the_same_plan() -> None:
    """A plan is a value: it can be compared, printed and replayed."""
    first, second = (planned(pull_request("synchronize", S2, 1), XPU, known=Known((head(),))) for _ in range(2))

    assert first == second
    assert "org" in repr(first)


@pytest.mark.parametrize(
    ("action", "purpose"),
    [
        ("opened", "test"),
        ("reopened", "test"),
        ("synchronize", "test"),
        ("edited", "test"),
        ("ready_for_review", "test"),
        ("closed", "notify"),
        ("labeled", "notify"),
        ("unlabeled", "notify"),
    ],
)
def test_some_actions_start_tests_and_others_only_tell(action: str, purpose: str) -> None:
    """Only what puts something new under test owes results."""
    all_actions = replace(XPU, actions=frozenset({action}))

    assert [("xpu", purpose, "planned")] == told_of(planned(pull_request(action, label="other"), all_actions))


def test_a_paused_backend_is_not_called_and_its_check_says_why() -> None:
    """The row is there, so that the gate can step down loudly."""
    known = Known(paused={XPU.repo: "cluster moves house"})

    found = planned(pull_request(), XPU, known=known)

    assert [("xpu", "test", "paused")] == told_of(found)
    assert Decision("none", "org/xpu", "paused", "cluster moves house") == found.decisions[0]


def test_a_new_head_takes_the_place_of_the_old_one() -> None:
    """What no backend has heard of is taken back, but for entries that want every commit. CASES 10, 32."""
    known = Known(
        (head(S1),),
        (
            told(XPU, state="planned", number=1),
            told(EVERY, state="planned", number=2),
            told(NPU, state="sent", number=3),
        ),
    )

    found = planned(pull_request("synchronize", S2, 1, before=S1), XPU, EVERY, NPU, known=known)

    assert ((1,), (1,), "newer_head") == (
        found.superseded_heads,
        found.superseded_dispatches,
        found.superseded_reason,
    )
    assert (HeadState.OPEN, True, True) == (found.head_state, found.newest, found.describes)
    assert ["wanted"] * 3 == reasons(found)


@pytest.mark.parametrize("state", sorted(UNSENT))
def test_every_unsent_state_can_be_superseded(state: str) -> None:
    """Paused and undecided dispatches of an old head wait for nothing any more, either."""
    known = Known((head(S1),), (told(XPU, state=state),))

    assert (100,) == planned(pull_request("synchronize", S2, 1), XPU, known=known).superseded_dispatches


def test_an_old_event_never_supersedes_a_newer_head() -> None:
    """GitHub promises no order, so a late webhook is history and not news."""
    known = Known((head(S2, 5),), (told(XPU, S2, "planned"),))

    found = planned(pull_request("opened", S1, 1), XPU, EVERY, known=known)

    assert ((), (), HeadState.SUPERSEDED) == (
        found.superseded_heads,
        found.superseded_dispatches,
        found.head_state,
    )
    assert ["older_event", "every_commit"] == reasons(found)
    assert [("every", "test", "planned")] == told_of(found)


@pytest.mark.parametrize(
    ("event", "known_head", "state"),
    [
        (pull_request("synchronize", S2, 0, before=S1), head(S1, 0), HeadState.OPEN),
        (pull_request("synchronize", S1, 0, before=S3), head(S2, 0, came_from=S1), HeadState.SUPERSEDED),
        (pull_request("opened", S1, 0), head(S2, 0), HeadState.SUPERSEDED),
        # No link at all: then arrival decides, since nothing else can.
        (pull_request("synchronize", S2, 0, before=S3), head(S1, 0), HeadState.OPEN),
    ],
)
def test_links_order_heads_that_share_a_second(
    event: PullRequestEvent, known_head: KnownHead, state: HeadState
) -> None:
    """GitHub's times count whole seconds, and a bot pushes twice in one."""
    assert state == planned(event, XPU, known=Known((known_head,))).head_state


def test_without_github_s_time_ours_orders_the_heads() -> None:
    """An event that names no time counts as of its receipt."""
    event = pull_request("synchronize", S2, updated_at=None)

    assert HeadState.OPEN == planned(event, XPU, known=Known((head(S1, 59),))).head_state
    assert HeadState.SUPERSEDED == planned(event, XPU, known=Known((head(S1, 61),))).head_state


def test_an_opened_that_comes_after_its_label_is_dispatched() -> None:
    """Only the facts of the head are older; the webhook is still owed to whoever wants it."""
    known = Known((head(S1, 5, action="labeled"),))

    found = planned(pull_request("opened", S1, 0), XPU, known=known)

    assert ["wanted"] == reasons(found)
    assert (False, True) == (found.newest, found.describes)


def test_a_head_that_comes_back_is_open_again_and_not_run_twice() -> None:
    """Force-push back and forth: a run that is live or finished stands, one that never went out is made up for."""
    known = Known((head(S1, 0, "superseded"), head(S2, 5)), (told(XPU, S1, "sent"), told(NPU, S1, "superseded")))

    found = planned(pull_request("synchronize", S1, 6, before=S2), XPU, NPU, known=known)

    assert HeadState.OPEN == found.head_state
    assert (2,) == found.superseded_heads
    assert ["already_dispatched", "current_again"] == reasons(found)


@pytest.mark.parametrize(("state", "again"), [*((state, False) for state in sorted(LIVE)), ("dead", True)])
def test_a_live_dispatch_is_not_repeated_for_a_head_that_comes_back(state: str, again: bool) -> None:
    """Live means on its way, running, or finished with whatever result."""
    known = Known((head(S1, 0, "superseded"), head(S2, 5)), (told(XPU, S1, state),))

    assert again == bool(planned(pull_request("synchronize", S1, 6), XPU, known=known).dispatches)


def test_closing_takes_back_what_was_not_sent_and_tells_listeners() -> None:
    """Listeners cancel their runs on it. Entries that want every commit keep theirs."""
    known = Known((head(S1),), (told(XPU, state="planned", number=1), told(EVERY, state="planned", number=2)))

    found = planned(pull_request("closed", S1, 3), XPU, EVERY, known=known)

    assert (HeadState.CLOSED, (1,), "change_closed") == (
        found.head_state,
        found.superseded_dispatches,
        found.superseded_reason,
    )
    assert [("xpu", "notify", "planned"), ("every", "notify", "planned")] == told_of(found)
    assert Decision("check", "", "gate_closed") == found.decisions[-1]


def test_a_late_closed_does_not_reach_a_reopened_pull_request() -> None:
    """It would cancel runs that are wanted."""
    found = planned(pull_request("closed", S1, 1), XPU, known=Known((head(S1, 2),)))

    assert ["older_event"] == reasons(found)
    assert HeadState.OPEN == found.head_state


def test_a_late_opened_does_not_reach_a_closed_pull_request() -> None:
    """Nobody waits for its result, unless the entry wants every commit."""
    found = planned(pull_request("opened", S1, 1), XPU, EVERY, known=Known((head(S1, 2, "closed"),)))

    assert ["older_event", "every_commit"] == reasons(found)
    assert HeadState.CLOSED == found.head_state


def test_reopening_dispatches_anew() -> None:
    """A reopened pull request is the webhook's own dispatch, whatever ran before it was closed."""
    found = planned(
        pull_request("reopened", S1, 5), XPU, known=Known((head(S1, 2, "closed"),), (told(XPU, state="sent"),))
    )

    assert (HeadState.OPEN, ["wanted"]) == (found.head_state, reasons(found))


@pytest.mark.parametrize("action", ["labeled", "unlabeled", "edited"])
def test_what_happens_to_a_closed_pull_request_does_not_open_it(action: str) -> None:
    """A merge bot puts its label on after it has closed."""
    wants_all = replace(XPU, actions=frozenset({"labeled", "unlabeled", "edited"}))
    event = pull_request(action, S1, 5, closed=True, label="Merged")

    found = planned(event, wants_all, known=Known((head(S1, 2, "closed"),)))

    assert HeadState.CLOSED == found.head_state
    assert all(made.purpose is Purpose.NOTIFY for made in found.dispatches)
