"""What a merge queue's events mean, and how groups hang together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allowlist.model import Allowlist, Entry, Level, RepoName
from relay.deciding.events import MergeGroupEvent, parse
from relay.deciding.plan import Decision, HeadState
from relay.deciding.plan_queue import (
    GroupPlan,
    KnownGroup,
    KnownTold,
    Link,
    groups_above,
    numbers_in,
    plan_group,
    pull_number,
)
from tests.relay.bodies import GROUP_1, SHA_2, UPSTREAM, merge_group

ASKS = Entry(RepoName("org", "asks"), Level.L4, events=frozenset({"pull_request", "merge_group"}))
ASKS_L2 = replace(ASKS, repo=RepoName("org", "curious"), level=Level.L2)
RELIES = Entry(RepoName("org", "relies"), Level.L4)
RELEASES = replace(ASKS, repo=RepoName("org", "releases"), base=("release/*",))


def event(action: str = "checks_requested", reason: str = "") -> MergeGroupEvent:
    """The group of pull request 7."""
    found = parse("merge_group", merge_group(action, **({"reason": reason} if reason else {})), UPSTREAM)
    assert isinstance(found, MergeGroupEvent)
    return found


def planned(what: MergeGroupEvent, *entries: Entry, known: KnownGroup | None = None) -> GroupPlan:
    """The plan for an event."""
    return plan_group(what, delivery_id="D", allowlist=Allowlist(entries), known=known or KnownGroup())


def test_a_group_is_read_whole() -> None:
    """The branch has its short name, as pull requests have it."""
    wanted = MergeGroupEvent(
        action="checks_requested",
        reason="",
        head_sha=GROUP_1,
        head_ref=f"refs/heads/gh-readonly-queue/main/pr-7-{SHA_2}",
        base_ref="main",
        base_sha=SHA_2,
        message="Merge pull request #7",
        sender="github-merge-queue[bot]",
    )

    assert wanted == event()
    assert replace(wanted, action="destroyed", reason="merged") == event("destroyed", "merged")


def test_only_who_asks_for_groups_is_told() -> None:
    """Whatever the level: the event is sent to entries that name it and to no other."""
    found = planned(event(), ASKS, ASKS_L2, RELIES, RELEASES)

    assert [("org/asks", "merge_group", "D", "planned"), ("org/curious", "merge_group", "D", "planned")] == [
        (str(told.entry.repo), told.event_type, told.payload_delivery, told.state) for told in found.dispatches
    ]
    assert [
        ("dispatch", "org/asks", "wanted"),
        ("dispatch", "org/curious", "wanted"),
        ("none", "org/relies", "filtered_events"),
        ("none", "org/releases", "filtered_base"),
        ("check", "", "gate"),
    ] == [(one.effect, one.backend, one.reason) for one in found.decisions]


def test_a_paused_backend_is_not_told_and_still_has_a_row() -> None:
    """The gate steps down for it, and says why."""
    known = KnownGroup(paused={ASKS.repo: "no machines"})

    (told,) = planned(event(), ASKS, known=known).dispatches

    assert ("paused", Decision("none", "org/asks", "paused", "no machines")) == (told.state, told.decision)


@pytest.mark.parametrize(("state", "tells"), [("planned", 0), ("sent", 0), ("dead", 1), ("superseded", 1)])
def test_a_group_is_dispatched_once(state: str, tells: int) -> None:
    """A second request for the same commit finds the first one's dispatch."""
    known = KnownGroup("open", (KnownTold(1, ASKS.repo, state),))

    assert tells == len(planned(event(), ASKS, known=known).dispatches)


def test_a_destroyed_group_takes_back_what_nobody_has_heard_of() -> None:
    """What was sent stands, and its results are still taken."""
    told = tuple(KnownTold(i, ASKS.repo, state) for i, state in enumerate(("planned", "sent", "paused", "dead"), 1))

    found = planned(event("destroyed"), ASKS, known=KnownGroup("open", told))

    assert (HeadState.CLOSED, (1, 3), ()) == (found.head_state, found.superseded_dispatches, found.dispatches)
    assert (Decision("check", "", "gate_closed"),) == found.decisions


def test_a_request_that_comes_after_its_group_is_gone_asks_nothing() -> None:
    """Webhooks come in any order; nobody would read the answer."""
    found = planned(event(), ASKS, RELIES, known=KnownGroup("closed"))

    assert (HeadState.CLOSED, ()) == (found.head_state, found.dispatches)
    assert ["group_gone", "group_gone", "gate_closed"] == [one.reason for one in found.decisions]


@pytest.mark.parametrize(
    ("ref", "number"),
    [
        (f"refs/heads/gh-readonly-queue/main/pr-7-{SHA_2}", 7),
        (f"gh-readonly-queue/release/2.9/pr-123456-{SHA_2}", 123456),
        (f"refs/heads/gh-readonly-queue/main/pr-7-{'f' * 64}", 7),
        (f"refs/heads/gh-readonly-queue/pr-1-{SHA_2}/pr-2-{SHA_2}", 2),
        (f"refs/heads/gh-readonly-queue/main/pr-0-{SHA_2}", None),
        (f"refs/heads/gh-readonly-queue/main/pr-9999999999-{SHA_2}", None),
        (f"refs/heads/gh-readonly-queue/main/pr-٧-{SHA_2}", None),
        (f"refs/heads/queue/main/pr-7-{SHA_2}", None),
        ("refs/heads/gh-readonly-queue/main/pr-7-abc", None),
        (f"refs/heads/gh-readonly-queue/main/pr-7-{SHA_2}\n", None),
        ("", None),
    ],
)
def test_the_queue_s_branch_names_its_pull_request(ref: str, number: int | None) -> None:
    """Its form is GitHub's; what does not have it names nobody, and the group has a gate all the same."""
    assert number == pull_number(ref)


def chain(*links: tuple[str, str, int | None]) -> dict[str, Link]:
    """Groups by head: head, what it was built on, pull request."""
    return {head: Link(head, base, number) for head, base, number in links}


def test_a_group_contains_what_it_was_built_on() -> None:
    """Where only the last group of a chain must pass, it speaks for all of them."""
    groups = chain(("g1", "main", 1), ("g2", "g1", 2), ("g3", "g2", 3), ("x", "main", 9))

    assert ((3, 2, 1), (1,), (9,), ()) == tuple(numbers_in(head, groups) for head in ("g3", "g1", "x", "main"))
    assert ("g2", "g3") == groups_above(["g2"], groups)
    assert ("g1", "g2", "g3", "x") == groups_above(["g1", "x"], groups)


def test_a_group_that_is_over_is_not_followed() -> None:
    """Its pull requests have landed, or the queue builds the rest anew."""
    assert (3,) == numbers_in("g3", chain(("g1", "main", 1), ("g3", "g2", 3)))


_HEADS = st.sampled_from("abcdef")


@given(
    st.dictionaries(_HEADS, st.tuples(_HEADS, st.none() | st.integers(1, 5)), max_size=6),
    _HEADS,
)
def test_any_links_end_and_both_directions_agree(raw: dict[str, tuple[str, int | None]], head: str) -> None:
    """Even links that no git history could have; a group holds a pull request exactly if it is above its group."""
    groups = {key: Link(key, base, number) for key, (base, number) in raw.items()}

    inside = numbers_in(head, groups)

    assert len(set(inside)) == len(inside)
    for number in range(1, 6):
        direct = [link.head_sha for link in groups.values() if link.number == number]
        assert (number in inside) == (head in groups and head in groups_above(direct, groups))
