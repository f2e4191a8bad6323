"""The label of an L3 backend, in every order in which it can come and go."""

from __future__ import annotations

from typing import Any

import pytest

from relay.simulator import Backend, CheckRun, JobPlan, Listener, Mode, PullRequest, Reports, Run, wait_until
from tests.stories.world import World

BY_HAND = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
GATE = "crcr/gate"
OWN = "crcr/org/backend"
LABEL = "ciflow/crcr/dev1"
#: An entry that is called by nothing but its label.
ON_LABEL: dict[str, Any] = {"labels": [LABEL]}


def started(world: World, **entry: Any) -> Backend:
    """An L3 backend behind a relay that runs."""
    backend = world.backend("org/backend", "L3", BY_HAND, **entry)
    world.start()
    return backend


def shows(world: World, pr: PullRequest, conclusion: str | None, name: str = OWN) -> CheckRun:
    """The check, once it shows this; None waits until it is open."""
    wait_until(
        lambda: (found := world.up.checks(pr.head_sha).get(name)) is not None and found.conclusion == conclusion,
        what=f"{name} ({conclusion or 'open'})",
    )
    return world.up.checks(pr.head_sha)[name]


def report(backend: Backend, run: Run, conclusion: str = "success") -> None:
    """Start and finish the run's one job."""
    backend.callback(run, "in_progress", job="test")
    backend.callback(run, "completed", conclusion, "test")


def comments(world: World, pr: PullRequest) -> list[str]:
    """What was said on the pull request."""
    return [comment.body for comment in world.up.comments(pr)]


def test_a_label_that_is_there_from_the_start_shows_the_check_at_once(world: World) -> None:
    """Opened with the label: one run, and its check from the moment of dispatch."""
    backend = started(world, **ON_LABEL)

    pr = world.up.open_pull_request(labels=[LABEL])
    shows(world, pr, None)
    report(backend, backend.wait_for_runs()[0])
    shows(world, pr, "success")
    world.idle()

    assert 1 == len(backend.runs)


def test_the_label_again_runs_nothing_again(world: World) -> None:
    """Taken off and put on, after the result: the result is shown, and no second run asked for."""
    backend = started(world, **ON_LABEL)
    pr = world.up.open_pull_request()
    pr.label(LABEL)
    (run,) = backend.wait_for_runs()
    report(backend, run, "failure")
    shows(world, pr, "failure")

    pr.unlabel(LABEL)
    world.idle()
    pr.label(LABEL)
    world.idle()

    assert "failure" == shows(world, pr, "failure").conclusion
    assert 1 == len(backend.runs)
    assert world.up.checks(pr.head_sha)[GATE].conclusion == "success"


def test_taken_off_before_the_run_started_the_check_ends_neutral(world: World) -> None:
    """Nobody waits for what nobody asks for any more, and the result is kept all the same."""
    backend = started(world, **ON_LABEL)
    pr = world.up.open_pull_request(labels=[LABEL])
    shows(world, pr, None)
    (run,) = backend.wait_for_runs()

    pr.unlabel(LABEL)
    ended = shows(world, pr, "neutral")
    report(backend, run)
    world.idle()

    assert "completed" == ended.status
    assert "neutral" == shows(world, pr, "neutral").conclusion
    pr.label(LABEL)
    assert "success" == shows(world, pr, "success").conclusion


def test_a_new_head_keeps_the_label_and_starts_anew(world: World) -> None:
    """The label is the pull request's, not the head's."""
    backend = started(world, **ON_LABEL)
    pr = world.up.open_pull_request(labels=[LABEL])
    report(backend, backend.wait_for_runs()[0])
    shows(world, pr, "success")
    old = pr.head_sha

    pr.push()
    shows(world, pr, None)
    second = backend.wait_for_runs(2)[-1]
    report(backend, second, "failure")
    shows(world, pr, "failure")

    assert pr.head_sha != old
    assert "success" == world.up.checks(old)[OWN].conclusion


def test_reopened_with_its_label_the_check_comes_back(world: World) -> None:
    """Closing ends the open check as cancelled; reopening asks anew, as any reopening does."""
    backend = started(world, **ON_LABEL)
    pr = world.up.open_pull_request(labels=[LABEL])
    shows(world, pr, None)
    backend.wait_for_runs()

    pr.close()
    shows(world, pr, "cancelled")
    shows(world, pr, "cancelled", GATE) if world.up.checks(pr.head_sha)[GATE].conclusion != "success" else None
    pr.reopen()
    shows(world, pr, None)
    newest = next(run for run in reversed(backend.runs) if run.client_payload["payload"]["action"] == "reopened")
    report(backend, newest)

    assert "success" == shows(world, pr, "success").conclusion


def test_labelled_while_it_was_closed_the_check_comes_with_reopening(world: World) -> None:
    """A label on a closed pull request starts nothing; it is there when the pull request comes back."""
    backend = started(world, **ON_LABEL)
    pr = world.up.open_pull_request()
    pr.close()
    pr.label(LABEL)
    world.idle()
    runs = [run for run in backend.runs if run.client_payload["payload"]["action"] != "closed"]
    assert [] == runs

    pr.reopen()
    shows(world, pr, None)


def test_two_pull_requests_on_one_head_share_the_check(world: World) -> None:
    """The label on either shows it; off both, it ends."""
    backend = started(world)
    first = world.up.open_pull_request()
    second = world.up.open_pull_request(head_sha=first.head_sha)
    backend.wait_for_runs(2)
    second.label(LABEL)
    shows(world, first, None)

    second.unlabel(LABEL)
    ended = shows(world, first, "neutral")
    first.label(LABEL)
    again = shows(world, first, None)

    assert ended.id != again.id


def test_a_base_that_changes_is_tested_anew(world: World) -> None:
    """What would be merged is another commit now, though the head is the same."""
    backend = started(world, actions=["opened", "edited"], refs=["refs/heads/main"])
    world.up.push("refs/heads/release")
    pr = world.up.open_pull_request(labels=[LABEL])
    first = backend.wait_for_runs()[0]
    report(backend, first)
    shows(world, pr, "success")

    pr.edit_base("release")
    newest = backend.wait_for_runs(2)[-1]
    shows(world, pr, None)
    report(backend, newest, "failure")

    shows(world, pr, "failure")
    assert "release" == newest.client_payload["relay"]["change"]["base_ref"]


@pytest.mark.parametrize("label", ["ciflow/crcr/nvidia", "ciflow/oot/nvidia", "ciflow/crcr/"])
def test_a_wrong_label_gets_one_helpful_comment(world: World, label: str) -> None:
    """A label that does nothing leaves its writer waiting; once told is enough."""
    started(world)
    pr = world.up.open_pull_request()

    pr.label(label)
    wait_until(lambda: len(world.up.comments(pr)) == 1, what="one comment")
    pr.unlabel(label)
    pr.label(label)
    pr.label("ciflow/crcr/other")
    wait_until(lambda: "other" in comments(world, pr)[0], what="the comment about the newest label")
    world.idle()

    (body,) = comments(world, pr)
    assert f"`{LABEL}`" in body


def test_labels_that_are_fine_are_not_talked_about(world: World) -> None:
    """Neither ours nor anybody else's."""
    started(world)
    pr = world.up.open_pull_request()

    for label in (LABEL, "ciflow/oot/DEV1", "ciflow/trunk", "bug"):
        pr.label(label)
    world.idle()

    assert [] == world.up.comments(pr)
