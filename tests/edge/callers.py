"""A relay reduced to its callback edge, and the callers who report to it with tokens of their own issuers."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import jwt
from fastapi import FastAPI
from sqlalchemy import Row, insert, select
from starlette.testclient import TestClient

from allowlist.model import Allowlist, Entry, Level, RepoName
from relay.capability import CapabilityKeys
from relay.deciding.terms import Terms
from relay.edge.callback import callback_router
from relay.edge.keys import KeyCache
from relay.edge.oidc import OidcVerifier
from relay.settings import BUILDKITE_ISSUER, DEFAULT_ISSUERS, GITHUB_ISSUER, PRODUCTION_AUDIENCE, Pipeline
from relay.simulator.keys import jwk, rsa_key
from relay.store import tables
from relay.store.checks import CheckTerms
from relay.store.engine import Store
from relay.store.reports import KeepTerms
from tests.conftest import Clock

UPSTREAM = RepoName("pytorch", "pytorch")
S1, S2 = "1" * 40, "2" * 40
D1 = "a8f5f167-6e5b-4c3d-8a2e-4b5c6d7e8f9a"
DATA = Path(__file__).parent / "data"
PIPELINE = "018b0000-0000-4000-8000-000000000001/018c0000-0000-4000-8000-000000000002"


def sample(name: str) -> dict[str, Any]:
    """A body as it travels in production."""
    body: dict[str, Any] = json.loads((DATA / name).read_text())
    return body


class Issuers:
    """The two issuers, played with keys of our own: mints tokens, and answers for the key sets."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.fetches: list[str] = []
        self.down = False
        self.kids = {GITHUB_ISSUER: "github-1", BUILDKITE_ISSUER: "buildkite-1"}

    async def fetch(self, url: str) -> bytes:
        """The key set at this URL."""
        self.fetches.append(url)
        if self.down:
            raise ConnectionError("the issuer is down")
        issuer = url.removesuffix("/.well-known/jwks")
        kid = self.kids[issuer]
        return json.dumps({"keys": [jwk(rsa_key(kid).public_key(), kid)]}).encode()

    def verifier(self, pipelines: dict[str, Pipeline] | None = None) -> OidcVerifier:
        """A verifier that trusts these two."""
        urls = {anchor.issuer: anchor.jwks_url for anchor in DEFAULT_ISSUERS}
        return OidcVerifier(
            issuers=DEFAULT_ISSUERS,
            audience=PRODUCTION_AUDIENCE,
            pipelines=pipelines or {},
            keys=KeyCache(urls, fetch=self.fetch, now=self.clock.now),
            now=self.clock.now,
        )

    def sign(self, claims: dict[str, Any], *, kid: str | None = None, key: str | None = None) -> str:
        """A token with these claims, signed by the issuer they name."""
        own = self.kids.get(str(claims.get("iss")), "stranger")
        headers = {"kid": kid or own}
        return jwt.encode(claims, rsa_key(key or own), algorithm="RS256", headers=headers)

    def github_claims(self, repo: str, **claims: Any) -> dict[str, Any]:
        """What GitHub says of a run of this repository; a claim given as None is left out."""
        now = int(self.clock.now().timestamp())
        whole = {
            **sample("oidc_claims_github.json"),
            "iss": GITHUB_ISSUER,
            "aud": PRODUCTION_AUDIENCE,
            "iat": now,
            "nbf": now,
            "exp": now + 300,
            "repository": repo,
            "repository_id": str(id_of(repo)),
            "repository_owner_id": str(id_of(repo) + 1),
            "workflow_ref": f"{repo}/.github/workflows/ci.yml@refs/heads/main",
            "job_workflow_ref": f"{repo}/.github/workflows/ci.yml@refs/heads/main",
            **claims,
        }
        return {name: value for name, value in whole.items() if value is not None}

    def github(self, repo: str, **claims: Any) -> str:
        """A token of a run of this repository."""
        return self.sign(self.github_claims(repo, **claims))

    def buildkite(self, **claims: Any) -> str:
        """A token of the build of one pipeline."""
        now = int(self.clock.now().timestamp())
        whole = {**sample("oidc_claims_buildkite.json"), "iat": now, "nbf": now, "exp": now + 300, **claims}
        return self.sign({name: value for name, value in whole.items() if value is not None})


def id_of(repo: str) -> int:
    """The id that GitHub gave a repository of that name, in these tests."""
    return 1000 + sum(repo.lower().encode()) * 10


class Bench:
    """The callback edge over HTTP, on a real store, with a record to report on."""

    def __init__(self, store: Store, clock: Clock, *, hud: bool = False, **options: Any) -> None:
        self.store = store
        self.clock = clock
        self.issuers = Issuers(clock)
        self.capabilities = CapabilityKeys.of(["a key of sixteen or more characters"])
        self.entries: dict[RepoName, Entry] = {}
        self.woken = 0
        pipelines = {PIPELINE: Pipeline(repo=RepoName("org", "l2"))}
        app = FastAPI()
        app.include_router(
            callback_router(
                store=store,
                verifier=self.issuers.verifier(pipelines),
                capabilities=self.capabilities,
                allowlist=lambda: Allowlist(tuple(self.entries.values())),
                terms=KeepTerms(CheckTerms(UPSTREAM, "ciflow/crcr/", timedelta(seconds=3)), hud=hud),
                now=clock.now,
                wake=self._wake,
                **options,
            )
        )
        self.http = TestClient(app)

    def _wake(self) -> None:
        self.woken += 1

    def allow(self, repo: str, level: Level, **terms: Any) -> Entry:
        """List a backend, and let GitHub's ids of it be known."""
        entry = Entry(RepoName.parse(repo), level, **terms)
        known = entry.repo in self.entries
        self.entries[entry.repo] = entry
        if not known:
            self.add(
                tables.Backend, repo=str(entry.repo), repository_id=id_of(repo), owner_id=id_of(repo) + 1, private=False
            )
        return entry

    def change(self, head_sha: str = S1, number: int = 181739, labels: Iterable[str] = ()) -> int:
        """A pull request's head."""
        now = self.clock.now()
        return self.add(
            tables.Change,
            kind="pull_request",
            thread=f"pull {number}",
            head_sha=head_sha,
            number=number,
            title="",
            author="",
            author_association="",
            html_url="",
            draft=False,
            labels=json.dumps(list(labels)),
            state="open",
            verified=True,
            created_at=now,
            updated_at=now,
            received_at=now,
        )

    def dispatch(self, repo: str, change_id: int, delivery: str = D1, **columns: Any) -> int:
        """This backend was told of that change, a moment ago."""
        entry = self.entries[RepoName.parse(repo)]
        now = self.clock.now()
        values = {
            "change_id": change_id,
            "backend": str(entry.repo),
            "level": int(entry.level),
            "device": entry.device,
            "purpose": "test",
            "event_type": "pull_request",
            "delivery_id": delivery,
            "origin_delivery": delivery,
            "state": "sent",
            "reason_code": "listed",
            "reason": "",
            "terms": Terms.of(entry).to_json(),
            "created_at": now,
            "sent_at": now,
            "give_up_at": now + entry.timeouts.queue + entry.timeouts.run,
            "next_deadline": now + entry.timeouts.queue,
            "outcome": "queued",
            "outcome_at": now,
            "legs_reported": 0,
            "late": False,
        }
        return self.add(tables.Dispatch, **{**values, **columns})

    def told(self, repo: str, level: Level, delivery: str = D1, **terms: Any) -> int:
        """List a backend and tell it of a pull request; the dispatch's id."""
        self.allow(repo, level, **terms)
        changes = self.rows(tables.Change)
        return self.dispatch(repo, changes[0].id if changes else self.change(), delivery)

    def add(self, table: Any, **values: Any) -> Any:
        """Insert one row; its key."""
        statement = insert(table.__table__).values(**values)
        return self.store.write_now(lambda conn: conn.execute(statement).inserted_primary_key[0])  # type: ignore[index]

    def rows(self, table: Any) -> list[Row[Any]]:
        """All rows of a table, in the order in which they were made."""
        columns = table.__table__
        return self.store.read_now(lambda conn: list(conn.execute(select(columns).order_by(*columns.primary_key))))

    def row(self, table: Any) -> Row[Any]:
        """The only row of a table."""
        (only,) = self.rows(table)
        return only

    def body(self, *, delivery: str = D1, dispatch_id: int | None = None, **workflow: Any) -> dict[str, Any]:
        """A callback's body as the relay's own action sends it; with ``dispatch_id`` it carries the capability."""
        body = copy.deepcopy(sample("callback_completed_production.json"))
        body["delivery_id"] = delivery
        body["payload"]["pull_request"]["head"]["sha"] = S1
        body["workflow"] = {
            "schema_version": "1",
            "status": "completed",
            "conclusion": "success",
            "name": "ci",
            "url": "https://github.com/org/l2/actions/runs/24033272679",
            "run_id": "24033272679",
            "run_attempt": "1",
            "job_name": "test",
            **workflow,
        }
        if dispatch_id is not None:
            body["relay"] = {"schema": 1, "token": self.capabilities.issue(dispatch_id)}
        return body

    def post(self, body: Any, token: str | None = None, *, path: str = "/github/callback", repo: str = "org/l2") -> Any:
        """Send a callback; the token is, unless given, one of the run and attempt that the body names."""
        if token is None:
            workflow = body.get("workflow", {}) if isinstance(body, dict) else {}
            claims = {"run_id": workflow.get("run_id"), "run_attempt": str(workflow.get("run_attempt", 1))}
            token = self.issuers.github(repo, **claims)
        return self.http.post(path, json=body, headers={"Authorization": f"Bearer {token}"})

    def relist(self, repo: str, **terms: Any) -> None:
        """Edit a backend's entry."""
        name = RepoName.parse(repo)
        self.entries[name] = replace(self.entries[name], **terms)
