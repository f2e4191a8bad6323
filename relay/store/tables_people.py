"""What people did and were told, as tables: commands, overrides, our comments, and the audit."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Text, UniqueConstraint
from sqlmodel import Field, SQLModel

from relay.store.columns import BIG, counted


class Command(SQLModel, table=True):
    """Something a person asked of us, by a comment or a button. Decided once GitHub has told their role."""

    __tablename__ = "command"
    id: int | None = Field(default=None, sa_column=counted())
    delivery_id: str = Field(unique=True, max_length=128)  # The webhook that brought it: a redelivery asks nothing new.
    source: str  # comment, check_run, check_suite, action
    number: int | None = Field(default=None, sa_type=BIG, index=True)
    head_sha: str | None = Field(default=None, max_length=64, index=True)
    comment_id: int | None = Field(default=None, sa_type=BIG)
    sender: str
    verb: str  # status, run, rerun, override, help
    backend: str | None = None
    check_id: int | None = Field(default=None, sa_type=BIG)
    words: str = Field(default="", sa_type=Text)  # An override's reason, as it was written.
    state: str = "asked"  # asked, done, refused, failed
    role: str | None = None  # GitHub's role_name of the sender when it was decided.
    outcome: str = Field(default="", sa_type=Text)
    created_at: datetime
    decided_at: datetime | None = None


class Override(SQLModel, table=True):
    """A person takes responsibility for one backend's answer on one head."""

    __tablename__ = "override"
    __table_args__ = (UniqueConstraint("head_sha", "backend", name="uq_override_head_backend"),)
    id: int | None = Field(default=None, sa_column=counted())
    head_sha: str = Field(max_length=64)
    backend: str
    number: int | None = Field(default=None, sa_type=BIG)
    who: str
    why: str = Field(sa_type=Text)
    at: datetime


class Comment(SQLModel, table=True):
    """One comment of ours on a pull request: what it should say and what GitHub last took."""

    __tablename__ = "comment"
    __table_args__ = (UniqueConstraint("number", "topic", name="uq_comment_number_topic"),)
    id: int | None = Field(default=None, sa_column=counted())
    number: int = Field(sa_type=BIG)
    topic: str = Field(max_length=300)  # What it is about; one comment for each topic. Never parsed.
    body: str = Field(sa_type=Text)
    wanted: str = Field(max_length=64)  # Hash of the body.
    applied: str | None = Field(default=None, max_length=64)
    github_id: int | None = Field(default=None, sa_type=BIG)
    creating: bool = False  # A create was sent and its answer never noted: look before creating again.
    head_sha: str | None = Field(default=None, max_length=64)  # The head for which it last named people.
    created_at: datetime
    written_at: datetime | None = None
    last_error: str | None = Field(default=None, sa_type=Text)


class Audit(SQLModel, table=True):
    """Who changed what, and why."""

    __tablename__ = "audit"
    id: int | None = Field(default=None, sa_column=counted())
    at: datetime = Field(index=True)
    who: str
    what: str
    subject: str = ""
    why: str = Field(default="", sa_type=Text)
    before: str = Field(default="", sa_type=Text)
    after: str = Field(default="", sa_type=Text)
