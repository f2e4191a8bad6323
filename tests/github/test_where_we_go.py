"""Where our own requests go: to the hosts that the settings name, whatever an answer says."""

from __future__ import annotations

import json
import ssl
from http.server import BaseHTTPRequestHandler

import httpx
import pytest
from httpx2 import MockTransport, Request, Response

from allowlist.model import RepoName
from relay.github.client import GitHubClient
from relay.github.cold import ColdGitHub
from relay.github.errors import RetryLater
from relay.github.http import new_http_client
from relay.github.keys import Apps
from relay.github.listed import Side
from relay.github.port import Address
from relay.hud import ForwardFacts, HudClient, HudRefusedError
from relay.settings import SettingsError, load_settings
from tests.github.loopback import answer, serving
from tests.github.stand_in import UPSTREAM, Clock, StandIn

pytestmark = pytest.mark.anyio

EVIL = "https://evil.example"
ELSEWHERE = ["http://169.254.169.254/latest/meta-data", f"{EVIL}/crcr/results", "//evil.example/", "/internal"]


def hosts(github: StandIn) -> set[str]:
    """Every host that was asked for anything."""
    return {request.url.host for request in github.calls()}


async def test_a_next_page_is_asked_for_at_our_address(client: GitHubClient, github: StandIn) -> None:
    """Of a ``Link`` header only the cursor is taken, and of a cursor only what one is made of."""
    link = f'<{EVIL}/app/hook/deliveries?cursor=v1_17%26a%3D1&per_page=1>; rel="next"'
    github.will(
        "GET",
        "/app/hook/deliveries",
        httpx.Response(200, json=[], headers={"link": link}),
        httpx.Response(200, json=[]),
    )

    first = await client.deliveries(Side.UPSTREAM, None)
    await client.deliveries(Side.UPSTREAM, first.cursor)

    assert {"api.github.com"} == hosts(github)
    asked = github.calls("GET", "/app/hook/deliveries")[-1].url
    assert [("per_page", "100"), ("cursor", "v1_17&a=1")] == asked.params.multi_items()


async def test_the_last_page_of_a_talk_is_asked_for_at_our_address(client: GitHubClient, github: StandIn) -> None:
    """Of this one only a number is taken."""
    comments = f"/repos/{UPSTREAM}/issues/5/comments"
    link = f'<{EVIL}/comments?page=2>; rel="last"'
    github.will("GET", comments, httpx.Response(200, json=[], headers={"link": link}), httpx.Response(200, json=[]))

    await client.find_comment(Address(UPSTREAM), 5, "<!-- mark -->")

    assert {"api.github.com"} == hosts(github)
    assert ["1", "2"] == [request.url.params["page"] for request in github.calls("GET", "/comments")]


async def test_the_doctor_turns_no_page_at_another_s(apps: Apps, clock: Clock, trust: ssl.SSLContext) -> None:
    """PyGithub follows addresses. One that leads elsewhere is an answer that cannot be read, and nobody is asked."""
    page = [{"id": number, "account": {"login": "org", "id": 1}} for number in range(100)]
    with serving("") as github, serving("") as trap:
        # Another name for this machine, so another host.
        link = f'<{trap.url.replace("127.0.0.1", "localhost")}/app/installations?page=2>; rel="next"'

        def listed(request: BaseHTTPRequestHandler) -> None:
            answer(request, 200, json.dumps(page).encode(), Link=link)

        github.answers["GET", "/app/installations"] = listed
        http = new_http_client(user_agent="crcr-test", trust=trust)
        client = GitHubClient(apps=apps, upstream=UPSTREAM, http=http, api_url=github.url, now=clock)
        cold = ColdGitHub(tokens=client.tokens, api_url=github.url, user_agent="crcr-test", now=clock)

        with pytest.raises(RetryLater):
            await cold.installations(apps.downstream)
        await client.aclose()

        assert [] == trap.asked("GET", "/app/installations")


@pytest.mark.parametrize("elsewhere", ELSEWHERE)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_the_hud_sends_us_nowhere(status: int, elsewhere: str) -> None:
    """Its key and the reports are for it alone."""
    seen: list[str] = []

    def redirect(request: Request) -> Response:
        seen.append(str(request.url))
        return Response(status, headers={"location": elsewhere})

    facts = ForwardFacts(report_id=1, repo="o/r", level="L2", queue_seconds=None, execution_seconds=None, body="{}")
    async with new_http_client(user_agent="test", transport=MockTransport(redirect)) as http:
        with pytest.raises(HudRefusedError):
            await HudClient(http, url="https://hud.example/api", key="secret", now=Clock()).forward(facts)

    assert ["https://hud.example/api/crcr/results"] == seen


@pytest.mark.parametrize(
    ("api", "allowlist", "good"),
    [
        ("https://api.github.com", "https://github.com/o/r/blob/main/a.yml", True),
        ("https://ghes.example/api/v3", "https://ghes.example/o/r/blob/main/a.yml", True),
        ("https://api.github.com", f"{EVIL}/o/r/blob/main/a.yml", False),
        ("https://api.github.com", "https://github.com.evil.example/o/r/blob/main/a.yml", False),
        ("https://api.github.com", "https://github.com@evil.example/o/r/blob/main/a.yml", False),
        ("https://ghes.example/api/v3", "https://github.com/o/r/blob/main/a.yml", False),
        ("https://api.github.com", "HTTP://evil.example/o/r/blob/main/a.yml", False),
    ],
)
async def test_an_allowlist_s_address_is_of_the_github_that_is_asked(api: str, allowlist: str, good: bool) -> None:
    """It is always asked for at the API that is set; an address elsewhere would be read as a file of the same name."""
    given = {"upstream": RepoName("o", "r"), "github_app_id": 4, "github_private_key": "k", "webhook_secrets": ("s",)}
    if good:
        assert allowlist == load_settings({}, **given, github_api_url=api, allowlist=allowlist).allowlist
        return
    with pytest.raises(SettingsError, match="same GitHub"):
        load_settings({}, **given, github_api_url=api, allowlist=allowlist)
