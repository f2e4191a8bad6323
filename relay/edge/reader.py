"""What pages and the API have in common: the same facts, read with the allowlist in force and the same rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Protocol

from allowlist.model import Allowlist, Fault, RepoName
from relay.deciding.facts import Place
from relay.store.checks import CheckTerms
from relay.store.engine import Store
from relay.store.reading.audit import AuditLine, audit_lines
from relay.store.reading.backends import BackendLine, BackendPage, backend_page, backends
from relay.store.reading.change import ChangePage, change_page
from relay.store.reading.changes import ChangeFilter, ChangeLine, changes, newest_change
from relay.store.reading.deliveries import (
    DeadLetter,
    DeliveryLine,
    DeliveryPage,
    dead_letters,
    deliveries,
    delivery_page,
)
from relay.store.reading.gaps import GapLine, gap_lines
from relay.store.reading.pages import USUAL, Page
from relay.store.reading.why import Why, why


class InForce(Protocol):
    """The allowlist in force and what is known about it; ``relay.work.allowlist.State`` is one."""

    @property
    def allowlist(self) -> Allowlist:
        """The entries in force."""
        ...

    @property
    def loaded(self) -> bool:
        """Whether one was ever read; until then nothing is concluded from who is not listed."""
        ...

    @property
    def checked_at(self) -> datetime | None:
        """When its source was last read without trouble."""
        ...

    @property
    def trouble(self) -> str:
        """Why the last look at its source failed; empty if it did not."""
        ...

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What is wrong in the file."""
        ...


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the store for people and programs. Each method raises StoreDownError when the database does not answer."""

    store: Store
    in_force: Callable[[], InForce]
    terms: CheckTerms
    place: Place

    @property
    def listed(self) -> Allowlist | None:
        """The allowlist in force, None while none was ever read."""
        state = self.in_force()
        return state.allowlist if state.loaded else None

    async def changes(self, wanted: ChangeFilter, before: int | None = None, limit: int = USUAL) -> Page[ChangeLine]:
        """Changes, newest first."""
        return await self.store.read(partial(changes, wanted=wanted, before=before, limit=limit))

    async def change(self, change_id: int) -> ChangePage | None:
        """One change with everything about it."""
        return await self.store.read(
            partial(
                change_page,
                change_id=change_id,
                terms=self.terms,
                listed=self.listed,
                overrides=self.place.overrides,
            )
        )

    async def newest(self, number: int) -> int | None:
        """The id of a pull request's current head."""
        return await self.store.read(partial(newest_change, number=number))

    async def backends(self, after: RepoName | None = None, limit: int = USUAL) -> Page[BackendLine]:
        """Backends by name."""
        listed = self.in_force().allowlist
        return await self.store.read(partial(backends, listed=listed, after=after, limit=limit))

    async def backend(self, repo: RepoName, before: int | None = None, limit: int = USUAL) -> BackendPage | None:
        """One backend with what it was told of."""
        listed = self.in_force().allowlist
        return await self.store.read(partial(backend_page, repo=repo, listed=listed, before=before, limit=limit))

    async def deliveries(self, before: str | None = None, limit: int = USUAL) -> Page[DeliveryLine]:
        """Webhooks, newest first."""
        return await self.store.read(partial(deliveries, before=before, limit=limit))

    async def delivery(self, delivery_id: str) -> DeliveryPage | None:
        """One webhook with what was planned and tried because of it."""
        return await self.store.read(partial(delivery_page, delivery_id=delivery_id))

    async def dead_letters(self, before: int | None = None, limit: int = USUAL) -> Page[DeadLetter]:
        """What was given up, newest first."""
        return await self.store.read(partial(dead_letters, before=before, limit=limit))

    async def why(self, number: int, backend: RepoName) -> tuple[Why, ...]:
        """Every decision about a backend for a pull request, oldest first."""
        return await self.store.read(partial(why, number=number, backend=backend))

    async def gaps(self, before: int | None = None, cause: str | None = None, limit: int = USUAL) -> Page[GapLine]:
        """What webhooks did not tell, the last found first."""
        return await self.store.read(partial(gap_lines, before=before, cause=cause, limit=limit))

    async def audit(self, before: int | None = None, limit: int = USUAL) -> Page[AuditLine]:
        """Who did what, newest first."""
        return await self.store.read(partial(audit_lines, before=before, limit=limit))
