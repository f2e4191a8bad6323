"""The allowlist as an admin lives with it: a bad line hurts itself, a bad file nobody, a repair is soon in force."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from datetime import timedelta
from typing import Any

import pytest

from relay.simulator import Backend, Fault, JobPlan, Kind, Listener, Match, Mode, Reports
from tests.stories.world import UPSTREAM, World

SILENT = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
PATH = ".github/allowlist.yml"
CONTENTS = Match("GET", "/contents/")


def told(world: World, *backends: Backend) -> list[str]:
    """The backends among these that hear of a new pull request."""
    before = [len(backend.dispatches) for backend in backends]
    witness = world.sim.backend("org/witness")
    seen = len(witness.runs)
    world.up.open_pull_request()
    witness.wait_for_runs(seen + 1)
    world.idle()
    return [backend.name for backend, had in zip(backends, before, strict=True) if len(backend.dispatches) > had]


def ready(world: World) -> tuple[int, dict[str, Any]]:
    """The readiness page: its status, and what it says of the allowlist."""
    try:
        with urllib.request.urlopen(f"{world.url}/readyz", timeout=10) as answer:
            status, body = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, body = error.code, error.read()
        error.close()
    return status, json.loads(body)["parts"]["allowlist"]


@pytest.fixture
def people(world: World) -> tuple[World, list[Backend]]:
    """Three backends at GitHub and one that is always told, so that a test knows when a webhook's work is done."""
    world.sim.create_backend("org/witness", listener=SILENT)
    return world, [world.sim.create_backend(f"org/b{number}", listener=SILENT) for number in range(3)]


def test_one_bad_line_hurts_only_itself(people: tuple[World, list[Backend]]) -> None:
    """The good entries are in force, and the fault is named by its line."""
    world, backends = people
    world.allowlist.write_text(
        "L1:\n  - org/witness\n  - org/b0\n  - no slash\n  - {org/b1: {events: [banana]}}\n  - ORG/B2\n"
    )
    world.start()

    assert ["org/b0", "org/b2"] == told(world, *backends)
    found = world.get("/api/v1/allowlist")["faults"]
    assert {4, 5} == {fault["line"] for fault in found}
    assert all(fault["fix"] for fault in found)


@pytest.mark.parametrize(
    "broken",
    ["L1:\n  - org/witness\n\t- org/b1\n", "L1: [org/b0\n", "L1:\n  - org/b0\n    - : :\n x", "\x00", "L1: &a [*a]\n"],
    ids=["tab", "unclosed", "nonsense", "nul", "alias"],
)
def test_a_file_that_cannot_be_read_leaves_the_last_good_one_in_force(
    people: tuple[World, list[Backend]], broken: str
) -> None:
    """Somebody breaks the file: everybody is told as before, the trouble shows, and the repair is soon in force."""
    world, backends = people
    world.allowlist.write_text("L1:\n  - org/witness\n  - org/b0\n")
    world.start()

    world.allowlist.write_text(broken)
    world.settled(lambda: "last good" in ready(world)[1]["detail"], "the trouble said")
    assert ["org/b0"] == told(world, *backends)
    assert 200 == ready(world)[0]
    world.allowlist.write_text("L1:\n  - org/witness\n  - org/b1\n")
    world.settled(lambda: "last good" not in ready(world)[1]["detail"], "the repair in force")

    assert ["org/b1"] == told(world, *backends)


def test_an_emptied_list_tells_nobody_and_is_no_fault(people: tuple[World, list[Backend]]) -> None:
    """A file with comments only is an empty list: an admin may mean that."""
    world, backends = people
    world.allowlist.write_text("L1:\n  - org/witness\n  - org/b0\n")
    world.start()
    assert ["org/b0"] == told(world, *backends)

    world.allowlist.write_text("# nobody for now\n")
    world.settled(lambda: ready(world)[1]["detail"].startswith("0 entries"), "the empty list in force")
    pr = world.up.open_pull_request()
    world.up.wait_for_check(pr.head_sha, "crcr/gate", conclusion="success")
    world.idle()

    assert 1 == len(backends[0].dispatches)


def test_a_huge_file_is_refused_and_the_last_good_one_stays(people: tuple[World, list[Backend]]) -> None:
    """A file over the cap is somebody's mistake, and reading it must not take the service down."""
    world, backends = people
    world.allowlist.write_text("L1:\n  - org/witness\n  - org/b0\n")
    world.start()

    world.allowlist.write_text("L1:\n" + "  - org/witness\n" * 200_000)
    world.settled(lambda: "last good" in ready(world)[1]["detail"], "the trouble said")

    assert ["org/b0"] == told(world, *backends)


def in_repository(world: World, text: str) -> str:
    """Put the allowlist into upstream's repository; returns the setting that names it."""
    world.up.push(files={PATH: text})
    return f"{UPSTREAM}:{PATH}"


@pytest.mark.slow
def test_github_unreachable_leaves_the_last_good_list_in_force_over_a_restart(each_world: World) -> None:
    """The list comes through the app; while GitHub cannot be asked the last good one counts, and its age shows."""
    world = each_world
    world.sim.create_backend("org/witness", listener=SILENT)
    backend = world.sim.create_backend("org/b0", listener=SILENT)
    added = world.sim.create_backend("org/b1", listener=SILENT)
    setting = in_repository(world, "L1:\n  - org/witness\n  - org/b0\n")
    world.start(allowlist=setting)
    assert ["org/b0"] == told(world, backend)

    down = world.sim.faults.add(Fault(Kind.SERVER_ERROR, CONTENTS, times=None))
    world.settled(lambda: "last good" in ready(world)[1]["detail"], "the trouble said")
    assert ["org/b0"] == told(world, backend)
    world.stop()
    world.start()
    assert ["org/b0"] == told(world, backend)
    world.clock.advance(timedelta(minutes=16))
    world.settled(lambda: not ready(world)[1]["ok"], "the alarm")
    world.settled(lambda: ready(world)[0] == 200, "readiness, since the last good list still works")

    in_repository(world, "L1:\n  - org/witness\n  - org/b1\n")
    world.sim.faults.remove(down)
    world.settled(lambda: ready(world)[1]["ok"], "the new list in force")
    assert ["org/b1"] == told(world, backend, added)


def test_a_first_start_without_github_waits_for_its_list(world: World) -> None:
    """Nothing is known yet, and the service says so; the list comes when GitHub does."""
    world.sim.create_backend("org/witness", listener=SILENT)
    setting = in_repository(world, "L1:\n  - org/witness\n")
    down = world.sim.faults.add(Fault(Kind.SERVER_ERROR, CONTENTS, times=None))
    world.start(allowlist=setting)
    status, part = ready(world)
    assert (503, False) == (status, part["ok"])

    world.sim.faults.remove(down)
    world.settled(lambda: ready(world)[0] == 200, "the list read")

    assert [] == told(world)


def test_an_unchanged_list_costs_no_rate_limit(world: World) -> None:
    """It is asked for again and again with its ETag, and GitHub's 304 is free."""
    world.sim.create_backend("org/witness", listener=SILENT)
    world.start(allowlist=in_repository(world, "L1:\n  - org/witness\n"))

    def looks() -> list[int]:
        return [one.status for one in world.sim.log if "/contents/" in one.path]

    world.settled(lambda: len(looks()) >= 5, "five looks")

    assert 200 == looks()[0]
    assert {304} == set(looks()[1:])
