"""Reading single fields of a callback: what each kind may look like on the wire, and what is said when it does not."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from relay.results.faults import Faults, nearest, shown

MOST_IDENTITY = 500
MOST_LINK = 2_000
MOST_COUNT = 10**12

# Python's own reader takes more than RFC 3339 does, and a time without an offset is no moment.
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_DIGITS = re.compile(r"[0-9]{1,15}", re.ASCII)
_NOT_IN_URL = re.compile(r"[\x00-\x20\x7f-\x9f\"<>\\^`{|}]")


class Fields:
    """One JSON object of the body, read field by field. Faults and notes go to the lists it was given.

    A reader returns None for a field that is absent, null or empty, and also where it has noted a fault.
    """

    def __init__(self, values: Mapping[str, Any], path: str, faults: Faults, notes: list[str]) -> None:
        self.values = values
        self.path = path
        self.faults = faults
        self.notes = notes

    def fault(self, name: str, rule: str, fix: str = "") -> None:
        """Note that this field cannot be accepted."""
        self.faults.add(f"{self.path}{name}", rule, fix)

    def inner(self, name: str) -> Fields:
        """An object inside this one; an empty one where it is absent."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, dict):
            self.fault(name, f"must be an object, got {shown(value)}")
        return Fields(value if isinstance(value, dict) else {}, f"{self.path}{name}.", self.faults, self.notes)

    def text(self, name: str, most: int) -> str | None:
        """A string, cut to ``most`` characters."""
        value = self.values.get(name)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            self.fault(name, f"must be a string, got {shown(value)}")
            return None
        return cut(value, most)

    def identity(self, name: str) -> str | None:
        """An opaque id, or a name that serves as one; a number counts as its digits.

        A longer one than the database can index is shortened so that different ones stay different.
        """
        value = self.values.get(name)
        if value is None or value == "":
            return None
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            self.fault(name, f"must be a string, got {shown(value)}")
            return None
        if len(value) <= MOST_IDENTITY:
            return value
        return f"{value[: MOST_IDENTITY - 17]}…{hashlib.sha256(value.encode()).hexdigest()[:16]}"

    def number(self, name: str, *, least: int, most: int) -> int | None:
        """A whole number, also as a string of digits."""
        value = self.values.get(name)
        if value is None or value == "":
            return None
        digits = isinstance(value, str) and _DIGITS.fullmatch(value.strip())
        if digits or (isinstance(value, float) and value.is_integer()):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            self.fault(name, f"must be a whole number, got {shown(value)}")
            return None
        if not least <= value <= most:
            self.fault(name, f"must be from {least} to {most}, got {shown(value)}")
            return None
        return value

    def instant(self, name: str) -> datetime | None:
        """A moment as RFC 3339 writes it."""
        value = self.values.get(name)
        if value is None or value == "":
            return None
        if isinstance(value, str) and _RFC3339.fullmatch(value):
            try:
                return datetime.fromisoformat(_six_digits(value.upper())).astimezone(UTC)
            except (ValueError, OverflowError):
                pass
        self.fault(
            name, f"must be a time as in RFC 3339 or null, got {shown(value)}", 'For example "2026-09-28T10:45:12Z".'
        )
        return None

    def word(self, name: str, words: Sequence[str]) -> str | None:
        """One of a closed set of words."""
        value = self.values.get(name)
        if value is None or value == "":
            return None
        if isinstance(value, str) and value in words:
            return value
        self.unknown_word(name, value, words)
        return None

    def unknown_word(self, name: str, value: object, words: Sequence[str]) -> None:
        """Note a word that is none of the set, with the nearest that is."""
        rule = f"must be one of {', '.join(words)}, got {shown(value)}"
        self.fault(name, rule, nearest(value, words) if isinstance(value, str) else "Send it as a string.")

    def link(self, name: str) -> str:
        """An http(s) URL without user info. Anything else is dropped: no verdict is refused for a bad link."""
        value = self.values.get(name)
        if value is None or value == "":
            return ""
        if isinstance(value, str) and is_link(value):
            return value
        self.notes.append(f"{self.path}{name} was dropped: not an http(s) URL without user info: {shown(value)}")
        return ""


def is_link(text: str) -> bool:
    """Whether the text may stand as a link on a page: http or https, with a host and no user info."""
    if len(text) > MOST_LINK or _NOT_IN_URL.search(text):
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return False


def cut(text: str, most: int) -> str:
    """The text, or its start and an ellipsis, in at most ``most`` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def cut_bytes(text: str, most: int) -> str:
    """The text, or its start and an ellipsis, in at most ``most`` bytes of UTF-8."""
    if len(text) * 4 <= most or len(encoded := text.encode()) <= most:
        return text
    return encoded[: most - 3].decode(errors="ignore") + "…"


def _six_digits(text: str) -> str:
    """Python keeps microseconds; RFC 3339 allows any number of digits after the point."""
    return re.sub(r"(\.\d{6})\d+", r"\1", text)
