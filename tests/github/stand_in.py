"""A stand-in for GitHub's side of the conversation: it keeps repositories and installations and remembers each call.

It answers through respx, so nothing here opens a socket. Where sockets matter, tests use ``loopback``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from allowlist.model import RepoName

API = "https://api.github.com"
START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
UPSTREAM = RepoName("up", "stream")
HEAD = "a" * 40


def new_pem(bits: int = 2048) -> str:
    """A private key such as GitHub's app page gives out."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=bits)
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()


class Clock:
    """A clock that stands until a test moves it."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **by: float) -> None:
        self.now += timedelta(**by)


@dataclass
class Repository:
    id: int
    full_name: str
    owner_id: int
    installation_id: int | None
    private: bool = False
    archived: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "full_name": self.full_name,
            "private": self.private,
            "archived": self.archived,
            "owner": {"id": self.owner_id, "login": self.full_name.split("/")[0]},
        }


@dataclass
class StandIn:
    """GitHub with a few repositories. ``script`` holds answers to give instead of the usual one, by method and path."""

    clock: Clock
    repositories: list[Repository] = field(default_factory=list)
    renamed: dict[str, int] = field(default_factory=dict)
    script: dict[tuple[str, str], list[httpx.Response | Exception]] = field(default_factory=dict)
    requests: list[httpx.Request] = field(default_factory=list)
    minted: int = 0

    def add(self, full_name: str, *, id: int, owner_id: int = 1, installation_id: int | None = 50) -> Repository:  # noqa: A002
        self.repositories.append(Repository(id, full_name, owner_id, installation_id))
        return self.repositories[-1]

    def will(self, method: str, path: str, *answers: httpx.Response | Exception) -> None:
        """Answer the next calls of that method and path so."""
        self.script.setdefault((method, path), []).extend(answers)

    def calls(self, method: str = "", ending: str = "") -> list[httpx.Request]:
        return [r for r in self.requests if r.method.startswith(method) and r.url.path.endswith(ending)]

    def bodies(self, ending: str) -> list[Any]:
        return [json.loads(request.content) for request in self.calls(ending=ending)]

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        scripted = self.script.get((request.method, request.url.path))
        if scripted:
            answer = scripted.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        for pattern, answering in self._table().items():
            if found := re.fullmatch(pattern, f"{request.method} {request.url.path}"):
                return answering(request, *found.groups())
        return httpx.Response(404, json={"message": "Not Found"})

    def _table(self) -> dict[str, Callable[..., httpx.Response]]:
        return {
            r"GET /repos/([^/]+/[^/]+)/installation": self._installation,
            r"POST /app/installations/(\d+)/access_tokens": self._mint,
            r"GET /repos/([^/]+/[^/]+)": self._repository,
            r"GET /repositories/(\d+)": self._by_id,
            r"POST /rep[^/]+/.+/dispatches": lambda _: httpx.Response(204),
            r"POST /rep[^/]+/.+/check-runs": lambda _: httpx.Response(201, json={"id": 900}),
            r"PATCH /rep[^/]+/.+/check-runs/(\d+)": lambda _, number: httpx.Response(200, json={"id": int(number)}),
        }

    def _named(self, full_name: str) -> Repository | None:
        return next((repo for repo in self.repositories if repo.full_name == full_name), None)

    def _installation(self, _: httpx.Request, full_name: str) -> httpx.Response:
        repo = self._named(full_name)
        if repo is None or repo.installation_id is None:
            return httpx.Response(404, json={"message": "Not Found"})
        return httpx.Response(200, json={"id": repo.installation_id, "account": {"id": repo.owner_id}})

    def _mint(self, request: httpx.Request, installation: str) -> httpx.Response:
        wanted = json.loads(request.content)
        inside = [repo for repo in self.repositories if repo.installation_id == int(installation)]
        if not inside:
            return httpx.Response(404, json={"message": "Not Found"})
        chosen = [
            repo
            for repo in inside
            if repo.id in wanted.get("repository_ids", ())
            or repo.full_name.split("/")[1] in wanted.get("repositories", ())
        ]
        if not chosen:
            told = (
                "There is at least one repository that does not exist or is not accessible to the parent installation."
            )
            return httpx.Response(422, json={"message": told})
        self.minted += 1
        expires = self.clock() + timedelta(hours=1)
        return httpx.Response(
            201,
            json={
                "token": f"ghs_secret{self.minted}",
                "expires_at": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "permissions": wanted["permissions"],
                "repositories": [repo.as_json() for repo in chosen],
            },
        )

    def _repository(self, _: httpx.Request, full_name: str) -> httpx.Response:
        if repo := self._named(full_name):
            return httpx.Response(200, json=repo.as_json() | {"default_branch": "main"})
        if full_name in self.renamed:
            return httpx.Response(301, headers={"location": f"{API}/repositories/{self.renamed[full_name]}"})
        return httpx.Response(404, json={"message": "Not Found"})

    def _by_id(self, _: httpx.Request, number: str) -> httpx.Response:
        found = next((repo for repo in self.repositories if repo.id == int(number)), None)
        return httpx.Response(200, json=found.as_json()) if found else httpx.Response(404)
