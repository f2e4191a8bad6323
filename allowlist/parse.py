"""Reads an allowlist, so that one bad entry hurts only itself and every fault is told at once.

There are two kinds of trouble. A fault in an entry leaves all others in force and stands in ``Allowlist.faults``.
A file that cannot be read as an allowlist at all raises ``UnreadableError``, so that its caller keeps the last good
list and can never mistake a broken file for an empty one. No broken line is guessed around: what remained of the file
might grant something that nobody wrote.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re

from allowlist.entries import LEVELS, Reader
from allowlist.model import Allowlist, Fault
from allowlist.tree import Kind, Node, Pairs, Scalar, Tree, compose, indented_by_tab

#: Ten thousand entries take about half of it.
MAX_BYTES = 1_000_000
LABEL_PREFIX = "ciflow/crcr/"

# YAML 1.2 forbids control characters. Readers also disagree on which characters end a line: one that sees the end of
# a comment where a reviewer sees none would read entries that the reviewer did not.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff\r]")
# Looking for more than the first break of a broken file means reading it again and again, so it has an end.
_TRIES = 20
_TRIED_CHARACTERS = 1_000_000
_MAX_CHARACTER_FAULTS = 100
# After these the rest of the file says nothing reliable.
_FINAL = frozenset({"nesting", "too-many-values", "one-document"})


class UnreadableError(Exception):
    """The file as a whole is no allowlist, and nothing in it may come into force. ``faults`` says why, by line."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        super().__init__("; ".join(f"line {fault.line}: {fault.message}" for fault in faults[:3]))
        self.faults = faults


def parse(text: str | bytes, *, max_bytes: int = MAX_BYTES, label_prefix: str = LABEL_PREFIX) -> Allowlist:
    """Read an allowlist. Entries with an error are left out, and ``faults`` names every error and warning by line.

    Raises UnreadableError, and nothing else, where the file as a whole cannot be used.
    """
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    readable = _decode(raw, max_bytes)
    tree = compose(readable)
    if tree.faults:
        raise UnreadableError(_with_further(readable, tree, label_prefix))
    if (fault := _not_an_allowlist(tree.root)) is not None:
        raise UnreadableError((fault,))
    return dataclasses.replace(_read(tree.root, label_prefix), digest=hashlib.sha256(raw).hexdigest())


def check(text: str | bytes, *, max_bytes: int = MAX_BYTES, label_prefix: str = LABEL_PREFIX) -> tuple[Fault, ...]:
    """Every fault of the file, readable or not, in the order of its lines. Never raises."""
    try:
        return parse(text, max_bytes=max_bytes, label_prefix=label_prefix).faults
    except UnreadableError as error:
        return error.faults


def _read(root: Node | None, label_prefix: str) -> Allowlist:
    reader = Reader(label_prefix)
    if isinstance(root, Pairs):
        reader.read(root)
    return Allowlist(tuple(reader.entries), tuple(sorted(set(reader.faults.found))))


def _decode(raw: bytes, max_bytes: int) -> str:
    if len(raw) > max_bytes:
        message = f"the file has {len(raw):,} bytes, over the {max_bytes:,} allowed"
        raise UnreadableError((Fault(1, "size", message, "Shorten the list."),))
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UnreadableError((Fault(line, "utf-8", "this line is not UTF-8", "Save the file as UTF-8."),)) from error
    text = text.replace("\r\n", "\n")
    forbidden = [
        (line, found[0]) for line, part in enumerate(text.split("\n"), 1) if (found := _FORBIDDEN.search(part))
    ]
    if forbidden:
        raise UnreadableError(
            tuple(
                Fault(line, "character", f"the character U+{ord(character):04X} may not stand here", "Remove it.")
                for line, character in forbidden[:_MAX_CHARACTER_FAULTS]
            )
        )
    return text


def _not_an_allowlist(root: Node | None) -> Fault | None:
    """Why this root is none. An error page in JSON is good YAML: without a level to recognise it by, it would read as
    an empty list and silence every backend."""
    if root is None or (isinstance(root, Scalar) and root.kind is Kind.NOTHING):
        return None
    fix = "Start with a level: `L1:`, and below it `  - org/repo`."
    if not isinstance(root, Pairs):
        return Fault(root.line, "no-levels", f"the file is {root}, not a mapping of levels", fix)
    if root.pairs and not any(isinstance(key, Scalar) and key.text in LEVELS for key, _ in root.pairs):
        return Fault(root.line, "no-levels", "the file names none of the levels L1, L2, L3, L4", fix)
    return None


def _with_further(text: str, tree: Tree, label_prefix: str) -> tuple[Fault, ...]:
    """The faults of a broken file, and those that can be seen once the broken items are taken out of it.

    What is read here is only reported, never put in force.
    """
    faults = list(tree.faults)
    lines = text.split("\n")
    tabs = [fault for at, line in enumerate(lines, 1) if (fault := indented_by_tab(at, line))]
    if tree.broken_at is not None and tree.faults[-1].rule not in _FINAL and tabs:
        for tab in tabs:
            lines[tab.line - 1] = ""
        tree = compose("\n".join(lines))
        faults.extend((*tabs, *tree.faults))
    for _ in range(min(_TRIES, _TRIED_CHARACTERS // max(len(text), 1))):
        if tree.broken_at is None or tree.faults[-1].rule in _FINAL:
            break
        _blank_item(lines, tree.broken_at - 1)
        tree = compose("\n".join(lines))
        faults.extend(tree.faults)
    if tree.broken_at is None:
        # Whatever else is said about a line that YAML cannot read, or that we refuse to, would only confuse.
        broken = {fault.line for fault in faults}
        faults.extend(fault for fault in _read(tree.root, label_prefix).faults if fault.line not in broken)
    return tuple(sorted(set(faults)))


def _blank_item(lines: list[str], at: int) -> None:
    """Empty the item of a list to which this line belongs, or else the line with all that is indented below it."""
    start = min(at, len(lines) - 1)
    while start > 0 and not lines[start].strip():
        start -= 1
    depth = _indent(lines[start])
    for above in range(start, -1, -1):
        line = lines[above]
        if line.strip() and (above == start or _indent(line) < depth):
            depth = _indent(line)
            if line.lstrip().startswith("- "):
                start = above
                break
    depth = _indent(lines[start])
    lines[start] = ""
    for below in range(start + 1, len(lines)):
        if lines[below].strip() and _indent(lines[below]) <= depth:
            break
        lines[below] = ""


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
