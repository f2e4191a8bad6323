"""Many ask at once, one call is made; and nothing secret is ever shown."""

from __future__ import annotations

import asyncio
import logging
import pickle
import traceback

import httpx
import httpx2
import pytest
import respx

from allowlist.model import RepoName
from relay.github import calls
from relay.github.client import GitHubClient
from relay.github.errors import GitHubError, RetryLater
from relay.github.http import new_http_client
from relay.github.keys import Apps
from relay.github.port import Address
from tests.github.stand_in import API, UPSTREAM, Clock, StandIn

pytestmark = pytest.mark.anyio

NPU = RepoName("org", "npu")


@pytest.fixture
async def slow(httpx2_mock: respx.Router, github: StandIn) -> respx.Router:
    """The stand-in, a moment later: so that all who ask at once are really waiting at once."""

    async def answer(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0.01)
        return github.handle(request)

    httpx2_mock.routes.clear()
    httpx2_mock.route().mock(side_effect=answer)
    return httpx2_mock


@pytest.mark.usefixtures("slow")
async def test_fifty_firsts_are_one_lookup_and_one_mint(client: GitHubClient, github: StandIn) -> None:
    """A webhook wakes fifty dispatches to one repository at once; one token serves them all."""
    await asyncio.gather(*(client.dispatch(Address(NPU), "push", b"{}") for _ in range(50)))

    assert 1 == github.minted
    assert 1 == len(github.calls("GET", "/installation"))
    assert 50 == len(github.calls("POST", "/dispatches"))


@pytest.mark.usefixtures("slow")
async def test_two_kinds_of_call_share_the_lookup(client: GitHubClient, github: StandIn) -> None:
    """Tokens differ by permission, the installation does not."""
    for permissions in (calls.DISPATCH, calls.CHECKS):
        assert 7 == (await client.tokens.get(client.app_of(NPU), Address(NPU), permissions)).located.repository_id

    assert 2 == github.minted
    assert 1 == len(github.calls("GET", "/installation"))


@pytest.mark.usefixtures("slow")
async def test_one_who_gives_up_does_not_take_the_others_down(client: GitHubClient, github: StandIn) -> None:
    """The first asker's cancellation leaves the flight to those who still wait."""
    first = asyncio.ensure_future(client.locate(Address(NPU)))
    others = [asyncio.ensure_future(client.locate(Address(NPU))) for _ in range(3)]
    await asyncio.sleep(0.005)
    first.cancel()

    assert {7} == {located.repository_id for located in await asyncio.gather(*others)}
    assert 1 == github.minted


async def test_a_failed_mint_fails_all_who_waited_and_is_not_kept(client: GitHubClient, github: StandIn) -> None:
    """An outage is not remembered: the next one who asks tries again."""
    github.will("POST", "/app/installations/50/access_tokens", httpx.Response(502))
    outcomes = await asyncio.gather(
        *(client.dispatch(Address(NPU), "push", b"{}") for _ in range(5)), return_exceptions=True
    )
    assert [RetryLater] * 5 == [type(outcome) for outcome in outcomes]
    assert 1 == len(github.calls("POST", "/access_tokens"))

    await client.dispatch(Address(NPU), "push", b"{}")

    assert 1 == github.minted


@pytest.mark.usefixtures("github")
async def test_never_more_in_flight_than_github_allows(
    httpx2_mock: respx.Router, github: StandIn, apps: Apps, clock: Clock
) -> None:
    """GitHub's secondary limit counts concurrent requests; the client holds the rest back."""
    now, most = 0, 0

    async def answer(request: httpx.Request) -> httpx.Response:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.002)
        now -= 1
        return github.handle(request)

    httpx2_mock.routes.clear()
    httpx2_mock.route().mock(side_effect=answer)
    client = GitHubClient(
        apps=apps, upstream=UPSTREAM, http=new_http_client(user_agent="t"), api_url=API, now=clock, in_flight=8
    )
    await asyncio.gather(*(client.dispatch(Address(NPU), "push", b"{}") for _ in range(40)))
    await client.aclose()

    assert 8 == most


async def test_keys_and_tokens_show_nothing(
    client: GitHubClient, github: StandIn, apps: Apps, pem: str, caplog: pytest.LogCaptureFixture
) -> None:
    """repr, str, pickles, errors with their whole chain, and debug logs hold neither key nor token."""
    caplog.set_level(logging.DEBUG)
    app = apps.downstream
    token = await client.tokens.get(app, Address(NPU), calls.DISPATCH)
    github.will(
        "POST",
        "/repos/org/npu/dispatches",
        httpx2.ReadError("x"),
        httpx.Response(500, json={"message": "no: Bearer ghs_secret1 eyJhbGciOi.eyJpc3Mi.c2ln"}),
        httpx.Response(422, text="ghs_secret1"),
    )
    shown = [repr(app), str(app), repr(apps), repr(token), str(token), repr(token.minted), repr(client.tokens)]
    for _ in range(3):
        with pytest.raises(GitHubError) as caught:
            await client.dispatch(Address(NPU), "push", b"{}")
        shown += traceback.format_exception(caught.value)
        shown += [str(caught.value.__cause__), repr(caught.value.args)]
    with pytest.raises(TypeError):
        pickle.dumps(app)

    text = "\n".join([*shown, caplog.text])
    for secret in ("ghs_secret", app.jwt(client._now()), "eyJ", pem.splitlines()[5], "PRIVATE KEY"):
        assert secret not in text


async def test_closing_ends_what_is_under_way(httpx2_mock: respx.Router, apps: Apps, clock: Clock) -> None:
    """A process that stops does not wait for a mint."""

    async def never(_: httpx.Request) -> httpx.Response:
        await asyncio.sleep(60)
        return httpx.Response(200)

    httpx2_mock.route().mock(side_effect=never)
    client = GitHubClient(apps=apps, upstream=UPSTREAM, http=new_http_client(user_agent="t"), api_url=API, now=clock)
    waiting = asyncio.ensure_future(client.locate(Address(NPU)))
    await asyncio.sleep(0.01)

    await client.aclose()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    # respx counts a call only when it is answered, which this one never is.
    httpx2_mock.routes.clear()
