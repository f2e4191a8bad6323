"""The capability a dispatch carries: it binds a callback to that one dispatch, and says nothing about who calls.

It is derived from the dispatch's id and a relay key and never stored, so a leak of the database leaks none. The first
key signs, all verify, which is how a key is rotated. A key that was made for want of any verifies behind those for a
while.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

_PREFIX = "crcr1"


class CapabilityKeys:
    """Keys in force, newest first, which may be replaced while the service runs. They never show in ``repr``.

    ``kept`` is one that verifies whatever they are replaced by, and never signs.
    """

    __slots__ = ("_kept", "_keys")

    def __init__(self, keys: Sequence[bytes], kept: bytes | None = None) -> None:
        self._keys = _checked(keys)
        self._kept = () if kept is None else (kept,)

    @classmethod
    def of(cls, texts: Sequence[str], kept: str | None = None) -> CapabilityKeys:
        """Keys from their texts. Raises ValueError for a short one or none."""
        return cls([text.encode() for text in texts], None if kept is None else kept.encode())

    def renew(self, texts: Sequence[str]) -> None:
        """Put other keys in force. Raises ValueError for a short one or none, and changes nothing then."""
        self._keys = _checked([text.encode() for text in texts])

    def issue(self, dispatch_id: int) -> str:
        """The capability of this dispatch."""
        return f"{_PREFIX}.{dispatch_id}.{_mac(self._keys[0], dispatch_id)}"

    def dispatch_of(self, token: str) -> int | None:
        """The dispatch a capability was issued for, or None where no key of ours made it."""
        prefix, _, rest = token.partition(".")
        number, _, mac = rest.partition(".")
        if prefix != _PREFIX or not (number.isascii() and number.isdigit() and len(number) < 19) or not mac.isascii():
            return None
        dispatch_id = int(number)
        if str(dispatch_id) != number:  # A capability has one form, so that two texts are never the same one.
            return None
        # All keys are tried whatever the first says, so that the time taken tells nothing of which key fitted.
        fits = [hmac.compare_digest(_mac(key, dispatch_id), mac) for key in (*self._keys, *self._kept)]
        return dispatch_id if any(fits) else None

    def __repr__(self) -> str:
        return f"CapabilityKeys({len(self._keys)} keys)"


def _checked(keys: Sequence[bytes]) -> tuple[bytes, ...]:
    if not keys or any(len(key) < 16 for key in keys):
        raise ValueError("SECRET_KEYS: each key needs at least 16 characters, and there must be one")
    return tuple(keys)


def _mac(key: bytes, dispatch_id: int) -> str:
    return hmac.new(key, f"dispatch {dispatch_id}".encode(), hashlib.sha256).hexdigest()
