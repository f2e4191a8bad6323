"""Patterns over refs and paths, in the dialect of GitHub's own workflow filters, which backends already write.

``*`` is any run of characters but ``/``; ``**`` any run at all, and ``**/`` at the start of a part also none; ``?``
makes the character before it optional and ``+`` repeats it; ``[a-z]`` is one of these; a backslash takes the next
character as it is; ``!`` at the start takes back what earlier patterns of the list let through.
https://docs.github.com/actions/reference/workflows-and-actions/workflow-syntax#filter-pattern-cheat-sheet

The patterns come from outside, and a regular expression made from one could be told to backtrack for ever. So all
positions in the pattern are followed at once, as the bits of one number: the work is pattern times text, whatever they
hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


class GlobError(ValueError):
    """The pattern is not one; the message says why."""


@dataclass(frozen=True, slots=True)
class _Token:
    """One place in a pattern: which characters it takes, whether none or many of them will do, and how many tokens may
    be left out together starting here."""

    takes: Callable[[str], bool]
    optional: bool = False
    repeats: bool = False
    skips: int = 1


class Glob:
    """One pattern, ready to be matched many times. Raises GlobError for a pattern that is none."""

    def __init__(self, pattern: str) -> None:
        self._tokens = _tokenize(pattern)
        self._after: dict[tuple[int, str], int] = {}
        self._accept = 1 << len(self._tokens)
        self._start = self._close(1)

    def matches(self, text: str) -> bool:
        """Whether the whole text is described by the pattern. Case counts, as it does in refs and paths."""
        state = self._start
        for character in text:
            if not state:
                return False
            state = self._step(state, character)
        return bool(state & self._accept)

    def _step(self, state: int, character: str) -> int:
        known = self._after.get((state, character))
        if known is not None:
            return known
        after = 0
        for index, token in enumerate(self._tokens):
            if state >> index & 1 and token.takes(character):
                after |= 1 << (index + 1)
                if token.repeats:
                    after |= 1 << index
        after = self._close(after)
        # Remembering steps makes thousands of paths cheap; forgetting them all bounds what a hostile pattern can hold.
        if len(self._after) >= 4096:
            self._after.clear()
        self._after[state, character] = after
        return after

    def _close(self, state: int) -> int:
        for index, token in enumerate(self._tokens):
            if state >> index & 1 and token.optional:
                state |= 1 << (index + 1) | 1 << (index + token.skips)
        return state


def matches_any(patterns: Sequence[str], text: str) -> bool:
    """Whether the last pattern that has a say lets the text through; a pattern with ``!`` says no."""
    return _last_word([(pattern, _compile(pattern)) for pattern in patterns], text)


def matches_one_of(patterns: Sequence[str], texts: Sequence[str]) -> bool:
    """Whether any of the texts gets through the list of patterns."""
    compiled = [(pattern, _compile(pattern)) for pattern in patterns]
    return any(_last_word(compiled, text) for text in texts)


def _last_word(patterns: Sequence[tuple[str, Glob]], text: str) -> bool:
    for pattern, glob in reversed(patterns):
        if glob.matches(text):
            return not pattern.startswith("!")
    return False


def _compile(pattern: str) -> Glob:
    return Glob(pattern.removeprefix("!"))


def _tokenize(pattern: str) -> tuple[_Token, ...]:
    if not pattern:
        raise GlobError("it is empty")
    tokens: list[_Token] = []
    at = 0
    # True where "?" and "+" have one character to work on.
    single = False
    while at < len(pattern):
        character = pattern[at]
        if character == "*":
            more, at = _star(pattern, at)
            tokens.extend(more)
            single = False
        elif character in "?+":
            if not single:
                raise GlobError(f"{character!r} has no character before it")
            last = tokens.pop()
            tokens.append(_Token(last.takes, optional=character == "?", repeats=character == "+"))
            at += 1
            single = False
        else:
            takes, at = _single(pattern, at)
            tokens.append(_Token(takes))
            single = True
    return tuple(tokens)


def _star(pattern: str, at: int) -> tuple[tuple[_Token, ...], int]:
    starts_part = at == 0 or pattern[at - 1] == "/"
    end = at
    while pattern.startswith("*", end):
        end += 1
    if end - at == 1:
        return (_Token(_no_slash, optional=True, repeats=True),), end
    if starts_part and pattern.startswith("/", end):
        # "**/" is whole directories or nothing at all, so that "**/README.md" finds the one at the root. The first
        # token takes no character: it only says that the two after it may be left out, and they only together.
        return (_Token(_nothing, optional=True, skips=3), _Token(_anything, repeats=True), _Token(_just("/"))), end + 1
    return (_Token(_anything, optional=True, repeats=True),), end


def _single(pattern: str, at: int) -> tuple[Callable[[str], bool], int]:
    if pattern[at] == "[":
        end = pattern.find("]", at + 2)
        if end < 0:
            raise GlobError("'[' is not closed")
        return _one_of(pattern[at + 1 : end]), end + 1
    if pattern[at] == "\\":
        at += 1
        if at == len(pattern):
            raise GlobError("it ends with a backslash")
    return _just(pattern[at]), at + 1


def _nothing(_: str) -> bool:
    return False


def _anything(_: str) -> bool:
    return True


def _no_slash(character: str) -> bool:
    return character != "/"


def _just(wanted: str) -> Callable[[str], bool]:
    return lambda character: character == wanted


def _one_of(body: str) -> Callable[[str], bool]:
    singles: set[str] = set()
    ranges: list[tuple[str, str]] = []
    at = 0
    while at < len(body):
        if at + 2 < len(body) and body[at + 1] == "-":
            if body[at] > body[at + 2]:
                raise GlobError(f"the range {body[at : at + 3]!r} runs backwards")
            ranges.append((body[at], body[at + 2]))
            at += 3
        else:
            singles.add(body[at])
            at += 1
    return lambda character: character in singles or any(first <= character <= last for first, last in ranges)
