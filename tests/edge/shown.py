"""A relay reduced to what it shows: pages and API over a record that tests write, and a history worth looking at."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from sqlalchemy import Connection, insert, update
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient

from allowlist.model import Allowlist, Entry, Fault, Level, RepoName
from relay.deciding.effects import send_dispatch
from relay.edge.api import answer_invalid, api_router
from relay.edge.pages import http_error_handler, pages_router
from relay.edge.problems import ProblemError, answer_problem, answer_store_down
from relay.store import outbox
from relay.store.engine import Store, StoreDownError
from relay.store.tables import Attempt, Backend, Change, Dispatch, Effect
from tests.conftest import Clock
from tests.work.record import PLACE, TERMS, Record

UPSTREAM_URL = "https://github.test/up/stream/pull"


@dataclass
class Listed:
    """The allowlist in force, as a keeper would tell it."""

    allowlist: Allowlist = field(default_factory=Allowlist)
    loaded: bool = True
    checked_at: datetime | None = None
    trouble: str = ""
    faults: tuple[Fault, ...] = ()


class Shown:
    """Pages and API over one store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.record = Record(store, clock)
        self.listed = Listed(checked_at=clock.now())
        self.app = application(store, self.listed, clock)
        self.client = TestClient(self.app, follow_redirects=False)

    def list_backends(self, *entries: Entry) -> None:
        """Put these entries in force."""
        self.listed.allowlist = Allowlist(entries, digest="d1")
        self.record.listed = self.listed.allowlist

    def json(self, path: str, **parameters: Any) -> Any:
        """What the API says."""
        answer = self.client.get(f"/api/v1{path}", params=parameters)
        assert 200 == answer.status_code, answer.text
        return answer.json()

    def page(self, path: str) -> str:
        """A page's HTML."""
        answer = self.client.get(path)
        assert 200 == answer.status_code, answer.text
        return answer.text

    def describe(self, change_id: int, **values: Any) -> None:
        """Give a change a title, an author and the like."""
        self.edit(Change, change_id, **values)

    def edit(self, table: Any, key: int | str, **values: Any) -> None:
        """Change a row by its key."""
        rows = table.__table__
        self.store.write_now(lambda conn: conn.execute(update(rows).where(rows.c.id == key).values(**values)) and None)

    def know(self, repo: str, **values: Any) -> None:
        """What else we know of a backend's repository."""

        def unit(conn: Connection) -> None:
            table = Backend.__table__  # type: ignore[attr-defined]
            conn.execute(outbox.on_conflict_do_nothing(conn, table), {"repo": repo, "private": False})
            conn.execute(update(table).where(table.c.repo == repo).values(**values))

        self.store.write_now(unit)

    def tried(self, dispatch_id: int, *tries: tuple[str, str, str], state: str = "done") -> int:
        """An effect that sent this dispatch, with its tries as (outcome, reason, detail)."""
        now = self.clock.now()
        backend = RepoName.parse(self.record.row(Dispatch, dispatch_id).backend)

        def unit(conn: Connection) -> int:
            outbox.enqueue(conn, [send_dispatch(dispatch_id, backend, "pull 7", Level.L4)], now)
            table = Effect.__table__  # type: ignore[attr-defined]
            last = tries[-1] if tries else ("", "", "")
            values = {"state": state, "attempts": len(tries), "reason": last[1], "detail": last[2], "finished_at": now}
            found: int = conn.execute(
                update(table)
                .where(table.c.subject_id == dispatch_id, table.c.kind == "dispatch")
                .values(**values)
                .returning(table.c.id)
            ).scalar_one()
            rows = [
                {
                    "effect_id": found,
                    "number": number,
                    "finished_at": now,
                    "seconds": 0.25,
                    "outcome": outcome,
                    "reason": reason,
                    "detail": detail,
                }
                for number, (outcome, reason, detail) in enumerate(tries, 1)
            ]
            if rows:
                conn.execute(insert(Attempt.__table__), rows)  # type: ignore[attr-defined]
            return found

        return self.store.write_now(unit)


def application(store: Store, listed: Listed, clock: Clock) -> FastAPI:
    """The application that shows, and nothing else of the relay."""
    app = FastAPI(openapi_url="/api/v1/openapi.json", docs_url=None, redoc_url=None)
    app.add_exception_handler(ProblemError, answer_problem)
    app.add_exception_handler(StoreDownError, answer_store_down)
    app.add_exception_handler(RequestValidationError, answer_invalid)
    app.add_exception_handler(HTTPException, http_error_handler())
    app.include_router(api_router(store=store, in_force=lambda: listed, terms=TERMS, place=PLACE, now=clock.now))
    app.include_router(pages_router(store=store, in_force=lambda: listed, terms=TERMS, place=PLACE))
    return app


def history(shown: Shown) -> int:
    """A day in the life of a relay: one pull request with every kind of outcome, and others beside it; its id."""
    record, clock = shown.record, shown.clock
    shown.list_backends(
        Entry(RepoName("org", "npu"), Level.L4, 3, oncalls=("alice", "bob"), versions=("2.8", "2.9"), expected_jobs=4),
        Entry(RepoName("org", "xpu"), Level.L4, 4, oncalls=("carol",)),
        Entry(RepoName("org", "tpu"), Level.L4, 5),
        Entry(RepoName("org", "gaudi"), Level.L3, 7, device="gaudi"),
        Entry(RepoName("org", "metal"), Level.L2, 9),
        Entry(RepoName("org", "quiet"), Level.L4, 10, oncalls=("dave",)),
        Entry(RepoName("org", "new"), Level.L1, 12),
        Entry(RepoName("org", "nightly"), Level.L4, 13, events=frozenset({"nightly"})),
    )
    for number in range(1, 7):
        earlier = record.change(f"{number:x}" * 40, number=number)
        shown.describe(earlier, title=f"An earlier change, number {number}", author="erin")
        record.report(record.told(earlier, "org/npu"), "success", run=f"90{number}", version="2.9")
        record.report(record.told(earlier, "org/xpu"), "failure" if number > 2 else "success", run=f"80{number}")
        record.told(earlier, "org/tpu")
        clock.advance(timedelta(minutes=7))
        if number < 5:
            record.edit_change(earlier, state="closed")
    change = record.change("c0ffee12" * 5, number=4711, labels=["module: autograd", "ciflow/crcr/gaudi"])
    shown.describe(
        change,
        title="Fuse the backward of scaled dot product attention",
        author="frank",
        base_ref="main",
        html_url=f"{UPSTREAM_URL}/4711",
    )
    npu = record.told(change, "org/npu", expected_jobs=4, versions=("2.8", "2.9"))
    xpu = record.told(change, "org/xpu")
    record.told(change, "org/tpu")
    gaudi = record.told(change, "org/gaudi", Level.L3, device="gaudi")
    metal = record.told(change, "org/metal", Level.L2, private=True)
    record.told(change, "org/new", Level.L1, purpose="notify")
    quiet = record.dispatch(change, "org/quiet", state="dead", outcome="undelivered", reason_code="not_installed")
    record.edit_dispatch(quiet, reason="the app is not installed on org/quiet", concluded="undelivered")
    record.planned(
        change,
        [
            {"effect": "dispatch", "backend": "org/npu", "reason": "wanted"},
            {"effect": "dispatch", "backend": "org/quiet", "reason": "wanted"},
            {
                "effect": "none",
                "backend": "org/nightly",
                "reason": "filtered_event",
                "detail": "asks for nightly, this is pull_request",
            },
            {"effect": "check", "backend": "", "reason": "gate"},
        ],
    )
    clock.advance(timedelta(minutes=3))
    legs = [("test (1, 2)", "2.9"), ("test (2, 2)", "2.9"), ("test (1, 2)", "2.8")]
    for place, (job, version) in enumerate(legs):
        record.report(npu, job=job, version=version, check=str(place), run="5001", suite="2.10.0a1")
    clock.advance(timedelta(minutes=41))
    tests = [
        ("test_backward_fp16[npu]", "test_attention.TestSDPA", "AssertionError: Tensor-likes are not close! 3 / 64"),
        ("test_fused_dropout", "test_attention.TestSDPA", "RuntimeError: npu::sdpa_backward is not implemented"),
    ]
    environment = {"python": "3.12", "sdk": "8.3", "arch": "aarch64"}
    record.report(
        npu,
        "failure",
        job="test (1, 2)",
        version="2.9",
        check="0",
        run="5001",
        suite="2.10.0a1",
        environment=environment,
        counts=(10_412, 2, 97),
        tests=tests,
        failure_class="test",
    )
    for place in (1, 2):
        job, version = legs[place]
        record.report(
            npu,
            "success",
            job=job,
            version=version,
            check=str(place),
            run="5001",
            suite="2.10.0a1",
            environment=environment,
            counts=(9_871, 0, 120),
        )
    record.report(xpu, job="build", run="7001")
    record.report(gaudi, "success", job="smoke", run="6001", version="1.22", counts=(512, 0, 3))
    record.report(metal, "failure", job="unit", run="6101", counts=(11, 1, 0), tests=[("secret_test", "", "secret")])
    shown.tried(npu, ("retry", "server_error", "GitHub answered 502"), ("done", "", ""))
    shown.tried(quiet, ("dead", "not_installed", "the app is not installed on org/quiet"), state="dead")
    shown.know(
        "org/npu",
        repository_id=812_233,
        owner_id=4_411,
        installation_id=99_001,
        pinned_at=clock.now(),
        last_seen_at=clock.now(),
        last_sent_at=clock.now(),
    )
    shown.know("org/quiet", last_error="not_installed: the app is not installed", last_error_at=clock.now())
    record.settle()
    return change
