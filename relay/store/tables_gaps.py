"""What never reached us, as tables: gaps, since when each backend asks for what it does, and whose turn it is."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, Text, UniqueConstraint
from sqlmodel import Field, SQLModel

from relay.store.columns import BIG, counted, partly


class Gap(SQLModel, table=True):
    """Something upstream that we did not hear of, or that a backend was not told of; also the work list of healing.

    A delivery that failed is one row for ever, so that its redelivery is asked for once. Of a head, one that is found
    again after it was healed takes up its row again.
    """

    __tablename__ = "gap"
    __table_args__ = (
        UniqueConstraint("cause", "subject", "head_sha", name="uq_gap_cause_subject_head"),
        # The few that are still to be healed, among all that ever were.
        partly("ix_gap_open", "id", where="ended_at IS NULL"),
        Index("ix_gap_ended_at", "ended_at"),
    )
    id: int | None = Field(default=None, sa_column=counted())
    cause: str = Field(max_length=32)  # relay.deciding.gaps.Cause
    subject: str = Field(max_length=320)  # The thread, or the delivery's GUID. Never parsed.
    head_sha: str = Field(default="", max_length=64)  # Empty for a delivery.
    number: int | None = Field(default=None, sa_type=BIG)
    ref: str | None = None
    event: str = ""  # Of a delivery: its event and action.
    detail: str = Field(default="", sa_type=Text)
    updated_at: datetime  # GitHub's time of what was missed: the newest are healed first.
    found_at: datetime
    not_before: datetime | None = None  # A try that failed is repeated from here on.
    tries: int = 0
    app_id: str = Field(default="", max_length=64)  # Of a delivery: whose it is, and GitHub's number of it.
    github_id: int | None = Field(default=None, sa_type=BIG)
    asking_at: datetime | None = None  # Written before a redelivery is asked for, so that nobody else asks.
    asked_at: datetime | None = None  # GitHub has said that it will.
    delivery_id: str | None = Field(default=None, max_length=128)  # The delivery by which it was healed.
    ended_at: datetime | None = None
    healed: bool = False
    how: str = ""  # How it ended: relay.deciding.gaps.How


class Listing(SQLModel, table=True):
    """Since when a backend asks for what it asks for now. Heads that were pushed before that are not its business."""

    __tablename__ = "listing"
    backend: str = Field(primary_key=True, max_length=160)
    asks: str = Field(max_length=64)  # Digest of the entry's filters.
    since: datetime


class Turn(SQLModel, table=True):
    """When something that one replica does for all is due again, and how far the last who did it had come."""

    __tablename__ = "turn"
    name: str = Field(primary_key=True, max_length=128)
    due_at: datetime
    began_at: datetime | None = None  # When it was first done to the end.
    mark: datetime | None = None  # Everything up to here, in GitHub's time, has been looked at.
