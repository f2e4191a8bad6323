"""What a decision stood on survives its way through text, and leads to the same decision again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from allowlist.model import Allowlist, Level, RepoName
from relay.deciding.events import MergeGroupEvent
from relay.deciding.grounds import (
    MOST,
    Ground,
    UnreadableGroundError,
    decide_again,
    ground_of,
    ground_text,
    read_ground,
)
from relay.deciding.known import Elsewhere, Known
from relay.deciding.plan_queue import KnownGroup, KnownTold
from relay.deciding.replayed import Difference, Kind, NotReplayableError, again, differences
from tests.relay.planning import NPU, PREFIXES, S1, S2, S3, XPU, at, head, labeled, pull_request, push, told

KNOWN = Known(
    heads=(head(S1, 0, labels=("a", "ü"), came_from=S3), head(S2, 5, "superseded")),
    dispatches=(told(XPU), told(NPU, S2, "paused", 101, "labelled"), told(XPU, S3, "planned", 102)),
    elsewhere=(Elsewhere(9, XPU.repo, "refs/tags/v1", "planned"),),
    paused={NPU.repo: "on fire: 🔥"},
)
GROUP = MergeGroupEvent("checks_requested", "", S2, "refs/heads/gh-readonly-queue/main/pr-7-x", "main", S1, "", "ada")
EVENTS = frozenset({"pull_request", "push", "merge_group"})
LISTED = Allowlist((XPU, NPU), digest="d" * 64)


def without_free_text(event: Any) -> Any:
    """The event as it is kept: no decision looks at what a person wrote freely."""
    free = {name: "" for name in ("title", "message", "html_url") if hasattr(event, name)}
    return replace(event, **free)


@pytest.mark.parametrize(
    ("event", "known"),
    [
        (pull_request(), Known()),
        (labeled("ciflow/crcr/npu", title="<b>", html_url="https://x.test"), KNOWN),
        (pull_request("edited", base_changed=True, head_repo=None, updated_at=None, before=S1), KNOWN),
        (pull_request("closed", merged=True, merge_commit_sha=S3, draft=True), KNOWN),
        (push(), KNOWN),
        (GROUP, KnownGroup("open", (KnownTold(3, XPU.repo, "sent"),), {NPU.repo: "down"})),
    ],
)
def test_what_is_kept_is_what_was_looked_at(event: Any, known: Known | KnownGroup) -> None:
    """Every field that a plan may look at, of every kind of event."""
    ground = ground_of(event, known, LISTED, PREFIXES, {"org/xpu"})

    text = ground_text(ground)

    assert text is not None
    assert replace(ground, event=without_free_text(event)) == read_ground(text)


def test_a_lowered_level_is_part_of_what_was_looked_at() -> None:
    """An admin's demotion stands beside the file: the file alone would decide otherwise."""
    lowered = replace(NPU, level=Level.L1, lowered_from=Level.L3)
    ground = ground_of(labeled("ciflow/crcr/npu"), Known(heads=(head(),)), Allowlist((lowered,)), PREFIXES)

    assert ((NPU.repo, Level.L1),) == ground.lowered
    by_ground = decide_again(ground, Allowlist((NPU,)), "D", at(9))
    by_file = decide_again(replace(ground, lowered=()), Allowlist((NPU,)), "D", at(9))
    assert '"reason":"filtered_actions"' in by_ground
    assert '"reason":"labelled"' in by_file


def test_a_ground_that_is_too_large_is_not_kept() -> None:
    """A thread with thousands of heads must not make each webhook write megabytes."""
    many = tuple(replace(head(), id=number, labels=("x" * 100,)) for number in range(2000))

    assert ground_text(ground_of(pull_request(), Known(heads=many), LISTED)) is None
    fits = ground_text(ground_of(pull_request(), Known(heads=many[:500]), LISTED))
    assert fits is not None
    assert len(fits) <= MOST


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"v":2}', '{"v":1,"of":"ping"}', "null", '{"v":1,"known":{}}'])
def test_what_cannot_be_read_is_said(text: str) -> None:
    """Of another version, or damaged: counted as not replayable, and never a traceback."""
    with pytest.raises(UnreadableGroundError):
        read_ground(text)


def test_differences_are_told_backend_by_backend() -> None:
    """Whom another list would call, whom not any more, and for whom only the reason changes."""
    base = Ground(pull_request(), Known(), "d", (), PREFIXES)
    one, two, three = (RepoName("org", name) for name in ("one", "two", "three"))
    before = Allowlist((replace(XPU, repo=one), replace(XPU, repo=two), replace(XPU, repo=three, base=("x",))))
    after = Allowlist((replace(XPU, repo=two, base=("nope",)), replace(XPU, repo=three, actions=frozenset())))
    plans = [decide_again(base, each, "D", at(0)) for each in (before, after)]

    found = differences(*plans)

    assert [("org/one", Kind.LOST), ("org/three", Kind.OTHERWISE), ("org/two", Kind.LOST)] == [
        (each.backend, each.kind) for each in found
    ]
    assert ("dispatch (wanted)", "") == (found[0].before, found[0].after)
    (added,) = differences(plans[1], decide_again(base, replace(after, entries=(*after.entries, XPU)), "D", at(0)))
    assert Difference("org/xpu", Kind.ADDED, "", "dispatch (wanted)") == added
    assert () == differences(plans[0], plans[0])


def test_what_was_not_kept_is_not_guessed() -> None:
    """Deliveries from before grounds were kept, and those whose allowlist is forgotten, are said to be neither."""
    text = ground_text(ground_of(pull_request(), Known(), LISTED, PREFIXES))
    asked = {"delivery_id": "D", "received_at": at(0), "versions": {}}

    for ground, said in ((None, "was not kept"), ("{}", "cannot be read"), (text, "is forgotten")):
        with pytest.raises(NotReplayableError, match=said):
            again("[]", ground, **asked)  # type: ignore[arg-type]  # As keywords.
    assert 3 == len(again("[]", text, **{**asked, "versions": {LISTED.digest: LISTED}}).differences)  # type: ignore[arg-type]


@pytest.mark.parametrize(("event", "known"), [(pull_request(), Known()), (push(), Known()), (GROUP, KnownGroup())])
def test_who_did_not_ask_yet_is_left_out_again(event: Any, known: Any) -> None:
    """What was missed is decided by a part of the list: by the whole of it, the others would seem lost or added."""
    everyone = Allowlist(tuple(replace(each, events=EVENTS) for each in LISTED.entries), digest="d" * 64)
    part = everyone.without({NPU.repo: ("entry_newer", "too late")})
    ground = ground_of(event, known, part, PREFIXES)
    text = ground_text(ground)
    assert text is not None
    before = decide_again(ground, part, "D", at(0))

    found = again(before, text, delivery_id="D", received_at=at(0), versions={everyone.digest: everyone})

    assert () == found.differences
    assert '"backend":"org/npu","reason":"entry_newer"' in before
    assert '"effect":"dispatch","backend":"org/xpu"' in before
