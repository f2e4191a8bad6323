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
from relay.github.errors import Forbidden, IdentityChanged, NotInstalled, RetryLater
from relay.github.http import new_http_pool
from relay.github.keys import AppKey, Apps
from relay.github.needs import UPSTREAM_NEEDS, lacking
from relay.github.observed import Rerun, Role
from relay.github.port import Address, CheckRunWrite
from relay.simulator import Fault, JobPlan, Kind, Listener, Match, Mode, Reports, Simulator, wait_until
from tests.github.stand_in import UPSTREAM

NPU = Address(RepoName("org", "npu"))

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
    (found,) = await client.find_check_runs(at, pull.head_sha, "crcr/gate", "17")
    assert (number, "completed", "neutral") == (found.id, found.status, found.conclusion)
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


def slow_and_failing(duration: float) -> Listener:
    jobs = (
        JobPlan("build", reports=Reports.SILENT, conclusion="failure", duration=duration),
        JobPlan("lint", reports=Reports.SILENT),
    )
    return Listener(jobs=jobs, mode=Mode.DIRECT)


async def test_a_run_is_found_observed_rerun_and_cancelled(client: GitHubClient, sim: Simulator) -> None:
    """From a delivery id to what became of each job, and again: all that reruns and disputes are made of."""
    backend = sim.create_backend("org/npu", listener=slow_and_failing(0))
    before = datetime.now(UTC) - timedelta(minutes=1)
    await client.dispatch(NPU, "push", b'{"delivery_id": "d-1", "payload": {}}')
    (run,) = await asyncio.to_thread(backend.wait_until_done)

    (found,) = await client.find_runs(NPU, before)
    assert (str(run.id), "crcr d-1", "failure", 1) == (found.run_id, found.title, found.conclusion, found.run_attempt)
    assert () == await client.find_runs(NPU, before + timedelta(hours=1))

    observed = await client.observe_run(NPU, found.run_id, 1, None)
    assert observed is not None
    assert (".github/workflows/crcr.yml", backend.head) == (observed.path, observed.head_sha)
    assert await client.observe_run(NPU, found.run_id, 1, observed.etag) is None
    jobs = await client.observe_jobs(NPU, found.run_id, 1)
    assert {"build": "failure", "lint": "success"} == {job.name: job.conclusion for job in jobs}

    backend.listener = slow_and_failing(30)
    assert Rerun.STARTED is (await client.rerun_failed_jobs(NPU, found.run_id)).outcome
    await asyncio.to_thread(wait_until, lambda: run.status == "completed")
    assert 2 == len(await client.observe_jobs(NPU, found.run_id, 2))
    assert Rerun.STARTED is (await client.rerun_run(NPU, found.run_id)).outcome
    await asyncio.to_thread(wait_until, lambda: run.status == "completed")
    assert not await client.cancel_run(NPU, found.run_id)

    assert Rerun.IMPOSSIBLE is (await client.rerun_run(NPU, "1")).outcome
    await client.dispatch(NPU, "push", b'{"delivery_id": "d-2", "payload": {}}')
    late = (await asyncio.to_thread(backend.wait_for_runs, 2))[1]
    assert Rerun.RUNNING is (await client.rerun_run(NPU, str(late.id))).outcome
    assert await client.cancel_run(NPU, str(late.id))
    assert "cancelled" == late.conclusion
    assert Rerun.STARTED is (await client.rerun_run(NPU, str(late.id))).outcome
    assert await client.cancel_run(NPU, str(late.id))


async def test_without_actions_write_a_rerun_is_forbidden_and_looking_is_not(
    client: GitHubClient, sim: Simulator
) -> None:
    """The permission is optional: what we may not start we may still see."""
    sim.create_backend("org/npu", listener=slow_and_failing(0), permissions={"actions": "read", "contents": "write"})
    await client.dispatch(NPU, "push", b'{"delivery_id": "d-1", "payload": {}}')
    (found,) = await client.find_runs(NPU, datetime.now(UTC) - timedelta(minutes=1))

    for refused in (client.rerun_run, client.rerun_failed_jobs, client.cancel_run):
        with pytest.raises(Forbidden) as caught:
            await refused(NPU, found.run_id)
        assert "missing_permission" == caught.value.reason


async def test_a_conversation_on_a_pull_request(client: GitHubClient, sim: Simulator) -> None:
    """Who may ask, what is answered in place, and whose head a commit is."""
    upstream = sim.create_upstream(str(UPSTREAM))
    at = Address(UPSTREAM)
    for login, role in {"ada": "write", "tom": "triage", "sam": "read"}.items():
        upstream.set_role(login, role)
    upstream.set_role("kim", "triage", custom="security")
    pull = upstream.open_pull_request(author="eve", labels=["ciflow/crcr/npu"])
    other = upstream.open_pull_request(author="eve")

    roles = {
        login: await client.role_of(at, login) for login in ("ada", "tom", "sam", "kim", "eve", "nobody", "x[bot]")
    }
    assert {
        "ada": Role.WRITE, "tom": Role.TRIAGE, "sam": Role.READ, "kim": Role.TRIAGE, "eve": Role.READ,
        "nobody": Role.NONE, "x[bot]": Role.NONE,
    } == roles  # fmt: skip

    seen = await client.pull(at, pull.number)
    assert (pull.head_sha, ("ciflow/crcr/npu",), "eve") == (seen.head_sha, seen.labels, seen.author)
    assert (pull.number,) == await client.pulls_of_commit(at, pull.head_sha)
    assert () == await client.pulls_of_commit(at, "f" * 40)

    mark = "<!-- crcr:reply 9 -->"
    upstream.comment(pull, "eve", f"{mark} mine")
    assert await client.find_comment(at, pull.number, mark) is None
    sim.faults.add(Fault(Kind.SERVER_ERROR_AFTER, Match("POST", "/comments"), times=1))
    with pytest.raises(RetryLater):
        await client.create_comment(at, pull.number, f"{mark}\nQueued.")
    made = await client.find_comment(at, pull.number, mark)
    assert made is not None
    await client.update_comment(at, made, f"{mark}\nDone.")
    assert [f"{mark} mine", f"{mark}\nDone."] == [comment.body for comment in upstream.comments(pull)]
    assert made < await client.create_comment(at, other.number, mark)


async def test_a_merge_group_of_one_has_its_pull_request_s_tree(client: GitHubClient, sim: Simulator) -> None:
    """What was tested on the head need not be tested again, until the base has moved."""
    upstream = sim.create_upstream(str(UPSTREAM))
    pull = upstream.open_pull_request()
    group = upstream.add_to_merge_queue(pull)
    upstream.push(files={"other.py": "x\n"})
    later = upstream.add_to_merge_queue(pull)

    tree = await client.tree_of(Address(UPSTREAM), pull.head_sha)

    assert tree == await client.tree_of(Address(UPSTREAM), group.head_sha)
    assert tree != await client.tree_of(Address(UPSTREAM), later.head_sha)


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
