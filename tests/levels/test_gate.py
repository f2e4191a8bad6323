"""The gate: one verdict for many backends, and the worst of them decides."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allowlist.model import Level, OnSilence, RepoName
from levels.gate import GateVerdict, Required, decide
from levels.outcomes import GateEffect, Outcome

#: Spelled out here and not read from the code: what L4 backends do to the gate, worst first.
GROUPS = (
    ("failure", ["failure", "cancelled", "timed_out", "action_required", "lost", "incomplete", "disputed"]),
    (None, ["queued", "running"]),
    ("neutral", ["silent", "undelivered", "paused", "skipped", "neutral"]),
    ("success", ["success", "filtered", "unlisted", "not_required"]),
)
CONCLUSION_OF = {outcome: conclusion for conclusion, outcomes in GROUPS for outcome in outcomes}
RANK_OF = {outcome: rank for rank, (_, outcomes) in enumerate(GROUPS) for outcome in outcomes}


def l4(outcome: str, name: str = "org/xpu", level: Level = Level.L4) -> Required:
    """A backend of this outcome; at L4 unless said otherwise."""
    return Required(RepoName.parse(name), level, Outcome(outcome), OnSilence.STEP_DOWN, detail=f"it is {outcome}")


def verdict(*outcomes: str) -> GateVerdict:
    """The gate over L4 backends of these outcomes."""
    return decide(l4(outcome, f"org/b{number}") for number, outcome in enumerate(outcomes))


@pytest.mark.parametrize("outcome", CONCLUSION_OF)
def test_one_backend_alone_decides_its_gate(outcome: str) -> None:
    """Each outcome has the conclusion that the design's table gives it, and a pending gate is not completed."""
    conclusion = CONCLUSION_OF[outcome]

    assert conclusion == verdict(outcome).conclusion
    assert ("in_progress" if conclusion is None else "completed") == verdict(outcome).status


@pytest.mark.parametrize("one", CONCLUSION_OF)
def test_of_two_backends_the_worse_decides(one: str) -> None:
    """Blocks over pending over neutral over success, whichever is named first."""
    for other in CONCLUSION_OF:
        worse = min(one, other, key=RANK_OF.__getitem__)

        assert CONCLUSION_OF[worse] == verdict(one, other).conclusion == verdict(other, one).conclusion


def test_a_gate_without_backends_is_green_at_once() -> None:
    """A required check that nobody answers would hold every pull request of a project without L4 backends."""
    assert ("success", "completed", ()) == (decide([]).conclusion, decide([]).status, decide([]).lines)


@pytest.mark.parametrize("level", [Level.L1, Level.L2, Level.L3])
def test_nothing_below_l4_touches_the_gate(level: Level) -> None:
    """A failing L3 backend is told of, listed and never blocks, and it is not waited for."""
    for outcome in Outcome:
        gate = decide([l4(outcome, level=level)])

        assert "success" == gate.conclusion
        assert [(GateEffect.NOT_REQUIRED, outcome)] == [(line.effect, line.outcome) for line in gate.lines]


def test_the_lines_say_why_worst_first() -> None:
    """A reviewer reads the reason in the first line; every backend has one, those that count for nothing too."""
    gate = decide(
        [l4("success", "org/a"), l4("running", "org/b"), l4("failure", "org/c", Level.L2), l4("lost", "org/d")]
    )

    assert [
        ("org/d", "blocks", "lost", Level.L4, "it is lost"),
        ("org/b", "pending", "running", Level.L4, "it is running"),
        ("org/a", "passes", "success", Level.L4, "it is success"),
        ("org/c", "not_required", "failure", Level.L2, "it is failure"),
    ] == [(str(line.backend), line.effect, line.outcome, line.level, line.detail) for line in gate.lines]


def test_silence_blocks_where_the_entry_asks_for_it() -> None:
    """``on_silence: block`` belongs to one backend and leaves its neighbours alone."""
    strict = Required(RepoName.parse("org/strict"), Level.L4, Outcome.SILENT, OnSilence.BLOCK)

    assert "neutral" == decide([l4("silent")]).conclusion
    assert "failure" == decide([l4("silent"), strict]).conclusion


def test_settings_move_a_cell_of_the_gate() -> None:
    """A project that wants skipped runs to block can have it."""
    assert "failure" == decide([l4("skipped")], {Outcome.SKIPPED: GateEffect.BLOCKS}).conclusion


def test_a_setting_that_would_hide_a_missing_result_is_refused_before_anything_is_weighed() -> None:
    """It is refused with no backend at all, so that it is found at the first gate and not at the first silence."""
    with pytest.raises(ValueError, match="silent cannot be set to passes"):
        decide([], {Outcome.SILENT: GateEffect.PASSES})


BACKENDS = st.lists(
    st.builds(
        l4,
        st.sampled_from(sorted(CONCLUSION_OF)),
        st.sampled_from(["org/a", "org/b", "org/c"]),
        st.sampled_from(Level),
    ),
    max_size=6,
)


@settings(deadline=None)
@given(BACKENDS, st.randoms(use_true_random=False))
def test_the_order_of_the_backends_means_nothing(backends: list[Required], chance: object) -> None:
    """Two replicas that list the backends differently must write the same check."""
    shuffled = list(backends)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]

    assert decide(backends) == decide(shuffled)


@settings(deadline=None)
@given(BACKENDS, BACKENDS)
def test_one_more_backend_never_makes_a_gate_better(backends: list[Required], more: list[Required]) -> None:
    """The gate is monotone: adding a backend can hold a merge up, and never let one through."""
    order = ["failure", None, "neutral", "success"]

    assert order.index(decide(backends).conclusion) >= order.index(decide([*backends, *more]).conclusion)


@settings(deadline=None)
@given(BACKENDS)
def test_a_green_gate_means_that_every_gating_backend_is_green(backends: list[Required]) -> None:
    """Promise 6 seen from the reviewer's side: success is said of nobody who has not said it."""
    gating = [RANK_OF[one.outcome] for one in backends if one.level is Level.L4]

    assert CONCLUSION_OF[GROUPS[min(gating, default=3)][1][0]] == decide(backends).conclusion
