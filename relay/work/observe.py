"""Looks at the runs of one dispatch at GitHub: known ones by their ids, unknown ones by the delivery id in their names.

What may not be looked at is no fault of the change: the dispatch then stands on claims alone, and says so.
"""

from __future__ import annotations

from relay.github.errors import GitHubError, Invalid, Limited, RetryLater
from relay.github.observed import JobObserved
from relay.github.port import GitHub
from relay.store.checks import CheckTerms
from relay.store.engine import Store
from relay.store.observations import COMPLETED, AttemptShown
from relay.store.observing import MOST_RUNS, KnownRun, Look, ToObserve, load_observe, note_observed
from relay.texts.words import not_at_github, not_observable, other_workflow, run_gone
from relay.work.outbox import Note


class Observer:
    """Performs looks. It holds nothing between them."""

    def __init__(self, *, store: Store, github: GitHub, terms: CheckTerms) -> None:
        self._store = store
        self._github = github
        self._terms = terms

    async def observe(self, dispatch_id: int) -> Note | None:
        """Look at the runs of this dispatch; what is to be noted of it, None where there is nothing to look at.

        Raises Limited and RetryLater: a look that failed is repeated, and no deadline waits for it longer than said.
        """
        facts = await self._store.read(lambda conn: load_observe(conn, dispatch_id))
        if facts is None:
            return None
        look = await self._look(facts)
        return lambda conn, now: note_observed(conn, dispatch_id, look, self._terms, now)

    def gave_up(self, dispatch_id: int, detail: str) -> Note:
        """GitHub failed for too long: the dispatch stands on claims alone, and its check and page say so."""
        look = Look(note=not_observable(detail), blind=True)
        return lambda conn, now: note_observed(conn, dispatch_id, look, self._terms, now)

    async def _look(self, facts: ToObserve) -> Look:
        if facts.elsewhere:
            return Look(note=not_at_github(), blind=True)
        try:
            return await self._see(facts) if facts.runs else await self._find(facts)
        except (Limited, RetryLater):
            raise
        except GitHubError as error:
            return Look(note=not_observable(error.detail), blind=True)

    async def _find(self, facts: ToObserve) -> Look:
        """The runs that this dispatch started, by their names; of several those of the pinned workflow."""
        listed = await self._github.find_runs(facts.address, facts.since)
        named = [run for run in listed if facts.delivery_id in run.title]
        ours = [run for run in named if _is_pinned(facts.workflow, run.path)]
        note = "" if ours or not named else other_workflow(named[0].path)
        ours = ours or named
        attempts = tuple(
            AttemptShown(run.run_id, run.run_attempt, run.status, run.conclusion, run.path, run.created_at)
            for run in ours[:MOST_RUNS]
        )
        return Look(attempts, note)

    async def _see(self, facts: ToObserve) -> Look:
        attempts: list[AttemptShown] = []
        notes: dict[str, None] = {}
        for known in facts.runs:
            if known.ended:
                continue
            try:
                shown = await self._attempt(facts, known)
            except Invalid as error:
                if error.reason not in ("not_found", "gone"):
                    raise
                notes[run_gone(known.run_id)] = None
                continue
            if shown is None:
                continue
            attempts.append(shown)
            if not _is_pinned(facts.workflow, shown.path):
                notes[other_workflow(shown.path)] = None
        return Look(tuple(attempts), " ".join(notes))

    async def _attempt(self, facts: ToObserve, known: KnownRun) -> AttemptShown | None:
        run = await self._github.observe_run(facts.address, known.run_id, known.run_attempt, known.etag)
        if run is None:
            return None
        jobs: tuple[JobObserved, ...] = ()
        if run.status == COMPLETED and known.jobs:
            jobs = await self._github.observe_jobs(facts.address, known.run_id, known.run_attempt)
        return AttemptShown(
            known.run_id, known.run_attempt, run.status, run.conclusion, run.path, run.created_at, run.etag, jobs
        )


def _is_pinned(workflow: str | None, path: str) -> bool:
    """Whether a run's file is the one the entry pins. A shared workflow of another repository shows in tokens only."""
    if workflow is None or not workflow.startswith(".github/"):
        return True
    return path.lower() == workflow.lower()
