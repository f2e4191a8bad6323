"""Who the admins are: named tokens, of which one name may have several while one of them is replaced."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence

#: Shorter ones could be guessed by somebody patient.
LEAST_SECRET = 24
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,38}", re.ASCII)


class AdminTokens:
    """Tokens in force, kept as their digests, so that no dump of the process shows one."""

    __slots__ = ("_digests",)

    def __init__(self, texts: Sequence[str] = ()) -> None:
        self._digests = _read(texts)

    def renew(self, other: AdminTokens) -> None:
        """Put others in force."""
        self._digests = other._digests

    def name_of(self, token: str) -> str | None:
        """Whose token this is. All are compared whatever the first says, so that the time taken tells nothing."""
        given = _digest(token)
        fits = [name for name, digest in self._digests if hmac.compare_digest(digest, given)]
        return fits[0] if fits else None

    def __len__(self) -> int:
        return len(self._digests)

    def __repr__(self) -> str:
        return f"AdminTokens({len(self._digests)} tokens)"


def _read(texts: Sequence[str]) -> tuple[tuple[str, bytes], ...]:
    """Names and digests. Raises ValueError that names the place and never the secret."""
    read = []
    for place, text in enumerate(texts, start=1):
        name, colon, secret = text.partition(":")
        if not colon or _NAME.fullmatch(name) is None:
            raise ValueError(f"ADMIN_TOKENS: token {place} is not written name:secret, the name in letters and digits")
        if len(secret) < LEAST_SECRET:
            raise ValueError(f"ADMIN_TOKENS: the secret of {name} needs at least {LEAST_SECRET} characters")
        read.append((name, _digest(secret)))
    return tuple(read)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
