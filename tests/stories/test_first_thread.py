"""The main job from end to end, as a reviewer and a maintainer see it."""

from __future__ import annotations

from relay.simulator import JobPlan, Listener, Mode
from tests.stories.world import World

GREEN = Listener(jobs=(JobPlan(name="test"),), mode=Mode.DIRECT)
RED = Listener(
    jobs=(JobPlan(name="test", conclusion="failure", failed_tests=(("TestAdd", "test_add", "not close"),)),),
    mode=Mode.DIRECT,
)


def test_a_pull_request_reaches_everyone_and_only_l4_shows_unasked(each_world: World) -> None:
    """All levels are told; a check appears for a backend that may block, and for the gate."""
    world = each_world
    everyone = [world.backend(f"org/{level.lower()}", level, GREEN) for level in ("L1", "L2", "L3", "L4")]
    world.start()

    pr = world.up.open_pull_request(title="Faster add")
    world.up.wait_for_check(pr.head_sha, "crcr/gate", conclusion="success")

    for backend in everyone:
        assert 1 == len(backend.wait_for_runs())
    assert {"crcr/gate", "crcr/org/l4"} == set(world.up.checks(pr.head_sha))
    world.up.wait_for_check(pr.head_sha, "crcr/org/l4", conclusion="success")


def test_a_red_backend_blocks_and_says_which_test(world: World) -> None:
    """A reviewer reads what failed, and where, without leaving the pull request."""
    world.backend("org/l4", "L4", RED)
    world.start()

    pr = world.up.open_pull_request(title="Faster add")
    gate = world.up.wait_for_check(pr.head_sha, "crcr/gate", conclusion="failure")

    shown = world.up.wait_for_check(pr.head_sha, "crcr/org/l4", conclusion="failure")
    assert "test_add" in f"{shown.summary} {shown.text}"
    assert "org/l4" in f"{gate.title} {gate.summary}"


def test_the_gate_is_there_and_green_where_nobody_may_block(world: World) -> None:
    """A required check that never comes would hang every pull request."""
    world.backend("org/l2", "L2", GREEN)
    world.start()

    pr = world.up.open_pull_request(title="Faster add")

    gate = world.up.wait_for_check(pr.head_sha, "crcr/gate", conclusion="success")
    assert {"crcr/gate"} == set(world.up.checks(pr.head_sha))
    assert gate.head_sha == pr.head_sha
