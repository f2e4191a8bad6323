"""Whose repository is it? Pinned ids, renames, takeovers and redirects."""

from __future__ import annotations

import httpx
import pytest

from allowlist.model import RepoName
from relay.github.client import GitHubClient
from relay.github.errors import IdentityChanged, Invalid, NotInstalled
from relay.github.port import Address
from tests.github.stand_in import API, StandIn

pytestmark = pytest.mark.anyio

NPU = RepoName("org", "npu")
PINNED = Address(NPU, repository_id=7, installation_id=50)


async def test_a_rename_is_followed_by_the_id(client: GitHubClient, github: StandIn) -> None:
    """A rename keeps the id, and the old name still leads to it: the dispatch goes to the new name."""
    github.repositories[0].full_name = "org/renamed"
    github.renamed["org/npu"] = 7

    located = await client.dispatch(PINNED, "push", b"{}")

    assert RepoName("org", "renamed") == located.full_name
    assert ["/repos/org/renamed/dispatches"] == [request.url.path for request in github.calls("POST", "/dispatches")]


async def test_another_repository_under_the_old_name_is_refused(client: GitHubClient, github: StandIn) -> None:
    """Case 40: org/npu was renamed and someone took the name; neither of the two is dispatched to."""
    github.repositories[0].full_name = "org/renamed"
    github.add("org/npu", id=666, owner_id=13, installation_id=99)

    with pytest.raises(IdentityChanged) as caught:
        await client.dispatch(PINNED, "push", b"{}")

    assert (7, 666) == (caught.value.expected_id, caught.value.found_id)
    assert "org/npu was renamed to org/renamed" in caught.value.detail
    assert [] == github.calls("POST", "/dispatches")


async def test_a_taken_name_is_refused_when_the_old_installation_is_gone(client: GitHubClient, github: StandIn) -> None:
    """Case 40: the old owner removed the app, the new owner installed it; the ids tell them apart."""
    github.repositories[0].installation_id = None
    github.repositories[0].full_name = "org/old-npu"
    github.add("org/npu", id=666, owner_id=13, installation_id=99)

    with pytest.raises(IdentityChanged) as caught:
        await client.dispatch(PINNED, "push", b"{}")

    assert (7, 666) == (caught.value.expected_id, caught.value.found_id)
    assert [] == github.calls("POST", "/dispatches")


async def test_a_mint_that_answers_another_id_is_refused(client: GitHubClient, github: StandIn) -> None:
    """Case 40: whatever we asked for, only the id in the mint's answer counts; the token is not used."""
    other = github.repositories[0].as_json() | {"id": 8}
    answer = {"token": "ghs_x", "expires_at": "2026-11-30T13:00:00Z", "repositories": [other]}
    github.will("POST", "/app/installations/50/access_tokens", httpx.Response(201, json=answer))

    with pytest.raises(IdentityChanged):
        await client.dispatch(PINNED, "push", b"{}")

    assert [] == github.calls("POST", "/dispatches")


async def test_a_name_that_leads_nowhere_any_more_is_refused(client: GitHubClient, github: StandIn) -> None:
    """The id lives on under another name while the listed one is hidden: a private repository may have taken it."""
    github.repositories[0].full_name = "org/renamed"

    with pytest.raises(IdentityChanged) as caught:
        await client.dispatch(PINNED, "push", b"{}")

    assert caught.value.found_id is None


async def test_a_repository_out_of_the_selection_is_not_installed(client: GitHubClient, github: StandIn) -> None:
    """The app is there but not for this repository: no impostor, just a selection to widen."""
    github.add("org/other", id=12)
    github.repositories[0].installation_id = 51
    github.will("GET", "/repos/org/npu/installation", httpx.Response(200, json={"id": 50}))

    with pytest.raises(NotInstalled, match="does not cover org/npu"):
        await client.dispatch(PINNED, "push", b"{}")


async def test_a_redirect_to_the_same_id_is_followed_with_the_body(client: GitHubClient, github: StandIn) -> None:
    """A rename while the token was still good: 307 names the id, and it is ours."""
    github.will(
        "POST",
        "/repos/org/npu/dispatches",
        httpx.Response(307, headers={"location": f"{API}/repositories/7/dispatches"}),
    )

    await client.dispatch(PINNED, "push", b'{"a":1}')

    first, second = github.calls("POST", "/dispatches")
    assert "/repositories/7/dispatches" == second.url.path
    assert first.content == second.content
    assert first.headers["authorization"] == second.headers["authorization"]


async def test_a_redirect_to_another_id_is_refused(client: GitHubClient, github: StandIn) -> None:
    """Case 40, seen at the dispatch itself."""
    github.will(
        "POST",
        "/repos/org/npu/dispatches",
        httpx.Response(307, headers={"location": f"{API}/repositories/8/dispatches"}),
    )

    with pytest.raises(IdentityChanged) as caught:
        await client.dispatch(PINNED, "push", b"{}")

    assert (7, 8) == (caught.value.expected_id, caught.value.found_id)
    assert 1 == len(github.calls("POST", "/dispatches"))


@pytest.mark.parametrize(
    "location",
    [
        "https://evil.example/repositories/7/dispatches",
        "//evil.example/repositories/7/dispatches",
        f"{API}.evil.example/repositories/7/dispatches",
        f"{API}@evil.example/repositories/7/dispatches",
        "http://api.github.com/repositories/7/dispatches",
        f"{API}/repositories/7/../../repos/org/xpu/dispatches",
        f"{API}/repositories/7x/dispatches",
        f"{API}/repositories/7/dispat\x7fches",
        f"{API}/repos/org/xpu/dispatches",
        "",
    ],
)
async def test_a_redirect_elsewhere_never_sees_our_token(client: GitHubClient, github: StandIn, location: str) -> None:
    """Only the same host and only /repositories/<id>; anything else is an answer to report."""
    github.will("POST", "/repos/org/npu/dispatches", httpx.Response(307, headers={"location": location}))

    with pytest.raises(Invalid) as caught:
        await client.dispatch(PINNED, "push", b"{}")

    assert "redirect_refused" == caught.value.reason
    assert 1 == len(github.calls("POST", "/dispatches"))


async def test_a_write_does_not_become_a_read(client: GitHubClient, github: StandIn) -> None:
    """301 and 302 allow a client to repeat a POST as GET, so a write follows neither."""
    github.will(
        "POST",
        "/repos/org/npu/dispatches",
        httpx.Response(302, headers={"location": f"{API}/repositories/7/dispatches"}),
    )

    with pytest.raises(Invalid):
        await client.dispatch(PINNED, "push", b"{}")


async def test_redirects_in_a_circle_end(client: GitHubClient, github: StandIn) -> None:
    """Two hops are more than a rename needs."""
    round_trip = httpx.Response(307, headers={"location": f"{API}/repositories/7/dispatches"})
    github.will("POST", "/repos/org/npu/dispatches", round_trip)
    github.will("POST", "/repositories/7/dispatches", round_trip, round_trip)

    with pytest.raises(Invalid, match="circle"):
        await client.dispatch(PINNED, "push", b"{}")

    assert 2 == len(github.calls("POST", "/dispatches"))
