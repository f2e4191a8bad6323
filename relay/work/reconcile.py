"""Makes one check run at GitHub show what our record says, in place, and only where the two differ.

A check is a state and not a message: whatever was sent before, in whatever order, the next look writes what holds
then. That is why a slow answer or a lost one cannot leave an older state standing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial

import structlog
from sqlalchemy import Connection

from allowlist.model import Allowlist
from relay.clock import Now
from relay.deciding.facts import CheckFacts, Place, RowFacts
from relay.github.errors import GitHubError, Invalid, RetryLater
from relay.github.port import Address, CheckAction, CheckRunWrite, GitHub
from relay.store.check_facts import load_check
from relay.store.check_notes import (
    Applied,
    note_adopted,
    note_applied,
    note_creating,
    note_error,
    note_unchanged,
)
from relay.store.checks import LATE, CheckTerms
from relay.store.dispatching import address_of
from relay.store.engine import Store
from relay.store.oncalls import tell_oncalls
from relay.texts.rendering import Rendered, render, replaced
from relay.tracing import trace_id

log = structlog.get_logger(__name__)


def _no_allowlist() -> Allowlist | None:
    return None


class Reconciler:
    """Looks at one check and writes the difference. Built once, by ``relay.app``.

    ``listed`` gives the allowlist in force, or None while none was ever read: then the levels at dispatch stand.
    """

    def __init__(
        self,
        *,
        store: Store,
        github: GitHub,
        terms: CheckTerms,
        place: Place,
        now: Now,
        listed: Callable[[], Allowlist | None] = _no_allowlist,
    ) -> None:
        self._store = store
        self._github = github
        self._terms = terms
        self._place = place
        self._now = now
        self._listed = listed

    async def reconcile(self, check_id: int) -> None:
        """Load, put into words, compare, write the difference, note it. Safe to repeat.

        What GitHub answers with an error is noted on the row and raised to the caller, who knows when to try again
        (``relay.github.errors``). StoreDownError is raised as it is.
        """
        listed = self._listed()

        def look(conn: Connection) -> tuple[CheckFacts | None, Address]:
            facts = load_check(conn, check_id, self._terms, listed=listed)
            return facts, address_of(conn, self._terms.upstream)

        facts, upstream = await self._store.read(look)
        if facts is None:
            return  # Its change was forgotten since.
        doubtful = self._doubtful(facts.row)
        try:
            facts = await self._made_sure(facts, upstream, doubtful=doubtful)
            wanted = render(facts, self._place)
            if wanted is None or (facts.row.github_id is not None and wanted.digest() == facts.row.applied):
                github_id = None
            else:
                github_id = await self._write(facts, wanted, upstream, doubtful=doubtful)
        except GitHubError as error:
            await self._store.write(partial(note_error, check_id=check_id, error=error.detail))
            raise
        if wanted is None or github_id is None:
            await self._note_unchanged(facts)
            return
        applied = Applied(
            digest=wanted.digest(),
            github_id=github_id,
            status=wanted.status,
            conclusion=wanted.conclusion,
            title=wanted.title,
            summary=wanted.summary,
            text=wanted.text,
            details_url=wanted.details_url,
        )
        now = self._now()

        def note(conn: Connection) -> None:
            note_applied(conn, check_id, facts.row.mark, applied, self._terms, now, doubtful=doubtful)
            tell_oncalls(conn, facts, wanted, self._place, self._terms, now)

        await self._store.write(note)
        log.info("check_written", check=facts.name, status=wanted.status, conclusion=wanted.conclusion, **_about(facts))

    async def _note_unchanged(self, facts: CheckFacts) -> None:
        note = partial(note_unchanged, check_id=facts.row.id, mark=facts.row.mark, terms=self._terms, now=self._now())
        await self._store.write(note)

    def _doubtful(self, row: RowFacts) -> bool:
        """Whether a create whose answer was lost may still come."""
        return row.creating and row.create_sent_at is not None and self._now() < row.create_sent_at + LATE

    async def _made_sure(self, facts: CheckFacts, upstream: Address, *, doubtful: bool) -> CheckFacts:
        """The facts with the check run that GitHub shows, where an earlier create's answer was never noted.

        Of one name the newest run shows, whichever of ours we have heard of. An older one that is open would wait for
        ever in the list of all runs, so it is ended.
        """
        row = facts.row
        if not row.creating:
            return facts
        found = await self._github.find_check_runs(upstream, facts.head_sha, facts.name, str(row.id))
        newest = found[0] if found and found[0].id > (row.github_id or 0) else None
        shows = row.github_id if newest is None else newest.id
        for older in found:
            if older.id != shows and older.conclusion is None:
                await self._update(upstream, older.id, _check_run(facts, replaced(facts), self._now()))

        def note(conn: Connection) -> None:
            if newest is not None:
                note_adopted(conn, row.id, newest.id, newest.status, newest.conclusion)
            if not doubtful:
                note_creating(conn, row.id, creating=False)

        if newest is not None or not doubtful:
            await self._store.write(note)
        row = replace(row, creating=False)
        if newest is not None:
            row = replace(row, github_id=newest.id, status=newest.status, conclusion=newest.conclusion, applied=None)
        return replace(facts, row=row)

    async def _write(self, facts: CheckFacts, wanted: Rendered, upstream: Address, *, doubtful: bool) -> int | None:
        """Send the state and return the check run that shows it; None where there was nothing to end after all."""
        row = facts.row
        check = _check_run(facts, wanted, self._now())
        # GitHub keeps what a completed run was; one that must wait again is a new run of the same name.
        # https://docs.github.com/rest/guides/using-the-rest-api-to-interact-with-checks
        known = None if row.completed and wanted.conclusion is None else row.github_id
        if known is not None and await self._update(upstream, known, check):
            return known
        if wanted.closing:
            return None
        creating = partial(note_creating, check_id=row.id)
        await self._store.write(partial(creating, creating=True, sent_at=self._now()))
        try:
            return await self._github.create_check_run(upstream, check)
        except GitHubError as error:
            if not (isinstance(error, RetryLater) and error.ambiguous):
                await self._store.write(partial(creating, creating=doubtful))
            raise

    async def _update(self, upstream: Address, known: int, check: CheckRunWrite) -> bool:
        """Write it in place; False where GitHub has no such check run any more.

        A required check that is gone would hold its commit for ever, so whoever finds that writes it anew.
        """
        try:
            await self._github.update_check_run(upstream, known, check)
        except Invalid as error:
            if error.reason not in ("not_found", "gone"):
                raise
            log.warning("check_vanished", check=check.name, head=check.head_sha)
            return False
        return True


def _about(facts: CheckFacts) -> dict[str, str]:
    """What a line of the log says it is about. A gate is about its head, a backend's check about what began it."""
    about = {"head": facts.head_sha}
    if facts.backend is not None and facts.dispatches:
        origin = facts.dispatches[-1].origin
        about |= {"backend": str(facts.backend), "delivery": origin, "trace": trace_id(origin)}
    return about


def _check_run(facts: CheckFacts, wanted: Rendered, now: datetime) -> CheckRunWrite:
    completed_at = None
    if wanted.conclusion is not None:
        completed_at = wanted.completed_at or now
    return CheckRunWrite(
        name=facts.name,
        head_sha=facts.head_sha,
        status=wanted.status,
        conclusion=wanted.conclusion,
        title=wanted.title,
        summary=wanted.summary,
        text=wanted.text,
        details_url=wanted.details_url,
        external_id=str(facts.row.id),
        started_at=wanted.started_at,
        completed_at=completed_at,
        actions=tuple(CheckAction(one.label, one.description, one.identifier) for one in wanted.actions),
    )
