"""Columns that every table has, and indexes of some of its rows, as both databases want them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, text

# SQLite only counts up by itself on INTEGER PRIMARY KEY, PostgreSQL wants BIGINT for tables that grow for years.
BIG = BigInteger().with_variant(Integer, "sqlite")


def counted() -> Column[int]:
    """A primary key that the database counts up."""
    return Column(BIG, primary_key=True, autoincrement=True)


def partly(name: str, *columns: str, where: str) -> Index:
    """An index of those rows alone for which this holds. A statement must say the same for it to be used."""
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))
