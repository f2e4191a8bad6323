"""Roles, comments, pull requests and trees: what is asked, what is believed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from relay.github.client import GitHubClient
from relay.github.errors import Forbidden, Invalid, RetryLater
from relay.github.observed import PullObserved, Role
from relay.github.port import Address
from tests.github.stand_in import HEAD, UPSTREAM, StandIn

pytestmark = pytest.mark.anyio

UP = Address(UPSTREAM, repository_id=1, installation_id=40)
ADA = "/repos/up/stream/collaborators/ada/permission"
COMMENTS = "/repos/up/stream/issues/5/comments"
MARK = "<!-- crcr:reply 9 -->"
OUR_APP = {"id": 11, "client_id": "Iv1.11", "slug": "crcr"}


def told(body: Any, status: int = 200, **headers: str) -> httpx.Response:
    return httpx.Response(status, json=body, headers=headers)


FLAGS = ("pull", "triage", "push", "maintain", "admin")


def flags(*granted: str) -> dict[str, Any]:
    return {"permissions": {flag: flag in granted for flag in FLAGS}}


@pytest.mark.parametrize(
    ("answer", "role"),
    [
        ({"role_name": "admin", "permission": "admin"}, Role.ADMIN),
        ({"role_name": "maintain", "permission": "write"}, Role.MAINTAIN),
        ({"role_name": "write", "permission": "write"}, Role.WRITE),
        ({"role_name": "triage", "permission": "read"}, Role.TRIAGE),
        ({"role_name": "read", "permission": "admin"}, Role.READ),
        ({"role_name": "none", "permission": "write"}, Role.NONE),
        ({"role_name": "security", "permission": "admin"}, Role.NONE),
        ({"role_name": "security", "user": None}, Role.NONE),
        ({"role_name": "Admin", "user": flags("pull")}, Role.READ),
        ({"role_name": "security", "user": flags("pull", "triage")}, Role.TRIAGE),
        ({"role_name": "security", "user": flags("pull", "triage", "push")}, Role.WRITE),
        ({"role_name": "security", "user": flags(*FLAGS)}, Role.MAINTAIN),
        ({"role_name": "security", "user": flags("admin", "push")}, Role.NONE),
        ({"role_name": "security", "user": flags("pull", "push")}, Role.READ),
        ({"role_name": "security", "user": {"permissions": {"pull": 1}}}, Role.NONE),
        ({"role_name": "", "user": flags()}, Role.NONE),
    ],
)
async def test_a_role_is_what_github_names_and_never_more_than_it_shows(
    client: GitHubClient, github: StandIn, answer: dict[str, Any], role: Role
) -> None:
    """The older field would make a writer of nobody and a reader of a triager; a name of its own proves nothing."""
    github.will("GET", ADA, told(answer))

    assert role == await client.role_of(UP, "ada")
    assert [{"permissions": {"metadata": "read"}, "repository_ids": [1]}] == github.bodies("/access_tokens")


def test_roles_are_ordered() -> None:
    """Authority is asked for by ``>=``."""
    assert [Role.NONE, Role.READ, Role.TRIAGE, Role.WRITE, Role.MAINTAIN, Role.ADMIN] == sorted(Role)


async def test_nobody_has_no_role(client: GitHubClient, github: StandIn) -> None:
    """404 after a good mint means that there is no such user."""
    assert Role.NONE == await client.role_of(UP, "ada")
    assert 1 == len(github.calls("GET", "/permission"))


@pytest.mark.parametrize(
    "login", ["", "dependabot[bot]", "crcr[bot]", "../x", "a/b", "-a", "a b", "ádá", "a" * 40, "ada\n", "a?b", "%61"]
)
async def test_bots_and_what_is_no_login_are_not_asked_for(client: GitHubClient, github: StandIn, login: str) -> None:
    """No bot has authority, and no text may lead to another endpoint."""
    assert Role.NONE == await client.role_of(UP, login)
    await client.locate(UP)
    assert 1 == len(github.requests)


@pytest.mark.parametrize("login", ["a", "Ada-Lovelace", "ada_corp", "7", "a-", "a" * 39])
async def test_every_kind_of_login_is_asked_for(client: GitHubClient, github: StandIn, login: str) -> None:
    """Old ones that end in a hyphen, and an enterprise's with an underscore, included."""
    github.will("GET", f"/repos/up/stream/collaborators/{login}/permission", told({"role_name": "write"}))

    assert Role.WRITE == await client.role_of(UP, login)


@pytest.mark.parametrize("answer", [told({}), told({"role_name": 5}), told([]), httpx.Response(200, content=b"<")])
async def test_a_role_that_is_none_is_an_outage(client: GitHubClient, github: StandIn, answer: httpx.Response) -> None:
    """Neither "nobody", which would refuse a maintainer, nor anything more."""
    github.will("GET", ADA, answer)

    with pytest.raises(RetryLater, match="unreadable"):
        await client.role_of(UP, "ada")


async def test_a_role_that_we_may_not_see_is_no_role_of_nobody(client: GitHubClient, github: StandIn) -> None:
    """The command is kept and somebody is told, instead of a reply that never comes."""
    github.will("GET", ADA, told({"message": "Resource not accessible by integration"}, 403))

    with pytest.raises(Forbidden):
        await client.role_of(UP, "ada")


async def test_a_comment_is_made_once_and_changed_in_place(client: GitHubClient, github: StandIn) -> None:
    """With the one permission that both need."""
    github.will("POST", COMMENTS, told({"id": 901}, 201))
    github.will("PATCH", "/repos/up/stream/issues/comments/901", told({"id": 901}))

    assert 901 == await client.create_comment(UP, 5, f"{MARK}\nQueued.")
    await client.update_comment(UP, 901, "x" * 70_000)

    made, changed = github.bodies("/comments")[0], github.bodies("/comments/901")[0]
    assert {"body": f"{MARK}\nQueued."} == made
    assert (65_536, "…") == (len(changed["body"]), changed["body"][-1])
    assert [{"permissions": {"pull_requests": "write"}, "repository_ids": [1]}] == github.bodies("/access_tokens")


async def test_a_comment_that_says_nothing_is_ours_to_mend(client: GitHubClient, github: StandIn) -> None:
    """GitHub would refuse it; it is refused before it is sent."""
    with pytest.raises(Invalid, match="visible character"):
        await client.create_comment(UP, 5, " \n")
    assert [] == github.calls("POST", "/comments")


async def test_a_comment_that_may_be_there_is_ambiguous(client: GitHubClient, github: StandIn) -> None:
    """After a 502 or an unreadable 201 it is looked for and not made twice."""
    github.will("POST", COMMENTS, httpx.Response(502), httpx.Response(201, content=b"<"))

    for _ in range(2):
        with pytest.raises(RetryLater) as caught:
            await client.create_comment(UP, 5, MARK)
        assert caught.value.ambiguous


async def test_a_deleted_comment_is_said_to_be_missing(client: GitHubClient, github: StandIn) -> None:
    """So that the caller makes another; the app is there."""
    with pytest.raises(Invalid) as caught:
        await client.update_comment(UP, 901, "x")

    assert "not_found" == caught.value.reason


def said(number: int, body: str | None = MARK, **change: Any) -> dict[str, Any]:
    bot = {"login": "crcr[bot]", "type": "Bot"}
    return {"id": number, "body": body, "performed_via_github_app": OUR_APP, "user": bot} | change


async def test_the_newest_of_our_comments_is_found(client: GitHubClient, github: StandIn) -> None:
    """By its marker, and only if our app wrote it: anybody may copy a marker to have their comment edited."""
    person: dict[str, Any] = {"performed_via_github_app": None, "user": {"login": "eve", "type": "User"}}
    other: dict[str, Any] = {"performed_via_github_app": {"id": 12, "client_id": "Iv1.12"}}
    comments = [said(1), said(2), said(3, "no mark"), said(4, **person), said(5, **other), said(6, None)]
    github.will("GET", COMMENTS, told(comments), told(comments[2:]))

    assert 2 == await client.find_comment(UP, 5, MARK)
    assert await client.find_comment(UP, 5, MARK, datetime(2026, 11, 30, 11, 0, tzinfo=UTC)) is None
    assert "2026-11-30T11:00:00Z" == github.calls("GET", "/comments")[1].url.params["since"]
    assert [] == github.calls("GET", "/app")


async def test_a_comment_without_its_app_is_told_by_its_bot(client: GitHubClient, github: StandIn) -> None:
    """Some answers leave the app out. No person can be called "crcr[bot]", and another app's bot is another's."""
    bare = {"performed_via_github_app": None}
    other = {"login": "else[bot]", "type": "Bot"}
    posing = {"login": "crcr[bot]", "type": "User"}
    comments = [said(1, **bare), said(2, user=other, **bare), said(3, user=posing, **bare), said(4, user=None, **bare)]
    github.will("GET", COMMENTS, told(comments))
    github.will("GET", "/app", told(OUR_APP), told(OUR_APP))

    assert 1 == await client.find_comment(UP, 5, MARK)


def linked(last: int) -> str:
    base = "https://api.github.com/repositories/1/issues/5/comments?per_page=100&page="
    return f'<{base}2>; rel="next", <{base}{last}>; rel="last"'


async def test_the_newest_page_is_looked_at_first(client: GitHubClient, github: StandIn) -> None:
    """GitHub lists the oldest first, and ours is most likely among the last words of a long talk."""
    old, new = told([said(1)], link=linked(3)), told([said(301), said(302)])
    github.will("GET", COMMENTS, old, new)

    assert 302 == await client.find_comment(UP, 5, MARK)
    assert ["1", "3"] == [request.url.params["page"] for request in github.calls("GET", "/comments")]


async def test_a_talk_without_end_costs_ten_pages(client: GitHubClient, github: StandIn) -> None:
    """The first page says how many there are; of the others the newest ten are read."""
    github.will("GET", COMMENTS, told([], link=linked(500)), *(told([]) for _ in range(20)))

    assert await client.find_comment(UP, 5, MARK) is None
    pages = [int(request.url.params["page"]) for request in github.calls("GET", "/comments")]
    assert [1, *range(500, 490, -1)] == pages


@pytest.mark.parametrize(
    "link", ["", "<x>", '<a?page=0>; rel="last"', '<a?page=99999999>; rel="last"', '<a?page=x>; rel="last"']
)
async def test_a_link_that_leads_nowhere_is_one_page(client: GitHubClient, github: StandIn, link: str) -> None:
    """What cannot be followed is not."""
    github.will("GET", COMMENTS, told([said(1)], link=link))

    assert 1 == await client.find_comment(UP, 5, MARK)


async def test_no_marker_is_in_every_comment(client: GitHubClient, github: StandIn) -> None:
    """An empty marker would find, and so have us overwrite, any comment of ours."""
    with pytest.raises(Invalid, match="marker"):
        await client.find_comment(UP, 5, "")
    await client.locate(UP)
    assert 1 == len(github.requests)


def a_pull(**change: Any) -> dict[str, Any]:
    return {
        "number": 5,
        "state": "open",
        "title": "Change",
        "head": {"sha": HEAD, "ref": "topic"},
        "base": {"sha": "b" * 40, "ref": "release/1"},
        "labels": [{"name": "ciflow/crcr/npu"}, {"name": "bug"}],
        "user": {"login": "ada"},
        "author_association": "MEMBER",
        "draft": True,
        "merged": False,
        "html_url": "https://github.test/up/stream/pull/5",
        "created_at": "2026-11-30T10:00:00Z",
        "updated_at": "2026-11-30T11:00:00Z",
    } | change


async def test_a_pull_request_is_seen_as_it_is_now(client: GitHubClient, github: StandIn) -> None:
    """All that levels and commands depend on; a deleted account leaves a pull request without an author."""
    gone = a_pull(user=None, state="closed", merged=True, draft=False)
    github.will("GET", "/repos/up/stream/pulls/5", told(a_pull()), told(gone))

    at = [datetime(2026, 11, 30, hour, tzinfo=UTC) for hour in (10, 11)]
    expected = PullObserved(
        5, "open", "Change", HEAD, "release/1", "b" * 40, ("ciflow/crcr/npu", "bug"), "ada", "MEMBER", True, False,
        "https://github.test/up/stream/pull/5", *at,
    )  # fmt: skip
    assert expected == await client.pull(UP, 5)
    closed = await client.pull(UP, 5)
    assert ("closed", True, False, "") == (closed.state, closed.merged, closed.draft, closed.author)
    with pytest.raises(Invalid, match="pull request 6 nowhere"):
        await client.pull(UP, 6)


@pytest.mark.parametrize(
    "change",
    [{"state": "merged"}, {"head": None}, {"head": {"sha": "topic"}}, {"base": {}}, {"labels": None}, {"number": "5"}],
)
async def test_a_pull_request_that_is_none_is_an_outage(client: GitHubClient, github: StandIn, change: Any) -> None:
    """Above all no pull request without labels, which would withdraw what somebody asked for."""
    github.will("GET", "/repos/up/stream/pulls/5", told(a_pull(**change)))

    with pytest.raises(RetryLater, match="unreadable"):
        await client.pull(UP, 5)


PULLS = f"/repos/up/stream/commits/{HEAD}/pulls"


async def test_a_commit_s_pull_requests_are_those_whose_head_it_is(client: GitHubClient, github: StandIn) -> None:
    """GitHub lists those that merely contain it, and closed ones, as well."""
    contains = a_pull(number=2, head={"sha": "c" * 40})
    listed = [a_pull(number=1), contains, a_pull(number=3, state="closed"), a_pull(number=4)]
    github.will("GET", PULLS, told(listed + [contains] * 96), told([a_pull(number=7)]))

    assert (1, 4, 7) == await client.pulls_of_commit(UP, HEAD)


@pytest.mark.parametrize("status", [404, 422])
async def test_a_commit_that_is_not_there_heads_nothing(client: GitHubClient, github: StandIn, status: int) -> None:
    """GitHub says it in two ways; what is no SHA is not even asked for."""
    github.will("GET", PULLS, told({"message": f"No commit found for SHA: {HEAD}"}, status))

    assert () == await client.pulls_of_commit(UP, HEAD)
    assert () == await client.pulls_of_commit(UP, "main")
    assert 1 == len(github.calls("GET", "/pulls"))


async def test_a_commit_s_tree_is_told(client: GitHubClient, github: StandIn) -> None:
    """By the commit's whole name only: a branch has another tree tomorrow."""
    path = f"/repos/up/stream/git/commits/{HEAD}"
    github.will("GET", path, told({"sha": HEAD, "tree": {"sha": "e" * 40}}), told({"tree": {"sha": "../.."}}))

    assert "e" * 40 == await client.tree_of(UP, HEAD)
    with pytest.raises(RetryLater, match="unreadable"):
        await client.tree_of(UP, HEAD)
    with pytest.raises(Invalid, match="the commit nowhere in up/stream"):
        await client.tree_of(UP, HEAD)
    with pytest.raises(Invalid, match="40 hexadecimal digits"):
        await client.tree_of(UP, "main")
    assert 3 == len(github.calls("GET", HEAD))
