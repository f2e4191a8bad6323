"""Which failing tests are known on the base: by the newest result there, and by nothing that is not known."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allowlist.model import Level, RepoName
from relay.deciding.facts import BaseRun, CheckFacts, DispatchFacts, OnBase
from relay.store.base_results import MOST_NAMES, base_of
from relay.store.check_facts import MOST_TESTS_OF_A_LEG, load_check
from relay.store.engine import Store
from relay.store.tables import Check
from relay.texts.words import GATE_NAME
from tests.work.record import NPU, Record

XPU = RepoName.parse("org/xpu")
BASE = "b" * 40
ADD, MUL = ("test_add", "suite.Ops", "expected 3"), ("test_mul", "suite.Ops", "expected 4")

_heads = itertools.count(1)


@pytest.fixture
def record(store: Store, clock: Any) -> Record:
    """An empty record, on each database."""
    return Record(store, clock)


def pull(record: Record, *, base_sha: str | None = None, **values: Any) -> int:
    """A pull request into main."""
    number = next(_heads)
    change = record.change(f"{number:040x}", number=number, **values)
    record.edit_change(change, base_ref="main", base_sha=base_sha)
    return change


def pushed(record: Record, *, ref: str | None = "refs/heads/main", sha: str | None = None, **values: Any) -> int:
    """A commit on a branch of upstream."""
    number = next(_heads)
    change = record.change(sha or f"{number:040x}", number=number, kind=values.pop("kind", "push"))
    record.edit_change(change, **{"ref": ref, "number": None, **values})
    return change


def failed(record: Record, change: int, *tests: tuple[str, str, str], backend: RepoName = NPU, **fields: Any) -> int:
    """This backend fails on a change with these tests."""
    told = record.told(change, backend)
    record.report(told, "failure", tests=tests, counts=(5, len(tests), 0), **fields)
    return told


def passed(record: Record, change: int, backend: RepoName = NPU) -> int:
    """This backend passes on a change."""
    told = record.told(change, backend)
    record.report(told, "success", counts=(5, 0, 0))
    return told


def of(record: Record, change: int, name: str = "crcr/org/npu") -> DispatchFacts:
    """The one dispatch that this check speaks of."""
    head = record.head_of(change)
    (row,) = [one for one in check_rows(record) if one.head_sha == head and one.name == name]
    facts = record.store.read_now(lambda conn: load_check(conn, row.id, record.terms, listed=record.listed))
    assert isinstance(facts, CheckFacts)
    (one,) = facts.dispatches
    return one


def check_rows(record: Record) -> list[Any]:
    """All checks there are."""
    return record.rows(Check)


def on_base(record: Record, change: int, name: str = "crcr/org/npu") -> OnBase:
    """What the base says of it."""
    base = of(record, change, name).base
    assert base is not None
    return base


def marks(record: Record, change: int) -> list[tuple[str, bool]]:
    """The failing tests as the check lists them, and whether each is known."""
    return [(test.name, test.on_base) for leg in of(record, change).legs for test in leg.failed_tests]


def test_what_fails_there_too_is_known_and_comes_last(record: Record) -> None:
    """A reader looks for what is new; what is known stands behind it, with the commit that shows it."""
    main = pushed(record)
    failed(record, main, ADD)
    change = pull(record)
    failed(record, change, ADD, MUL)
    at = record.clock.now()

    assert [("test_mul", False), ("test_add", True)] == marks(record, change)
    run = BaseRun(main, record.head_of(main), at, passed=False, named=1)
    assert OnBase("main", run, failing=2, known=1, sure=True) == on_base(record, change)
    assert on_base(record, change) == on_base(record, change, GATE_NAME)


def test_only_where_all_of_it_is_known_nothing_is_blamed_on_the_change(record: Record) -> None:
    """A job that failed without naming tests, or has not ended, may have failed by this change."""
    failed(record, pushed(record), ADD, MUL)
    whole, unnamed, running, short = (pull(record) for _ in range(4))
    failed(record, whole, ADD, MUL)
    record.report(failed(record, unnamed, ADD), "failure", job="compile")
    record.report(failed(record, running, ADD), None, job="slow")
    failed(record, short, ADD, expected=2)

    assert [True, False, False, False] == [on_base(record, one).whole for one in (whole, unnamed, running, short)]
    assert [(2, 2), (1, 1), (1, 1), (1, 1)] == [
        (base.known, base.failing) for base in (on_base(record, one) for one in (whole, unnamed, running, short))
    ]


def test_more_failures_than_names_are_not_all_known(record: Record) -> None:
    """What was only counted was never compared."""
    failed(record, pushed(record), ADD)
    change = pull(record)
    failed(record, change, ADD, failed_in_all=7)

    assert (7, 1, False) == (
        on_base(record, change).failing,
        on_base(record, change).known,
        on_base(record, change).whole,
    )


def test_of_what_was_not_named_or_has_not_ended_nothing_is_claimed(record: Record) -> None:
    """That a test does not fail on the base is known only where everything there was told, and everything here."""

    def sure(sha: str, *, base: dict[str, Any] | None = None, here: dict[str, Any] | None = None, slow: bool) -> bool:
        head = pushed(record, sha=sha)
        told = failed(record, head, ADD, **(base or {}))
        if slow:
            record.report(told, None, job="slow")
        change = pull(record, base_sha=sha)
        failed(record, change, MUL, **(here or {}))
        assert 0 == on_base(record, change).known
        return on_base(record, change).sure

    assert sure("1" * 40, slow=False)
    assert not sure("2" * 40, slow=True)
    assert not sure("3" * 40, base={"failed_in_all": 2}, slow=False)
    assert not sure("4" * 40, here={"failed_in_all": 2}, slow=False)
    assert not sure("5" * 40, base={"expected": 2}, slow=False)


def test_the_commit_that_the_change_is_based_on_speaks_before_newer_ones(record: Record) -> None:
    """The base may have been mended since: this change does not have that yet."""
    base = pushed(record, sha=BASE)
    failed(record, base, ADD)
    newer = pushed(record)
    passed(record, newer)
    on_it, on_none = pull(record, base_sha=BASE), pull(record, base_sha="c" * 40)
    for change in (on_it, on_none):
        failed(record, change, ADD)

    runs = [on_base(record, change).run for change in (on_it, on_none)]

    assert [(base, False), (newer, True)] == [(run.change_id, run.passed) for run in runs if run is not None]
    assert [True, False] == [on_base(record, change).whole for change in (on_it, on_none)]


def test_the_newest_settled_result_counts(record: Record) -> None:
    """A run that goes on, was lost or says nothing of tests leaves the one before it standing."""
    failed(record, pushed(record), ADD)
    settled = pushed(record)
    failed(record, settled, MUL)
    record.told(pushed(record))
    record.report(record.told(pushed(record)), "skipped")
    record.edit_dispatch(record.told(pushed(record)), outcome="lost", legs_reported=1)
    change = pull(record)
    failed(record, change, ADD, MUL)

    run = on_base(record, change).run

    assert run is not None
    assert settled == run.change_id
    assert [("test_add", False), ("test_mul", True)] == marks(record, change)


def test_other_branches_pull_requests_and_backends_say_nothing_of_the_base(record: Record) -> None:
    """Only this backend on this branch can tell; without that it is said that nothing is known."""
    failed(record, pushed(record, ref="refs/heads/release"), ADD)
    failed(record, pushed(record, ref="refs/tags/main"), ADD)
    failed(record, pushed(record), ADD, backend=XPU)
    failed(record, pull(record), ADD)
    change = pull(record)
    failed(record, change, ADD)

    assert OnBase("main", None, failing=1) == on_base(record, change)
    assert [("test_add", False)] == marks(record, change)


@pytest.mark.parametrize(
    ("verified", "pushed_too", "known"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_a_night_counts_where_its_commit_is_the_base_s(
    record: Record, verified: bool, pushed_too: bool, known: bool
) -> None:
    """Upstream has confirmed it, and it was pushed to the branch: anything else may be a commit of anybody."""
    if pushed_too:
        pushed(record, sha=BASE)
    night = pushed(record, kind="self_reported", sha=BASE, ref=None, state="closed", verified=verified)
    told = record.told(night, purpose="report")
    record.report(told, "failure", tests=[ADD], counts=(0, 1, 0))
    change = pull(record)
    failed(record, change, ADD)

    assert known is on_base(record, change).whole


def test_versions_and_environments_are_compared_where_they_are_stated(record: Record) -> None:
    """A test that fails on the base with another version of the backend is not known with this one."""
    py312, py313 = {"python": "3.12"}, {"python": "3.13"}
    failed(record, pushed(record), ADD, version="2.9", environment=py312)

    def known(**stated: Any) -> int:
        change = pull(record)
        failed(record, change, ADD, **stated)
        return on_base(record, change).known

    assert 1 == known()
    assert 1 == known(version="2.9")
    assert 1 == known(version="2.9", environment=py312)
    assert 0 == known(version="2.9", environment=py313)
    assert 0 == known(version="2.10")
    assert 0 == known(version="2.10", environment=py312)


def test_a_version_that_never_reported_is_no_known_failure(record: Record) -> None:
    """Nobody knows how it would have ended."""
    failed(record, pushed(record), ADD, version="2.9")
    change = pull(record)
    told = record.told(change, versions=("2.9", "2.10"))
    record.report(told, "failure", tests=[ADD], counts=(0, 1, 0), version="2.9")

    assert (1, False) == (on_base(record, change).known, on_base(record, change).whole)


def test_thousands_of_failures_are_bounded_and_never_called_whole(record: Record) -> None:
    """What is beyond the bound was not compared."""
    tests = [(f"test_{n}", "suite", "") for n in range(MOST_NAMES + 100)]
    failed(record, pushed(record), *tests)
    change = pull(record)
    failed(record, change, *tests)

    base = on_base(record, change)

    assert (MOST_NAMES + 100, MOST_NAMES, False, False) == (base.failing, base.known, base.whole, base.sure)
    assert [False] * MOST_TESTS_OF_A_LEG == [known for _, known in marks(record, change)]


def test_nothing_is_looked_up_for_what_did_not_fail_by_a_test(record: Record) -> None:
    """Success, a run that goes on, and a failure without names have nothing to compare."""
    failed(record, pushed(record), ADD)
    good, waiting, nameless = (pull(record) for _ in range(3))
    passed(record, good)
    record.report(record.told(waiting), None)
    record.report(record.told(nameless), "failure")

    assert [None, None, None] == [of(record, change).base for change in (good, waiting, nameless)]


def test_the_gate_asks_of_no_backend_that_cannot_block(record: Record) -> None:
    """Its line says nothing of their results, so nothing is read of them."""
    failed(record, pushed(record), ADD)
    change = pull(record, labels=["ciflow/crcr/dev1"])
    told = record.told(change, NPU, Level.L3, device="dev1")
    record.report(told, "failure", tests=[ADD], counts=(0, 1, 0))

    assert of(record, change, GATE_NAME).base is None
    assert on_base(record, change).whole


def test_a_result_that_came_later_is_in_the_next_look(record: Record) -> None:
    """Nothing is kept of an answer: the base is looked at whenever the check is."""
    change = pull(record)
    failed(record, change, ADD)
    before = on_base(record, change)
    record.clock.advance(timedelta(minutes=5))
    failed(record, pushed(record), ADD)

    assert [None, True] == [before.run, on_base(record, change).whole]


@pytest.mark.parametrize(
    ("kind", "ref", "sha", "expected"),
    [
        ("pull_request", "main", BASE, ("main", BASE)),
        ("merge_group", "refs/heads/main", BASE, ("main", None)),
        ("push", "main", BASE, None),
        ("pull_request", None, BASE, None),
    ],
)
def test_only_what_can_be_merged_has_a_base(
    kind: str, ref: str | None, sha: str, expected: tuple[str, str | None] | None
) -> None:
    """A merge group may be built on another one, whose commit is on no branch."""
    base = base_of(kind, ref, sha)

    assert expected == (None if base is None else (base.branch, base.head_sha))


_NAMES = st.sampled_from(["test_a", "test_b", "test_c", "a' OR 1=1 --", "\u202etest", "x" * 500])
_RUNS = st.lists(st.tuples(_NAMES, st.sampled_from(["", "suite"])), unique=True, max_size=5)
_PLACES = st.sampled_from([(None, None), ("2.9", None), ("2.10", None), ("2.9", {"python": "3.12"})])


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(here=_RUNS, there=_RUNS, at=_PLACES, base_at=_PLACES)
def test_known_is_what_failed_in_both_and_nothing_else(
    record: Record,
    here: list[tuple[str, str]],
    there: list[tuple[str, str]],
    at: tuple[str | None, Any],
    base_at: tuple[str | None, Any],
) -> None:
    """Against the rule in a line: same name and class, and version and environment as far as they are stated here."""
    head = pushed(record)
    failed(record, head, *((*one, "") for one in there), version=base_at[0], environment=base_at[1])
    change = pull(record, base_sha=record.head_of(head))
    failed(record, change, *((*one, "") for one in here), version=at[0], environment=at[1])
    same = (at[0] is None or at[0] == base_at[0]) and (at[1] is None or at[1] == base_at[1])
    expected = {one for one in here if same and one in there}

    one = of(record, change)

    tests = [test for leg in one.legs for test in leg.failed_tests]
    assert expected == {(test.name, test.classname) for test in tests if test.on_base}
    assert (one.base is None) is (not here)
    if one.base is not None:
        assert (len(here), len(expected)) == (one.base.failing, one.base.known)
        assert one.base.whole is (set(here) == expected)
