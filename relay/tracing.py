"""One id from a webhook to its check runs: whoever reads a log, a listener's run or a check finds the others by it."""

from __future__ import annotations

import hashlib
import re

_HEX = re.compile(r"[0-9a-f]{32}", re.ASCII)


def trace_id(delivery_id: str) -> str:
    """The trace of all that one delivery caused: 32 hex digits, in the form of W3C's Trace Context.

    GitHub's GUIDs have just so many, so a delivery's trace is its GUID without the dashes, and nobody need look it up.
    Any other name of a cause is hashed.
    """
    plain = delivery_id.replace("-", "").lower()
    if _HEX.fullmatch(plain) and plain.strip("0"):
        return plain
    return hashlib.sha256(delivery_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
