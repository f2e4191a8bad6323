"""RSA keys for the simulated apps and token issuers, and the TLS that loopback does without."""

from __future__ import annotations

import base64
import ssl
from functools import cache

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey, generate_private_key


@cache
def rsa_key(slot: str) -> RSAPrivateKey:
    """A 2,048-bit key, the same for the same slot within a process: making one takes a noticeable time."""
    return generate_private_key(public_exponent=65537, key_size=2048)


def private_pem(key: RSAPrivateKey) -> str:
    """The key as GitHub hands it out for an app: PKCS#1 in PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    ).decode()


def jwk(key: RSAPublicKey, kid: str) -> dict[str, str]:
    """The public half as an entry of a JWKS."""
    numbers = key.public_numbers()
    return {
        "kty": "RSA",
        "alg": "RS256",
        "use": "sig",
        "kid": kid,
        "n": _base64url(numbers.n),
        "e": _base64url(numbers.e),
    }


def plain_http() -> ssl.SSLContext:
    """A context without root certificates: all is plain HTTP here, and reading them would cost each start 60 ms."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _base64url(number: int) -> str:
    return base64.urlsafe_b64encode(number.to_bytes((number.bit_length() + 7) // 8, "big")).rstrip(b"=").decode()
