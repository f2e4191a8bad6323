"""The public keys of the issuers we trust, kept at hand so that a callback almost never waits for them.

PyJWT's own client blocks the event loop, forgets its keys after five minutes and asks again at every failure. This one
keeps a key set for an hour, keeps on using it for a day while the issuer is down, lets one fetch answer everybody who
waits for it, and asks an issuer at most twice a minute whatever tokens arrive.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType

import structlog
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import RSAAlgorithm
from jwt.exceptions import PyJWTError
from pydantic_core import from_json

from relay.clock import Now
from relay.edge.problems import ProblemError

#: Returns the bytes at a URL. Whatever it raises counts as "the issuer did not answer".
Fetch = Callable[[str], Awaitable[bytes]]

FRESH = timedelta(hours=1)
USABLE = timedelta(hours=24)
COOL_DOWN = timedelta(seconds=30)
FETCH_SECONDS = 5.0
MOST_BYTES = 1_000_000
MOST_KEYS = 100
MOST_KID = 200
LEAST_BITS = 2048

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _KeySet:
    """What we hold of one issuer. Only the event loop touches it."""

    url: str
    keys: Mapping[str, RSAPublicKey] = field(default_factory=dict)
    fetched_at: datetime | None = None
    tried_at: datetime | None = None
    failed: bool = False
    flight: asyncio.Task[None] | None = None


class KeyCache:
    """Keys by issuer and key id. Each key is parsed once, when its set is fetched."""

    def __init__(self, jwks_urls: Mapping[str, str], *, fetch: Fetch, now: Now) -> None:
        self._sets: Mapping[str, _KeySet] = MappingProxyType({name: _KeySet(url) for name, url in jwks_urls.items()})
        self._fetch = fetch
        self._now = now

    async def key(self, issuer: str, kid: str) -> RSAPublicKey:
        """The key by which this issuer signs under ``kid``.

        Raises ProblemError: 401 ``unknown_key`` when the issuer has no such key, 503 ``keys_unreachable`` when the
        issuer did not tell us. The issuer must be one of those given.
        """
        known = self._sets[issuer]
        if len(kid) > MOST_KID:
            raise _unknown()
        found = known.keys.get(kid)
        if found is not None and self._age(known) < FRESH:
            return found
        await self._refresh(issuer, known)
        found = known.keys.get(kid)
        if found is not None and self._age(known) < USABLE:
            return found
        if known.failed or known.fetched_at is None:
            wait = COOL_DOWN if known.tried_at is None else known.tried_at + COOL_DOWN - self._now()
            raise ProblemError(
                503,
                "keys_unreachable",
                "The issuer's keys could not be fetched, so the token could not be checked. Nothing was consumed.",
                # Rounded up: whoever comes at that very second must not come too early.
                retry_after=max(1, math.ceil(wait.total_seconds())),
            )
        raise _unknown()

    def _age(self, known: _KeySet) -> timedelta:
        return timedelta.max if known.fetched_at is None else self._now() - known.fetched_at

    async def _refresh(self, issuer: str, known: _KeySet) -> None:
        if known.flight is None:
            now = self._now()
            if known.tried_at is not None and timedelta() <= now - known.tried_at < COOL_DOWN:
                return
            known.tried_at = now
            known.flight = asyncio.create_task(self._fetch_into(issuer, known))
        # The caller who began the flight may hang up; the others still wait for it.
        await asyncio.shield(known.flight)

    async def _fetch_into(self, issuer: str, known: _KeySet) -> None:
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                body = await self._fetch(known.url)
            keys = parse_jwks(body)
        except Exception as error:  # noqa: BLE001  # However the fetch failed, the keys we have stay in use.
            known.failed = True
            _log.warning("oidc_keys_unreachable", issuer=issuer, error=type(error).__name__)
        else:
            known.keys, known.fetched_at, known.failed = keys, self._now(), False
        finally:
            known.flight = None


def parse_jwks(body: bytes) -> Mapping[str, RSAPublicKey]:
    """The RSA signing keys of a key set by their ids. Raises ValueError when there is none that can be used."""
    if len(body) > MOST_BYTES:
        raise ValueError("the key set is too large")
    document = from_json(body)
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError("not a key set")
    keys: dict[str, RSAPublicKey] = {}
    for entry in entries[:MOST_KEYS]:
        kid = entry.get("kid") if isinstance(entry, dict) else None
        if not isinstance(kid, str) or not 0 < len(kid) <= MOST_KID:
            continue
        if entry.get("use", "sig") != "sig" or entry.get("alg", "RS256") != "RS256":
            continue
        try:
            key = RSAAlgorithm.from_jwk(entry)
        except (PyJWTError, ValueError, TypeError, KeyError):
            continue
        if isinstance(key, RSAPublicKey) and key.key_size >= LEAST_BITS:
            keys[kid] = key
    if not keys:
        raise ValueError("no RSA signing key in the key set")
    return MappingProxyType(keys)


def _unknown() -> ProblemError:
    return ProblemError(401, "unknown_key", "The token names a key that its issuer does not have. Mint a new token.")
