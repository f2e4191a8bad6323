"""Collects what is wrong with an allowlist while it is read on, so that one look shows everything."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from allowlist.model import Fault, Severity

_QUOTED = 60
_GUESSES = 200


def quoted(text: str) -> str:
    """Outside text as it may stand in a message: one line, no control characters, at most 60 characters of it."""
    return repr(text if len(text) <= _QUOTED else text[:_QUOTED] + "…")


def listed(words: Iterable[str]) -> str:
    """Words in alphabetical order, as a reader expects a choice to be listed."""
    return ", ".join(sorted(words))


class Faults:
    """The faults found so far. An entry is in force only if reading it added no error."""

    def __init__(self) -> None:
        self.found: list[Fault] = []
        self.errors = 0
        self._guesses = 0

    def error(self, line: int, rule: str, message: str, fix: str) -> None:
        """Note a fault that keeps its entry out of force."""
        self.found.append(Fault(line, rule, message, fix))
        self.errors += 1

    def warn(self, line: int, rule: str, message: str, fix: str) -> None:
        """Note a fault that leaves its entry in force."""
        self.found.append(Fault(line, rule, message, fix, Severity.WARNING))

    def closest(self, word: str, words: Iterable[str]) -> str | None:
        """The word that was probably meant, or None where nothing is near."""
        # Comparing is slow, so it is done neither for long text, which is no misspelt word, nor for a file that holds
        # nothing but misspelt words.
        if not 1 < len(word) <= 30 or self._guesses >= _GUESSES:
            return None
        self._guesses += 1
        by_lower = {each.lower(): each for each in words}
        found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.7)
        return by_lower[found[0]] if found else None
