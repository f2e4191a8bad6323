"""A merge queue waits for the gate of a temporary commit, and drops a pull request that gets none."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from relay.simulator import (
    Backend,
    CheckRun,
    JobPlan,
    Listener,
    MergeGroup,
    Mode,
    PullRequest,
    Reports,
    Run,
    wait_until,
)
from tests.stories.world import UPSTREAM, World

BY_HAND = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
GATE = "crcr/gate"
OWN = "crcr/org/backend"
#: A queue's branch is pushed as well, and an entry hears of all pushes unless it says which.
REFS = ["refs/heads/main"]
ASKS: dict[str, Any] = {"events": ["pull_request", "merge_group"], "refs": REFS}
RELIES: dict[str, Any] = {"events": ["pull_request"], "refs": REFS}


def report(backend: Backend, run: Run, conclusion: str) -> None:
    """Start and finish the run's one job."""
    backend.callback(run, "in_progress", job="test")
    backend.callback(run, "completed", conclusion, "test")


def reviewed(world: World, conclusion: str | None = "success", **entry: Any) -> tuple[Backend, PullRequest, Run]:
    """An L4 backend that gave its verdict on a pull request, or has yet to give it (None)."""
    backend = world.backend("org/backend", "L4", BY_HAND, **entry)
    world.start()
    world.up.require(GATE, world.app.id)
    pr = world.up.open_pull_request()
    (run,) = backend.wait_for_runs()
    if conclusion is not None:
        report(backend, run, conclusion)
    gate_shows(world, pr.head_sha, {"success": "success", "failure": "failure", None: None}[conclusion])
    return backend, pr, run


def gate_shows(world: World, sha: str, conclusion: str | None, name: str = GATE) -> CheckRun:
    """The check, once it shows this; None waits until it is open."""
    wait_until(
        lambda: (found := world.up.checks(sha).get(name)) is not None and found.conclusion == conclusion,
        what=f"{name} ({conclusion or 'open'}) on {sha[:7]}",
    )
    return world.up.checks(sha)[name]


def test_a_backend_that_asks_for_groups_decides_them(each_world: World) -> None:
    """It is told of the group's commit within seconds and owes an answer; the queue takes the gate's word."""
    world = each_world
    backend, pr, _ = reviewed(world, **ASKS)

    group = world.up.add_to_merge_queue(pr)
    run = backend.wait_for_runs(2)[-1]
    waiting = gate_shows(world, group.head_sha, None)
    box = world.up.required_status(group)
    report(backend, run, "success")
    passed = gate_shows(world, group.head_sha, "success")

    payload = run.client_payload
    assert "merge_group" == payload["event_type"]
    wanted = {key: getattr(group, key) for key in ("head_sha", "head_ref", "base_sha", "base_ref")}
    assert wanted == payload["payload"]["merge_group"]
    told = payload["relay"]["change"]
    assert ("merge_group", group.head_sha, "main", group.base_sha) == tuple(
        told[key] for key in ("kind", "head_sha", "base_ref", "base_sha")
    )
    assert (False, {GATE: "pending"}) == (box.mergeable, box.contexts)
    assert world.up.required_status(group).mergeable
    assert waiting.id == passed.id
    assert "success" == gate_shows(world, group.head_sha, "success", OWN).conclusion


def test_a_backend_that_fails_a_group_keeps_it_out(world: World) -> None:
    """What passed alone may fail together with what landed meanwhile: that is what a queue is for."""
    backend, pr, _ = reviewed(world, **ASKS)

    group = world.up.add_to_merge_queue(pr)
    report(backend, backend.wait_for_runs(2)[-1], "failure")
    gate_shows(world, group.head_sha, "failure")

    assert not world.up.required_status(group).mergeable
    assert world.up.required_status(pr).mergeable


@pytest.mark.parametrize(("verdict", "box"), [("success", True), ("failure", False), (None, False)])
def test_of_a_backend_that_does_not_ask_the_pull_request_s_verdict_stands(
    world: World, verdict: str | None, box: bool
) -> None:
    """It is told nothing more, and what it said of the pull request counts for the group, whatever it was."""
    backend, pr, _ = reviewed(world, verdict, **RELIES)

    group = world.up.add_to_merge_queue(pr)
    shown = gate_shows(world, group.head_sha, verdict)
    world.idle()

    assert box == world.up.required_status(group).mergeable
    assert f"Its verdict on pull request {pr.number} stands." in (shown.summary or "")
    assert 1 == len(backend.runs)
    assert {GATE} == world.up.checks(group.head_sha).keys()


def test_a_verdict_that_changes_changes_the_group_s_gate(each_world: World) -> None:
    """The group hangs on its pull request as long as it waits."""
    world = each_world
    backend, pr, run = reviewed(world, None, **RELIES)
    group = world.up.add_to_merge_queue(pr)
    gate_shows(world, group.head_sha, None)

    report(backend, run, "success")

    gate_shows(world, group.head_sha, "success")
    assert world.up.required_status(group).mergeable


def test_nobody_to_ask_is_success_at_once(world: World) -> None:
    """A queue must never wait for a check that does not come, not even where no backend can block."""
    world.backend("org/backend", "L2", BY_HAND, **RELIES)
    world.start()
    world.up.require(GATE, world.app.id)

    group = world.up.add_to_merge_queue(world.up.open_pull_request())

    gate_shows(world, group.head_sha, "success")
    assert world.up.required_status(group).mergeable


def two_groups(world: World, **entry: Any) -> tuple[Backend, list[Run], MergeGroup, MergeGroup]:
    """Two pull requests in the queue, the second group built on the first; both verdicts are still owed."""
    backend, first, _ = reviewed(world, None, **entry)
    second = world.up.open_pull_request()
    backend.wait_for_runs(2)
    one = world.up.add_to_merge_queue(first)
    two = world.up.add_to_merge_queue(second, on=one)
    gate_shows(world, one.head_sha, None)
    gate_shows(world, two.head_sha, None)
    runs = sorted(backend.runs, key=lambda run: run.client_payload["relay"]["change"]["number"])
    return backend, runs, one, two


def test_a_group_of_two_needs_both_verdicts(world: World) -> None:
    """Where only the last group of a chain must pass, it speaks for every pull request in it."""
    backend, runs, one, two = two_groups(world, **RELIES)

    report(backend, runs[1], "success")
    world.idle()
    still = (world.up.checks(one.head_sha)[GATE].conclusion, world.up.checks(two.head_sha)[GATE].conclusion)
    report(backend, runs[0], "failure")
    gate_shows(world, one.head_sha, "failure")
    shown = gate_shows(world, two.head_sha, "failure")

    assert (None, None) == still
    for run in runs:
        assert f"pull request {run.client_payload['relay']['change']['number']} stands" in (shown.summary or "")


def test_what_left_the_queue_binds_the_groups_behind_it_no_more(world: World) -> None:
    """The first was merged: its pull request is part of the branch now, and no part of the second group."""
    backend, runs, one, two = two_groups(world, **RELIES)
    report(backend, runs[1], "success")

    world.up.destroy_merge_group(one, "merged")

    gate_shows(world, two.head_sha, "success")
    gate_shows(world, one.head_sha, "cancelled")


def test_a_destroyed_group_waits_for_nobody(each_world: World) -> None:
    """Its open checks end as cancelled, so that nothing stays open on a commit that is gone."""
    world = each_world
    backend, pr, _ = reviewed(world, **ASKS)
    group = world.up.add_to_merge_queue(pr)
    run = backend.wait_for_runs(2)[-1]
    gate_shows(world, group.head_sha, None, OWN)

    world.up.destroy_merge_group(group, "dequeued")
    ended = gate_shows(world, group.head_sha, "cancelled")
    gate_shows(world, group.head_sha, "cancelled", OWN)
    report(backend, run, "success")
    world.idle()

    assert "merge group is gone" in (ended.title or "")
    assert "cancelled" == world.up.checks(group.head_sha)[GATE].conclusion
    assert ["success"] == [outcome for _, _, outcome in world.combinations(run)]
    assert "success" == world.up.checks(pr.head_sha)[GATE].conclusion


@pytest.mark.parametrize(("started", "gate"), [(False, "neutral"), (True, "failure")])
def test_the_queue_gets_its_answer_in_time(world: World, started: bool, gate: str) -> None:
    """After 50 minutes in all, though the backend has hours: silence steps down, what still runs blocks."""
    backend, pr, _ = reviewed(world, **ASKS)
    group = world.up.add_to_merge_queue(pr)
    run = backend.wait_for_runs(2)[-1]
    if started:
        backend.callback(run, "in_progress", job="test")
    gate_shows(world, group.head_sha, None)

    world.pass_time(timedelta(minutes=48))
    world.idle()
    before = world.up.checks(group.head_sha)[GATE].conclusion
    world.pass_time(timedelta(minutes=3))
    gate_shows(world, group.head_sha, gate)
    report(backend, run, "success")

    assert before is None
    # The truth still replaces what we concluded, for as long as the group is there.
    gate_shows(world, group.head_sha, "success")


def test_a_pull_request_s_pending_verdict_holds_a_group_no_longer_than_that(world: World) -> None:
    """The pull request itself may wait on for hours; its group may not."""
    world.given["merge_group_minutes"] = 10
    backend, pr, run = reviewed(world, None, **RELIES)
    group = world.up.add_to_merge_queue(pr)
    gate_shows(world, group.head_sha, None)

    world.pass_time(timedelta(minutes=11))
    gate_shows(world, group.head_sha, "neutral")
    pending = world.up.checks(pr.head_sha)[GATE].conclusion
    report(backend, run, "failure")
    gate_shows(world, group.head_sha, "failure")

    assert pending is None


def test_a_group_that_is_gone_before_it_was_asked_for_is_not_tested(world: World) -> None:
    """Webhooks come in any order: a request that comes last starts nothing and leaves nothing open."""
    backend, pr, _ = reviewed(world, **ASKS)
    body = {
        "merge_group": {
            "head_sha": "c" * 40,
            "head_ref": f"refs/heads/gh-readonly-queue/main/pr-{pr.number}-{'b' * 40}",
            "base_sha": "b" * 40,
            "base_ref": "refs/heads/main",
        },
        "repository": {"full_name": UPSTREAM},
        "sender": {"login": "queue"},
    }

    gone = world.post("merge_group", {"action": "destroyed", "reason": "dequeued", **body})
    late = world.post("merge_group", {"action": "checks_requested", **body})
    world.idle()

    assert (202, 202) == (gone.status, late.status)
    assert ["group_gone", "gate_closed"] == [one["reason"] for one in late.json["planned"]]
    assert 1 == len(backend.runs)
    assert {} == world.up.checks("c" * 40)


@pytest.mark.parametrize("entry", [ASKS, RELIES], ids=["asks", "relies"])
def test_who_answered_for_a_backend_on_the_pull_request_did_so_for_its_group(
    world: World, entry: dict[str, Any]
) -> None:
    """Nobody should have to say it twice, and the gate says in whose name it stepped down."""
    backend, pr, _ = reviewed(world, "failure", **entry)
    world.up.set_role("writer", "write")
    world.up.comment(pr, "writer", "/crcr override org/backend the machine is on fire")
    gate_shows(world, pr.head_sha, "neutral")

    group = world.up.add_to_merge_queue(pr)
    if entry is ASKS:
        report(backend, backend.wait_for_runs(2)[-1], "failure")
    shown = gate_shows(world, group.head_sha, "neutral")

    assert world.up.required_status(group).mergeable
    assert "writer" in (shown.title or "")
    assert "the machine is on fire" in (shown.summary or "")


def test_an_answer_for_one_pull_request_is_none_for_the_others_in_its_group(world: World) -> None:
    """The second fails on its own account, and the person who looked at the first never saw it."""
    backend, runs, one, two = two_groups(world, **RELIES)
    world.up.set_role("writer", "write")
    for run in runs:
        report(backend, run, "failure")
    gate_shows(world, two.head_sha, "failure")

    world.up.comment(world.up.pull_request(1), "writer", "/crcr override org/backend seen that before")
    gate_shows(world, one.head_sha, "neutral")
    world.idle()

    assert "failure" == world.up.checks(two.head_sha)[GATE].conclusion
