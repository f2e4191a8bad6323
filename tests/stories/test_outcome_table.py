"""The outcome table as a reviewer meets it: each outcome of an L4 backend is brought about, and the gate says its cell.

``make mutate`` flips each cell of the table, and the story of that outcome must fail by it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from levels.outcomes import Conclusion, Outcome
from relay.simulator import Backend, JobPlan, Listener, Mode, PullRequest, Reports, wait_until
from tests.stories.relay_process import run as crcr
from tests.stories.world import World

GATE, NAME = "crcr/gate", "org/backend"
BY_HAND = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
#: A job that fails at GitHub, whatever is reported of it.
LIAR = Listener(jobs=(JobPlan(name="test", conclusion="failure", reports=Reports.SILENT),), mode=Mode.DIRECT)
QUEUE, RUN = timedelta(hours=2, minutes=1), timedelta(hours=6, minutes=1)
#: The gate is written within a tenth of a second of what decides it, on a machine that has nothing else to do.
SECONDS = 6.0

Act = Callable[[World, Backend], None]


def nothing(_world: World, _backend: Backend) -> None:
    """It was told, or could not be."""


def says(conclusion: str) -> Act:
    """Its only job ends so."""

    def act(_world: World, backend: Backend) -> None:
        assert 200 == backend.callback(backend.wait_for_runs()[0], "completed", conclusion, "test").status

    return act


def starts(_world: World, backend: Backend) -> None:
    """Its job begins, and says no more."""
    assert 200 == backend.callback(backend.wait_for_runs()[0], "in_progress", job="test").status


def runs(world: World, backend: Backend) -> None:
    """Its job begins, and its own check says so: the gate looks as before, and must have been looked at since."""
    starts(world, backend)
    sha = backend.runs[0].client_payload["relay"]["change"]["head_sha"]
    wait_until(lambda: world.up.checks(sha)[f"crcr/{NAME}"].status == "in_progress", SECONDS, what="a running check")
    world.idle()


def starts_and_vanishes(world: World, backend: Backend) -> None:
    """Its job begins, and its time is over."""
    starts(world, backend)
    world.pass_time(RUN)


def leaves_jobs_out(world: World, backend: Backend) -> None:
    """One of three jobs reports, and the time of the others is over."""
    (run,) = backend.wait_for_runs()
    assert 200 == backend.callback(run, "completed", "success", "test", expected_jobs=3).status
    world.pass_time(RUN)


def lies(world: World, backend: Backend) -> None:
    """It claims the success of a job that failed at GitHub, and GitHub is asked."""
    (run,) = backend.wait_until_done()
    job = backend.job_named(run, "test")
    assert 200 == backend.callback(run, "completed", "success", "test", check_run_id=str(job.id)).status
    world.pass_time(timedelta(seconds=25))


def stays_silent(world: World, backend: Backend) -> None:
    """Its time to start is over."""
    backend.wait_for_runs()
    world.pass_time(QUEUE)


def is_paused(world: World, backend: Backend) -> None:
    """An admin pauses it while nothing was heard of it."""
    backend.wait_for_runs()
    done = crcr(world, "backend", "pause", NAME, "--until", "2h", "--reason", "a new rack", "--who", "ada")
    assert (0, "") == (done.returncode, done.stderr)


def leaves_the_list(world: World, backend: Backend) -> None:
    """It is taken off the allowlist while it runs."""
    starts(world, backend)
    world.disallow(NAME)


@dataclass(frozen=True)
class Cell:
    """How an outcome comes about, and what the gate then shows and says in its title."""

    act: Act
    gate: str | None
    title: str
    listener: Listener = BY_HAND
    installed: bool = True
    entry: dict[str, Any] = field(default_factory=dict)


PENDING, NOBODY = "Waiting for org/backend since", "No backend holds this back"
CELLS = {
    Outcome.QUEUED: Cell(nothing, None, PENDING),
    Outcome.RUNNING: Cell(runs, None, PENDING),
    Outcome.SUCCESS: Cell(says("success"), "success", "org/backend passed"),
    Outcome.FAILURE: Cell(says("failure"), "failure", "org/backend failed"),
    Outcome.CANCELLED: Cell(says("cancelled"), "failure", "org/backend was cancelled"),
    Outcome.TIMED_OUT: Cell(says("timed_out"), "failure", "org/backend timed out"),
    Outcome.ACTION_REQUIRED: Cell(says("action_required"), "failure", "org/backend needs somebody to act"),
    Outcome.LOST: Cell(starts_and_vanishes, "failure", "org/backend started and vanished"),
    Outcome.INCOMPLETE: Cell(leaves_jobs_out, "failure", "org/backend left jobs or versions out"),
    Outcome.DISPUTED: Cell(lies, "failure", "org/backend is disputed", LIAR),
    Outcome.SILENT: Cell(stays_silent, "neutral", "No verdict: org/backend did not answer"),
    Outcome.UNDELIVERED: Cell(nothing, "neutral", "No verdict: org/backend could not be told", installed=False),
    Outcome.PAUSED: Cell(is_paused, "neutral", "No verdict: org/backend is paused"),
    Outcome.SKIPPED: Cell(says("skipped"), "neutral", "No verdict: org/backend skipped its tests"),
    Outcome.NEUTRAL: Cell(says("neutral"), "neutral", "No verdict: org/backend answered neither passed nor failed"),
    Outcome.FILTERED: Cell(nothing, "success", NOBODY, entry={"paths": ["zz/**"]}),
    Outcome.UNLISTED: Cell(leaves_the_list, "success", NOBODY),
}


def shown(world: World, pr: PullRequest) -> tuple[str | None, str]:
    """The gate's conclusion and title."""
    found = world.up.checks(pr.head_sha).get(GATE)
    return (None, "") if found is None else (found.conclusion, found.title or "")


@pytest.mark.parametrize("outcome", CELLS, ids=str)
def test_each_outcome_means_its_cell_for_the_merge(world: World, outcome: Outcome) -> None:
    """Passing, waiting, blocking, stepping down or not required: the gate and its first line tell them apart."""
    cell = CELLS[outcome]
    backend = world.sim.create_backend(NAME, listener=cell.listener, installed=cell.installed)
    world.allow(NAME, "L4", **cell.entry)
    world.start()
    world.up.require(GATE)
    pr = world.up.open_pull_request(files=["docs/index.md"])
    world.up.wait_for_check(pr.head_sha, GATE)
    world.idle()

    cell.act(world, backend)

    wait_until(
        lambda: (now := shown(world, pr))[0] == cell.gate and now[1].startswith(cell.title),
        SECONDS,
        what=f"the gate ({cell.gate}, {cell.title!r}), which shows {shown(world, pr)}",
    )
    assert (cell.gate in {"success", "neutral"}) == world.up.required_status(pr).mergeable


def test_every_outcome_that_an_open_change_can_have_has_its_story() -> None:
    """A row that is added to the table needs one. What is not required is no outcome of an open head's dispatch."""
    assert set(Outcome) == CELLS.keys() | {Outcome.NOT_REQUIRED}
    assert set(Conclusion) <= {str(outcome) for outcome in CELLS}
