"""Units of work that are done together where they come together: what one statement can do for many."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

from sqlalchemy import Connection, CursorResult, Select, bindparam


class SharedUnit(ABC):
    """A unit of work that is cheaper to do with others of its kind, when they come into one transaction."""

    __slots__ = ()

    def __call__(self, conn: Connection) -> Any:
        """Do this one alone; its value."""
        return self.do_all(conn, [self])[0]

    @classmethod
    @abstractmethod
    def do_all(cls, conn: Connection, units: Sequence[Self]) -> Sequence[Any]:
        """Do as many as have come together, in their order; the value of each. None may decline (``RefusalError``)."""


class ForEach:
    """A statement over the rows that have one of the values given for some columns; the values come with each call.

    A list in a statement is written out anew each time, which costs more than to send it. So where there is but one
    value for each column, and alone comes much, another is sent that asks for just that.
    """

    def __init__(self, statement: Select[Any], columns: Mapping[str, Any]) -> None:
        self._one = statement.where(*(column == bindparam(name) for name, column in columns.items()))
        self._many = statement.where(*(column.in_(bindparam(name, expanding=True)) for name, column in columns.items()))

    def execute(self, conn: Connection, values: Mapping[str, Sequence[object]]) -> CursorResult[Any]:
        """The rows. Each name needs a value at least."""
        if all(len(those) == 1 for those in values.values()):
            return conn.execute(self._one, {name: those[0] for name, those in values.items()})
        return conn.execute(self._many, dict(values))
