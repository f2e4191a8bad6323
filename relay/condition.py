"""Looks at the parts of a running service: is the database there, is the allowlist fresh, does the worker turn?"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from relay.clock import Now
from relay.edge.health import Build, Part
from relay.gaps import Cause
from relay.metrics import Metrics
from relay.rotation import Rotation
from relay.store import budgets, circuits, outbox, schema
from relay.store.engine import Store, StoreDownError
from relay.store.gaps import open_by_cause
from relay.work.allowlist import AllowlistKeeper
from relay.work.outbox import Worker

#: An allowlist that could not be read for this long is worth an alarm; it stays in force all the same.
STALE = timedelta(minutes=15)
#: A worker polls twice a second, so one that has not turned for this long hangs.
STUCK = timedelta(seconds=60)
#: A commit that failed so many seconds ago may fail again: the worker commits about once a second while it has work.
RECENT = 10.0


@dataclass(frozen=True, slots=True)
class Condition:
    """Asks each part how it is. ``works`` is False for a process that leaves the outbox to others."""

    store: Store
    keeper: AllowlistKeeper
    worker: Worker
    rotation: Rotation
    metrics: Metrics
    now: Now
    version: str
    works: bool

    async def parts(self) -> tuple[Part, ...]:
        """Every part, the needed ones first."""
        parts = [await self._database(), self._allowlist()]
        if self.worker.stopping:
            parts.insert(0, Part("serving", False, "told to stop: what has begun is finished, send requests elsewhere"))
        if self.works:
            parts.append(self._working())
        if self.rotation.trouble is not None:
            said = f"those before stay in force, since the new ones cannot be used: {self.rotation.trouble}"
            parts.append(Part("secrets", False, said, needed=False))
        return tuple(parts)

    async def build(self) -> Build:
        """Which build this is. The schema is None while the database does not answer."""
        try:
            revision = await self.store.read(schema.revision)
        except StoreDownError:
            revision = None
        return Build(self.version, self.keeper.current().digest, revision)

    async def gauge(self) -> None:
        """Read the figures that nobody counts as they change. A database that does not answer leaves the last ones."""
        now = self.now()
        checked = self.keeper.state.checked_at
        if checked is not None:
            self.metrics.allowlist_age_seconds.set((now - checked).total_seconds())
        try:
            backlog = await self.store.read(lambda conn: outbox.backlog(conn, now))
            gaps = await self.store.read(open_by_cause)
            states = await self.store.read(circuits.counts)
            held = await self.store.read(lambda conn: budgets.held(conn, now))
        except StoreDownError:
            return
        for cause in Cause:
            self.metrics.gaps_open.labels(cause.value).set(gaps.get(cause, 0))
        for state, count in states.items():
            self.metrics.circuits.labels(state.value).set(count)
        self.metrics.accounts_held.labels("limit").set(held.resting)
        self.metrics.accounts_held.labels("budget").set(held.saving)
        self.metrics.effects_open.set(backlog.open)
        self.metrics.effects_dead.set(backlog.dead)
        self.metrics.oldest_seconds.set(backlog.oldest.total_seconds())

    async def _database(self) -> Part:
        try:
            revision = await self.store.read(schema.revision)
        except StoreDownError as error:
            return Part("database", False, str(error))
        if not schema.serves(revision):
            return Part("database", False, f"schema {revision}, this build expects {schema.newest()}: crcr db migrate")
        trouble = self.store.trouble(RECENT)
        if trouble is not None:
            said = f"it can be read, but a commit failed within the last {RECENT:g} s: {trouble}"
            return Part("database", False, said)
        # A newer version has migrated it, and this one goes on until its own turn in the deploy comes.
        newer = f", newer than this build's {schema.newest()}" if schema.is_newer(revision) else ""
        return Part("database", True, f"schema {revision}{newer}")

    def _allowlist(self) -> Part:
        state = self.keeper.state
        if not state.loaded:
            return Part("allowlist", False, state.trouble or "not read yet")
        age = self.now() - state.checked_at if state.checked_at is not None else STALE
        if state.trouble:
            # The last good list still works, so the service is ready, and says what is wrong.
            return Part("allowlist", age < STALE, f"the last good list is in force: {state.trouble}", needed=False)
        return Part("allowlist", True, f"{len(state.allowlist.entries)} entries, {len(state.faults)} faults")

    def _working(self) -> Part:
        turned = self.worker.last_turn
        if turned is None:
            return Part("worker", False, "has not turned yet")
        silent = self.now() - turned
        return Part("worker", silent < STUCK, f"last turned {max(0, int(silent.total_seconds()))} s ago")
