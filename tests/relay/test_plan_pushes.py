"""One commit under several names is dispatched once, under the best of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from relay.deciding.known import Elsewhere, Known
from relay.deciding.plan import TAG_GRACE, Decision, HeadState, thread_of
from tests.relay.planning import (
    EVERY,
    NPU,
    S1,
    S2,
    S3,
    XPU,
    head,
    planned,
    pull_request,
    push,
    reasons,
    told,
)

TAG = "refs/tags/ciflow/trunk/1"


def test_a_push_is_told_to_whoever_wants_its_ref() -> None:
    """A push has no actions, labels or base, only a ref."""
    main_only = replace(XPU, refs=("refs/heads/main",))

    assert ["wanted"] == reasons(planned(push(), main_only))
    assert ["filtered_refs"] == reasons(planned(push("refs/heads/dev"), main_only))


def test_a_tag_waits_a_moment_for_its_branch() -> None:
    """CASES 11: the branch has the better claim to the commit. An entry that names tags need not wait."""
    wants_tags = replace(XPU, refs=("refs/tags/**",))

    assert [TAG_GRACE] == [made.delay for made in planned(push(TAG), XPU).dispatches]
    assert [timedelta()] == [made.delay for made in planned(push(TAG), wants_tags).dispatches]
    assert [timedelta()] == [made.delay for made in planned(push(), XPU).dispatches]


@pytest.mark.parametrize("ref", [TAG, "refs/heads/dev"])
def test_one_commit_is_dispatched_once(ref: str) -> None:
    """Whatever other refs point to it; the decision says under which name it was dispatched."""
    known = Known(elsewhere=(Elsewhere(5, XPU.repo, "refs/heads/main", "sent"),))

    found = planned(push(ref), XPU, known=known)

    assert (Decision("none", "org/xpu", "same_commit", "the same commit was dispatched for refs/heads/main"),) == (
        found.decisions
    )


def test_an_entry_that_names_tags_gets_each_of_them() -> None:
    """Once per SHA, unless it wants tags."""
    wants_tags = replace(XPU, refs=("refs/tags/**", "refs/heads/main"))
    known = Known(elsewhere=(Elsewhere(5, XPU.repo, "refs/heads/main", "sent"),))

    assert ["wanted"] == reasons(planned(push(TAG), wants_tags, known=known))


def test_another_backend_s_dispatch_of_the_commit_does_not_count() -> None:
    """Once per SHA means once for each backend."""
    known = Known(elsewhere=(Elsewhere(5, NPU.repo, "refs/heads/main", "sent"),))

    assert ["wanted"] == reasons(planned(push(TAG), XPU, known=known))


def test_a_branch_takes_over_from_a_tag_that_was_not_sent() -> None:
    """If the tag's went out meanwhile, it stands, and the branch is not told of the same commit."""
    known = Known(elsewhere=(Elsewhere(5, XPU.repo, TAG, "planned"),))

    (made,) = planned(push(), XPU, known=known).dispatches

    assert ((5,), Decision("none", "org/xpu", "same_commit", f"the same commit was dispatched for {TAG}")) == (
        made.instead_of,
        made.otherwise,
    )
    assert timedelta() == made.delay


@pytest.mark.parametrize(("ref", "state"), [("refs/heads/main", "sent"), (TAG + "2", "planned")])
def test_only_a_branch_takes_over_and_only_in_time(ref: str, state: str) -> None:
    """A second tag has no better claim than the first."""
    known = Known(elsewhere=(Elsewhere(5, XPU.repo, TAG, state),))

    assert ["same_commit"] == reasons(planned(push(ref), XPU, known=known))


def test_a_newer_push_takes_the_place_of_an_unsent_older_one() -> None:
    """Six pushes to a branch: the last one counts, and every commit where that was asked for."""
    known = Known((head(S1),), (told(XPU, state="planned", number=1), told(EVERY, state="planned", number=2)))

    found = planned(push(after=S2, minutes=1), XPU, EVERY, known=known)

    assert ((1,), (1,)) == (found.superseded_heads, found.superseded_dispatches)


def test_an_older_push_that_comes_late_is_for_those_who_want_every_commit() -> None:
    """The branch has moved on."""
    found = planned(push(after=S1, minutes=0), XPU, EVERY, known=Known((head(S2, 1),)))

    assert ["older_event", "every_commit"] == reasons(found)


def test_pushes_in_one_second_are_ordered_by_their_links() -> None:
    """A push names the commit that the ref pointed to before."""
    assert HeadState.OPEN == planned(push(after=S2, before=S1), XPU, known=Known((head(S1),))).head_state
    late = planned(push(after=S1, before=S3), XPU, known=Known((head(S2, came_from=S1),)))
    assert HeadState.SUPERSEDED == late.head_state


def test_a_branch_that_moves_back_is_not_run_twice() -> None:
    """The commit of this ref has its result, or will have."""
    known = Known((head(S1, 0, "superseded"), head(S2, 1)), (told(XPU, S1, "sent"),))

    assert ["already_dispatched"] == reasons(planned(push(after=S1, before=S2, minutes=2), XPU, known=known))


def test_a_ref_s_name_of_any_length_makes_a_lane() -> None:
    """The lane has a bound in the database, and two long names must not share one."""
    long_name = "refs/heads/" + "x" * 1000
    first, second = thread_of(push(long_name + "1")), thread_of(push(long_name + "2"))

    assert first != second
    assert {300} == {len(first), len(second)}
    assert "push refs/heads/main" == thread_of(push())
    assert thread_of(pull_request()) != thread_of(push("7"))


def test_the_queue_s_branch_is_told_once_to_whoever_hears_of_its_groups() -> None:
    """GitHub pushes the branch and asks for its checks besides; a backend's machines are asked for one of the two."""
    queue = push("refs/heads/gh-readonly-queue/main/pr-1-abc")
    groups = replace(XPU, events=frozenset({"push", "merge_group"}))

    assert ["same_commit"] == reasons(planned(queue, groups))
    assert ["wanted"] == reasons(planned(queue, XPU))
