"""The one required check: many backends become one verdict, and the worst of them decides.

A verdict carries its lines, so that whoever shows it can say for each backend why the gate waits, blocks or passes.
Which changes a gate stands on, and that a superseded gate ends as cancelled, is not decided here: this only weighs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from allowlist.model import Level, OnSilence, RepoName
from levels.legs import Status
from levels.outcomes import NO_OVERRIDES, Conclusion, GateEffect, Outcome, check_overrides, effect_of
from levels.powers import POWERS

#: The order is the meaning: the gate takes the first of these effects that any backend has.
WORST_FIRST: tuple[GateEffect, ...] = (
    GateEffect.BLOCKS,
    GateEffect.PENDING,
    GateEffect.STEPS_DOWN,
    GateEffect.PASSES,
    GateEffect.NOT_REQUIRED,
)

#: What the check run shows for a verdict; None while it is not completed. GitHub lets a pull request merge on success,
#: neutral and skipped, and on nothing else.
#: https://docs.github.com/pull-requests/collaborating-with-pull-requests/collaborating-on-repositories-with-code-quality-features/troubleshooting-required-status-checks
CONCLUSIONS: Mapping[GateEffect, Conclusion | None] = MappingProxyType(
    {
        GateEffect.BLOCKS: Conclusion.FAILURE,
        GateEffect.PENDING: None,
        GateEffect.STEPS_DOWN: Conclusion.NEUTRAL,
        GateEffect.PASSES: Conclusion.SUCCESS,
    }
)

#: What is left of an effect once a person answers for the backend. An override never turns a gate green: it lets the
#: merge go on with a neutral gate that says who and why, and takes nothing from a result that passes by itself.
OVERRIDDEN: Mapping[GateEffect, GateEffect] = MappingProxyType(
    {
        GateEffect.BLOCKS: GateEffect.STEPS_DOWN,
        GateEffect.PENDING: GateEffect.STEPS_DOWN,
        GateEffect.STEPS_DOWN: GateEffect.STEPS_DOWN,
        GateEffect.PASSES: GateEffect.PASSES,
        GateEffect.NOT_REQUIRED: GateEffect.NOT_REQUIRED,
    }
)


@dataclass(frozen=True, slots=True)
class Required:
    """One backend as the gate sees it: its level at dispatch, and what has become of it.

    ``overridden`` says that a person has taken responsibility for its answer on this head.
    """

    backend: RepoName
    level: Level
    outcome: Outcome
    on_silence: OnSilence
    detail: str = ""
    overridden: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """What one backend contributes to the verdict, and the facts it comes from."""

    backend: RepoName
    effect: GateEffect
    outcome: Outcome
    level: Level
    detail: str = ""


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """The gate's answer. ``effect`` is never NOT_REQUIRED: where nothing is required, the gate passes.

    The lines stand worst first, then by name.
    """

    effect: GateEffect
    lines: tuple[Line, ...]

    @property
    def status(self) -> Status:
        """The check run's status: in_progress while a backend is awaited, else completed."""
        return Status.IN_PROGRESS if self.conclusion is None else Status.COMPLETED

    @property
    def conclusion(self) -> Conclusion | None:
        """The check run's conclusion: success, failure, neutral, or None while a backend is awaited."""
        return CONCLUSIONS[self.effect]


def decide(backends: Iterable[Required], overrides: Mapping[Outcome, GateEffect] = NO_OVERRIDES) -> GateVerdict:
    """Weigh all backends of one head. Raises ValueError for overrides that ``check_overrides`` refuses."""
    check_overrides(overrides)
    lines = sorted((_line(one, overrides) for one in backends), key=_worst_then_name)
    effect = lines[0].effect if lines else GateEffect.NOT_REQUIRED
    if effect is GateEffect.NOT_REQUIRED:
        effect = GateEffect.PASSES
    return GateVerdict(effect, tuple(lines))


def _line(one: Required, overrides: Mapping[Outcome, GateEffect]) -> Line:
    effect = GateEffect.NOT_REQUIRED
    if POWERS[one.level].blocks:
        effect = effect_of(one.outcome, on_silence=one.on_silence, overrides=overrides)
    if one.overridden:
        effect = OVERRIDDEN[effect]
    return Line(one.backend, effect, one.outcome, one.level, one.detail)


def _worst_then_name(line: Line) -> tuple[int, RepoName, Outcome, Level, str]:
    return WORST_FIRST.index(line.effect), line.backend, line.outcome, line.level, line.detail
