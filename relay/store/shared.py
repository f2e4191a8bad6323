"""Units of work that are done together where they come together: what one statement can do for many."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

from sqlalchemy import Connection


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
