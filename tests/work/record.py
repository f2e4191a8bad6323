"""A record of changes, dispatches and reports in a few words, and a worker that performs the checks' effects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import timedelta
from itertools import count
from typing import Any

from sqlalchemy import Connection, insert, select, update

from allowlist.model import Allowlist, Entry, Level, OnSilence, RepoName
from levels.outcomes import UNSETTLED
from relay.deciding.effects import Kind
from relay.deciding.facts import Place
from relay.deciding.terms import Terms
from relay.github.errors import GitHubError, RetryLater
from relay.store import outbox
from relay.store.checks import CheckTerms, heal, touch_head
from relay.store.engine import Store
from relay.store.legs import Told, refold
from relay.store.tables import Audit, Backend, Change, Check, Delivery, Dispatch, Report, TestResult
from relay.work.observe import Observer
from relay.work.outbox import Note
from relay.work.reconcile import Reconciler
from tests.work.remembered_github import S1, UPSTREAM, RememberedGitHub

NPU = RepoName.parse("org/npu")
S2 = "2" * 40
TERMS = CheckTerms(UPSTREAM, "ciflow/crcr/", timedelta(seconds=3))
PLACE = Place("https://relay.test", "ciflow/crcr/")


class Record:
    """The relay's record, written directly, and a worker that performs the checks' effects when told."""

    def __init__(self, store: Store, clock: Any, terms: CheckTerms = TERMS) -> None:
        self.store = store
        self.clock = clock
        self.terms = terms
        self.github = RememberedGitHub()
        self.listed: Allowlist | None = None
        self.place = PLACE
        self._numbers = count(1)

    # --- Writing the record ------------------------------------------------------------------------------------------

    def change(
        self,
        head_sha: str = S1,
        *,
        number: int = 7,
        labels: Sequence[str] = (),
        kind: str = "pull_request",
        state: str = "open",
    ) -> int:
        """A head of a pull request, received now."""
        now = self.clock.now()
        values = {
            "kind": kind,
            "thread": f"{kind} {number}",
            "head_sha": head_sha,
            "number": number,
            "title": "",
            "author": "",
            "author_association": "",
            "html_url": "",
            "draft": False,
            "labels": json.dumps(list(labels)),
            "state": state,
            "verified": True,
            "created_at": now,
            "updated_at": now,
            "received_at": now,
        }
        return self._add(Change, values, head_sha)

    def edit_change(self, change_id: int, **values: Any) -> None:
        """Change a head's row and touch it, as intake does in one transaction."""

        def unit(conn: Connection) -> None:
            table = Change.__table__  # type: ignore[attr-defined]
            head = conn.execute(
                update(table).where(table.c.id == change_id).values(**values).returning(table.c.head_sha)
            ).scalar_one()
            touch_head(conn, head, self.terms, self.clock.now())

        self.store.write_now(unit)

    def dispatch(
        self,
        change_id: int,
        backend: RepoName | str = NPU,
        level: Level = Level.L4,
        *,
        state: str = "planned",
        purpose: str = "test",
        outcome: str = "queued",
        device: str | None = None,
        reason_code: str = "wanted",
        reason: str = "",
        queue: timedelta = timedelta(hours=2),
        run: timedelta = timedelta(hours=6),
        patience: timedelta | None = None,
        expected_jobs: int | None = None,
        versions: tuple[str, ...] = (),
        on_silence: OnSilence = OnSilence.STEP_DOWN,
        private: bool = False,
    ) -> int:
        """A backend that is to be told of this change."""
        now = self.clock.now()
        give_up_at = now + (patience or queue + run)
        number = next(self._numbers)
        terms = Terms(
            queue.total_seconds(), run.total_seconds(), expected_jobs, versions, None, False, False, on_silence
        )
        values = {
            "change_id": change_id,
            "backend": str(backend),
            "level": int(level),
            "device": device,
            "purpose": purpose,
            "event_type": "pull_request",
            "delivery_id": f"d{number}",
            "origin_delivery": f"d{number}",
            "payload_delivery": f"d{number}",
            "state": state,
            "reason_code": reason_code,
            "reason": reason,
            "terms": terms.to_json(),
            "created_at": now,
            "give_up_at": give_up_at,
            "next_deadline": give_up_at if outcome in UNSETTLED and purpose == "test" else None,
            "outcome": outcome,
            "outcome_at": now,
            "legs_reported": 0,
            "late": False,
        }
        self._pin(str(backend), private)
        return self._add(Dispatch, values, self.head_of(change_id))

    def edit_dispatch(self, dispatch_id: int, **values: Any) -> None:
        """Change a dispatch's row and touch its head."""
        table = Dispatch.__table__  # type: ignore[attr-defined]

        def unit(conn: Connection) -> None:
            change_id, backend = conn.execute(
                update(table)
                .where(table.c.id == dispatch_id)
                .values(**values)
                .returning(table.c.change_id, table.c.backend)
            ).one()
            touch_head(conn, _head(conn, change_id), self.terms, self.clock.now(), backend=backend)

        self.store.write_now(unit)

    def sent(self, dispatch_id: int) -> None:
        """GitHub answered 204."""
        now = self.clock.now()
        terms = Terms.from_json(self.row(Dispatch, dispatch_id).terms)
        self.edit_dispatch(dispatch_id, state="sent", sent_at=now, next_deadline=now + terms.queue)

    def told(self, change_id: int, backend: RepoName | str = NPU, level: Level = Level.L4, **terms: Any) -> int:
        """Dispatched and taken by GitHub."""
        dispatch_id = self.dispatch(change_id, backend, level, **terms)
        self.sent(dispatch_id)
        return dispatch_id

    def report(
        self,
        dispatch_id: int,
        conclusion: str | None = None,
        *,
        job: str = "build",
        check: str | None = None,
        run: str = "100",
        attempt: int = 1,
        version: str | None = None,
        suite: str | None = None,
        environment: dict[str, str] | None = None,
        counts: tuple[int, int, int] | None = None,
        expected: int | None = None,
        url: str = "https://ci.test/runs/100",
        tests: Sequence[tuple[str, str, str]] = (),
        failed_in_all: int | None = None,
        workflow: str = "ci",
        failure_class: str | None = None,
    ) -> None:
        """A start (no conclusion) or an end of one job, kept and folded as a callback is."""
        now = self.clock.now()
        passed, failed, skipped = counts or (None, None, None)
        number = next(self._numbers)

        def unit(conn: Connection) -> None:
            table = Dispatch.__table__  # type: ignore[attr-defined]
            found = conn.execute(select(table).where(table.c.id == dispatch_id)).one()
            report_id = conn.execute(
                insert(Report.__table__)  # type: ignore[attr-defined]
                .values(
                    digest=str(number),
                    dispatch_id=dispatch_id,
                    backend=found.backend,
                    issuer="test",
                    event_name="repository_dispatch",
                    decides=True,
                    decides_reason="",
                    run_id=run,
                    run_attempt=attempt,
                    job_name=job,
                    combination="" if version is None else f"c{version}{environment or ''}"[:12],
                    backend_version=version,
                    suite_version=suite,
                    environment=json.dumps(environment or {}),
                    check_run_id=check,
                    status="in_progress" if conclusion is None else "completed",
                    conclusion=conclusion,
                    received_at=now,
                    passed=passed,
                    failed=failed if failed_in_all is None else failed_in_all,
                    skipped=skipped,
                    expected_jobs=expected,
                    failure_class=failure_class,
                    workflow_name=workflow,
                    url=url,
                    artifact_url="",
                    jti="",
                    notes="[]",
                    body="{}",
                )
                .returning(Report.__table__.c.id)  # type: ignore[attr-defined]
            ).scalar_one()
            if tests:
                rows = [
                    {"report_id": report_id, "name": name, "classname": classname, "message": said, "stacktrace": ""}
                    for name, classname, said in tests
                ]
                conn.execute(insert(TestResult.__table__), rows)  # type: ignore[attr-defined]
            values = {each.name: getattr(found, each.name) for each in fields(Told)}
            told = Told(**{**values, "terms": Terms.from_json(found.terms)})
            changed = refold(conn, told, run, attempt, job, now)
            if changed.outcome or (changed.legs and (changed.settled or self.terms.per_job)):
                touch_head(conn, _head(conn, found.change_id), self.terms, now, backend=found.backend)

        self.store.write_now(unit)

    def planned(self, change_id: int, decisions: Sequence[dict[str, str]]) -> None:
        """The webhook that made this head, with what was decided at it."""
        values = {
            "id": f"w{next(self._numbers)}",
            "event": "pull_request",
            "action": "opened",
            "repository": str(UPSTREAM),
            "sender": "",
            "received_at": self.clock.now(),
            "change_id": change_id,
            "payload": "{}",
            "plan": json.dumps(list(decisions)),
        }
        self._add(Delivery, values, self.head_of(change_id))

    def touch(self, head_sha: str = S1) -> None:
        """Something that a check may depend on has changed."""
        self.store.write_now(lambda conn: touch_head(conn, head_sha, self.terms, self.clock.now()))

    def _pin(self, backend: str, private: bool) -> None:
        def unit(conn: Connection) -> None:
            row = {"repo": backend, "repository_id": 1, "private": private}
            conn.execute(outbox.on_conflict_do_nothing(conn, Backend.__table__), row)  # type: ignore[attr-defined]

        self.store.write_now(unit)

    def _add(self, table: Any, values: dict[str, Any], head_sha: str) -> int:
        def unit(conn: Connection) -> int:
            made: int = conn.execute(
                insert(table.__table__).values(**values).returning(table.__table__.c.id)
            ).scalar_one()
            touch_head(conn, head_sha, self.terms, self.clock.now())
            return made

        return self.store.write_now(unit)

    # --- Reading it --------------------------------------------------------------------------------------------------

    def row(self, table: Any, key: int | str) -> Any:
        """One row by its id."""
        column = next(iter(table.__table__.primary_key))
        return self.store.read_now(lambda conn: conn.execute(select(table.__table__).where(column == key)).one())

    def rows(self, table: Any) -> list[Any]:
        """All rows of a table, by id."""
        return self.store.read_now(
            lambda conn: list(conn.execute(select(table.__table__).order_by(*table.__table__.primary_key)).all())
        )

    def head_of(self, change_id: int) -> str:
        """The commit of a change."""
        return str(self.row(Change, change_id).head_sha)

    def checks(self) -> dict[str, Any]:
        """All check rows by name; for tests with one head."""
        return {row.name: row for row in self.rows(Check)}

    def audit(self) -> list[tuple[str, str, str]]:
        """What the audit trail holds: what, before, after."""
        return [(row.what, row.before, row.after) for row in self.rows(Audit)]

    # --- Performing --------------------------------------------------------------------------------------------------

    def reconciler(self) -> Reconciler:
        """The reconciler over this record."""
        return Reconciler(
            store=self.store,
            github=self.github,
            terms=self.terms,
            place=self.place,
            now=self.clock.now,
            listed=lambda: self.listed,
        )

    def settle(self, *, passing: timedelta = timedelta()) -> int:
        """Perform what is due, after letting this much time pass; returns how many looks that were."""
        self.clock.advance(passing)
        looks = 0
        while claimed := self.claim():
            for effect in claimed:
                looks += 1
                self.perform(effect)
        return looks

    def heal(self, *, passing: timedelta) -> None:
        """Let this much time pass, have the sweep look for what is owed, and perform it."""
        self.clock.advance(passing)
        self.store.write_now(lambda conn: heal(conn, self.terms, self.clock.now()))
        self.settle()

    def claim(self) -> list[outbox.Claimed]:
        """Take what is due, as the worker does."""
        return self.store.write_now(lambda conn: outbox.claim(conn, owner="test", count=50, now=self.clock.now()))

    def perform(self, effect: outbox.Claimed) -> None:
        """One look, and its note; a failure is tried again ten seconds later, as the worker does."""
        end = outbox.Ended(effect, "done", 0.0)
        note: Note | None = None
        try:
            if effect.kind is Kind.OBSERVE:
                observer = Observer(store=self.store, github=self.github, terms=self.terms)
                note = asyncio.run(observer.observe(effect.subject_id))
            else:
                asyncio.run(self.reconciler().reconcile(effect.subject_id))
        except GitHubError as error:
            due = self.clock.now() + timedelta(seconds=10)
            retried = isinstance(error, RetryLater)
            end = replace(end, outcome="retry" if retried else "dead", reason=error.reason, due=due)

        def unit(conn: Connection) -> None:
            outbox.finish(conn, [end], owner="test", now=self.clock.now())
            if note is not None:
                note(conn, self.clock.now())

        self.store.write_now(unit)


def _head(conn: Connection, change_id: int) -> str:
    table = Change.__table__  # type: ignore[attr-defined]
    return str(conn.execute(select(table.c.head_sha).where(table.c.id == change_id)).scalar_one())


def allowlist(**levels: str) -> Allowlist:
    """An allowlist of org/<name> at these levels."""
    return Allowlist(tuple(Entry(RepoName("org", name), Level[level]) for name, level in levels.items()))
