"""Two pull requests, three commits and three backends: everything that can happen to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from allowlist.model import Entry, Level, RepoName
from relay.deciding.events import MergeGroupEvent, PullRequestEvent
from relay.store.overrides import set_override
from relay.store.redispatch import Refusal as NotTold
from tests.machine.history import TERMS
from tests.machine.told import WAITING, Said, Told
from tests.machine.watched import BACKENDS, BY_NAME, Watched
from tests.relay.planning import pull_request
from tests.work.remembered_github import S1

S2, S3, MAIN = "2" * 40, "3" * 40, "f" * 40
MOST_GROUPS = 4
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
        self.deliveries: list[tuple[Callable[[], object], str]] = []
        self.underway: list[tuple[PullRequestEvent, str]] = []
        self.slow = False
        self.happened = 0
        self.groups: list[MergeGroupEvent] = []
        self.callbacks: list[tuple[int, str, dict[str, Any]]] = []

    # --- Upstream ----------------------------------------------------------------------------------------------------

    def _happens(self, action: str, number: int, **changes: Any) -> None:
        """Something happens at GitHub; its webhook may be kept back for now, and come after newer ones."""
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
        self.happened += 1
        if self.slow:
            self.slow = False
            self.underway.append((event, f"D{self.happened}"))
        else:
            self._arrives(event, f"D{self.happened}")

    def _arrives(self, event: PullRequestEvent, delivery: str) -> None:
        self.deliveries.append((partial(self.relay.deliver, event, delivery), delivery))
        self.relay.deliver(event, delivery)
        told = self.model.event(
            delivery,
            event.action,
            event.number,
            event.head_sha,
            self.clock.now(),
            labelled=bool(event.labels),
            closed=event.closed,
            at=event.updated_at,
        )
        self._told(told, event.head_sha, event.number)

    @rule()
    def next_webhook_is_slow(self) -> None:
        """GitHub promises no order: what happens next is told later."""
        self.slow = True

    @precondition(lambda self: self.underway)
    @rule(which=picks)
    def slow_webhook_arrives(self, which: int) -> None:
        """One that was kept back comes, after whatever came meanwhile."""
        self._arrives(*self.underway.pop(which % len(self.underway)))

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
        again, delivery = self.deliveries[-1 - which % len(self.deliveries)]
        again()
        self.model.redelivered(delivery, self.clock.now())
        self._told([], "", 0)

    @precondition(lambda self: len(self.groups) < MOST_GROUPS)
    @rule(number=numbers, on_top=st.booleans())
    def queues(self, number: int, on_top: bool) -> None:
        """A pull request is added to the merge queue: on the branch, or on the newest group that is there."""
        if (number, self.pulls.get(number, {}).get("sha")) not in self.model.heads or self.pulls[number]["closed"]:
            return
        there = [group for group in self.groups if self.model.groups[group_key(group)].state == "open"]
        base = there[-1].head_sha if on_top and there else MAIN
        sha = f"{len(self.groups) + 10:x}" * 40
        ref = f"refs/heads/gh-readonly-queue/main/pr-{number}-{base}"
        event = MergeGroupEvent("checks_requested", "", sha, ref, "main", base, f"Merge #{number}", "queue")
        self.groups.append(event)
        self.happened += 1
        delivery = f"D{self.happened}"
        self.deliveries.append((partial(self.relay.queue, event, delivery), delivery))
        self.relay.queue(event, delivery)
        self._told(self.model.queued(delivery, number, sha, base, self.clock.now()), sha, number)

    @precondition(lambda self: self.groups)
    @rule(which=picks, reason=st.sampled_from(("merged", "invalidated", "dequeued")))
    def leaves_the_queue(self, which: int, reason: str) -> None:
        """The group is gone, for whatever reason; once more does no harm."""
        group = self.groups[which % len(self.groups)]
        self.happened += 1
        self.relay.queue(replace(group, action="destroyed", reason=reason), f"D{self.happened}")
        self.model.left(*group_key(group), self.clock.now())

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
        level = self.model.in_force(told.backend)
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

    @rule(backend=backends, level=st.sampled_from((Level.L1, Level.L2, Level.L3)))
    def demotes_or_restores(self, backend: str, level: Level) -> None:
        """An admin lowers a level for a time, or that time is over."""
        if backend in self.model.lowered:
            self.relay.restore(backend)
            del self.model.lowered[backend]
        else:
            self.relay.demote(backend, level)
            self.model.lowered[backend] = int(level)

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
        if number in self.pulls and (number, self.pulls[number]["sha"]) in self.model.heads:
            sha = self.pulls[number]["sha"]
            self.model.overridden.add((sha, backend))
            now = self.clock.now()
            repo = RepoName.parse(backend)
            self.relay.write(lambda conn: set_override(conn, sha, repo, number, "ada", "known", now, TERMS))

    @rule(number=numbers, backend=backends)
    def asks_anew(self, number: int, backend: str) -> None:
        """Somebody has a backend told again of the head that a pull request has."""
        if (number, self.pulls.get(number, {}).get("sha")) not in self.model.heads:
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
        self._told([] if refused else [self.model.tell(head, backend, "asked", self.clock.now(), newest)], sha, number)


def group_key(event: MergeGroupEvent) -> tuple[int, str]:
    """The pull request that a group adds, and its commit."""
    return int(event.head_ref.split("/pr-")[1].split("-")[0]), event.head_sha


def _fields(entry: Entry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in Entry.__dataclass_fields__}
