"""What the checks must show, by DESIGN's tables: a second, small answer to hold the relay's against.

It knows nothing of effects, rows or retries. It is told what upstream did, which dispatches went out or were given up,
what backends said and when deadlines were looked at; it says who is told, and what each check shows once all is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

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
    at: datetime | None = None  # GitHub's time of the newest event that speaks of it.
    base: str | None = None  # Of a merge group: what it was built on.
    over: bool = False  # Of a merge group: its time is over.

    def newest(self) -> dict[str, Told]:
        """The dispatch of each backend that decides."""
        return {one.backend: one for one in self.told}


@dataclass
class Model:
    """Pull requests, backends and what is known of each."""

    promises: dict[str, Promise]
    levels: dict[str, int | None]
    heads: dict[tuple[int, str], Head] = field(default_factory=dict)
    groups: dict[tuple[int, str], Head] = field(default_factory=dict)
    patience: timedelta = timedelta(minutes=50)  # How long a merge group waits.
    asking: frozenset[str] = frozenset()  # Who wants to be told of merge groups.
    paused: set[str] = field(default_factory=set)
    lowered: dict[str, int] = field(default_factory=dict)
    overridden: set[tuple[str, str]] = field(default_factory=set)

    def in_force(self, backend: str) -> int | None:
        """The allowlist's level, or the smaller one that an admin gives it for a time."""
        level = self.levels[backend]
        return None if level is None else min(level, self.lowered.get(backend, level))

    def current(self, number: int) -> tuple[str, Head] | None:
        """The head of a pull request that GitHub's newest event speaks of."""
        known = [(head.at, sha, head) for (of, sha), head in self.heads.items() if of == number and head.at is not None]
        return max(known, key=lambda one: one[0])[1:] if known else None

    def event(
        self,
        delivery: str,
        action: str,
        number: int,
        sha: str,
        now: datetime,
        *,
        labelled: bool,
        closed: bool,
        at: datetime | None = None,
    ) -> list[Told]:
        """A webhook of something that happened at ``at``, in whatever order they come; returns who is told of it."""
        at = at or now
        newest = self.current(number)
        late = newest is not None and newest[1].at is not None and at < newest[1].at
        head = self.heads.setdefault((number, sha), Head(state="superseded" if late else "open", labelled=labelled))
        head.at = at if head.at is None else max(at, head.at)
        if not late:
            for (of, other), one in self.heads.items():
                if of == number and other != sha and one.state == "open":
                    one.state = "superseded"
                for told in one.told if of == number and (other != sha or closed) else ():
                    self._drop(told, now)
            head.state, head.labelled = ("closed" if closed else "open"), labelled
        if head.state != "open" or action not in {"opened", "synchronize", "reopened", "labeled"}:
            return []
        told_now = []
        for backend in self.levels:
            level = self.in_force(backend)
            live = any(one.state in {"planned", "sent"} for one in head.told if one.backend == backend)
            if level is None or (action == "labeled" and (level != 3 or not head.labelled)):
                continue
            if live and (late or action in {"synchronize", "labeled"}):
                continue
            told_now.append(self.tell(head, backend, delivery, now))
        return told_now

    @staticmethod
    def _drop(told: Told, now: datetime) -> None:
        """Nobody waits for it any more, and nobody has heard of it."""
        held = told.held_until is not None and told.held_until > now
        if told.state == "paused" or (told.state == "planned" and not held):
            told.state = "dropped"

    def queued(self, delivery: str, number: int, sha: str, base: str, now: datetime) -> list[Told]:
        """The merge queue asks for checks of a group; returns who is told of it."""
        head = Head(at=now, base=base)
        self.groups[number, sha] = head
        asked = [backend for backend in self.levels if backend in self.asking and self.in_force(backend) is not None]
        return [self.tell(head, backend, delivery, now) for backend in asked]

    def left(self, number: int, sha: str, now: datetime) -> None:
        """The group is gone."""
        head = self.groups[number, sha]
        head.state = "closed"
        for told in head.told:
            self._drop(told, now)

    def members(self, sha: str) -> dict[int, tuple[str, Head]]:
        """The pull requests in an open group and in the open ones under it, each by its newest head."""
        open_groups = {of: (number, head) for (number, of), head in self.groups.items() if head.state == "open"}
        found, at = {}, sha
        while at in open_groups:
            number, group = open_groups[at]
            head = self.current(number)
            if head is not None:
                found[number] = head
            at = group.base or ""
        return found

    def group_over(self, head: Head) -> datetime | None:
        """When a merge group waits no longer; None for a pull request's head."""
        return None if head.base is None or head.at is None else head.at + self.patience

    def tell(self, head: Head, backend: str, delivery: str, now: datetime, before: Told | None = None) -> Told:
        """A new dispatch, which decides from now on."""
        # A level that is lowered for a time is owed afterwards, and what was owed once is owed anew.
        level = max([self.levels[backend] or 0] + ([before.level] if before is not None else []))
        told = Told(backend, level, self.promises[backend], now, delivery, len(self.every()))
        told.most = self.group_over(head)
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
        for head in self._all():
            newest = head.newest().get(backend)
            for told in head.told:
                if (told.backend, told.state) == (backend, "paused"):
                    over = told.most is not None and told.most <= now
                    wanted = told is newest and head.state == "open" and not over
                    told.state, told.at = ("planned", now) if wanted else ("dropped", told.at)

    def standing(self, told: Told) -> str:
        """The outcome as checks take it: nobody waits for a paused backend of which nothing was heard."""
        outcome = told.outcome()
        silent = told.state in {"planned", "sent"} and outcome in {"queued", "silent"}
        return "paused" if silent and told.backend in self.paused else outcome

    def every(self) -> list[Told]:
        """All dispatches."""
        return [told for head in self._all() for told in head.told]

    def _all(self) -> list[Head]:
        return [*self.heads.values(), *self.groups.values()]

    def deadlines(self) -> list[datetime]:
        """When something will be concluded that is awaited now."""
        due = [told.deadline() for told in self.every() if told.state not in {"dropped", "paused"}]
        due += [self.group_over(head) for head in self.groups.values() if head.state == "open" and not head.over]
        return sorted(at for at in due if at is not None)

    def swept(self, now: datetime) -> None:
        """Everything that has run out of time is concluded."""
        for head in self.groups.values():
            over = self.group_over(head)
            head.over |= head.state == "open" and over is not None and over <= now
        for told in self.every():
            due = told.deadline()
            if due is not None and due <= now:
                told.conclude(now)

    def level_of(self, told: Told) -> int:
        """The smaller of the level then and now; 0 once the backend is not listed."""
        return min(told.level, self.in_force(told.backend) or 0)

    def effect(self, told: Told, group: Head | None, answered: bool) -> str:
        """What it does to the gate; for a backend that does not gate, what its outcome would."""
        outcome = self.within(told, group)
        effect = EFFECTS.get(outcome, "blocks")
        if self.level_of(told) != 4:
            return effect
        if outcome == "silent" and told.promise.silence_blocks:
            effect = "blocks"
        return "steps_down" if answered and effect != "passes" else effect

    def within(self, told: Told, group: Head | None) -> str:
        """The outcome in a merge group, whose time may be over."""
        outcome = self.standing(told)
        if group is None or not group.over or outcome not in WAITING:
            return outcome
        return "silent" if outcome == "queued" else "timed_out"

    def open_heads(self, sha: str) -> list[Head]:
        """The heads of open pull requests that this commit is, or the open merge group."""
        every = [*self.heads.items(), *self.groups.items()]
        return [head for (_, of), head in every if of == sha and head.state == "open"]

    def answered(self, sha: str, backend: str) -> bool:
        """Whether a person answers for this backend here; in a merge group, on any pull request in it."""
        shas = {sha} | {of for of, head in self.members(sha).values() if head.state == "open"}
        return any((of, backend) in self.overridden for of in shas)

    def own_effects(self, sha: str) -> list[tuple[Told, str]]:
        """What each backend that was told of this commit does to its gate."""
        found = []
        for head in self.open_heads(sha):
            for told in head.newest().values():
                group = head if head.base is not None else None
                found.append((told, self.effect(told, group, self.answered(sha, told.backend))))
        return found

    def effects(self, sha: str) -> list[tuple[Told, str]]:
        """The same, and in a merge group what the others said of the pull requests in it."""
        found = self.own_effects(sha)
        asked = {told.backend for told, _ in found}
        group = next((head for head in self.open_heads(sha) if head.base is not None), None)
        for of, head in self.members(sha).values():
            for told in head.newest().values():
                if told.backend not in asked:
                    found.append((told, self.effect(told, group, (of, told.backend) in self.overridden)))
        return found

    def gate(self, sha: str) -> Shown:
        """The required check of this commit."""
        deciding = [effect for told, effect in self.effects(sha) if self.level_of(told) == 4]
        worst = min(deciding, key=WORST.index, default="not_required")
        if not self.open_heads(sha):
            return None
        return ("in_progress", None) if worst == "pending" else ("completed", GATE[worst])

    def own(self, backend: str, sha: str) -> Shown:
        """The backend's own check of this commit: L4 always, L3 with its label."""
        heads = self.open_heads(sha)
        group = next((head for head in heads if head.base is not None), None)
        labelled = {id(told): head.labelled for head in heads for told in head.told}
        shown = []
        for told, effect in self.own_effects(sha):
            wanted = 3 if labelled[id(told)] else 4
            if told.backend == backend and told.state != "dropped" and self.level_of(told) >= wanted:
                shown.append((told, effect))
        if not shown:
            return None
        told, effect = min(shown, key=lambda one: (WORST.index(one[1]), one[0].number))
        outcome = self.within(told, group)
        if outcome in WAITING:
            return ("queued" if outcome == "queued" else "in_progress"), None
        conclusion = OWN.get(outcome, outcome)
        blocks = self.level_of(told) == 4 and effect == "blocks"
        return "completed", "failure" if blocks and conclusion in {"neutral", "skipped", "success"} else conclusion
