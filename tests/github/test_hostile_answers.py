"""Answers of GitHub that are none: retried later with a short reason, never half believed."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from allowlist.model import RepoName
from relay.github.client import GitHubClient
from relay.github.errors import RetryLater
from relay.github.port import Address
from tests.github.stand_in import UPSTREAM, StandIn

pytestmark = pytest.mark.anyio

UP = Address(UPSTREAM, repository_id=1, installation_id=40)
FILES = "/repos/up/stream/pulls/5/files"
MINT = "/app/installations/40/access_tokens"

GOOD: dict[str, Any] = {
    "token": "ghs_a",
    "expires_at": "2026-11-30T13:00:00Z",
    "repositories": [{"id": 1, "full_name": "up/stream", "private": False, "owner": {"id": 9}}],
}


A_REPOSITORY = GOOD["repositories"][0]
NONSENSE: list[dict[str, Any]] = [
    {"token": None},
    {"token": 5},
    {"token": "a\r\nX-Evil: 1"},
    {"token": "é"},
    {"token": "x" * 2_000_000},
    {"expires_at": "soon"},
    {"expires_at": 1},
    {"repositories": None},
    {"repositories": []},
    {"repositories": [A_REPOSITORY] * 2},
    {"repositories": [7]},
    {"repositories": [A_REPOSITORY | {"id": "1"}]},
    {"repositories": [A_REPOSITORY | {"id": 2**80}]},
    {"repositories": [A_REPOSITORY | {"full_name": "../.."}]},
    {"repositories": [A_REPOSITORY | {"owner": None}]},
]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"null",
        b"[" * 200_000,
        b"x" * 10_000_000,
        *(json.dumps(GOOD | change).encode() for change in NONSENSE),
    ],
)
async def test_a_mint_that_answers_nonsense_is_an_outage(client: GitHubClient, github: StandIn, answer: bytes) -> None:
    """Non-JSON, ten megabytes, wrong types: retried later with a short reason, never half believed."""
    github.will("POST", MINT, httpx.Response(201, content=answer))

    with pytest.raises(RetryLater) as caught:
        await client.locate(UP)

    assert ("bad_answer", False) == (caught.value.reason, caught.value.ambiguous)
    assert len(caught.value.detail) < 300


async def test_a_repository_that_does_not_say_it_is_public_is_private(client: GitHubClient, github: StandIn) -> None:
    """Test names of a private backend are shown to nobody; silence must not publish them."""
    repository = {"id": 1, "full_name": "Up/Stream", "owner": {"id": 9}}
    github.will("POST", MINT, httpx.Response(201, json=GOOD | {"repositories": [repository]}))

    located = await client.locate(UP)

    assert (True, RepoName("up", "stream")) == (located.private, located.full_name)


@pytest.mark.parametrize("body", [b"{}", b"null", b"[1]", b'[{"filename": 5}]', b'[{"filename": "\\ud800"}]', b"<"])
async def test_a_listing_that_is_none_is_an_outage(client: GitHubClient, github: StandIn, body: bytes) -> None:
    """An unreadable listing must not look like "no file changed"."""
    github.will("GET", FILES, httpx.Response(200, content=body))

    with pytest.raises(RetryLater, match="unreadable"):
        await client.changed_paths(UP, 5)
