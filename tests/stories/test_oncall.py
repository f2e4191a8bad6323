"""The word to a backend's on-calls: once for each commit that fails, in one comment, and only where it is theirs."""

from __future__ import annotations

import pytest

from relay.simulator import Fault, JobPlan, Kind, Listener, Match, Mode, PullRequest, wait_until
from tests.stories.asking import FAILS, GATE, all_ours, failed, flaky, say
from tests.stories.world import World


def called(world: World, pr: PullRequest) -> list[str]:
    """What the relay has told on-calls on this pull request."""
    return [body for body in all_ours(world, pr) if "On-call:" in body.split("\n", 3)[1]]


def test_the_first_failure_names_people_tests_and_what_to_do(world: World) -> None:
    """Whoever is called sees at once what failed where, and how to run it again."""
    plan = JobPlan(
        name="test",
        conclusion="failure",
        backend_version="2.9",
        failed_tests=(("suite.Ops", "test_add", "expected 3"),),
    )
    _, pr = failed(world, Listener(jobs=(plan,), mode=Mode.DIRECT), oncalls=["alice", "@bob"])

    (told,) = called(world, pr)

    assert "On-call: @alice, @bob." in told
    assert "`org/backend` (L4) failed on commit" in told
    assert "`2.9`" in told
    assert "`test_add`" in told
    assert "`/crcr rerun org/backend`" in told


def test_a_name_that_is_no_login_is_shown_and_mentions_nobody(world: World) -> None:
    """The allowlist is edited by people; a team's name or a sentence must not call strangers."""
    _, pr = failed(world, oncalls=["org/everyone"])

    (told,) = called(world, pr)

    assert "On-call: `org/everyone`." in told
    assert "@org" not in told


def test_people_are_called_once_for_a_commit_however_often_it_fails(world: World) -> None:
    """A comment that changed with each attempt would be noise."""
    backend, pr = failed(world, FAILS, oncalls=["alice"])
    before = called(world, pr)

    say(world, pr, "triager", "/crcr run org/backend")
    backend.wait_until_done(2)
    world.up.wait_for_check(pr.head_sha, GATE, conclusion="failure")
    world.idle()

    assert 1 == len(before)
    assert before == called(world, pr)


def test_the_next_commit_that_fails_edits_the_same_comment(each_world: World) -> None:
    """One comment for each backend and pull request; its text is about the newest commit that failed."""
    world = each_world
    _, pr = failed(world, FAILS, oncalls=["alice"])
    first = pr.head_sha

    pr.push()
    world.up.wait_for_check(pr.head_sha, GATE, conclusion="failure")
    wait_until(lambda: pr.head_sha[:12] in "".join(called(world, pr)), what="the comment about the newer commit")
    (told,) = called(world, pr)

    assert first[:12] not in told


def test_a_later_success_is_told_in_the_same_comment_and_a_failure_after_it_calls_again(world: World) -> None:
    """Whoever comes to it hours later need not look any further; what had failed is folded away, not lost."""
    backend, pr = failed(world, flaky(), oncalls=["alice"])

    say(world, pr, "triager", "/crcr rerun org/backend")
    world.up.wait_for_check(pr.head_sha, GATE, conclusion="success")
    wait_until(lambda: "passes again" in "".join(called(world, pr)), what="the comment that says so")
    (passing,) = called(world, pr)
    pr.push()
    backend.wait_until_done(2)
    world.up.wait_for_check(pr.head_sha, GATE, conclusion="failure")
    wait_until(lambda: pr.head_sha[:12] in "".join(called(world, pr)), what="the comment about the newer commit")
    (failing,) = called(world, pr)

    assert "`org/backend` (L4) passes again: on commit" in passing.split("\n")[1]
    assert "<summary>What had failed</summary>" in passing
    assert "On-call: @alice." in passing
    assert "passes again" not in failing
    assert "On-call: @alice." in failing.split("\n")[1]


@pytest.mark.parametrize("conclusion", ["skipped", "neutral", "cancelled"])
def test_what_is_no_failure_calls_nobody(world: World, conclusion: str) -> None:
    """A step down is told in the check alone, and a cancelled run was somebody's wish."""
    world.backend("org/backend", "L4", Listener(jobs=(JobPlan(name="t", conclusion=conclusion),), mode=Mode.DIRECT))
    world.start()
    pr = world.up.open_pull_request()
    world.up.wait_for_check(pr.head_sha, "crcr/org/backend", conclusion=conclusion)
    world.idle()

    assert [] == all_ours(world, pr)


def test_l3_calls_only_where_its_label_is(world: World) -> None:
    """Without the label nobody here has asked for that backend."""
    world.backend("org/backend", "L3", FAILS, oncalls=["alice"])
    world.start()
    plain = world.up.open_pull_request()
    labelled = world.up.open_pull_request(labels=["ciflow/crcr/dev1"])
    world.up.wait_for_check(labelled.head_sha, "crcr/org/backend", conclusion="failure")
    wait_until(lambda: bool(called(world, labelled)), what="a comment")
    world.idle()

    assert [] == all_ours(world, plain)
    assert 1 == len(called(world, labelled))


def test_an_answer_that_was_lost_makes_no_second_comment(world: World) -> None:
    """GitHub took the comment and its answer never came: the marker tells that it is there."""
    world.given["retry_scale"] = 0.01
    world.sim.faults.add(Fault(Kind.SERVER_ERROR_AFTER, Match("POST", "/comments$")))
    _, pr = failed(world, FAILS, oncalls=["alice"])
    wait_until(lambda: any("/comments/" in entry.path for entry in world.sim.log), what="the comment found and edited")
    world.idle()

    assert 1 == len(called(world, pr))


def test_a_deleted_comment_is_written_anew_once(world: World) -> None:
    """Somebody may delete it by mistake; whoever deletes it twice means it."""
    backend, pr = failed(world, flaky(), oncalls=["alice"])
    backend.listener = FAILS
    heads = []
    for _ in range(2):
        for comment in world.up.comments(pr):
            del world.up.repository.comments[comment.id]
        pr.push()
        world.up.wait_for_check(pr.head_sha, GATE, conclusion="failure")
        world.idle()
        heads.append(len(called(world, pr)))

    assert [1, 0] == heads
