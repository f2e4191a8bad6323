"""Tokens: what proves a caller, what proves nothing, and how the issuers' keys are kept at hand."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from datetime import timedelta
from typing import Any

import pytest

from allowlist.model import RepoName
from relay.edge.keys import KeyCache, parse_jwks
from relay.edge.oidc import CallerKind, OidcVerifier, VerifiedCaller
from relay.edge.problems import ProblemError
from relay.settings import GITHUB_ISSUER, PRODUCTION_AUDIENCE, Issuer, Pipeline
from relay.simulator.keys import jwk, rsa_key
from tests.conftest import Clock
from tests.edge.callers import PIPELINE, Issuers

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The service runs on asyncio."""
    return "asyncio"


@pytest.fixture
def issuers(clock: Clock) -> Issuers:
    """GitHub and Buildkite, with keys of our own."""
    return Issuers(clock)


async def refusal(verifier: OidcVerifier, token: str) -> tuple[int, str]:
    """Status and code of the refusal that this token gets."""
    with pytest.raises(ProblemError) as refused:
        await verifier.verify(token)
    return refused.value.status, refused.value.code


async def test_a_github_token_proves_repository_run_and_event(issuers: Issuers) -> None:
    """Everything that is authorised on comes from the claims, ids as numbers."""
    token = issuers.github("Org/Backend", check_run_id="5", repository_visibility="internal")

    caller = await issuers.verifier().verify(token)

    assert caller == VerifiedCaller(
        kind=CallerKind.GITHUB,
        repo=RepoName("org", "backend"),
        issuer=GITHUB_ISSUER,
        jti="4fc26b23-912b-4d46-b423-3e1061543c46",
        repository_id=caller.repository_id,
        owner_id=caller.owner_id,
        run_id="24033272679",
        run_attempt=1,
        check_run_id="5",
        event_name="repository_dispatch",
        workflow_ref="Org/Backend/.github/workflows/ci.yml@refs/heads/main",
        job_workflow_ref="Org/Backend/.github/workflows/ci.yml@refs/heads/main",
        private=True,
    )
    assert (caller.repository_id or 0) + 1 == caller.owner_id


async def test_claims_are_text_that_every_database_can_keep(issuers: Issuers) -> None:
    """A NUL in a claim that is stored must not turn a good report into an error of the database."""
    caller = await issuers.verifier().verify(issuers.github("org/l2", jti="a\x00b", check_run_id="7\x00"))

    assert ("a\ufffdb", "7\ufffd") == (caller.jti, caller.check_run_id)


async def test_sub_is_never_read(issuers: Issuers) -> None:
    """Its form has changed once already."""
    for sub in (None, "repo:somebody/else:ref:refs/heads/main", 7):
        caller = await issuers.verifier().verify(issuers.github("org/l2", sub=sub))
        assert RepoName("org", "l2") == caller.repo


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"aud": "another"}, "wrong_audience"),
        ({"aud": [PRODUCTION_AUDIENCE]}, "wrong_audience"),
        ({"aud": [PRODUCTION_AUDIENCE, "another"]}, "wrong_audience"),
        ({"aud": None}, "wrong_audience"),
        ({"iss": "https://evil.example"}, "wrong_issuer"),
        ({"iss": f"{GITHUB_ISSUER}/"}, "wrong_issuer"),
        ({"iss": f"{GITHUB_ISSUER}/some-enterprise"}, "wrong_issuer"),
        ({"iss": None}, "wrong_issuer"),
        ({"exp": None}, "token_malformed"),
        ({"iat": None}, "token_malformed"),
        ({"exp": "tomorrow"}, "token_malformed"),
        ({"exp": True}, "token_malformed"),
        ({"exp": 10**400}, "token_malformed"),
        ({"iat": 10**400}, "token_malformed"),
        ({"nbf": 10**400}, "token_malformed"),
        ({"repository": None}, "claim_missing"),
        ({"repository": "no-slash"}, "claim_missing"),
        ({"repository_id": None}, "claim_missing"),
        ({"repository_id": "not a number"}, "claim_missing"),
        ({"run_id": None}, "claim_missing"),
        ({"event_name": None}, "claim_missing"),
    ],
)
async def test_a_token_with_a_wrong_claim_proves_nothing(issuers: Issuers, claims: dict[str, Any], code: str) -> None:
    """Exact issuer, exact audience as one string, and every claim that is authorised on."""
    assert (401, code) == await refusal(issuers.verifier(), issuers.github("org/l2", **claims))


@pytest.mark.parametrize(
    ("shift", "code"),
    [
        (timedelta(seconds=330), None),
        (timedelta(seconds=331), "token_expired"),
        (timedelta(seconds=-30), None),
        (timedelta(seconds=-31), "token_not_yet_valid"),
    ],
)
async def test_times_are_checked_against_our_clock_with_a_leeway(
    issuers: Issuers, clock: Clock, shift: timedelta, code: str | None
) -> None:
    """A token of five minutes, looked at too late, too early, and just in time."""
    token = issuers.github("org/l2")
    clock.advance(shift)

    if code is None:
        assert RepoName("org", "l2") == (await issuers.verifier().verify(token)).repo
    else:
        assert (401, code) == await refusal(issuers.verifier(), token)


async def test_nbf_counts_where_it_is_given(issuers: Issuers, clock: Clock) -> None:
    """It is optional, and then it binds."""
    soon = int((clock.now() + timedelta(minutes=2)).timestamp())

    assert (await issuers.verifier().verify(issuers.github("org/l2", nbf=None))).run_id is not None
    assert (401, "token_not_yet_valid") == await refusal(issuers.verifier(), issuers.github("org/l2", nbf=soon))


def forged(claims: dict[str, Any], header: dict[str, Any], secret: bytes = b"") -> str:
    """A token that needs no private key to make."""
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
        for part in ({"typ": "JWT"} | header, claims)
    ]
    signing_input = ".".join(parts)
    mac = hmac.new(secret, signing_input.encode(), hashlib.sha256).digest() if secret else b""
    return f"{signing_input}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


async def test_only_rs256_by_the_issuers_own_key_counts(issuers: Issuers) -> None:
    """Neither no signature, nor one by a secret that is public, nor another's key, nor a changed claim."""
    verifier, claims = issuers.verifier(), issuers.github_claims("org/l2")
    public = json.dumps(jwk(rsa_key("github-1").public_key(), "github-1")).encode()
    good = issuers.sign(claims)
    head, _, signature = good.split(".")
    other = forged({**claims, "repository": "org/other"}, {}).split(".")[1]

    assert (401, "wrong_algorithm") == await refusal(verifier, forged(claims, {"alg": "none", "kid": "github-1"}))
    assert (401, "wrong_algorithm") == await refusal(
        verifier, forged(claims, {"alg": "HS256", "kid": "github-1"}, public)
    )
    assert (401, "bad_signature") == await refusal(verifier, issuers.sign(claims, key="a stranger's"))
    assert (401, "bad_signature") == await refusal(verifier, f"{head}.{other}.{signature}")


async def test_one_issuers_key_does_not_sign_for_the_other(issuers: Issuers) -> None:
    """A Buildkite key under a GitHub issuer is unknown there."""
    claims = issuers.github_claims("org/l2")

    token = issuers.sign(claims, kid="buildkite-1", key="buildkite-1")

    assert (401, "unknown_key") == await refusal(issuers.verifier(), token)


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "a.b", "é.é.é", "x" * 20_000, "." * 100])
async def test_noise_is_no_token(issuers: Issuers, token: str) -> None:
    """Whatever stands behind Bearer is hostile text."""
    assert (401, "token_malformed") == await refusal(issuers.verifier(), token)
    assert not issuers.fetches


@pytest.mark.parametrize("header", [{"kid": None}, {"kid": 7}, {"kid": ""}, {}, {"kid": "github-1", "crit": ["exp"]}])
async def test_a_header_must_name_its_key_and_ask_for_nothing_else(issuers: Issuers, header: dict[str, Any]) -> None:
    """Extensions that we do not understand must not be ignored."""
    token = forged(issuers.github_claims("org/l2"), {"alg": "RS256", **header})

    assert (401, "token_malformed") == await refusal(issuers.verifier(), token)


async def test_an_enterprise_issuer_counts_when_it_is_configured(issuers: Issuers, clock: Clock) -> None:
    """One more path segment, the slug, and only that one."""
    slug = f"{GITHUB_ISSUER}/octo"
    issuers.kids[slug] = "octo-1"
    urls = {slug: f"{slug}/.well-known/jwks"}
    verifier = OidcVerifier(
        issuers=[Issuer(issuer=slug, jwks_url=urls[slug])],
        audience=PRODUCTION_AUDIENCE,
        pipelines={},
        keys=KeyCache(urls, fetch=issuers.fetch, now=clock.now),
        now=clock.now,
    )

    assert slug == (await verifier.verify(issuers.github("org/l2", iss=slug))).issuer
    assert (401, "wrong_issuer") == await refusal(verifier, issuers.github("org/l2"))


async def test_a_buildkite_token_is_mapped_by_its_ids(issuers: Issuers) -> None:
    """Ids in any case; slugs, which can be renamed, are not looked at."""
    verifier = issuers.verifier({PIPELINE: Pipeline(repo=RepoName("org", "ci"))})
    organization, pipeline = PIPELINE.upper().split("/")

    caller = await verifier.verify(issuers.buildkite(organization_id=organization, pipeline_id=pipeline))

    assert (CallerKind.BUILDKITE, RepoName("org", "ci"), None, None, "") == (
        caller.kind,
        caller.repo,
        caller.repository_id,
        caller.run_id,
        caller.event_name,
    )


@pytest.mark.parametrize(
    ("claims", "code", "fix"),
    [
        ({"organization_id": None}, "claims_missing", "--claim organization_id"),
        ({"pipeline_id": None}, "claims_missing", "--claim pipeline_id"),
        ({"pipeline_id": "another"}, "pipeline_not_mapped", "CRCR_BUILDKITE_PIPELINES"),
        ({"build_branch": "feature"}, "required_claim", "build_branch"),
        ({"build_branch": None}, "required_claim", "build_branch"),
    ],
)
async def test_a_buildkite_token_that_maps_to_nothing_says_what_to_do(
    issuers: Issuers, claims: dict[str, Any], code: str, fix: str
) -> None:
    """The claims are opt-in, so forgetting them is the usual mistake."""
    pipeline = Pipeline(repo=RepoName("org", "ci"), required_claims={"build_branch": "main"})
    verifier = issuers.verifier({PIPELINE: pipeline})

    with pytest.raises(ProblemError) as refused:
        await verifier.verify(issuers.buildkite(**claims))

    assert (403, code) == (refused.value.status, refused.value.code)
    assert fix in refused.value.detail


async def test_a_buildkite_token_cannot_pass_for_githubs(issuers: Issuers) -> None:
    """The issuer says whose claims these are, whatever else is among them."""
    token = issuers.buildkite(repository="org/l2", repository_id="1", run_id="1", event_name="repository_dispatch")

    assert (403, "pipeline_not_mapped") == await refusal(issuers.verifier(), token)


async def test_keys_are_fetched_once_an_hour_by_one_flight(issuers: Issuers, clock: Clock) -> None:
    """A burst at start waits for one fetch, and an hour of callbacks makes no other."""
    verifier = issuers.verifier()

    await asyncio.gather(*(verifier.verify(issuers.github("org/l2")) for _ in range(20)))
    clock.advance(timedelta(minutes=59))
    await verifier.verify(issuers.github("org/l2"))
    assert len(issuers.fetches) == 1

    clock.advance(timedelta(minutes=1))
    await verifier.verify(issuers.github("org/l2"))
    assert len(issuers.fetches) == 2


async def test_a_rotated_key_is_found_and_forged_ones_cause_no_fetches(issuers: Issuers, clock: Clock) -> None:
    """At most one fetch in half a minute, whatever key ids come."""
    verifier = issuers.verifier()
    await verifier.verify(issuers.github("org/l2"))
    claims = issuers.github_claims("org/l2")
    for number in range(50):
        assert (401, "unknown_key") == await refusal(verifier, issuers.sign(claims, kid=f"forged-{number}", key="x"))
    assert len(issuers.fetches) == 1

    issuers.kids[GITHUB_ISSUER] = "github-2"
    clock.advance(timedelta(seconds=30))

    assert RepoName("org", "l2") == (await verifier.verify(issuers.github("org/l2"))).repo
    assert len(issuers.fetches) == 2


async def test_a_key_id_that_is_too_long_is_not_looked_for(issuers: Issuers) -> None:
    """Nobody's key has such a name."""
    token = issuers.sign(issuers.github_claims("org/l2"), kid="k" * 201, key="x")

    assert (401, "unknown_key") == await refusal(issuers.verifier(), token)
    assert not issuers.fetches


async def test_old_keys_serve_a_day_while_the_issuer_is_down(issuers: Issuers, clock: Clock) -> None:
    """Its outage is not ours; after a day it is."""
    verifier = issuers.verifier()
    await verifier.verify(issuers.github("org/l2"))
    issuers.down = True

    clock.advance(timedelta(hours=23, minutes=59))
    assert RepoName("org", "l2") == (await verifier.verify(issuers.github("org/l2"))).repo
    assert len(issuers.fetches) == 2

    clock.advance(timedelta(minutes=1))
    assert (503, "keys_unreachable") == await refusal(verifier, issuers.github("org/l2"))


async def test_no_keys_at_all_is_our_fault_and_says_when_to_come_again(issuers: Issuers, clock: Clock) -> None:
    """Failed fetches have their cool-down too, and the issuer's return is noticed."""
    verifier = issuers.verifier()
    issuers.down = True

    with pytest.raises(ProblemError) as refused:
        await verifier.verify(issuers.github("org/l2"))
    clock.advance(timedelta(seconds=28.4))
    with pytest.raises(ProblemError) as later:
        await verifier.verify(issuers.github("org/l2"))

    assert (503, 30) == (refused.value.status, refused.value.retry_after)
    assert (503, 2) == (later.value.status, later.value.retry_after)
    assert len(issuers.fetches) == 1
    issuers.down = False
    clock.advance(timedelta(seconds=2))
    assert RepoName("org", "l2") == (await verifier.verify(issuers.github("org/l2"))).repo


async def test_a_caller_that_hangs_up_does_not_take_the_fetch_along(clock: Clock) -> None:
    """The fetch that it began still answers the others."""
    release, issuers = asyncio.Event(), Issuers(clock)

    async def slow(url: str) -> bytes:
        await release.wait()
        return await issuers.fetch(url)

    cache = KeyCache({GITHUB_ISSUER: f"{GITHUB_ISSUER}/.well-known/jwks"}, fetch=slow, now=clock.now)
    first = asyncio.create_task(cache.key(GITHUB_ISSUER, "github-1"))
    second = asyncio.create_task(cache.key(GITHUB_ISSUER, "github-1"))
    await asyncio.sleep(0)
    first.cancel()
    release.set()

    assert (await second).key_size == 2048
    assert len(issuers.fetches) == 1


def test_only_keys_that_can_sign_rs256_are_taken() -> None:
    """Keys for encryption, of other kinds, too short or without a name are left out; one bad key hurts no other."""
    good = jwk(rsa_key("github-1").public_key(), "good")
    entries = [
        good,
        {**good, "kid": "enc", "use": "enc"},
        {**good, "kid": "other", "alg": "RS512"},
        {**good, "kid": "short", "n": "AQAB"},
        {**good, "kid": "broken", "n": 7},
        {**good, "kid": "oct", "kty": "oct"},
        {**good, "kid": ""},
        {name: value for name, value in good.items() if name != "kid"},
        "noise",
    ]

    assert ["good"] == list(parse_jwks(json.dumps({"keys": entries}).encode()))


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"keys": 7}', b'{"keys": []}', b"<html>", b'{"keys": ["x"]}', b"9" * 1_000_001]
)
def test_what_is_no_key_set_is_refused(body: bytes) -> None:
    """An error page in place of the keys must not empty the cache."""
    with pytest.raises(ValueError, match=r"key set|JSON|EOF|value"):
        parse_jwks(body)
