"""Webhooks that GitHub could not deliver: each is asked for once more, as GitHub never does by itself.

https://docs.github.com/webhooks/using-webhooks/handling-failed-webhook-deliveries
The newest are asked for first: an older event of the same pull request then finds that something newer is known, and
nobody is told of a head that was replaced long ago. That a delivery is asked for is written down before GitHub hears
of it, so a crash or a second replica asks for none twice; whether an ask that was cut short had an effect, the list of
deliveries tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Protocol

import structlog
from sqlalchemy import Connection

from relay.clock import Now
from relay.deciding.events import (
    INSTALLATION_ACTIONS,
    INSTALLATION_REPOSITORIES_ACTIONS,
    MERGE_GROUP_ACTIONS,
    PULL_REQUEST_ACTIONS,
    REPOSITORY_ACTIONS,
)
from relay.deciding.events_asked import CHECK_RUN_ACTIONS, CHECK_SUITE_ACTIONS, COMMENT_ACTIONS
from relay.deciding.gaps import HEALED, Cause, How
from relay.github.errors import GitHubError, Limited, RetryLater
from relay.github.listed import GitHubLists, HookDeliveries, HookDelivery, Side
from relay.github.port import Address
from relay.store import gaps
from relay.store.checks import CheckTerms
from relay.store.dispatching import address_of
from relay.store.engine import Store
from relay.store.gaps import FailedDelivery, OpenDelivery
from relay.store.quiet import quiet_until
from relay.store.repositories import known_ids

log = structlog.get_logger(__name__)

#: How many are asked for in one turn. Where more wait, the next turn comes after ``SOON``.
ASKED_AT_MOST = 40
SOON = timedelta(seconds=60)
#: Pages of deliveries that one turn reads at most: three busy days of an app that hears of every check. Where there are
#: more, the next turn goes on from there, soon.
PAGES_AT_MOST = 300
#: How far before the last turn's end this one looks: GitHub lists a delivery once it has ended, not when it began.
_OVERLAP = timedelta(minutes=5)
#: One that is younger may be under way.
_YOUNG = timedelta(seconds=30)
#: GitHub forgets deliveries after three days; those that it is about to forget are not worth a question.
#: https://docs.github.com/webhooks/testing-and-troubleshooting-webhooks/redelivering-webhooks
_KEPT = timedelta(days=3) - timedelta(minutes=1)
#: How long a redelivery may take to show in the list, before it counts as never asked for, or never sent.
_SHOWS = timedelta(minutes=10)
_TRIES = 3

_INSTALLATIONS: Mapping[str, frozenset[str] | None] = MappingProxyType(
    {
        "installation": INSTALLATION_ACTIONS,
        "installation_repositories": INSTALLATION_REPOSITORIES_ACTIONS,
        "repository": REPOSITORY_ACTIONS,
    }
)
_UPSTREAMS: Mapping[str, frozenset[str] | None] = MappingProxyType(
    {
        "pull_request": PULL_REQUEST_ACTIONS,
        "push": None,
        "merge_group": MERGE_GROUP_ACTIONS,
        "check_run": CHECK_RUN_ACTIONS,
        "check_suite": CHECK_SUITE_ACTIONS,
        "issue_comment": COMMENT_ACTIONS,
    }
)


class GapCounts(Protocol):
    """What is counted of gaps."""

    def gap_found(self, cause: str) -> None:
        """One was found."""
        ...

    def gap_healed(self, cause: str) -> None:
        """One was healed."""
        ...


@dataclass(frozen=True, slots=True)
class _Listed:
    """What GitHub lists, by GUID: those that came through at last, and each failed try of the others, newest first.

    ``up_to_now`` says that nothing is missing in it. Only then does it mean something that a delivery is not in it.
    """

    through: frozenset[str] = frozenset()
    failed: Mapping[str, tuple[HookDelivery, ...]] = field(default_factory=lambda: MappingProxyType({}))
    newest: datetime | None = None
    up_to_now: bool = True


@dataclass(slots=True)
class _Reading:
    """A list of deliveries that is being read, maybe over several turns: up to this cursor, from the newest on."""

    horizon: datetime
    cursor: str | None = None
    through: set[str] = field(default_factory=set)
    failed: dict[str, list[HookDelivery]] = field(default_factory=dict)
    newest: datetime | None = None
    turns: int = 0
    ended: bool = False

    def take(self, page: HookDeliveries) -> None:
        """One page more."""
        for one in page.items:
            self.newest = max(self.newest or one.delivered_at, one.delivered_at)
            if one.ok:
                self.through.add(one.guid)
            else:
                self.failed.setdefault(one.guid, []).append(one)
        self.cursor = page.cursor
        self.ended = page.cursor is None or bool(page.items and page.items[-1].delivered_at < self.horizon)

    def listed(self) -> _Listed:
        """What has been read so far."""
        left = {
            guid: tuple(sorted(tries, key=lambda one: one.delivered_at, reverse=True))
            for guid, tries in self.failed.items()
            if guid not in self.through
        }
        return _Listed(frozenset(self.through), left, self.newest, self.ended and self.turns == 1)


@dataclass(frozen=True, slots=True)
class _Ours:
    """The ids of upstream, and of all repositories of whose changes something is kept."""

    upstream: int
    known: frozenset[int]


class MissedDeliveries:
    """Has failed deliveries sent again. Replicas may run one each: a turn belongs to one of them."""

    def __init__(
        self,
        *,
        store: Store,
        github: GitHubLists,
        terms: CheckTerms,
        now: Now,
        counts: GapCounts,
        every: timedelta,
        asked_at_most: int = ASKED_AT_MOST,
        pages_at_most: int = PAGES_AT_MOST,
    ) -> None:
        self._store = store
        self._github = github
        self._terms = terms
        self._now = now
        self._counts = counts
        self._every = every
        self._most = asked_at_most
        self._pages = pages_at_most
        #: Lists that this process has not read to their end. Another begins anew, as nothing is noted as looked at yet.
        self._begun: dict[str, _Reading] = {}
        self._troubles: dict[str, str] = {}
        two = github.app_id_of(Side.UPSTREAM) != github.app_id_of(Side.BACKENDS)
        # With one app, upstream's webhook tells of installations too.
        self._sides: Mapping[Side, Mapping[str, frozenset[str] | None]] = (
            {Side.UPSTREAM: _UPSTREAMS, Side.BACKENDS: _INSTALLATIONS}
            if two
            else {Side.UPSTREAM: {**_UPSTREAMS, **_INSTALLATIONS}}
        )

    @property
    def trouble(self) -> str:
        """Why this process's last turn came to nothing, as a stable code; empty where it did not."""
        return next(iter(self._troubles.values()), "")

    async def turn(self) -> int:
        """Look at each app's deliveries if it is time; returns how many were asked for."""
        return sum([await self._side(side) for side in self._sides])

    async def _side(self, side: Side) -> int:
        name, now = f"deliveries {self._github.app_id_of(side)}", self._now()

        def take(conn: Connection) -> gaps.Taken | None:
            # Asked as the app itself, so it is in no account's budget.
            quiet = quiet_until(conn, None, now) is not None
            return None if quiet else gaps.take_turn(conn, name, self._every, now)

        taken = await self._store.write(take)
        if taken is None:
            return 0
        try:
            if taken.mark is None:
                # What failed before we first looked is none of ours: a first start dispatches nothing.
                page = await self._github.deliveries(side, None, 1)
                newest = max([one.delivered_at for one in page.items], default=now)
                await self._finish(name, min(newest, now - _YOUNG))
                return 0
            listed, whole = await self._list(side, name, taken.mark - _OVERLAP)
            ours = await self._ours()
            failed = self._failed(side, listed, ours, now)
            await self._note(side, listed, failed)
            if whole:
                self._begun.pop(name, None)
                await self._finish(name, min(listed.newest or taken.mark, now - _YOUNG))
            else:
                # Before anything is asked for: GitHub may answer that with a rest, which is longer and stands.
                await self._store.write(lambda conn: gaps.put_off(conn, name, now + min(self._every, SOON)))
            return await self._ask(side, name)
        except GitHubError as error:
            if not isinstance(error, RetryLater | Limited):
                self._begun.pop(name, None)  # It may be the cursor that GitHub does not take any more.
            await self._put_off(name, error)
            return 0

    async def _finish(self, name: str, mark: datetime) -> None:
        now = self._now()
        self._troubles.pop(name, None)
        await self._store.write(lambda conn: gaps.finish_turn(conn, name, mark, now))

    async def _put_off(self, name: str, error: GitHubError) -> None:
        log.warning("deliveries_not_read", turn=name, reason=error.reason, detail=error.detail)
        self._troubles[name] = error.reason
        retry_at = error.retry_at if isinstance(error, RetryLater | Limited) else None
        if retry_at is not None:
            until = max(retry_at, self._now() + min(self._every, SOON))
            await self._store.write(lambda conn: gaps.put_off(conn, name, until))

    async def _ours(self) -> _Ours:
        def load(conn: Connection) -> tuple[Address, frozenset[int]]:
            return address_of(conn, self._terms.upstream), known_ids(conn)

        at, known = await self._store.read(load)
        upstream_id = (await self._github.locate(at)).repository_id
        return _Ours(upstream_id, known | {upstream_id})

    async def _list(self, side: Side, name: str, horizon: datetime) -> tuple[_Listed, bool]:
        """What is listed since then, and whether that is all; else the next turn goes on where this one ended."""
        reading = self._begun.get(name)
        if reading is None or reading.horizon != horizon:
            # Another process has read further since this one began, and what is left here is worth nothing.
            reading = self._begun[name] = _Reading(horizon)
        reading.turns += 1
        for _ in range(self._pages):
            reading.take(await self._github.deliveries(side, reading.cursor))
            if reading.ended:
                break
        else:
            log.warning("deliveries_too_many", turn=name, pages=self._pages * reading.turns)
        return reading.listed(), reading.ended

    def _failed(self, side: Side, listed: _Listed, ours: _Ours, now: datetime) -> tuple[FailedDelivery, ...]:
        """Those that we would have acted on."""
        app_id = self._github.app_id_of(side)
        found = []
        for guid, tries in listed.failed.items():
            newest = tries[0]
            if not now - _KEPT <= newest.delivered_at <= now - _YOUNG or not self._wants(side, newest, ours):
                continue
            told = f"{newest.event} {newest.action}" if newest.action else newest.event
            found.append(FailedDelivery(guid, newest.delivery_id, app_id, told, newest.delivered_at))
        return tuple(found)

    def _wants(self, side: Side, one: HookDelivery, ours: _Ours) -> bool:
        wanted = self._sides[side]
        if one.event not in wanted:
            return False
        actions = wanted[one.event]
        if actions is not None and one.action not in actions:
            return False
        if one.event == "repository":
            # The app hears of all that it is installed on, and of the others nothing would be kept.
            return one.repository_id is None or one.repository_id in ours.known
        return one.event in _INSTALLATIONS or one.repository_id in {None, ours.upstream}

    async def _note(self, side: Side, listed: _Listed, failed: tuple[FailedDelivery, ...]) -> None:
        app_id, now = self._github.app_id_of(side), self._now()

        def unit(conn: Connection) -> tuple[list[tuple[str, How]], tuple[FailedDelivery, ...]]:
            pending = gaps.open_deliveries(conn, app_id)
            came = gaps.received(conn, [one.guid for one in pending] + [one.guid for one in failed])
            ended: list[tuple[str, How]] = []
            for one in pending:
                how = _end_of(one, listed, one.guid in came, now)
                if how is not None and gaps.end_gap(conn, one.id, how, now, one.guid if one.guid in came else None):
                    ended.append((one.guid, how))
            gaps.not_asked(conn, [one.id for one in pending if _never_asked(one, listed, now)])
            return ended, gaps.note_failed(conn, [one for one in failed if one.guid not in came], now)

        ended, new = await self._store.write(unit)
        for one in new:
            log.warning("delivery_failed", delivery=one.guid, github_event=one.event, delivered_at=one.delivered_at)
            self._counts.gap_found(Cause.DELIVERY_FAILED.value)
        for guid, how in ended:
            log.info("delivery_ended", delivery=guid, how=how.value)
            if how in HEALED:
                self._counts.gap_healed(Cause.DELIVERY_FAILED.value)

    async def _ask(self, side: Side, name: str) -> int:
        """Ask for those that nobody has asked for, one after another."""
        app_id, now = self._github.app_id_of(side), self._now()
        claimed = await self._store.write(lambda conn: gaps.claim_asking(conn, app_id, self._most, now))
        asked = 0
        for number, one in enumerate(claimed):
            try:
                kept = await self._github.redeliver(side, one.github_id)
            except GitHubError as error:
                unclear = isinstance(error, RetryLater) and error.ambiguous
                rest = [other.id for other in claimed[number + 1 if unclear else number :]]
                await self._store.write(lambda conn, rest=rest: gaps.not_asked(conn, rest))  # type: ignore[misc]
                await self._put_off(name, error)
                return asked
            await self._store.write(lambda conn, one=one, kept=kept: _note_answer(conn, one, kept, self._now()))  # type: ignore[misc]
            asked += 1
            log.info("redelivery_asked", delivery=one.guid, kept=kept)
        if len(claimed) == self._most:
            until = self._now() + min(self._every, SOON)
            await self._store.write(lambda conn: gaps.put_off(conn, name, until))
        return asked


def _note_answer(conn: Connection, one: OpenDelivery, kept: bool, now: datetime) -> None:
    if kept:
        gaps.note_asked(conn, one.id, now)
    else:
        gaps.end_gap(conn, one.id, How.GONE, now)


def _again(one: OpenDelivery, listed: _Listed) -> bool:
    """Whether GitHub lists a try of it that began after it was asked for."""
    asking_at = one.asking_at
    if asking_at is None:
        return False
    since = asking_at - timedelta(seconds=5)  # GitHub's clock is not ours.
    return any(each.redelivery and each.delivered_at >= since for each in listed.failed.get(one.guid, ()))


def _end_of(one: OpenDelivery, listed: _Listed, came: bool, now: datetime) -> How | None:
    if came or one.guid in listed.through:
        return How.REDELIVERED if one.asking_at is not None else How.PASSED
    if one.asking_at is None:
        return None
    if _again(one, listed):
        return How.FAILED_AGAIN
    waited = listed.up_to_now and now - one.asking_at > _SHOWS
    return How.GAVE_UP if waited and (one.asked_at is not None or one.tries >= _TRIES) else None


def _never_asked(one: OpenDelivery, listed: _Listed, now: datetime) -> bool:
    """It was about to be asked for when somebody died, and GitHub shows nothing of it."""
    return (
        listed.up_to_now
        and one.asking_at is not None
        and one.asked_at is None
        and one.tries < _TRIES
        and now - one.asking_at > _SHOWS
        and one.guid not in listed.through
        and not _again(one, listed)
    )
