"""Asks GitHub to cancel what a closed pull request, or a merge group that is gone, still runs, where wanted."""

from __future__ import annotations

import structlog

from allowlist.model import RepoName
from relay.github.errors import Forbidden, GitHubError, Invalid
from relay.github.port import GitHub
from relay.store.cancelling import ToCancel, load_cancel, note_not_cancelled
from relay.store.engine import Store
from relay.store.observations import COMPLETED
from relay.store.outbox import Claimed
from relay.work.outbox import Note

log = structlog.get_logger(__name__)


class RunCanceller:
    """Performs CANCEL_RUNS effects."""

    def __init__(self, *, store: Store, github: GitHub) -> None:
        self._store = store
        self._github = github

    async def cancel(self, effect: Claimed) -> Note | None:
        """Cancel each run that is not known to be over. What GitHub does not allow is noted, and is no failure."""
        wanted = await self._store.read(lambda conn: load_cancel(conn, effect.subject_id))
        if wanted is None:
            return None  # Reopened meanwhile: its runs are awaited again.
        try:
            for run_id in await self._runs(wanted):
                taken = await self._github.cancel_run(wanted.address, run_id)
                log.info(
                    "run_cancelled",
                    dispatch=effect.subject_id,
                    delivery=wanted.delivery_id,
                    backend=str(wanted.backend),
                    run_id=run_id,
                    taken=taken,
                )
        except (Forbidden, Invalid) as error:
            return _noting(wanted.backend, error)
        return None

    def gave_up(self, effect: Claimed, detail: str) -> Note:
        """GitHub failed for too long."""
        repo = RepoName.parse(effect.subject)
        return lambda conn, now: note_not_cancelled(conn, repo, detail, now)

    async def _runs(self, wanted: ToCancel) -> tuple[str, ...]:
        if wanted.runs:
            return tuple(run.run_id for run in wanted.runs if run.running and run.at_github)
        # Nothing was reported yet: a run that waits for its runner carries the delivery's id in its name.
        listed = await self._github.find_runs(wanted.address, wanted.since)
        named = [run for run in listed if wanted.delivery_id in run.title]
        return tuple(run.run_id for run in named if run.status != COMPLETED)


def _noting(repo: RepoName, error: GitHubError) -> Note:
    return lambda conn, now: note_not_cancelled(conn, repo, f"{error.reason}: {error.detail}", now)
