"""The page of a change and the API say of failing tests what its check says: whether the base fails them too."""

from __future__ import annotations

import pytest

from tests.edge.browsing import Read
from tests.edge.shown import Shown

ADD, MUL = ("test_add", "suite.Ops", "expected 3"), ("test_mul", "suite.Ops", "expected 4")
SCRIPT = "<script>alert(1)</script>"


def failing_on_base(shown: Shown, branch: str = "main", *, private: bool = False) -> tuple[int, int]:
    """A push that fails by one test, and a pull request that fails by it and another; their ids."""
    record = shown.record
    push = record.change("b" * 40, number=90, kind="push")
    record.edit_change(push, ref=f"refs/heads/{branch}", number=None)
    change = record.change("d" * 40, number=91)
    record.edit_change(change, base_ref=branch)
    for head, tests in ((push, [ADD]), (change, [ADD, MUL])):
        told = record.told(head, private=private)
        record.report(told, "failure", tests=tests, counts=(5, len(tests), 0))
    return push, change


def test_the_page_names_what_is_known_and_links_where(shown: Shown) -> None:
    """Next to the test itself, and where a reader asks whether it is this change."""
    push, change = failing_on_base(shown)

    page = shown.page(f"/changes/{change}")

    assert "1 of 2 failing tests fails on main too (bbbbbbb, " in page
    assert 1 == page.count('<span class="chip plain">known on base</span>')
    assert f"/changes/{push}" in [link["href"] for link in Read(page).all("a")]


def test_the_api_says_the_same(shown: Shown) -> None:
    """A program reads the counts, and which tests they are."""
    push, change = failing_on_base(shown)

    (told,) = shown.json(f"/changes/{change}")["backends"]

    run = {"change_id": push, "head_sha": "b" * 40, "passed": False, "named": 1}
    assert run == {name: told["base"]["run"][name] for name in run}
    assert ("main", 2, 1, False) == tuple(told["base"][name] for name in ("branch", "failing", "known", "whole"))
    tests = [test for one in told["combinations"] for leg in one["legs"] for test in leg["failed_tests"]]
    assert [("test_mul", False), ("test_add", True)] == [(test["name"], test["on_base"]) for test in tests]


def test_of_a_private_backend_only_counts_are_shown(by_sqlite: Shown) -> None:
    """The names of its tests stay hidden on both sides of the comparison."""
    _, change = failing_on_base(by_sqlite, private=True)

    page = by_sqlite.page(f"/changes/{change}")

    assert "1 of 2 failing tests fails on main too" in page
    assert "test_add" not in page
    assert "test_add" not in str(by_sqlite.json(f"/changes/{change}"))


@pytest.mark.parametrize("branch", [SCRIPT, "\" onmouseover='x'"])
def test_a_branch_s_name_stays_text(by_sqlite: Shown, branch: str) -> None:
    """Whoever may make branches at upstream writes it."""
    _, change = failing_on_base(by_sqlite, branch)

    page = Read(by_sqlite.page(f"/changes/{change}"))

    assert [] == page.all("script")
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
