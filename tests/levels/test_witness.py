"""What GitHub shows of runs fills in for missing reports, and never says that something passed."""

from __future__ import annotations

from itertools import product

import pytest

from levels.legs import fold
from levels.lifecycle import Expectation, stand
from levels.outcomes import MAY_TURN_GREEN, Conclusion, Outcome
from levels.witness import RunShown, at_deadline, conclusion_shown, filled_in, newest_attempts
from tests.levels.reports import report

ENDS = [None, *Conclusion]


def shown(*conclusions: Conclusion | str | None) -> list[RunShown]:
    """One run for each of these, in its first attempt."""
    return [
        RunShown(str(number), 1, None if end is None else Conclusion(end)) for number, end in enumerate(conclusions)
    ]


@pytest.mark.parametrize(
    ("word", "means"),
    [
        (None, None),
        ("success", "success"),
        ("startup_failure", "failure"),
        ("stale", "timed_out"),
        ("a word of tomorrow", "neutral"),
    ],
)
def test_every_word_of_github_s_means_something(word: str | None, means: str | None) -> None:
    """A word that nobody has heard of is no success and no failure."""
    assert means == conclusion_shown(word)


def test_no_run_says_nothing() -> None:
    """Where there is no run, silence is silence and a loss is a loss."""
    assert filled_in([]) is None
    assert [Outcome.SILENT, Outcome.LOST] == [
        at_deadline(ours, [], reported=ours is Outcome.LOST) for ours in (Outcome.SILENT, Outcome.LOST)
    ]


@pytest.mark.parametrize(
    ("runs", "so_far", "silent", "lost"),
    [
        ((None,), "running", "timed_out", "timed_out"),
        (("success",), "running", "incomplete", "lost"),
        (("failure",), "failure", "failure", "failure"),
        (("cancelled",), "cancelled", "cancelled", "cancelled"),
        (("timed_out",), "timed_out", "timed_out", "timed_out"),
        (("action_required",), "action_required", "action_required", "action_required"),
        (("skipped",), "skipped", "skipped", "lost"),
        (("neutral",), "silent", "silent", "lost"),
        (("success", "skipped"), "skipped", "skipped", "lost"),
        (("success", None), "running", "timed_out", "timed_out"),
        (("skipped", None), "running", "timed_out", "timed_out"),
        (("failure", None), "failure", "failure", "failure"),
        (("cancelled", "failure"), "failure", "failure", "failure"),
    ],
)
def test_what_runs_fill_in(runs: tuple[str | None, ...], so_far: str, silent: str, lost: str) -> None:
    """Before a deadline, at the deadline of one that said nothing, and of one that had reported a start."""
    seen = shown(*runs)

    assert so_far == filled_in(seen)
    assert silent == at_deadline(Outcome.SILENT, seen, reported=False)
    assert lost == at_deadline(Outcome.LOST, seen, reported=True)


def test_no_run_ever_makes_a_success() -> None:
    """Whatever up to three runs show, success is said by reports alone."""
    for ends in (ends for count in range(4) for ends in product(ENDS, repeat=count)):
        told = {filled_in(shown(*ends))}
        for ours, reported in product((Outcome.SILENT, Outcome.LOST, Outcome.TIMED_OUT), (False, True)):
            told.add(at_deadline(ours, shown(*ends), reported=reported))
        assert Outcome.SUCCESS not in told


def test_only_the_newest_attempt_counts() -> None:
    """That the first attempt failed is why there is a second one."""
    first, second = RunShown("7", 1, Conclusion.FAILURE), RunShown("7", 2, None)

    assert (second,) == newest_attempts([second, first])
    assert "running" == filled_in([first, second])


@pytest.mark.parametrize("end", ["failure", "cancelled", "action_required"])
def test_a_late_leg_does_not_undo_a_run_that_failed(end: str) -> None:
    """One job's success comes after the run was seen to fail: the rest is still missing, and stays failed."""
    legs = fold([report("success", 5), report("start", 5, job="other")])

    assert end == stand(legs, Expectation(), concluded=Outcome(end)).outcome
    assert end == stand(fold([report("success", 5)]), Expectation(jobs=2), concluded=Outcome(end)).outcome
    assert "success" == stand(fold([report("success", 5)]), Expectation(jobs=1), concluded=Outcome(end)).outcome


@pytest.mark.parametrize("end", Conclusion)
def test_no_setting_can_turn_a_gate_green_by_what_a_run_shows(end: Conclusion) -> None:
    """Only a result may, and a run is none: not even the neutral end that settings may let pass."""
    outcome = filled_in([RunShown("1", 1, end)])

    assert outcome not in MAY_TURN_GREEN
