"""Every request that the relay can send to GitHub fits GitHub's own description of its API."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import respx
from openapi_core import OpenAPI

from allowlist.model import RepoName
from relay.github import calls
from relay.github.client import GitHubClient
from relay.github.cold import ColdGitHub
from relay.github.http import new_http_client
from relay.github.keys import AppKey, Apps
from relay.github.port import Address, CheckAction, CheckRunWrite, GitHub
from tests.contract.npm_package import PackageUnavailableError
from tests.contract.openapi_description import OPERATIONS, OpenAPIError, load, validate
from tests.github.loopback import serving
from tests.github.stand_in import API, HEAD, UPSTREAM, Clock, StandIn, new_pem

pytestmark = [pytest.mark.anyio, pytest.mark.npm]

NPU = Address(RepoName("org", "npu"))
PINNED = Address(UPSTREAM, repository_id=1, installation_id=40)
AT = datetime(2026, 11, 30, 14, 5, tzinfo=UTC)
SAMPLE = {"event_type": "push", "delivery_id": "x", "payload": {"ref": "refs/heads/main"}, "relay": {"schema": 1}}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def description() -> OpenAPI:
    """GitHub's description, cut to what we use. Skips, with the reason, where npm cannot fetch it."""
    try:
        return load()
    except PackageUnavailableError as error:
        pytest.skip(f"GitHub's OpenAPI description is not to be had: {error}")


@pytest.fixture(scope="session")
def apps() -> Apps:
    key = AppKey.load(11, new_pem())
    return Apps(key, key)


def a_check(status: str, conclusion: str | None) -> CheckRunWrite:
    done = status == "completed"
    action = CheckAction("Re-run", "Dispatch again", "rerun")
    return CheckRunWrite(
        "crcr/gate", HEAD, status, conclusion, "t", "s", "x", "https://relay.example/1", "17", AT,
        AT if done else None, (action,) if done else (),
    )  # fmt: skip


async def file(github: GitHub) -> None:
    await github.read_file(PINNED, ".github/allowlist.yml", "release/1.x", 'W/"a"')


async def ancestry(github: GitHub) -> None:
    await github.contains_commit(PINNED, HEAD, ["release/1"])


#: One entry per method of the port (but aclose, which sends nothing); a test below keeps it whole.
USES: dict[str, Callable[[GitHub], Awaitable[object]]] = {
    "locate": lambda github: github.locate(NPU),
    "dispatch": lambda github: github.dispatch(NPU, "push", json.dumps(SAMPLE).encode()),
    "create_check_run": lambda github: github.create_check_run(PINNED, a_check("queued", None)),
    "update_check_run": lambda github: github.update_check_run(PINNED, 900, a_check("completed", "neutral")),
    "find_run": lambda github: github.find_run(NPU, "d-1", AT),
    "find_check_runs": lambda github: github.find_check_runs(PINNED, HEAD, "crcr/org/npu", "17"),
    "changed_paths": lambda github: github.changed_paths(PINNED, 5),
    "compare_paths": lambda github: github.compare_paths(PINNED, "b" * 40, HEAD),
    "read_file": file,
    "contains_commit": ancestry,
    "tree_of": lambda github: github.tree_of(PINNED, HEAD),
    "role_of": lambda github: github.role_of(PINNED, "Ada-L"),
    "create_comment": lambda github: github.create_comment(PINNED, 5, "<!-- crcr 1 -->\nDone."),
    "update_comment": lambda github: github.update_comment(PINNED, 901, "Done."),
    "find_comment": lambda github: github.find_comment(PINNED, 5, "<!-- crcr 1 -->", AT),
    "pull": lambda github: github.pull(PINNED, 5),
    "pulls_of_commit": lambda github: github.pulls_of_commit(PINNED, HEAD),
    "find_runs": lambda github: github.find_runs(NPU, AT),
    "observe_run": lambda github: github.observe_run(NPU, "17", 2, 'W/"a"'),
    "observe_jobs": lambda github: github.observe_jobs(NPU, "17", 2),
    "rerun_run": lambda github: github.rerun_run(NPU, "17"),
    "rerun_failed_jobs": lambda github: github.rerun_failed_jobs(NPU, "17"),
    "cancel_run": lambda github: github.cancel_run(NPU, "17"),
}


def test_every_method_of_the_port_is_used_here() -> None:
    """A method added to the port without a request checked against GitHub's description fails here."""
    methods = {name for name, _ in inspect.getmembers(GitHub, inspect.isfunction) if not name.startswith("_")}

    assert methods == {*USES, "aclose"}


@pytest.mark.parametrize("method", USES)
async def test_what_we_send_is_what_github_describes(
    method: str, description: OpenAPI, apps: Apps, httpx2_mock: respx.Router
) -> None:
    """Paths, queries, bodies and their types, of the call itself and of the lookups and mints before it."""
    stand_in = StandIn(Clock())
    stand_in.add("org/npu", id=7)
    stand_in.add(str(UPSTREAM), id=1, installation_id=40)
    side = {"sha": HEAD, "ref": "main"}
    times = {"created_at": "2026-11-30T14:05:00Z", "updated_at": "2026-11-30T14:05:00Z"}
    for path, answer in {
        "/repos/org/npu/actions/runs": {"workflow_runs": []},
        "/repos/org/npu/actions/runs/17/attempts/2/jobs": {"jobs": []},
        "/repos/up/stream/collaborators/Ada-L/permission": {"role_name": "write"},
        "/repos/up/stream/issues/5/comments": [],
        "/repos/up/stream/pulls/5": {"number": 5, "state": "open", "head": side, "base": side, "labels": [], **times},
        f"/repos/up/stream/commits/{HEAD}/pulls": [],
        f"/repos/up/stream/git/commits/{HEAD}": {"tree": {"sha": HEAD}},
        f"/repos/up/stream/commits/{HEAD}/check-runs": {"check_runs": []},
        "/repos/up/stream/pulls/5/files": [],
        f"/repos/up/stream/compare/{'b' * 40}...{HEAD}": {"status": "ahead", "files": []},
        "/repos/up/stream/contents/.github/allowlist.yml": {},
        f"/repos/up/stream/compare/main...{HEAD}": {"status": "ahead"},
        f"/repos/up/stream/compare/release/1...{HEAD}": {"status": "behind"},
    }.items():
        stand_in.will("GET", path, httpx.Response(304) if "contents" in path else httpx.Response(200, json=answer))
    stand_in.will("GET", "/repos/org/npu/actions/runs/17/attempts/2", httpx.Response(304))
    for verb, status in {"rerun": 201, "rerun-failed-jobs": 201, "cancel": 202}.items():
        stand_in.will("POST", f"/repos/org/npu/actions/runs/17/{verb}", httpx.Response(status, json={}))
    stand_in.will("POST", "/repos/up/stream/issues/5/comments", httpx.Response(201, json={"id": 901}))
    stand_in.will("PATCH", "/repos/up/stream/issues/comments/901", httpx.Response(200, json={"id": 901}))
    httpx2_mock.route().mock(side_effect=stand_in.handle)
    client = GitHubClient(apps=apps, upstream=UPSTREAM, http=new_http_client(user_agent="t"), api_url=API, now=Clock())

    await USES[method](client)
    await client.aclose()

    assert 2 <= len(stand_in.requests)
    for request in stand_in.requests:
        validate(description, request.method, str(request.url), request.headers, request.content)


async def test_what_the_doctor_sends_is_what_github_describes(description: OpenAPI, apps: Apps) -> None:
    """The calls that PyGithub makes for us are checked like our own."""
    with serving() as loopback:
        loopback.says("GET", "/app", {"slug": "crcr", "permissions": {}, "events": []})
        loopback.says("GET", "/app/installations", [])
        told = {"id": 7, "full_name": "org/npu", "default_branch": "main", "archived": False}
        loopback.says("GET", "/repos/org/npu", told)
        loopback.says("GET", "/repos/org/npu/actions/permissions", {"enabled": True})
        http = new_http_client(user_agent="t")
        client = GitHubClient(apps=apps, upstream=UPSTREAM, http=http, api_url=loopback.url, now=Clock())
        cold = ColdGitHub(tokens=client.tokens, api_url=loopback.url, user_agent="t", now=Clock())
        await cold.app(apps.upstream)
        await cold.installations(apps.upstream)
        await cold.repository(apps.downstream, Address(RepoName("org", "npu"), 7, 50))
        await client.aclose()

    assert 6 == len(loopback.seen)
    for seen in loopback.seen:
        validate(description, seen.method, f"{API}{seen.path}", seen.headers, seen.body)


def test_every_route_we_count_is_described() -> None:
    """The routes in the code are templates of the description, and each described operation has a user."""
    tree = ast.parse(Path(inspect.getfile(calls)).read_text())
    routes = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/")
        if "{" in node.value
    }
    by_pygithub = {"/app", "/app/installations", "/repos/{owner}/{repo}/actions/permissions"}

    assert set(OPERATIONS) - by_pygithub <= routes


SAMPLE_OF_11 = {"event_type": "push", "client_payload": dict.fromkeys("abcdefghijk", 1)}
BROKEN: list[tuple[str, str, str, Any]] = [
    ("missing event_type", "POST", "/repos/o/r/dispatches", '{"client_payload": {}}'),
    ("11 keys", "POST", "/repos/o/r/dispatches", json.dumps(SAMPLE_OF_11)),
    ("101 characters", "POST", "/repos/o/r/dispatches", json.dumps({"event_type": "x" * 101})),
    ("missing head_sha", "POST", "/repos/o/r/check-runs", '{"name": "crcr/gate"}'),
    ("unknown status", "POST", "/repos/o/r/check-runs", '{"name": "n", "head_sha": "a", "status": "done"}'),
    ("4 actions", "PATCH", "/repos/o/r/check-runs/1", json.dumps({"actions": [
        {"label": "a", "description": "b", "identifier": str(n)} for n in range(4)]})),
    ("no date", "PATCH", "/repos/o/r/check-runs/1", '{"started_at": "yesterday"}'),
    ("ids as text", "POST", "/app/installations/5/access_tokens", '{"repository_ids": ["7"]}'),
    ("unknown access", "POST", "/app/installations/5/access_tokens", '{"permissions": {"contents": "all"}}'),
    ("id that is none", "PATCH", "/repos/o/r/check-runs/abc", "{}"),
    ("page that is none", "GET", "/repos/o/r/pulls/5/files?page=first", ""),
    ("comment without body", "POST", "/repos/o/r/issues/5/comments", "{}"),
    ("since that is none", "GET", "/repos/o/r/issues/5/comments?since=yesterday", ""),
    ("run that is none", "POST", "/repos/o/r/actions/runs/abc/rerun", ""),
    ("attempt that is none", "GET", "/repos/o/r/actions/runs/1/attempts/last", ""),
    ("unknown path", "POST", "/repos/o/r/dispatch", '{"event_type": "push"}'),
    ("unknown method", "PUT", "/repos/o/r/dispatches", '{"event_type": "push"}'),
    ("slash in a path part", "GET", "/repos/o/r/compare/release/1...main", ""),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_the_description_catches_what_github_refuses(description: OpenAPI, method: str, path: str, body: str) -> None:
    """A check that cannot fail proves nothing: each of these is one mistake away from a request of ours."""
    with pytest.raises(OpenAPIError):
        validate(description, method, f"{API}{path}", {"content-type": "application/json"}, body.encode())


def test_the_cut_is_small_and_has_no_prose(description: OpenAPI) -> None:
    """Loading the whole description takes 12 s and holds 13 MB; the cut must stay quick to load."""
    cut = description.spec.read_value()
    text = json.dumps(cut)
    action = cut["paths"]["/repos/{owner}/{repo}/check-runs"]["post"]["requestBody"]["content"]["application/json"][
        "schema"
    ]["properties"]["actions"]["items"]

    assert len(text) < 200_000
    assert not any(f'"{prose}"' in text for prose in ("operationId", "externalDocs", "x-github", "example"))
    assert {"label", "description", "identifier"} == set(action["properties"])
