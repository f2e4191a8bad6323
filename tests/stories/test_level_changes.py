"""CASE 36: a backend's level moves while its runs are under way, by the allowlist or by an admin at the console.

Whatever moves, every check that exists is finished or taken over, and the gate says what holds from now on.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from relay.simulator import Backend, CheckRun, JobPlan, Listener, Mode, PullRequest, Reports, Run, wait_until
from tests.stories.relay_process import run as crcr
from tests.stories.world import World

BY_HAND = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
NAME = "org/backend"
GATE = "crcr/gate"
CHECK = f"crcr/{NAME}"
LABEL = "ciflow/crcr/dev1"


def asked(world: World, level: str = "L4", **entry: object) -> tuple[Backend, PullRequest, Run]:
    """One backend, told of one pull request that needs the gate; the story reports for it."""
    backend = world.backend(NAME, level, BY_HAND, **entry)
    world.start(**world.given)
    world.up.require(GATE)
    pr = world.up.open_pull_request()
    (run,) = backend.wait_for_runs()
    world.up.wait_for_check(pr.head_sha, GATE)
    world.idle()
    return backend, pr, run


def becomes(world: World, sha: str, name: str, conclusion: str | None, title: str = "") -> CheckRun:
    """The check, once it shows this; None waits until it is open."""
    wait_until(
        lambda: (
            (found := world.up.checks(sha).get(name)) is not None
            and found.conclusion == conclusion
            and title in (found.title or "")
        ),
        what=f"{name} ({conclusion or 'open'}) {title}",
    )
    return world.up.checks(sha)[name]


def in_force(world: World, level: str) -> None:
    """Wait until the relay goes by this level."""
    world.settled(
        lambda: [one["level"] for one in world.get("/api/v1/allowlist")["entries"]] == [level], f"{level} in force"
    )
    world.idle()


def act(world: World, *words: str) -> str:
    """An admin's command, beside the running service; what it said."""
    done = crcr(world, "backend", *words)
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout.strip()


# --- By the allowlist ------------------------------------------------------------------------------------------------


def test_from_l4_to_l3_without_the_label_the_check_ends_and_the_gate_lets_go(world: World) -> None:
    """L3 shows its check by a label: without one it ends as neutral with the reason, and with one it comes back."""
    backend, pr, run = asked(world)
    backend.callback(run, "in_progress", job="test")
    becomes(world, pr.head_sha, CHECK, None)

    world.allow(NAME, "L3")
    becomes(world, pr.head_sha, GATE, "success")
    ended = becomes(world, pr.head_sha, CHECK, "neutral")
    pr.label(LABEL)
    becomes(world, pr.head_sha, CHECK, None)
    backend.callback(run, "completed", "failure", "test")
    becomes(world, pr.head_sha, CHECK, "failure")
    world.idle()

    assert f"{NAME} is at L3 now, which shows its check by a label" == ended.title
    assert 1 == len(backend.runs)
    assert {GATE: "success"} == world.up.required_status(pr).contexts


def test_from_l4_to_l3_with_the_label_the_check_goes_on(world: World) -> None:
    """The check that is there is taken over: it stays open and ends by the result, and no longer blocks."""
    backend, pr, run = asked(world)
    pr.label(LABEL)
    backend.callback(run, "in_progress", job="test")
    becomes(world, pr.head_sha, CHECK, None)

    world.allow(NAME, "L3")
    becomes(world, pr.head_sha, GATE, "success")
    still = world.up.checks(pr.head_sha)[CHECK].conclusion
    backend.callback(run, "completed", "failure", "test")
    becomes(world, pr.head_sha, CHECK, "failure")
    world.idle()

    assert still is None
    assert 2 == len(world.up.all_checks(pr.head_sha))
    assert world.up.required_status(pr).mergeable


def test_from_l3_to_l4_binds_the_next_head_only(world: World) -> None:
    """A promise made when a head was told is not raised afterwards: its red result does not block, the next one's does.

    A run that is asked for anew has the level of its day.
    """
    backend, pr, run = asked(world, "L3")
    pr.label(LABEL)
    becomes(world, pr.head_sha, CHECK, None)

    world.allow(NAME, "L4")
    in_force(world, "L4")
    backend.callback(run, "completed", "failure", "test")
    becomes(world, pr.head_sha, CHECK, "failure")
    world.idle()
    assert {GATE: "success"} == world.up.required_status(pr).contexts
    pr.push()
    _, following = backend.wait_for_runs(2)
    becomes(world, pr.head_sha, GATE, None)
    backend.callback(following, "completed", "failure", "test")

    becomes(world, pr.head_sha, GATE, "failure")
    assert not world.up.required_status(pr).mergeable


def test_down_and_up_again_while_it_runs_gives_back_what_was_promised(world: World) -> None:
    """An admin's mistake in the file, mended: the head was told at L4, so its result blocks again."""
    backend, pr, run = asked(world)
    world.allow(NAME, "L2")
    becomes(world, pr.head_sha, GATE, "success")
    becomes(world, pr.head_sha, CHECK, "neutral")

    world.allow(NAME, "L4")
    becomes(world, pr.head_sha, GATE, None)
    backend.callback(run, "completed", "failure", "test")

    becomes(world, pr.head_sha, GATE, "failure")
    becomes(world, pr.head_sha, CHECK, "failure")


def test_a_backend_that_left_with_a_red_result_blocks_no_more(world: World) -> None:
    """A backend is taken off because it is broken: the gates that it had closed open, its own check stays as it was."""
    backend, pr, run = asked(world)
    backend.callback(run, "completed", "failure", "test")
    becomes(world, pr.head_sha, GATE, "failure")

    world.disallow(NAME)
    becomes(world, pr.head_sha, GATE, "success")
    world.idle()

    assert world.up.required_status(pr).mergeable
    assert "failure" == world.up.checks(pr.head_sha)[CHECK].conclusion


def test_another_device_has_another_label(world: World) -> None:
    """The old label shows nothing any more, the new one does, and nothing is run twice for it."""
    backend, pr, run = asked(world, "L3")
    pr.label(LABEL)
    becomes(world, pr.head_sha, CHECK, None)

    world.allow(NAME, "L3", device="dev2")
    ended = becomes(world, pr.head_sha, CHECK, "neutral")
    pr.label("ciflow/crcr/dev2")
    becomes(world, pr.head_sha, CHECK, None)
    backend.callback(run, "completed", "success", "test")
    becomes(world, pr.head_sha, CHECK, "success")
    pr.unlabel("ciflow/crcr/dev2")
    world.idle()

    assert "Label ciflow/crcr/dev2 is not set" == ended.title
    assert 1 == len(backend.runs)


# --- By an admin at the console --------------------------------------------------------------------------------------


def test_a_demotion_needs_no_change_of_the_file_and_ends_by_itself(world: World) -> None:
    """In force within seconds, on open heads too; when its time is over the allowlist's level holds again."""
    backend, pr, run = asked(world)
    backend.callback(run, "completed", "failure", "test")
    becomes(world, pr.head_sha, GATE, "failure")

    said = act(world, "demote", NAME, "--to", "L2", "--until", "2h", "--reason", "wrong compiler", "--who", "ada")
    becomes(world, pr.head_sha, GATE, "success")
    in_force(world, "L2")
    assert f"{NAME} has at most L2 until " in said
    assert f"{NAME}: at most L2" in act(world, "list")
    world.pass_time(timedelta(hours=2, seconds=1))
    becomes(world, pr.head_sha, GATE, "failure")

    in_force(world, "L4")
    assert ["demotion expired", "backend demoted"] == [
        one["what"] for one in world.get("/api/v1/audit")["items"] if one["subject"] == NAME and "demot" in one["what"]
    ]
    assert "No backend is paused or demoted." == act(world, "list")


def test_a_demotion_can_be_taken_back(each_world: World) -> None:
    """The gate waits for the backend again as it was promised, and the audit has who did what, and why."""
    world = each_world
    _, pr, _ = asked(world)
    act(world, "demote", NAME, "--to", "l3", "--until", "1d", "--reason", "flaky", "--who", "ada")
    becomes(world, pr.head_sha, GATE, "success")

    act(world, "restore", NAME, "--reason", "steady again", "--who", "bob")
    becomes(world, pr.head_sha, GATE, None)

    acts = [one for one in world.get("/api/v1/audit")["items"] if one["what"].startswith("backend ")]
    assert [("bob", "backend restored", "steady again"), ("ada", "backend demoted", "flaky")] == [
        (one["who"], one["what"], one["why"]) for one in acts
    ]
    assert acts[1]["after"] == acts[0]["before"]


def test_heads_that_were_told_during_a_demotion_are_held_back_after_it(world: World) -> None:
    """Reopened, or pushed anew: told at a level that was lowered for a time, they owe what the allowlist says."""
    backend, pr, _ = asked(world, actions=["opened", "reopened"])
    act(world, "demote", NAME, "--to", "L2", "--until", "2h", "--reason", "wrong compiler", "--who", "ada")
    in_force(world, "L2")
    becomes(world, pr.head_sha, GATE, "success")
    pr.close()
    pr.reopen()
    _, again = backend.wait_for_runs(2)
    other = world.up.open_pull_request()
    backend.wait_for_runs(3)
    for head in (pr.head_sha, other.head_sha):
        becomes(world, head, GATE, "success")

    act(world, "restore", NAME, "--who", "bob")
    in_force(world, "L4")
    for head in (pr.head_sha, other.head_sha):
        becomes(world, head, GATE, None)
    backend.callback(again, "completed", "failure", "test")

    becomes(world, pr.head_sha, GATE, "failure")
    assert not world.up.required_status(pr).mergeable


def test_a_paused_backend_is_told_nothing_and_holds_nobody_up(each_world: World) -> None:
    """Sent and silent: the gate steps down loudly. New changes: not told. Once resumed they are told, and awaited."""
    world = each_world
    backend, pr, run = asked(world)

    act(world, "pause", NAME, "--until", "4h", "--reason", "runners are being moved", "--who", "ada")
    stepped = becomes(world, pr.head_sha, GATE, "neutral", f"{NAME} is paused")
    own = becomes(world, pr.head_sha, CHECK, "neutral")
    other = world.up.open_pull_request()
    becomes(world, other.head_sha, GATE, "neutral", f"{NAME} is paused")
    world.idle()
    assert [run] == backend.runs
    assert world.up.required_status(pr).mergeable
    assert "runners are being moved" in (stepped.summary or "")
    assert "runners are being moved" in (own.summary or "")
    act(world, "resume", NAME)

    _, late = backend.wait_for_runs(2)
    for head in (pr.head_sha, other.head_sha):
        becomes(world, head, GATE, None)
    for one in (run, late):
        backend.callback(one, "completed", "success", "test")
    for head in (pr.head_sha, other.head_sha):
        becomes(world, head, GATE, "success")
    assert other.head_sha == late.client_payload["relay"]["change"]["head_sha"]


def test_what_runs_goes_on_while_its_backend_is_paused(world: World) -> None:
    """A pause is about what is sent: a run under way is awaited, and its red result blocks."""
    backend, pr, run = asked(world)
    backend.callback(run, "in_progress", job="test")
    wait_until(lambda: world.up.checks(pr.head_sha)[CHECK].status == "in_progress", what="a running check")

    act(world, "pause", NAME, "--until", "4h", "--reason", "no new work")
    world.idle()
    waiting = world.up.checks(pr.head_sha)[GATE].conclusion
    backend.callback(run, "completed", "failure", "test")

    assert waiting is None
    becomes(world, pr.head_sha, GATE, "failure")


def test_a_pause_ends_by_itself_and_tells_the_newest_head_alone(world: World) -> None:
    """Two heads came while it was paused: the one that was replaced is of no interest to anybody."""
    backend, pr, _ = asked(world)
    act(world, "pause", NAME, "--until", "1h", "--reason", "maintenance")
    pr.push()
    world.idle()
    pr.push()
    becomes(world, pr.head_sha, GATE, "neutral", f"{NAME} is paused")

    world.pass_time(timedelta(hours=1, seconds=1))
    _, told = backend.wait_for_runs(2)
    becomes(world, pr.head_sha, GATE, None)
    world.idle()

    assert pr.head_sha == told.client_payload["relay"]["change"]["head_sha"]
    assert 2 == len(backend.runs)


REFUSED = [
    (("pause", "no-slash", "--until", "1h", "--reason", "x"), "REPO: expected owner/name"),
    (("pause", "org/other", "--until", "1h", "--reason", "x"), "REPO: org/other is not on the allowlist"),
    (("pause", NAME, "--until", "soon", "--reason", "x"), "--until: 'soon' is no duration and no time"),
    (("pause", NAME, "--until", "0m", "--reason", "x"), "--until: '0m' is not in the future"),
    (("pause", NAME, "--until", "2020-01-01", "--reason", "x"), "--until: '2020-01-01' is not in the future"),
    (("pause", NAME, "--until", "400d", "--reason", "x"), "--until: '400d' is more than 366 days away"),
    (("pause", NAME, "--until", "1h", "--reason", " "), "--reason: write 1 to 500 printable characters"),
    (("demote", NAME, "--to", "L4", "--until", "1h", "--reason", "x"), "--to: 'L4' is no level below L2"),
    (("demote", NAME, "--to", "L2", "--until", "1h", "--reason", "x"), "write L1"),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[World]:
    """A relay that runs, with one backend at L2."""
    folder = tmp_path_factory.mktemp("served")
    database = folder / "relay.db"
    database.write_bytes(sqlite_template.read_bytes())
    with World(folder, f"sqlite:///{database}") as world:
        world.backend(NAME, "L2", BY_HAND)
        yield world.start()


@pytest.mark.parametrize(("words", "said"), REFUSED, ids=[" ".join(words[:4:3]) + said for words, said in REFUSED])
def test_a_command_that_cannot_be_meant_changes_nothing(served: World, words: tuple[str, ...], said: str) -> None:
    """It ends with 2 and a line that names the word, the rule and what to write instead."""
    done = crcr(served, "backend", *words)

    assert (2, "") == (done.returncode, done.stdout)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert [] == [one for one in served.get("/api/v1/audit")["items"] if one["what"].startswith("backend ")]


@pytest.mark.parametrize(("verb", "said"), [("resume", "is not paused"), ("restore", "is not demoted")])
def test_what_is_not_there_cannot_be_ended(served: World, verb: str, said: str) -> None:
    """It ends with 1, so that a script can tell."""
    done = crcr(served, "backend", verb, NAME)

    assert (1, "", f"{NAME} {said}\n") == (done.returncode, done.stdout, done.stderr)
