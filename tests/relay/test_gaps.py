"""Comparing upstream with what is known of it: which events were missed, and who is told of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from allowlist.model import Allowlist, Entry, Level, RepoName
from relay.deciding.events import PullRequestEvent, PushEvent
from relay.deciding.gaps import (
    GRACE,
    Cause,
    Rules,
    SeenHead,
    SeenRef,
    branches_to_look_at,
    compare_branch,
    compare_groups,
    compare_pull,
)
from relay.github.listed import BranchHead, PullListed, RefHead
from relay.github.observed import PullObserved

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
UP = RepoName("up", "stream")
NPU, XPU = Entry(RepoName("org", "npu"), Level.L4), Entry(RepoName("org", "xpu"), Level.L2)
S1, S2 = "1" * 40, "2" * 40
RULES = Rules(
    UP, Allowlist((NPU, XPU), digest="d"), {NPU.repo: NOW - 9 * HOUR, XPU.repo: NOW - 9 * HOUR}, NOW - 8 * HOUR
)


def pull(sha: str = S1, state: str = "open", at: datetime = NOW - HOUR, **more: object) -> PullListed:
    """A pull request as GitHub lists it."""
    shown = PullObserved(
        number=5,
        state=state,
        title="A title",
        head_sha=sha,
        base_ref="main",
        base_sha="b" * 40,
        labels=(),
        author="ada",
        author_association="MEMBER",
        draft=False,
        merged=False,
        html_url="https://github.com/up/stream/pull/5",
        created_at=at,
        updated_at=at,
    )
    return PullListed(replace(shown, **more), "branch", "ada/stream", None, None, merged=False)  # type: ignore[arg-type]


def head(sha: str = S1, state: str = "open", at: datetime = NOW - 2 * HOUR, **more: object) -> SeenHead:
    """A head as the store has it: told to both backends."""
    told = frozenset({NPU.repo, XPU.repo})
    return replace(SeenHead(sha, state, (), "main", at, at, "opened", told), **more)  # type: ignore[arg-type]


CASES = [
    pytest.param(pull(), [], Cause.NEVER_DELIVERED, ["opened"], 2, id="never heard of"),
    pytest.param(pull(S2), [head()], Cause.NEVER_DELIVERED, ["synchronize"], 2, id="moved"),
    pytest.param(pull(), [head(state="closed")], Cause.NEVER_DELIVERED, ["reopened"], 0, id="reopened, was told"),
    pytest.param(pull(state="closed"), [head()], Cause.CLOSED_MISSED, ["closed"], 2, id="closed"),
    pytest.param(pull(labels=("a", "b")), [head()], Cause.CHANGE_MISSED, ["labeled", "labeled"], 0, id="labels on"),
    pytest.param(pull(), [head(labels=("a",))], Cause.CHANGE_MISSED, ["unlabeled"], 0, id="a label off"),
    pytest.param(pull(base_ref="next"), [head()], Cause.CHANGE_MISSED, ["edited"], 0, id="another base"),
    pytest.param(pull(), [head(told=frozenset())], Cause.NOT_DISPATCHED, ["opened"], 2, id="nobody was told"),
    pytest.param(
        pull(), [head(told=frozenset({NPU.repo}))], Cause.NOT_DISPATCHED, ["opened"], 1, id="one was not told"
    ),
    pytest.param(pull(at=NOW - 8 * HOUR), [], Cause.FIRST_START, ["opened"], 0, id="open before the first look"),
]


@pytest.mark.parametrize(("shown", "known", "cause", "actions", "told"), CASES)
def test_what_differs_is_the_event_that_was_missed(
    shown: PullListed, known: list[SeenHead], cause: Cause, actions: list[str], told: int
) -> None:
    """Each difference is closed by the webhook that would have told of it, and by no other."""
    missed = compare_pull(shown, known, RULES, NOW)

    assert missed is not None
    assert cause is missed.cause
    assert actions == [step.event.action for step in missed.steps if isinstance(step.event, PullRequestEvent)]
    assert told == len(missed.backends())


NOTHING = [
    pytest.param(pull(), [head()], id="as we know it"),
    pytest.param(pull(S2, at=NOW - GRACE / 2), [head()], id="its webhook may be on its way"),
    pytest.param(pull(S2), [head(at=NOW - HOUR / 2)], id="we know something newer"),
    pytest.param(pull(state="closed"), [], id="opened and closed unheard of"),
    pytest.param(pull(state="closed"), [head(state="closed")], id="closed, as we know"),
    pytest.param(pull(), [head(told=frozenset(), at=NOW - 8 * HOUR - GRACE)], id="noted at the first look"),
]


@pytest.mark.parametrize(("shown", "known"), NOTHING)
def test_nothing_is_missed_where_nothing_differs(shown: PullListed, known: list[SeenHead]) -> None:
    """Nor while the news may still come by itself."""
    assert compare_pull(shown, known, RULES, NOW) is None


def test_who_asks_since_later_is_not_told_of_earlier_heads() -> None:
    """A new entry begins with what is updated after it took effect, whether the head was known or not."""
    rules = replace(RULES, since={NPU.repo: NOW - 9 * HOUR, XPU.repo: NOW - HOUR / 2})

    unheard = compare_pull(pull(), [], rules, NOW)
    known = compare_pull(pull(), [head(told=frozenset({NPU.repo}))], rules, NOW)

    assert unheard is not None
    assert (NPU.repo,) == unheard.backends()
    assert "d" == unheard.steps[0].allowlist.digest
    assert [(XPU.repo, "entry_newer")] == [one[:2] for one in unheard.steps[0].allowlist.left_out]
    assert known is None


def test_a_missed_event_comes_after_its_second_and_before_the_next() -> None:
    """So that the webhook itself, should it come late, finds its news known, and the next push does not."""
    missed = compare_pull(pull(), [], RULES, NOW)

    assert missed is not None
    event = missed.steps[0].event
    assert isinstance(event, PullRequestEvent)
    assert timedelta() < (event.updated_at or NOW) - (NOW - HOUR) < timedelta(seconds=1)


def branch(sha: str, at: datetime | None = NOW - HOUR) -> BranchHead:
    """A branch as GitHub shows it."""
    return BranchHead(sha, "A message", "ada", at, None)


def test_a_branch_that_moved_unheard_is_a_push() -> None:
    """From what we knew to where it is; nothing where it is what we knew, moved just now, or did not move for long."""
    ref = "refs/heads/main"
    missed = compare_branch(ref, branch(S2), SeenRef(S1, NOW - 2 * HOUR), RULES, NOW)

    assert missed is not None
    event = missed.steps[0].event
    assert isinstance(event, PushEvent)
    assert (Cause.PUSH_MISSED, S1, S2, ref) == (missed.cause, event.before, event.after, event.ref)
    assert (NPU.repo, XPU.repo) == missed.backends()
    assert compare_branch(ref, branch(S1), SeenRef(S1, NOW - 2 * HOUR), RULES, NOW) is None
    assert compare_branch(ref, branch(S2), SeenRef(S1, NOW), RULES, NOW) is None
    assert compare_branch(ref, branch(S2, NOW - timedelta(days=8)), None, RULES, NOW) is None
    first = compare_branch(ref, branch(S2), None, replace(RULES, began_at=None), NOW)
    assert first is not None
    assert (Cause.FIRST_START, ()) == (first.cause, first.backends())


def test_merge_groups_differ_both_ways() -> None:
    """One that we were not asked about, one that is over; one whose ref cannot be read is left alone."""
    there = RefHead(f"refs/heads/gh-readonly-queue/main/pr-5-{'b' * 40}", S1)
    odd = RefHead("refs/heads/gh-readonly-queue/odd", "3" * 40)
    gone = {S2: f"refs/heads/gh-readonly-queue/release/1.0/pr-6-{'c' * 40}"}

    missed = compare_groups([there, odd], frozenset(), gone, RULES, NOW)

    assert [(Cause.GROUP_MISSED, S1), (Cause.GROUP_GONE, S2)] == [(one.cause, one.head_sha) for one in missed]
    assert [] == compare_groups([there], frozenset({S1}), {}, RULES, NOW)


def test_the_branches_that_somebody_wants_are_looked_at() -> None:
    """The default one, those that entries name, those pushed to; not the queue's, not those nobody asks for."""
    only = (replace(NPU, refs=("refs/heads/main", "refs/heads/release/2", "refs/heads/x/*")),)
    seen = ("refs/heads/x/1", "refs/heads/gh-readonly-queue/main/pr-1-0", "refs/heads/y", "refs/tags/t")

    assert ("refs/heads/main", "refs/heads/release/2", "refs/heads/x/1") == branches_to_look_at("main", seen, only)
    assert () == branches_to_look_at("main", seen, ())
    assert ("refs/heads/main",) == branches_to_look_at("main", seen, only, 1)
