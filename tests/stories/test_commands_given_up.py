"""GitHub will not tell for hours what somebody may ask for: nothing is done, and that is no secret."""

from __future__ import annotations

from functools import partial

import pytest

from relay.simulator import Fault, Kind, Match, wait_until
from relay.work.schedule import SCHEDULE
from tests.stories.asking import all_ours, failed, ours, say
from tests.stories.world import World


def on_record(world: World, who: str) -> bool:
    """Whether the audit has something of what this person asked for."""
    return any(f"by {who} on" in one["subject"] for one in world.get("/api/v1/audit")["items"])


@pytest.mark.slow
def test_a_command_that_was_given_up_is_on_record_and_told_to_whom_we_know(world: World) -> None:
    """The author may always have an answer, and a triager was named before. A stranger has none, as on any day."""
    world.given["retry_scale"] = 0.000002
    backend, pr = failed(world)
    say(world, pr, "triager", "/crcr help")
    before = len(ours(world, pr))
    down = world.sim.faults.add(Fault(Kind.SERVER_ERROR, Match("GET", "/permission$"), times=3 * len(SCHEDULE)))

    for who in ("contributor", "triager", "passer"):
        say(world, pr, who, "/crcr run backend")
        wait_until(partial(on_record, world, who), what=f"what became of {who}'s command")
    world.idle()

    told = [body for body in ours(world, pr) if "Not done: GitHub did not tell" in body]
    assert 3 * len(SCHEDULE) == world.sim.faults.met(down)
    assert (1, 1) == (before, len(backend.runs))
    assert ["contributor", "triager"] == [body.split("by `")[1].split("`")[0] for body in told]
    assert 1 + len(told) == len(all_ours(world, pr)) - 1
    given_up = [one for one in world.get("/api/v1/audit")["items"] if one["what"] == "command given up"]
    assert [
        f"/crcr run backend by {who} on pull request {pr.number}" for who in ("passer", "triager", "contributor")
    ] == [one["subject"] for one in given_up]
    assert {"relay"} == {one["who"] for one in given_up}
