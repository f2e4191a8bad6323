"""What outside text may do to a log: nothing. It is cut, and on a terminal it cannot be anything but text.

In JSON a value cannot leave its place, whatever it holds. A terminal obeys escape sequences, which could hide a line,
rename its window or make up lines of ours.
"""

from __future__ import annotations

import io
from typing import Any, TextIO

import structlog

#: The longest text that one value may hold.
MOST = 2_000


def cut(_logger: Any, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """A processor that cuts every value."""
    return {name: _cut(value) for name, value in line.items()}


def visible(_logger: Any, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """A processor, for terminals, that shows every character that is no part of a text on one line."""
    return {name: _visible(value) for name, value in line.items()}


def traceback(out: TextIO, error: structlog.typing.ExcInfo) -> None:
    """Write a traceback without local variables, with outside text made visible and nothing where a line begins."""
    whole = io.StringIO()
    structlog.dev.plain_traceback(whole, error)
    out.write("\n".join(f"  {_cut(_visible(line))}" for line in whole.getvalue().split("\n")))


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MOST else f"{value[:MOST]}... ({len(value)} characters)"
    if isinstance(value, list | tuple):
        return [_cut(each) for each in value]
    if isinstance(value, dict):
        return {name: _cut(each) for name, each in value.items()}
    return value


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isprintable() else "".join(map(_shown, value))
    if isinstance(value, list | tuple):
        return [_visible(each) for each in value]
    return value


def _shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
