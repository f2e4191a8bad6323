"""Reads the fields of one webhook by path, and collects every fault instead of stopping at the first."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from allowlist.model import RepoName

#: SHA-1 commits have 40 digits, those of a SHA-256 repository 64.
_SHA = re.compile(r"[0-9a-fA-F]{40}(?:[0-9a-fA-F]{24})?", re.ASCII)
MAX_ID = 2**63 - 1
MAX_NUMBER = 2**31 - 1

#: GitHub's own bounds are 255 bytes for a ref, 256 characters for a title, 50 for a label, 39 for a login. Ours are
#: wider, since theirs have moved before, and still keep one hostile field from filling every index it stands in.
MAX_REF = 1024
MAX_TITLE = 1024
MAX_LABEL = 256
MAX_LOGIN = 256
MAX_URL = 2048
MAX_LABELS = 1000

#: GitHub shows a deleted account's work under this name and sends ``null`` for its user.
#: https://docs.github.com/en/account-and-profile/concepts/personal-account-deletion
GHOST = "ghost"


@dataclass(frozen=True, slots=True)
class EventFault:
    """One field that cannot be read: its path in the payload, the rule it breaks, and the fix."""

    field: str
    rule: str
    fix: str


class BadEventError(ValueError):
    """An event we want lacks what we need of it. ``faults`` names each field."""

    def __init__(self, event: str, faults: Iterable[EventFault]) -> None:
        self.event = event
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{fault.field}: {fault.rule}" for fault in self.faults))


@dataclass(frozen=True, slots=True)
class Ignored:
    """Nobody asked for this. ``reason_code`` is stable, ``detail`` is for people."""

    reason_code: str
    detail: str


class Reading:
    """Reads fields by path and collects what is wrong, so that a sender learns of every fault at once."""

    def __init__(self, event: str, raw: object) -> None:
        self.event = event
        self.raw = raw
        self.faults: list[EventFault] = []

    def must_be_object(self) -> None:
        """Raise BadEventError at once where there is nothing to read fields from."""
        if not isinstance(self.raw, dict):
            found = "null" if self.raw is None else _kind(self.raw)
            self.fault("(body)", f"must be an object; it is {found}", "send JSON")
            raise BadEventError(self.event, self.faults)

    def fault(self, path: str, rule: str, fix: str) -> None:
        self.faults.append(EventFault(path, rule, fix))

    def at(self, path: str) -> object:
        """The value at a path; None where it, or anything above it, is null, absent or no object."""
        value = self.raw
        for part in path.split("."):
            if not isinstance(value, dict):
                return None
            value = value.get(part)
        return value

    def text(self, path: str, limit: int) -> str:
        value = self.at(path)
        if isinstance(value, str) and value and len(value) <= limit:
            return value
        self._mistyped(path, value, f"a non-empty string of at most {limit} characters")
        return ""

    def optional_text(self, path: str, limit: int, default: str = "") -> str:
        value = self.at(path)
        if value is None:
            return default
        if isinstance(value, str) and len(value) <= limit:
            return value
        self._mistyped(path, value, f"null or a string of at most {limit} characters")
        return default

    def free_text(self, path: str, limit: int) -> str:
        """Prose, which is cut and never refused for its length."""
        value = self.at(path)
        if value is None:
            return ""
        if isinstance(value, str):
            return value[:limit]
        self._mistyped(path, value, "null or a string")
        return ""

    def sha(self, path: str) -> str:
        value = self.at(path)
        if isinstance(value, str) and _SHA.fullmatch(value):
            return value.lower()
        self._mistyped(path, value, "a commit id of 40 (or 64) hexadecimal digits")
        return ""

    def optional_sha(self, path: str) -> str | None:
        return None if self.at(path) is None else self.sha(path)

    def whole(self, path: str, limit: int) -> int:
        value = self.at(path)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= limit:
            return value
        self._mistyped(path, value, f"a whole number from 1 to {limit}")
        return 0

    def flag(self, path: str) -> bool:
        """A boolean; null or absent is false."""
        value = self.at(path)
        if value is None or isinstance(value, bool):
            return bool(value)
        self._mistyped(path, value, "true, false or null")
        return False

    def repo(self, path: str) -> RepoName | None:
        value = self.at(path)
        if isinstance(value, str):
            try:
                return RepoName.parse(value)
            except ValueError:
                pass
        self._mistyped(path, value, "a repository's owner/name")
        return None

    def moment(self, path: str) -> datetime | None:
        """A time as GitHub writes it: RFC 3339 text, or in pushes whole seconds since 1970. Null or absent is None."""
        value = self.at(path)
        if value is None:
            return None
        try:
            if isinstance(value, str):
                moment = datetime.fromisoformat(value)
                if moment.tzinfo is not None:
                    return moment.astimezone(UTC)
            elif isinstance(value, int) and not isinstance(value, bool):
                return datetime.fromtimestamp(value, UTC)
        except (ValueError, OverflowError, OSError):
            pass
        self._mistyped(path, value, "an RFC 3339 time with its zone, or whole seconds since 1970")
        return None

    def objects(self, path: str) -> list[tuple[str, object]]:
        """The items of an array with the path of each; null or absent is empty."""
        value = self.at(path)
        if value is None:
            return []
        if isinstance(value, list):
            return [(f"{path}[{index}]", item) for index, item in enumerate(value)]
        self._mistyped(path, value, "an array")
        return []

    def labels(self, path: str) -> tuple[str, ...]:
        items = self.objects(path)
        if len(items) > MAX_LABELS:
            self.fault(path, f"has {len(items)} items, at most {MAX_LABELS} are read", "remove labels upstream")
            return ()
        names: list[str] = []
        for where, item in items:
            name = item.get("name") if isinstance(item, dict) else None
            if isinstance(name, str) and name and len(name) <= MAX_LABEL:
                names.append(name)
            else:
                self._mistyped(f"{where}.name", name, f"a non-empty string of at most {MAX_LABEL} characters")
        return tuple(names)

    def login(self, path: str) -> str:
        """A user's login; ``ghost`` where the account is gone."""
        parent = path.rpartition(".")[0]
        account = self.at(parent)
        if account is None:
            return GHOST
        if not isinstance(account, dict):
            self._mistyped(parent, account, "null or an account")
            return GHOST
        return self.optional_text(path, MAX_LOGIN, GHOST)

    def _mistyped(self, path: str, value: object, wanted: str) -> None:
        found = "it is missing or null" if value is None else f"it is {_kind(value)}"
        self.fault(path, f"must be {wanted}; {found}", f"send {path} as GitHub's {self.event} event has it")


def foreign(reading: Reading, upstream: RepoName) -> Ignored | None:
    """Whether the event comes from another repository than ours. Names compare without case."""
    name = reading.repo("repository.full_name")
    if name is None or name == upstream:
        return None
    return Ignored("repository_unwanted", f"the event comes from {name}; this relay serves {upstream}")


def action_of(reading: Reading, wanted: frozenset[str]) -> str | Ignored:
    """The event's action, where it is one of those that we act on."""
    value = reading.text("action", 64)
    if value and value not in wanted:
        return Ignored("action_unwanted", f"the relay does not act on this action of {reading.event}")
    return value


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return f"a string of {len(value)} characters"
    return "an array" if isinstance(value, list) else "an object"
