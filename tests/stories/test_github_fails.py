"""GitHub on its bad days: what fails is tried again by a schedule or put aside with its reason."""

from __future__ import annotations

import html
import urllib.request
from datetime import timedelta
from typing import Any

import pytest

from relay.simulator import Backend, Fault, JobPlan, Kind, Listener, Match, Mode, Reports, wait_until
from tests.stories.world import World

SILENT = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
#: Beyond each wait of the published schedule and its spread of a fifth.
WAITS = tuple(timedelta(seconds=seconds) for seconds in (13, 73, 361, 1081, 4321, 12961, 25921))


def tries(world: World, backend: Backend) -> int:
    """How often GitHub was asked to dispatch to this backend, whatever came of it."""
    return len(world.sim.log.dispatches(backend.name, effective=False))


def letters(world: World) -> list[dict[str, Any]]:
    """What was given up, as the API and the pages list it."""
    found: list[dict[str, Any]] = world.get("/api/v1/dead-letters")["items"]
    return found


def page(world: World, path: str) -> str:
    """A page as people read it."""
    with urllib.request.urlopen(f"{world.url}{path}", timeout=10) as answer:
        return html.unescape(answer.read().decode())


def test_an_answer_lost_after_the_effect_makes_no_second_run(each_world: World) -> None:
    """502 although GitHub took it: the others go at once, and before repeating we look whether the run is there."""
    world = each_world
    backends = [world.backend(f"org{number}/backend", "L1", SILENT) for number in range(4)]
    unlucky, *others = backends
    world.start()
    world.sim.faults.add(Fault(Kind.SERVER_ERROR_AFTER, Match("POST", "/dispatches$", unlucky.name), times=3))

    world.up.open_pull_request()
    for backend in others:
        backend.wait_for_runs()
    wait_until(lambda: tries(world, unlucky) == 1, what="the first try")
    world.idle()
    assert 1 == tries(world, unlucky)  # The HTTP library repeats nothing.
    for wait in WAITS:
        world.pass_time(wait)
        world.idle()

    assert [1, 1, 1] == [len(backend.runs) for backend in others]
    assert 1 == len(unlucky.runs)


@pytest.mark.parametrize("times", [1, 3])
def test_without_evidence_a_repetition_carries_the_same_token(world: World, times: int) -> None:
    """Where runs carry no name, a second run is possible, and no third; a listener can tell it by the token."""
    nameless = Listener(jobs=SILENT.jobs, mode=Mode.DIRECT, named_runs=False)
    backend = world.backend("org/backend", "L1", nameless)
    world.start()
    world.sim.faults.add(Fault(Kind.SERVER_ERROR_AFTER, Match("POST", "/dispatches$"), times=times))

    world.up.open_pull_request()
    backend.wait_for_runs(1)
    world.pass_time(WAITS[0])
    backend.wait_for_runs(2)
    for wait in WAITS[1:]:
        world.pass_time(wait)
        world.idle()

    first, second = backend.runs
    assert first.client_payload == second.client_payload
    assert 2 == tries(world, backend)


def test_a_run_that_reported_is_evidence_enough(world: World) -> None:
    """A report carries the dispatch's capability, so that one was taken even where runs have no names."""
    nameless = Listener(jobs=(JobPlan(name="test"),), mode=Mode.DIRECT, named_runs=False)
    backend = world.backend("org/backend", "L2", nameless)
    world.start()
    world.sim.faults.add(Fault(Kind.SERVER_ERROR_AFTER, Match("POST", "/dispatches$"), times=3))

    world.up.open_pull_request()
    (run,) = backend.wait_until_done()
    assert [200, 200] == [report.answer for report in run.jobs[0].reports]
    for wait in WAITS:
        world.pass_time(wait)
        world.idle()

    assert 1 == len(backend.runs)


@pytest.mark.parametrize("kind", [Kind.SERVER_ERROR, Kind.RESET, Kind.UNAUTHORIZED], ids=lambda kind: kind.name)
def test_what_failed_before_its_effect_arrives_later(world: World, kind: Kind) -> None:
    """A webhook that was answered 2xx reaches its backend, however GitHub failed meanwhile."""
    backend = world.backend("org/backend", "L1", SILENT)
    world.start()
    fault = world.sim.faults.add(Fault(kind, Match("POST", "/dispatches$"), times=1))

    world.up.open_pull_request()
    wait_until(lambda: world.sim.faults.met(fault) == 1, what="the fault")
    world.pass_time(WAITS[0])

    assert 1 == len(backend.wait_for_runs())


def test_a_limit_holds_its_account_back_and_nobody_else(each_world: World) -> None:
    """Retry-After is kept to the second for one installation, and all others flow past it."""
    world = each_world
    limited = [world.backend(f"busy/b{number}", "L1", SILENT) for number in range(3)]
    free = [world.backend(f"org{number}/backend", "L1", SILENT) for number in range(3)]
    world.start()
    world.sim.faults.add(
        Fault(Kind.SECONDARY_LIMIT, Match("POST", "/dispatches$", account="busy"), times=None, retry_after=60)
    )

    world.up.open_pull_request()
    for backend in free:
        backend.wait_for_runs()
    wait_until(lambda: any(tries(world, backend) for backend in limited), what="a refusal")
    world.pass_time(timedelta(seconds=50))
    refused = sum(tries(world, backend) for backend in limited)
    world.up.open_pull_request()
    for backend in free:
        backend.wait_for_runs(2)

    # Those under way when the refusal came are all that GitHub saw of this account in the minute.
    assert refused == sum(tries(world, backend) for backend in limited)
    assert refused <= 3
    world.sim.faults.clear()
    world.clock.advance(timedelta(seconds=15))
    for backend in limited:
        assert 2 == len(backend.wait_for_runs(2))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Kind.NOT_FOUND, "not_installed"),
        (Kind.GONE, "gone"),
        (Kind.MISSING_PERMISSION, "missing_permission"),
        (Kind.ARCHIVED, "archived"),
    ],
    ids=lambda value: value.name if isinstance(value, Kind) else value,
)
def test_a_final_refusal_is_not_tried_again(world: World, kind: Kind, reason: str) -> None:
    """What only a person can mend is put aside with its reason; the gate does not wait for it."""
    refusing = world.backend("org/refusing", "L4", SILENT)
    other = world.backend("other/backend", "L1", SILENT)
    world.start()
    world.sim.faults.add(Fault(kind, Match("POST", "/dispatches$", refusing.name), times=None))

    pr = world.up.open_pull_request()
    other.wait_for_runs()
    gate = world.up.wait_for_check(pr.head_sha, "crcr/gate", conclusion="neutral")
    asked = tries(world, refusing)
    for wait in WAITS[:4]:
        world.pass_time(wait)
        world.idle()

    assert asked == tries(world, refusing)
    assert asked <= 2  # A fresh token is asked for once before a missing app is believed.
    assert "org/refusing" in f"{gate.summary} {gate.text}"
    (why,) = world.get(f"/api/v1/why?pull={pr.number}&backend={refusing.name}")["decisions"]
    assert ("dead", reason) == (why["state"], why["state_reason"])
    side = "That is on the backend's side, at org/refusing."
    (letter,) = letters(world)
    assert side in letter["detail"]
    assert side in page(world, "/backends/org/refusing")


@pytest.mark.parametrize("kind", [Kind.NOT_FOUND, Kind.MISSING_PERMISSION], ids=lambda kind: kind.name)
def test_what_upstream_refuses_is_not_put_down_to_the_backend(world: World, kind: Kind) -> None:
    """A check bears its backend's name and is written upstream: the dead letter says who has to mend it."""
    backend = world.backend("org/backend", "L4", SILENT)
    world.start()
    world.sim.faults.add(Fault(kind, Match("POST", "/check-runs$"), times=None))

    world.up.open_pull_request()
    backend.wait_for_runs()
    world.settled(lambda: len(letters(world)) == 2, "the checks' dead letters")

    assert {"reconcile_check"} == {letter["kind"] for letter in letters(world)}
    for letter in letters(world):
        assert "That is on upstream's side, at pytorch/pytorch." in letter["detail"]
    assert "side, at" not in page(world, "/backends/org/backend")


def test_actions_that_are_off_are_a_final_refusal(world: World) -> None:
    """422: nothing of ours would mend it, so the dispatch is put aside and the reason named."""
    backend = world.backend("org/backend", "L4", SILENT)
    world.start()
    backend.disable_actions()

    pr = world.up.open_pull_request()
    world.up.wait_for_check(pr.head_sha, "crcr/gate", conclusion="neutral")
    world.pass_time(WAITS[0])
    world.idle()

    assert 1 == tries(world, backend)
    (why,) = world.get(f"/api/v1/why?pull={pr.number}&backend={backend.name}")["decisions"]
    assert ("dead", "refused") == (why["state"], why["state_reason"])
    assert "disabled" in why["sentence"]


def test_an_app_that_is_installed_late_gets_what_it_missed(each_world: World) -> None:
    """A backend without the app is told as soon as it has it, with the dispatch that was given up."""
    world = each_world
    late = world.sim.create_backend("late/backend", listener=SILENT, installed=False)
    world.allow("late/backend", "L4")
    world.start()

    pr = world.up.open_pull_request()
    world.up.wait_for_check(pr.head_sha, "crcr/gate", conclusion="neutral")
    assert [] == late.runs
    late.install()
    (run,) = late.wait_for_runs()
    world.idle()

    assert pr.head_sha == run.client_payload["relay"]["change"]["head_sha"]
    assert pr.delivery.guid == run.client_payload["delivery_id"]
    gate = world.up.checks(pr.head_sha)["crcr/gate"]
    assert ("crcr/gate", None) == (gate.name, gate.conclusion)  # It waits for the backend again.


def test_a_redelivery_revives_what_was_given_up(world: World) -> None:
    """After an admin has mended something, "Redeliver" is all it takes."""
    world.app.events -= {"repository"}  # Nothing says that it is back.
    backend = world.backend("org/backend", "L4", SILENT)
    world.start()
    backend.archive()
    pr = world.up.open_pull_request()
    world.up.wait_for_check(pr.head_sha, "crcr/gate", conclusion="neutral")
    backend.archive(on=False)

    again = world.sim.redeliver(pr.delivery.guid)

    assert 200 == again.response.status
    assert 1 == len(backend.wait_for_runs())


@pytest.mark.slow
def test_a_name_taken_over_by_another_owner_is_refused(each_world: World) -> None:
    """A listed repository moved and somebody else registered its name: no dispatch, no token, and the admin is told."""
    world = each_world
    listed = world.backend("org/backend", "L2", SILENT)
    world.start()
    world.up.open_pull_request()
    listed.wait_for_runs()
    world.idle()
    listed.rename("elsewhere/backend")

    impostor = world.sim.create_backend("org/backend", listener=SILENT)
    world.up.open_pull_request()
    world.idle()
    for wait in WAITS[:3]:
        world.pass_time(wait)
        world.idle()

    assert [] == impostor.runs
    assert [] == impostor.dispatches
    page = world.get("/api/v1/backends/org/backend")
    assert "identity_changed" in str(page)


def test_a_repository_that_only_moved_is_still_told(world: World) -> None:
    """A rename keeps the id, and while the old name leads there it is the same backend."""
    moved = world.backend("org/backend", "L2", SILENT)
    world.start()
    world.up.open_pull_request()
    moved.wait_for_runs()
    world.idle()

    moved.rename("org/renamed")
    world.up.open_pull_request()

    assert 2 == len(moved.wait_for_runs(2))
