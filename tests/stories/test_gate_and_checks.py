"""What a reviewer sees: the gate by the outcome table, labels that show a check, heads and levels that change."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from relay.simulator import Backend, CheckRun, JobPlan, Listener, Mode, PullRequest, Reports, Run, wait_until
from tests.stories.world import World

BY_HAND = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
GATE = "crcr/gate"
LABEL = "ciflow/crcr/dev1"


def asked(world: World, level: str = "L4", **entry: Any) -> tuple[Backend, PullRequest, Run]:
    """One backend, told of one pull request that needs the gate; the story reports for it."""
    backend = world.backend("org/backend", level, BY_HAND, **entry)
    world.start(**world.given)
    world.up.require(GATE)
    pr = world.up.open_pull_request()
    (run,) = backend.wait_for_runs()
    world.up.wait_for_check(pr.head_sha, GATE)
    world.idle()
    return backend, pr, run


def becomes(world: World, sha: str, name: str, conclusion: str | None) -> CheckRun:
    """The check, once it shows this; None waits until it is open."""
    wait_until(
        lambda: (found := world.up.checks(sha).get(name)) is not None and found.conclusion == conclusion,
        what=f"{name} ({conclusion or 'open'})",
    )
    return world.up.checks(sha)[name]


# --- The outcome table -----------------------------------------------------------------------------------------------

TABLE = [
    ("success", "success", "success", "passed"),
    ("failure", "failure", "failure", "failed"),
    ("cancelled", "failure", "cancelled", "was cancelled"),
    ("timed_out", "failure", "timed_out", "timed out"),
    ("action_required", "failure", "action_required", "needs somebody to act"),
    ("skipped", "neutral", "skipped", "skipped its tests"),
    ("neutral", "neutral", "neutral", "answered neither passed nor failed"),
]


@pytest.mark.parametrize(("claimed", "gate", "own", "sentence"), TABLE, ids=[row[0] for row in TABLE])
def test_what_a_backend_says_is_what_the_table_makes_of_it(
    world: World, claimed: str, gate: str, own: str, sentence: str
) -> None:
    """Each conclusion has one meaning for the merge, and the gate says it in words; cancelling is no way around it."""
    backend, pr, run = asked(world)
    waiting = world.up.required_status(pr)

    backend.callback(run, "in_progress", job="test")
    backend.callback(run, "completed", claimed, "test")
    shown = becomes(world, pr.head_sha, GATE, gate)
    box = world.up.required_status(pr)

    assert (False, {GATE: "pending"}) == (waiting.mergeable, waiting.contexts)
    assert (gate != "failure", {GATE: gate}) == (box.mergeable, box.contexts)
    assert f"org/backend {sentence}" in (shown.title or "")
    assert own == becomes(world, pr.head_sha, "crcr/org/backend", own).conclusion


@pytest.mark.parametrize(
    ("cells", "claimed", "gate"),
    [
        ({"skipped": "blocks"}, "skipped", "failure"),
        ({"neutral": "passes"}, "neutral", "success"),
        ({"cancelled": "steps_down"}, "cancelled", "neutral"),
    ],
)
def test_a_setting_moves_a_cell_and_the_gate_says_so(
    world: World, cells: dict[str, str], claimed: str, gate: str
) -> None:
    """An upstream may be stricter or milder than the table, and a reviewer can tell that it is."""
    world.given["outcomes"] = cells
    backend, pr, run = asked(world)

    backend.callback(run, "completed", claimed, "test")
    shown = becomes(world, pr.head_sha, GATE, gate)

    assert (gate != "failure") == world.up.required_status(pr).mergeable
    assert "settings" in (shown.summary or "")


def test_the_worst_of_several_backends_decides_at_once(world: World) -> None:
    """One red backend blocks although others are still running; without a red one the gate waits for all."""
    red = world.backend("org/red", "L4", BY_HAND)
    green = world.backend("org/green", "L4", BY_HAND)
    world.backend("org/l3", "L3", BY_HAND)
    world.start()
    world.up.require(GATE)
    pr = world.up.open_pull_request()
    for backend in (red, green):
        backend.wait_for_runs()

    red.callback(red.runs[0], "completed", "failure", "test")
    blocked = becomes(world, pr.head_sha, GATE, "failure")
    assert "org/red failed" in (blocked.title or "")
    assert "waiting for org/green" in (blocked.title or "")
    red.rerun(red.runs[0])
    red.callback(red.runs[0], "completed", "success", "test")
    becomes(world, pr.head_sha, GATE, None)
    green.callback(green.runs[0], "completed", "success", "test")

    becomes(world, pr.head_sha, GATE, "success")
    assert world.up.required_status(pr).mergeable


# --- L3 and its label ------------------------------------------------------------------------------------------------


def before(world: World, pr: PullRequest, backend: Backend, run: Run) -> None:
    """The label is put on, then the run reports."""
    pr.label(LABEL)
    world.idle()
    backend.callback(run, "in_progress", job="test")
    backend.callback(run, "completed", "failure", "test")


def during(world: World, pr: PullRequest, backend: Backend, run: Run) -> None:
    """The label is put on while the run is under way."""
    backend.callback(run, "in_progress", job="test")
    world.idle()
    pr.label(LABEL)
    becomes(world, pr.head_sha, "crcr/org/backend", None)
    backend.callback(run, "completed", "failure", "test")


def after(world: World, pr: PullRequest, backend: Backend, run: Run) -> None:
    """The label is put on when all is over."""
    backend.callback(run, "in_progress", job="test")
    backend.callback(run, "completed", "failure", "test")
    world.idle()
    assert {GATE} == set(world.up.checks(pr.head_sha))
    pr.label(LABEL)


@pytest.mark.parametrize("order", [before, during, after], ids=lambda order: order.__name__)
def test_a_label_shows_the_check_whenever_it_comes(
    world: World, order: Callable[[World, PullRequest, Backend, Run], None]
) -> None:
    """Before, during or after the run: the check is there, nothing is run twice, and nothing of it blocks."""
    backend, pr, run = asked(world, "L3")
    assert {GATE} == set(world.up.checks(pr.head_sha))

    order(world, pr, backend, run)
    shown = becomes(world, pr.head_sha, "crcr/org/backend", "failure")
    world.idle()

    assert "completed" == shown.status
    assert 1 == len(backend.runs)
    assert (True, {GATE: "success"}) == (
        world.up.required_status(pr).mergeable,
        world.up.required_status(pr).contexts,
    )


def test_a_label_starts_a_run_where_none_was(world: World) -> None:
    """The entry leaves pull requests without the label alone; the label is what asks for it."""
    backend = world.backend("org/backend", "L3", BY_HAND, labels=[LABEL])
    world.start()
    pr = world.up.open_pull_request()
    world.up.wait_for_check(pr.head_sha, GATE, conclusion="success")
    world.idle()
    assert [] == backend.runs

    pr.label(LABEL)
    (run,) = backend.wait_for_runs()
    becomes(world, pr.head_sha, "crcr/org/backend", None)
    backend.callback(run, "completed", "success", "test")

    assert pr.head_sha == run.client_payload["relay"]["change"]["head_sha"]
    assert "success" == becomes(world, pr.head_sha, "crcr/org/backend", "success").conclusion


def test_a_label_taken_off_ends_the_open_check(world: World) -> None:
    """Nothing hangs for ever: the check ends as neutral with the reason, and comes back with the label."""
    backend, pr, run = asked(world, "L3")
    pr.label(LABEL)
    becomes(world, pr.head_sha, "crcr/org/backend", None)

    pr.unlabel(LABEL)
    ended = becomes(world, pr.head_sha, "crcr/org/backend", "neutral")
    assert f"Label {LABEL} is not set" == ended.title
    backend.callback(run, "completed", "success", "test")
    world.idle()
    assert "neutral" == world.up.checks(pr.head_sha)["crcr/org/backend"].conclusion
    pr.label(LABEL)

    assert "success" == becomes(world, pr.head_sha, "crcr/org/backend", "success").conclusion
    assert 1 == len(backend.runs)


def test_the_label_s_old_prefix_and_any_case_mean_the_same(world: World) -> None:
    """Labels that upstream has used for years go on working, and GitHub does not tell their case apart."""
    _backend, pr, _run = asked(world, "L3")

    pr.label("ciflow/OOT/dev1")

    becomes(world, pr.head_sha, "crcr/org/backend", None)


# --- What a check shows ----------------------------------------------------------------------------------------------


def test_a_merge_bot_may_have_production_s_names_besides(world: World) -> None:
    """One check per job under the name that production uses, each with its own end; the gate is the same as ever."""
    world.given["checks"] = "job"
    backend, pr, run = asked(world)
    names = {job: f"crcr/org/backend/backend-ci/{job}" for job in ("build", "test / 1")}

    for job in names:
        backend.callback(run, "in_progress", job=job, expected_jobs=2)
    for name in names.values():
        becomes(world, pr.head_sha, name, None)
    backend.callback(run, "completed", "success", "build", expected_jobs=2)
    backend.callback(run, "completed", "failure", "test / 1", expected_jobs=2)

    becomes(world, pr.head_sha, names["build"], "success")
    becomes(world, pr.head_sha, names["test / 1"], "failure")
    becomes(world, pr.head_sha, GATE, "failure")
    world.idle()
    assert {GATE, "crcr/org/backend", *names.values()} == set(world.up.checks(pr.head_sha))
    assert 4 == len(world.up.all_checks(pr.head_sha))  # Updated in place.


def test_a_private_backend_s_tests_are_not_shown_to_the_public(world: World) -> None:
    """Reviewers learn that it failed and how many tests did; names, messages and links stay where they may be read."""
    backend = world.sim.create_backend("org/backend", listener=BY_HAND, private=True)
    world.allow("org/backend", "L4")
    world.start()
    pr = world.up.open_pull_request()
    (run,) = backend.wait_for_runs()
    world.idle()
    secret = {"name": "test_secret_chip", "classname": "TestSecret", "message": "at secret.internal"}

    backend.callback(
        run,
        "completed",
        "failure",
        "test",
        test_results={"passed": 1, "failed": 1, "skipped": 0},
        failed_tests=[secret],
        artifact_url="https://secret.internal/log",
    )
    becomes(world, pr.head_sha, GATE, "failure")
    own = becomes(world, pr.head_sha, "crcr/org/backend", "failure")
    world.idle()

    written = str([check.writes for check in world.up.all_checks(pr.head_sha)]).lower()
    assert "secret" not in written
    assert "1" in (own.title or "")
    assert "secret" not in str(world.change(run)).lower()


# --- Heads that come and go ------------------------------------------------------------------------------------------


def test_a_newer_head_shows_nothing_of_the_older_and_a_force_push_back_finds_its_result(world: World) -> None:
    """S1's checks end as superseded, its late result is kept under S1 alone, and counts when S1 is the head again."""
    backend, pr, run = asked(world)
    old = pr.head_sha
    backend.callback(run, "in_progress", job="test")

    pr.push()
    new = pr.head_sha
    for name in (GATE, "crcr/org/backend"):
        ended = becomes(world, old, name, "cancelled")
        assert f"Superseded by {new[:7]}" == ended.title
    backend.wait_for_runs(2)
    late = backend.callback(run, "completed", "failure", "test")
    world.idle()
    on_new = world.up.checks(new)
    assert 200 == late.status
    assert [None, None] == [on_new[name].conclusion for name in (GATE, "crcr/org/backend")]
    assert {GATE: "pending"} == world.up.required_status(pr).contexts
    assert {"cancelled"} == {check.conclusion for check in world.up.checks(old).values()}
    assert [(None, None, "failure")] == world.combinations(run)
    pr.force_push(old)

    becomes(world, old, GATE, "failure")
    becomes(world, old, "crcr/org/backend", "failure")
    assert not world.up.required_status(pr).mergeable
    becomes(world, new, GATE, "cancelled")


# --- Levels that move ------------------------------------------------------------------------------------------------


def to_l2(world: World) -> None:
    """The backend loses its power to block."""
    world.allow("org/backend", "L2")


def off_the_list(world: World) -> None:
    """The backend leaves the allowlist."""
    world.disallow("org/backend")


@pytest.mark.parametrize(
    ("act", "status", "title"),
    [(to_l2, 200, "org/backend is at L2 now"), (off_the_list, 403, "org/backend has left the allowlist")],
    ids=["to L2", "off the list"],
)
def test_a_backend_that_loses_its_level_in_mid_run_holds_nobody_up(
    each_world: World, act: Callable[[World], None], status: int, title: str
) -> None:
    """Every check that exists is finished with the reason, and the gate lets go without a result."""
    world = each_world
    backend, pr, run = asked(world)
    backend.callback(run, "in_progress", job="test")
    becomes(world, pr.head_sha, "crcr/org/backend", None)

    act(world)
    becomes(world, pr.head_sha, GATE, "success")
    ended = becomes(world, pr.head_sha, "crcr/org/backend", "neutral")
    last = backend.callback(run, "completed", "failure", "test")
    world.idle()

    assert title in (ended.title or "")
    assert status == last.status
    assert world.up.required_status(pr).mergeable
    open_checks = [check for check in world.up.all_checks(pr.head_sha) if check.conclusion is None]
    assert [] == open_checks


def test_a_level_raised_in_mid_run_binds_the_next_change(world: World) -> None:
    """What was promised when a change was told is not raised afterwards; the next pull request has the new level."""
    backend, pr, _run = asked(world, "L2")

    world.allow("org/backend", "L4")
    world.settled(lambda: world.get("/api/v1/allowlist")["entries"][0]["level"] == "L4", "the new level")
    world.pass_time(timedelta(seconds=1))
    world.idle()
    following = world.up.open_pull_request()
    becomes(world, following.head_sha, GATE, None)

    assert {GATE: "success"} == world.up.required_status(pr).contexts
    assert 2 == len(backend.wait_for_runs(2))
