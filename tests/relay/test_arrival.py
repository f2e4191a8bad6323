"""What the runs of a backend say of a dispatch whose run bears no name: case by case, and whatever happened."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.deciding.arrival import Arrival, Sibling, Started, what_runs_say

OURS = "11111111-aaaa"
ONE = ".github/workflows/one.yml"
TWO = ".github/workflows/two.yml"


def sibling(
    number: int = 1, most: int = 1, event_type: str = "pull_request", *, certain: bool = True, fresh: bool = False
) -> Sibling:
    return Sibling(f"22222222-{number:04}", event_type, most, certain, fresh)


def started(*titles: str, path: str = ONE) -> list[Started]:
    return [Started(path, title) for title in titles]


def said(runs: list[Started], *siblings: Sibling, workflow: str | None = None) -> Arrival:
    return what_runs_say(runs, delivery_id=OURS, event_type="pull_request", workflow=workflow, siblings=siblings)


NAMELESS = "pull_request"
CASES = {
    "no run at all": (said([]), Arrival.ABSENT),
    "one, and nobody else": (said(started(NAMELESS)), Arrival.ARRIVED),
    "one that names us": (said(started(f"crcr {OURS}"), sibling(most=5)), Arrival.ARRIVED),
    "one, and another was taken": (said(started(NAMELESS), sibling()), Arrival.ABSENT),
    "one more than another can have started": (said(started(NAMELESS, NAMELESS), sibling()), Arrival.ARRIVED),
    "one, and another may have arrived": (said(started(NAMELESS), sibling(certain=False)), Arrival.UNKNOWN),
    "one, and another was taken just now": (
        said(started(NAMELESS), sibling(certain=False, fresh=True)),
        Arrival.UNSETTLED,
    ),
    "two, and of two others one was taken just now and one may have arrived": (
        said(started(NAMELESS, NAMELESS), sibling(certain=False, fresh=True), sibling(2, certain=False)),
        Arrival.UNKNOWN,
    ),
    "two, and another was tried twice": (said(started(NAMELESS, NAMELESS), sibling(most=2)), Arrival.UNKNOWN),
    "one of each file, and another was taken": (
        said([*started(NAMELESS), *started(NAMELESS, path=TWO)], sibling()),
        Arrival.ABSENT,
    ),
    "two of one file, and another was taken": (
        said([*started(NAMELESS, NAMELESS), *started(NAMELESS, path=TWO)], sibling()),
        Arrival.ARRIVED,
    ),
    "one that names another": (said(started("crcr 22222222-0001"), sibling()), Arrival.ABSENT),
    "one beside that of another, which bears its name": (
        said(started(NAMELESS, "crcr 22222222-0001"), sibling(most=2)),
        Arrival.UNKNOWN,
    ),
    "one of a type of ours that this one is not": (
        said(started("push"), sibling(event_type="push")),
        Arrival.ABSENT,
    ),
    "one, and a push was taken, to which the file need not listen": (
        said(started(NAMELESS), sibling(event_type="push")),
        Arrival.ARRIVED,
    ),
    "one that somebody else may have started": (said(started("deploy")), Arrival.UNKNOWN),
    "one that somebody else may have started, of the pinned file": (
        said(started("deploy"), workflow=ONE.upper()),
        Arrival.ARRIVED,
    ),
    "one of the pinned file, and another was taken": (said(started("#7"), sibling(), workflow=ONE), Arrival.ABSENT),
}


@pytest.mark.parametrize("case", CASES)
def test_runs_are_counted_against_what_others_may_have_started(case: str) -> None:
    """More than theirs: it arrived. No more than theirs for certain: it did not. Between them nobody can tell."""
    found, expected = CASES[case]

    assert expected is found


FATES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=4)


@given(others=FATES, ours=st.integers(0, 3), named=st.booleans())
def test_whatever_happened_it_is_neither_lost_nor_called_absent_where_it_ran(
    others: list[tuple[int, int, bool]], ours: int, named: bool
) -> None:
    """Others start up to as many as they may, and each that was taken at least one; ours are the rest."""
    siblings, runs = [], started(*[NAMELESS] * ours)
    for number, (spare, ran, certain) in enumerate(others):
        siblings.append(sibling(number, max(1, ran + spare), certain=certain and ran > 0))
        runs += started(*[f"crcr {siblings[-1].delivery_id}" if named else NAMELESS] * ran)

    found = said(runs, *siblings)

    assert found is not (Arrival.ABSENT if ours else Arrival.ARRIVED)
