"""What can become of a backend's run, and what each outcome means for the gate.

The table is a default. Settings may move a cell, within two bounds that no setting can cross, because they are what
a reviewer relies on: a gate turns green only by a result, and a gate that is decided does not wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType

from allowlist.model import OnSilence


class Conclusion(StrEnum):
    """How a leg ended, in GitHub's words; these seven are all that a callback may say."""

    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    TIMED_OUT = "timed_out"
    ACTION_REQUIRED = "action_required"


#: The order is the meaning: where several conclusions meet, the one that stands first here decides.
WORST_FIRST: tuple[Conclusion, ...] = (
    Conclusion.FAILURE,
    Conclusion.TIMED_OUT,
    Conclusion.ACTION_REQUIRED,
    Conclusion.CANCELLED,
    Conclusion.SKIPPED,
    Conclusion.NEUTRAL,
    Conclusion.SUCCESS,
)

#: The conclusions that settle a backend's outcome at once, however many legs are still running.
FAILURE_LIKE = frozenset({Conclusion.FAILURE, Conclusion.TIMED_OUT, Conclusion.ACTION_REQUIRED, Conclusion.CANCELLED})

_RANK = {conclusion: rank for rank, conclusion in enumerate(WORST_FIRST)}


def badness(conclusion: Conclusion) -> int:
    """Where the conclusion stands in WORST_FIRST; the smaller, the worse. For sorting."""
    return _RANK[conclusion]


def worst(conclusions: Iterable[Conclusion]) -> Conclusion:
    """The conclusion that decides among these. Raises ValueError for none at all: nothing is not a success."""
    return min(conclusions, key=_RANK.__getitem__)


class Outcome(StrEnum):
    """What has become of one backend for one change, as far as we know."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    ACTION_REQUIRED = "action_required"
    LOST = "lost"
    INCOMPLETE = "incomplete"
    DISPUTED = "disputed"
    SILENT = "silent"
    UNDELIVERED = "undelivered"
    PAUSED = "paused"
    SKIPPED = "skipped"
    NEUTRAL = "neutral"
    FILTERED = "filtered"
    UNLISTED = "unlisted"
    NOT_REQUIRED = "not_required"


class GateEffect(StrEnum):
    """What one backend's outcome does to the gate."""

    PASSES = "passes"
    PENDING = "pending"
    BLOCKS = "blocks"
    STEPS_DOWN = "steps_down"
    NOT_REQUIRED = "not_required"


GATE_TABLE: Mapping[Outcome, GateEffect] = MappingProxyType(
    {
        Outcome.QUEUED: GateEffect.PENDING,
        Outcome.RUNNING: GateEffect.PENDING,
        Outcome.SUCCESS: GateEffect.PASSES,
        Outcome.FAILURE: GateEffect.BLOCKS,
        Outcome.CANCELLED: GateEffect.BLOCKS,
        Outcome.TIMED_OUT: GateEffect.BLOCKS,
        Outcome.ACTION_REQUIRED: GateEffect.BLOCKS,
        Outcome.LOST: GateEffect.BLOCKS,
        Outcome.INCOMPLETE: GateEffect.BLOCKS,
        Outcome.DISPUTED: GateEffect.BLOCKS,
        Outcome.SILENT: GateEffect.STEPS_DOWN,
        Outcome.UNDELIVERED: GateEffect.STEPS_DOWN,
        Outcome.PAUSED: GateEffect.STEPS_DOWN,
        Outcome.SKIPPED: GateEffect.STEPS_DOWN,
        Outcome.NEUTRAL: GateEffect.STEPS_DOWN,
        Outcome.FILTERED: GateEffect.NOT_REQUIRED,
        Outcome.UNLISTED: GateEffect.NOT_REQUIRED,
        Outcome.NOT_REQUIRED: GateEffect.NOT_REQUIRED,
    }
)

#: The outcomes that may leave a gate green: a result that says so, or a backend that was never asked for one.
MAY_TURN_GREEN = frozenset({Outcome.SUCCESS, Outcome.NEUTRAL, Outcome.FILTERED, Outcome.UNLISTED, Outcome.NOT_REQUIRED})

#: The outcomes that something is still expected to follow.
UNSETTLED = frozenset({Outcome.QUEUED, Outcome.RUNNING})

NO_OVERRIDES: Mapping[Outcome, GateEffect] = MappingProxyType({})

_GREEN = frozenset({GateEffect.PASSES, GateEffect.NOT_REQUIRED})


def check_overrides(overrides: Mapping[Outcome, GateEffect]) -> None:
    """Raise ValueError for the first cell that no setting may have, naming the cell, the rule and what to use."""
    for outcome, effect in overrides.items():
        if effect in _GREEN and outcome not in MAY_TURN_GREEN:
            raise ValueError(
                f"outcome {outcome!s} cannot be set to {effect!s}: a gate turns green only by a result, and "
                f"{outcome!s} is none; use {GateEffect.STEPS_DOWN!s} to let the merge go on with a neutral gate"
            )
        if effect == GateEffect.PENDING and outcome not in UNSETTLED:
            raise ValueError(
                f"outcome {outcome!s} cannot be set to {effect!s}: nothing is due to follow it, so the gate would "
                f"wait for ever; use {GateEffect.STEPS_DOWN!s} or {GateEffect.BLOCKS!s}"
            )


def effect_of(
    outcome: Outcome, *, on_silence: OnSilence, overrides: Mapping[Outcome, GateEffect] = NO_OVERRIDES
) -> GateEffect:
    """What this outcome of a gating backend does to the gate.

    ``on_silence`` is the entry's own word and can only make silence stricter than the table and the settings do.
    Raises ValueError for overrides that ``check_overrides`` refuses.
    """
    check_overrides(overrides)
    if outcome is Outcome.SILENT and on_silence is OnSilence.BLOCK:
        return GateEffect.BLOCKS
    return overrides.get(outcome, GATE_TABLE[outcome])
