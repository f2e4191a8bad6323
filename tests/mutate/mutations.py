"""Every flip that a test must notice: each cell of the policy tables, and each rule of the fold and the deadlines.

Cells are found by reading the tables' syntax, so a new row or column is flipped without a word here. Rules are one
piece of source text each and its wrong twin; a rule whose text is no longer there is an error, never a silent pass.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import rules
import rules_deadlines
from rules import Rule


class CannotMutateError(Exception):
    """The source no longer has what a mutation wants to change; the text says which and where."""


@dataclass(frozen=True)
class Mutation:
    """One flip: in this file, the text between two offsets becomes another."""

    name: str
    file: str
    start: int
    end: int
    becomes: str

    def apply(self, source: str) -> str:
        """The file's text with the flip in it. Raises CannotMutateError where that is no change or no Python."""
        mutant = source[: self.start] + self.becomes + source[self.end :]
        if mutant == source:
            raise CannotMutateError(f"{self.name}: the flip changes nothing in {self.file}")
        try:
            ast.parse(mutant)
        except SyntaxError as error:
            raise CannotMutateError(f"{self.name}: the flip is no Python in {self.file}: {error}") from error
        return mutant


def all_mutations(root: Path) -> list[Mutation]:
    """Every flip for the tree at this root. Raises CannotMutateError where one no longer fits the source."""
    powers, outcomes, gate, lifecycle = (f"levels/{name}.py" for name in ("powers", "outcomes", "gate", "lifecycle"))
    found = [
        *_cells(_Source(root, powers), "POWERS", {"Show": _members(root, powers, "Show")}),
        *_cells(_Source(root, outcomes), "GATE_TABLE", {"GateEffect": _members(root, outcomes, "GateEffect")}),
        *_cells(_Source(root, gate), "CONCLUSIONS", {"Conclusion": ["SUCCESS", "FAILURE", "NEUTRAL"]}),
        *_cells(_Source(root, gate), "OVERRIDDEN", {"GateEffect": _members(root, outcomes, "GateEffect")}),
        *_neighbours(_Source(root, outcomes), "WORST_FIRST"),
        *_neighbours(_Source(root, gate), "WORST_FIRST"),
        *_neighbours(_Source(root, "levels/legs.py"), "_PLACES"),
        *_dropped(_Source(root, outcomes), "FAILURE_LIKE"),
        *_dropped(_Source(root, outcomes), "MAY_TURN_GREEN"),
        *_dropped(_Source(root, outcomes), "UNSETTLED"),
        *_dropped(_Source(root, lifecycle), "_AT_RUN_DEADLINE"),
        *_dropped(_Source(root, lifecycle), "_DENIES_SUCCESS"),
        *(_of_rule(root, rule) for rule in (*rules.RULES, *rules_deadlines.RULES)),
    ]
    for mutation in found:
        mutation.apply((root / mutation.file).read_text(encoding="utf-8"))
    return found


class _Source:
    """A file's text and syntax, and where in the text a piece of syntax stands."""

    def __init__(self, root: Path, file: str) -> None:
        self.file = file
        self.text = (root / file).read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        self._lines = self.text.splitlines(keepends=True)

    def value_of(self, name: str) -> ast.expr:
        """What is assigned to this name at the top of the file."""
        for node in self.tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                for target in targets:
                    if isinstance(target, ast.Name) and target.id == name:
                        return node.value
        raise CannotMutateError(f"{self.file} has no {name} any more; tell tests/mutate/mutations.py where it went")

    def collection(self, name: str) -> list[ast.expr]:
        """The elements of the tuple or set assigned to this name."""
        for node in ast.walk(self.value_of(name)):
            if isinstance(node, ast.Tuple | ast.Set):
                return node.elts
        raise CannotMutateError(f"{name} in {self.file} is no tuple or set any more")

    def span(self, node: ast.expr) -> tuple[int, int]:
        """The node's offsets in the text. ``ast`` counts in UTF-8 bytes of a line."""
        return (
            self._offset(node.lineno, node.col_offset),
            self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0),
        )

    def _offset(self, line: int, column: int) -> int:
        before = sum(len(text) for text in self._lines[: line - 1])
        return before + len(self._lines[line - 1].encode()[:column].decode())

    def said(self, node: ast.expr) -> str:
        """The node's own text."""
        start, end = self.span(node)
        return self.text[start:end]


def _members(root: Path, file: str, enum: str) -> list[str]:
    for node in _Source(root, file).tree.body:
        if isinstance(node, ast.ClassDef) and node.name == enum:
            return [
                target.id
                for statement in node.body
                if isinstance(statement, ast.Assign)
                for target in statement.targets
                if isinstance(target, ast.Name)
            ]
    raise CannotMutateError(f"{file} has no {enum} any more")


def _cells(source: _Source, table: str, enums: dict[str, list[str]]) -> Iterator[Mutation]:
    """Each cell of a dict, or each argument of its rows, as every other value that it could have."""
    (dictionary,) = [node for node in ast.walk(source.value_of(table)) if isinstance(node, ast.Dict)]
    for key, value in zip(dictionary.keys, dictionary.values, strict=True):
        row = source.said(key).split(".")[-1] if key is not None else "**"
        columns = [(f".{word.arg}", word.value) for word in value.keywords] if isinstance(value, ast.Call) else []
        for column, cell in columns or [("", value)]:
            start, end = source.span(cell)
            for becomes in _others(source.said(cell), enums):
                name = f"{table}[{row}]{column} becomes {becomes}"
                yield Mutation(name, source.file, start, end, becomes)


def _others(said: str, enums: dict[str, list[str]]) -> list[str]:
    if said in ("True", "False"):
        return ["False" if said == "True" else "True"]
    return [f"{enum}.{member}" for enum, members in enums.items() for member in members if f"{enum}.{member}" != said]


def _neighbours(source: _Source, order: str) -> Iterator[Mutation]:
    """An order that is the meaning: each two neighbours change places."""
    for number, (first, second) in enumerate(pairwise(source.collection(order)), start=1):
        (start, end), (second_start, second_end) = source.span(first), source.span(second)
        swapped = source.said(second) + source.text[end:second_start] + source.said(first)
        yield Mutation(
            f"{source.file} {order}: {number} and {number + 1} swap", source.file, start, second_end, swapped
        )


def _dropped(source: _Source, members: str) -> Iterator[Mutation]:
    """A set without each of its members in turn: the member is said as its neighbour, which is there already."""
    elements = source.collection(members)
    for number, element in enumerate(elements):
        neighbour = source.said(elements[number - 1])
        start, end = source.span(element)
        yield Mutation(f"{members} without {source.said(element)}", source.file, start, end, neighbour)


def _of_rule(root: Path, rule: Rule) -> Mutation:
    text = (root / rule.file).read_text(encoding="utf-8")
    if text.count(rule.text) != 1:
        raise CannotMutateError(
            f"rule {rule.name!r}: its text stands {text.count(rule.text)} times in {rule.file}, not once; "
            f"mend tests/mutate/rules.py: {rule.text!r}"
        )
    start = text.index(rule.text)
    return Mutation(rule.name, rule.file, start, start + len(rule.text), rule.becomes)
