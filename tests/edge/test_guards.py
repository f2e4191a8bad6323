"""What strangers can make the service do: as good as nothing. The real application, without its worker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import pytest
from sqlalchemy import Connection
from starlette.testclient import TestClient

from relay.app import Relay, build
from relay.edge.brake import Brake
from relay.edge.callback import PER_MINUTE
from relay.edge.keys import MOST_BYTES
from relay.edge.signature import sign
from relay.github.keys import read_key
from relay.process import create_app
from relay.settings import DEFAULT_ISSUERS, GITHUB_ISSUER, load_settings
from relay.simulator.keys import jwk, plain_http, private_pem, rsa_key
from relay.store.engine import Store
from tests.conftest import Clock
from tests.edge.callers import Issuers

T = TypeVar("T")
SECRET, ADMIN = "the webhook's secret", "the admin's secret of some length"
JWKS = next(anchor.jwks_url for anchor in DEFAULT_ISSUERS if anchor.issuer == GITHUB_ISSUER)
DEEP = b'{"a":' * 100_000
_read_once = cache(read_key)


class CountingStore(Store):
    """A store that counts what it is asked."""

    asked = 0

    async def write(self, unit: Callable[[Connection], T], *, waited_for: bool = False) -> T:
        """Write, and count."""
        self.asked += 1
        return await super().write(unit, waited_for=waited_for)

    async def read(self, unit: Callable[[Connection], T]) -> T:
        """Read, and count."""
        self.asked += 1
        return await super().read(unit)


class Outside(httpx2.AsyncBaseTransport):
    """Everything that is not us: answers for key sets, and remembers what was asked."""

    def __init__(self) -> None:
        keys = [jwk(rsa_key("github-1").public_key(), "github-1")]
        self.answer: Callable[[], httpx2.Response] = lambda: httpx2.Response(200, json={"keys": keys})
        self.asked: list[str] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """One request of the service's."""
        self.asked.append(str(request.url))
        return self.answer()


class Service:
    """A service that answers, with one backend on its list and one admin."""

    def __init__(self, folder: Path, database_url: str, clock: Clock) -> None:
        allowlist = folder / "allowlist.yml"
        allowlist.write_text("L2:\n  - org/l2\n")
        settings = load_settings(
            {},
            upstream="up/stream",
            github_app_id=4,
            github_private_key=private_pem(rsa_key("app")),
            webhook_secrets=(SECRET,),
            secret_keys=("a key of sixteen or more characters",),
            admin_tokens=(f"ada:{ADMIN}",),
            allowlist=str(allowlist),
            database_url=database_url,
        )
        self.outside = Outside()
        self.issuers = Issuers(clock)
        self.relay: Relay = build(
            settings,
            now=clock.now,
            open_store=CountingStore,
            transport=lambda: self.outside,
            migrate=False,
            trust=plain_http(),
            read=_read_once,
        )
        asyncio.run(self.relay.keeper.start())
        self.http = TestClient(create_app(self.relay, "web"))

    @property
    def store(self) -> CountingStore:
        """Its store."""
        assert isinstance(self.relay.store, CountingStore)
        return self.relay.store

    def post(self, path: str, body: bytes, **headers: str) -> httpx2.Response:
        """Send something with these headers."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        answer: httpx2.Response = self.http.post(path, content=body, headers=sent)
        return answer

    def call(self, token: str, body: bytes = b"{}", path: str = "/github/callback") -> tuple[int, str]:
        """Call back with this token: status and code."""
        answer = self.post(path, body, authorization=f"Bearer {token}").json()
        return (
            (answer[0]["status"], answer[0]["code"]) if isinstance(answer, list) else (answer["status"], answer["code"])
        )

    def allowed(self, path: str, body: bytes) -> dict[str, str]:
        """The headers by which this route lets the body in."""
        if path.startswith("/api/v1/admin/"):
            return {"authorization": f"Bearer {ADMIN}"}
        if path.startswith("/github/callback"):
            return {"authorization": f"Bearer {self.issuers.github('org/l2')}"}
        return {"x_hub_signature_256": sign(SECRET.encode(), body), "x_github_event": "push", "x_github_delivery": "D1"}


@pytest.fixture
def service(tmp_path: Path, database_url: str, clock: Clock) -> Iterator[Service]:
    """One on each database, whose queries are counted."""
    made = Service(tmp_path, database_url, clock)
    yield made
    made.relay.close()


@pytest.fixture
def on_sqlite(tmp_path: Path, sqlite_template: Path, clock: Clock) -> Iterator[Service]:
    """The same where the database does not matter."""
    (tmp_path / "relay.db").write_bytes(sqlite_template.read_bytes())
    made = Service(tmp_path, f"sqlite:///{tmp_path / 'relay.db'}", clock)
    yield made
    made.relay.close()


# --- Bodies ----------------------------------------------------------------------------------------------------------


def routes_with_bodies(service: Service) -> list[str]:
    """Every route that takes one, from the service's own description."""
    described = service.http.get("/api/v1/openapi.json").json()["paths"]
    found = [path for path, methods in described.items() if set(methods) & {"post", "put", "patch", "delete"}]
    return [path.replace("{owner}", "org").replace("{name}", "l2") for path in found]


def test_no_route_reads_more_or_deeper_than_it_needs(on_sqlite: Service) -> None:
    """By the length that is declared, by what comes, and before a parser recurses; the database hears nothing of it."""
    paths = routes_with_bodies(on_sqlite)
    before = on_sqlite.store.asked
    refused: dict[str, list[tuple[int, str]]] = {path: [] for path in paths}
    for path in paths:
        for body, headers in ((b"{}", {"content_length": "25000001"}), (DEEP, {})):
            whole = {**on_sqlite.allowed(path, body), **headers}
            answer = on_sqlite.post(path, body, **whole).json()
            refused[path].append((answer["status"], answer["code"]))

    assert {"/github/webhook", "/github/callback", "/github/callback/batch"} < set(paths)
    assert 5 == len([path for path in paths if path.startswith("/api/v1/admin/")])
    too_deep = {path: (413, "body_too_large") if "admin" in path else (400, "body_too_deep") for path in paths}
    assert {path: [(413, "body_too_large"), too_deep[path]] for path in paths} == refused
    # What declares no length is counted as it comes.
    pieces = on_sqlite.http.post(
        "/api/v1/admin/overrides", content=iter([b" " * 9_000] * 2), headers={"authorization": f"Bearer {ADMIN}"}
    )
    assert (413, "body_too_large") == (pieces.status_code, pieces.json()["code"])
    # An admin's words are few, so the depth is tried with as much as they may be.
    shallow = on_sqlite.post("/api/v1/admin/overrides", b"[" * 16_000, **on_sqlite.allowed("/api/v1/admin/", b""))
    assert (400, "body_too_deep") == (shallow.status_code, shallow.json()["code"])
    assert before == on_sqlite.store.asked


# --- Storms ----------------------------------------------------------------------------------------------------------


def test_a_storm_of_calls_that_prove_nothing_costs_no_database_and_one_fetch(service: Service, clock: Clock) -> None:
    """Anybody can send these: made-up keys make us ask their issuer at most twice a minute, whoever sends them."""
    mint = service.issuers.github
    stranger = service.issuers.github_claims("org/l2")
    past = int((clock.now() - timedelta(hours=1)).timestamp())
    before = service.store.asked
    storm = [
        ("", (401, "token_missing")),
        ("no.token.atall", (401, "token_malformed")),
        (mint("org/l2", exp=past), (401, "token_expired")),
        (mint("org/l2", aud="another"), (401, "wrong_audience")),
        (mint("org/l2", iss="https://evil.example"), (401, "wrong_issuer")),
        (service.issuers.sign(stranger, key="stranger"), (401, "bad_signature")),
        (mint("org/not-listed"), (403, "not_listed")),
    ]
    unknown = [service.issuers.sign(stranger, kid=f"made-up-{number}") for number in range(50)]

    assert [answer for _, answer in storm] == [service.call(token) for token, _ in storm]
    assert {(401, "unknown_key")} == {service.call(token) for token in unknown}
    assert {401, 429} == {
        service.post("/api/v1/admin/overrides", b"{}", authorization=f"Bearer guess-{number}").status_code
        for number in range(40)
    }
    forged = {"x_github_event": "push", "x_github_delivery": "D1", "x_hub_signature_256": "sha256=" + "0" * 64}
    assert {401} == {service.post("/github/webhook", b"{}", **forged).status_code for _ in range(20)}
    assert before == service.store.asked
    assert [JWKS] == service.outside.asked
    for seconds, fetches in ((29, 1), (2, 2), (28, 2), (3, 3)):
        clock.advance(timedelta(seconds=seconds))
        fresh = service.issuers.sign(service.issuers.github_claims("org/l2"), kid="made-up")
        assert {(401, "unknown_key")} == {service.call(fresh) for _ in range(5)}
        assert fetches == len(service.outside.asked)
    clock.advance(timedelta(hours=-3))  # A clock that is put back must not keep new keys out for as long.
    fresh = service.issuers.sign(service.issuers.github_claims("org/l2"), kid="made-up")
    assert {(401, "unknown_key")} == {service.call(fresh) for _ in range(5)}
    assert 4 == len(service.outside.asked)


def test_what_honest_callers_send_at_once_fits(clock: Clock) -> None:
    """47 jobs with two callbacks each, twice, beside 360 callbacks in that minute (CASES 21); and 50 jobs, started and
    ended.
    """
    brake = Brake(PER_MINUTE, now=clock.now)

    waits = [brake.wait("org/l2") for _ in range(47 * 2 * 2 + 360 + 50 * 2)]

    assert {None} == set(waits)


def test_beyond_that_a_caller_is_told_when_to_come_again(on_sqlite: Service, clock: Clock) -> None:
    """Refused calls cost nothing: neither the database, nor a place in the next minute."""
    token = on_sqlite.issuers.github("org/l2")
    batch = json.dumps([{}] * 100).encode()
    for _ in range(PER_MINUTE // 100):
        assert (422, "report_malformed") == on_sqlite.call(token, batch, "/github/callback/batch")
    before = on_sqlite.store.asked

    refused = [on_sqlite.post("/github/callback", b"{}", authorization=f"Bearer {token}") for _ in range(50)]

    assert {(429, "60")} == {(answer.status_code, answer.headers["retry-after"]) for answer in refused}
    assert {"too_many_calls"} == {answer.json()["code"] for answer in refused}
    assert before == on_sqlite.store.asked
    clock.advance(timedelta(seconds=60))
    assert (422, "report_malformed") == on_sqlite.call(on_sqlite.issuers.github("org/l2"))


# --- Where we go ourselves -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "elsewhere",
    ["http://169.254.169.254/latest/meta-data", "https://evil.example/jwks", "/other", "file:///etc/passwd"],
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_an_issuer_s_keys_are_at_its_address_and_nowhere_else(on_sqlite: Service, status: int, elsewhere: str) -> None:
    """Whoever takes over one address of an issuer's must not send us to another inside our network."""
    on_sqlite.outside.answer = lambda: httpx2.Response(status, headers={"location": elsewhere})

    assert (503, "keys_unreachable") == on_sqlite.call(on_sqlite.issuers.github("org/l2"))
    assert [JWKS] == on_sqlite.outside.asked


def test_a_key_set_without_an_end_is_not_read_to_it(on_sqlite: Service) -> None:
    """It would fill the memory before its time is over."""
    given: list[int] = []

    class Endless(httpx2.AsyncByteStream):
        async def __aiter__(self) -> Any:
            while sum(given) < 20 * MOST_BYTES:
                given.append(65_536)
                yield b" " * 65_536

    on_sqlite.outside.answer = lambda: httpx2.Response(200, stream=Endless())

    assert (503, "keys_unreachable") == on_sqlite.call(on_sqlite.issuers.github("org/l2"))
    assert sum(given) <= MOST_BYTES + 2 * 65_536
