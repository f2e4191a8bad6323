"""What is wrong with a callback's body: every fault at once, each with the field's path, the rule and the fix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

#: A body made of nothing but faults is answered with so many of them.
MOST_FAULTS = 50

#: How much of a foreign value is repeated in a message, in characters.
MOST_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Fault:
    """One field that cannot be accepted."""

    field: str
    rule: str
    fix: str = ""


class MalformedReportError(Exception):
    """The body is not a report; nothing of it was kept."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{fault.field}: {fault.rule}" for fault in self.faults))


class Faults:
    """Collects faults while a body is read."""

    def __init__(self) -> None:
        self.found: list[Fault] = []

    def add(self, field: str, rule: str, fix: str = "") -> None:
        """Note one fault."""
        if len(self.found) < MOST_FAULTS:
            self.found.append(Fault(field, rule, fix))


def shown(value: object) -> str:
    """A foreign value as it may stand in a message: short, on one line, quoted."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    text = repr(value[:MOST_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."


def nearest(word: str, words: Iterable[str]) -> str:
    """``Did you mean ...?``, or nothing where no word is near."""
    close = get_close_matches(word[:MOST_SHOWN].strip().lower(), list(words), n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else ""
