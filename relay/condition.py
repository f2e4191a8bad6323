"""Looks at the parts of a running service: is the database there, is the allowlist fresh, does everything turn?

What is said is for everybody to read, so it names no host, no user and nothing secret.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError, distribution

from relay.clock import Now
from relay.edge.health import Build, Part
from relay.rotation import Rotation
from relay.store import schema
from relay.store.engine import Store, StoreDownError
from relay.store.notify import Line
from relay.work.allowlist import AllowlistKeeper
from relay.work.lookout import Lookout
from relay.work.outbox import Worker
from relay.work.sweep import Sweep

#: An allowlist that could not be read for this long is worth an alarm; it stays in force all the same.
STALE = timedelta(minutes=15)
#: A worker polls twice a second, so one that has not turned for this long hangs.
STUCK = timedelta(seconds=60)
#: The sweep and the lookout turn by settings; each of their turns may take as long as this beside its time of rest.
SLOW = timedelta(minutes=5)
#: A commit that failed so many seconds ago may fail again: the worker commits about once a second while it has work.
RECENT = 10.0
#: Where an image says which commit it was made from, see examples/Dockerfile.
COMMIT = "CRCR_COMMIT"


@dataclass(frozen=True, slots=True)
class Condition:
    """Asks each part how it is. ``works`` is False for a process that leaves the outbox to others."""

    store: Store
    keeper: AllowlistKeeper
    worker: Worker
    sweep: Sweep
    lookout: Lookout
    line: Line
    rotation: Rotation
    now: Now
    version: str
    works: bool

    async def parts(self) -> tuple[Part, ...]:
        """Every part, the needed ones first."""
        parts = [await self._database(), self._allowlist()]
        if self.worker.stopping:
            parts.insert(0, Part("serving", False, "told to stop: what has begun is finished, send requests elsewhere"))
        if self.works:
            parts += [self._working(), self._sweeping(), self._looking_out()]
            if self.line.up is not None:
                said = "commits of other processes wake this one" if self.line.up else "work is found by polling alone"
                parts.append(Part("listen", self.line.up, said, needed=False))
        if self.rotation.trouble is not None:
            # The page is public, so it names the settings alone; paths and rules are in the log.
            names = ", ".join(sorted({line.partition(":")[0] for line in self.rotation.trouble.splitlines()}))
            said = f"those before stay in force, since the new ones cannot be used: {names}; the log says why"
            parts.append(Part("secrets", False, said, needed=False))
        return tuple(parts)

    async def build(self) -> Build:
        """Which build this is. The schema is None while the database does not answer."""
        try:
            revision = await self.store.read(schema.revision)
        except StoreDownError:
            revision = None
        return Build(self.version, commit_of(_direct_url), self.keeper.current().digest, revision)

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
        return self._turning("worker", self.worker.last_turn, STUCK)

    def _sweeping(self) -> Part:
        # Deadlines are late without it, but webhooks and callbacks had better be taken than refused meanwhile.
        return self._turning("sweep", self.sweep.last_turn, SLOW + self.sweep.rest, needed=False)

    def _looking_out(self) -> Part:
        if self.lookout.trouble:
            said = f"GitHub could not be asked for what was missed: {self.lookout.trouble}"
            return Part("lookout", False, said, needed=False)
        turned = self.lookout.last_turn
        if turned is None and self.now() - self.lookout.made_at < SLOW:
            return Part("lookout", True, "begins some seconds after the start", needed=False)
        return self._turning("lookout", turned, SLOW + self.lookout.rest, needed=False)

    def _turning(self, name: str, turned: datetime | None, patience: timedelta, *, needed: bool = True) -> Part:
        if turned is None:
            return Part(name, False, "has not turned yet", needed=needed)
        silent = self.now() - turned
        return Part(name, silent < patience, f"last turned {max(0, int(silent.total_seconds()))} s ago", needed=needed)


def _direct_url() -> str | None:
    try:
        return distribution("cross-repo-ci-relay").read_text("direct_url.json")
    except PackageNotFoundError:
        return None


def commit_of(direct_url: Callable[[], str | None], environ: Mapping[str, str] = os.environ) -> str | None:
    """The commit that this build was made from: as pip noted it, else as the image says, into which pip puts a folder.

    https://packaging.python.org/specifications/direct-url/
    """
    try:
        noted = json.loads(direct_url() or "{}")
        commit = noted.get("vcs_info", {}).get("commit_id")
    except (ValueError, AttributeError):
        commit = None
    return commit if isinstance(commit, str) else environ.get(COMMIT) or None
