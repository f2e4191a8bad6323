"""YAML text as a small tree in which every value knows its line, with all that YAML can do to harm us refused.

An allowlist needs lists, mappings and text. Anchors, aliases, merge keys and tags let a short file mean a long one, or
one line change another far away, so a reviewer could not see what a change grants. They are refused, as are nesting
deeper than any allowlist needs and a second document, which other readers would not see.

The tree is built from the parser's events, one by one and without recursion: the depth and the number of values are
known before a hostile file has cost anything. A scalar keeps the text it was written as, so 2.10 stays "2.10".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, StringMark
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from allowlist.faults import quoted
from allowlist.model import Fault

#: A level, its list, an entry, its keys, their lists and timeouts' keys need seven.
MAX_DEPTH = 16
#: Ten thousand entries with a handful of settings each.
MAX_VALUES = 150_000

# YAML 1.2's core schema. https://yaml.org/spec/1.2.2/#103-core-schema
_NULL = re.compile(r"|~|null|Null|NULL")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_NUMBER = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|0o[0-7]+|0x[0-9a-fA-F]+"
    r"|[-+]?(?:\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN"
)


class Kind(Enum):
    """What a scalar is under YAML 1.2, in words that a message can use."""

    NOTHING = "nothing"
    FLAG = "true or false"
    NUMBER = "a number"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value, as the text that stands in the file."""

    line: int
    text: str
    kind: Kind

    def __str__(self) -> str:
        return self.kind.value


@dataclass(frozen=True, slots=True)
class Items:
    """A YAML list."""

    line: int
    items: tuple[Node, ...]

    def __str__(self) -> str:
        return "a list"


@dataclass(frozen=True, slots=True)
class Pairs:
    """A YAML mapping in the order of the file. Equal keys are kept, so that the second can be named."""

    line: int
    pairs: tuple[tuple[Node, Node], ...]

    def __str__(self) -> str:
        return "a mapping"


Node: TypeAlias = Scalar | Items | Pairs


@dataclass(frozen=True, slots=True)
class Tree:
    """The root, None for a file without content, and why the file as a whole cannot be used.

    ``broken_at`` is the line on which reading had to stop, and None where everything was read.
    """

    root: Node | None
    faults: tuple[Fault, ...] = ()
    broken_at: int | None = None


@dataclass(slots=True)
class _Open:
    line: int
    is_mapping: bool
    in_brackets: bool
    children: list[Node] = field(default_factory=list)

    def close(self) -> Node:
        if self.is_mapping:
            return Pairs(self.line, tuple(zip(self.children[::2], self.children[1::2], strict=True)))
        return Items(self.line, tuple(self.children))


class _StopReadingError(Exception):
    """Reading on would cost more than it can tell."""


class _Composer:
    def __init__(self) -> None:
        self.open: list[_Open] = []
        self.root: Node | None = None
        self.faults: list[Fault] = []
        self.documents = 0
        self.values = 0

    def fault(self, line: int, rule: str, message: str, fix: str) -> None:
        self.faults.append(Fault(line, rule, message, fix))

    def put(self, node: Node) -> None:
        if self.open:
            self.open[-1].children.append(node)
        else:
            self.root = node

    def take(self, event: Event) -> None:
        line = _line(event.start_mark)
        if isinstance(event, DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                self.fault(line, "one-document", "a second YAML document starts here", "Remove the `---` line.")
                raise _StopReadingError
        elif isinstance(event, AliasEvent):
            self.count(line)
            self.fault(line, "no-alias", f"`*{event.anchor[:40]}` is a YAML alias", _ALIAS_FIX)
            self.put(Scalar(line, "", Kind.NOTHING))
        elif isinstance(event, ScalarEvent):
            self.count(line)
            self.refuse_anchor_and_tag(event, line)
            plain = event.style is None and event.implicit[0]
            if plain and event.value == "<<":
                self.fault(line, "no-merge-key", "`<<` is a YAML merge key", "Write the keys out where they apply.")
            self.put(Scalar(line, event.value, _kind(event.value) if plain else Kind.TEXT))
        elif isinstance(event, MappingStartEvent | SequenceStartEvent):
            self.count(line)
            self.refuse_anchor_and_tag(event, line)
            if len(self.open) >= MAX_DEPTH:
                self.fault(line, "nesting", f"values are nested deeper than {MAX_DEPTH}", "Flatten them.")
                raise _StopReadingError
            self.open.append(_Open(line, isinstance(event, MappingStartEvent), bool(event.flow_style)))
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            self.put(self.open.pop().close())

    def count(self, line: int) -> None:
        self.values += 1
        if self.values > MAX_VALUES:
            self.fault(line, "too-many-values", f"the file holds over {MAX_VALUES:,} values", "Shorten the list.")
            raise _StopReadingError

    def refuse_anchor_and_tag(self, event: ScalarEvent | MappingStartEvent | SequenceStartEvent, line: int) -> None:
        if event.anchor is not None:
            self.fault(line, "no-anchor", f"{quoted(f'&{event.anchor}')} is a YAML anchor", "Remove it.")
        if event.ctag is not None:
            self.fault(line, "no-tag", "a YAML tag stands here", _TAG_FIX)


def compose(text: str) -> Tree:
    """Read text into a tree. Never raises: what YAML or we refuse is in the tree's faults."""
    composer = _Composer()
    broken_at = None
    try:
        # The plain loader is asked for events only; it is faster than the round-trip one and constructs nothing.
        for event in YAML(typ="safe", pure=True).parse(text):
            composer.take(event)
    except _StopReadingError:
        broken_at = composer.faults[-1].line
    except MarkedYAMLError as error:
        fault = _explain(error, next((each.line for each in composer.open if each.in_brackets), None))
        # A refused tag or alias often breaks its own line as well; once is enough.
        if all(fault.line != known.line for known in composer.faults):
            composer.faults.append(fault)
        broken_at = fault.line
    except Exception as error:  # noqa: BLE001
        # The parser stumbles in several ways over hostile text: an escape beyond Unicode ("\UFFFFFFFF") is an
        # OverflowError, an odd %YAML version a ValueError. Whatever it is, the text is at fault and we must go on.
        composer.fault(1, "yaml", f"not YAML: {quoted(str(error))}", "Check escapes and `%` lines.")
        broken_at = 1
    return Tree(None if broken_at else composer.root, tuple(composer.faults), broken_at)


_TAB = "a tab stands where YAML wants spaces"
_TAB_FIX = "Indent with spaces."
_TAG_FIX = "Remove it; a glob that starts with `!` needs quotes: '!docs/**'."
_ALIAS_FIX = "Write the value out; a glob that starts with `*` needs quotes: '*.py'."


def _explain(error: MarkedYAMLError, bracket: int | None) -> Fault:
    """Say in an admin's words what the parser says in its own. ``bracket`` is the line of one still open, if any."""
    problem = " ".join(str(error.problem or error.context or "not YAML").split())[:120]
    line = _line(error.problem_mark or error.context_mark)
    if "'@'" in problem or "'`'" in problem:
        message = "YAML allows no unquoted `@` or backtick at the start of a value"
        return Fault(line, "yaml-at", message, 'Leave the `@` out or quote the name: alice or "@alice".')
    if "\\t" in problem:
        return Fault(line, "tab", _TAB, _TAB_FIX)
    if error.context == "while scanning a tag":
        return Fault(line, "no-tag", "`!` starts a YAML tag", _TAG_FIX)
    if error.context == "while scanning an alias":
        return Fault(line, "no-alias", "`*` starts a YAML alias", _ALIAS_FIX)
    # An open bracket or quote is missed only lines later, often at the end: the place to mend is where it opens.
    quote = _line(error.context_mark) if error.context == "while scanning a quoted scalar" else None
    opened = quote or bracket or line
    if opened < line:
        message = f"not YAML: {problem} (noticed on line {line})"
        return Fault(opened, "yaml", message, "Close the bracket or quote that opens here.")
    return Fault(line, "yaml", f"not YAML: {problem}", "Check indentation, colons, brackets and quotes on this line.")


def indented_by_tab(number: int, line: str) -> Fault | None:
    """The fault of a line whose indentation holds a tab; only where a file is not YAML is this surely why."""
    indentation = line[: len(line) - len(line.lstrip())]
    return Fault(number, "tab", _TAB, _TAB_FIX) if "\t" in indentation and line.strip() else None


def _line(mark: StringMark | None) -> int:
    return 1 if mark is None else int(mark.line) + 1


def _kind(text: str) -> Kind:
    if _NULL.fullmatch(text):
        return Kind.NOTHING
    if _BOOL.fullmatch(text):
        return Kind.FLAG
    return Kind.NUMBER if _NUMBER.fullmatch(text) else Kind.TEXT
