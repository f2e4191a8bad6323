"""Listeners whose runs name no delivery: GitHub fails over and over, and nothing is lost or repeated on and on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest

from relay.simulator import Fault, JobPlan, Kind, Listener, Match, Mode, Reports, wait_until
from tests.stories.test_github_fails import WAITS, tries
from tests.stories.world import World

JOBS = (JobPlan(name="test", reports=Reports.SILENT),)
NAMELESS = Listener(jobs=JOBS, mode=Mode.DIRECT, named_runs=False)
TWO_FILES = Listener(jobs=JOBS, mode=Mode.DIRECT, named_runs=False, more_paths=(".github/workflows/nightly.yml",))
#: Those of the published schedule that add up to an hour and more.
AN_HOUR = WAITS[:5]


def pass_all(world: World, waits: Sequence[timedelta]) -> None:
    """Let these waits of the schedule pass, and what is due then be done."""
    for wait in waits:
        world.pass_time(wait)
        world.idle()


def told(world: World) -> Counter[str]:
    """How often each dispatch had its effect at GitHub, by its token."""
    return Counter(one.body["client_payload"]["relay"]["token"] for one in world.sim.log.dispatches())


def test_an_hour_of_failures_before_the_effect_ends_delivered_once(world: World) -> None:
    """Each 502 may have been a run. That there is none is seen, so it is repeated until GitHub takes it."""
    backend = world.backend("org/backend", "L1", NAMELESS)
    world.start()
    fault = world.sim.faults.add(Fault(Kind.SERVER_ERROR, Match("POST", "/dispatches$"), times=None))

    world.up.open_pull_request()
    wait_until(lambda: world.sim.faults.met(fault) == 1, what="the first try")
    pass_all(world, AN_HOUR)
    assert tries(world, backend) > 3
    world.sim.faults.clear()
    pass_all(world, WAITS[5:6])

    assert [1] == list(told(world).values())
    assert 1 == len(backend.runs)


def test_runs_of_two_files_and_of_another_dispatch_hide_no_loss(world: World) -> None:
    """One file's runs are no evidence for two dispatches: the one that GitHub never took is still sent."""
    backend = world.backend("org/backend", "L1", TWO_FILES)
    world.start()
    fault = world.sim.faults.add(Fault(Kind.SERVER_ERROR, Match("POST", "/dispatches$"), times=3))

    world.up.open_pull_request()
    wait_until(lambda: world.sim.faults.met(fault) == 1, what="the first try")
    pass_all(world, WAITS[:1])
    assert 2 == world.sim.faults.met(fault)
    world.sim.faults.clear()
    world.up.open_pull_request()
    wait_until(lambda: len(backend.runs) == 2, what="the runs of the other")
    pass_all(world, WAITS[1:5])

    assert [1, 1] == list(told(world).values())
    assert [2, 2] == list(Counter(run.client_payload["delivery_id"] for run in backend.runs).values())


@pytest.mark.parametrize("count", [2, 5])
def test_those_that_waited_for_the_same_outage_are_all_sent_after_it(world: World, count: int) -> None:
    """The one that goes first starts a run that might be the others'. It is no loss, and no hour's wait either."""
    world.given["retry_scale"] = 0.05
    backend = world.backend("org/backend", "L1", NAMELESS)
    world.start()
    fault = world.sim.faults.add(Fault(Kind.SERVER_ERROR, Match("POST", "/dispatches$"), times=2 * count))

    for _ in range(count):
        world.up.open_pull_request()
    wait_until(lambda: world.sim.faults.met(fault) >= count, what="the first tries")
    for _ in range(60):  # Sixty of them are twenty minutes where time is not squeezed.
        world.clock.advance(timedelta(seconds=1))
        world.hushed(0.06)

    assert [1] * count == list(told(world).values())
    assert count == len(backend.runs)


def test_another_dispatch_in_the_same_minutes_hides_no_run(world: World) -> None:
    """Two runs more than the other dispatch can have started: both tries arrived, and there is no third."""
    backend = world.backend("org/backend", "L1", TWO_FILES)
    world.start()
    world.sim.faults.add(Fault(Kind.SERVER_ERROR_AFTER, Match("POST", "/dispatches$"), times=2))

    world.up.open_pull_request()
    wait_until(lambda: tries(world, backend) == 1, what="the first try")
    pass_all(world, WAITS[:1])
    world.up.open_pull_request()
    wait_until(lambda: tries(world, backend) == 3, what="the other dispatch")
    pass_all(world, WAITS[1:5])

    assert [1, 2] == sorted(told(world).values())


def test_what_cannot_be_seen_is_sent_a_third_time_an_hour_later_and_then_put_aside(world: World) -> None:
    """Without permission to read Actions, an outage's end is waited for; what fails then too is a dead letter."""
    rights = {"contents": "write", "metadata": "read"}
    backend = world.sim.create_backend("org/backend", listener=NAMELESS, permissions=rights)
    world.allow("org/backend", "L1")
    world.start()
    world.sim.faults.add(Fault(Kind.SERVER_ERROR_AFTER, Match("POST", "/dispatches$"), times=None))

    pr = world.up.open_pull_request()
    backend.wait_for_runs(1)
    pass_all(world, WAITS[:4])
    assert 2 == tries(world, backend)
    pass_all(world, WAITS[4:6])

    assert [3] == list(told(world).values())
    (why,) = world.get(f"/api/v1/why?pull={pr.number}&backend={backend.name}")["decisions"]
    assert ("dead", "maybe_delivered") == (why["state"], why["state_reason"])


def test_what_cannot_be_seen_outlasts_an_outage(world: World) -> None:
    """GitHub took nothing for half an hour: the try an hour later is the one that arrives."""
    rights = {"contents": "write", "metadata": "read"}
    backend = world.sim.create_backend("org/backend", listener=NAMELESS, permissions=rights)
    world.allow("org/backend", "L1")
    world.start()
    fault = world.sim.faults.add(Fault(Kind.SERVER_ERROR, Match("POST", "/dispatches$"), times=None))

    world.up.open_pull_request()
    wait_until(lambda: world.sim.faults.met(fault) == 1, what="the first try")
    pass_all(world, WAITS[:4])
    world.sim.faults.clear()
    pass_all(world, WAITS[4:5])

    assert [1] == list(told(world).values())
    assert 1 == len(backend.runs)
