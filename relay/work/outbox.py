"""The worker: claims effects that are due, has them performed, and notes how each ended.

It decides nothing about what an effect means. A performer turns a claimed effect into work that returns what is to be
noted with it in the same transaction; an error is classified into one of four ways on (again, later, rest the account,
give up), and whatever else is raised counts as our own fault: logged with its traceback and tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import structlog
from sqlalchemy import Connection

from relay.clock import Now
from relay.deciding.circuits import Pace
from relay.deciding.effects import Kind
from relay.store import outbox
from relay.store.circuits import Turned
from relay.store.engine import Store, StoreDownError
from relay.store.outbox import Claimed, Claims, Ended
from relay.traffic import Traffic
from relay.work.hud_places import HudPlaces
from relay.work.schedule import counted, next_try
from relay.work.turned import tell_log
from relay.work.verdicts import (
    Again,
    GiveUp,
    Job,
    Later,
    Note,
    NoWitness,
    Observer,
    Performer,
    Rest,
    Verdict,
    Witness,
    write_notes,
)

__all__ = ["JOB_SECONDS", "STORE_REST", "Again", "GiveUp", "Job", "Later", "Note", "Rest", "Verdict", "Worker"]

log = structlog.get_logger(__name__)

#: GitHub allows 100 requests in flight for one app.
#: https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api#about-secondary-rate-limits
IN_FLIGHT = 100
#: The floor under every wake-up: a lost one costs at most this many seconds.
POLL_SECONDS = 0.5
#: Claims and notes are this far apart at least: the first of a burst goes out at once, what follows is taken together.
GATHER_SECONDS = 0.01
#: While more is due than may be in flight, a claim waits this long for a quarter of the places to become free.
ROOM_SECONDS = 0.05
#: So many effects are begun before requests that came meanwhile get their turn, and so long these are waited for.
BEGUN_AT_ONCE = 4
DEFER_SECONDS = 0.02
#: A turn that has taken so long begins the rest of what it claimed at once, for their leases have begun already.
BEGIN_SECONDS = 2.0
#: The longest one try may take. It must end before its lease does, or the effect is performed a second time beside it.
JOB_SECONDS = 50.0
#: How long an effect is left alone that met a database which did not answer.
STORE_REST = timedelta(seconds=5)
#: How long the worker waits before it notes again what the database did not take, and how often while it stops.
KEEP_SECONDS = 1.0
LAST_TRIES = 3
#: How often a worker looks through all lanes for what waits for its turn and has nothing before it any more.
FREE_SECONDS = 30.0
#: How long a stopping worker waits for what it has begun.
DRAIN_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class _Finished:
    end: Ended
    note: Note | None


class Worker:
    """Drains the outbox. Several may run on one database; each claims for itself."""

    def __init__(
        self,
        store: Store,
        performer: Performer,
        *,
        now: Now,
        random: Callable[[], float],
        name: str,
        observer: Observer,
        retry_scale: float = 1.0,
        in_flight: int = IN_FLIGHT,
        poll_seconds: float = POLL_SECONDS,
        job_seconds: float = JOB_SECONDS,
        traffic: Traffic | None = None,
        witness: Witness | None = None,
        begin_seconds: float = BEGIN_SECONDS,
    ) -> None:
        self._store = store
        self._performer = performer
        self._now = now
        self._random = random
        self.name = name
        self._observer = observer
        self._retry_scale = retry_scale
        self._most = in_flight
        self._poll = poll_seconds
        self._job_seconds = job_seconds
        self._begin_seconds = begin_seconds
        self._traffic = traffic or Traffic()
        self._witness = witness or NoWitness()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work = asyncio.Event()
        self._ended = asyncio.Event()
        self._finished: list[_Finished] = []
        self._noting, self._kept = 0, False
        self._hud_places = HudPlaces()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = self._drained = False
        self._last_tries = LAST_TRIES
        self._freed, self._free_after = time.perf_counter(), ""
        self.last_turn: datetime | None = None

    def wake(self) -> None:
        """There is something to do. May be called from any thread, and before the worker runs."""
        loop = self._loop
        if loop is None:
            return
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is loop:
            self._work.set()
        else:
            # A loop that closes just now has nothing left to wake.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._work.set)

    async def run(self) -> None:
        """Work until ``stop`` is called, then finish what has begun."""
        self._loop = asyncio.get_running_loop()
        noting = asyncio.create_task(self._note_endings())
        try:
            while not self._stopping:
                try:
                    await self._turn()
                except StoreDownError as error:
                    log.warning("store_unreachable", error=str(error))
                    await self._pause(1.0)
                except Exception:  # A turn that fails must not end the worker: the next may work.
                    log.exception("worker_turn_failed")
                    await self._pause(1.0)
        finally:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=DRAIN_SECONDS)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._drained = True
            self._ended.set()
            await noting

    @property
    def stopping(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stopping

    def stop(self) -> None:
        """Claim nothing more; ``run`` returns once what has begun is noted."""
        self._stopping = True
        self.wake()

    async def _turn(self) -> None:
        began = time.perf_counter()
        self._work.clear()
        # What has ended and is not noted counts as well: a crash would repeat it, so it must not become ever more.
        # And where the database was away for longer than a lease, a claim would bring back what has been done.
        free = 0 if self._kept else self._most - len(self._tasks) - len(self._finished) - self._noting
        claimed = Claims()
        if free > 0:
            claim = partial(outbox.claim, owner=self.name, count=free, pace=self._pace())
            after = self._free_after if began - self._freed >= FREE_SECONDS else None
            claimed = await self._store.write(lambda conn: claim(conn, now=self._now(), free_after=after))
            if after is not None:
                self._free_after = claimed.freed
                self._freed = self._freed if claimed.freed else began
            self.last_turn = self._now()
            self._hud_places.claimed((effect.kind for effect in claimed), full=claimed.hud_is_full)
            for number, (effect, job) in enumerate(begun := await self._begin(claimed), start=1):
                if self._stopping:
                    self._give_back([left for left, _ in begun[number - 1 :]])
                    break
                task = asyncio.create_task(self._perform(effect, job))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                if number % BEGUN_AT_ONCE == 0 and time.perf_counter() - began < self._begin_seconds:
                    await self._traffic.give_way(DEFER_SECONDS)
        if not claimed or len(claimed) < free:
            if not claimed.more:
                await self._pause(self._poll)
            await asyncio.sleep(GATHER_SECONDS - (time.perf_counter() - began))
        else:
            await self._room()

    def _give_back(self, effects: Sequence[Claimed]) -> None:
        """None of these was begun, so another worker need not wait for our lease on them to end."""
        for effect in effects:
            end = Ended(effect, "limited", 0.0, "stopped", "The process that had it was told to stop.", due=self._now())
            self._finished.append(_Finished(end, self._performer.put_back(effect)))
        self._ended.set()

    async def _room(self) -> None:
        """All places are taken, and more may be due. A claim is a transaction, whether it takes one effect or many."""
        end = time.perf_counter() + ROOM_SECONDS
        while len(self._tasks) > self._most * 3 // 4 and (left := end - time.perf_counter()) > 0:
            self._work.clear()
            await self._pause(left)

    async def _begin(self, claimed: Sequence[Claimed]) -> list[tuple[Claimed, Job]]:
        if not claimed:
            return []
        try:
            return await self._performer.begin(claimed)
        except Exception as error:  # noqa: BLE001  # What is claimed is ours: it must end on the row, not with a lease.
            failure = error
        if len(claimed) == 1 or isinstance(failure, StoreDownError):

            async def fail() -> Note | None:
                raise failure

            return [(effect, fail) for effect in claimed]
        # One that cannot be read must not count as a failure of all that were claimed with it.
        return [begun for effect in claimed for begun in await self._begin([effect])]

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._work.wait()

    async def _perform(self, effect: Claimed, job: Job) -> None:
        end, note = await self._try(effect, job)
        age = (self._now() - effect.created_at).total_seconds()
        self._observer.attempt(effect.kind, end.outcome, end.seconds, age)
        if end.outcome != "done":
            log.warning(
                "effect_not_done",
                effect=effect.id,
                kind=effect.kind,
                subject=effect.subject,
                outcome=end.outcome,
                reason=end.reason,
                detail=end.detail,
                due=end.due,
            )
        self._finished.append(_Finished(end, note))
        self._ended.set()

    async def _try(self, effect: Claimed, job: Job) -> tuple[Ended, Note | None]:
        if effect.stopped is not None:
            return self._judged(effect, GiveUp(effect.stopped.reason, effect.stopped.detail), 0.0)
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._job_seconds):
                note = await job()
            return Ended(effect, "done", time.perf_counter() - began, answered=self._answered(effect)), note
        except StoreDownError as error:
            due = self._now() + STORE_REST
            seconds = time.perf_counter() - began
            return Ended(effect, "limited", seconds, "store_unreachable", str(error), due=due), None
        except TimeoutError:
            detail = f"It was not done within {self._job_seconds:g} s."
            late = Again("too_slow", detail, down=True, unsure=self._witness.sent())
            return self._judged(effect, late, time.perf_counter() - began)
        except Exception as error:  # Every failure must end on the row, or the effect would be lost.
            verdict = self._performer.judge(error)
            if verdict is None:
                log.exception("effect_failed_unexpectedly", effect=effect.id, kind=effect.kind, subject=effect.subject)
                # Pages show this, and the error's own words may repeat what is nobody's business; they are in the log.
                verdict = Again("internal_error", f"A fault of the relay's own: {type(error).__name__}.")
            return self._judged(effect, verdict, time.perf_counter() - began)

    def _answered(self, effect: Claimed) -> bool:
        return effect.kind is Kind.FORWARD_HUD or self._witness.reached()

    def _pace(self) -> Pace:
        return Pace(self._retry_scale, self._random())

    def _judged(self, effect: Claimed, verdict: Verdict, seconds: float) -> tuple[Ended, Note | None]:
        said = partial(Ended, effect, seconds=seconds, reason=verdict.reason, detail=verdict.detail)
        if isinstance(verdict, Rest):
            until = verdict.until
            end = said("limited", due=until, resting=until, named=verdict.named, not_before=until)
            return end, self._performer.put_back(effect)
        if isinstance(verdict, Later):
            return said("limited", due=verdict.at, not_before=verdict.at), self._performer.put_back(effect)
        if isinstance(verdict, Again):
            due = self._next_try(effect, verdict)
            answered = not verdict.down and self._answered(effect)
            said = partial(said, down=verdict.down, answered=answered, unsure=verdict.unsure)
            if due is not None:
                end = said("retry", due=due, not_before=verdict.at)
                return end, self._performer.put_back(effect)
            detail = f"Given up after {effect.failures + 1} tries: {verdict.detail}"
            return said("dead", detail=detail), self._performer.gave_up(effect, verdict.reason, detail)
        end = said("dead", refused=verdict.refused)
        return end, self._performer.gave_up(effect, verdict.reason, verdict.detail)

    def _next_try(self, effect: Claimed, verdict: Again) -> datetime | None:
        now, scale = self._now(), self._retry_scale
        failures = counted(effect.failures + 1, now - effect.created_at, scale=scale)
        due = next_try(failures, now, self._random, scale=scale)
        return due if due is None or verdict.at is None else max(due, verdict.at)

    async def _note_endings(self) -> None:
        """Write endings down, as many as have come together in each transaction."""
        while True:
            await self._ended.wait()
            self._ended.clear()
            batch, self._finished = self._finished, []
            if batch:
                self._noting = len(batch)
                await self._note(batch)
                self._noting = 0
                if self._hud_places.noted(finished.end.effect.kind for finished in batch):
                    self._work.set()  # A lane may have become free.
            if self._drained:
                if not self._finished:
                    return
            else:
                await asyncio.sleep(GATHER_SECONDS)

    async def _note(self, batch: Sequence[_Finished]) -> None:
        notes = {finished.end.of_try: finished.note for finished in batch}
        ends = [finished.end for finished in batch]
        pace, sparing = self._pace(), self._witness.take_sparing()

        def unit(conn: Connection) -> tuple[Turned, ...]:
            now = self._now()
            held = outbox.finish(conn, ends, owner=self.name, now=now)
            write_notes(conn, [note for end in held if (note := notes[end.of_try]) is not None], now)
            return outbox.conclude(conn, held, now, pace=pace, sparing=sparing)

        try:
            noted = await self._store.write(unit)
            self._kept = False
            for turned in noted:
                tell_log(turned)
        except StoreDownError as error:
            log.error("endings_not_noted", effects=len(batch), error=str(error))
            await self._keep(batch)
        except Exception as error:  # One note that cannot be written must not take the others with it.
            self._kept = False  # The database answers, and what it does not take must not hold up all else.
            if len(batch) == 1:
                effect = batch[0].end.effect
                log.exception("ending_not_noted", effect=effect.id, kind=effect.kind, subject=effect.subject)
                await self._note_without(batch[0])
                return
            log.warning("endings_noted_one_by_one", effects=len(batch), error=str(error))
            for finished in batch:
                await self._note([finished])

    async def _keep(self, batch: Sequence[_Finished]) -> None:
        """Endings that could not be noted are noted once the database is back, or everything done would be repeated.

        One whose lease was taken over meanwhile is dropped by its fencing number. A worker that stops tries a few
        times more; what is left then is performed again, by whoever takes the lease over: at least once, never less.
        """
        if self._drained:
            self._last_tries -= 1
            if self._last_tries < 0:
                return
        self._finished, self._kept = [*batch, *self._finished], True
        await asyncio.sleep(KEEP_SECONDS)
        self._ended.set()

    async def _note_without(self, finished: _Finished) -> None:
        """What was to be noted with this ending cannot be written, so the ending is written without it.

        Its lease alone would repeat it for ever. What was done counts as a failure of ours, and is tried again by the
        schedule, which ends.
        """
        if finished.note is None:
            return
        end, note = finished.end, None
        if end.outcome == "done":
            end, note = self._judged(end.effect, Again("internal_error", "its outcome could not be noted"), end.seconds)
        await self._note([_Finished(end, note)])
