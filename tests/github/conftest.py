"""A client of ours that talks to the stand-in."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator

import pytest
import respx

from relay.github.client import GitHubClient
from relay.github.http import new_http_client
from relay.github.keys import AppKey, Apps
from tests.github.stand_in import API, UPSTREAM, Clock, StandIn, new_pem

Seen = list[tuple[str, str, int | None, int | None]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def pem() -> str:
    return new_pem()


@pytest.fixture(scope="session")
def trust() -> ssl.SSLContext:
    """Built once: it is what takes a client a tenth of a second."""
    return ssl.create_default_context()


@pytest.fixture(scope="session")
def loaded(pem: str) -> Apps:
    return Apps(upstream=AppKey.load(11, pem), downstream=AppKey.load(22, pem))


@pytest.fixture
def apps(loaded: Apps) -> Apps:
    """Two apps, as if just started; their keys are parsed once, which takes 40 ms each."""
    loaded.upstream.forget_jwt()
    loaded.downstream.forget_jwt()
    return loaded


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def github(httpx2_mock: respx.Router, clock: Clock) -> StandIn:
    """One backend, org/npu (id 7, installation 50), and upstream (id 1, installation 40)."""
    stand_in = StandIn(clock)
    stand_in.add("org/npu", id=7)
    stand_in.add(str(UPSTREAM), id=1, owner_id=9, installation_id=40)
    httpx2_mock.route().mock(side_effect=stand_in.handle)
    return stand_in


@pytest.fixture
def seen() -> Seen:
    """What the client's observer was told."""
    return []


@pytest.fixture
async def client(
    github: StandIn, apps: Apps, clock: Clock, seen: Seen, trust: ssl.SSLContext
) -> AsyncIterator[GitHubClient]:
    made = GitHubClient(
        apps=apps,
        upstream=UPSTREAM,
        http=new_http_client(user_agent="crcr-test", trust=trust),
        api_url=API,
        now=clock,
        observe=lambda method, route, status, _, installation: seen.append((method, route, status, installation)),
    )
    yield made
    await made.aclose()
