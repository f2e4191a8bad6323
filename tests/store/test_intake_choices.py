"""What changed files and the other names of a commit decide, as the store has it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from allowlist.model import RepoName
from relay.store.engine import Store
from relay.store.intake import PathsAnswer, apply_paths
from relay.store.reading.why import why
from tests.conftest import Clock
from tests.relay.planning import PATHS, S1, S2, XPU, pull_request, push
from tests.store.taking_in import TERMS, Intake


def decide(intake: Intake, number: int, *paths: str, complete: bool = True) -> None:
    """GitHub has answered which files changed."""
    intake.store.write_now(
        lambda conn: apply_paths(conn, number, PathsAnswer(paths, complete), terms=TERMS, now=intake.now)
    )


@pytest.mark.parametrize(
    ("paths", "complete", "state"),
    [
        (("aten/src/x.cpp", "README.md"), True, "planned"),
        (("README.md",), True, "filtered"),
        (("README.md",), False, "planned"),
        ((), True, "planned"),
    ],
)
def test_changed_files_decide(store: Store, clock: Clock, paths: tuple[str, ...], complete: bool, state: str) -> None:
    """In doubt the backend is told. The patterns are those of the moment the webhook came."""
    intake = Intake(store, (PATHS,), clock.now())
    intake.take(pull_request())
    assert [("org/paths", "ready")] == intake.effects("decide_paths")

    decide(intake, 1, *paths, complete=complete)

    assert [(state,)] == intake.dispatches("state")
    assert ([("org/paths", "ready")] if state == "planned" else []) == intake.effects()
    if state == "filtered":
        assert [("filtered_paths", "filtered", None)] == intake.dispatches("reason_code", "outcome", "next_deadline")
        (reason,) = store.read_now(lambda conn: why(conn, 7, PATHS.repo))
        assert ("pending_paths", "filtered_paths") == (reason.reason, reason.state_reason)
        assert "README.md" in (reason.state_detail or "")


def test_changed_files_decide_once(store: Store, clock: Clock) -> None:
    """An effect may be performed twice; its second answer finds the decision made."""
    intake = Intake(store, (PATHS,), clock.now())
    intake.take(pull_request())

    decide(intake, 1, "aten/x")
    decide(intake, 1, "README.md")
    decide(intake, 99, "aten/x")

    assert [("planned",)] == intake.dispatches("state")
    assert 1 == len(intake.effects())


def test_changed_files_of_a_replaced_head_do_not_matter(store: Store, clock: Clock) -> None:
    """The head moved on while GitHub was asked."""
    intake = Intake(store, (PATHS,), clock.now())
    intake.take(pull_request())
    intake.mark_effects("running", kind="decide_paths")
    intake.take(pull_request("synchronize", S2, 1, before=S1), "D2")

    decide(intake, 1, "aten/x")

    assert [("superseded",), ("pending_paths",)] == intake.dispatches("state")


TAGS = [f"refs/tags/ciflow/{name}/1" for name in ("trunk", "h100", "rocm", "xpu", "inductor")]


@pytest.mark.parametrize("branch_at", [0, 3, 5])
def test_six_refs_of_one_commit_are_one_dispatch(store: Store, clock: Clock, branch_at: int) -> None:
    """CASES 11: under the branch's name, whenever it comes; entries that name tags get theirs."""
    main_only = replace(XPU, repo=RepoName("org", "main"), refs=("refs/heads/main",))
    tags_too = replace(XPU, repo=RepoName("org", "tags"), refs=("refs/heads/main", "refs/tags/ciflow/xpu/*"))
    intake = Intake(store, (XPU, main_only, tags_too), clock.now())
    refs = [*TAGS[:branch_at], "refs/heads/main", *TAGS[branch_at:]]
    for number, ref in enumerate(refs):
        intake.take(push(ref), f"D{number}")

    changes = dict(intake.changes("id", "ref"))
    told = [
        (row[1], changes[row[0]])
        for row in intake.dispatches("change_id", "backend", "state")
        if row[2] != "superseded"
    ]
    assert [
        ("org/main", "refs/heads/main"),
        ("org/tags", "refs/heads/main"),
        ("org/tags", "refs/tags/ciflow/xpu/1"),
        ("org/xpu", "refs/heads/main"),
    ] == sorted(told)


@pytest.mark.parametrize("held", ["running", "done"])
def test_a_tag_that_is_out_already_stands(store: Store, clock: Clock, held: str) -> None:
    """The branch then is not told of the same commit a second time, and says why."""
    intake = Intake(store, (XPU,), clock.now())
    intake.take(push(TAGS[0]), "D1")
    intake.mark_effects(held)
    if held == "done":
        intake.mark_dispatches("sent")

    taken = intake.take(push(), "D2")

    assert 1 == len(intake.dispatches("id"))
    assert ["same_commit"] == [decision.reason for decision in taken.planned]
    assert ["same_commit"] == [row["reason"] for row in json.loads(intake.deliveries("id", "plan")[1][1])]
