"""A backend that fails and fails is left alone but for a probe, says so where people look, and returns by itself."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from relay.simulator import Fault, JobPlan, Kind, Listener, Match, Mode, Reports, wait_until
from tests.stories.world import World

SILENT = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)


def tries(world: World, name: str) -> int:
    """How often GitHub was asked to dispatch to this backend."""
    return len(world.sim.log.dispatches(name, effective=False))


def tried_so_often(world: World, count: int) -> bool:
    """Whether so many tries of dispatches have ended and are noted; time that passes before would end their leases."""
    every = [world.get(f"/api/v1/deliveries/{one['id']}") for one in world.get("/api/v1/deliveries")["items"]]
    effects = [effect for one in every for told in one["decisions"] for effect in told["effects"]]
    return count == sum(len(effect["tries"]) for effect in effects if effect["kind"] == "dispatch")


def audited(world: World, name: str) -> list[str]:
    """What the audit says of the backend's circuit, oldest first."""
    items = world.get("/api/v1/audit")["items"]
    return [one["what"] for one in reversed(items) if one["subject"] == name and "switched" in one["what"]]


def test_a_backend_that_refuses_for_days_is_switched_off_and_returns_by_itself(each_world: World) -> None:
    """After a few refusals the rest ends at once with the reason; after two days there is one notice; then it is back.

    What is told on its return is the newest head of each open pull request, and nothing that was replaced.
    """
    world = each_world
    world.app.events -= {"repository"}  # Nothing says that it is back.
    refusing = world.backend("org/refusing", "L4", SILENT)
    world.start()
    refusing.archive()
    prs = []
    for number in range(6):
        prs.append(world.up.open_pull_request(title=f"Change {number}"))
        world.up.wait_for_check(prs[-1].head_sha, "crcr/gate", conclusion="neutral")
    asked = tries(world, refusing.name)
    for _ in range(2):
        pr = world.up.open_pull_request()
        gate = world.up.wait_for_check(pr.head_sha, "crcr/gate", conclusion="neutral")
        prs.append(pr)
    assert asked == tries(world, refusing.name)  # Nobody is asked any more, and no gate waits.
    assert "org/refusing" in f"{gate.summary} {gate.text}"
    (why,) = world.get(f"/api/v1/why?pull={pr.number}&backend={refusing.name}")["decisions"]
    assert ("dead", "circuit_open") == (why["state"], why["state_reason"])
    assert "archived" in why["sentence"]
    assert "open" == world.get(f"/api/v1/backends/{refusing.name}")["backend"]["circuit"]["state"]

    replaced = prs[0].head_sha
    prs[0].push()
    world.idle()
    world.clock.advance(timedelta(days=2, hours=1))
    late = world.up.open_pull_request(title="Two days later")  # The probe that is one too many.
    world.up.wait_for_check(late.head_sha, "crcr/gate", conclusion="neutral")
    last = world.up.open_pull_request(title="And the next")
    world.up.wait_for_check(last.head_sha, "crcr/gate", conclusion="neutral")
    (why,) = world.get(f"/api/v1/why?pull={last.number}&backend={refusing.name}")["decisions"]
    assert ("dead", "switched_off") == (why["state"], why["state_reason"])
    assert ["backend switched off"] == audited(world, refusing.name)

    refusing.archive(on=False)
    world.clock.advance(timedelta(hours=1, minutes=20))  # Nothing comes by, so a dead letter is the probe.
    refusing.wait_for_runs(10)
    world.idle()

    told = [run.client_payload["relay"]["change"]["head_sha"] for run in refusing.runs]
    assert {late.head_sha, last.head_sha, *(pr.head_sha for pr in prs)} == set(told)
    assert replaced not in told
    assert ["backend switched off", "backend switched on"] == audited(world, refusing.name)
    assert world.get(f"/api/v1/backends/{refusing.name}")["backend"]["circuit"] is None


def test_a_backend_without_answers_waits_and_its_gate_steps_down_at_the_deadline(world: World) -> None:
    """Dispatches wait behind an open circuit; a pull request does not wait past its deadline for that."""
    ill = world.backend("org/ill", "L4", SILENT, timeouts={"queue": "1h", "run": "1h"})
    world.start()
    down = world.sim.faults.add(Fault(Kind.SERVER_ERROR, Match("POST", "/dispatches$", ill.name), times=None))
    prs = [world.up.open_pull_request(title=f"Change {number}") for number in range(3)]
    wait_until(partial(tried_so_often, world, 3), what="the first tries")
    for minutes, so_far in ((1, 6), (2, 7), (3, 8)):  # All once more by the schedule, and then one probe at a time.
        assert so_far - (3 if so_far == 6 else 1) == tries(world, ill.name)
        world.clock.advance(timedelta(minutes=minutes))
        wait_until(partial(tried_so_often, world, so_far), what="a probe")
    asked = tries(world, ill.name)
    assert 8 == asked
    pr = world.up.open_pull_request(title="Later")
    world.up.wait_for_check(pr.head_sha, "crcr/gate")
    world.hushed(0.2)
    assert asked == tries(world, ill.name)
    (why,) = world.get(f"/api/v1/why?pull={pr.number}&backend={ill.name}")["decisions"]
    assert "waits" in why["sentence"]

    world.clock.advance(timedelta(hours=2, minutes=1))
    gate = world.up.wait_for_check(pr.head_sha, "crcr/gate", conclusion="neutral")
    assert "org/ill" in f"{gate.summary} {gate.text}"
    wait_until(partial(tried_so_often, world, 9), what="one probe more")
    world.sim.faults.remove(down)
    world.clock.advance(timedelta(minutes=13))
    ill.wait_for_runs(4)

    told = [run.client_payload["relay"]["change"]["head_sha"] for run in ill.runs]
    assert pr.head_sha == told[0]
    assert {pr.head_sha, *(one.head_sha for one in prs)} == set(told)


def test_installing_the_app_is_a_reason_to_probe_at_once(world: World) -> None:
    """Nobody waits for the next probe when a person has mended what was wrong."""
    late = world.sim.create_backend("late/backend", listener=SILENT, installed=False)
    world.allow("late/backend", "L2")
    other = world.backend("org/other", "L1", SILENT)
    world.start()
    for number in range(7):
        world.up.open_pull_request(title=f"Change {number}")
        other.wait_for_runs(number + 1)
    world.idle()

    late.install()

    assert 7 == len(late.wait_for_runs(7))
