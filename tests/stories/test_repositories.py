"""A backend's repository is put away and comes back: GitHub says so, and nobody waits for a probe or a person."""

from __future__ import annotations

from datetime import timedelta

import pytest

from relay.simulator import Backend, JobPlan, Listener, Mode, PullRequest, Reports, wait_until
from tests.stories.world import World

pytestmark = pytest.mark.slow

SILENT = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
NOBODY = "http://127.0.0.1:9/hook"


def told(backend: Backend) -> list[str]:
    """The heads that GitHub took dispatches of, for this backend."""
    taken = backend.world.log.dispatches(backend.name)
    return [entry.body["client_payload"]["relay"]["change"]["head_sha"] for entry in taken]


def given_up(world: World, count: int) -> list[PullRequest]:
    """So many pull requests of which the backend could not be told."""
    prs = []
    for number in range(count):
        prs.append(world.up.open_pull_request(title=f"Change {number}"))
        world.up.wait_for_check(prs[-1].head_sha, "crcr/gate", conclusion="neutral")
    world.idle()
    return prs


def test_an_unarchived_repository_is_told_at_once_of_what_it_missed(world: World) -> None:
    """Its circuit was open, and no time passes: each open head is told once."""
    backend = world.backend("org/backend", "L4", SILENT)
    world.start()
    first = world.up.open_pull_request(title="Before")
    backend.wait_for_runs()
    world.idle()
    backend.archive()
    said = world.get("/api/v1/backends/org/backend")["backend"]["last_error"]
    assert said.startswith("archived: GitHub says")
    prs = given_up(world, 5)
    assert "open" == world.get("/api/v1/backends/org/backend")["backend"]["circuit"]["state"]
    assert [first.head_sha] == told(backend)

    (delivery,) = backend.archive(on=False)
    backend.wait_for_runs(6)
    world.idle()

    assert ("repository", "unarchived", True) == (delivery.event, delivery.action, delivery.ok)
    assert sorted([first.head_sha, *(pr.head_sha for pr in prs)]) == sorted(told(backend))
    assert world.get("/api/v1/backends/org/backend")["backend"]["last_error"] is None


def test_that_it_is_back_is_heard_although_the_webhook_failed(world: World) -> None:
    """The relay was away at that moment: the delivery is asked for once more, like those of upstream."""
    backend = world.backend("org/backend", "L4", SILENT)
    world.start(missed_seconds=0.1)
    world.up.open_pull_request(title="Before")
    backend.wait_for_runs()
    backend.archive()
    (pr,) = given_up(world, 1)
    world.sim.webhook_url = NOBODY
    (lost,) = backend.archive(on=False)
    assert not lost.ok
    world.sim.webhook_url = f"{world.url}/github/webhook"
    world.clock.advance(timedelta(minutes=1))

    backend.wait_for_runs(2)
    wait_until(lambda: pr.head_sha in told(backend), what="what it missed")

    asked = [entry.path.split("/")[4] for entry in world.sim.log.of("POST", "/attempts")]
    assert [str(lost.id)] == asked


def test_what_is_said_of_it_follows_github_and_not_the_order_of_webhooks(world: World) -> None:
    """One that failed is heard last, and what it says has been over since: the backend's page says what holds now."""
    backend = world.backend("org/backend", "L2", SILENT)
    world.start()
    world.up.open_pull_request(title="Before")
    backend.wait_for_runs()
    world.idle()

    def said_at_last(*, archived: bool) -> str | None:
        world.sim.webhook_url = NOBODY
        (lost,) = backend.archive(on=not archived)
        world.sim.webhook_url = f"{world.url}/github/webhook"
        backend.archive(on=archived)
        world.idle()
        assert world.sim.redeliver(lost.guid).ok
        world.idle()
        error: str | None = world.get("/api/v1/backends/org/backend")["backend"]["last_error"]
        return error

    assert said_at_last(archived=False) is None
    assert (said_at_last(archived=True) or "").startswith("archived: GitHub says")
