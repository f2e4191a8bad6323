"""Times as people write them on a command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_AGO = re.compile(r"(?:([0-9]{1,4})d)?(?:([0-9]{1,5})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,7})s)?", re.ASCII)


def parse_past(option: str, text: str, now: datetime) -> datetime:
    """A moment that is over: so long ago (30m, 2h, 3d12h), or in RFC 3339; UTC where no zone is named.

    Raises ValueError, naming the option and the rule, for what is neither or lies ahead.
    """
    words = text.strip()
    found = _AGO.fullmatch(words)
    try:
        if found and words:
            days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
            at = now - timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        else:
            read = datetime.fromisoformat(words)
            at = read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{option}: {text[:60]!r} is no duration and no time; write 30m, 2h, 3d or 2026-11-30T08:00:00Z"
        ) from None
    if at > now:
        raise ValueError(f"{option}: {text[:60]!r} lies ahead; it is {rfc3339(now)} now")
    return at


def rfc3339(moment: datetime) -> str:
    """The moment in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
