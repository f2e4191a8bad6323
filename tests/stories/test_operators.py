"""What an operator does when something went wrong: replay, back up, restore, and ask whether all was decided right."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from relay.cli import app
from relay.simulator import Fault, JobPlan, Kind, Listener, Mode, Reports
from tests.stories.relay_process import environment
from tests.stories.world import World

pytestmark = pytest.mark.slow

GATE = "crcr/gate"
#: The story itself reports, by ``backend.callback``.
BY_HAND = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)


def crcr(world: World, *arguments: str, status: int = 0) -> Result:
    """Run the command with the world's settings; it must end like this."""
    done = CliRunner().invoke(app, list(arguments), env=environment(world.settings()))
    assert status == done.exit_code, done.output
    return done


def printed(done: Result) -> list[dict[str, Any]]:
    """The JSON that a command printed. The relay in this process logs to the same place."""
    lines = [line for line in done.stdout.splitlines() if not line[:4].isdigit()]
    found: list[dict[str, Any]] = json.loads("\n".join(lines))
    return found


def test_a_dead_letter_is_found_looked_at_and_replayed(each_world: World) -> None:
    """List, show, dry run, replay: one run comes of it, and a second replay finds nothing to do."""
    world = each_world
    world.app.events -= {"repository"}  # Nothing says that it is back.
    backend = world.backend("org/backend", "L4", BY_HAND)
    other = world.backend("org/other", "L1", BY_HAND)
    world.start()
    backend.archive()
    pr = world.up.open_pull_request()
    world.up.wait_for_check(pr.head_sha, GATE, conclusion="neutral")
    other.wait_for_runs()
    guid = pr.delivery.guid

    (found,) = printed(crcr(world, "deliveries", "list", "--dead", "--since", "1h", "--json"))
    assert (guid, "pull_request", "opened", pr.number, 2, 1) == tuple(
        found[name] for name in ("id", "event", "action", "number", "called", "dead")
    )
    shown = crcr(world, "deliveries", "show", guid).stdout
    assert "org/backend: dispatch (wanted)" in shown
    assert "try 1 at " in shown
    assert "archived" in shown

    backend.archive(on=False)
    tried = crcr(world, "deliveries", "replay", guid, "--dry-run").stdout
    assert "would be: 1 revived, 0 dropped, 0 left" in tried
    assert [] == backend.runs
    said = crcr(world, "deliveries", "replay", guid, "--who", "ada", "--reason", "unarchived").stdout
    assert "revived: dispatch " in said
    (run,) = backend.wait_for_runs()
    world.idle()

    assert guid == run.client_payload["delivery_id"]
    assert "No dead letter fits." in crcr(world, "deliveries", "replay", guid).stdout
    (act,) = [one for one in world.get("/api/v1/audit")["items"] if one["what"] == "deliveries replayed"]
    assert ("ada", "unarchived", "1 revived, 0 dropped, 0 left") == (act["who"], act["why"], act["after"])
    backend.callback(run, "completed", "failure", "test")
    again = crcr(world, "deliveries", "replay", guid, "--again", "--backend", "org/backend", "--who", "ada").stdout
    assert "told anew: org/backend" in again
    assert 2 == len(backend.wait_for_runs(2))
    assert 1 == len(other.runs)
    assert "all equal" in crcr(world, "replay", "--decisions").stdout


def test_dead_letters_are_replayed_by_range_by_time_and_by_backend(world: World) -> None:
    """One delivery after another is revived, and each time only what was named."""
    world.app.events -= {"repository"}  # Nothing says that they are back.
    backends = [world.backend(f"org/{name}", "L1", BY_HAND) for name in ("one", "two")]
    # The console goes by the real time, at which the story arrives only with its last delivery.
    world.clock.advance(-timedelta(minutes=40))
    world.start()
    for backend in backends:
        backend.archive()
    guids = []
    for _ in range(4):
        guids.append(world.up.open_pull_request().delivery.guid)
        world.settled(lambda: len(world.get("/api/v1/dead-letters")["items"]) == 2 * len(guids), "two that died")
        world.clock.advance(timedelta(minutes=10))
    for backend in backends:
        backend.archive(on=False)

    def replayed(*options: str) -> list[list[str]]:
        """What each backend has been told in all, after this replay."""
        crcr(world, "deliveries", "replay", *options, "--who", "ada")
        world.idle()
        return [sorted(run.client_payload["delivery_id"] for run in backend.runs) for backend in backends]

    assert [sorted(guids[1:3]), []] == replayed(f"{guids[1]}..{guids[2]}", "--backend", "org/one")
    assert [sorted(guids[1:3]), sorted(guids[1:3])] == replayed(f"{guids[1]}..{guids[2]}")
    assert [sorted(guids[1:]), sorted(guids[1:])] == replayed("--since", "15m")
    assert [sorted(guids), sorted(guids[1:])] == replayed("--backend", "org/one")
    assert [sorted(guids), sorted(guids)] == replayed("--all")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("replay",), "say what to replay: a delivery's ID, FIRST..LAST, --since, --backend, or --all"),
        (("replay", "nobody"), "DELIVERIES: not known: 'nobody'"),
        (("replay", "a..b"), "DELIVERIES: not known: 'a', 'b'"),
        (("replay", "--since", "soon"), "--since: 'soon' is no duration and no time; write 30m, 4h, 2d or "),
        (("replay", "--since", "2099-01-01"), "--since: '2099-01-01' lies ahead; it is "),
        (("replay", "--all", "--backend", "x"), "--backend: "),
        (("replay", "--again", "--all"), "--again: name one delivery"),
        (("list", "--since", "1x"), "--since: '1x' is no duration and no time"),
    ],
)
def test_what_cannot_be_meant_is_said_in_a_line(world: World, arguments: tuple[str, ...], said: str) -> None:
    """Exit code 2, the option, the rule and how to mend it."""
    done = crcr(world, "deliveries", *arguments, status=2)

    assert done.stderr.startswith(f"crcr: {said}")


def test_a_lost_database_is_restored_and_the_service_goes_on(world: World, tmp_path: Path) -> None:
    """What was owed in the backup is delivered, what callers send again is taken, and lost numbers mean nobody else."""
    backend = world.backend("org/backend", "L4", BY_HAND)
    world.start()
    first = world.up.open_pull_request()
    (run,) = backend.wait_for_runs()
    backend.callback(run, "in_progress", job="test", check_run_id="7")
    world.idle()
    down = world.sim.faults.add(Fault(Kind.SERVER_ERROR, times=None, status=503))
    owed = world.up.open_pull_request(title="While GitHub is down")
    world.hushed()

    backup = tmp_path / "backup.db"
    assert "schema " in crcr(world, "db", "backup", str(backup)).stdout
    world.sim.faults.remove(down)
    world.pass_time(timedelta(minutes=1))
    backend.wait_for_runs(2)
    late = world.up.open_pull_request(title="After the backup")
    (*_, lost) = backend.wait_for_runs(3)
    ended = backend.callback(run, "completed", "success", "test", check_run_id="7")
    world.idle()
    refused = crcr(world, "db", "restore", str(backup), "--force", "--who", "ada", status=2)
    assert "the database is in use by another process" in refused.output
    world.stop()
    for path in tmp_path.glob("relay.db*"):
        path.unlink()

    assert "restored from " in crcr(world, "db", "restore", str(backup), "--who", "ada").stdout
    world.start()
    world.pass_time(timedelta(minutes=1))
    again = [
        backend.callback(run, "in_progress", job="test", check_run_id="7"),
        backend.callback(run, "completed", "success", "test", check_run_id="7"),
    ]
    nobody = backend.callback(lost, "completed", "success", "test")
    new = world.up.open_pull_request(title="After the restore")
    world.up.wait_for_check(first.head_sha, GATE, conclusion="success")
    runs = backend.wait_for_runs(4)
    world.idle()

    assert (200, False) == (ended.status, ended.json["replayed"])
    assert [(200, True), (200, False)] == [(answer.status, answer.json["replayed"]) for answer in again]
    told = [one.client_payload["relay"]["change"]["head_sha"] for one in runs]
    # The one that was owed in the backup had been sent since: GitHub was asked, and it is not sent twice.
    assert [first.head_sha, owed.head_sha, late.head_sha, new.head_sha] == told
    assert nobody.status in {403, 404, 409}, nobody.text
    assert world.up.checks(new.head_sha)[GATE].conclusion is None
    assert "all equal" in crcr(world, "replay", "--decisions").stdout


def test_another_allowlist_is_tried_on_the_past(world: World, tmp_path: Path) -> None:
    """Before an admin changes the list: whom would it have called? And nothing is sent by asking."""
    backend = world.backend("org/backend", "L2", BY_HAND)
    world.start()
    world.up.open_pull_request()
    backend.wait_for_runs()
    world.idle()
    other = tmp_path / "other.yml"
    other.write_text("L2:\n  - org/newcomer\n")
    asked = len(world.sim.log)

    said = crcr(world, "replay", "--decisions", "--allowlist", str(other)).stdout
    missing = crcr(world, "replay", "--decisions", "--allowlist", str(tmp_path / "nope.yml"), status=2)

    assert "org/backend: 0 calls more, 1 calls fewer, 0 for another reason" in said
    assert "org/newcomer: 1 calls more, 0 calls fewer, 0 for another reason" in said
    assert "--allowlist: " in missing.stderr
    assert asked == len(world.sim.log)
    days = printed(crcr(world, "db", "history", "--json"))
    assert [("org/backend", 2, "queued", 1)] == [
        (day["backend"], day["level"], day["outcome"], day["dispatches"]) for day in days
    ]
