"""The apps' private keys, and the short-lived JSON web tokens by which an app speaks for itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

_SMALLEST = 2048
# GitHub takes at most ten minutes; the issue time is set back a minute for clocks that drift,
# https://docs.github.com/apps/creating-github-apps/authenticating-with-a-github-app/generating-a-json-web-token-jwt-for-a-github-app
_BACKDATED = timedelta(seconds=60)
_LIFE = timedelta(minutes=9)
_MARGIN = timedelta(seconds=30)


class BadKey(ValueError):  # noqa: N818  Named for what is wrong, as the other errors are.
    """The text is no private key that an app can use; says why and what to do, never what it contains."""


def read_key(pem_text: str) -> RSAPrivateKey:
    """The private key that GitHub's app page gave out. Raises BadKey."""
    # Environments that cannot hold line breaks carry them as the two characters \n.
    text = pem_text.strip().replace("\\n", "\n").replace("\r\n", "\n")
    if not text:
        raise BadKey("the private key is empty; paste the whole .pem file that GitHub's app page gave out")
    if "PRIVATE KEY-----" not in text:
        kind = "a certificate or public key" if "-----BEGIN" in text else "no PEM text"
        raise BadKey(f"the private key is {kind}; paste the whole .pem file, from -----BEGIN to its last -----")
    try:
        key = load_pem_private_key(text.encode("utf-8", "replace"), password=None)
    except TypeError:
        raise BadKey("the private key is encrypted; give the plain .pem file as GitHub made it") from None
    except (ValueError, UnsupportedAlgorithm):
        # The cause is not chained: its text may repeat parts of the key.
        raise BadKey("the private key's PEM text is damaged or cut short; paste the whole .pem file") from None
    if not isinstance(key, RSAPrivateKey):
        raise BadKey("the private key is not an RSA key; GitHub apps sign with RSA (RS256)")
    if key.key_size < _SMALLEST:
        raise BadKey(f"the private key has {key.key_size} bits; GitHub's have {_SMALLEST}")
    return key


class AppKey:
    """One app's id and private key, parsed once: parsing costs 37 ms, signing with a parsed key 0.3 ms."""

    __slots__ = ("_good_until", "_key", "_token", "app_id")

    def __init__(self, app_id: str, key: RSAPrivateKey) -> None:
        self.app_id = app_id
        self._key = key
        self._token = ""
        self._good_until: datetime | None = None

    @classmethod
    def load(cls, app_id: str | int, pem_text: str, read: Callable[[str], RSAPrivateKey] = read_key) -> Self:
        """The app of this id, with the key of this text as ``read`` reads it. Raises BadKey."""
        name = str(app_id).strip()
        if not name or not name.isascii() or not name.replace(".", "").replace("_", "").isalnum():
            raise BadKey("the app id must be the number or client id that GitHub's app page shows")
        return cls(name, read(pem_text))

    def jwt(self, now: datetime) -> str:
        """A token that speaks for the app itself, good for about nine minutes; signed anew only when it runs out."""
        if self._good_until is None or not self._good_until - _LIFE <= now < self._good_until - _MARGIN:
            claims = {
                "iat": int((now - _BACKDATED).timestamp()),
                "exp": int((now + _LIFE).timestamp()),
                "iss": self.app_id,
            }
            self._token = jwt.encode(claims, self._key, algorithm="RS256")
            self._good_until = now + _LIFE
        return self._token

    def forget_jwt(self) -> None:
        """Sign anew at the next call, since GitHub did not accept the last token."""
        self._good_until = None

    def __repr__(self) -> str:
        return "<AppKey>"

    def __reduce__(self) -> str:
        raise TypeError("an app's key does not travel")


@dataclass(slots=True)
class Apps:
    """The app installed on upstream and the one on backends; both may be the same. Their keys may be replaced."""

    upstream: AppKey
    downstream: AppKey

    def renew(self, other: Apps) -> None:
        """Speak with these keys from now on. Tokens that the old ones minted stay good until they end."""
        self.upstream, self.downstream = other.upstream, other.downstream
