"""One backend, told of one head: what its reports amount to by PROTOCOL's fold, and when its time is over."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta

#: Worst first: of several conclusions the first decides.
CONCLUSIONS = ("failure", "timed_out", "action_required", "cancelled", "skipped", "neutral", "success")
AT_ONCE = CONCLUSIONS[:4]
WAITING = ("queued", "running")


@dataclass(frozen=True)
class Promise:
    """An entry's terms."""

    queue: timedelta
    run: timedelta
    jobs: int | None = None
    versions: tuple[str, ...] = ()
    silence_blocks: bool = False


@dataclass(frozen=True)
class Said:
    """A start, or an end with its conclusion, of one job."""

    run: str
    attempt: int
    job: str
    version: str | None
    ended: str | None
    claim: int | None
    at: datetime


@dataclass(eq=False)
class Told:
    """One backend, told of one head."""

    backend: str
    level: int
    promise: Promise
    at: datetime
    delivery: str
    number: int = 0  # How many were told before it.
    state: str = "planned"  # planned, sent, dead, paused, dropped
    sent_at: datetime | None = None
    held_until: datetime | None = None  # A worker has it, so that nobody else can take it back.
    tried: bool = False  # It may have arrived, whatever we heard.
    said: list[Said] = field(default_factory=list)
    concluded: tuple[str, datetime] | None = None
    most: datetime | None = None  # When what it is told of waits no longer, whatever its entry allows.

    def legs(self) -> dict[tuple[str, str, str | None], str | None]:
        """The newest attempt of each job: the worst that it said, None while it has said no end."""
        legs: dict[tuple[str, str, str | None], str | None] = {}
        newest: dict[tuple[str, str, str | None], int] = {}
        for one in sorted(self.said, key=lambda one: one.attempt):
            key = one.run, one.job, one.version
            before = legs.get(key) if newest.get(key) == one.attempt else None
            ends = [end for end in (before, one.ended) if end is not None]
            legs[key] = min(ends, key=CONCLUSIONS.index, default=None)
            newest[key] = one.attempt
        return legs

    def begins(self) -> list[datetime]:
        """When the newest attempt of each run began, by its first start, else by what was heard first."""
        found = []
        for run in {one.run for one in self.said}:
            newest = max(one.attempt for one in self.said if one.run == run)
            mine = [one for one in self.said if (one.run, one.attempt) == (run, newest)]
            found.append(min(one.at for one in ([one for one in mine if one.ended is None] or mine)))
        return found

    def outcome(self) -> str:
        """What has become of it, as far as is known."""
        legs = self.legs()
        if not legs:
            ours = "undelivered" if self.state == "dropped" else "paused" if self.state == "paused" else "queued"
            return self.concluded[0] if self.concluded else ours
        ends = [end for end in legs.values() if end is not None]
        worst = min(ends, key=CONCLUSIONS.index, default="")
        if worst in AT_ONCE:
            return worst
        if len(ends) == len(legs) and not self.short(legs):
            return worst
        ours, at = self.concluded or ("", self.at)
        if ours not in {"lost", "timed_out", "incomplete"} or any(began > at for began in self.begins()):
            return "running"
        if len(ends) == len(legs):
            return "incomplete"
        return "timed_out" if ours == "timed_out" else "lost"

    def short(self, legs: dict[tuple[str, str, str | None], str | None]) -> bool:
        """Whether legs or versions are missing: the entry's number wins, else each run's largest claim."""
        if set(self.promise.versions) - {version for _, _, version in legs}:
            return True
        if self.promise.jobs is not None:
            return len(legs) < self.promise.jobs
        seen = Counter(run for run, _, _ in legs)
        return any(one.claim is not None and seen[one.run] < one.claim for one in self.said)

    def own_deadline(self) -> datetime:
        """Queue time from GitHub's answer, run time from the start; until it was sent, both from the receipt."""
        if self.said:
            return max(self.begins()) + self.promise.run
        return self.gives_up() if self.sent_at is None else self.sent_at + self.promise.queue

    def gives_up(self) -> datetime:
        """When a gate that waits for it does so no longer."""
        own = self.at + self.promise.queue + self.promise.run
        return own if self.most is None else min(own, self.most)

    def deadline(self) -> datetime | None:
        """When it is concluded, None where nothing is awaited. Further attempts have a run beyond the gate."""
        if self.outcome() not in WAITING or self.state in {"dropped", "paused"}:
            return None
        again = any(one.attempt > 1 for one in self.said)
        return min(self.own_deadline(), self.gives_up() + (self.promise.run if again else timedelta()))

    def conclude(self, now: datetime) -> None:
        """Its time is over."""
        if not self.said:
            ours = "undelivered" if self.sent_at is None else "silent"
        else:
            ours = "lost" if self.own_deadline() <= now else "timed_out"
        self.concluded = ours, now
        self.concluded = self.outcome(), now
