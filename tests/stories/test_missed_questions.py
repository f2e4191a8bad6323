"""CASE 9, when GitHub itself is in trouble: it refuses the relay's questions, cuts them short, or fails again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from relay.simulator import Fault, Kind, Match, wait_until
from tests.edge.browsing import words
from tests.stories.counted import by_cause, shown
from tests.stories.test_missed_webhooks import BY_HAND, LATER, NEVER, NOBODY, asked_again, heads_told, outage, watching
from tests.stories.world import World

pytestmark = pytest.mark.slow


def test_a_delivery_that_fails_again_is_not_asked_for_for_ever(world: World) -> None:
    """Once is what it gets; if it was a pull request, the comparison heals it."""
    world.backend("org/one", "L2", BY_HAND)
    watching(world, gaps_seconds=NEVER)
    outage(world)
    (lost,) = world.up.open_pull_request().deliveries
    world.clock.advance(LATER)
    world.start()
    world.sim.webhook_url = NOBODY

    wait_until(lambda: asked_again(world)[lost.guid] == 1, what="one question")
    for _ in range(3):
        world.clock.advance(timedelta(minutes=20))
        count = len(world.sim.log.of("GET", "/app/hook/deliveries"))
        wait_until(lambda: len(world.sim.log.of("GET", "/app/hook/deliveries")) >= count + 2, what="more looks")  # noqa: B023

    assert {lost.guid: 1} == dict(asked_again(world))
    (shown,) = world.get("/api/v1/gaps?cause=delivery_failed")["items"]
    assert ("delivery_failed", "failed_again", False) == (shown["cause"], shown["how"], shown["healed"])


def test_a_question_that_github_refused_is_asked_again(world: World) -> None:
    """A limit means that nothing was asked: after Retry-After it is, once."""
    backend = world.backend("org/one", "L2", BY_HAND)
    watching(world, gaps_seconds=NEVER)
    outage(world)
    pr = world.up.open_pull_request()
    world.clock.advance(LATER)
    world.sim.faults.add(Fault(Kind.SECONDARY_LIMIT, match=Match("POST", "/attempts$"), times=1, retry_after=90))
    world.start()

    wait_until(lambda: len(world.sim.log.of("POST", "/attempts")) == 1, what="a refused question")
    world.idle()
    assert [] == backend.runs
    world.clock.advance(timedelta(seconds=95))
    backend.wait_for_runs(1)

    refused, taken = world.sim.log.of("POST", "/attempts")
    assert (False, True) == (refused.effect, taken.effect)
    assert {pr.head_sha: 1} == dict(heads_told(backend))


@pytest.mark.parametrize(("kind", "questions"), [(Kind.RESET, 2), (Kind.RESET_AFTER, 1)], ids=["before", "after"])
def test_a_question_that_was_cut_short_is_asked_again_only_if_it_was_not_heard(
    world: World, kind: Kind, questions: int
) -> None:
    """As when the relay dies between writing down that it asks and hearing the answer: GitHub's list tells which."""
    backend = world.backend("org/one", "L2", BY_HAND)
    watching(world, gaps_seconds=NEVER)
    outage(world)
    pr = world.up.open_pull_request()
    world.clock.advance(LATER)
    world.sim.faults.add(Fault(kind, Match("POST", "/attempts$"), times=1))
    world.start()

    wait_until(lambda: len(world.sim.log.of("POST", "/attempts")) == 1, what="a question that is cut short")
    world.idle()
    for _ in range(2):
        world.clock.advance(timedelta(minutes=11))
        count = len(world.sim.log.of("GET", "/app/hook/deliveries"))
        wait_until(lambda: len(world.sim.log.of("GET", "/app/hook/deliveries")) >= count + 2, what="more looks")  # noqa: B023
    backend.wait_for_runs(1)

    assert questions == len(world.sim.log.of("POST", "/attempts"))
    assert {pr.head_sha: 1} == dict(heads_told(backend))


@pytest.mark.parametrize("failing", ["/pulls", "/app/hook/deliveries"])
def test_a_look_that_github_spoils_is_taken_again(world: World, failing: str) -> None:
    """An error half way loses nothing: the next look begins where the last whole one ended."""
    backend = world.backend("org/one", "L2", BY_HAND)
    watching(world)
    world.sim.faults.add(Fault(Kind.SERVER_ERROR, match=Match(path=f"{failing}$"), times=4))
    world.sim.webhook_url = NOBODY
    pr = world.up.open_pull_request()
    world.clock.advance(LATER)

    wait_until(lambda: heads_told(backend)[pr.head_sha] == 1, what="the run of what was missed")


def test_a_gap_that_cannot_be_healed_yet_is_shown_as_open(world: World) -> None:
    """It counts as found and as open, and as healed only once it is."""
    world.backend("org/one", "L4", BY_HAND)
    watching(world, missed_seconds=NEVER)
    down = world.sim.faults.add(Fault(Kind.SERVER_ERROR, Match("GET", r"/pulls/[0-9]+$"), times=None))
    world.sim.webhook_url = NOBODY
    world.up.open_pull_request()
    world.clock.advance(LATER)
    one, first = {"never_delivered": 1}, {"first_start": 1}  # The branch was there before we looked.

    wait_until(lambda: by_cause(world, "crcr_gaps_found_total") == first | one, what="a gap")
    assert (one, first) == (by_cause(world, "crcr_gaps_open"), by_cause(world, "crcr_gaps_healed_total"))
    assert " open " in words(shown(world, "/gaps"))
    world.sim.faults.remove(down)
    world.clock.advance(timedelta(hours=1))
    wait_until(lambda: by_cause(world, "crcr_gaps_healed_total") == first | one, what="its end")

    assert {} == by_cause(world, "crcr_gaps_open")
