"""A few deaths of the many that ``make crash`` dies: wherever the relay is killed, its promises are kept."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.passes import play

#: The crossings of the story without deaths, somewhat fewer than there are.
CROSSINGS = 480
#: What each kind of effect asks for. A story without one of these would leave a kind of death out.
ASKED = {
    "POST /repos/one/tell/dispatches": "dispatch",
    "GET /repos/pytorch/pytorch/pulls/*/files": "decide_paths",
    "POST /repos/pytorch/pytorch/check-runs": "reconcile_check",
    "POST /hud/crcr/results": "forward_hud",
    "GET /repos/two/paths/installation": "pin_backend",
    "GET /repos/pytorch/pytorch/compare/*": "confirm_commit",
    "GET /repos/pytorch/pytorch/collaborators/triager/permission": "run_command",
    "POST /repos/four/gate/actions/runs/*/rerun-failed-jobs": "rerun",
    "POST /repos/two/endless/actions/runs/*/cancel": "cancel_runs",
    "GET /repos/three/label/actions/runs/*/attempts/*/jobs": "observe",
    "POST /repos/pytorch/pytorch/issues/*/comments": "reconcile_comment",
}


@pytest.mark.slow
def test_wherever_it_dies_the_promises_are_kept(tmp_path: Path, database_url: str) -> None:
    """SIGKILL beside a commit or a request, drawn anew each time: nothing lost, nothing twice that nothing explains."""
    die_at = random.sample(range(1, CROSSINGS), 4 if database_url.startswith("sqlite") else 2)
    folder = tmp_path / "pass"
    folder.mkdir()

    done = play(folder, database_url, die_at)

    assert () == done.faults, f"deaths at {', '.join(map(str, done.deaths))}"
    assert len(die_at) == len(done.deaths)
    asked = {crossing.place.rpartition(" ")[0] for crossing in done.crossings}
    assert set() == set(ASKED) - asked
    assert done.verdict is not None
    assert 20 == done.verdict.pairs
