"""Which checks a commit owes, and that no change of the record is ever lost on the way to GitHub."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event

from allowlist.model import Level, RepoName
from levels.outcomes import Outcome
from relay.github.errors import RetryLater
from relay.store import outbox
from relay.store.check_facts import MOST_TESTS_OF_A_LEG, load_check
from relay.store.check_notes import note_unchanged
from relay.store.checks import CheckTerms, heal, touch_backends, touch_head
from relay.store.engine import Store
from relay.store.reported import environment_of
from relay.store.tables import Change, Check, Dispatch, Effect
from relay.store.told import outcome_of
from relay.texts.rendering import render
from relay.texts.words import GATE_NAME
from tests.work.record import NPU, TERMS, Record
from tests.work.remembered_github import S1, UPSTREAM

SOON = timedelta(seconds=4)


@pytest.fixture
def record(sqlite_template: Path, tmp_path: Path, clock: Any) -> Iterator[Record]:
    """An empty record on SQLite."""
    path = tmp_path / "only.db"
    shutil.copy(sqlite_template, path)
    opened = Store(f"sqlite:///{path}")
    yield Record(opened, clock)
    opened.close()


@pytest.fixture
def record_on_both(store: Store, clock: Any) -> Record:
    """An empty record, on each database."""
    return Record(store, clock)


def waiting(record: Record) -> list[tuple[str, timedelta]]:
    """The looks that are due: whose, and how long from now."""
    names = {row.id: row.name for row in record.rows(Check)}
    return [
        (names[row.subject_id], row.due - record.clock.now()) for row in record.rows(Effect) if row.state == "ready"
    ]


def facts(record: Record, name: str) -> Any:
    """What is read for this check."""
    check_id = record.checks()[name].id
    return record.store.read_now(lambda conn: load_check(conn, check_id, record.terms, listed=record.listed))


# --- Touching --------------------------------------------------------------------------------------------------------


def test_a_touch_makes_what_is_due_and_asks_for_one_look(record_on_both: Record) -> None:
    """However often a head is touched before the worker comes, each check is looked at once."""
    record = record_on_both
    record.told(record.change())
    for _ in range(3):
        record.touch()

    assert [(GATE_NAME, timedelta()), ("crcr/org/npu", timedelta())] == sorted(waiting(record))


def test_the_gate_goes_first(record: Record) -> None:
    """It is what a pull request waits for."""
    record.told(record.change())

    assert GATE_NAME == {row.id: row.name for row in record.rows(Check)}[record.claim()[0].subject_id]


def test_later_looks_wait_for_the_interval(record: Record) -> None:
    """The first write goes out at once; the next not before three seconds after it."""
    record.change()
    record.settle()
    record.clock.advance(timedelta(seconds=1))

    record.touch()

    assert [(GATE_NAME, timedelta(seconds=2))] == waiting(record)


def test_a_touch_for_one_backend_leaves_the_others_alone(record: Record) -> None:
    """A callback changes its own check and the gate."""
    change = record.change()
    record.told(change)
    record.told(change, "org/xpu")
    record.settle()
    record.clock.advance(SOON)

    record.store.write_now(lambda conn: touch_head(conn, S1, TERMS, record.clock.now(), backend=NPU))

    assert [GATE_NAME, "crcr/org/npu"] == sorted(name for name, _ in waiting(record))


def test_a_backend_that_never_shows_costs_no_look(record: Record) -> None:
    """Most backends are L1 and L2, and their callbacks must stay cheap."""
    record.told(record.change(), "org/l2", Level.L2)
    record.settle()
    record.clock.advance(SOON)

    record.store.write_now(lambda conn: touch_head(conn, S1, TERMS, record.clock.now(), backend=RepoName("org", "l2")))

    assert [] == waiting(record)


def test_a_touch_of_an_unknown_commit_does_nothing(record: Record) -> None:
    """Callers need not ask first whether there is a check."""
    record.store.write_now(lambda conn: touch_head(conn, "f" * 40, TERMS, record.clock.now()))

    assert ({}, []) == (record.checks(), record.rows(Effect))


def test_a_touch_is_cheap(record: Record) -> None:
    """It runs inside every callback's transaction that changes an outcome."""
    record.told(record.change())
    record.settle()
    statements: list[str] = []
    engine = record.store.write_engine

    @event.listens_for(engine, "before_cursor_execute")
    def _count(_conn: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        statements.append(statement)

    record.store.write_now(lambda conn: touch_head(conn, S1, TERMS, record.clock.now(), backend=NPU))
    event.remove(engine, "before_cursor_execute", _count)

    assert 3 == len([one for one in statements if not one.startswith(("BEGIN", "COMMIT"))])


def test_labels_are_compared_as_github_does() -> None:
    """Without case, under the present prefix and the old one, and whole."""
    terms = CheckTerms(UPSTREAM, "ciflow/crcr/", timedelta())

    assert terms.shows(Level.L3, "Dev1", ["CIFLOW/crcr/dev1"])
    assert terms.shows(Level.L3, "dev1", ["x", "ciflow/oot/dev1"])
    assert not terms.shows(Level.L3, "dev1", ["ciflow/crcr/dev10", "ciflow/crcr/"])
    assert not terms.shows(Level.L3, None, ["ciflow/crcr/None", "ciflow/crcr/"])
    assert [False, False, True] == [terms.shows(level, None, []) for level in (Level.L1, Level.L2, Level.L4)]


def test_two_touches_never_look_like_one(record_on_both: Record) -> None:
    """What a look has read before the second touch cannot pass for an answer to it, even in the same microsecond."""
    record = record_on_both
    record.change()
    first = record.checks()[GATE_NAME].wanted

    record.touch()

    assert first != record.checks()[GATE_NAME].wanted


def test_no_backend_named_touches_no_head(record: Record) -> None:
    """An allowlist that changed nothing asks for nothing."""
    record.told(record.change())

    assert () == record.store.write_now(lambda conn: touch_backends(conn, [], TERMS, record.clock.now()))


def test_healing_finds_nothing_where_all_is_well(record: Record) -> None:
    """It runs each minute and must not write for the sake of it."""
    record.told(record.change())
    in_flight = record.store.write_now(lambda conn: heal(conn, TERMS, record.clock.now()))
    record.settle()

    settled = record.store.write_now(lambda conn: heal(conn, TERMS, record.clock.now()))

    assert ((), ()) == (in_flight, settled)


# --- Reading ---------------------------------------------------------------------------------------------------------


def test_the_newest_dispatch_decides(record_on_both: Record) -> None:
    """A re-dispatch of ours replaces a verdict; a notification is none."""
    record = record_on_both
    change = record.change()
    record.report(record.told(change), "failure")
    newer = record.told(change)
    record.told(change, purpose="notify")

    (one,) = facts(record, "crcr/org/npu").dispatches

    assert (newer, Outcome.QUEUED) == (one.id, one.outcome)


def test_failing_tests_are_read_with_their_full_count(record_on_both: Record) -> None:
    """A thousand failures are counted, and a few of them named."""
    record = record_on_both
    dispatch = record.told(record.change())
    tests = [(f"test_{n}", "suite", f"line {n}\nmore") for n in range(30)]
    record.report(dispatch, "failure", job="a", counts=(5, 30, 0), tests=tests, failed_in_all=1000)
    record.report(dispatch, "success", job="b", counts=(5, 0, 0))

    a, b = facts(record, "crcr/org/npu").dispatches[0].legs

    assert MOST_TESTS_OF_A_LEG == len(a.failed_tests)
    assert ("test_0", 30, 1000) == (a.failed_tests[0].name, a.failed_tests_kept, a.failed)
    assert ((), 0) == (b.failed_tests, b.failed_tests_kept)


def test_legs_that_were_replaced_are_not_shown(record: Record) -> None:
    """Attempt 2 of a job replaces attempt 1."""
    dispatch = record.told(record.change())
    record.report(dispatch, "failure")
    record.report(dispatch, "success", attempt=2, version="2.9", suite="s1", environment={"python": "3.12"})

    (leg,) = facts(record, "crcr/org/npu").dispatches[0].legs

    assert (2, "2.9", "s1", (("python", "3.12"),)) == (
        leg.run_attempt,
        leg.backend_version,
        leg.suite_version,
        leg.environment,
    )


@pytest.mark.parametrize(("pinned", "private"), [(True, False), (True, True), (False, True)])
def test_a_repository_not_known_to_be_public_is_private(record: Record, pinned: bool, private: bool) -> None:
    """What GitHub has not told us yet we do not publish."""
    record.told(record.change(), private=private if pinned else False)
    if not pinned:
        record.store.write_now(lambda conn: conn.exec_driver_sql("UPDATE backend SET repository_id = NULL"))

    assert private == facts(record, "crcr/org/npu").dispatches[0].private


def test_a_dropped_dispatch_of_a_head_that_came_back_is_undelivered() -> None:
    """Nobody was told, so nothing was tested: the gate steps down loudly and does not wait for ever."""
    assert Outcome.UNDELIVERED is outcome_of("superseded", "not_required")
    assert Outcome.SUCCESS is outcome_of("sent", "success")
    with pytest.raises(ValueError, match="banana"):
        outcome_of("sent", "banana")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('{"sdk": "8", "python": 3.12}', (("python", "3.12"), ("sdk", "8"))),
        ("[1]", ()),
        ("nonsense", ()),
        ('{"a": {"b": 1}}', ()),
    ],
)
def test_environments_are_read_as_plain_pairs(text: str, read: tuple[tuple[str, str], ...]) -> None:
    """Whatever a backend calls an environment, a table has room for names and values."""
    assert read == environment_of(text)


def test_a_forgotten_check_is_none(record: Record) -> None:
    """Its rows may be gone when an old effect comes due."""
    assert record.store.read_now(lambda conn: load_check(conn, 99, TERMS)) is None


# --- Any order -------------------------------------------------------------------------------------------------------


def _act(record: Record, choice: random.Random, changes: list[int], dispatches: list[int]) -> None:
    """One thing that may happen to a pull request's head."""
    acts = ["report", "report", "report", "label", "state", "dispatch", "touch", "wait", "conclude", "settle", "lose"]
    act = choice.choice(acts)
    change, dispatch = choice.choice(changes), choice.choice(dispatches)
    if act == "report":
        ended = choice.choice([None, "success", "success", "failure", "cancelled", "skipped"])
        record.report(
            dispatch, ended, job=choice.choice(["a", "b"]), attempt=choice.choice([1, 1, 2]), run=str(dispatch)
        )
    elif act == "label":
        record.edit_change(change, labels=choice.choice(["[]", '["ciflow/crcr/dev1"]']))
    elif act == "state":
        record.edit_change(change, state=choice.choice(["open", "open", "superseded", "closed"]))
    elif act == "dispatch":
        level = choice.choice([Level.L2, Level.L3, Level.L4])
        dispatches.append(record.told(change, f"org/{level.name.lower()}", level, device="dev1"))
    elif act == "touch":
        record.touch(record.head_of(change))
    elif act == "conclude" and record.row(Dispatch, dispatch).outcome in {"queued", "running"}:
        ours = choice.choice(["silent", "lost", "undelivered"])
        record.edit_dispatch(dispatch, outcome=ours, concluded=ours, concluded_at=record.clock.now())
    elif act == "settle":
        record.settle()
    elif act == "lose":
        when = choice.choice(["before create", "after create", "before update", "after update"])
        record.github.faults.append((when, RetryLater("GitHub answered 502.", ambiguous=True)))
    record.clock.advance(timedelta(seconds=choice.choice([0, 1, 5])))


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_github_ends_with_what_the_record_says(record: Record, seed: int) -> None:
    """Reports, labels, heads that move, our own conclusions and lost answers, in any order: the end is the record's."""
    choice = random.Random(seed)
    changes = [record.change(number=7), record.change(number=8)]
    dispatches = [record.told(changes[0], f"org/{level.name.lower()}", level, device="dev1") for level in Level]
    for _ in range(25):
        _act(record, choice, changes, dispatches)
    record.github.faults.clear()
    for _ in range(4):
        record.settle(passing=timedelta(seconds=12))

    assert [] == waiting(record)
    assert GATE_NAME in record.checks()
    for row in record.rows(Check):
        now = record.store.read_now(partial(load_check, check_id=row.id, terms=TERMS))
        assert now is not None
        wanted = render(now, record.place)
        runs = record.github.named(row.name)
        if wanted is not None:
            check = runs[-1].now
            assert (wanted.status, wanted.conclusion, wanted.title) == (check.status, check.conclusion, check.title)
            assert wanted.digest() == row.applied == row.wanted
        elif runs:
            assert "completed" == runs[-1].now.status
        # A run that is not the newest of its name is over: none waits behind the one that shows.
        assert all(run.now.status == "completed" for run in runs[:-1])


@pytest.mark.parametrize("database_url", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)
def test_a_touch_seen_before_its_commit_is_answered_after_it(store: Store, record_on_both: Record) -> None:
    """A look may read the state before a transaction that relied on it has committed. SQLite has one writer only."""
    record = record_on_both
    dispatch = record.told(record.change())
    record.settle()
    record.clock.advance(SOON)
    record.touch()  # A look waits, and the transaction below relies on it.
    gate = record.checks()[GATE_NAME].id
    dispatches = Dispatch.__table__  # type: ignore[attr-defined]

    engine = store.write_engine
    with engine.connect() as slow:
        transaction = slow.begin()
        slow.execute(dispatches.update().where(dispatches.c.id == dispatch).values(outcome="failure"))
        touch_head(slow, S1, TERMS, record.clock.now(), backend=NPU)
        claimed = record.claim()
        before = record.store.read_now(lambda conn: load_check(conn, gate, TERMS))
        transaction.commit()
    assert before is not None
    assert Outcome.QUEUED is before.dispatches[0].outcome

    def note_what_was_read(conn: Connection) -> None:
        note_unchanged(conn, gate, before.row.mark, TERMS, record.clock.now())
        done = [outbox.Ended(effect, "done", 0.0) for effect in claimed]
        outbox.finish(conn, done, owner="test", now=record.clock.now())

    record.store.write_now(note_what_was_read)
    assert [GATE_NAME] == [name for name, _ in waiting(record)]
    record.settle()
    assert "failure" == record.github.showing(GATE_NAME).conclusion


def test_a_landed_change_is_over(record: Record) -> None:
    """Whatever ended it, a change that is not open has nobody who waits for its checks."""
    change = record.change()
    record.told(change)
    record.settle()

    record.edit_change(change, state="landed")
    record.settle(passing=SOON)

    assert "cancelled" == record.github.showing(GATE_NAME).conclusion
    assert "landed" == record.row(Change, change).state
