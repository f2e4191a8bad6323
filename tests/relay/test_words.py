"""What a reviewer reads. The snapshots beside this file are the words as they stand; read them when they change."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from allowlist.model import Level, OnSilence, RepoName
from levels.outcomes import GATE_TABLE, Conclusion, GateEffect, Outcome
from relay.deciding.commands import Verb, spoken
from relay.deciding.facts import CheckFacts, DispatchFacts, LeftOut, OverrideFacts
from relay.texts.rendering import Rendered, render, render_backend, render_gate, render_job
from relay.texts.words import (
    EFFECTS,
    PHRASES,
    backend_check_name,
    clock,
    job_check_name,
    listing,
    outcome_phrase,
    reason_phrase,
    span,
    state_phrase,
)
from tests.relay.check_stories import CHANGE, FAILED, NOON, PLACE, ROW, at, check, dispatch, gate, known, leg

SNAPSHOTS = Path(__file__).parent / "snapshots"


def mixed() -> CheckFacts:
    """A failed run of two versions."""
    return check(
        dispatch(
            Outcome.FAILURE,
            leg("test (3.12)", counts=(1221, 0, 41), artifact_url="https://ci.test/artifacts/9"),
            FAILED,
            leg("test (3.12)", version="2.8.1", counts=(1200, 0, 44)),
            leg("lint", version=None, suite=None, environment=(), counts=(None, None, None), seconds=9.0),
            expected=4,
            oncalls=("alice", "bob"),
        )
    )


def overridden(one: DispatchFacts) -> DispatchFacts:
    """The same, with somebody who answers for it."""
    why = "the failure is on the base too, see org/npu#12"
    return replace(one, override=OverrideFacts(one.backend, CHANGE.number, "margaret", why, at(55)))


STORIES: dict[str, CheckFacts] = {
    "gate_nothing_required": gate(dispatch(Outcome.RUNNING, level=Level.L2, level_then=Level.L2, backend="org/l2")),
    "gate_waiting": gate(
        dispatch(Outcome.QUEUED),
        dispatch(Outcome.SUCCESS, backend="org/xpu", number=2),
        dispatch(Outcome.SUCCESS, backend="org/tpu", number=3),
        dispatch(Outcome.FAILURE, backend="org/dev", number=4, level=Level.L3, level_then=Level.L3),
    ),
    "gate_blocked": gate(
        dispatch(Outcome.FAILURE, oncalls=("alice", "bob")),
        dispatch(Outcome.CANCELLED, backend="org/xpu", number=2),
        dispatch(Outcome.SUCCESS, backend="org/tpu", number=3),
        dispatch(Outcome.RUNNING, backend="org/cpu", number=4),
    ),
    "gate_stepped_down": gate(
        dispatch(Outcome.SILENT, ended=120, concluded=120),
        dispatch(
            Outcome.UNDELIVERED,
            backend="org/xpu",
            number=2,
            state="dead",
            shown=True,
            reason="GitHub answered 404: Not Found. The app is not installed there.",
        ),
        dispatch(Outcome.SUCCESS, backend="org/tpu", number=3),
    ),
    "gate_known_on_base": gate(
        known(dispatch(Outcome.FAILURE, FAILED, oncalls=("alice",)), *(test.name for test in FAILED.failed_tests)),
        dispatch(Outcome.SUCCESS, backend="org/xpu", number=2),
    ),
    "gate_overridden": gate(
        overridden(dispatch(Outcome.FAILURE, oncalls=("alice",))),
        dispatch(Outcome.SUCCESS, backend="org/xpu", number=2),
    ),
    "gate_overridden_and_blocked": gate(
        overridden(dispatch(Outcome.FAILURE)), dispatch(Outcome.DISPUTED, backend="org/xpu", number=2)
    ),
    "gate_paused": gate(
        dispatch(Outcome.PAUSED, state="paused", reason_code="paused", reason="new driver until Friday"),
        dispatch(Outcome.SUCCESS, backend="org/xpu", number=2),
    ),
    "gate_merge_group": replace(
        gate(
            replace(dispatch(Outcome.FAILURE, oncalls=("alice",), shown=False), of_pull=7),
            replace(dispatch(Outcome.SUCCESS, backend="org/xpu", number=2, shown=False), of_pull=8),
            dispatch(Outcome.RUNNING, backend="org/tpu", number=3),
        ),
        changes=(replace(CHANGE, kind="merge_group", number=None),),
    ),
    "gate_passed": replace(
        gate(
            dispatch(Outcome.SUCCESS),
            dispatch(Outcome.SUCCESS, backend="org/xpu", number=2),
            dispatch(Outcome.RUNNING, backend="org/gone", number=3, level=None),
            dispatch(Outcome.RUNNING, backend="org/down", number=4, level=Level.L2),
        ),
        left_out=(LeftOut(RepoName("org", "docs"), "filtered_paths", "no changed path matches src/**"),),
    ),
    "backend_queued": check(dispatch(Outcome.QUEUED)),
    "backend_running": check(dispatch(Outcome.RUNNING, leg(conclusion=None, counts=(None, None, None), seconds=None))),
    "backend_passed": check(
        dispatch(Outcome.SUCCESS, leg(), leg(version="2.8.1", counts=(118, 0, 5), seconds=4000.0), expected=2)
    ),
    "backend_failed": mixed(),
    "backend_failed_early": check(
        dispatch(Outcome.FAILURE, FAILED, leg("slow", None, counts=(None, None, None), seconds=None), expected=4)
    ),
    "backend_incomplete": check(
        dispatch(
            Outcome.INCOMPLETE,
            *(leg(f"shard {n}") for n in range(14)),
            expected=347,
            missing_versions=("2.10", "2.11"),
            concluded=386,
            ended=386,
        )
    ),
    "backend_lost": check(
        dispatch(
            Outcome.LOST,
            leg(),
            leg("slow", None, counts=(None, None, None), seconds=None),
            concluded=386,
            ended=386,
            oncalls=("alice",),
        )
    ),
    "backend_known_on_base": check(
        known(dispatch(Outcome.FAILURE, FAILED, leg(version="2.8.1")), *(test.name for test in FAILED.failed_tests))
    ),
    "backend_partly_known_on_base": check(known(dispatch(Outcome.FAILURE, FAILED), "test_matmul_fp16")),
    "backend_base_unknown": check(known(dispatch(Outcome.FAILURE, FAILED), run=None)),
    "backend_overridden": check(overridden(dispatch(Outcome.FAILURE, FAILED, leg(version="2.8.1")))),
    "backend_rerun_asked": check(
        replace(
            dispatch(Outcome.FAILURE, FAILED, leg(version="2.8.1")),
            rerun_at=at(60),
            rerun_by="asked for by triager at 15:05 UTC",
        )
    ),
    "backend_paused": check(
        dispatch(Outcome.PAUSED, state="paused", reason_code="paused", reason="new driver until Friday")
    ),
    "backend_undelivered": check(
        dispatch(
            Outcome.UNDELIVERED, state="dead", reason="GitHub answered 404: Not Found. The app is not installed there."
        )
    ),
    "backend_silent": check(dispatch(Outcome.SILENT, ended=120, concluded=120)),
    "backend_disputed": check(dispatch(Outcome.DISPUTED, leg(observed="failure"))),
    "backend_late": check(dispatch(Outcome.SUCCESS, leg(), late=True, concluded=386, ended=400)),
    "backend_private": replace(mixed(), dispatches=(replace(mixed().dispatches[0], private=True),)),
    "superseded": replace(gate(), changes=(replace(CHANGE, state="superseded", replaced_by="2" * 40),)),
    "label_removed": check(dispatch(Outcome.RUNNING, level=Level.L3, level_then=Level.L3, shown=False)),
}


def as_text(rendered: Rendered) -> str:
    """One check as a file."""
    return (
        f"status: {rendered.status}\nconclusion: {rendered.conclusion}\ntitle: {rendered.title}\n"
        f"--- summary ---\n{rendered.summary}\n--- text ---\n{rendered.text}\n"
    )


@pytest.mark.parametrize("name", sorted(STORIES))
def test_words_are_as_they_were_read(name: str) -> None:
    """Whoever changes a sentence reads it in its place. CRCR_WRITE_SNAPSHOTS=1 writes the files anew."""
    rendered = render(STORIES[name], PLACE)
    assert rendered is not None
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("CRCR_WRITE_SNAPSHOTS"):
        path.write_text(as_text(rendered), encoding="utf-8")

    assert path.read_text(encoding="utf-8") == as_text(rendered)


def test_every_snapshot_has_its_story() -> None:
    """A file that no test reads says nothing."""
    assert sorted(STORIES) == sorted(path.stem for path in SNAPSHOTS.glob("*.txt"))


@pytest.mark.parametrize("name", sorted(STORIES))
def test_what_we_tell_people_to_write_is_a_command(name: str) -> None:
    """Whoever copies it out of a check is understood, and the backend is one of those that the check speaks of."""
    rendered = render(STORIES[name], PLACE)
    assert rendered is not None

    told = [spoken(words) for words in re.findall(r"`(/crcr[^`]*)`", rendered.summary)]

    known = {str(one.backend) for one in STORIES[name].dispatches} | {None}
    assert all(one is not None and one.verb in {Verb.RUN, Verb.RERUN, Verb.OVERRIDE} for one in told)
    assert {one.backend for one in told if one is not None} <= known
    # A result that somebody could change by asking again comes with the way to ask.
    on_pull = any(change.kind == "pull_request" and change.is_open for change in STORIES[name].changes)
    decided = [one.outcome for one in STORIES[name].dispatches if one.shown and one.override is None]
    assert bool(told) or not (on_pull and Outcome.FAILURE in decided and rendered.conclusion is Conclusion.FAILURE)


def test_a_merge_group_is_not_told_of_comments() -> None:
    """There is no pull request to write them on; its gate's own button is all there is."""
    rendered = render(STORIES["gate_merge_group"], PLACE)
    assert rendered is not None

    assert "/crcr" not in rendered.summary
    assert "Its verdict on pull request 7 stands." in rendered.summary


def test_the_title_begins_with_what_blocks() -> None:
    """A title is cut where a narrow page ends: an override of one backend must not hide that another one blocks."""
    rendered = render(STORIES["gate_overridden_and_blocked"], PLACE)
    assert rendered is not None

    assert rendered.title.startswith("org/xpu is disputed; overridden: org/npu by margaret")


def test_failing_tests_come_before_a_long_list_of_jobs() -> None:
    """They are what a reviewer came for."""
    rendered = render(mixed(), PLACE)
    assert rendered is not None

    assert rendered.text.index("2 failing tests in 1 job") < rendered.text.index("### Jobs")


# --- Each outcome ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_words(outcome: Outcome) -> None:
    """CASES 33: whatever becomes of a backend, the gate's sentence says why."""
    rendered = render_gate(gate(dispatch(outcome, reason="because")), PLACE)

    said = {GateEffect.NOT_REQUIRED: "Not required", GateEffect.PENDING: "awaited"}
    assert said.get(GATE_TABLE[outcome], PHRASES[outcome].label) in rendered.summary
    assert "{" not in rendered.summary
    assert rendered.title
    assert outcome_phrase(outcome)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_no_outcome_but_success_looks_passed(outcome: Outcome) -> None:
    """A missing result never concludes success, on the gate and on the backend's own check."""
    one = dispatch(outcome)

    passed = [
        render_gate(gate(one), PLACE).conclusion is Conclusion.SUCCESS,
        render_backend(check(one), PLACE).conclusion is Conclusion.SUCCESS,
    ]

    not_asked = GATE_TABLE[outcome] is GateEffect.NOT_REQUIRED
    assert [outcome is Outcome.SUCCESS or not_asked, outcome is Outcome.SUCCESS] == passed


@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize("on_silence", list(OnSilence))
def test_what_blocks_the_gate_does_not_look_passed_itself(outcome: Outcome, on_silence: OnSilence) -> None:
    """Two checks that contradict each other make a reviewer trust neither."""
    one = dispatch(outcome, on_silence=on_silence)
    place = replace(PLACE, overrides={Outcome.SKIPPED: GateEffect.BLOCKS})

    blocked = render_gate(gate(one), place).conclusion is Conclusion.FAILURE
    own = render_backend(check(one), place).conclusion

    assert not (blocked and own in {Conclusion.SUCCESS, Conclusion.NEUTRAL, Conclusion.SKIPPED})


def test_every_effect_and_state_has_words() -> None:
    """Tables that pages read are whole."""
    assert set(GateEffect) == set(EFFECTS)
    assert "told" == state_phrase("sent")
    assert "some new state" == state_phrase("some_new_state")


def test_the_example_of_the_design() -> None:
    """One line says how far it is and whom it waits for, by the clock."""
    title = render_gate(STORIES["gate_waiting"], PLACE).title

    assert "2 of 3 required backends passed; waiting for org/npu since 14:05 UTC" == title


def test_a_title_does_not_move_with_time_or_jobs() -> None:
    """A check is written when its phase changes, not when one more of ten jobs reports."""
    started = [dispatch(Outcome.RUNNING, *(leg(f"job {n}") for n in range(count)), expected=10) for count in (1, 5, 9)]

    assert 1 == len({render_backend(check(one), PLACE).digest() for one in started})
    assert 1 == len({render_gate(gate(one), PLACE).digest() for one in started})


def test_a_blocked_gate_is_not_rewritten_while_others_start() -> None:
    """With a dozen backends each step of each would cost a write that tells a reviewer nothing new."""
    failed = dispatch(Outcome.FAILURE)
    others = [dispatch(outcome, backend="org/xpu", number=2) for outcome in (Outcome.QUEUED, Outcome.RUNNING)]

    assert 1 == len({render_gate(gate(failed, other), PLACE).digest() for other in others})


def test_a_settled_check_tells_its_whole_text_apart() -> None:
    """Once all is in, any other word is worth a write."""
    one = render_backend(check(dispatch(Outcome.SUCCESS, leg(), expected=1)), PLACE)
    other = render_backend(check(dispatch(Outcome.SUCCESS, leg(counts=(119, 0, 4)), expected=1)), PLACE)

    assert one.digest() != other.digest()


def test_settings_that_move_an_outcome_are_named() -> None:
    """A reviewer who knows the table must learn that this relay has another."""
    place = replace(PLACE, overrides={Outcome.SKIPPED: GateEffect.BLOCKS})

    rendered = render_gate(gate(dispatch(Outcome.SKIPPED)), place)

    assert Conclusion.FAILURE is rendered.conclusion
    assert "The relay's settings say" in rendered.summary


def test_a_job_follows_its_backend_until_it_reports() -> None:
    """After a new dispatch the old job's check waits with the backend."""
    facts = replace(check(dispatch(Outcome.QUEUED)), name=job_check_name(RepoName("org", "npu"), "ci", "build"))

    assert "queued" == render_job(facts, PLACE).status


# --- Small words -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (42, "42 s"),
        (60, "1 min"),
        (754, "12 min 34 s"),
        (7200, "2 h"),
        (4320, "1 h 12 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_spans(seconds: int, words: str) -> None:
    """Two units at most: nobody reads the seconds of an hour."""
    assert words == span(seconds)
    assert words == span(timedelta(seconds=seconds))


def test_clocks() -> None:
    """A time of another day says which."""
    assert "14:05 UTC" == clock(NOON, at(60))
    assert "00:05 UTC on 1 Dec" == clock(at(600), NOON)


def test_listings() -> None:
    """A title has room for a few names."""
    assert ["a", "a and b", "a, b and c", "a, b and 2 more"] == [
        listing("a", 3),
        listing("ab", 3),
        listing("abc", 3),
        listing("abcd", 2),
    ]


def test_names() -> None:
    """The names that rulesets and merge bots know."""
    repo = RepoName("org", "npu")

    assert "crcr/org/npu" == backend_check_name(repo)
    assert "crcr/org/npu/ci/build: linux / 3.12" == job_check_name(repo, "ci", "build: linux / 3.12")
    assert len(job_check_name(repo, "w" * 500, "j" * 500)) <= 250


def test_reasons() -> None:
    """Where nobody kept a sentence the code stands in, readable."""
    assert "because" == reason_phrase("wanted", "because")
    assert "filtered paths" == reason_phrase("filtered_paths", "")


def test_nothing_to_show_is_nothing() -> None:
    """A check that never was, of a head that is gone, is not made."""
    gone = replace(gate(), row=replace(ROW, github_id=None), changes=(replace(CHANGE, state="closed"),))

    assert render(gone, PLACE) is None
