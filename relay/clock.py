"""Time as an argument: nothing below ``relay.app`` asks the system for it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

Now = Callable[[], datetime]


def system_now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)
