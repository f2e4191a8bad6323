"""What stays when the rows of changes are forgotten, as tables: texts by name, allowlists by digest, and figures."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Text
from sqlmodel import Field, SQLModel

from relay.store.columns import BIG


class Document(SQLModel, table=True):
    """A text the service keeps by name: the last good allowlist, the key that was made when none was set."""

    __tablename__ = "document"
    key: str = Field(primary_key=True, max_length=128)
    body: str = Field(sa_type=Text)
    etag: str | None = None
    digest: str = ""
    updated_at: datetime
    checked_at: datetime
    note: str = Field(default="", sa_type=Text)


class AllowlistVersion(SQLModel, table=True):
    """An allowlist that was in force, as long as a delivery is kept that was decided by it."""

    __tablename__ = "allowlist_version"
    digest: str = Field(primary_key=True, max_length=64)
    body: str = Field(sa_type=Text)
    kept_at: datetime  # When it was last taken into force.


class DispatchHistory(SQLModel, table=True):
    """What forgotten dispatches amount to: one row for each day, backend, level, kind of change and outcome.

    Times are whole milliseconds, so that sums do not depend on the order in which rows were forgotten.
    """

    __tablename__ = "dispatch_history"
    day: str = Field(primary_key=True, max_length=10)  # Of the dispatch's planning, in UTC: 2026-11-30.
    backend: str = Field(primary_key=True, max_length=160)
    level: int = Field(primary_key=True)
    kind: str = Field(primary_key=True, max_length=32)  # The change's: pull_request, push, merge_group, self_reported.
    purpose: str = Field(primary_key=True, max_length=32)
    outcome: str = Field(primary_key=True, max_length=32)
    dispatches: int = Field(default=0, sa_type=BIG)
    sent: int = Field(default=0, sa_type=BIG)
    late: int = Field(default=0, sa_type=BIG)
    reports: int = Field(default=0, sa_type=BIG)
    jobs: int = Field(default=0, sa_type=BIG)
    queue_count: int = Field(default=0, sa_type=BIG)  # Jobs whose wait is known.
    queue_ms: int = Field(default=0, sa_type=BIG)
    queue_ms_most: int = Field(default=0, sa_type=BIG)
    execution_count: int = Field(default=0, sa_type=BIG)
    execution_ms: int = Field(default=0, sa_type=BIG)
    execution_ms_most: int = Field(default=0, sa_type=BIG)


class CombinationHistory(SQLModel, table=True):
    """What forgotten jobs amount to: one row for each day, backend, versions of backend and suite, and conclusion."""

    __tablename__ = "combination_history"
    day: str = Field(primary_key=True, max_length=10)
    backend: str = Field(primary_key=True, max_length=160)
    backend_version: str = Field(primary_key=True)  # Empty where none was stated.
    suite_version: str = Field(primary_key=True)
    conclusion: str = Field(primary_key=True, max_length=32)  # Empty for a job that never ended.
    jobs: int = Field(default=0, sa_type=BIG)
    passed: int = Field(default=0, sa_type=BIG)
    failed: int = Field(default=0, sa_type=BIG)
    skipped: int = Field(default=0, sa_type=BIG)
    total: int = Field(default=0, sa_type=BIG)
