"""Looks at upstream and says where it differs from what we know. Writes nothing, so a dry run is this and no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import structlog
from sqlalchemy import Connection

from allowlist.model import Allowlist
from relay.clock import Now
from relay.deciding.events import MergeGroupEvent
from relay.deciding.gaps import (
    GRACE,
    QUEUE,
    Cause,
    Missed,
    Rules,
    SeenHead,
    branches_to_look_at,
    compare_branch,
    compare_groups,
    compare_pull,
)
from relay.deciding.plan_queue import group_thread
from relay.deciding.reading import BadEventError
from relay.github.errors import Invalid
from relay.github.listed import GitHubLists, PullListed, RefHead
from relay.github.port import Address
from relay.store import comparing, gaps
from relay.store.dispatching import address_of
from relay.store.engine import Store
from relay.store.gaps import NewGap, Taken

log = structlog.get_logger(__name__)

#: The turn whose end says how far upstream has been looked at.
FINDING = "gaps"
#: Pages of 100 pull requests that one look reads at most, two or more. Where there are more, the next look goes on.
PAGES_AT_MOST = 100
_MOST_BRANCHES = 20

#: Nobody is told of a head from before the first look, so nobody can have missed it.
TELLING = frozenset({Cause.NEVER_DELIVERED, Cause.NOT_DISPATCHED})


@dataclass(frozen=True, slots=True)
class Found:
    """A gap, with what would close it."""

    gap: NewGap
    missed: Missed


@dataclass(frozen=True, slots=True)
class Looked:
    """What one look found and, where that is ``whole``, up to when, in GitHub's time, upstream has been looked at.

    ``closed_seen``: a look in full could also tell which pull requests are open no more.
    """

    found: tuple[Found, ...]
    mark: datetime
    whole: bool = True
    closed_seen: bool = True


@dataclass(slots=True)
class _Reading:
    """A list of pull requests that is being read, maybe over several looks. ``page`` is the next one.

    ``mark`` is how far upstream had been looked at when it was begun. Where somebody has looked further since, what is
    left of it is worth nothing. ``etag`` is the first page's: the one to ask with, and then the one that was read.

    Whoever is changed meanwhile moves to its front, before what has been read; who is closed lets others move up, so
    each look begins with the page that the one before it ended with.
    """

    since: datetime | None
    mark: datetime | None = None
    page: int = 1
    newest: datetime | None = None
    listed: set[int] = field(default_factory=set)
    etag: str | None = None

    @property
    def state(self) -> str:
        """Which pull requests: all that changed, or all open ones."""
        return "open" if self.since is None else "all"


class UpstreamLook:
    """One way of looking, which remembers what need not be read again. All methods may raise GitHubError."""

    def __init__(
        self,
        *,
        store: Store,
        github: GitHubLists,
        upstream: Address,
        now: Now,
        pages_at_most: int = PAGES_AT_MOST,
    ) -> None:
        self._store = store
        self._github = github
        self._upstream = upstream.repo
        self._now = now
        self._pages = pages_at_most
        #: What a look has not read to its end. Another process begins anew, as the mark has not moved.
        self._begun: _Reading | None = None
        self._etag: str | None = None  # Of the first page of pull requests, where nothing on it was too fresh.
        self._etags: dict[str, tuple[str, str]] = {}  # Of branches: the ETag and the head that it stands for.
        #: How often GitHub was asked by the look under way, else by the last one. Unchanged pull requests cost nothing.
        self.asked = 0

    def forget(self) -> None:
        """What was found could not be kept, so the next look reads all of it again."""
        self._etag = self._begun = None
        self._etags.clear()

    async def look(self, allowlist: Allowlist, *, full: bool) -> Looked:
        """All gaps there are. ``full`` looks at every open pull request, else at those that changed since the last.

        Where there are too many for one look, what it found is not whole, and the next goes on where it ended.
        """
        now = self._now()
        self.asked = 0
        at, rules, taken = await self.ground(allowlist)
        since, begun = None if full else taken.mark, self._begun
        if begun is None or begun.mark != taken.mark or (full and begun.since is not None):
            reading = _Reading(since, taken.mark, etag=None if since is None else self._etag)
        else:
            reading = replace(begun, listed=set(begun.listed))
        pulls = await self._pulls(at, reading, rules, now)
        found = [*pulls.found, *await self._branches(at, rules, now), *await self._queue(at, rules, now)]
        first = await self._store.read(comparing.first_heads)
        left = [
            one for one in found if one.gap.cause not in TELLING or (one.gap.subject, one.gap.head_sha) not in first
        ]
        # Only now: a look that fails on the way is done again, from where it began.
        self._begun = None if pulls.whole else reading
        self._etag = reading.etag if pulls.whole else None
        return replace(pulls, found=tuple(left))

    async def ground(self, allowlist: Allowlist) -> tuple[Address, Rules, Taken]:
        """Where upstream lives, by what it is compared, and how far the last look came."""

        def load(conn: Connection) -> tuple[Address, Rules, Taken]:
            taken = gaps.look_at_turn(conn, FINDING)
            rules = Rules(self._upstream, allowlist, gaps.asking_since(conn), taken.began_at)
            return address_of(conn, self._upstream), rules, taken

        return await self._store.read(load)

    async def _pulls(self, at: Address, reading: _Reading, rules: Rules, now: datetime) -> Looked:
        """What pull requests show, from where this reading stands; it is moved on."""
        found: list[Found] = []
        first = reading.page
        for _ in range(self._pages):
            page = await self._github.pulls(
                at, reading.state, reading.page, reading.etag if reading.page == 1 else None
            )
            if page is None:
                # Nothing has changed since the last look, not even a comment.
                return Looked((), reading.since or now - GRACE)
            self.asked += 1
            if reading.page == 1:
                reading.newest = max([pull.shown.updated_at for pull in page.pulls], default=None)
                settled = reading.newest is not None and reading.newest <= now - GRACE
                reading.etag = page.etag if reading.since is not None and settled else None
            found += await self._take(page.pulls, reading, rules, now)
            if not page.more or _is_before(page.pulls, reading.since):
                break
            reading.page += 1
        else:
            reading.page -= 1
            reading.etag = None
            log.warning("pull_requests_too_many", known=reading.state, pages=reading.page)
            return Looked(tuple(found), reading.newest or now, whole=False)
        closed_seen = True
        if reading.since is None:
            closed_seen = first == 1 or await self._caught_up(at, reading, rules, now, found)
            if closed_seen:
                found += await self._not_open(reading.listed, now)
        return Looked(tuple(found), min(reading.newest or now, now - GRACE), closed_seen=closed_seen)

    async def _caught_up(self, at: Address, reading: _Reading, rules: Rules, now: datetime, found: list[Found]) -> bool:
        """Read what moved to the front since the reading began; whether that was all of it.

        Without those, an open pull request that was changed between two looks would have been on no page.
        """
        for number in range(1, self._pages + 1):
            self.asked += 1
            page = await self._github.pulls(at, reading.state, number)
            if page is None:
                return False
            found += await self._take(page.pulls, reading, rules, now)
            if not page.more or _is_before(page.pulls, reading.newest):
                return True
        log.warning("pull_requests_too_many", known=reading.state, pages=self._pages)
        return False

    async def _take(self, pulls: Sequence[PullListed], reading: _Reading, rules: Rules, now: datetime) -> list[Found]:
        reading.listed |= {pull.shown.number for pull in pulls}
        return await self._compare(pulls, rules, now)

    async def _not_open(self, listed: set[int], now: datetime) -> list[Found]:
        """Those that are open here and not among the open ones upstream; whoever heals them asks about each."""
        known = await self._store.read(comparing.open_pulls)
        return [
            Found(
                NewGap(Cause.CLOSED_MISSED, f"pull {number}", head_sha, updated_at, number),
                Missed(Cause.CLOSED_MISSED, ()),
            )
            for number, (head_sha, updated_at) in known.items()
            if number not in listed and updated_at <= now - GRACE
        ]

    async def _compare(self, pulls: Sequence[PullListed], rules: Rules, now: datetime) -> list[Found]:
        numbers = [pull.shown.number for pull in pulls]
        known = await self._store.read(lambda conn: comparing.known_pulls(conn, numbers))
        found: list[Found] = []
        for pull in pulls:
            shown = pull.shown
            missed = compared(pull, known[shown.number], rules, now)
            if missed is not None:
                gap = NewGap(missed.cause, f"pull {shown.number}", shown.head_sha, shown.updated_at, shown.number)
                found.append(_found(gap, missed))
        return found

    async def _branches(self, at: Address, rules: Rules, now: datetime) -> list[Found]:
        self.asked += 1
        default = (await self._github.locate(at)).default_branch
        seen = await self._store.read(lambda conn: comparing.branches_pushed_to(conn, 10 * _MOST_BRANCHES))
        found: list[Found] = []
        for ref in branches_to_look_at(default, seen, rules.allowlist.entries, _MOST_BRANCHES):
            self.asked += 1
            missed = await self.branch(at, ref, rules, now)
            if missed is not None:
                found.append(_found(NewGap(missed.cause, f"push {ref}", missed.head_sha, now, None, ref), missed))
        return found

    async def branch(self, at: Address, ref: str, rules: Rules, now: datetime) -> Missed | None:
        """What we missed of one branch."""
        known = await self._store.read(lambda conn: comparing.known_branch(conn, ref))
        etag, stands_for = self._etags.get(ref, (None, None))
        if known is None or stands_for != known.head_sha:
            etag = None  # It stands for what we do not know, so that nothing has changed says nothing.
        try:
            head = await self._github.branch(at, ref.removeprefix("refs/heads/"), etag)
        except Invalid as error:
            if error.reason == "not_found":
                return None
            raise
        if head is None:
            return None
        if head.etag is not None:
            self._etags[ref] = head.etag, head.head_sha
        return _readable(lambda: compare_branch(ref, head, known, rules, now))

    async def _queue(self, at: Address, rules: Rules, now: datetime) -> list[Found]:
        self.asked += 1
        found: list[Found] = []
        for missed in await self.groups(await self._github.refs(at, QUEUE), rules, now):
            event = missed.steps[0].event
            if isinstance(event, MergeGroupEvent):
                gap = NewGap(missed.cause, group_thread(event.head_sha), event.head_sha, now, None, event.head_ref)
                found.append(_found(gap, missed))
        return found

    async def groups(self, refs: Sequence[RefHead], rules: Rules, now: datetime) -> Sequence[Missed]:
        """What we missed of the merge queue, by the refs that it has."""
        heads = [ref.sha for ref in refs]

        def known(conn: Connection) -> tuple[frozenset[str], Mapping[str, str]]:
            return comparing.known_groups(conn, heads, now - GRACE)

        there, waiting = await self._store.read(known)
        try:
            return compare_groups(refs, there, waiting, rules, now)
        except BadEventError as error:
            log.warning("upstream_unreadable", faults=str(error))
            return ()


def compared(pull: PullListed, known: Sequence[SeenHead], rules: Rules, now: datetime) -> Missed | None:
    """What we missed of one pull request; one that cannot be read hides nothing else."""
    return _readable(lambda: compare_pull(pull, known, rules, now))


def _is_before(pulls: Sequence[PullListed], since: datetime | None) -> bool:
    """Whether the list, the last updated first, has come to what was looked at already."""
    oldest = min((pull.shown.updated_at for pull in pulls), default=None)
    return since is not None and oldest is not None and oldest < since - GRACE


def _readable(compare: Callable[[], Missed | None]) -> Missed | None:
    try:
        return compare()
    except BadEventError as error:
        # Its webhook would be refused, too.
        log.warning("upstream_unreadable", faults=str(error))
        return None


def _found(gap: NewGap, missed: Missed) -> Found:
    return Found(gap.telling([str(repo) for repo in missed.backends()]), missed)
