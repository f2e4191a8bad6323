"""What the checks must show, by DESIGN's tables: a second, small answer to hold the relay's against.

It knows nothing of effects, rows or retries. It is told what upstream did, which dispatches went out or were given up,
what backends said and when deadlines were looked at; it says who is told, and what each check shows once all is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from tests.machine.told import WAITING, Promise, Told

#: What an outcome means for the gate. What is not named here blocks.
EFFECTS = {
    "success": "passes",
    **dict.fromkeys(WAITING, "pending"),
    **dict.fromkeys(("silent", "undelivered", "paused", "skipped", "neutral"), "steps_down"),
}
WORST = ("blocks", "pending", "steps_down", "passes", "not_required")
GATE = {"blocks": "failure", "steps_down": "neutral", "passes": "success", "not_required": "success"}
#: How an outcome shows on the backend's own check, where that is not the outcome's own word.
OWN = {"lost": "timed_out", "incomplete": "failure", "silent": "neutral", "undelivered": "neutral", "paused": "neutral"}

#: Status and conclusion of a check, or None where none is due.
Shown = tuple[str, str | None] | None


@dataclass
class Head:
    """One head of one pull request."""

    state: str = "open"  # open, superseded, closed
    labelled: bool = False
    told: list[Told] = field(default_factory=list)

    def newest(self) -> dict[str, Told]:
        """The dispatch of each backend that decides."""
        return {one.backend: one for one in self.told}


@dataclass
class Model:
    """Pull requests, backends and what is known of each."""

    promises: dict[str, Promise]
    levels: dict[str, int | None]
    heads: dict[tuple[int, str], Head] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    overridden: set[tuple[str, str]] = field(default_factory=set)

    def event(
        self, delivery: str, action: str, number: int, sha: str, now: datetime, *, labelled: bool, closed: bool
    ) -> list[Told]:
        """A webhook, in the order in which things happened; returns who is told of it."""
        head = self.heads.setdefault((number, sha), Head())
        for (of, other), one in self.heads.items():
            if of == number and other != sha and one.state == "open":
                one.state = "superseded"
            for told in one.told if of == number and (other != sha or closed) else ():
                held = told.held_until is not None and told.held_until > now
                if told.state == "paused" or (told.state == "planned" and not held):
                    told.state = "dropped"
        head.state, head.labelled = ("closed" if closed else "open"), labelled
        if closed or action not in {"opened", "synchronize", "reopened", "labeled"}:
            return []
        told_now = []
        for backend, level in self.levels.items():
            live = any(one.state in {"planned", "sent"} for one in head.told if one.backend == backend)
            if level is None or (action == "labeled" and level != 3) or (live and action in {"synchronize", "labeled"}):
                continue
            told_now.append(self.tell(head, backend, delivery, now))
        return told_now

    def tell(self, head: Head, backend: str, delivery: str, now: datetime) -> Told:
        """A new dispatch, which decides from now on."""
        told = Told(backend, self.levels[backend] or 0, self.promises[backend], now, delivery, len(self.every()))
        told.state = "paused" if backend in self.paused else "planned"
        head.told.append(told)
        return told

    def redelivered(self, delivery: str, now: datetime) -> None:
        """What had been given up of this webhook is tried again."""
        for told in self.every():
            if (told.delivery, told.state) == (delivery, "dead"):
                told.state, told.at, told.concluded = "planned", now, None

    def pause(self, backend: str) -> None:
        """Nothing new goes there, and what it has not heard of waits."""
        self.paused.add(backend)
        for told in self.every():
            if (told.backend, told.outcome(), told.state) == (backend, "queued", "planned") and not told.tried:
                told.state = "paused"

    def resume(self, backend: str, now: datetime) -> None:
        """What waited is told, if it is the newest of an open head."""
        self.paused.discard(backend)
        for head in self.heads.values():
            newest = head.newest().get(backend)
            for told in head.told:
                if (told.backend, told.state) == (backend, "paused"):
                    wanted = told is newest and head.state == "open"
                    told.state, told.at = ("planned", now) if wanted else ("dropped", told.at)

    def standing(self, told: Told) -> str:
        """The outcome as checks take it: nobody waits for a paused backend of which nothing was heard."""
        outcome = told.outcome()
        silent = told.state in {"planned", "sent"} and outcome in {"queued", "silent"}
        return "paused" if silent and told.backend in self.paused else outcome

    def every(self) -> list[Told]:
        """All dispatches."""
        return [told for head in self.heads.values() for told in head.told]

    def deadlines(self) -> list[datetime]:
        """When something will be concluded that is awaited now."""
        return sorted(
            due for told in self.every() if told.state not in {"dropped", "paused"} and (due := told.deadline())
        )

    def swept(self, now: datetime) -> None:
        """Everything that has run out of time is concluded."""
        for told in self.every():
            due = told.deadline()
            if due is not None and due <= now:
                told.conclude(now)

    def level_of(self, told: Told) -> int:
        """The smaller of the level then and now; 0 once the backend is not listed."""
        return min(told.level, self.levels[told.backend] or 0)

    def effect(self, told: Told, sha: str) -> str:
        """What it does to the gate; for a backend that does not gate, what its outcome would."""
        outcome = self.standing(told)
        effect = EFFECTS.get(outcome, "blocks")
        if self.level_of(told) != 4:
            return effect
        if outcome == "silent" and told.promise.silence_blocks:
            effect = "blocks"
        return "steps_down" if (sha, told.backend) in self.overridden and effect != "passes" else effect

    def open_heads(self, sha: str) -> list[Head]:
        """The heads of open pull requests that this commit is."""
        return [head for (_, of), head in self.heads.items() if of == sha and head.state == "open"]

    def gate(self, sha: str) -> Shown:
        """The required check of this commit."""
        heads = self.open_heads(sha)
        deciding = [told for head in heads for told in head.newest().values() if self.level_of(told) == 4]
        worst = min((self.effect(told, sha) for told in deciding), key=WORST.index, default="not_required")
        if not heads:
            return None
        return ("in_progress", None) if worst == "pending" else ("completed", GATE[worst])

    def own(self, backend: str, sha: str) -> Shown:
        """The backend's own check of this commit: L4 always, L3 with its label."""
        shown = []
        for head in self.open_heads(sha):
            told = head.newest().get(backend)
            wanted = 3 if head.labelled else 4
            if told is not None and told.state != "dropped" and self.level_of(told) >= wanted:
                shown.append(told)
        if not shown:
            return None
        told = min(shown, key=lambda one: (WORST.index(self.effect(one, sha)), one.number))
        outcome = self.standing(told)
        if outcome in WAITING:
            return ("queued" if outcome == "queued" else "in_progress"), None
        conclusion = OWN.get(outcome, outcome)
        blocks = self.level_of(told) == 4 and self.effect(told, sha) == "blocks"
        return "completed", "failure" if blocks and conclusion in {"neutral", "skipped", "success"} else conclusion
