"""A pull request is closed, or its merge group dropped, while backends still work on it.

Where an entry says so, GitHub is asked to stop them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from relay.simulator import (
    Backend,
    Fault,
    JobPlan,
    Kind,
    Listener,
    Match,
    Mode,
    PullRequest,
    Reports,
    Run,
    wait_until,
)
from tests.stories.world import World

BY_HAND = Listener(jobs=(JobPlan(name="test", duration=600, reports=Reports.SILENT),), mode=Mode.DIRECT)
#: A listener that cancels nothing itself: it does not ask for "closed".
ACTIONS = ["opened", "reopened", "synchronize"]


def running(
    world: World, *, reports: bool = True, permissions: Mapping[str, str] | None = None, **entry: object
) -> tuple[Backend, PullRequest, Run]:
    """One backend with a run under way for one pull request."""
    backend = world.sim.create_backend("org/backend", listener=BY_HAND, permissions=permissions)
    world.allow("org/backend", "L4", actions=ACTIONS, **entry)
    world.start(**world.given)
    pr = world.up.open_pull_request()
    (run,) = backend.wait_for_runs()
    if reports:
        backend.callback(run, "in_progress", job="test")
    world.up.wait_for_check(pr.head_sha, "crcr/gate")
    world.idle()
    return backend, pr, run


def cancels(world: World) -> list[int]:
    """How GitHub answered each time it was asked to cancel."""
    return [request.status for request in world.sim.log.of("POST", "/cancel")]


def test_closing_cancels_what_runs(each_world: World) -> None:
    """Nobody waits for it, and its runner is wanted elsewhere."""
    world = each_world
    _, pr, run = running(world, cancel_on_close=True)

    pr.close()
    wait_until(lambda: run.conclusion == "cancelled", what="a cancelled run")
    world.idle()

    assert [202] == cancels(world)
    assert "cancelled" == world.up.checks(pr.head_sha)["crcr/gate"].conclusion


def test_a_run_that_never_reported_is_found_by_its_name(world: World) -> None:
    """It waits for a runner, or is silent: the delivery's id in its run-name says whose it is."""
    _, pr, run = running(world, reports=False, cancel_on_close=True)

    pr.close()

    wait_until(lambda: run.conclusion == "cancelled", what="a cancelled run")


def test_runs_go_on_where_the_entry_does_not_say_so(world: World) -> None:
    """Cancelling other people's runs is asked for, never assumed."""
    _, pr, run = running(world)

    pr.close()
    world.up.wait_for_check(pr.head_sha, "crcr/gate", conclusion="cancelled")
    world.idle()

    assert [] == cancels(world)
    assert run.conclusion is None


def test_what_ended_is_not_cancelled(world: World) -> None:
    """A pull request is mostly closed when all is done."""
    backend, pr, run = running(world, cancel_on_close=True)
    backend.callback(run, "completed", "success", "test")
    world.up.wait_for_check(pr.head_sha, "crcr/gate", conclusion="success")

    pr.close()
    world.idle()

    assert [] == cancels(world)


def test_a_group_that_is_gone_cancels_what_it_runs_and_nothing_else(each_world: World) -> None:
    """The queue builds a group anew for each change in it; the pull request's own run is awaited still."""
    world = each_world
    backend, pr, first = running(world, cancel_on_close=True, events=["pull_request", "merge_group"])
    backend.callback(first, "completed", "success", "test")
    group = world.up.add_to_merge_queue(pr)
    second = backend.wait_for_runs(2)[-1]
    backend.callback(second, "in_progress", job="test")
    world.idle()

    world.up.destroy_merge_group(group, "invalidated")
    wait_until(lambda: second.conclusion == "cancelled", what="a cancelled run")
    world.idle()

    assert [202] == cancels(world)
    assert "cancelled" != first.conclusion


def test_an_app_that_may_not_cancel_hurts_nobody(world: World) -> None:
    """To write to Actions is optional: the backend's page says what is missing, and nothing is retried for ever."""
    permissions = {"contents": "write", "metadata": "read", "actions": "read"}
    _, pr, run = running(world, permissions=permissions, cancel_on_close=True)

    pr.close()
    world.settled(
        lambda: "not cancelled" in (world.get("/api/v1/backends/org/backend")["backend"]["last_error"] or ""),
        "the reason on the backend's page",
    )
    world.idle()

    assert run.conclusion is None
    assert [] == world.get("/api/v1/dead-letters")["items"]


def test_what_is_being_sent_while_its_pull_request_closes_is_cancelled_too(world: World) -> None:
    """GitHub has started the run and its answer is under way: the closing finds nothing sent yet."""
    backend = world.sim.create_backend("org/backend", listener=BY_HAND)
    world.allow("org/backend", "L4", actions=ACTIONS, cancel_on_close=True)
    world.start(**world.given)
    world.sim.faults.add(Fault(Kind.LATENCY_AFTER, Match("POST", "/dispatches$"), times=1, seconds=1.0))
    pr = world.up.open_pull_request()
    (run,) = backend.wait_for_runs()

    pr.close()
    world.up.wait_for_check(pr.head_sha, "crcr/gate", conclusion="cancelled")
    world.idle()
    world.clock.advance(timedelta(seconds=30))

    wait_until(lambda: run.conclusion == "cancelled", what="a cancelled run")
    assert [202] == cancels(world)
