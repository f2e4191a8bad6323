"""Two pull requests, three commits and three backends: everything that can happen to them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from allowlist.model import Entry, Level, RepoName
from relay.events import PullRequestEvent
from relay.store.overrides import set_override
from relay.store.redispatch import Refusal as NotTold
from tests.machine.history import TERMS
from tests.machine.told import WAITING, Said, Told
from tests.machine.watched import BACKENDS, BY_NAME, Watched
from tests.relay.planning import pull_request
from tests.work.remembered_github import S1

S2, S3 = "2" * 40, "3" * 40
LABEL = "ciflow/crcr/dev"

CONCLUSIONS = ("success", "failure", "cancelled", "timed_out", "action_required", "skipped", "neutral")

backends = st.sampled_from(BACKENDS)
numbers = st.sampled_from((7, 8))
picks = st.integers(0, 5)


class Histories(Watched):
    """Two pull requests over three commits, three backends, and a relay that is told of everything."""

    def __init__(self) -> None:
        super().__init__()
        self.pulls: dict[int, dict[str, Any]] = {}
        self.deliveries: list[tuple[PullRequestEvent, str]] = []
        self.callbacks: list[tuple[int, str, dict[str, Any]]] = []

    # --- Upstream ----------------------------------------------------------------------------------------------------

    def _happens(self, action: str, number: int, **changes: Any) -> None:
        self.clock.advance(timedelta(seconds=1))
        pull = self.pulls[number]
        before, label = pull["sha"], LABEL if action in {"labeled", "unlabeled"} else None
        pull.update(changes)
        event = pull_request(
            action,
            pull["sha"],
            number=number,
            labels=(LABEL,) if pull["labelled"] else (),
            label=label,
            closed=pull["closed"],
            before=before if action == "synchronize" else None,
            updated_at=self.clock.now(),
        )
        delivery = f"D{len(self.deliveries)}"
        self.deliveries.append((event, delivery))
        self.relay.deliver(event, delivery)
        told = self.model.event(
            delivery, action, number, pull["sha"], self.clock.now(), labelled=pull["labelled"], closed=pull["closed"]
        )
        self._told(told, pull["sha"], number)

    def _told(self, told: list[Told], sha: str, number: int) -> None:
        """At most one live test for each head and backend, and those that the model says."""
        made = self.relay.tests(max(self.ids, default=0))
        assert sorted((one.backend, sha, number) for one in told) == sorted(row[1:] for row in made)
        by_backend = {one.backend: one for one in told}
        self.ids.update({dispatch_id: by_backend[backend] for dispatch_id, backend, _, _ in made})

    @initialize()
    def begins(self) -> None:
        """There is a pull request in every history."""
        self.opens(7, S1)

    @precondition(lambda self: 8 not in self.pulls)
    @rule(number=st.just(8), sha=st.sampled_from((S1, S2)))
    def opens(self, number: int, sha: str) -> None:
        """A second one, perhaps of a commit that the first has or will have."""
        self.pulls[number] = {"sha": sha, "labelled": False, "closed": False}
        self._happens("opened", number)

    @rule(number=numbers, sha=st.sampled_from((S1, S2, S3)))
    def pushes(self, number: int, sha: str) -> None:
        """Another head, which may have been one before."""
        pull = self.pulls.get(number)
        if pull is not None and not pull["closed"] and sha != pull["sha"]:
            self._happens("synchronize", number, sha=sha)

    @rule(number=numbers)
    def labels(self, number: int) -> None:
        """The label is put on or taken off; on a closed pull request, too."""
        if number in self.pulls:
            on = not self.pulls[number]["labelled"]
            self._happens("labeled" if on else "unlabeled", number, labelled=on)

    @rule(number=numbers)
    def closes_or_reopens(self, number: int) -> None:
        """Closed, or opened again with the head that it had."""
        if number in self.pulls:
            closed = not self.pulls[number]["closed"]
            self._happens("closed" if closed else "reopened", number, closed=closed)

    @rule(which=picks)
    def redelivers(self, which: int) -> None:
        """Somebody presses "Redeliver"."""
        event, delivery = self.deliveries[-1 - which % len(self.deliveries)]
        self.relay.deliver(event, delivery)
        self.model.redelivered(delivery, self.clock.now())
        self._told([], "", 0)

    # --- Backends ----------------------------------------------------------------------------------------------------

    @rule(
        which=picks,
        job=st.sampled_from(("build", "test")),
        ended=st.sampled_from((None, "success", *CONCLUSIONS)),
        attempt=st.sampled_from((1, 1, 1, 2)),
        run=st.sampled_from(("100", "100", "200")),
        version=st.sampled_from(("1", "2")),
        claim=st.sampled_from((None, None, 1, 2)),
    )
    def reports(
        self, which: int, job: str, ended: str | None, attempt: int, run: str, version: str, claim: int | None
    ) -> None:
        """A run that GitHub started says something, however long ago that was."""
        started = [dispatch_id for dispatch_id in self.ids if self.relay.github.taken[dispatch_id]]
        if started:
            dispatch_id = started[-1 - which % len(started)]
            told = self.ids[dispatch_id]
            mine = version if told.promise.versions else None
            said = Said(run, attempt, job, mine, ended, claim, self.clock.now())
            workflow: dict[str, Any] = {
                "status": "in_progress" if ended is None else "completed",
                "conclusion": ended,
                "run_id": run,
                "run_attempt": attempt,
                "job_name": job,
                "expected_jobs": claim,
                "combination": None if mine is None else {"backend_version": mine},
            }
            self._say(dispatch_id, told, workflow, said)

    def _say(self, dispatch_id: int, told: Told, workflow: dict[str, Any], said: Said) -> None:
        level = self.model.levels[told.backend]
        if level is None:
            return  # The edge refuses it.
        kept = self.relay.report(dispatch_id, told.backend, workflow)
        if hasattr(kept, "code"):
            assert ("below_l2", 1, 1) == (kept.code, level, told.level)
        elif not kept.replayed:
            told.said.append(said)
            self.callbacks.append((dispatch_id, told.backend, workflow))

    @precondition(lambda self: self.callbacks)
    @rule(which=picks)
    def repeats(self, which: int) -> None:
        """The answer was lost on the way, and the client sends again."""
        dispatch_id, backend, workflow = self.callbacks[-1 - which % len(self.callbacks)]
        if self.model.levels[backend] is not None:
            kept = self.relay.report(dispatch_id, backend, workflow)
            assert hasattr(kept, "code") or kept.replayed

    # --- People ------------------------------------------------------------------------------------------------------

    @rule(backend=backends, level=st.sampled_from((None, *Level)))
    def relists(self, backend: str, level: Level | None) -> None:
        """Up, down, out or in again."""
        entry = None if level is None else Entry(**{**_fields(BY_NAME[backend]), "level": level})
        self.model.levels[backend] = None if level is None else int(level)
        self.relay.relist(backend, entry)

    @rule(backend=backends)
    def pauses_or_resumes(self, backend: str) -> None:
        """An admin lets nothing new go there, or lets it go again."""
        if backend in self.model.paused:
            self.relay.resume(backend)
            self.model.resume(backend, self.clock.now())
        else:
            self.relay.pause(backend)
            self.model.pause(backend)

    @rule(number=numbers, backend=backends)
    def overrides(self, number: int, backend: str) -> None:
        """A person answers for a backend on the head that a pull request has."""
        if number in self.pulls:
            sha = self.pulls[number]["sha"]
            self.model.overridden.add((sha, backend))
            now = self.clock.now()
            repo = RepoName.parse(backend)
            self.relay.write(lambda conn: set_override(conn, sha, repo, number, "ada", "known", now, TERMS))

    @rule(number=numbers, backend=backends)
    def asks_anew(self, number: int, backend: str) -> None:
        """Somebody has a backend told again of the head that a pull request has."""
        if number not in self.pulls:
            return
        sha = self.pulls[number]["sha"]
        head = self.model.heads[number, sha]
        newest = head.newest().get(backend)
        awaited = newest is not None and (
            newest.state == "planned" or (newest.state == "sent" and newest.outcome() in WAITING)
        )
        refused = head.state != "open" or self.model.levels[backend] is None or backend in self.model.paused or awaited
        made = self.relay.tell_anew(number, sha, backend, "asked")
        assert refused == isinstance(made, NotTold)
        self._told([] if refused else [self.model.tell(head, backend, "asked", self.clock.now())], sha, number)


def _fields(entry: Entry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in Entry.__dataclass_fields__}
