"""The token issuers: GitHub's for Actions, and Buildkite's.

https://docs.github.com/en/actions/reference/security/oidc
https://buildkite.com/docs/pipelines/security/oidc
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from relay.simulator.exchange import Answer, Call, Refused, Route
from relay.simulator.keys import jwk, rsa_key
from relay.simulator.model import Job, Json, Repository, Run

if TYPE_CHECKING:
    from relay.simulator.world import World

#: The audience that callbacks ask for unless told otherwise.
AUDIENCE = "pytorch-cross-repo-ci-relay"
#: How long a token is good for; GitHub's live minutes.
LIFETIME = 300


class Issuer:
    """One token issuer with its keys. Rotation adds a new signing key; the old ones stay published until retired."""

    def __init__(self, slot: str) -> None:
        self._slot = slot
        self._numbers = itertools.count()
        self._keys: list[tuple[str, RSAPrivateKey]] = []
        self.reads = 0
        self.rotate()

    def rotate(self, *, retire: bool = False) -> str:
        """Sign with a new key from now on, and return its ``kid``. With ``retire`` the old keys are withdrawn."""
        number = next(self._numbers)
        kid = f"{self._slot}-{number}"
        if retire:
            self._keys.clear()
        self._keys.append((kid, rsa_key(kid)))
        return kid

    def sign(self, claims: Json, *, kid: str | None = None) -> str:
        """Sign claims with the newest key. ``kid`` names another key in the header, as a forger would."""
        newest, key = self._keys[-1]
        return jwt.encode(claims, key, algorithm="RS256", headers={"kid": kid or newest})

    def jwks(self) -> Json:
        """The published key set."""
        self.reads += 1
        return {"keys": [jwk(key.public_key(), kid) for kid, key in self._keys]}


class Oidc:
    """Both issuers, and the minting of tokens with every claim they carry."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.github = Issuer("oidc-github")
        self.buildkite = Issuer("oidc-buildkite")

    @property
    def issuer(self) -> str:
        """The ``iss`` of GitHub's tokens here."""
        return f"{self._world.url}/oidc"

    @property
    def jwks_url(self) -> str:
        """Where GitHub's keys are published here."""
        return f"{self.issuer}/.well-known/jwks"

    @property
    def buildkite_issuer(self) -> str:
        """The ``iss`` of Buildkite's tokens here."""
        return f"{self._world.url}/buildkite-oidc"

    @property
    def buildkite_jwks_url(self) -> str:
        """Where Buildkite's keys are published here."""
        return f"{self.buildkite_issuer}/.well-known/jwks"

    def mint(
        self,
        repository: Repository,
        *,
        run_id: int | str,
        run_attempt: int | str = 1,
        event_name: str = "repository_dispatch",
        audience: str = AUDIENCE,
        claims: Json | None = None,
    ) -> str:
        """A token as a job of that repository's run would get it. ``claims`` replace or add; None removes one."""
        world = self._world
        now = int(world.seconds())
        ref = f"refs/heads/{repository.default_branch}"
        sha = repository.refs.get(ref, "0" * 40)
        listener = repository.listener
        path = listener.workflow_path if listener else ".github/workflows/crcr.yml"
        workflow_ref = f"{repository.full_name}/{path}@{ref}"
        run = repository.runs.get(int(run_id)) if str(run_id).isdigit() else None
        whole: Json = {
            "jti": world.guid(),
            "iss": self.issuer,
            "aud": audience,
            "sub": f"repo:{repository.full_name}:ref:{ref}",
            "ref": ref,
            "sha": sha,
            "repository": repository.full_name,
            "repository_id": str(repository.id),
            "repository_owner": repository.owner.login,
            "repository_owner_id": str(repository.owner.id),
            "repository_visibility": "private" if repository.private else "public",
            "run_id": str(run_id),
            "run_number": str(run.number if run else 1),
            "run_attempt": str(run_attempt),
            "actor": repository.owner.login,
            "actor_id": str(repository.owner.id),
            "workflow": listener.workflow if listener else "backend-ci",
            "head_ref": "",
            "base_ref": "",
            "event_name": event_name,
            "ref_type": "branch",
            "ref_protected": "true",
            "runner_environment": "github-hosted",
            "job_workflow_ref": workflow_ref,
            "job_workflow_sha": sha,
            "workflow_ref": workflow_ref,
            "workflow_sha": sha,
            "iat": now,
            "nbf": now - 300,
            "exp": now + LIFETIME,
        }
        return self.github.sign(_with(whole, claims))

    def mint_buildkite(
        self,
        *,
        organization_id: str,
        pipeline_id: str,
        build_commit: str = "0" * 40,
        audience: str = AUDIENCE,
        claims: Json | None = None,
    ) -> str:
        """A token as a Buildkite agent would get it, with the opt-in ids in it."""
        now = int(self._world.seconds())
        whole: Json = {
            "iss": self.buildkite_issuer,
            "aud": audience,
            "sub": f"organization:org:pipeline:ci:ref:refs/heads/main:commit:{build_commit}:step:report",
            "organization_slug": "org",
            "organization_id": organization_id,
            "pipeline_slug": "ci",
            "pipeline_id": pipeline_id,
            "build_number": 4711,
            "build_branch": "main",
            "build_commit": build_commit,
            "step_key": "report",
            "job_id": self._world.guid(),
            "iat": now,
            "nbf": now,
            "exp": now + LIFETIME,
        }
        return self.buildkite.sign(_with(whole, claims))


def _with(whole: Json, changes: Json | None) -> Json:
    merged: Json = {**whole, **(changes or {})}
    return {name: value for name, value in merged.items() if value is not None}


def _jwks(world: World, call: Call) -> Answer:
    issuer = world.oidc.buildkite if call.path.startswith("/buildkite-oidc") else world.oidc.github
    return Answer(200, issuer.jwks())


def _configuration(world: World, call: Call) -> Answer:
    base = world.oidc.buildkite_issuer if call.path.startswith("/buildkite-oidc") else world.oidc.issuer
    return Answer(
        200,
        {
            "issuer": base,
            "jwks_uri": f"{base}/.well-known/jwks",
            "subject_types_supported": ["public", "pairwise"],
            "response_types_supported": ["id_token"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "scopes_supported": ["openid"],
        },
    )


def _request_token(world: World, call: Call) -> Answer:
    """What ``ACTIONS_ID_TOKEN_REQUEST_URL`` answers, for the job whose request token is shown and only while it runs.

    https://docs.github.com/en/actions/reference/security/oidc#methods-for-requesting-the-oidc-token
    """
    run_id, _, shown = call.params["run"], None, call.headers.get("authorization", "").partition(" ")[2]
    for repository in world.repositories.values():
        run = repository.runs.get(int(run_id)) if run_id.isdigit() else None
        if run is None:
            continue
        job = _running(run, shown)
        if job is None:
            raise Refused(401, "The request token is not the one of a job that runs")
        audience: Any = call.query.get("audience") or f"{world.url}/{repository.owner.login}"
        claims = {"check_run_id": str(job.id)}
        token = world.oidc.mint(repository, run_id=run.id, run_attempt=run.attempt, audience=audience, claims=claims)
        return Answer(200, {"value": token, "count": len(token)})
    raise Refused(404, "Not Found")


def _running(run: Run, request_token: str) -> Job | None:
    jobs = run.attempts[-1].jobs
    return next((job for job in jobs if job.request_token == request_token and job.status == "in_progress"), None)


ROUTES = [
    Route("GET", "/oidc/.well-known/jwks", _jwks, caller="outside"),
    Route("GET", "/oidc/.well-known/openid-configuration", _configuration, caller="outside"),
    Route("GET", "/buildkite-oidc/.well-known/jwks", _jwks, caller="outside"),
    Route("GET", "/buildkite-oidc/.well-known/openid-configuration", _configuration, caller="outside"),
    Route("GET", "/_actions/idtoken/{run}", _request_token, caller="outside"),
]
