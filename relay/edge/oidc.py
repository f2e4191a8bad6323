"""Who is calling: an OIDC token in, a proven repository out.

Only ``OidcVerifier.verify`` makes a ``VerifiedCaller``; whatever needs to know who speaks asks for one by type. Trust
anchors come from settings only. The form of ``sub`` has changed once already and is never read.
https://docs.github.com/actions/reference/security/oidc
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from jwt import PyJWS
from jwt.algorithms import RSAAlgorithm
from jwt.exceptions import PyJWTError
from pydantic_core import from_json

from allowlist.model import RepoName
from relay.clock import Now
from relay.edge.body import clean_text
from relay.edge.keys import KeyCache
from relay.edge.problems import ProblemError
from relay.settings import BUILDKITE_ISSUER, GITHUB_ISSUER, Issuer, Pipeline

LEEWAY = timedelta(seconds=30)
MOST_TOKEN = 16_384
_ALGORITHM = "RS256"
_MOST_CLAIM = 1_000


class CallerKind(StrEnum):
    """Which CI a token comes from."""

    GITHUB = "github"
    BUILDKITE = "buildkite"


@dataclass(frozen=True, slots=True)
class VerifiedCaller:
    """A repository whose token we checked. Made only by ``OidcVerifier.verify``.

    Ids are None, and texts empty, where the issuer's tokens do not say.
    """

    kind: CallerKind
    repo: RepoName
    issuer: str
    jti: str = ""
    repository_id: int | None = None
    owner_id: int | None = None
    run_id: str | None = None
    run_attempt: int | None = None
    check_run_id: str | None = None
    event_name: str = ""
    workflow_ref: str = ""
    job_workflow_ref: str = ""
    private: bool = False


@dataclass(frozen=True, slots=True)
class _Unverified:
    """A token taken apart: what it claims, and which bytes are signed how by which key."""

    issuer: str
    kid: str
    claims: Mapping[str, Any]
    signed: bytes
    signature: bytes


class OidcVerifier:
    """Checks tokens against the issuers, the audience and the clock it was given."""

    def __init__(
        self,
        *,
        issuers: Sequence[Issuer],
        audience: str,
        pipelines: Mapping[str, Pipeline],
        keys: KeyCache,
        now: Now,
    ) -> None:
        self._issuers = frozenset(anchor.issuer for anchor in issuers)
        self._audience = audience
        self._pipelines = pipelines
        self._keys = keys
        self._now = now
        self._jws = PyJWS(algorithms=[_ALGORITHM])
        self._rs256 = RSAAlgorithm(RSAAlgorithm.SHA256)

    async def verify(self, token: str) -> VerifiedCaller:
        """The caller this token proves.

        Raises ProblemError: 401 for a token that proves nothing (``token_expired`` has its own code), 403 for a proven
        caller whose claims name no repository of ours, 503 when the issuer's keys cannot be had.
        """
        unverified = self._unverified(token)
        key = await self._keys.key(unverified.issuer, unverified.kid)
        if not self._rs256.verify(unverified.signed, key, unverified.signature):
            raise ProblemError(401, "bad_signature", "The token's signature does not fit its issuer's key.")
        issuer, claims = unverified.issuer, unverified.claims
        self._check_audience(claims)
        self._check_times(claims)
        if _kind(issuer, claims) is CallerKind.BUILDKITE:
            return _buildkite(claims, issuer, self._pipelines)
        return _github(claims, issuer)

    def _unverified(self, token: str) -> _Unverified:
        """The token taken apart, with the key it says it was signed by. Nothing of it is proven yet."""
        if not token or len(token) > MOST_TOKEN or not token.isascii():
            raise _malformed("it is empty, too long or not ASCII")
        try:
            unverified = self._jws.decode_complete(token, options={"verify_signature": False})
            claims = from_json(unverified["payload"])
        except (PyJWTError, ValueError):
            raise _malformed("it is not a signed JSON Web Token") from None
        header = unverified["header"]
        if header.get("alg") != _ALGORITHM:
            raise ProblemError(401, "wrong_algorithm", f"Tokens must be signed with {_ALGORITHM}.")
        if "crit" in header or "b64" in header:
            raise _malformed("its header asks for extensions that are not understood")
        kid = header.get("kid")
        if not isinstance(kid, str) or not kid:
            raise _malformed("its header names no key (kid)")
        if not isinstance(claims, dict):
            raise _malformed("its claims are not an object")
        issuer = claims.get("iss")
        if not isinstance(issuer, str) or issuer not in self._issuers:
            raise ProblemError(
                401, "wrong_issuer", "The token's issuer is not one of those this relay trusts (CRCR_OIDC_ISSUERS)."
            )
        # PyJWT's own check would take the token apart once more, which costs more than the check.
        signed = token.rpartition(".")[0].encode()
        return _Unverified(issuer, kid, claims, signed, unverified["signature"])

    def _check_audience(self, claims: Mapping[str, Any]) -> None:
        # A list that contains our audience is a token that others take as well, so whoever received it there could
        # use it here.
        if claims.get("aud") != self._audience:
            raise ProblemError(401, "wrong_audience", f"Mint the token for the audience {self._audience!r}, alone.")

    def _check_times(self, claims: Mapping[str, Any]) -> None:
        now, leeway = self._now().timestamp(), LEEWAY.total_seconds()
        expires, issued = _seconds(claims, "exp"), _seconds(claims, "iat")
        begins = _seconds(claims, "nbf") if claims.get("nbf") is not None else issued
        if now > expires + leeway:
            raise ProblemError(
                401,
                "token_expired",
                "The token has expired. Mint it in the step that reports; mint again to retry.",
            )
        if now < max(begins, issued) - leeway:
            raise ProblemError(401, "token_not_yet_valid", "The token is not valid yet. Compare the clocks.")


def _kind(issuer: str, claims: Mapping[str, Any]) -> CallerKind:
    """Told by the issuer; a private issuer's tokens are told apart by the claims only Buildkite has."""
    if issuer == BUILDKITE_ISSUER:
        return CallerKind.BUILDKITE
    if issuer == GITHUB_ISSUER or issuer.startswith(f"{GITHUB_ISSUER}/") or "repository" in claims:
        return CallerKind.GITHUB
    return CallerKind.BUILDKITE


def _github(claims: Mapping[str, Any], issuer: str) -> VerifiedCaller:
    try:
        repo = RepoName.parse(_text(claims, "repository"))
    except ValueError:
        raise _claim_missing("repository") from None
    repository_id, owner_id = _number(claims, "repository_id"), _number(claims, "repository_owner_id")
    run_id, event_name = _text(claims, "run_id"), _text(claims, "event_name")
    # Names are used again after a rename or a deletion, so a token without the id proves nothing that lasts.
    for name, value in (("repository_id", repository_id), ("run_id", run_id), ("event_name", event_name)):
        if not value:
            raise _claim_missing(name)
    return VerifiedCaller(
        kind=CallerKind.GITHUB,
        repo=repo,
        issuer=issuer,
        jti=_text(claims, "jti"),
        repository_id=repository_id,
        owner_id=owner_id,
        run_id=run_id,
        run_attempt=_number(claims, "run_attempt"),
        check_run_id=_text(claims, "check_run_id") or None,
        event_name=event_name,
        workflow_ref=_text(claims, "workflow_ref"),
        job_workflow_ref=_text(claims, "job_workflow_ref"),
        private=_text(claims, "repository_visibility") in {"private", "internal"},
    )


def _buildkite(claims: Mapping[str, Any], issuer: str, pipelines: Mapping[str, Pipeline]) -> VerifiedCaller:
    organization, pipeline_id = _text(claims, "organization_id").lower(), _text(claims, "pipeline_id").lower()
    if not organization or not pipeline_id:
        # Opt-in, https://buildkite.com/docs/agent/cli/reference/oidc
        raise ProblemError(
            403,
            "claims_missing",
            "The token lacks organization_id or pipeline_id. Request it with "
            "`buildkite-agent oidc request-token --claim organization_id --claim pipeline_id`.",
        )
    pipeline = pipelines.get(f"{organization}/{pipeline_id}")
    if pipeline is None:
        raise ProblemError(
            403,
            "pipeline_not_mapped",
            "No repository is mapped to this pipeline. An admin adds its organization and pipeline ids to "
            "CRCR_BUILDKITE_PIPELINES.",
        )
    for name, wanted in pipeline.required_claims.items():
        if claims.get(name) != wanted:
            raise ProblemError(403, "required_claim", f"The token's claim {name!r} is not what this pipeline requires.")
    return VerifiedCaller(kind=CallerKind.BUILDKITE, repo=pipeline.repo, issuer=issuer, jti=_text(claims, "jti"))


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    return clean_text(str(value)[:_MOST_CLAIM])


def _number(claims: Mapping[str, Any], name: str) -> int | None:
    """GitHub writes its ids as strings of digits."""
    text = _text(claims, name)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _seconds(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    try:
        seconds = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:  # JSON's whole numbers have no end, and floating-point numbers do.
        seconds = math.nan
    if not math.isfinite(seconds):
        raise _malformed(f"its claim {name} is not a time in seconds")
    return seconds


def _malformed(why: str) -> ProblemError:
    return ProblemError(401, "token_malformed", f"The token cannot be used: {why}.")


def _claim_missing(name: str) -> ProblemError:
    return ProblemError(401, "claim_missing", f"The token has no usable claim {name!r}.")
