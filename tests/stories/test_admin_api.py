"""What admins do over HTTP: in force within seconds at GitHub, and audited under the token's name."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from relay.simulator import JobPlan, Listener, Mode, Reports
from relay.simulator.model import CheckRun
from tests.stories.world import World

ALICE, BOB = "alice-secret-" * 2, "bob-secret---" * 2
BY_HAND = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
PAUSE = {"until": "4h", "reason": "its machines move"}


def act(world: World, path: str, words: Any, token: str = ALICE) -> tuple[int, Any]:
    """Ask for an act; status and answer."""
    connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=10)
    body = words if isinstance(words, bytes) else json.dumps(words).encode()
    connection.request("POST", f"/api/v1/admin/{path}", body, {"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def gate(world: World, head_sha: str) -> CheckRun | None:
    """The gate as GitHub shows it; None before it is there."""
    return world.up.checks(head_sha).get("crcr/gate")


def concludes(world: World, head_sha: str, conclusion: str | None) -> None:
    """Wait until the gate says so."""

    def says() -> bool:
        shown = gate(world, head_sha)
        return shown is not None and shown.conclusion == conclusion

    world.settled(says, f"a gate that says {conclusion}")


def start(world: World) -> None:
    """Two admins."""
    world.start(admin_tokens=(f"alice:{ALICE}", f"bob:{BOB}"))


def test_a_pause_and_its_end_are_in_force_at_once(world: World) -> None:
    """Nothing is sent while it lasts, and what waited is sent when it ends; each under its own name."""
    backend = world.backend("org/l4", "L4", BY_HAND)
    start(world)

    assert act(world, "backends/org/l4/pause", PAUSE)[0] == 200
    pull = world.up.open_pull_request()
    concludes(world, pull.head_sha, "neutral")
    assert [] == world.sim.log.dispatches("org/l4")
    assert act(world, "backends/org/l4/resume", {"reason": "they are back"}, BOB)[0] == 200

    assert len(backend.wait_for_runs()) == 1
    acts = [(row["who"], row["what"]) for row in world.get("/api/v1/audit")["items"]]
    assert [("bob", "backend resumed"), ("alice", "backend paused")] == [
        one for one in acts if one[0] in {"alice", "bob"}
    ][:2]


def test_a_demoted_backend_blocks_nobody_until_it_is_restored(world: World) -> None:
    """The level is lowered on open heads too, and comes back."""
    world.backend("org/l4", "L4", BY_HAND)
    start(world)
    pull = world.up.open_pull_request()
    concludes(world, pull.head_sha, None)

    assert act(world, "backends/org/l4/demote", PAUSE | {"to": "L2"})[0] == 200
    concludes(world, pull.head_sha, "success")
    assert act(world, "backends/org/l4/restore", {})[0] == 200
    assert (409, "not_demoted") == refused(act(world, "backends/org/l4/restore", {}))


def test_an_override_names_the_admin_on_the_check(world: World) -> None:
    """Whoever reads the gate sees who answered, and why."""
    world.backend("org/l4", "L4", BY_HAND)
    start(world)
    pull = world.up.open_pull_request()
    concludes(world, pull.head_sha, None)
    words = {"number": pull.number, "backend": "org/l4", "reason": "the lab has no power"}

    assert act(world, "overrides", words)[0] == 200

    concludes(world, pull.head_sha, "neutral")
    shown = gate(world, pull.head_sha)
    assert shown is not None
    assert "alice" in f"{shown.summary}{shown.text}"


def refused(answer: tuple[int, Any]) -> tuple[int, str]:
    """Status and code."""
    return answer[0], answer[1]["code"]


def test_nobody_else_may(world: World) -> None:
    """A wrong token, an empty one, another scheme: 401 whatever the body; guessing is slowed down, admins are not."""
    world.backend("org/l4", "L4", BY_HAND)
    start(world)

    assert (401, "no_admin") == refused(act(world, "backends/org/l4/pause", PAUSE, "x" * 26))
    assert (401, "no_admin") == refused(act(world, "backends/org/l4/pause", b"not json", f"alice:{ALICE}"))
    answers = [act(world, "overrides", {}, "guess")[0] for _ in range(40)]
    assert answers[-1] == 429
    assert act(world, "backends/org/l4/pause", PAUSE)[0] == 200
    assert {"alice", "allowlist"} == {row["who"] for row in world.get("/api/v1/audit")["items"]}


@pytest.mark.parametrize(
    ("path", "words", "field"),
    [
        ("backends/org/l4/pause", {"until": "soon", "reason": "x"}, "until"),
        ("backends/org/l4/pause", {"until": "4h"}, "reason"),
        ("backends/org/l4/pause", {"until": "4h", "reason": " "}, "reason"),
        ("backends/org/l4/pause", {"until": "4h", "reason": "x", "extra": 1}, "extra"),
        ("backends/org/other/pause", PAUSE, "repo"),
        ("backends/org/l4/demote", PAUSE | {"to": "L9"}, "to"),
        ("overrides", {"number": 0, "backend": "org/l4", "reason": "x"}, "number"),
        ("overrides", {"number": 1, "backend": "nonsense", "reason": "x"}, "backend"),
    ],
)
def test_a_word_that_cannot_be_used_is_named(world: World, path: str, words: Any, field: str) -> None:
    """The answer says which field breaks which rule, and nothing is done."""
    world.backend("org/l4", "L4", BY_HAND)
    start(world)

    status, answer = act(world, path, words)

    assert (422, [field]) == (status, [one["field"] for one in answer["errors"]])


def test_without_admins_there_is_no_such_page(world: World) -> None:
    """No tokens, no door."""
    world.start()

    assert (404, "no_admins") == refused(act(world, "overrides", {}))
