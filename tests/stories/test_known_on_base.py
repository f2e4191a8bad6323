"""A pull request that fails what its base fails too: said so in the check, at the gate, to on-calls and on pages."""

from __future__ import annotations

from typing import Any

from relay.simulator import Backend, JobPlan, Listener, Mode, PullRequest
from tests.stories.asking import CHECK, GATE, all_ours, say
from tests.stories.world import World

ADD, MUL = ("suite.Ops", "test_add", "expected 3"), ("suite.Ops", "test_mul", "expected 4")


def failing(*tests: tuple[str, str, str]) -> Listener:
    """One job that fails by these tests."""
    return Listener(jobs=(JobPlan(name="test", conclusion="failure", failed_tests=tests),), mode=Mode.DIRECT)


def main_fails(world: World, *tests: tuple[str, str, str]) -> Backend:
    """A backend that has failed on a push to main."""
    backend = world.backend("org/backend", "L4", failing(*tests), oncalls=["alice"])
    world.up.set_role("writer", "write")
    world.start()
    world.up.require(GATE)
    world.up.push()
    backend.wait_until_done()
    world.idle()
    return backend


def shown(world: World, pr: PullRequest, name: str) -> Any:
    """A check of this pull request that failed, as GitHub shows it."""
    found = world.up.wait_for_check(pr.head_sha, name, conclusion="failure")
    world.idle()
    return found


def test_what_main_fails_too_is_known_on_base_and_the_rest_is_not(each_world: World) -> None:
    """The reviewer sees which of two failures is new, and on which commit of main the other one stands."""
    world = each_world
    backend = main_fails(world, ADD)
    backend.listener = failing(ADD, MUL)
    pr = world.up.open_pull_request(author="contributor")

    check, gate = shown(world, pr, CHECK), shown(world, pr, GATE)

    (pushed,) = world.get("/api/v1/changes?kind=push")["items"]
    link = f"[`{pushed['head_sha'][:7]}`](<{world.url}/changes/{pushed['id']}>)"
    assert f"1 of 2 failing tests fails on `main` too ({link}" in check.summary
    assert "`test_add` in `suite.Ops` (known on base)" in check.text
    assert "`test_mul` in `suite.Ops`: " in check.text
    assert check.text.index("`test_mul`") < check.text.index("`test_add`")
    assert f"1 of 2 failing tests fails on `main` too ({link}" in gate.summary
    (called,) = all_ours(world, pr)
    assert "1 of 2 failing tests fails on `main` too" in called
    (told,) = world.change(backend.runs[-1])["backends"]
    assert (pushed["head_sha"], 1, 2, False) == (
        told["base"]["run"]["head_sha"],
        told["base"]["known"],
        told["base"]["failing"],
        told["base"]["whole"],
    )


def test_where_all_of_it_is_known_the_gate_says_so_and_an_override_lets_it_merge(world: World) -> None:
    """Blocked by the table, but not blamed; what to do stands there, and does what it says."""
    main_fails(world, ADD, MUL)
    pr = world.up.open_pull_request(author="contributor")

    check, gate = shown(world, pr, CHECK), shown(world, pr, GATE)

    assert "all known on base" in check.title
    assert "failed (known on base)" in gate.title
    assert "All 2 failing tests fail on `main` too" in gate.summary
    assert "not blamed on this change" in gate.summary
    assert "/crcr override org/backend REASON" in gate.summary
    assert not world.up.required_status(pr).mergeable

    say(world, pr, "writer", "/crcr override org/backend main fails it too")

    world.up.wait_for_check(pr.head_sha, GATE, conclusion="neutral")
    assert world.up.required_status(pr).mergeable


def test_a_base_without_results_is_said_once_and_nothing_is_guessed(world: World) -> None:
    """A backend that was never run on main can tell nothing of it."""
    world.backend("org/backend", "L4", failing(ADD), refs=["refs/heads/release"])
    world.start()
    world.up.push()
    pr = world.up.open_pull_request()

    check = shown(world, pr, CHECK)

    assert 1 == check.summary.count("has no results for `main` yet, so we cannot say whether this test fails there too")
    assert "known on base" not in check.title + check.summary + check.text


def test_a_base_that_was_mended_is_no_excuse(world: World) -> None:
    """The newest result on main counts, and it passes."""
    backend = main_fails(world, ADD)
    backend.listener = Listener(jobs=(JobPlan(name="test"),), mode=Mode.DIRECT)
    world.up.push()
    backend.wait_until_done(2)
    world.idle()
    backend.listener = failing(ADD)
    pr = world.up.open_pull_request()

    check = shown(world, pr, CHECK)

    assert "`main` passes there" in check.summary
    assert "(known on base)" not in check.text
