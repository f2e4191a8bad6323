"""The client against the simulated GitHub, which enforces the platform's documented rules by itself."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from allowlist.model import RepoName
from relay.github.client import GitHubClient
from relay.github.cold import ColdGitHub
from relay.github.errors import IdentityChanged, NotInstalled
from relay.github.http import new_http_pool
from relay.github.keys import AppKey, Apps
from relay.github.needs import UPSTREAM_NEEDS, lacking
from relay.github.port import Address, CheckRunWrite
from relay.simulator import Fault, Kind, Listener, Match, Simulator
from tests.github.stand_in import UPSTREAM

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture
def key(sim: Simulator) -> AppKey:
    app = sim.create_app()
    return AppKey.load(app.id, app.private_key_pem)


@pytest.fixture
async def client(sim: Simulator, key: AppKey, trust: ssl.SSLContext) -> AsyncIterator[GitHubClient]:
    made = GitHubClient(
        apps=Apps(key, key),
        upstream=UPSTREAM,
        http=new_http_pool(user_agent="crcr-test", trust=trust),
        api_url=sim.url,
        now=lambda: datetime.now(UTC),
    )
    yield made
    await made.aclose()


def a_check(head_sha: str, status: str, conclusion: str | None) -> CheckRunWrite:
    return CheckRunWrite("crcr/gate", head_sha, status, conclusion, "t", "s", "", None, "17", None, None)


async def test_a_dispatched_run_is_found_by_its_delivery_id(client: GitHubClient, sim: Simulator) -> None:
    """GitHub answers a dispatch without a run's id, so after a lost answer the name is the only trace of it."""
    sim.create_upstream(str(UPSTREAM))
    backend = sim.create_backend("org/npu", listener=Listener(jobs=()))
    blind = sim.create_backend("org/blind")
    before = datetime.now(UTC) - timedelta(minutes=1)

    await client.dispatch(Address(RepoName("org", "npu")), "push", b'{"delivery_id": "d-1", "payload": {}}')
    await asyncio.to_thread(backend.wait_for_runs)

    assert await client.find_run(Address(RepoName("org", "npu")), "d-1", before) is True
    assert await client.find_run(Address(RepoName("org", "npu")), "d-2", before) is False
    sim.faults.add(Fault(Kind.MISSING_PERMISSION, Match("GET", "/actions/runs"), times=1))
    assert await client.find_run(Address(RepoName.parse(blind.name)), "d-1", before) is None


async def test_every_call_is_taken(client: GitHubClient, sim: Simulator, key: AppKey) -> None:
    """Reads, checks and dispatches with tokens no wider than each needs: the simulator refuses what GitHub would."""
    upstream = sim.create_upstream(str(UPSTREAM), files={"a.yml": "L1: []\n"})
    backend = sim.create_backend("org/npu")
    pull = upstream.open_pull_request()
    at = Address(UPSTREAM)
    located = await client.locate(at)
    at = Address(UPSTREAM, located.repository_id, located.installation_id)

    number = await client.create_check_run(at, a_check(pull.head_sha, "in_progress", None))
    await client.update_check_run(at, number, a_check(pull.head_sha, "completed", "neutral"))
    assert number == await client.find_check_run(at, pull.head_sha, "crcr/gate", "17")
    assert "neutral" == upstream.checks(pull.head_sha)["crcr/gate"].conclusion

    changed = await client.changed_paths(at, pull.number)
    assert changed.complete
    assert changed.paths
    assert changed == await client.compare_paths(at, located.default_branch or "main", pull.head_sha)

    version = await client.read_file(at, "a.yml", None, None)
    assert version is not None
    assert b"L1: []\n" == version.text
    assert await client.read_file(at, "a.yml", None, version.etag) is None
    assert not await client.contains_commit(at, pull.head_sha)

    told = await client.dispatch(Address(RepoName("org", "npu")), "push", json.dumps({"payload": 1}).encode())
    assert RepoName("org", "npu") == told.full_name
    assert 1 == len(backend.dispatches)

    cold = ColdGitHub(tokens=client.tokens, api_url=sim.url, user_agent="t", now=lambda: datetime.now(UTC))
    facts = await cold.installations(key)
    assert {"up", "org"} == {fact.account for fact in facts}
    assert all(lacking(fact.permissions, UPSTREAM_NEEDS).keys() <= UPSTREAM_NEEDS.keys() for fact in facts)
    assert not (await cold.repository(key, at)).archived


async def test_a_backend_without_the_app_is_named_as_such(client: GitHubClient, sim: Simulator) -> None:
    """Case 4, with the simulator's own answer."""
    sim.create_backend("org/npu", installed=False)

    with pytest.raises(NotInstalled):
        await client.dispatch(Address(RepoName("org", "npu")), "push", b"{}")


async def test_a_renamed_backend_is_followed_and_a_taken_name_is_not(client: GitHubClient, sim: Simulator) -> None:
    """Case 40: after a rename the pinned repository still gets its dispatch; once the name is taken, nobody does."""
    backend = sim.create_backend("org/npu")
    at = Address(RepoName("org", "npu"))
    located = await client.dispatch(at, "push", b"{}")
    pinned = Address(at.repo, located.repository_id, located.installation_id)

    backend.rename("org/npu2")
    await client.dispatch(pinned, "push", b"{}")
    assert 2 == len(sim.backend("org/npu2").dispatches)

    impostor = sim.create_backend("org/npu")
    with pytest.raises(IdentityChanged):
        await client.dispatch(pinned, "push", b"{}")
    assert [] == impostor.dispatches
