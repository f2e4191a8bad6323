"""The outcome table, cell by cell, spelled out here and not read from the code; and what settings may not do to it."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allowlist.model import OnSilence
from levels.outcomes import (
    FAILURE_LIKE,
    GATE_TABLE,
    WORST_FIRST,
    Conclusion,
    GateEffect,
    Outcome,
    badness,
    check_overrides,
    effect_of,
    worst,
)

GATE = {
    "queued": "pending",
    "running": "pending",
    "success": "passes",
    "failure": "blocks",
    "cancelled": "blocks",
    "timed_out": "blocks",
    "action_required": "blocks",
    "lost": "blocks",
    "incomplete": "blocks",
    "disputed": "blocks",
    "silent": "steps_down",
    "undelivered": "steps_down",
    "paused": "steps_down",
    "skipped": "steps_down",
    "neutral": "steps_down",
    "filtered": "not_required",
    "unlisted": "not_required",
    "not_required": "not_required",
}
#: Everything but a result that says so, and a backend that was never asked for one.
NEVER_GREEN = sorted(set(GATE) - {"success", "neutral", "filtered", "unlisted", "not_required"})


@pytest.mark.parametrize("outcome", GATE)
def test_each_outcome_does_this_to_the_gate(outcome: str) -> None:
    """The table is the policy: whoever changes a cell changes this line too, and a reviewer sees both."""
    assert GATE[outcome] == effect_of(Outcome(outcome), on_silence=OnSilence.STEP_DOWN)


def test_every_outcome_has_a_cell_and_every_conclusion_is_an_outcome() -> None:
    """A conclusion that arrives must never meet a table without a cell for it."""
    assert set(GATE) == set(GATE_TABLE) == {str(outcome) for outcome in Outcome}
    assert {str(conclusion) for conclusion in Conclusion} <= set(GATE)


def test_an_entry_can_make_silence_block_and_nothing_else() -> None:
    """``on_silence: block`` is about silence: a paused or undelivered backend still steps down."""
    changed = {o for o in Outcome if effect_of(o, on_silence=OnSilence.BLOCK) is not GATE_TABLE[o]}

    assert {Outcome.SILENT} == changed
    assert GateEffect.BLOCKS is effect_of(Outcome.SILENT, on_silence=OnSilence.BLOCK)


def test_settings_move_a_cell_but_cannot_soften_an_entry_that_blocks_on_silence() -> None:
    """The entry's own word is the stricter of the two, and it was given for this backend."""
    overrides = {Outcome.SKIPPED: GateEffect.BLOCKS, Outcome.SILENT: GateEffect.STEPS_DOWN}

    assert GateEffect.BLOCKS is effect_of(Outcome.SKIPPED, on_silence=OnSilence.STEP_DOWN, overrides=overrides)
    assert GateEffect.BLOCKS is effect_of(Outcome.SILENT, on_silence=OnSilence.BLOCK, overrides=overrides)
    assert GateEffect.STEPS_DOWN is effect_of(Outcome.SILENT, on_silence=OnSilence.STEP_DOWN, overrides=overrides)


@pytest.mark.parametrize(("outcome", "effect"), list(product(NEVER_GREEN, ["passes", "not_required"])))
def test_no_setting_turns_a_missing_result_green(outcome: str, effect: str) -> None:
    """A missing result never concludes success, whatever the settings say; the answer names what to use instead."""
    with pytest.raises(ValueError, match=f"outcome {outcome} cannot be set to {effect}: .*; use steps_down"):
        effect_of(Outcome.SUCCESS, on_silence=OnSilence.STEP_DOWN, overrides={Outcome(outcome): GateEffect(effect)})


@pytest.mark.parametrize("outcome", sorted(set(GATE) - {"queued", "running"}))
def test_no_setting_makes_a_decided_backend_keep_the_gate_waiting(outcome: str) -> None:
    """No pull request waits for something that is not coming."""
    with pytest.raises(ValueError, match=f"outcome {outcome} cannot be set to pending: .* wait for ever"):
        check_overrides({Outcome(outcome): GateEffect.PENDING})


def test_every_other_cell_is_the_settings_to_choose() -> None:
    """The two bounds above are all there are: a project may be stricter, or kinder, anywhere else."""
    for outcome, effect in product(GATE, ["passes", "pending", "blocks", "steps_down", "not_required"]):
        turns_green = effect in {"passes", "not_required"} and outcome in NEVER_GREEN
        waits_for_ever = effect == "pending" and outcome not in {"queued", "running"}
        if not turns_green and not waits_for_ever:
            overrides = {Outcome(outcome): GateEffect(effect)}
            assert GateEffect(effect) is effect_of(
                Outcome(outcome), on_silence=OnSilence.STEP_DOWN, overrides=overrides
            )


def test_the_order_of_conclusions_from_worst_to_best() -> None:
    """Where two meet, the worse decides, and this order is what worse means."""
    order = ["failure", "timed_out", "action_required", "cancelled", "skipped", "neutral", "success"]

    assert order == [str(conclusion) for conclusion in WORST_FIRST]
    assert order == sorted((str(c) for c in Conclusion), key=lambda c: badness(Conclusion(c)))


def test_four_conclusions_are_failures_and_three_are_not() -> None:
    """A cancelled leg is no way around the gate; a skipped or neutral one is no failure."""
    assert {"failure", "timed_out", "action_required", "cancelled"} == {str(c) for c in FAILURE_LIKE}


@given(st.lists(st.sampled_from(Conclusion), min_size=1, max_size=8))
def test_the_worst_is_one_of_them_and_none_is_worse(conclusions: list[Conclusion]) -> None:
    """The worst wins, in any order and however often the others are there."""
    chosen = worst(conclusions)

    assert chosen in conclusions
    assert [] == [other for other in conclusions if badness(other) < badness(chosen)]
    assert (chosen is Conclusion.SUCCESS) == (set(conclusions) == {Conclusion.SUCCESS})


def test_nothing_at_all_has_no_worst() -> None:
    """No conclusions are not a success."""
    with pytest.raises(ValueError, match="empty"):
        worst([])
