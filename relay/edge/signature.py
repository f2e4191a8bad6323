"""Did GitHub send this? The one question that is answered before a webhook's body is looked at.

https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

PREFIX = "sha256="


def sign(secret: bytes, body: bytes) -> str:
    """The value of X-Hub-Signature-256 that GitHub sends for this body."""
    return PREFIX + hmac.new(secret, body, hashlib.sha256).hexdigest()


def is_signed(body: bytes, header: str | None, secrets: Sequence[bytes]) -> bool:
    """Whether one of the secrets made this signature.

    All secrets are tried whatever the first says, and each comparison takes the same time whatever it compares, so
    that the time taken tells nothing of how close a forgery came or of which secret is in use.
    """
    if header is None or not header.isascii():
        return False
    fits = [hmac.compare_digest(sign(secret, body), header.strip()) for secret in secrets]
    return any(fits)
