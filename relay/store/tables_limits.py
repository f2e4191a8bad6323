"""What holds effects back: the limits that GitHub sets an account, and what answers nothing at the moment."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, Text, text
from sqlmodel import Field, SQLModel


def what_may_go() -> tuple[Index, Index]:
    """The indexes by which a claim finds effects that may go now, and those whose time has come."""
    ready, until = text("state = 'ready' AND waits_for <> 'time'"), text("state = 'ready' AND waits_for = 'time'")
    by_turn = ("waits_for", "priority", text("id DESC"))
    return (
        Index("ix_effect_ready", *by_turn, sqlite_where=ready, postgresql_where=ready),
        Index("ix_effect_until", "due", sqlite_where=until, postgresql_where=until),
    )


class Pacing(SQLModel, table=True):
    """What one account may still ask of GitHub, and how long GitHub asked us to leave it alone. For all replicas."""

    __tablename__ = "pacing"
    key: str = Field(primary_key=True, max_length=128)
    not_before: datetime
    reason: str = Field(default="", sa_type=Text)
    free_at: datetime | None = None  # When all but gates may go on: what is left until then is kept for gates.
    spent: str | None = Field(default=None, sa_type=Text)  # JSON of relay.deciding.budgets.Spent.
    strikes: int | None = None  # Limits in a row that named no time: each makes the next rest longer.


class Circuit(SQLModel, table=True):
    """Something that does not answer as it should: GitHub as a whole, one account, the HUD, or one backend.

    A row stands only while there is trouble; what the audit keeps is when a backend was switched off and on.
    """

    __tablename__ = "circuit"
    key: str = Field(primary_key=True, max_length=200)
    state: str  # counting, open, recovering, off
    failures: int = 0  # In a row.
    first_failed: str = ""  # Who failed first in this row, so that one sick effect is not taken for a sick account.
    several: bool = False  # Somebody else failed in this row too.
    refusing: bool = False  # The last failure was a refusal, which waiting does not mend.
    since: datetime  # The first failure of this row.
    held_until: datetime | None = None  # The next probe.
    probes: int = 0
    allowed: int | None = None  # How many may be in flight while it recovers.
    reason: str = ""
    detail: str = Field(default="", sa_type=Text)
