"""Makes one comment of ours on a pull request say what our record says, in place.

As with checks, a comment is a state: whatever was sent before, the next look writes what holds then.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import structlog

from relay.clock import Now
from relay.github.errors import GitHubError, Invalid, RetryLater
from relay.github.port import Address, GitHub
from relay.store import comments
from relay.store.checks import CheckTerms
from relay.store.comments import CommentRow
from relay.store.dispatching import address_of
from relay.store.engine import Store

log = structlog.get_logger(__name__)

#: GitHub compares with its own clock: where ours is ahead of it, a comment looks older than its row.
_APART = timedelta(minutes=5)


class CommentReconciler:
    """Looks at one comment and writes the difference. Built once, by ``relay.app``."""

    def __init__(self, *, store: Store, github: GitHub, terms: CheckTerms, now: Now) -> None:
        self._store = store
        self._github = github
        self._terms = terms
        self._now = now

    async def reconcile(self, comment_id: int) -> None:
        """Load, compare, write the difference, note it. Safe to repeat.

        What GitHub answers with an error is noted on the row and raised to the caller.
        """
        upstream = self._terms.upstream
        row, at = await self._store.read(
            lambda conn: (comments.load_comment(conn, comment_id), address_of(conn, upstream))
        )
        if row is None or row.wanted == row.applied:
            return
        try:
            github_id, anew = await self._write(row, at)
        except GitHubError as error:
            await self._store.write(partial(comments.note_error, comment_id=row.id, error=error.detail))
            raise
        written = partial(
            comments.note_written, row=row, github_id=github_id, anew=anew, upstream=upstream, now=self._now()
        )
        await self._store.write(written)
        log.info("comment_written", number=row.number, topic=row.topic)

    async def _write(self, row: CommentRow, at: Address) -> tuple[int | None, bool]:
        """Send the text; the comment that shows it, and whether it replaces one that somebody deleted."""
        # At the start, since a text beyond GitHub's bound is cut at its end.
        marker = f"<!-- crcr {row.id} -->"
        body = f"{marker}\n{row.body}"
        known = row.github_id
        if row.creating:
            # An earlier create was sent and its answer never noted; two comments of one topic are one too many.
            since = row.created_at - _APART
            known = await self._github.find_comment(at, row.number, marker, since) or known
        anew = False
        if known is not None:
            try:
                await self._github.update_comment(at, known, body)
            except Invalid as error:
                if error.reason not in ("not_found", "gone"):
                    raise
                if row.created_anew:
                    return None, True  # Whoever deletes it twice does not want it.
                anew = True
            else:
                return known, row.created_anew
        await self._store.write(partial(comments.note_creating, comment_id=row.id, creating=True))
        try:
            return await self._github.create_comment(at, row.number, body), anew or row.created_anew
        except GitHubError as error:
            if not (isinstance(error, RetryLater) and error.ambiguous):
                await self._store.write(partial(comments.note_creating, comment_id=row.id, creating=False))
            raise
