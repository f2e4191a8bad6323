"""What an admin asks for, read from words, whichever way they came. A fault names the field, the rule and the fix."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection

from allowlist.model import Allowlist, Entry, Level, RepoName
from allowlist.parse import UnreadableError, parse
from relay.store import admin, documents

#: A pause or demotion for longer than this is no temporary one: the allowlist is the place for it.
LONGEST = timedelta(days=366)
MOST_WORDS = 500

_DURATION = re.compile(r"(?:([0-9]{1,4})d)?(?:([0-9]{1,5})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,7})s)?", re.ASCII)


def parse_until(field: str, text: str, now: datetime) -> datetime:
    """A duration from now, or a moment. Raises ValueError, naming the rule, for what is neither, over or too far."""
    until = _moment(field, text, lambda span: now + span)
    if until <= now:
        raise ValueError(f"{field}: {text[:60]!r} is not in the future; it is {admin.stamp(now)} now")
    if until > now + LONGEST:
        raise ValueError(f"{field}: {text[:60]!r} is more than {LONGEST.days} days away; change the allowlist instead")
    return until


def parse_past(field: str, text: str, now: datetime) -> datetime:
    """A moment that is over: so long ago, or a time. Raises ValueError, naming the rule, for all else."""
    at = _moment(field, text, lambda span: now - span)
    if at > now:
        raise ValueError(f"{field}: {text[:60]!r} lies ahead; it is {admin.stamp(now)} now")
    return at


def _moment(field: str, text: str, counted: Callable[[timedelta], datetime]) -> datetime:
    """The duration (30m, 3d12h) as ``counted``, or the time as it stands; UTC where no zone is named."""
    words = text.strip()
    found = _DURATION.fullmatch(words)
    try:
        if found and words:
            days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
            return counted(timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds))
        at = datetime.fromisoformat(words)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{field}: {text[:60]!r} is no duration and no time; write 30m, 4h, 2d or 2026-12-01T08:00Z"
        ) from None


def parse_level(field: str, text: str, entry: Entry) -> Level:
    """A level below the entry's own. Raises ValueError for anything else."""
    below = [level.name for level in Level if level < entry.level]
    if text.upper() not in below:
        choice = f"write {' or '.join(below)}" if below else "nothing is below it"
        raise ValueError(f"{field}: {text[:20]!r} is no level below {entry.level}, where {entry.repo} is; {choice}")
    return Level[text.upper()]


def parse_words(field: str, text: str, *, needed: bool = True) -> str:
    """Words for people, in one line. Raises ValueError where they are missing, too long or not printable."""
    words = text.strip()
    if (needed and not words) or len(words) > MOST_WORDS or not words.isprintable():
        raise ValueError(f"{field}: write 1 to {MOST_WORDS} printable characters in one line")
    return words


def listed(conn: Connection, label_prefix: str) -> Allowlist | None:
    """The allowlist that the service took up last, or None where there is none that can be read."""
    kept = documents.load(conn, documents.ALLOWLIST)
    try:
        return None if kept is None else parse(kept.body, label_prefix=label_prefix)
    except UnreadableError:
        return None


def listed_entry(conn: Connection, field: str, label_prefix: str, repo: RepoName) -> Entry:
    """The backend's entry in the allowlist that the service took up last. Raises ValueError where it has none."""
    allowlist = listed(conn, label_prefix)
    entry = None if allowlist is None else allowlist.get(repo)
    if entry is None:
        raise ValueError(f"{field}: {repo} is not on the allowlist that is in force; /api/v1/allowlist lists who is")
    return entry


def named(field: str, text: str) -> RepoName:
    """The repository that these words name. Raises ValueError, naming the field, where they name none."""
    try:
        return RepoName.parse(text)
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from None
