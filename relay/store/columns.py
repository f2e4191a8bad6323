"""Columns that every table has, as both databases want them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer

# SQLite only counts up by itself on INTEGER PRIMARY KEY, PostgreSQL wants BIGINT for tables that grow for years.
BIG = BigInteger().with_variant(Integer, "sqlite")


def counted() -> Column[int]:
    """A primary key that the database counts up."""
    return Column(BIG, primary_key=True, autoincrement=True)
