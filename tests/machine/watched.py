"""A relay beside its model: the relay's own turns, and what must hold after every step and once all is done."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from allowlist.model import Entry, Level, OnSilence, RepoName, Timeouts
from relay.github.errors import RetryLater
from relay.store.tables import Check
from relay.texts.words import GATE_NAME
from tests.conftest import Clock
from tests.machine.history import History, Tried
from tests.machine.model import Model, Shown
from tests.machine.surroundings import FATES, AtOnce
from tests.machine.told import WAITING, Promise, Told
from tests.work.remembered_github import Run

HOUR = timedelta(hours=1)
LEASE = timedelta(seconds=61)

#: A plain backend, one that promises two versions, whose silence blocks and that tests
#: merge groups, and one that shows with its label alone.
ENTRIES = {
    entry.repo: entry
    for entry in (
        Entry(RepoName("org", "npu"), Level.L4, device="dev"),
        Entry(
            RepoName("org", "xpu"),
            Level.L4,
            device="dev",
            timeouts=Timeouts(HOUR, 3 * HOUR),
            versions=("1", "2"),
            expected_jobs=2,
            on_silence=OnSilence.BLOCK,
            events=frozenset({"pull_request", "merge_group"}),
        ),
        Entry(RepoName("org", "lab"), Level.L3, device="dev"),
    )
}
BACKENDS = [str(repo) for repo in ENTRIES]
ASKING = frozenset(str(repo) for repo, entry in ENTRIES.items() if "merge_group" in entry.events)
BY_NAME = {str(repo): entry for repo, entry in ENTRIES.items()}


def promise(entry: Entry) -> Promise:
    """An entry's terms as the model has them."""
    blocks = entry.on_silence is OnSilence.BLOCK
    return Promise(entry.timeouts.queue, entry.timeouts.run, entry.expected_jobs, entry.versions, blocks)


#: A check's name, and its commit.
Key = tuple[str, str]


class Watched(RuleBasedStateMachine):
    """Three backends, and a relay that is watched."""

    store: AtOnce

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock(datetime(2026, 11, 30, 12, 0, tzinfo=UTC))
        self.relay = History(self.store, self.clock, BY_NAME)
        levels: dict[str, int | None] = {name: int(entry.level) for name, entry in BY_NAME.items()}
        self.model = Model({name: promise(entry) for name, entry in BY_NAME.items()}, levels, asking=ASKING)
        self.ids: dict[int, Told] = {}
        #: What each check showed at GitHub after the last step, and what it had shown when it ceased to be due.
        self.shown: dict[Key, Shown] = {}
        self.left: dict[Key, Shown] = {}
        #: What each check speaks of, and how often that has changed.
        self.facts: dict[Key, object] = {}
        self.phases: Counter[Key] = Counter()
        self.slips = 0
        self.writes_seen: Counter[int] = Counter()

    def teardown(self) -> None:
        """Nobody does anything any more, and time passes: each check ends within a minute of what is its time."""
        try:
            self._settle()
            while due := self.model.deadlines():
                began = self.clock.advance(max(due[0] - self.clock.now(), timedelta()))
                self.sweeps()
                self._settle()
                assert self.clock.now() - began <= timedelta(minutes=1)
            open_checks = [run.now for run in self.relay.github.runs if run.now.conclusion is None]
            assert [] == open_checks
        finally:
            self.relay.close()

    # --- The relay's own turns ---------------------------------------------------------------------------------------

    @rule(fate=st.sampled_from(FATES))
    def works(self, fate: str) -> None:
        """A turn of the worker."""
        self._tried(self.relay.work(fate))

    def _tried(self, every: list[Tried]) -> None:
        now = self.clock.now()
        for one in every:
            told = self.ids.get(one.dispatch_id)
            if told is None:
                continue  # It only notifies.
            told.tried = True
            told.held_until = now + LEASE if one.result == "held" else None
            if one.result == "sent" and told.state in {"planned", "dead"}:
                told.state, told.sent_at = "sent", told.sent_at or now
            elif one.result == "dead" and told.state == "planned":
                told.state, told.concluded = "dead", ("undelivered", now)
            elif one.result == "dropped" and told.state == "planned":
                told.state = "paused" if told.backend in self.model.paused else "dropped"

    @rule()
    def sweeps(self) -> None:
        """Deadlines are looked at."""
        self.relay.sweep()
        self.model.swept(self.clock.now())

    @rule(minutes=st.sampled_from((1, 31, 61, 121, 185, 241, 361)))
    def waits(self, minutes: int) -> None:
        """Time passes, and nobody looks."""
        self.clock.advance(timedelta(minutes=minutes))

    @rule(when=st.sampled_from(("before create", "after create", "before update", "after update")))
    def github_trips(self, when: str) -> None:
        """One write of a check fails, before or after it took effect."""
        if not self.relay.github.faults:
            self.slips += 1
            self.relay.github.faults.append((when, RetryLater("GitHub answered 502.", ambiguous=True, status=502)))

    # --- What must hold ----------------------------------------------------------------------------------------------

    @rule()
    def drains(self) -> None:
        """Everything that is owed is done, and done once."""
        self._settle()
        before = self.relay.github.writes
        self._settle()
        assert before == self.relay.github.writes

    def _settle(self) -> None:
        for tried in self.relay.drain():
            self._tried(tried)
            self.nothing_is_written_that_is_not_so()
        self._check_drained()

    @invariant()
    def nothing_is_written_that_is_not_so(self) -> None:
        """No success without every owed report, nothing on another commit, nothing said twice, nobody told twice."""
        github, heads = self.relay.github, self._heads()
        for run in github.runs:
            new = run.states[self.writes_seen[run.id] :]
            self.writes_seen[run.id] += len(new)
            for state in new:
                assert state.head_sha in heads
                assert {(state.name, state.head_sha)} == {(one.name, one.head_sha) for one in run.states}
                if state.conclusion == "success":
                    assert ("completed", "success") == self._expected(state.name, state.head_sha), state.title
        assert max(github.taken.values(), default=0) <= 1
        for key in self._keys():
            facts = self._facts(*key)
            self.phases[key] += facts != self.facts.get(key)
            self.facts[key] = facts
            if self._expected(*key) is not None:
                self.left.pop(key, None)
            elif (now := self._at_github(*key)) != self.left.setdefault(key, self.shown.get(key)):
                assert now in self._endings(*key), self._why(*key)
                self.left[key] = now
            self.shown[key] = self._at_github(*key)

    def _check_drained(self) -> None:
        """Each check shows what the model says, the record knows it, and no more was written than happened."""
        for key in self._keys():
            expected, shown = self._expected(*key), self._at_github(*key)
            if expected is not None:
                assert expected == shown, self._why(*key)
            elif shown is not None:
                assert shown in self._endings(*key), self._why(*key)
            # A look at GitHub adds to a text that was written what it showed.
            writes = sum(len(run.states) for run in self._runs(*key))
            assert writes <= self.phases[key] + self.slips + self.relay.looks, self._why(*key)
        for row in self.relay.rows(Check):
            if row.github_id is not None:
                newest = self._runs(row.name, row.head_sha)[-1]
                mine = (newest.id, newest.now.status, newest.now.conclusion, newest.now.title)
                assert mine == (row.github_id, row.status, row.conclusion, row.title)

    def _endings(self, name: str, sha: str) -> set[Shown]:
        """What was completed stays; what was open is cancelled with its head, and neutral without its label."""
        left = self.left.get((name, sha))
        ended: Shown = ("completed", "neutral" if self.model.open_heads(sha) else "cancelled")
        if left is None or left[1] is None:
            return {ended}
        # An answer that was lost on the way leaves in doubt what stands there.
        return {left, ended} if self.slips else {left}

    def _keys(self) -> list[Key]:
        names = (GATE_NAME, *(f"crcr/{backend}" for backend in BACKENDS))
        return [(name, sha) for sha in sorted(self._heads()) for name in names]

    def _heads(self) -> set[str]:
        return {sha for _, sha in (*self.model.heads, *self.model.groups)}

    def _expected(self, name: str, sha: str) -> Shown:
        return self.model.gate(sha) if name == GATE_NAME else self.model.own(name.removeprefix("crcr/"), sha)

    def _runs(self, name: str, sha: str) -> list[Run]:
        return [run for run in self.relay.github.named(name) if run.now.head_sha == sha]

    def _at_github(self, name: str, sha: str) -> Shown:
        runs = self._runs(name, sha)
        return (runs[-1].now.status, runs[-1].now.conclusion) if runs else None

    def _facts(self, name: str, sha: str) -> object:
        """All that a check says: legs count only once nothing more is awaited."""
        facts: list[object] = [self._expected(name, sha)]
        for one, effect in self.model.effects(sha) if name == GATE_NAME else self.model.own_effects(sha):
            if name in {GATE_NAME, f"crcr/{one.backend}"}:
                standing = self.model.standing(one)
                facts += [one.backend, one.delivery, one.at, one.state, standing, effect]
                facts += [self.model.level_of(one), self.model.answered(sha, one.backend)]
                facts += () if standing in WAITING else one.said
        in_force = tuple(self.model.in_force(backend) for backend in BACKENDS)
        return facts, in_force if name == GATE_NAME else ()

    def _why(self, name: str, sha: str) -> str:
        """What a failing history shows beside its steps."""
        written = [(one.status, one.conclusion, one.title) for run in self._runs(name, sha) for one in run.states]
        told = [one for head in self.model.open_heads(sha) for one in head.newest().values()]
        return f"{name} of {sha[0]} should be {self._expected(name, sha)}; written: {written}; told: {told}"
