"""The simulator's notes become a record: a small true story is judged clean, and a note that is missing is missed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from allowlist.parse import parse
from relay.simulator import Fault, JobPlan, Kind, Listener, Match, Mode
from tests.promises import Trouble, judge, record_of
from tests.stories.world import HUD_KEY, World

pytestmark = [pytest.mark.slow, pytest.mark.whole]
REPORTS = Listener(jobs=(JobPlan(name="test"),), mode=Mode.DIRECT)


@pytest.fixture
def world(sqlite_template: Path, tmp_path: Path) -> Iterator[World]:
    path = tmp_path / "relay.db"
    shutil.copy(sqlite_template, path)
    with World(tmp_path, f"sqlite:///{path}") as made:
        made.sim.hud.key = HUD_KEY
        yield made


def test_a_true_story_is_clean_until_a_note_is_taken_away(world: World) -> None:
    """Pull request, label, push and close over all levels, with an answer lost on its way: all kept, one told twice."""
    world.backend("org/blocks", "L4", REPORTS)
    world.backend("org/labelled", "L3", REPORTS, device="npu")
    world.backend("org/recorded", "L2", REPORTS, paths=["src/**"])
    told = world.backend("org/told", "L1", Listener(mode=Mode.DIRECT, named_runs=False, jobs=REPORTS.jobs))
    world.start(hud_api_url=world.sim.hud_url, hud_key=HUD_KEY, retry_scale=0.01)
    world.sim.faults.add(Fault(Kind.SERVER_ERROR_AFTER, Match("POST", "/dispatches$", repository="org/told")))

    pr = world.up.open_pull_request(files=["src/add.py"])
    pr.label("ciflow/crcr/npu")
    world.up.wait_for_check(pr.head_sha, "crcr/gate", conclusion="success")
    world.up.push(files=["docs/read.md"])
    told.wait_for_runs(2)
    pr.close()
    world.settled(lambda: len(told.runs) == 4, "the push and the close told as well")
    world.idle()
    world.hushed()

    text = world.allowlist.read_text()
    record = record_of(world.sim)
    verdict = judge(record, parse(text).entries, Trouble())

    assert () == verdict.breaches
    # Two pull request events for each, the label's for one, and the push where its files are asked for.
    assert 4 + 1 + 3 + 4 == verdict.pairs
    assert (verdict.pairs - 1 + 1, 1) == (verdict.runs, verdict.repeats_explained)
    assert {403} == {report.answer for report in record.reports if report.backend == "org/told"}
    world.sim.hud.rows.pop()
    assert ["an accepted report is lost"] == [
        breach.rule for breach in judge(record_of(world.sim), parse(text).entries, Trouble()).breaches
    ]


def test_what_a_head_changes_is_counted_from_the_branch_it_is_for(world: World) -> None:
    """What has landed on a release branch is none of the files of a pull request that is for this branch."""
    world.backend("org/told", "L1", REPORTS)
    world.start()
    world.up.push("refs/heads/release/2.9", files=["src/landed.py"])

    pr = world.up.open_pull_request(files=["docs/read.md"], base="release/2.9")
    pr.push(files=["docs/more.md"])
    world.up.push("refs/heads/release/2.9", files=["src/landed_later.py"])
    world.idle()

    files = [set(event.files) for event in record_of(world.sim).events if event.name == "pull_request"]
    assert [{"docs/read.md"}, {"docs/read.md", "docs/more.md"}] == files
