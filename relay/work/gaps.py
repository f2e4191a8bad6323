"""Compares upstream with what we know of it, and plans what was missed, whatever became of its webhooks.

Two turns, each done by one replica for all. The first *finds*: pull requests that changed since the last look, branches
and merge groups, each gap a row. The second *heals* those rows at a paced rate, newest first, by what GitHub shows at
that moment, through the same transaction as a webhook (``relay.store.intake``). So a gap that was filled meanwhile is
none any more, and a crash between the two loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import structlog
from sqlalchemy import Connection

from allowlist.model import Allowlist
from relay.clock import Now
from relay.deciding.effects import pacing_of
from relay.deciding.events import MergeGroupEvent
from relay.deciding.gaps import GRACE, HEALED, QUEUE, Cause, How, Missed, Rules
from relay.deciding.plan import thread_of
from relay.github.errors import GitHubError, Invalid, Limited, RetryLater
from relay.github.listed import GitHubLists, PullListed
from relay.github.port import Address
from relay.store import comparing, gaps
from relay.store.checks import CheckTerms
from relay.store.engine import Store
from relay.store.gaps import OpenGap
from relay.store.intake import Received, record
from relay.store.queue import record_group
from relay.store.quiet import quiet_until, spend
from relay.store.thread import lock_threads
from relay.work.missed import SOON, GapCounts
from relay.work.upstream import FINDING, PAGES_AT_MOST, TELLING, Found, UpstreamLook, compared

log = structlog.get_logger(__name__)

HEALING = "gaps healing"
FULL = "gaps in full"

#: How often all open pull requests are looked at, and not only those that changed since the last look.
FULL_EVERY = timedelta(hours=24)
#: How long such a look has before it counts as cut short, and is another's to do.
_FULL_TAKES = timedelta(minutes=30)
#: How many gaps one turn of healing takes up: 30 heads a minute keep a flood of late dispatches within GitHub's limits.
HEALED_AT_MOST = 30
#: A gap that could not be healed so often is left to people; each try is further from the last.
_TRIES = 8
#: What a look usually asks, in points of the account's budget: a page or two of pull requests, branches, the queue. One
#: in full reads more pages. What it asks beyond that is spent once it is known.
_LOOK = 25
_FULL_LOOK = 60


class GapSweep:
    """Finds and heals what webhooks did not tell. ``listed`` is the allowlist in force, None while there is none."""

    def __init__(
        self,
        *,
        store: Store,
        github: GitHubLists,
        terms: CheckTerms,
        listed: Callable[[], Allowlist | None],
        now: Now,
        wake: Callable[[], None],
        fresh_id: Callable[[], str],
        counts: GapCounts,
        every: timedelta,
        healed_at_most: int = HEALED_AT_MOST,
        pages_at_most: int = PAGES_AT_MOST,
    ) -> None:
        self._store = store
        self._github = github
        self._terms = terms
        self._listed = listed
        self._now = now
        self._wake = wake
        self._fresh_id = fresh_id
        self._counts = counts
        self._every = every
        self._account = pacing_of(terms.upstream)
        self._most = healed_at_most
        #: Why this process's last turn came to nothing, as a stable code; empty where it did not.
        self.trouble = ""
        #: Whether the last look came to the end of what GitHub lists, and the next need not go on where it ended.
        self.whole = True
        self._look = UpstreamLook(
            store=store, github=github, upstream=Address(terms.upstream), now=now, pages_at_most=pages_at_most
        )

    # --- Finding -----------------------------------------------------------------------------------------------------

    async def find(self) -> int:
        """Look at upstream if it is time, and write gaps down; returns how many are new."""
        allowlist, now = self._listed(), self._now()
        if allowlist is None:
            return 0

        def turn(conn: Connection) -> bool | None:
            """Whether this look is one in full; None where it is not ours."""
            if quiet_until(conn, self._account, now) is not None:
                return None
            taken = gaps.take_turn(conn, FINDING, self._every, now)
            if taken is None:
                return None
            gaps.note_listings(conn, allowlist, now)
            full = gaps.take_turn(conn, FULL, _FULL_TAKES, now) is not None or taken.mark is None
            spend(conn, self._account, _FULL_LOOK if full else _LOOK, now)
            return full

        full = await self._store.write(turn)
        if full is None:
            return 0
        booked = _FULL_LOOK if full else _LOOK

        def cut_short(conn: Connection) -> None:
            self._spend_rest(conn, booked)
            if full:
                gaps.put_off(conn, FULL, now)

        try:
            return await self.find_now(allowlist, full=full, booked=booked)
        except GitHubError as error:
            await self._put_off(FINDING, error)
        except BaseException:
            self._look.forget()
            raise
        await self._store.write(cut_short)
        return 0

    async def find_now(self, allowlist: Allowlist, *, full: bool, booked: int = 0) -> int:
        """Look at upstream, and write gaps down; returns how many are new. Raises GitHubError.

        ``booked`` is what was spent for it beforehand.
        """
        now = self._now()
        looked = await self._look.look(allowlist, full=full)

        def note(conn: Connection) -> tuple[Found, ...]:
            new = tuple(one for one in looked.found if gaps.note_gap(conn, one.gap, now))
            if looked.whole:
                gaps.finish_turn(conn, FINDING, looked.mark, now)
            else:
                gaps.put_off(conn, FINDING, now + min(self._every, SOON))
            if full and looked.whole:
                gaps.put_off(conn, FULL, now + (FULL_EVERY if looked.closed_seen else SOON))
            elif full:
                gaps.put_off(conn, FULL, now)
            if new:
                # Where healing waits for longer than usual, GitHub has asked for a rest.
                gaps.hasten(conn, HEALING, min(self._every, SOON), now)
            self._spend_rest(conn, booked)
            return new

        new = await self._store.write(note)
        self.trouble, self.whole = "", looked.whole
        for one in new:
            log.info("gap_found", cause=one.gap.cause.value, subject=one.gap.subject, head=one.gap.head_sha)
            self._counts.gap_found(one.gap.cause.value)
        return len(new)

    def _spend_rest(self, conn: Connection, booked: int) -> None:
        over = self._look.asked - booked
        if over > 0:
            spend(conn, self._account, over, self._now())

    # --- Healing -----------------------------------------------------------------------------------------------------

    async def heal(self) -> int:
        """Heal some gaps if it is time; returns how many were taken up."""
        allowlist, now = self._listed(), self._now()
        if allowlist is None:
            return 0
        every = min(self._every, SOON)

        def turn(conn: Connection) -> bool:
            quiet = quiet_until(conn, self._account, now) is not None
            return not quiet and gaps.take_turn(conn, HEALING, every, now) is not None

        return await self.heal_now(allowlist) if await self._store.write(turn) else 0

    async def heal_now(self, allowlist: Allowlist) -> int:
        """Heal the newest gaps, as many as one turn may; returns how many were taken up."""
        now = self._now()

        def take_up(conn: Connection) -> tuple[OpenGap, ...]:
            taken = gaps.take_up(conn, self._most, now)
            if taken:
                spend(conn, self._account, len(taken), now)
            return taken

        taken = await self._store.write(take_up)
        healed = 0
        for number, gap in enumerate(taken):
            try:
                await self._heal(gap, allowlist)
            except GitHubError as error:
                if await self._failed(gap, error):
                    # One that GitHub failed at comes again later: it may be the only one, and the first each time.
                    left = taken[number + 1 :] if isinstance(error, RetryLater) else taken[number:]
                    await self._store.write(lambda conn, left=left: gaps.let_go(conn, [one.id for one in left], now))  # type: ignore[misc]
                    await self._put_off(HEALING, error)
                    break
            healed += 1
        if healed:
            self._wake()
        return healed

    async def _heal(self, gap: OpenGap, allowlist: Allowlist) -> None:
        now = self._now()
        at, rules, _ = await self._look.ground(allowlist)
        first = Rules(rules.upstream, rules.allowlist, rules.since, None) if gap.cause is Cause.FIRST_START else rules
        if gap.number is not None:
            pull = await self._github.pull_listed(at, gap.number)
            if pull.shown.updated_at > now - GRACE:
                await self._store.write(lambda conn: gaps.wait_until(conn, [gap.id], now + GRACE))
                return
            by = first if pull.shown.head_sha == gap.head_sha else rules
            how = await self._store.write(lambda conn: self._plan_pull(conn, gap, pull, by, now))
        else:
            missed = await self._seen_again(at, gap, first, now)
            how = await self._store.write(lambda conn: self._plan(conn, gap, missed, now))
        if how is not None:
            log.info("gap_ended", cause=gap.cause.value, subject=gap.subject, head=gap.head_sha, how=how.value)
            if how in HEALED:
                self._counts.gap_healed(gap.cause.value)

    async def _seen_again(self, at: Address, gap: OpenGap, rules: Rules, now: datetime) -> Missed | None:
        """A branch or a merge group as GitHub shows it now."""
        ref = gap.ref or ""
        if not ref.startswith(f"refs/{QUEUE}"):
            return await self._look.branch(at, ref, rules, now)
        refs = await self._github.refs(at, ref.removeprefix("refs/"))
        groups = await self._look.groups(refs, rules, now)
        return next((one for one in groups if one.head_sha == gap.head_sha), None)

    def _plan_pull(self, conn: Connection, gap: OpenGap, pull: PullListed, rules: Rules, now: datetime) -> How | None:
        number = pull.shown.number
        lock_threads(conn, {gap.subject})
        missed = compared(pull, comparing.known_pulls(conn, [number])[number], rules, now)
        if missed is not None and missed.cause in TELLING:
            first = comparing.first_heads(conn, [gap.subject])
            missed = None if (gap.subject, pull.shown.head_sha) in first else missed
        return self._plan(conn, gap, missed, now, pull.shown.updated_at)

    def _plan(
        self, conn: Connection, gap: OpenGap, missed: Missed | None, now: datetime, at: datetime | None = None
    ) -> How | None:
        """Plan what was missed as if its webhook came now. ``at`` is GitHub's time of it, where it is known."""
        if missed is None:
            return self._end(conn, gap, How.PASSED, now)
        delivery_id = None
        for step in missed.steps:
            delivery_id = self._fresh_id()
            received = Received(delivery_id, step.name, step.payload)
            if isinstance(step.event, MergeGroupEvent):
                record_group(conn, step.event, received, allowlist=step.allowlist, terms=self._terms, now=now)
            else:
                record(
                    conn,
                    step.event,
                    received,
                    allowlist=step.allowlist,
                    terms=self._terms,
                    now=now,
                    fresh_id=self._fresh_id,
                )
                if at is not None:
                    comparing.date_head(conn, thread_of(step.event), missed.head_sha, at)
            comparing.note_missed(conn, delivery_id)
        return self._end(conn, gap, _how(missed.cause), now, delivery_id)

    def _end(
        self, conn: Connection, gap: OpenGap, how: How, now: datetime, delivery_id: str | None = None
    ) -> How | None:
        return how if gaps.end_gap(conn, gap.id, how, now, delivery_id) else None

    async def _failed(self, gap: OpenGap, error: GitHubError) -> bool:
        """Note that a gap could not be healed; True where the next would fare no better."""
        now = self._now()
        if isinstance(error, Invalid) and error.reason == "not_found":
            await self._store.write(lambda conn: self._end(conn, gap, How.GONE, now))
            return False
        if isinstance(error, Limited):
            return True
        later = now + min(gap.tries, _TRIES) * gaps.HELD
        if isinstance(error, RetryLater):
            await self._store.write(lambda conn: gaps.wait_until(conn, [gap.id], later))
            return True
        log.warning("gap_not_healed", subject=gap.subject, head=gap.head_sha, reason=error.reason, detail=error.detail)
        if gap.tries >= _TRIES:
            await self._store.write(lambda conn: self._end(conn, gap, How.GAVE_UP, now))
        else:
            await self._store.write(lambda conn: gaps.wait_until(conn, [gap.id], later))
        return False

    async def _put_off(self, name: str, error: GitHubError) -> None:
        log.warning("upstream_not_read", turn=name, reason=error.reason, detail=error.detail)
        self.trouble = error.reason
        retry_at = error.retry_at if isinstance(error, RetryLater | Limited) else None
        if retry_at is not None:
            until = max(retry_at, self._now() + min(self._every, SOON))
            await self._store.write(lambda conn: gaps.put_off(conn, name, until))


def _how(cause: Cause) -> How:
    if cause is Cause.FIRST_START:
        return How.NOTED
    return How.CLOSED if cause in {Cause.CLOSED_MISSED, Cause.GROUP_GONE} else How.PLANNED
