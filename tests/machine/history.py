"""The real rooms without their edges: intake, reports, sweep and the worker's effects, one step at a time.

GitHub is a fake that remembers; the clock moves when told. What a step of the worker came to is returned, since the
reference model knows nothing of retries and leases.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Connection, and_, func, insert, or_, select, text, update

from allowlist.model import Allowlist, Entry, Level, RepoName
from relay.capability import CapabilityKeys
from relay.deciding.effects import Kind
from relay.deciding.events import MergeGroupEvent, PullRequestEvent
from relay.deciding.facts import Place
from relay.edge.oidc import CallerKind, VerifiedCaller
from relay.github.errors import GitHubError
from relay.perform import GitHubPerformer, Sites
from relay.results.binding import Refusal
from relay.results.report import read_report
from relay.settings import GITHUB_ISSUER
from relay.store import outbox
from relay.store.admin import Demotion, Pause, demote, demotions, pause, restore, resume
from relay.store.checks import CheckTerms, touch_backends
from relay.store.deadlines import ask_first, sweep_deadlines
from relay.store.intake import Received, Recorded, record
from relay.store.outbox import Claimed, Ended
from relay.store.queue import end_groups, record_group
from relay.store.redispatch import Asking, redispatch
from relay.store.redispatch import Refusal as NotTold
from relay.store.reports import Accepted, Callback, KeepTerms, accept
from relay.store.tables import Backend, Change, Dispatch, Effect, metadata
from relay.work.allowlist import lowered
from relay.work.arrivals import Arrivals
from relay.work.cancel import RunCanceller
from relay.work.changed_files import ChangedFiles
from relay.work.commands import CommandRunner
from relay.work.comments import CommentReconciler
from relay.work.observe import Observer
from relay.work.outbox import Again, Note, Rest, Verdict
from relay.work.reconcile import Reconciler
from relay.work.rerun import Rerunner
from relay.work.schedule import next_try
from tests.conftest import Clock
from tests.machine.surroundings import AtOnce, GitHubOfHistories
from tests.work.remembered_github import UPSTREAM

INTERVAL = timedelta(seconds=3)
TERMS = CheckTerms(UPSTREAM, "ciflow/crcr/", INTERVAL)
#: What is due within this time counts as still to be done.
SOON = timedelta(minutes=2)

_backend: Any = Backend.__table__  # type: ignore[attr-defined]
_change: Any = Change.__table__  # type: ignore[attr-defined]
_dispatch: Any = Dispatch.__table__  # type: ignore[attr-defined]
_effect: Any = Effect.__table__  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Tried:
    """What one try of one dispatch came to: sent, dead, dropped, again, held."""

    dispatch_id: int
    result: str


class History:
    """One relay on an empty record."""

    def __init__(self, store: AtOnce, clock: Clock, entries: dict[str, Entry]) -> None:
        self.store = store
        self.clock = clock
        self.entries = dict(entries)
        self.github = GitHubOfHistories(clock)
        self.looks = 0
        self._loop = asyncio.new_event_loop()
        place = Place("https://relay.test", TERMS.label_prefix)
        self._observer = Observer(store=store, github=self.github, terms=TERMS)
        store.write_now(lambda conn: _begin(conn, tuple(entries)))
        self._performer = GitHubPerformer(
            store=store,
            github=self.github,
            hud=None,
            upstream=UPSTREAM,
            keys=CapabilityKeys.of(["a key of sixteen or more characters"]),
            sites=Sites("https://relay.test"),
            terms=TERMS,
            reconciler=Reconciler(
                store=store,
                github=self.github,
                terms=TERMS,
                place=place,
                now=clock.now,
                listed=lambda: self.allowlist,
            ),
            changed_files=ChangedFiles(self.github, clock.now),
            comments=CommentReconciler(store=store, github=self.github, terms=TERMS, now=clock.now),
            observer=self._observer,
            commands=CommandRunner(
                store=store,
                github=self.github,
                terms=TERMS,
                place=place,
                listed=lambda: self.allowlist,
                fresh_id=_fresh_id,
            ),
            rerunner=Rerunner(
                store=store, github=self.github, terms=TERMS, listed=lambda: self.allowlist, fresh_id=_fresh_id
            ),
            canceller=RunCanceller(store=store, github=self.github),
            arrivals=Arrivals(store=store, github=self.github, now=clock.now),
            now=clock.now,
        )

    @property
    def allowlist(self) -> Allowlist:
        """What is in force."""
        demoted = self.store.read_now(demotions)
        return lowered(Allowlist(tuple(self.entries.values())), demoted, self.clock.now())

    def close(self) -> None:
        """End it."""
        self._loop.close()

    # --- What comes in -----------------------------------------------------------------------------------------------

    def deliver(self, event: PullRequestEvent, delivery_id: str) -> Recorded:
        """A webhook."""
        received = Received(delivery_id, "pull_request", json.dumps({"action": event.action}))
        return self.store.write_now(
            lambda conn: record(
                conn,
                event,
                received,
                allowlist=self.allowlist,
                terms=TERMS,
                now=self.clock.now(),
                fresh_id=_fresh_id,
            )
        )

    def queue(self, event: MergeGroupEvent, delivery_id: str) -> Recorded:
        """A webhook of the merge queue."""
        received = Received(delivery_id, "merge_group", json.dumps({"action": event.action}))
        return self.store.write_now(
            lambda conn: record_group(
                conn, event, received, allowlist=self.allowlist, terms=TERMS, now=self.clock.now()
            )
        )

    def report(self, dispatch_id: int, backend: str, workflow: dict[str, Any]) -> Accepted | Refusal:
        """A callback of a run of this backend."""
        body = {"event_type": "pull_request", "delivery_id": "-", "payload": {}, "relay": {"token": "-"}}
        report = read_report({**body, "workflow": {"schema_version": "1", "name": "ci", **workflow}})
        entry = self.allowlist.by_repo[RepoName.parse(backend)]
        caller = VerifiedCaller(
            kind=CallerKind.GITHUB,
            repo=entry.repo,
            issuer=GITHUB_ISSUER,
            repository_id=1,
            owner_id=2,
            event_name="repository_dispatch",
        )
        said = Callback(caller, report, entry, dispatch_id)
        terms = KeepTerms(TERMS, hud=False)
        return self.store.write_now(lambda conn: accept(conn, said, terms, self.clock.now()))

    def relist(self, backend: str, entry: Entry | None) -> None:
        """Another entry for this backend, or none."""
        if entry is None:
            self.entries.pop(backend, None)
        else:
            self.entries[backend] = entry
        self.store.write_now(lambda conn: touch_backends(conn, [RepoName.parse(backend)], TERMS, self.clock.now()))

    def pause(self, backend: str) -> None:
        """An admin lets nothing new go there."""
        now = self.clock.now()
        wanted = Pause(RepoName.parse(backend), now + timedelta(days=900), "a new rack")
        self.store.write_now(lambda conn: pause(conn, wanted, "eve", TERMS, now))

    def resume(self, backend: str) -> None:
        """It goes on."""
        repo, now = RepoName.parse(backend), self.clock.now()
        self.store.write_now(lambda conn: resume(conn, repo, "eve", "the rack is there", TERMS, now))

    def demote(self, backend: str, to: Level) -> None:
        """An admin lowers its level, and each process looks once more when it has taken that up."""
        now = self.clock.now()
        wanted = Demotion(RepoName.parse(backend), to, now + timedelta(days=900), "flaky")
        self.store.write_now(lambda conn: demote(conn, wanted, "eve", TERMS, now))
        self.store.write_now(lambda conn: touch_backends(conn, [wanted.repo], TERMS, now))

    def restore(self, backend: str) -> None:
        """The allowlist's level holds again."""
        repo, now = RepoName.parse(backend), self.clock.now()
        self.store.write_now(lambda conn: restore(conn, repo, "eve", "steady again", TERMS, now))
        self.store.write_now(lambda conn: touch_backends(conn, [repo], TERMS, now))

    def tell_anew(self, number: int, sha: str, backend: str, origin: str) -> int | NotTold:
        """A person asks for this backend again."""

        def unit(conn: Connection) -> int | NotTold:
            found = select(_change.c.id).where(_change.c.number == number, _change.c.head_sha == sha)
            return redispatch(
                conn,
                int(conn.execute(found).scalar_one()),
                RepoName.parse(backend),
                Asking("asked for", origin),
                fresh_id=_fresh_id(),
                allowlist=self.allowlist,
                terms=TERMS,
                now=self.clock.now(),
            )

        return self.store.write_now(unit)

    def write(self, unit: Callable[[Connection], None]) -> None:
        """Whatever else a person does, in one transaction."""
        self.store.write_now(unit)

    def rows(self, table: Any) -> list[Any]:
        """All rows of a table."""
        return self.store.read_now(lambda conn: list(conn.execute(select(table.__table__)).all()))

    def tests(self, above: int) -> list[tuple[int, str, str, int]]:
        """The dispatches that owe a result and were made since: id, backend, head and pull request."""
        statement = (
            select(_dispatch.c.id, _dispatch.c.backend, _change.c.head_sha, _change.c.number)
            .join(_change, _change.c.id == _dispatch.c.change_id)
            .where(_dispatch.c.id > above, _dispatch.c.purpose == "test")
            .order_by(_dispatch.c.id)
        )
        rows = self.store.read_now(lambda conn: conn.execute(statement).all())
        return [(row.id, row.backend, row.head_sha, row.number) for row in rows]

    # --- What goes out -----------------------------------------------------------------------------------------------

    def work(self, fate: str = "taken") -> list[Tried]:
        """One claim of everything that is due, and what becomes of it."""
        self.github.fate = fate
        claimed = self.store.write_now(lambda conn: outbox.claim(conn, owner="worker", count=100, now=self.clock.now()))
        return [tried for effect in claimed for tried in self._perform(effect, fate)]

    def drain(self) -> Iterator[list[Tried]]:
        """Work until no check is to be written any more, letting as much time pass as that takes."""
        until = self.clock.now() + SOON
        yield self.work()
        while (due := self._next_due()) is not None and due <= until:
            # A lease must be over, and what waits for one in its lane is due already.
            self.clock.advance(max(due - self.clock.now(), timedelta(seconds=1)))
            yield self.work()
            assert self.clock.now() <= until, "the checks of this history are never done"

    def sweep(self) -> None:
        """Conclude what has run out of time, once GitHub has been asked about it."""
        now = self.clock.now()
        self.store.write_now(lambda conn: end_groups(conn, now, TERMS))
        self.store.write_now(lambda conn: ask_first(conn, now))
        asked = select(_effect.c.id, _effect.c.subject_id).where(
            _effect.c.kind == Kind.OBSERVE.value, _effect.c.state == "ready", _effect.c.due <= now
        )
        for row in self.store.read_now(lambda conn: conn.execute(asked).all()):
            self.looks += 1
            note = self._loop.run_until_complete(self._observer.observe(row.subject_id))
            self.store.write_now(partial(_looked, effect_id=row.id, note=note, now=now))
        self.store.write_now(lambda conn: sweep_deadlines(conn, now, TERMS))

    def _perform(self, effect: Claimed, fate: str) -> list[Tried]:
        sends = effect.kind is Kind.DISPATCH
        self.looks += effect.kind is Kind.OBSERVE
        if sends and fate == "held":
            return [Tried(effect.subject_id, "held")]
        self.github.sending = effect.subject_id
        end, note = Ended(effect, "done", 0.0), None
        try:
            note = self._loop.run_until_complete(self._job(effect))
        except GitHubError as error:
            end, note = self._judged(effect, self._performer.judge(error))
        if sends and fate == "unnoted":
            return [Tried(effect.subject_id, "held")]
        now = self.clock.now()

        def unit(conn: Connection) -> None:
            outbox.finish(conn, [end], owner="worker", now=now)
            if note is not None:
                note(conn, now)

        self.store.write_now(unit)
        if not sends:
            return []
        state = select(_dispatch.c.state).where(_dispatch.c.id == effect.subject_id)
        sent = self.store.read_now(lambda conn: conn.execute(state).scalar()) == "sent"
        done = "sent" if sent else "dropped"
        return [Tried(effect.subject_id, {"done": done, "dead": "dead"}.get(end.outcome, "again"))]

    async def _job(self, effect: Claimed) -> Note | None:
        ((_, job),) = await self._performer.begin([effect])
        return await job()

    def _judged(self, effect: Claimed, verdict: Verdict | None) -> tuple[Ended, Note | None]:
        """As ``relay.work.outbox`` has it."""
        assert verdict is not None
        if isinstance(verdict, Rest):
            end = Ended(
                effect, "limited", 0.0, verdict.reason, verdict.detail, due=verdict.until, resting=verdict.until
            )
            return end, self._performer.put_back(effect)
        due = next_try(effect.failures + 1, self.clock.now(), lambda: 0.5) if isinstance(verdict, Again) else None
        if due is not None:
            return Ended(effect, "retry", 0.0, verdict.reason, verdict.detail, due=due), self._performer.put_back(
                effect
            )
        return Ended(effect, "dead", 0.0, verdict.reason, verdict.detail), self._performer.gave_up(
            effect, verdict.reason, verdict.detail
        )

    def _next_due(self) -> datetime | None:
        """When the next check is to be looked at, or a lease ends that keeps one from it.

        A dispatch whose lease has ended and that nobody takes up waits for its account's limit, perhaps for hours.
        """
        due = func.min(func.coalesce(_effect.c.lease, _effect.c.due))
        looks = _effect.c.kind == Kind.RECONCILE_CHECK.value
        waiting = or_(
            and_(_effect.c.state == "ready", looks),
            and_(_effect.c.state == "running", or_(looks, _effect.c.lease >= self.clock.now())),
        )
        found: datetime | None = self.store.read_now(lambda conn: conn.execute(select(due).where(waiting)).scalar())
        return found


def _fresh_id() -> str:
    return str(uuid.uuid4())


def _begin(conn: Connection, backends: tuple[str, ...]) -> None:
    """An empty record in which GitHub's ids of these backends are known."""
    if conn.dialect.name == "postgresql":
        tables = ", ".join(f'"{table.name}"' for table in metadata.sorted_tables)
        conn.execute(text(f"TRUNCATE {tables} RESTART IDENTITY CASCADE"))
    else:
        for table in reversed(metadata.sorted_tables):
            conn.execute(table.delete())
    rows = [
        {"repo": repo, "repository_id": 1, "owner_id": 2, "installation_id": 1, "private": False} for repo in backends
    ]
    conn.execute(insert(_backend), rows)


def _looked(conn: Connection, effect_id: int, note: Note | None, now: datetime) -> None:
    conn.execute(update(_effect).where(_effect.c.id == effect_id).values(state="done", finished_at=now))
    if note is not None:
        note(conn, now)
