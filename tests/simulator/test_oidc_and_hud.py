"""Token issuers with their keys, and the HUD that takes each report."""

from __future__ import annotations

from typing import Any

import jwt
import pytest

from relay.simulator import App, Fault, Kind, Match, Simulator
from tests.simulator.scene import Caller, Clock


def _verified(sim: Simulator, token: str, jwks_url: str, audience: str = "pytorch-cross-repo-ci-relay") -> Any:
    import httpx2

    keys = httpx2.get(jwks_url, trust_env=False).json()["keys"]
    kid = jwt.get_unverified_header(token)["kid"]
    key = jwt.PyJWK(next(item for item in keys if item["kid"] == kid))
    return jwt.decode(
        token,
        key.key,
        algorithms=["RS256"],
        audience=audience,
        options={"verify_exp": False, "verify_iat": False, "verify_nbf": False},
    )


#: Every claim of a token as GitHub's documentation lists them for a run of a default branch.
CLAIMS = """actor actor_id aud base_ref event_name exp head_ref iat iss job_workflow_ref job_workflow_sha jti nbf ref
ref_protected ref_type repository repository_id repository_owner repository_owner_id repository_visibility run_attempt
run_id run_number runner_environment sha sub workflow workflow_ref workflow_sha"""


def test_a_minted_token_verifies_and_has_every_claim(sim: Simulator, app: App, clock: Clock) -> None:
    """Ids are strings, as GitHub sends them."""
    be = sim.create_backend("Org/NPU")

    claims = _verified(sim, sim.mint("org/npu", run_id=7, run_attempt=2), sim.oidc.jwks_url)

    assert set(CLAIMS.split()) == set(claims)
    assert ("Org/NPU", str(be.id), str(be.repository.owner.id), "7", "2", "repository_dispatch", sim.oidc.issuer) == (
        claims["repository"],
        claims["repository_id"],
        claims["repository_owner_id"],
        claims["run_id"],
        claims["run_attempt"],
        claims["event_name"],
        claims["iss"],
    )
    assert (300, int(clock.now().timestamp())) == (claims["exp"] - claims["iat"], claims["iat"])


def test_claims_can_be_changed_added_and_left_out(sim: Simulator, app: App) -> None:
    """A forger's token is signed by the true key, so that only the claim itself is wrong."""
    sim.create_backend("org/npu")

    token = sim.mint("org/npu", run_id=7, event_name="pull_request", audience="me", actor=None, environment="prod")
    claims = _verified(sim, token, sim.oidc.jwks_url, "me")

    assert ("pull_request", "prod", False) == (claims["event_name"], claims["environment"], "actor" in claims)


def test_two_tokens_have_two_jti(sim: Simulator, app: App) -> None:
    """Each token is its own."""
    sim.create_backend("org/npu")
    ids = {jwt.decode(sim.mint("org/npu", run_id=7), options={"verify_signature": False})["jti"] for _ in range(3)}

    assert 3 == len(ids)


def test_keys_rotate_with_overlap_and_can_be_retired(sim: Simulator, app: App) -> None:
    """An old token verifies while its key is published, and no longer."""
    sim.create_backend("org/npu")
    old = sim.mint("org/npu", run_id=7)
    sim.oidc.github.rotate()
    new = sim.mint("org/npu", run_id=7)
    assert jwt.get_unverified_header(old)["kid"] != jwt.get_unverified_header(new)["kid"]

    assert {_verified(sim, token, sim.oidc.jwks_url)["run_id"] for token in (old, new)} == {"7"}

    sim.oidc.github.rotate(retire=True)
    with pytest.raises(StopIteration):
        _verified(sim, old, sim.oidc.jwks_url)
    assert 3 == sim.oidc.github.reads


def test_buildkite_has_an_issuer_and_keys_of_its_own(sim: Simulator, app: App) -> None:
    """GitHub's keys do not verify its tokens."""
    token = sim.mint_buildkite(organization_id="o-1", pipeline_id="p-1", build_branch="dev")

    claims = _verified(sim, token, sim.oidc.buildkite_jwks_url)
    assert ("o-1", "p-1", "dev", sim.oidc.buildkite_issuer) == (
        claims["organization_id"],
        claims["pipeline_id"],
        claims["build_branch"],
        claims["iss"],
    )
    assert "run_id" not in claims
    with pytest.raises(StopIteration):
        _verified(sim, token, sim.oidc.jwks_url)


def test_each_issuer_describes_itself(sim: Simulator, caller: Caller) -> None:
    """The discovery document leads to the keys; the simulator's faults can take both down."""
    for issuer, jwks in (
        (sim.oidc.issuer, sim.oidc.jwks_url),
        (sim.oidc.buildkite_issuer, sim.oidc.buildkite_jwks_url),
    ):
        found = caller.http.get(f"{issuer}/.well-known/openid-configuration").json()
        assert (issuer, jwks) == (found["issuer"], found["jwks_uri"])
    sim.faults.add(Fault(Kind.SERVER_ERROR, Match("GET", "/.well-known/jwks"), status=503))
    assert [503, 200] == [caller.http.get(sim.oidc.jwks_url).status_code for _ in range(2)]


def _row() -> dict[str, Any]:
    return {"trusted": {"verified_repo": "org/npu"}, "untrusted": {"callback_payload": {}}}


def test_the_hud_keeps_what_comes_with_its_key(sim: Simulator, caller: Caller) -> None:
    """A wrong key, or a body of another shape, is refused and kept out."""
    url = f"{sim.hud_url}/crcr/results"
    key = {"x-hud-internal-bot": sim.hud.key}

    assert 200 == caller.http.post(url, json=_row(), headers=key).status_code
    assert 401 == caller.http.post(url, json=_row()).status_code
    assert 401 == caller.http.post(url, json=_row(), headers={"x-hud-internal-bot": "wrong"}).status_code
    assert 400 == caller.http.post(url, json={"trusted": {}}, headers=key).status_code
    sim.faults.add(Fault(Kind.SERVER_ERROR, Match("POST", "/hud/"), status=500))
    assert 500 == caller.http.post(url, json=_row(), headers=key).status_code
    assert [_row()] == [row.body for row in sim.hud.rows]
