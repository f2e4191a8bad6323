"""What GitHub itself shows of a backend's runs, and what that says where reports are missing.

A run is no result: whatever it shows, success is only ever concluded from reports. What a run can say is that there is
something to wait for, that it failed, or that it is over and its reports are missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from levels.outcomes import FAILURE_LIKE, Conclusion, Outcome, worst

#: GitHub's words for an end that a callback may not use.
#: https://docs.github.com/rest/actions/workflow-runs
_FURTHER_WORDS = {"startup_failure": Conclusion.FAILURE, "stale": Conclusion.TIMED_OUT}
_WORDS = {str(conclusion): conclusion for conclusion in Conclusion} | _FURTHER_WORDS


def conclusion_shown(word: str | None) -> Conclusion | None:
    """GitHub's word for how a run or job ended, as one of ours; a word that is not known says nothing either way."""
    return None if word is None else _WORDS.get(word, Conclusion.NEUTRAL)


@dataclass(frozen=True)
class RunShown:
    """One attempt of a run as GitHub shows it; ``conclusion`` is None until it has ended."""

    run_id: str
    run_attempt: int
    conclusion: Conclusion | None


def newest_attempts(runs: Iterable[RunShown]) -> tuple[RunShown, ...]:
    """Each run in its newest attempt: that an older one failed is why there is a newer one."""
    newest: dict[str, RunShown] = {}
    for run in runs:
        if run.run_id not in newest or run.run_attempt > newest[run.run_id].run_attempt:
            newest[run.run_id] = run
    return tuple(newest[run_id] for run_id in sorted(newest))


def filled_in(runs: Iterable[RunShown]) -> Outcome | None:
    """What a backend that has reported nothing amounts to by its runs alone, None where it has none.

    A run that succeeded and whose reports are missing is waited for until its deadline.
    """
    newest = newest_attempts(runs)
    ended = [run.conclusion for run in newest if run.conclusion is not None]
    if not newest:
        return None
    bad = [conclusion for conclusion in ended if conclusion in FAILURE_LIKE]
    if bad:
        return Outcome(str(worst(bad)))
    if len(ended) < len(newest) or worst(ended) is Conclusion.SUCCESS:
        return Outcome.RUNNING
    # Settings may let a neutral result pass. A run that ended so is no result, and must not turn a gate green.
    return Outcome.SKIPPED if worst(ended) is Conclusion.SKIPPED else Outcome.SILENT


def at_deadline(ours: Outcome, runs: Iterable[RunShown], *, reported: bool) -> Outcome:
    """What a deadline concludes, given what GitHub showed when it was asked; ``ours`` where it showed nothing.

    ``reported`` says whether anything was. A run that is still going has timed out and is not lost; one that ended well
    without its reports is incomplete, and lost where it had reported a start.
    """
    newest = newest_attempts(runs)
    filled = filled_in(newest)
    if filled is None:
        return ours
    if filled is not Outcome.RUNNING:
        # What was reported is more than a run that skipped everything.
        return filled if not reported or filled in _FAILED else ours
    if any(run.conclusion is None for run in newest):
        return Outcome.TIMED_OUT
    return ours if reported else Outcome.INCOMPLETE


_FAILED = frozenset(Outcome(str(conclusion)) for conclusion in FAILURE_LIKE)
