"""Plays a week, or a piece of it, and has it judged."""

from __future__ import annotations

import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from allowlist.parse import parse
from relay.deciding.arrival import UNSEEN_WAIT
from tests.benchmarks.owed import Owed
from tests.promises import Trouble, Verdict, judge, record_of
from tests.soak.delays import Delays, delays_of
from tests.soak.fleet import BACKENDS, DEADLINE_SECONDS, fleet
from tests.soak.mischief import Mischief
from tests.soak.outage import database_down
from tests.soak.relays import Replica
from tests.soak.stage import RETRY_SCALE, Stage, seconds
from tests.soak.traffic import People, moments
from tests.soak.weather import Blow, Spell, forecast

_SAY_EVERY = 10.0
_SETTLE_SECONDS = 240.0
#: How long what a killed process had begun is left alone. On SQLite nobody else can have it, so its next life knows.
_LEASE, _SQLITE_LEASE = 61.0, 15.0
#: With what has to settle afterwards a week fits into an hour.
WEEK_MINUTES = 48.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is played. ``week_minutes`` is how long the whole week takes, ``minutes`` how much of it is played.

    The play ends early once ``pairs`` were dispatched, where that is not None. ``deadline`` and ``patience`` in
    seconds: how long backends have, and how long the relay may take when nothing is broken. ``quiet``: for how many
    seconds nothing may be owed before all is over.
    """

    minutes: float
    week_minutes: float = WEEK_MINUTES
    pairs: int | None = None
    seed: int = 1
    backends: int = BACKENDS
    deadline: int = DEADLINE_SECONDS
    kills: bool = True
    replicas: int = 1
    trouble_every: float = 20.0
    patience: float = 10.0
    quiet: float = 3.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of a play, and whether the promises held."""

    verdict: Verdict
    seconds: float
    acts: dict[str, int]
    webhooks: int
    webhook_p99_ms: float
    delays: Delays
    faults: dict[str, int]
    faults_met: dict[str, int]
    bad_reports: dict[str, int]
    wrong_answers: dict[str, int]
    refused_webhooks: int
    peak_mb: float
    crashes: int
    left: str
    #: Calls of GitHub's API before the time that it had told to wait for, which it may ban an app for.
    early: int
    #: Calls that GitHub refused for a limit that was reached, by limit; those of the weather are not among them.
    limit_hits: dict[str, int]

    @property
    def ok(self) -> bool:
        """Whether every promise held."""
        kept = not (self.verdict.breaches or self.early)
        return kept and not (self.wrong_answers or self.refused_webhooks or self.crashes or self.left)

    def json(self) -> dict[str, Any]:
        """All figures."""
        return {"ok": self.ok, **asdict(self)}


class Soak:
    """One play."""

    def __init__(self, plan: Plan, folder: Path, database_url: str, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._say = say
        members = fleet(plan.backends, plan.deadline)
        self.stage = Stage(folder, members, plan.seed, plan.deadline / 2)
        self._folder = folder
        self._database_url = database_url
        self._replicas: list[Replica] = []
        self._owed = Owed(database_url)
        self._spells: list[tuple[Spell, float]] = []
        self._spans: list[tuple[float, float]] = []
        self._kills: list[float] = []
        self._blows: Counter[str] = Counter()
        self._met: Counter[str] = Counter()
        self._surgery: threading.Thread | None = None
        self._failed: list[str] = []
        self._began = 0.0
        self._said = self._tidied = 0.0
        self._crashes = 0

    def play(self) -> Outcome:
        """Play it all, wait until nothing is owed any more, and judge."""
        plan, stage = self._plan, self.stage
        with stage.sim:
            stage.set_up()
            self._start()
            mischief = Mischief(stage.backends, plan.seed)
            try:
                people = self._traffic(mischief)
                left = self._settle(mischief)
            finally:
                mischief.close()
                self._owed.close()
                for replica in self._replicas:
                    replica.end(signal.SIGTERM)
            stage.redeliver()
            return self._outcome(people, mischief, left)

    def _start(self) -> None:
        for number in range(self._plan.replicas):
            replica = Replica(self._folder, {}, number)
            replica.settings = self.stage.settings(self._database_url, replica.url)
            replica.start()
            self._replicas.append(replica)
        self._aim()

    def _aim(self) -> None:
        """Send webhooks and callbacks to one that is ready, and to the next one a second later."""
        ready = [replica for replica in self._replicas if replica.standing]
        if ready:
            url = ready[int(time.monotonic()) % len(ready)].url
            self.stage.sim.webhook_url = f"{url}/github/webhook"
            self.stage.sim.callback_url = f"{url}/github/callback"

    def _traffic(self, mischief: Mischief) -> People:
        plan, stage = self._plan, self.stage
        devices = [member.device for member in stage.members if member.device]
        names = [member.name for member in stage.members]
        people = People(stage.up, plan.seed, devices, names)
        lasts = plan.minutes * 60
        due = [at for at in moments(plan.seed, plan.week_minutes * 60) if at < lasts]
        blows = list(forecast(plan.seed, lasts, names, every=plan.trouble_every, kills=plan.kills))
        self._began = time.monotonic()
        done = 0
        while (now := time.monotonic() - self._began) < lasts:
            while done < len(due) and due[done] <= now:
                people.act()
                done += 1
            while blows and blows[0].at <= now and not (self._surgery and self._surgery.is_alive()):
                self._strike(blows.pop(0))
            self._turn(mischief, f"{done} events")
            if plan.pairs is not None and stage.dispatched >= plan.pairs:
                break
            time.sleep(0.01)
        return people

    def _turn(self, mischief: Mischief, what: str) -> None:
        """What is done all the time besides."""
        stage, now = self.stage, time.monotonic()
        self._lift(now)
        if now - self._tidied < 0.5:
            return
        self._tidied = now
        self._aim()
        for member, runs in stage.new_runs():
            mischief.saw(member, runs)
        stage.redeliver()
        stage.count()
        if int(now) % 5 == 0:
            stage.tidy()
        for replica in self._replicas:
            replica.look()
            if replica.standing and replica.crashed():
                self._crashes += 1
                replica.end(signal.SIGKILL)
                replica.start()
        if self._failed:
            raise RuntimeError(self._failed[0])
        if now - self._said >= _SAY_EVERY:
            self._said = now
            self._progress(what)

    def _progress(self, what: str) -> None:
        stage = self.stage
        owed = self._owed.by_kind()
        shown = ", ".join(f"{count} {kind}" for kind, count in sorted(owed.items())) if owed else "nothing to see"
        self._say(
            f"{time.monotonic() - self._began:4.0f} s  {what}, {stage.dispatched} dispatches, "
            f"{stage.accepted} callbacks taken, {stage.running} runs under way, owed: {shown}; "
            f"CPU: relay {self._replicas[0].cpu():.0f} s, simulator {time.process_time():.0f} s; "
            f"{max(one.peak for one in self._replicas):.0f} MB"
        )

    def _strike(self, spell: Spell) -> None:
        self._blows[str(spell.blow)] += 1
        self._say(f"{time.monotonic() - self._began:4.0f} s  {spell.blow}")
        if spell.blow in {Blow.KILL, Blow.DEPLOY}:
            number = self._blows[str(spell.blow)] % len(self._replicas)
            self._surgery = threading.Thread(target=self._restart, args=(self._replicas[number], spell.blow))
            self._surgery.start()
            return
        if spell.blow is Blow.DATABASE_DOWN:
            self._surgery = threading.Thread(target=self._cut_off, args=(spell.seconds,))
            self._surgery.start()
            return
        for fault in spell.faults:
            self.stage.sim.faults.add(fault)
        self._spells.append((spell, time.monotonic() + spell.seconds))
        self._spans.append((seconds(), seconds() + spell.felt))

    def _restart(self, replica: Replica, blow: Blow) -> None:
        began = seconds()
        replica.standing = False
        try:
            replica.end(signal.SIGKILL if blow is Blow.KILL else signal.SIGTERM)
            if blow is Blow.KILL:
                self._kills.append(seconds())
            replica.start()
        except RuntimeError as error:
            self._failed.append(str(error))
        self._was_away(began)

    def _cut_off(self, lasts: float) -> None:
        began = seconds()
        try:
            with database_down(self._database_url):
                time.sleep(lasts)
        except (SQLAlchemyError, sqlite3.Error) as error:
            self._failed.append(f"the database could not be taken away: {error}")
        self._was_away(began)

    def _was_away(self, began: float) -> None:
        # What could not be delivered meanwhile, or not be tried, is tried again within the next retries.
        self._spans.append((began, seconds() + 5 * (seconds() - began)))

    def _lift(self, now: float) -> None:
        for spell, until in list(self._spells):
            if now >= until:
                self._spells.remove((spell, until))
                for fault in spell.faults:
                    self._met[str(fault.kind)] += self.stage.sim.faults.met(fault)
                    self.stage.sim.faults.remove(fault)

    def _settle(self, mischief: Mischief) -> str:
        """Wait until nothing is owed; returns what still is after long enough, or nothing."""
        self._say(f"{time.monotonic() - self._began:4.0f} s  all is sent; waiting for what is owed")
        end = time.monotonic() + _SETTLE_SECONDS + self._plan.deadline
        quiet_since: float | None = None
        while time.monotonic() < end:
            self._turn(mischief, "settling")
            if self._owes():
                quiet_since = None
            elif quiet_since is None:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > self._plan.quiet:
                return ""
            time.sleep(0.25)
        return self._owes() or "it does not come to rest"

    def _owes(self) -> str:
        if self._spells or (self._surgery and self._surgery.is_alive()):
            return "trouble"
        stage = self.stage
        owed = self._owed.by_kind()
        for what, count in (
            ("webhooks", stage.redeliver()),
            ("runs", stage.running),
            ("effects", 1 if owed is None else sum(owed.values())),
            ("open checks", stage.open_checks()),
        ):
            if count != 0:
                return f"{what}: {count}"
        return ""

    def _outcome(self, people: People, mischief: Mischief, left: str) -> Outcome:
        stage = self.stage
        record = record_of(stage.sim)
        lease = _SQLITE_LEASE if self._database_url.startswith("sqlite") else _LEASE
        unseen = UNSEEN_WAIT.total_seconds() * RETRY_SCALE + self._plan.patience
        spans = tuple(self._spans)
        trouble = Trouble(tuple(self._kills), spans, patience=self._plan.patience, lease=lease, unseen=unseen)
        verdict = judge(record, parse(stage.text).entries, trouble)
        answers = sorted(record.answer_seconds)
        return Outcome(
            verdict=verdict,
            seconds=time.monotonic() - self._began,
            acts=dict(people.acts),
            webhooks=len(answers),
            webhook_p99_ms=1000 * answers[int(0.99 * (len(answers) - 1))] if answers else 0.0,
            delays=delays_of(record),
            faults=dict(self._blows),
            faults_met=dict(self._met),
            bad_reports=dict(mischief.sent),
            wrong_answers=dict(mischief.wrong),
            refused_webhooks=stage.refused_webhooks,
            peak_mb=max(replica.peak for replica in self._replicas),
            crashes=self._crashes,
            left=left,
            early=stage.sim.limits.early.total(),
            limit_hits=dict(stage.sim.limits.hits),
        )
