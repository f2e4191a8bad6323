"""Who is told of what: an entry's filters decide, undecidable means told, and whoever asks why gets the reason."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from relay.simulator import Backend, Fault, JobPlan, Kind, Listener, Match, Mode, PullRequest, Reports
from tests.stories.relay_process import run
from tests.stories.world import World

SILENT = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
FILES = Match("GET", "/pulls/[0-9]+/files$")


def actions(backend: Backend) -> list[str]:
    """The actions that a backend was told of, in their order."""
    return [one.body["client_payload"]["payload"]["action"] for one in backend.dispatches]


def why(world: World, pr: PullRequest, backend: Backend) -> list[dict[str, Any]]:
    """What the relay answers to somebody who asks why this backend was, or was not, called."""
    found: list[dict[str, Any]] = world.get(f"/api/v1/why?pull={pr.number}&backend={backend.name}")["decisions"]
    return found


@pytest.mark.slow
def test_an_entry_for_nights_only_hears_of_no_pull_request(world: World) -> None:
    """It is not dispatched, and the reason names the key that says so."""
    nights = world.backend("org/nights", "L2", SILENT, events=["nightly"])
    other = world.backend("org/other", "L1", SILENT)
    world.start()

    pr = world.up.open_pull_request()
    other.wait_for_runs()
    world.idle()

    assert [] == nights.dispatches
    (decision,) = why(world, pr, nights)
    assert ("none", "filtered_events") == (decision["effect"], decision["reason"])
    assert "nightly" in decision["sentence"]
    asked = run(world, "why", str(pr.number), "org/nights")
    assert (0, decision["sentence"]) == (asked.returncode, asked.stdout.strip())


def test_changed_files_decide_and_the_webhook_does_not_wait_for_them(each_world: World) -> None:
    """A backend that asks for its own files is told when one of them changes, under its old name too."""
    world = each_world
    picky = world.backend("org/picky", "L4", SILENT, paths=["backends/npu/**"])
    world.start()

    docs = world.up.open_pull_request(files=["docs/index.md"])
    mine = world.up.open_pull_request(files=["docs/index.md", "backends/npu/add.py"])
    picky.wait_for_runs()
    world.up.wait_for_check(docs.head_sha, "crcr/gate", conclusion="success")
    world.idle()

    (told,) = picky.dispatches
    assert mine.number == told.body["client_payload"]["payload"]["number"]
    planned = {one["backend"]: one["reason"] for one in docs.delivery.response.json["planned"]}
    assert "pending_paths" == planned["org/picky"]
    (decision,) = why(world, docs, picky)
    assert ("filtered", "filtered_paths") == (decision["state"], decision["state_reason"])
    assert "backends/npu/**" in decision["sentence"]


def test_a_list_of_files_that_ends_early_is_no_reason_to_stay_silent(world: World) -> None:
    """GitHub names at most 3,000 files of a pull request: what comes after might be ours, so the backend is told."""
    picky = world.backend("org/picky", "L1", SILENT, paths=["zz/**"])
    world.start()

    pr = world.up.open_pull_request(files=[f"docs/{number}.md" for number in range(3_001)])

    assert 1 == len(picky.wait_for_runs())
    world.idle()
    (decision,) = why(world, pr, picky)
    assert "every file" in decision["sentence"]


@pytest.mark.parametrize("kind", [Kind.MISSING_PERMISSION, Kind.NOT_FOUND, Kind.GONE], ids=lambda kind: kind.name)
def test_files_that_github_will_not_name_are_no_reason_to_stay_silent(world: World, kind: Kind) -> None:
    """Undecidable means told, at once where asking again is pointless, and the doubt is said."""
    picky = world.backend("org/picky", "L1", SILENT, paths=["backends/npu/**"])
    world.start()
    world.sim.faults.add(Fault(kind, FILES, times=None))

    pr = world.up.open_pull_request(files=["docs/index.md"])

    assert 1 == len(picky.wait_for_runs())
    world.idle()
    (decision,) = why(world, pr, picky)
    assert "sent" == decision["state"]
    assert "not known" in decision["sentence"]


def test_files_that_cannot_be_had_just_now_are_asked_for_again(world: World) -> None:
    """A bad minute of GitHub's does not decide: the answer that comes later does."""
    picky = world.backend("org/picky", "L1", SILENT, paths=["backends/npu/**"])
    world.start()
    world.sim.faults.add(Fault(Kind.SERVER_ERROR, FILES, times=2))

    pr = world.up.open_pull_request(files=["docs/index.md"])
    for seconds in (13, 73):
        world.pass_time(timedelta(seconds=seconds))
        world.idle()

    assert [] == picky.dispatches
    assert "filtered_paths" == why(world, pr, picky)[0]["state_reason"]


def test_files_are_asked_for_once_for_all_backends(world: World) -> None:
    """A question for each of fifty backends would be paid out of what upstream's checks may spend."""
    picky = [world.backend(f"org/picky{number}", "L1", SILENT, paths=["src/**"]) for number in range(6)]
    world.start()

    pr = world.up.open_pull_request(files=["src/a.py"])
    world.settled(lambda: all(len(backend.dispatches) == 1 for backend in picky), "all told")
    pr.push(files=["src/b.py"])
    world.settled(lambda: all(len(backend.dispatches) == 2 for backend in picky), "all told again")

    assert 2 == len(world.sim.log.of("GET", f"/pulls/{pr.number}/files"))


def test_one_broken_answer_for_all_backends_is_no_reason_to_hold_gates_back(world: World) -> None:
    """Six wait for the same list; that GitHub fails once says as little of upstream's account as it ever does."""
    picky = [world.backend(f"org/picky{number}", "L4", SILENT, paths=["src/**"]) for number in range(6)]
    world.start()
    fault = world.sim.faults.add(Fault(Kind.SERVER_ERROR, FILES, times=1))

    world.up.open_pull_request(files=["src/a.py"])
    world.settled(lambda: world.sim.faults.met(fault) == 1, "a failure")
    other = world.up.open_pull_request(files=["src/b.py"])

    world.up.wait_for_check(other.head_sha, "crcr/gate")
    for _ in range(3):
        world.pass_time(timedelta(seconds=13))
        world.idle()
    assert [2] * 6 == [len(backend.dispatches) for backend in picky]


@pytest.mark.slow
def test_files_of_a_head_that_came_meanwhile_do_not_decide_for_the_one_before(each_world: World) -> None:
    """GitHub lists the files of the newest head; one that is pushed back to would be green without its test."""
    world = each_world
    picky = world.backend("org/picky", "L4", SILENT, paths=["src/**"])
    world.start()
    pr = world.up.open_pull_request(files=["docs/a.md"])
    first = pr.head_sha
    world.pass_time(timedelta(seconds=5))
    world.idle()
    assert "success" == world.up.checks(first)["crcr/gate"].conclusion
    slow = Fault(Kind.LATENCY, FILES, times=1, seconds=0.5)
    world.sim.faults.add(slow)

    pr.push(files=["src/a.py"])
    second = pr.head_sha
    world.settled(lambda: world.sim.faults.met(slow) == 1, "the files are asked for")
    pr.force_push(first)
    world.idle()
    pr.force_push(second)
    world.pass_time(timedelta(seconds=5))
    world.idle()

    assert [second] == [run.client_payload["relay"]["change"]["head_sha"] for run in picky.wait_for_runs()]
    assert world.up.checks(second)["crcr/gate"].conclusion is None


@pytest.mark.parametrize("count", [1, 6], ids=["one backend", "enough to shut the account"])
def test_files_that_never_come_are_not_waited_for_until_it_is_too_late(world: World, count: int) -> None:
    """GitHub fails for good on some diffs; the backends are told while their results can still count."""
    every = [world.backend(f"org/picky{number}", "L1", SILENT, paths=["backends/npu/**"]) for number in range(count)]
    world.start()
    world.sim.faults.add(Fault(Kind.SERVER_ERROR, FILES, times=None))

    world.up.open_pull_request(files=["docs/index.md"])
    for seconds in (13, 73, 361, *[121] * 9):
        world.pass_time(timedelta(seconds=seconds))
        world.hushed(0.1)

    assert [1] * count == [len(picky.wait_for_runs()) for picky in every]


def test_a_pull_requests_life_reaches_the_backend_in_order(each_world: World) -> None:
    """Opened, pushed, closed, reopened: a listener that cancels on "closed" relies on the order."""
    world = each_world
    backend = world.backend("org/backend", "L1", SILENT)
    world.start()

    pr = world.up.open_pull_request(draft=True)
    backend.wait_for_runs(1)
    world.sim.latency = 0.2
    pr.push()
    pr.close()
    world.sim.latency = 0.0
    world.idle()
    pr.reopen()
    backend.wait_for_runs(4 if "synchronize" in actions(backend) else 3)
    world.idle()

    told = actions(backend)
    # The push may have been taken back unsent, since closing came right behind it.
    assert ["opened", "closed", "reopened"] == [action for action in told if action != "synchronize"]
    if "synchronize" in told:
        assert ["opened", "synchronize", "closed", "reopened"] == told
    assert backend.dispatches[0].body["client_payload"]["payload"]["pull_request"]["draft"] is True


def test_a_close_that_overtakes_its_opening_starts_nothing(world: World) -> None:
    """GitHub sends webhooks in no order: nothing is started for a pull request that is closed already."""
    backend = world.backend("org/backend", "L4", SILENT)
    world.start()
    world.sim.hold_webhooks = True
    pr = world.up.open_pull_request()
    opened = pr.delivery
    world.clock.advance(timedelta(seconds=2))
    pr.close()
    closed = pr.delivery
    world.sim.hold_webhooks = False

    world.sim.redeliver(closed.guid)
    world.sim.redeliver(opened.guid)
    world.idle()

    assert "opened" not in actions(backend)
    assert {"wanted", "older_event"} == {one["reason"] for one in why(world, pr, backend)}
    gate = world.up.checks(pr.head_sha).get("crcr/gate")
    assert gate is None or gate.status == "completed"


def test_a_fork_that_is_gone_does_not_lose_its_pull_request(world: World) -> None:
    """A contributor deletes the fork; what happens to the pull request afterwards is still told."""
    backend = world.backend("org/backend", "L1", SILENT)
    world.start()
    pr = world.up.open_pull_request(author="leaver")
    backend.wait_for_runs()
    raw = pr.delivery.payload
    raw |= {"action": "closed"}
    raw["pull_request"] |= {"state": "closed", "head": {**raw["pull_request"]["head"], "repo": None, "user": None}}

    answer = world.post("pull_request", raw)
    world.settled(lambda: len(backend.dispatches) == 2, "the closing told")

    assert 202 == answer.status
    told = backend.dispatches[-1].body["client_payload"]["payload"]
    assert ("closed", None) == (told["action"], told["pull_request"]["head"]["repo"])


def test_a_head_forced_back_is_tested_again_only_where_it_was_not(world: World) -> None:
    """Pushed on and forced back: the old head is current again, its run of before still counts."""
    backend = world.backend("org/backend", "L1", SILENT)
    world.start()
    pr = world.up.open_pull_request()
    first = pr.head_sha
    backend.wait_for_runs(1)
    pr.push()
    backend.wait_for_runs(2)

    (forced,) = pr.force_push(first)
    world.idle()

    assert 202 == forced.response.status
    heads = [one.body["client_payload"]["relay"]["change"]["head_sha"] for one in backend.dispatches]
    assert 2 == len(heads)
    assert first == heads[0]


def test_another_base_is_told_where_the_entry_asks_for_it(world: World) -> None:
    """The base decides what a change is tested against: who lists ``edited`` hears of it, a new title is no news."""
    usual = world.backend("org/usual", "L1", SILENT)
    asks = world.backend("org/asks", "L1", SILENT, actions=["opened", "edited"])
    release = world.backend("org/release", "L1", SILENT, base=["release/*"])
    world.start()
    world.up.push("refs/heads/release/1.0")
    pr = world.up.open_pull_request()
    usual.wait_for_runs(2)
    asks.wait_for_runs(2)

    (retitled,) = pr.edit_title("Another title")
    pr.edit_base("release/1.0")
    asks.wait_for_runs(3)
    pr.push()
    release.wait_for_runs(2)
    world.idle()

    assert "ignored" == retitled.response.json["status"]
    edited = asks.dispatches[-1].body["client_payload"]["payload"]
    assert ("edited", "release/1.0") == (edited["action"], edited["pull_request"]["base"]["ref"])
    pulls = [one for one in release.dispatches if one.body["event_type"] == "pull_request"]
    assert ["synchronize"] == [one.body["client_payload"]["payload"]["action"] for one in pulls]


def test_labels_and_authors_hold_what_the_entry_does_not_want(world: World) -> None:
    """A label that an entry waits for starts its run when it comes; strangers' code waits for nobody."""
    labelled = world.backend("org/labelled", "L1", SILENT, labels=["ci: npu"])
    members = world.backend("org/members", "L1", SILENT, authors=["MEMBER", "OWNER"])
    everyone = world.backend("org/everyone", "L1", SILENT)
    world.start()

    pr = world.up.open_pull_request(author_association="FIRST_TIME_CONTRIBUTOR")
    everyone.wait_for_runs()
    world.idle()
    assert [] == [*labelled.dispatches, *members.dispatches]
    assert ["filtered_labels"] == [one["reason"] for one in why(world, pr, labelled)]
    assert ["filtered_authors"] == [one["reason"] for one in why(world, pr, members)]
    pr.label("CI: NPU")

    (run,) = labelled.wait_for_runs()
    assert ["CI: NPU"] == [label["name"] for label in run.client_payload["payload"]["pull_request"]["labels"]]


def test_a_deleted_ref_is_no_work(world: World) -> None:
    """A push whose ``after`` is all zeros has nothing to test."""
    backend = world.backend("org/backend", "L1", SILENT)
    world.start()
    world.up.push("refs/heads/topic")
    backend.wait_for_runs()

    (deleted,) = world.up.delete_ref("refs/heads/topic")
    world.idle()

    assert (202, "ignored", "ref_deleted") == (
        deleted.response.status,
        deleted.response.json["status"],
        deleted.response.json["reason"],
    )
    assert 1 == len(backend.dispatches)
