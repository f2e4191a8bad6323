"""Statements compiled once for all engines of a test process.

An engine keeps what it compiled, and forgets it when it goes. The service opens two when it starts, and keeps them; the
tests open thousands, each for a few statements, and compiled the same hundreds again in each: a fifth of their time.
So the tests' engines share what they compiled, by what SQLAlchemy offers for it, a dialect of one's own and
``compiled_cache``. Nothing else about an engine differs.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

#: More than there are different statements.
_COMPILED: LRUCache[Any, Any] = LRUCache(3_000)


# What a statement's SQL depends on beside the statement: of all that an engine may set, only this differs here.
_ASKED = ("paramstyle", "server_version_info", "_backslash_escapes")


class _Alike:
    """Equal where the same statement would be compiled to the same SQL; the cache is kept by dialect."""

    def __eq__(self, other: object) -> bool:
        mine, others = vars(self), vars(other)
        return type(self) is type(other) and all(mine.get(name) == others.get(name) for name in _ASKED)

    def __hash__(self) -> int:
        return hash(type(self))

    @classmethod
    def engine_created(cls, engine: Engine) -> None:
        """SQLAlchemy calls this for each new engine."""
        engine.update_execution_options(compiled_cache=_COMPILED)


class SQLite(_Alike, SQLiteDialect_pysqlite):
    """SQLite by Python's own driver."""

    supports_statement_cache = True


class PostgreSQL(_Alike, PGDialect_psycopg):
    """PostgreSQL by psycopg."""

    supports_statement_cache = True


def share() -> None:
    """Let engines that are made from now on share what they compile."""
    registry.register("sqlite", __name__, "SQLite")
    registry.register("postgresql.psycopg", __name__, "PostgreSQL")
