"""What is left of a backend's say once a person answers for it."""

from __future__ import annotations

import pytest

from allowlist.model import Level, OnSilence, RepoName
from levels.gate import OVERRIDDEN, Required, decide
from levels.outcomes import GATE_TABLE, Conclusion, GateEffect, Outcome

NPU, XPU = RepoName("org", "npu"), RepoName("org", "xpu")
B, P, S, G, N = (
    GateEffect.BLOCKS,
    GateEffect.PENDING,
    GateEffect.STEPS_DOWN,
    GateEffect.PASSES,
    GateEffect.NOT_REQUIRED,
)


def one(outcome: Outcome, *, backend: RepoName = NPU, level: Level = Level.L4, overridden: bool = True) -> Required:
    """A backend with this outcome."""
    return Required(backend, level, outcome, OnSilence.STEP_DOWN, overridden=overridden)


@pytest.mark.parametrize(("effect", "left"), [(B, S), (P, S), (S, S), (G, G), (N, N)])
def test_each_effect_leaves_this(effect: GateEffect, left: GateEffect) -> None:
    """What blocks or is awaited steps down; a result that passes by itself needs nobody."""
    assert left is OVERRIDDEN[effect]


@pytest.mark.parametrize("outcome", list(Outcome))
def test_no_override_turns_a_gate_green_or_holds_it_back(outcome: Outcome) -> None:
    """The gate is as green as without it, and never red or waiting for that backend."""
    verdict = decide([one(outcome)])

    assert verdict.effect in {GateEffect.STEPS_DOWN, GateEffect.PASSES}
    assert (verdict.effect is GateEffect.PASSES) == (
        GATE_TABLE[outcome] in {GateEffect.PASSES, GateEffect.NOT_REQUIRED}
    )


def test_silence_that_blocks_can_be_overridden() -> None:
    """The entry's own strictness is what a person takes responsibility for."""
    silent = Required(NPU, Level.L4, Outcome.SILENT, OnSilence.BLOCK, overridden=True)

    assert Conclusion.NEUTRAL is decide([silent]).conclusion


@pytest.mark.parametrize(
    ("outcome", "conclusion"),
    [(Outcome.FAILURE, Conclusion.FAILURE), (Outcome.RUNNING, None), (Outcome.SUCCESS, Conclusion.NEUTRAL)],
)
def test_the_other_backends_keep_their_say(outcome: Outcome, conclusion: Conclusion | None) -> None:
    """An override is about one backend; the worst of all still decides."""
    verdict = decide([one(Outcome.FAILURE), one(outcome, backend=XPU, overridden=False)])

    assert conclusion == verdict.conclusion


def test_a_backend_that_cannot_block_stays_out_of_it() -> None:
    """An override of an L3 backend would make a green gate neutral for nothing."""
    assert Conclusion.SUCCESS is decide([one(Outcome.FAILURE, level=Level.L3)]).conclusion
