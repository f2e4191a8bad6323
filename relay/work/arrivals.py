"""Looks whether a dispatch arrived of which nobody said so, before it is sent once more."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from relay.clock import Now
from relay.deciding.arrival import (
    BLIND_TRIES,
    CLOCKS,
    LATE,
    UNSEEN_WAIT,
    UNSETTLED_WAIT,
    Arrival,
    Started,
    what_runs_say,
)
from relay.github.errors import Forbidden, Invalid, RetryLater
from relay.github.port import GitHub
from relay.store.claiming import Claimed
from relay.store.dispatching import ToSend
from relay.store.doubts import MAYBE_DELIVERED, UNSETTLED, Tries, siblings_of, tries_of
from relay.store.engine import Store
from relay.work.schedule import UNSURE
from relay.work.verdicts import NotYetError

_UNSAID = "GitHub failed after it had been sent {count} times, and its runs do not say whether it arrived"

#: GitHub tells when a run was created in whole seconds.
_WHOLE_SECONDS = timedelta(seconds=2)
#: How long one look may take. What is left of a try's time must do for sending, or a slow look would count as a try
#: that may have arrived.
LOOK_SECONDS = 20.0


class MaybeDeliveredError(Exception):
    """It was sent as often as may be without knowing whether it arrived. A person must look, or send it again."""


class Arrivals:
    """Asks for evidence of a dispatch. It holds nothing between two of them.

    ``scale`` shortens its times, as it does the retry schedule; ``look_seconds`` is the patience with one look.
    """

    def __init__(
        self, *, store: Store, github: GitHub, now: Now, scale: float = 1.0, look_seconds: float = LOOK_SECONDS
    ) -> None:
        self._store = store
        self._github = github
        self._now = now
        self._scale = scale
        self._look_seconds = look_seconds

    async def arrived(self, effect: Claimed, sent: ToSend) -> bool:
        """Did an earlier try take effect although we never heard so? False: it may be sent once more.

        GitHub has no idempotency key for dispatches, so before one is repeated the evidence is asked: a report that
        carries its capability, or a run that carries its delivery id in its name. Where runs have no such name, one
        repetition is made blindly, and from then on the runs are counted (``relay.deciding.arrival``). Only tries that
        may have had an effect are counted: a connection that was refused, a token that could not be had, a limit or
        a look that failed started nothing, and these are repeated as long as the schedule goes.

        Where nothing can be seen (no permission to read Actions) or what is seen fits both, a lost dispatch is worse
        than a run too many, but many runs are worse than a dead letter. So after two tries that GitHub failed after it
        had been sent nothing is sent for an hour: reports come in by then, and an outage that was the true cause
        mostly ends. Then it is sent once more and, if that is no clearer, given up with its reason. A process that
        died does not count there: of all it had claimed, hardly anything was just being sent.

        Raises NotYetError to have it wait, MaybeDeliveredError to have it given up, RetryLater where GitHub does not
        answer.
        """
        if sent.reported:
            return True
        try:
            async with asyncio.timeout(self._look_seconds):
                return await self._look(effect, sent)
        except TimeoutError:
            raise RetryLater(
                f"GitHub did not say within {self._look_seconds:g} s which runs there are.",
                ambiguous=False,
                reason="timeout",
            ) from None

    async def _look(self, effect: Claimed, sent: ToSend) -> bool:
        since = sent.created_at - timedelta(minutes=5)
        named = await self._github.find_run(sent.address, sent.delivery_id, since)
        if named is True:
            return True
        tries = await self._store.read(lambda conn: tries_of(conn, effect))
        if tries.failed + tries.died < BLIND_TRIES:
            return False
        said = Arrival.UNKNOWN if named is None else await self._count(sent, tries)
        now = self._now()
        if said is Arrival.UNSETTLED and now < (tries.unsettled_since or now) + UNSETTLED_WAIT * self._scale:
            # Others went out a moment ago, as they do when GitHub is back: that is no reason to wait for an hour.
            raise NotYetError(
                "Others were sent to the backend a moment ago, whose runs do not show yet.",
                reason=UNSETTLED,
                at=now + UNSURE * self._scale * 1.5,
            )
        if said in {Arrival.UNKNOWN, Arrival.UNSETTLED}:
            self._weigh(tries)
        return said is Arrival.ARRIVED

    async def _count(self, sent: ToSend, tries: Tries) -> Arrival:
        first_at, shown_before = tries.first_at, self._now() - UNSURE * self._scale
        begin = first_at - max(CLOCKS * self._scale, _WHOLE_SECONDS)
        try:
            listed = await self._github.find_runs(sent.address, begin)
        except (Forbidden, Invalid):
            return Arrival.UNKNOWN
        # Read after the runs were listed: what was sent meanwhile may be among them.
        repo = str(sent.address.repo)
        since = begin - LATE * self._scale
        siblings = await self._store.read(
            lambda conn: siblings_of(conn, sent.id, repo, since=since, first_at=first_at, shown_before=shown_before)
        )
        return what_runs_say(
            [Started(run.path, run.title) for run in listed],
            delivery_id=sent.delivery_id,
            event_type=sent.event_type,
            workflow=sent.terms.workflow,
            siblings=siblings,
        )

    def _weigh(self, tries: Tries) -> None:
        if tries.failed < BLIND_TRIES:
            return
        said = _UNSAID.format(count=tries.failed)
        if tries.since:
            raise MaybeDeliveredError(
                f"{said}. Look at the backend's runs, and redeliver the webhook if there is none."
            )
        if not tries.waited:
            raise NotYetError(
                f"{said}. It is sent once more, later.",
                reason=MAYBE_DELIVERED,
                at=self._now() + UNSEEN_WAIT * self._scale,
            )
