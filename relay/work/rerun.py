"""Asks GitHub to run something again, and tells the backend anew where GitHub cannot."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import structlog
from sqlalchemy import Connection

from allowlist.model import Allowlist
from relay.github.errors import Forbidden, Invalid, RetryLater
from relay.github.observed import Rerun, Rerunning
from relay.github.port import GitHub
from relay.store.checks import CheckTerms
from relay.store.engine import Store
from relay.store.outbox import Claimed
from relay.store.redispatch import Asking, Refusal, redispatch
from relay.store.rerunning import ToRerun, load_rerun, note_not_rerun
from relay.tracing import trace_id
from relay.work.outbox import Note

log = structlog.get_logger(__name__)


class Rerunner:
    """Performs RERUN effects. ``listed`` gives the allowlist in force, ``fresh_id`` a new delivery id."""

    def __init__(
        self,
        *,
        store: Store,
        github: GitHub,
        terms: CheckTerms,
        listed: Callable[[], Allowlist],
        fresh_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._github = github
        self._terms = terms
        self._listed = listed
        self._fresh_id = fresh_id

    async def rerun(self, effect: Claimed) -> Note | None:
        """Ask for one run again. That it runs already is as good; where it cannot, the backend is told anew."""
        wanted = await self._store.read(lambda conn: load_rerun(conn, effect.subject_id, effect.subject))
        if wanted is None or not wanted.current:
            return None  # A newer dispatch decides, or nobody waits for this commit any more.
        if effect.attempts > 1 and await self._began(wanted):
            return None
        answer = await self._ask(wanted)
        log.info(
            "rerun",
            delivery=wanted.origin,
            trace=trace_id(wanted.origin),
            head=wanted.head_sha,
            backend=str(wanted.backend),
            run_id=wanted.run_id,
            outcome=answer.outcome.value,
        )
        if answer.outcome is Rerun.RUNNING and not await self._began(wanted, unknown=True):
            # One job failed, and others of the same attempt still run: GitHub takes the wish once they are over.
            raise RetryLater(
                f"Run {wanted.run_id} is not over yet, and GitHub re-runs only what is over.",
                ambiguous=False,
                reason="run_not_over",
            )
        if answer.outcome is not Rerun.IMPOSSIBLE:
            return None
        return lambda conn, now: self._anew(conn, wanted, answer.reason, now)

    def gave_up(self, effect: Claimed, detail: str) -> Note:
        """GitHub will not take it: the check must not go on promising a rerun."""
        return lambda conn, now: note_not_rerun(conn, effect.subject_id, detail, self._terms, now)

    async def _ask(self, wanted: ToRerun) -> Rerunning:
        ask = self._github.rerun_failed_jobs if wanted.only_failed else self._github.rerun_run
        try:
            return await ask(wanted.address, wanted.run_id)
        except Forbidden as error:
            # To write to Actions is optional for the app on backends; to dispatch is not.
            if error.reason == "missing_permission":
                return Rerunning(Rerun.IMPOSSIBLE, "the app may not re-run there")
            raise

    async def _began(self, wanted: ToRerun, *, unknown: bool = False) -> bool:
        """Whether GitHub shows a newer attempt than the one that we know; ``unknown`` where we may not look.

        It does so when somebody else was quicker, or when an earlier try took effect although we never heard so.
        """
        try:
            return (
                await self._github.observe_run(wanted.address, wanted.run_id, wanted.run_attempt + 1, None) is not None
            )
        except Invalid:
            return False
        except Forbidden:
            return unknown

    def _anew(self, conn: Connection, wanted: ToRerun, why: str, now: datetime) -> None:
        said = why.rstrip(".") or "GitHub cannot run it again"
        asking = Asking(f"{wanted.asked_by}; run {wanted.run_id} could not be re-run: {said}", wanted.origin)
        made = redispatch(
            conn,
            wanted.change_id,
            wanted.backend,
            asking,
            fresh_id=self._fresh_id(),
            allowlist=self._listed(),
            terms=self._terms,
            now=now,
        )
        # Another run of the same dispatch may have been told anew a moment before; one new run is all that is wanted.
        if isinstance(made, Refusal) and made.code not in {"already_planned", "already_awaited"}:
            note_not_rerun(conn, wanted.dispatch_id, made.sentence, self._terms, now)
