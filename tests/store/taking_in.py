"""A relay's intake without its edge: events go in, and rows can be looked at."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, select, update

from allowlist.model import Allowlist, Entry, RepoName
from relay.deciding.events import InstallationEvent, PullRequestEvent, PushEvent
from relay.store.checks import CheckTerms
from relay.store.engine import Store
from relay.store.installing import record_installation
from relay.store.intake import Received, Recorded, record
from relay.store.tables import Change, Delivery, Dispatch, Effect

UPSTREAM = RepoName("up", "stream")
TERMS = CheckTerms(UPSTREAM, "ciflow/crcr/", timedelta(seconds=3))

_effect: Any = Effect.__table__  # type: ignore[attr-defined]
_dispatch: Any = Dispatch.__table__  # type: ignore[attr-defined]
_change: Any = Change.__table__  # type: ignore[attr-defined]
_delivery: Any = Delivery.__table__  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Intake:
    """The store, and the allowlist that is in force."""

    store: Store
    entries: tuple[Entry, ...]
    now: datetime

    def take(self, event: PullRequestEvent | PushEvent | InstallationEvent, delivery_id: str = "D1") -> Recorded:
        """Take in one webhook and return what became of it."""
        return self.store.write_now(lambda conn: self.unit(conn, event, delivery_id))

    def unit(
        self, conn: Connection, event: PullRequestEvent | PushEvent | InstallationEvent, delivery_id: str
    ) -> Recorded:
        """The unit of work for one webhook."""
        allowlist = Allowlist(self.entries)
        if isinstance(event, InstallationEvent):
            received = Received(delivery_id, "installation", "{}")
            return record_installation(conn, event, received, allowlist=allowlist, terms=TERMS, now=self.now)
        received = Received(delivery_id, "pull_request", f'{{"of":"{delivery_id}"}}')
        if isinstance(event, PushEvent):
            received = Received(delivery_id, "push", f'{{"before":"{event.before}"}}')
        return record(
            conn,
            event,
            received,
            allowlist=allowlist,
            terms=TERMS,
            now=self.now,
            fresh_id=lambda: str(uuid.uuid4()),
        )

    def rows(self, table: Any, *columns: str) -> list[tuple[Any, ...]]:
        """These columns of a table, in the order in which rows were made."""
        statement = select(*(table.c[name] for name in columns)).order_by(table.c.id)
        return [tuple(row) for row in self.store.read_now(lambda conn: conn.execute(statement).all())]

    def dispatches(self, *columns: str) -> list[tuple[Any, ...]]:
        """Columns of all dispatches."""
        return self.rows(_dispatch, *columns)

    def changes(self, *columns: str) -> list[tuple[Any, ...]]:
        """Columns of all changes."""
        return self.rows(_change, *columns)

    def deliveries(self, *columns: str) -> list[tuple[Any, ...]]:
        """Columns of all deliveries."""
        return self.rows(_delivery, *columns)

    def effects(self, kind: str = "dispatch") -> list[tuple[str, str]]:
        """Subject and state of all effects of one kind."""
        return [row[1:] for row in self.rows(_effect, "kind", "subject", "state") if row[0] == kind]

    def mark_effects(
        self,
        state: str,
        reason: str = "",
        kind: str = "dispatch",
        subject: str | None = None,
        from_state: str = "ready",
    ) -> None:
        """Let the worker have brought waiting effects to a state."""
        statement = update(_effect).where(_effect.c.kind == kind, _effect.c.state == from_state)
        if subject is not None:
            statement = statement.where(_effect.c.subject == subject)
        self.store.write_now(lambda conn: conn.execute(statement.values(state=state, reason=reason)).rowcount)

    def mark_dispatches(self, state: str, outcome: str = "queued") -> None:
        """Let the worker have noted what came of all dispatches."""
        statement = update(_dispatch).values(state=state, outcome=outcome)
        self.store.write_now(lambda conn: conn.execute(statement).rowcount)
