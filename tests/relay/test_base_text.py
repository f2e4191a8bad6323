"""What is said of failing tests and the base branch: no more than is known, and harmless whatever it is called."""

from __future__ import annotations

from dataclasses import replace

import pytest

from levels.outcomes import Outcome
from relay.deciding.facts import BaseRun, FailedTest, OnBase
from relay.texts.base_text import base_markdown, base_plain, todo
from relay.texts.markup import MAX_TEXT, MAX_TITLE, size
from relay.texts.rendering import render_backend, render_gate
from relay.texts.replies import oncall_text
from relay.texts.words import PHRASES
from tests.relay.check_stories import BASE_FAILED, BASE_PASSED, FAILED, HEAD, NOON, PLACE, check, dispatch, gate, known
from tests.relay.test_hostile_words import NASTY, harmless

AT = "(ba5e00c, 13:05 UTC)"


@pytest.mark.parametrize(
    ("base", "said"),
    [
        (OnBase("main", None, 1), "org/npu has no results for main yet, so we cannot say whether this test fails"),
        (OnBase("main", None, 3), "org/npu has no results for main yet, so we cannot say whether these tests fail"),
        (
            OnBase("main", BASE_FAILED, 3, 3, True),
            f"All 3 failing tests fail on main too {AT}: known on base, not blamed on this change.",
        ),
        (OnBase("main", BASE_FAILED, 1, 1, True), f"Its only failing test fails on main too {AT}: known on base, not"),
        (OnBase("main", BASE_FAILED, 3, 3), "this change may still have a part in it."),
        (
            OnBase("main", BASE_FAILED, 3, 1, sure=True),
            f"1 of 3 failing tests fails on main too {AT}: known on base. The others do not.",
        ),
        (
            OnBase("main", BASE_FAILED, 3, 2, sure=True),
            f"fail on main too {AT}: known on base. The other one does not.",
        ),
        (OnBase("main", BASE_FAILED, 3, 2), f"fail on main too {AT}: known on base. Of the others it is not known."),
        (
            OnBase("main", BASE_FAILED, 3, sure=True),
            f"main fails there too {AT}, but by other tests: none of these fails there.",
        ),
        (OnBase("main", BASE_FAILED, 3), f"main fails there too {AT}, but by other tests as far as they are named: no"),
        (OnBase("main", replace(BASE_FAILED, named=0), 3), "without naming its tests, so we cannot say"),
        (OnBase("main", BASE_PASSED, 3), f"main passes there {AT}, so none of this is known on base."),
    ],
)
def test_the_sentence_claims_what_is_known_and_no_more(base: OnBase, said: str) -> None:
    """Not blamed only where all of it is known; where nothing is known that is said instead of a guess."""
    one = replace(dispatch(Outcome.FAILURE, FAILED), base=base)

    told = base_plain(one)

    assert said in told
    assert ("not blamed" in told) is base.whole
    assert told == base_markdown(one, PLACE).replace("`", "").replace("[", "").replace(
        "](<https://relay.test/changes/41>)", ""
    )


def test_without_a_base_nothing_is_said_of_it() -> None:
    """A failure without named tests is told as it always was."""
    one = dispatch(Outcome.FAILURE, FAILED)

    assert ("", "") == (base_plain(one), base_markdown(one, PLACE))
    assert PHRASES[Outcome.FAILURE].todo == todo(one)


def test_a_gate_that_blocks_by_known_failures_says_so_and_how_to_go_on() -> None:
    """The outcome stays as the table says; the reader learns that the change is not the cause, and what can be done."""
    one = known(dispatch(Outcome.FAILURE, FAILED), *(test.name for test in FAILED.failed_tests))

    shown = render_gate(gate(one), PLACE)

    assert "failure" == shown.conclusion
    assert "org/npu failed (known on base)" == shown.title
    assert "All 2 failing tests fail on `main` too ([`ba5e00c`](<https://relay.test/changes/41>)" in shown.summary
    assert "`/crcr rerun`" in shown.summary
    assert "`/crcr override org/npu REASON`" in shown.summary
    assert "look there first" in shown.summary


def test_the_word_to_on_calls_tells_it_too() -> None:
    """Whoever is called sees at once that the base is the place to look."""
    one = known(dispatch(Outcome.FAILURE, FAILED, oncalls=("alice",)), "test_matmul_fp16")

    told = oncall_text(one, HEAD, "https://relay.test/changes/1", NOON, PLACE)

    assert "1 of 2 failing tests fails on `main` too" in told
    assert "`test_matmul_fp16` in `tests.ops.TestMatmul` (known on base)" in told


def test_a_private_backend_shows_counts_and_no_names() -> None:
    """What is hidden in its check stays hidden beside the base."""
    one = replace(known(dispatch(Outcome.FAILURE, FAILED), "test_matmul_fp16"), private=True)

    shown = render_backend(check(one), PLACE)

    assert "1 of 2 failing tests fails on `main` too" in shown.summary
    assert "test_matmul_fp16" not in shown.summary + shown.text


@pytest.mark.parametrize("text", NASTY)
def test_hostile_branches_and_tests_stay_text(text: str) -> None:
    """A branch's and a test's name are written by others, on whatever side of the comparison they stand."""
    leg = replace(FAILED, job_name=text, failed_tests=(FailedTest(text, text, text, on_base=True),))
    for run in (BASE_FAILED, None):
        one = known(dispatch(Outcome.FAILURE, leg), text, branch=text, run=run)
        for shown in (render_backend(check(one), PLACE), render_gate(gate(one), PLACE)):
            harmless(shown.summary)
            harmless(shown.text)
            assert len(shown.title) <= MAX_TITLE
        harmless(oncall_text(one, HEAD, "https://relay.test/changes/1", NOON, PLACE))
        assert "\n" not in base_plain(one)


def test_any_number_of_known_tests_fits() -> None:
    """GitHub's bound holds with the notes as well."""
    tests = tuple(FailedTest("n" * 500, "c" * 500, "m" * 1_000, on_base=True) for _ in range(12))
    legs = [replace(FAILED, job_name=f"job {n}", failed_tests=tests, failed_tests_kept=1_000) for n in range(40)]
    run = BaseRun(2**63 - 1, "f" * 64, NOON, passed=False, named=5_000)
    one = replace(dispatch(Outcome.FAILURE, *legs), base=OnBase("b" * 1_024, run, 40_000, 5_000))

    shown = render_backend(check(one), PLACE)

    assert max(size(shown.summary), size(shown.text)) <= MAX_TEXT
    assert "more lines are left out here" in shown.text
