"""The doctor's facts, by PyGithub over a real socket: no sleeping, no repeating, our own errors."""

from __future__ import annotations

import json
import ssl
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from allowlist.model import RepoName
from relay.github.client import GitHubClient
from relay.github.cold import ColdGitHub, RepositoryFacts
from relay.github.errors import Forbidden, GitHubError, Limited, RetryLater, Unauthenticated
from relay.github.http import new_http_client
from relay.github.keys import Apps
from relay.github.needs import DOWNSTREAM_NEEDS, DOWNSTREAM_OPTIONS, UPSTREAM_NEEDS, forgone, lacking
from relay.github.port import Address
from tests.github.loopback import FAR, MINTED, Loopback, answer, serving
from tests.github.stand_in import UPSTREAM, Clock

pytestmark = pytest.mark.anyio

NPU = Address(RepoName("org", "npu"), repository_id=7, installation_id=50)
INSTALLATIONS = "/app/installations"


@pytest.fixture(params=["", "/api/v3"], ids=["plain", "enterprise"])
def loopback(request: pytest.FixtureRequest) -> Iterator[Loopback]:
    with serving(request.param) as server:
        yield server


@pytest.fixture
async def cold(loopback: Loopback, apps: Apps, clock: Clock, trust: ssl.SSLContext) -> AsyncIterator[ColdGitHub]:
    http = new_http_client(user_agent="crcr-test", trust=trust)
    client = GitHubClient(apps=apps, upstream=UPSTREAM, http=http, api_url=loopback.url, now=clock)
    yield ColdGitHub(tokens=client.tokens, api_url=loopback.url, user_agent="crcr-test", now=clock)
    await client.aclose()


def installation(number: int, **change: object) -> dict[str, object]:
    return {
        "id": number,
        "account": {"login": f"org{number}", "id": number},
        "permissions": {"contents": "write", "metadata": "read"},
        "events": ["push"],
        "repository_selection": "selected",
        "suspended_at": None,
    } | change


async def test_all_installations_are_listed_without_waiting(cold: ColdGitHub, loopback: Loopback, apps: Apps) -> None:
    """Every page, as the app itself, in less than PyGithub's own pauses would take."""
    pages = [
        [installation(n) for n in range(1, 101)],
        [installation(101, suspended_at=FAR, repository_selection="all")],
    ]

    def page(request: BaseHTTPRequestHandler) -> None:
        last = "page=2" in request.path
        link = {} if last else {"Link": f'<{loopback.url}{INSTALLATIONS}?per_page=100&page=2>; rel="next"'}
        answer(request, 200, json.dumps(pages[last]).encode(), **link)

    loopback.answers["GET", INSTALLATIONS] = page
    began = time.monotonic()

    found = await cold.installations(apps.downstream)

    assert time.monotonic() - began < 1.0
    assert list(range(1, 102)) == [one.installation_id for one in found]
    assert (True, True, "org101") == (found[100].suspended, found[100].all_repositories, found[100].account)
    assert {"actions": "read"} == lacking(found[0].permissions, DOWNSTREAM_NEEDS)
    first, second = loopback.asked("GET", INSTALLATIONS)
    assert f"Bearer {apps.downstream.jwt(cold._now())}" == first.headers["authorization"]
    assert "per_page=100" in first.path
    assert "page=2" in second.path


async def test_the_app_says_what_it_asks_for(cold: ColdGitHub, loopback: Loopback, apps: Apps) -> None:
    """The app's own settings are what new installations are asked to grant."""
    told = {"slug": "crcr", "permissions": {"checks": "write"}, "events": ["push", "pull_request"]}
    loopback.says("GET", "/app", told)

    facts = await cold.app(apps.upstream)

    assert ("crcr", ("push", "pull_request")) == (facts.slug, facts.events)
    assert {"checks": "write"} == dict(facts.permissions)


REPOSITORY = {"id": 7, "full_name": "org/npu", "default_branch": "main", "archived": True}


async def test_whether_actions_are_on_is_known_with_permission_only(
    cold: ColdGitHub, loopback: Loopback, apps: Apps
) -> None:
    """Without administration read the answer is "unknown", never "off"."""
    loopback.says("GET", "/repos/org/npu", REPOSITORY)
    loopback.says("GET", "/repos/org/npu/actions/permissions", {"enabled": False})
    known = await cold.repository(apps.downstream, NPU)
    assert RepositoryFacts(7, RepoName("org", "npu"), "main", archived=True, actions_enabled=False) == known


async def test_whether_actions_are_on_is_unknown_without_permission(
    cold: ColdGitHub, loopback: Loopback, apps: Apps
) -> None:
    """The mint refuses the permission, and the rest of the facts still come."""

    def mint(request: BaseHTTPRequestHandler) -> None:
        asked = loopback.seen[-1].body
        if b"administration" in asked:
            told = {"message": "The permissions requested are not granted to this installation."}
            answer(request, 422, json.dumps(told).encode())
        else:
            answer(request, 201, json.dumps(MINTED).encode())

    loopback.answers["POST", "/app/installations/50/access_tokens"] = mint
    loopback.says("GET", "/repos/org/npu", REPOSITORY)

    facts = await cold.repository(apps.downstream, NPU)

    assert (None, True) == (facts.actions_enabled, facts.archived)


@pytest.mark.parametrize(
    ("status", "headers", "kind"),
    [
        (401, {}, Unauthenticated),
        (403, {"X_Accepted_GitHub_Permissions": "metadata=read"}, Forbidden),
        (403, {"Retry_After": "60"}, Limited),
        (429, {}, Limited),
        (502, {}, RetryLater),
    ],
)
async def test_errors_are_ours_and_come_at_once(
    cold: ColdGitHub, loopback: Loopback, apps: Apps, status: int, headers: dict[str, str], kind: type[GitHubError]
) -> None:
    """PyGithub would sleep through a limit and repeat a failure; we hear of it, once, in our own terms."""
    loopback.says("GET", INSTALLATIONS, {"message": "No."}, status, **headers)
    began = time.monotonic()

    with pytest.raises(GitHubError) as caught:
        await cold.installations(apps.downstream)

    assert kind is type(caught.value)
    assert time.monotonic() - began < 1.0
    assert 1 == len(loopback.asked("GET", INSTALLATIONS))
    assert apps.downstream.jwt(cold._now()) not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("body", [b"<html>", b"7", b'{"id":1}', b'[{"id":"x"}]', b'[{"id":1}]', b"[7]", b"[" * 100_000])
async def test_nonsense_is_an_outage(cold: ColdGitHub, loopback: Loopback, apps: Apps, body: bytes) -> None:
    """Whatever PyGithub trips over becomes one short sentence."""
    loopback.answers["GET", INSTALLATIONS] = lambda request: answer(request, 200, body)

    with pytest.raises(RetryLater) as caught:
        await cold.installations(apps.downstream)

    assert "bad_answer" == caught.value.reason
    assert len(caught.value.detail) < 400


async def test_a_server_that_hangs_up_is_an_outage(cold: ColdGitHub, loopback: Loopback, apps: Apps) -> None:
    """A connection that ends without an answer is the network's fault, and said so."""

    def hang_up(request: BaseHTTPRequestHandler) -> None:
        request.close_connection = True

    loopback.answers["GET", INSTALLATIONS] = hang_up

    with pytest.raises(RetryLater) as caught:
        await cold.installations(apps.downstream)

    assert "network" == caught.value.reason


@pytest.mark.parametrize(
    ("granted", "missing"),
    [
        ({}, {"actions": "read", "contents": "write", "metadata": "read"}),
        ({"actions": "write", "contents": "read", "metadata": "read"}, {"contents": "write"}),
        ({"actions": "read", "contents": "admin", "metadata": "read"}, {}),
        ({"actions": "none", "contents": "write", "metadata": "read"}, {"actions": "read"}),
    ],
)
def test_what_an_installation_lacks(granted: dict[str, str], missing: dict[str, str]) -> None:
    """Write includes read; unknown words grant nothing."""
    assert missing == lacking(granted, DOWNSTREAM_NEEDS)
    assert {} == lacking(UPSTREAM_NEEDS, UPSTREAM_NEEDS)


@pytest.mark.parametrize(("access", "told"), [("", True), ("read", True), ("write", False), ("admin", False)])
def test_reruns_are_an_option(access: str, told: bool) -> None:
    """Without actions write everything works, so it is no fault; what is forgone can be said in a sentence."""
    found = forgone({"contents": "write", "actions": access}, DOWNSTREAM_OPTIONS)

    assert [("actions", "write")] * told == [(option.permission, option.access) for option in found]
    assert all("dispatched anew" in option.without for option in found)
    assert "write" != DOWNSTREAM_NEEDS["actions"]
