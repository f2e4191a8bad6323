"""The ruleset that we ship makes GitHub wait for our gate, and take nobody else's check for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from relay.simulator import JobPlan, Listener, Mode, PullRequest
from relay.texts.words import GATE_NAME
from tests.stories.world import World

RULESET: dict[str, Any] = json.loads((Path(__file__).parents[2] / "examples" / "ruleset.json").read_text())


def required() -> list[dict[str, Any]]:
    """The checks that the ruleset requires."""
    (rule,) = [rule for rule in RULESET["rules"] if rule["type"] == "required_status_checks"]
    checks: list[dict[str, Any]] = rule["parameters"]["required_status_checks"]
    return checks


def reviewed(world: World, integration_id: int) -> PullRequest:
    """A pull request whose one gating backend passed, in a repository with this ruleset."""
    world.backend("org/backend", "L4", Listener(jobs=(JobPlan(name="test"),), mode=Mode.DIRECT))
    world.start()
    (check,) = required()
    world.up.require(check["context"], integration_id)
    pr = world.up.open_pull_request()
    world.up.wait_for_check(pr.head_sha, GATE_NAME, conclusion="success")
    return pr


def test_it_requires_the_gate_and_nothing_else() -> None:
    """One fixed name: names of backends and jobs come and go, and a required check that never comes blocks for ever."""
    assert [GATE_NAME] == [check["context"] for check in required()]
    assert ("branch", "active", ["~DEFAULT_BRANCH"]) == (
        RULESET["target"],
        RULESET["enforcement"],
        RULESET["conditions"]["ref_name"]["include"],
    )


def test_with_our_app_s_id_the_gate_satisfies_it(world: World) -> None:
    """The number in the file is an example; an admin puts the app's own in its place."""
    pr = reviewed(world, world.app.id)

    assert (True, {GATE_NAME: "success"}) == (
        world.up.required_status(pr).mergeable,
        world.up.required_status(pr).contexts,
    )


def test_pinned_to_another_app_the_gate_does_not_count(world: World) -> None:
    """So nobody else's check of that name counts either: whoever may write checks could otherwise open the gate."""
    (check,) = required()
    assert check["integration_id"] != world.app.id

    pr = reviewed(world, check["integration_id"])

    assert (False, {GATE_NAME: "expected"}) == (
        world.up.required_status(pr).mergeable,
        world.up.required_status(pr).contexts,
    )
