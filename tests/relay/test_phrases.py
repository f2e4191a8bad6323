"""The sentences of ``crcr why`` and of pages: each says what was decided, and what came of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from levels.outcomes import GateEffect
from relay.phrases import ANSWERS, answer_phrase, asked_phrase, elsewhere_sentence, gate_answer, why_line
from relay.store.reading.asked import AskedLine
from relay.store.reading.change import Elsewhere
from relay.store.reading.why import Why

AT = datetime(2026, 11, 30, 12, 0, 5, tzinfo=UTC)
TOLD = Why(
    delivery_id="d1",
    event="pull_request",
    action="opened",
    received_at=AT,
    head_sha="1" * 40,
    effect="dispatch",
    reason="wanted",
    detail="",
    dispatch_id=1,
    state="sent",
    state_reason="wanted",
    state_detail="",
    purpose="test",
    outcome="failure",
    owes=True,
    sent_at=AT,
)
LEFT_OUT = Why("d1", "push", None, AT, "2" * 40, "none", "filtered_ref", "refs/heads/x is none of its refs")


@pytest.mark.parametrize(
    ("decision", "line"),
    [
        (TOLD, "pull_request opened at 111111111111: told at 12:00:05 UTC; result: failed"),
        (
            replace(TOLD, reason="labelled", detail="", outcome="queued"),
            "pull_request opened at 111111111111: told at 12:00:05 UTC (labelled); result: queued",
        ),
        (
            replace(TOLD, owes=False),
            "pull_request opened at 111111111111: told at 12:00:05 UTC; no result is expected",
        ),
        (
            replace(TOLD, state="dead", sent_at=None, state_reason="not_installed", state_detail="no app\nthere"),
            "pull_request opened at 111111111111: could not be told: no app there",
        ),
        (
            replace(TOLD, state="superseded", sent_at=None, state_reason="newer_head"),
            "pull_request opened at 111111111111: not called: a newer head came first",
        ),
        (
            replace(TOLD, state="superseded", sent_at=None, state_reason="change_closed"),
            "pull_request opened at 111111111111: not called: the change was closed first",
        ),
        (
            replace(TOLD, state="superseded", sent_at=None, state_reason="same_commit"),
            "pull_request opened at 111111111111: not called: another event tells of the same commit",
        ),
        (LEFT_OUT, "push at 222222222222: not called: refs/heads/x is none of its refs"),
        (replace(LEFT_OUT, detail=""), "push at 222222222222: not called: filtered ref"),
        (
            replace(LEFT_OUT, effect="decide_paths", reason="pending_paths"),
            "push at 222222222222: to be called if the files it changes match the entry's paths",
        ),
        (replace(LEFT_OUT, effect="dispatch", reason="wanted"), "push at 222222222222: to be called"),
    ],
)
def test_a_decision_is_one_line(decision: Why, line: str) -> None:
    """When, at which event and head, what was decided, and what came of it; a reason stays on its line."""
    assert f"2026-11-30 12:00:05 UTC  {line}" == why_line(decision)


@pytest.mark.parametrize(
    ("passed", "settled", "said"),
    [
        (2, 2, "Too few results on other changes"),
        (20, 20, "this change is the likelier cause"),
        (18, 20, "this change is the likelier cause"),
        (17, 20, "it could be either"),
        (10, 20, "the backend is likelier in trouble"),
        (0, 3, "the backend is likelier in trouble"),
    ],
)
def test_other_changes_tell_a_broken_backend_from_a_breaking_change(passed: int, settled: int, said: str) -> None:
    """Few results say nothing; a backend that passes elsewhere speaks against the change."""
    assert said in elsewhere_sentence(Elsewhere(settled=settled, passed=passed))


def test_the_answer_to_may_i_merge_never_says_yes_but_when_the_gate_passes() -> None:
    """Waiting, blocking and having no verdict are three answers, and none of them is a yes."""
    yes = {effect for effect, answer in ANSWERS.items() if answer.word.startswith("Yes")}

    assert {GateEffect.PASSES} == yes
    assert "Closed" == gate_answer("closed", GateEffect.PASSES).word
    assert "No gate here" == gate_answer("open", None).word
    assert not gate_answer("open", GateEffect.STEPS_DOWN, overridden=True).word.startswith("Yes")
    assert "Closed" == gate_answer("closed", GateEffect.STEPS_DOWN, overridden=True).word


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("comment", "override", "org/npu", "known"), "/crcr override org/npu known"),
        (("comment", "unknown", "", "dance"), "/crcr dance"),
        (("comment", "status", "", ""), "/crcr status"),
        (("action", "run", "org/npu", ""), "button at a check: run org/npu"),
        (("check_run", "rerun", "", ""), "re-run of a check: rerun"),
        (("check_suite", "rerun", "", ""), "re-run of all checks: rerun"),
    ],
)
def test_what_people_asked_is_shown_as_they_asked_it(asked: tuple[str, str, str, str], said: str) -> None:
    """A comment as it was written, a button by its name."""
    source, verb, backend, words = asked

    assert said == asked_phrase(AskedLine(AT, "ada", "write", source, verb, backend, words, "done", ""))


@pytest.mark.parametrize(
    ("state", "outcome", "said"),
    [
        ("asked", "", "being decided"),
        ("done", "status", "done"),
        ("done", "", "done"),
        ("refused", "it needs the role write here", "refused: it needs the role write here"),
        ("failed", "GitHub answered 502", "failed: GitHub answered 502"),
    ],
)
def test_what_became_of_it_says_why_not(state: str, outcome: str, said: str) -> None:
    """Whoever got no answer in a comment finds it on the page."""
    line = AskedLine(AT, "ada", None, "comment", "status", "", "", state, outcome)

    assert said == answer_phrase(line)
