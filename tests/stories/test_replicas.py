"""Several processes share a PostgreSQL: whichever dies or is rolled, nothing is lost and nothing is done twice."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from relay.simulator import Backend, JobPlan, Listener, Mode
from relay.store.engine import Store
from relay.store.tables import Effect
from tests.conftest import empty
from tests.stories.balancer import Balancer, balancing
from tests.stories.relay_process import RelayProcess
from tests.stories.world import World

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

REPORTING = Listener(jobs=(JobPlan(name="test", duration=0.3),), mode=Mode.DIRECT)


@pytest.fixture
def world(tmp_path: Path, postgres_url: str) -> Iterator[World]:
    """A world on PostgreSQL."""
    empty(postgres_url)
    with World(tmp_path, postgres_url) as opened:
        yield opened


class Deployment:
    """Processes behind a balancer, each with a log of its own; all are ended with the block."""

    def __init__(self, world: World, balancer: Balancer) -> None:
        self.world = world
        self.balancer = balancer
        self.processes: list[RelayProcess] = []

    def start(self, *roles: str, **settings: Any) -> list[RelayProcess]:
        """One more process of each role; those that answer are among the balancer's members once they are ready."""
        begun = []
        for role in roles:
            log = self.world.folder / f"{len(self.processes)}-{role}.log"
            begun.append(RelayProcess(self.world, log, role=role, public_url=self.balancer.url, **settings))
            self.processes.append(begun[-1])
        for role, process in zip(roles, begun, strict=True):
            process.wait_until_ready()
            if role != "worker":
                self.balancer.members.append(process.url)
        return begun


@pytest.fixture
def deployed(world: World) -> Iterator[Deployment]:
    """Nothing runs yet."""
    with balancing() as balancer, contextlib.ExitStack() as stack:
        deployment = Deployment(world, balancer)
        stack.callback(lambda: [process.stop() for process in deployment.processes])
        yield deployment


def pass_leases_of(world: World, worker: str) -> None:
    """A minute passes for what this process held, which nobody would want to wait for."""
    past = world.clock.now() - timedelta(seconds=1)
    held = update(Effect).where(Effect.owner == worker, Effect.state == "running").values(lease=past)  # type: ignore[arg-type]
    with contextlib.closing(Store(world.database_url)) as store:
        store.write_now(lambda conn: conn.execute(held))


def readiness(url: str) -> tuple[int, Any]:
    """What ``/readyz`` says; status 0 where nobody answers."""
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
    except OSError:
        return 0, None


def test_any_replica_may_die_or_be_rolled(deployed: Deployment) -> None:
    """Two of each: one of each is killed in the middle of a fan-out, the others leave in a deploy amid callbacks."""
    world, balancer = deployed.world, deployed.balancer
    backends = [world.backend(f"org{number}/backend", "L4", REPORTING) for number in range(12)]
    web, second_web, worker, second_worker = deployed.start("web", "web", "worker", "worker", drain_seconds=1)
    world.sim.webhook_url = f"{balancer.url}/github/webhook"
    world.sim.latency = 0.15

    prs = [world.up.open_pull_request()]
    world.settled(lambda: len(world.sim.log.dispatches()) >= 4, "a fan-out half done")
    worker.kill()
    web.kill()
    killed = time.perf_counter()
    prs.append(world.up.open_pull_request())
    world.sim.latency = 0.0
    third_web, _ = deployed.start("web", "worker")
    pass_leases_of(world, worker.worker)
    prs.append(world.up.open_pull_request())
    world.settled(lambda: has_run(world, prs[2].delivery.guid), "callbacks under way")
    second_web.terminate()
    second_worker.terminate()
    world.settled(lambda: readiness(second_web.url)[0] != 200, "a process that leaves")
    prs.append(world.up.open_pull_request())
    statuses = [second_web.stop(), second_worker.stop()]
    for pr in prs:
        for backend in backends:
            world.up.wait_for_check(pr.head_sha, f"crcr/{backend.name}", conclusion="success", timeout=30)
        world.up.wait_for_check(pr.head_sha, "crcr/gate", conclusion="success")

    assert [0, 0] == statuses
    assert [202] * 4 == [pr.delivery.response.status for pr in prs]
    assert {web.url, second_web.url, third_web.url} == {member for member, _, _ in balancer.answered}
    runs = Counter(
        (one.repository_name, one.body["client_payload"]["delivery_id"]) for one in world.sim.log.dispatches()
    )
    assert {(backend.name, pr.delivery.guid) for backend in backends for pr in prs} == set(runs)
    before = {one.repository_name for one in world.sim.log.dispatches() if one.began < killed}
    assert max(runs.values()) <= 2
    assert {name for (name, guid), count in runs.items() if count > 1} <= before
    assert all_reported(world, backends)


def test_a_process_that_leaves_says_so_while_it_answers(world: World) -> None:
    """Whoever spreads requests sees it by the readiness, and has time to send them elsewhere: none is refused yet."""
    world.start()
    world.settled(lambda: readiness(world.url)[0] == 200, "a process that is ready")
    assert world.relay is not None
    world.relay.worker.stop()  # What the first SIGTERM does, to begin with.

    status, said = readiness(world.url)
    assert 503 == status
    assert not said["parts"]["serving"]["ok"]
    assert 202 == world.up.open_pull_request().delivery.response.status


def has_run(world: World, delivery: str) -> bool:
    """Whether a backend was told of this webhook."""
    return any(one.body["client_payload"]["delivery_id"] == delivery for one in world.sim.log.dispatches())


def all_reported(world: World, backends: list[Backend]) -> bool:
    """Whether each run's start and end was answered 200 in the end, whatever stood in between."""
    taken = {(one.run_id, one.status) for one in world.sim.callbacks if one.answer == 200}
    ran = {str(run.id) for backend in backends for run in backend.runs}
    return {(run, status) for run in ran for status in ("in_progress", "completed")} == taken
