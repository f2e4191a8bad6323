"""Dispatching: what goes out, what is asked of the mint, and what each refusal means."""

from __future__ import annotations

import asyncio
import contextlib
import json
from datetime import timedelta

import httpx
import httpx2
import jwt
import pytest

from allowlist.model import RepoName
from relay.github.client import GitHubClient
from relay.github.errors import (
    Forbidden,
    GitHubError,
    Invalid,
    Limited,
    NotInstalled,
    RetryLater,
    Unauthenticated,
)
from relay.github.port import Address, Located
from tests.github.conftest import Seen
from tests.github.stand_in import START, UPSTREAM, Clock, StandIn

pytestmark = pytest.mark.anyio

NPU = RepoName("org", "npu")
DISPATCHES = "/repos/org/npu/dispatches"


async def test_a_dispatch_carries_the_payload_as_it_is(client: GitHubClient, github: StandIn) -> None:
    """The payload is ready JSON text: it travels byte for byte, and the answer says where it went."""
    payload = '{"payload": {"title":"\\u00e9 é"},  "n":1.0}'.encode()

    located = await client.dispatch(Address(NPU), "pull_request", payload)

    assert Located(50, 7, 1, False, NPU) == located
    (request,) = github.calls("POST", "/dispatches")
    assert b'{"event_type":"pull_request","client_payload":' + payload + b"}" == request.content
    assert "Bearer ghs_secret1" == request.headers["authorization"]
    assert "crcr-test" == request.headers["user-agent"]
    assert "2022-11-28" == request.headers["x-github-api-version"]
    assert "application/vnd.github+json" == request.headers["accept"]


async def test_the_token_is_narrowed_to_the_repository_and_the_call(client: GitHubClient, github: StandIn) -> None:
    """By name until the id is known, by id from then on; never more permissions than the call needs."""
    await client.dispatch(Address(NPU), "push", b"{}")
    await client.dispatch(Address(UPSTREAM, repository_id=1, installation_id=40), "push", b"{}")

    assert [
        {"permissions": {"contents": "write"}, "repositories": ["npu"]},
        {"permissions": {"contents": "write"}, "repository_ids": [1]},
    ] == github.bodies("/access_tokens")


async def test_where_it_is_now_is_not_what_an_old_token_says(client: GitHubClient, github: StandIn) -> None:
    """A token lives for an hour, in which a repository may be archived or hidden; who asks because of that is told."""
    located = await client.dispatch(Address(NPU), "push", b"{}")
    pinned = Address(NPU, located.repository_id, located.installation_id)
    github.repositories[0].archived = github.repositories[0].private = True
    before, after = await client.locate(pinned), await client.locate(pinned, fresh=True)

    assert [(False, False), (True, True)] == [(one.archived, one.private) for one in (before, after)]
    assert after == await client.locate(pinned)


async def test_a_warm_dispatch_is_one_call(client: GitHubClient, github: StandIn, seen: Seen) -> None:
    """Installation and token are asked for once; pinning the ids afterwards costs no second token."""
    located = await client.dispatch(Address(NPU), "push", b"{}")
    pinned = Address(NPU, located.repository_id, located.installation_id)
    for _ in range(10):
        await client.dispatch(pinned, "push", b"{}")
        await client.locate(pinned)

    assert 13 == len(github.requests)
    assert [
        ("GET", "/repos/{owner}/{repo}/installation", 200, None),
        ("POST", "/app/installations/{installation_id}/access_tokens", 201, None),
        ("POST", "/repos/{owner}/{repo}/dispatches", 204, 50),
    ] == seen[:3]


async def test_a_token_is_renewed_five_minutes_early(client: GitHubClient, github: StandIn, clock: Clock) -> None:
    """A token that ends while a call is under way would fail it."""
    await client.dispatch(Address(NPU), "push", b"{}")
    clock.advance(minutes=54)
    await client.dispatch(Address(NPU), "push", b"{}")
    assert 1 == github.minted

    clock.advance(minutes=1)
    await client.dispatch(Address(NPU), "push", b"{}")

    assert 2 == github.minted


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_a_server_error_is_ambiguous_and_sent_once(client: GitHubClient, github: StandIn, status: int) -> None:
    """Case 2: GitHub may have acted before it failed, so the outbox decides about a repetition, not the library."""
    github.will("POST", DISPATCHES, httpx.Response(status, text="<html>unicorn</html>"))

    with pytest.raises(RetryLater) as caught:
        await client.dispatch(Address(NPU), "push", b"{}")

    assert caught.value.ambiguous
    assert 50 == caught.value.installation_id
    assert 1 == len(github.calls("POST", "/dispatches"))


@pytest.mark.parametrize(
    ("failure", "ambiguous", "reason"),
    [
        (httpx2.ConnectError("x"), False, "network"),
        (httpx2.ConnectTimeout("x"), False, "timeout"),
        (httpx2.ReadTimeout("x"), True, "timeout"),
        (httpx2.ReadError("x"), True, "network"),
        (httpx2.RemoteProtocolError("x"), True, "network"),
    ],
)
async def test_a_broken_connection_is_ambiguous_only_once_something_was_sent(
    client: GitHubClient, github: StandIn, failure: Exception, ambiguous: bool, reason: str
) -> None:
    """What never reached GitHub can be sent again without fear; all else may have started a run."""
    github.will("POST", DISPATCHES, failure)

    with pytest.raises(RetryLater) as caught:
        await client.dispatch(Address(NPU), "push", b"{}")

    assert (ambiguous, reason) == (caught.value.ambiguous, caught.value.reason)
    assert 1 == len(github.calls("POST", "/dispatches"))


async def test_a_mint_is_tried_again_when_the_connection_breaks(client: GitHubClient, github: StandIn) -> None:
    """A mint has no effect to double; two failures in a row are for the outbox, and not ambiguous."""
    path = "/app/installations/50/access_tokens"
    github.will("POST", path, httpx2.ReadError("x"))
    await client.dispatch(Address(NPU), "push", b"{}")
    assert 1 == github.minted

    github.will("POST", path, httpx2.ReadError("x"), httpx2.ReadError("x"))
    with pytest.raises(RetryLater) as caught:
        await client.changed_paths(Address(NPU), 1)

    assert not caught.value.ambiguous
    assert 4 == len(github.calls("POST", "/access_tokens"))


async def test_a_secondary_limit_says_when_to_go_on(client: GitHubClient, github: StandIn) -> None:
    """Case 3: the wait is the caller's, per installation; nobody sleeps in here and nothing is sent again."""
    github.will(
        "POST",
        DISPATCHES,
        httpx.Response(
            403, headers={"Retry-After": "60"}, json={"message": "You have exceeded a secondary rate limit."}
        ),
    )

    with pytest.raises(Limited) as caught:
        await client.dispatch(Address(NPU), "push", b"{}")

    assert (START + timedelta(seconds=60), "installation", 50) == (
        caught.value.retry_at,
        caught.value.scope,
        caught.value.installation_id,
    )
    assert 1 == len(github.calls("POST", "/dispatches"))


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (httpx.Response(404, json={"message": "Not Found"}), NotInstalled, "not_installed"),
        (httpx.Response(410, json={"message": "Gone"}), Invalid, "gone"),
        (httpx.Response(422, json={"message": "Invalid request."}), Invalid, "refused"),
        (
            httpx.Response(403, json={"message": "Repository was archived so is read-only."}),
            Forbidden,
            "archived",
        ),
        (httpx.Response(403, json={"message": "Actions has been disabled."}), Forbidden, "actions_disabled"),
        (
            httpx.Response(
                403,
                headers={"X-Accepted-GitHub-Permissions": "contents=write"},
                json={"message": "Resource not accessible by integration"},
            ),
            Forbidden,
            "missing_permission",
        ),
    ],
)
async def test_final_refusals_are_told_apart_and_sent_once(
    client: GitHubClient, github: StandIn, answer: httpx.Response, kind: type[GitHubError], reason: str
) -> None:
    """Case 4: nothing is repeated blindly, and the reason says which side has something to mend."""
    github.will("POST", DISPATCHES, answer)

    with pytest.raises(GitHubError) as caught:
        await client.dispatch(Address(NPU), "push", b"{}")

    assert (kind, reason) == (type(caught.value), caught.value.reason)
    assert 1 == len(github.calls("POST", "/dispatches"))


async def test_the_missing_permission_is_named(client: GitHubClient, github: StandIn) -> None:
    """GitHub says what would have been enough, at the call or at the mint; the admin is told the same."""
    github.will(
        "POST",
        DISPATCHES,
        httpx.Response(
            403,
            headers={"X-Accepted-GitHub-Permissions": "contents=write"},
            json={"message": "Resource not accessible by integration"},
        ),
    )
    with pytest.raises(Forbidden) as at_call:
        await client.dispatch(Address(NPU), "push", b"{}")

    github.will(
        "POST",
        "/app/installations/50/access_tokens",
        httpx.Response(422, json={"message": "The permissions requested are not granted to this installation."}),
    )
    with pytest.raises(Forbidden) as at_mint:
        await client.changed_paths(Address(NPU), 1)

    assert "contents=write" == at_call.value.permission
    assert "pull_requests: read" == at_mint.value.permission
    assert "org/npu needs pull_requests: read" in at_mint.value.detail


async def test_where_the_app_is_not_installed_nothing_is_sent(client: GitHubClient, github: StandIn) -> None:
    """Case 4: no installation, no token, no dispatch; once it is installed the next try finds it."""
    missing = github.add("org/new", id=8, installation_id=None)
    with pytest.raises(NotInstalled):
        await client.dispatch(Address(RepoName("org", "new")), "push", b"{}")
    assert [] == github.calls("POST")

    missing.installation_id = 51
    located = await client.dispatch(Address(RepoName("org", "new")), "push", b"{}")

    assert 51 == located.installation_id


async def test_a_reinstalled_app_is_found_again(client: GitHubClient, github: StandIn) -> None:
    """Removing and installing the app gives a new installation id; the pinned old one is no dead end."""
    github.repositories[0].installation_id = 77

    located = await client.dispatch(Address(NPU, repository_id=7, installation_id=50), "push", b"{}")

    assert 77 == located.installation_id


async def test_a_404_forgets_the_installation_and_the_token(client: GitHubClient, github: StandIn) -> None:
    """After a 404 the next try asks anew, since both may belong to an installation that is gone."""
    await client.dispatch(Address(NPU), "push", b"{}")
    github.will("POST", DISPATCHES, httpx.Response(404))
    with pytest.raises(NotInstalled):
        await client.dispatch(Address(NPU), "push", b"{}")

    github.repositories[0].installation_id = 77
    assert 77 == (await client.locate(Address(NPU, repository_id=7))).installation_id
    located = await client.dispatch(Address(NPU), "push", b"{}")

    assert 77 == located.installation_id


async def test_a_refused_token_is_replaced_once(client: GitHubClient, github: StandIn) -> None:
    """401 comes before any effect, so a fresh token may try again; a second 401 is the caller's to know."""
    await client.dispatch(Address(NPU), "push", b"{}")
    github.will("POST", DISPATCHES, httpx.Response(401, json={"message": "Bad credentials"}))
    await client.dispatch(Address(NPU), "push", b"{}")
    assert 2 == github.minted

    github.will("POST", DISPATCHES, httpx.Response(401), httpx.Response(401))
    with pytest.raises(Unauthenticated):
        await client.dispatch(Address(NPU), "push", b"{}")

    assert 5 == len(github.calls("POST", "/dispatches"))
    await client.dispatch(Address(NPU), "push", b"{}")
    assert 4 == github.minted


async def test_a_key_that_github_does_not_know_is_said_so(client: GitHubClient, github: StandIn) -> None:
    """A wrong key, app id or clock looks the same from here, so all three are named."""
    github.will("GET", "/repos/org/npu/installation", httpx.Response(401, json={"message": "JWT could not be decoded"}))

    with pytest.raises(Unauthenticated, match="app id, its private key and this machine's clock"):
        await client.dispatch(Address(NPU), "push", b"{}")


async def test_each_side_has_its_app(client: GitHubClient, github: StandIn) -> None:
    """Upstream is asked as the upstream app, all others as the other one."""
    await client.locate(Address(UPSTREAM))
    await client.locate(Address(NPU))

    tokens = [request.headers["authorization"].removeprefix("Bearer ") for request in github.calls("GET")]
    claims = [jwt.decode(token, options={"verify_signature": False}) for token in tokens]
    assert ["11", "22"] == [claim["iss"] for claim in claims]
    assert {600} == {claim["exp"] - claim["iat"] for claim in claims}
    assert {int(START.timestamp()) - 60} == {claim["iat"] for claim in claims}


@pytest.mark.parametrize(
    ("event_type", "payload", "reason"),
    [
        ("", b"{}", "event_type"),
        ("x" * 101, b"{}", "event_type"),
        ("push", json.dumps({"a": "x" * 65_535}).encode(), "payload_too_large"),
    ],
)
async def test_what_github_would_refuse_is_not_sent(
    client: GitHubClient, github: StandIn, event_type: str, payload: bytes, reason: str
) -> None:
    """A dispatch over GitHub's limits is never sent, and the error says which limit."""
    with pytest.raises(Invalid) as caught:
        await client.dispatch(Address(NPU), event_type, payload)

    assert reason == caught.value.reason
    assert [] == github.calls("POST", "/dispatches")


async def test_the_payload_limit_counts_characters(client: GitHubClient, github: StandIn) -> None:
    """65,535 characters of three bytes each are within the limit."""
    payload = b'{"a":"' + "日".encode() * (65_535 - 8) + b'"}'

    await client.dispatch(Address(NPU), "push", payload)

    assert 1 == len(github.calls("POST", "/dispatches"))


async def test_whether_anything_went_out_is_known_to_the_task_that_sent_it(
    client: GitHubClient, github: StandIn
) -> None:
    """One that is stopped while it waits for a token, or only looks, leaves no doubt; one that sends does."""
    github.will("POST", "/app/installations/50/access_tokens", httpx2.ConnectError("x"), httpx2.ConnectError("x"))

    async def left_a_doubt() -> bool:
        with contextlib.suppress(RetryLater):
            await client.dispatch(Address(NPU), "push", b"{}")
        return client.witness.sent()

    async def looked() -> bool:
        await client.locate(Address(NPU), fresh=True)
        return client.witness.sent()

    assert not await asyncio.create_task(left_a_doubt())
    assert not await asyncio.create_task(looked())
    github.will("POST", DISPATCHES, httpx2.ReadTimeout("x"))
    assert await asyncio.create_task(left_a_doubt())
