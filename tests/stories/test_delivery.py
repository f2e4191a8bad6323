"""From a webhook to the backends: once each, at once, in order, with the truth inside, whatever the body's size."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from relay.simulator import JobPlan, Listener, LoggedRequest, Mode, Reports
from tests.stories.world import World

GREEN = Listener(jobs=(JobPlan(name="test"),), mode=Mode.DIRECT)
SILENT = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)


def payload(of: LoggedRequest) -> dict[str, Any]:
    """The client payload of a dispatch, as the backend gets it."""
    found: dict[str, Any] = of.body["client_payload"]
    return found


def heads(of: list[LoggedRequest]) -> list[str]:
    """The commits that these dispatches tell of, in their order."""
    return [payload(one)["relay"]["change"]["head_sha"] for one in of]


def test_a_delivery_that_comes_twice_is_work_once(each_world: World) -> None:
    """Somebody presses "Redeliver": the answer says so, and no backend hears of it a second time."""
    world = each_world
    backends = [world.backend(f"org/b{number}", "L1", SILENT) for number in range(4)]
    world.start()

    pr = world.up.open_pull_request()
    again = world.sim.redeliver(pr.delivery.guid)
    for backend in backends:
        backend.wait_for_runs()
    world.idle()

    assert 202 == pr.delivery.response.status
    assert (200, "duplicate") == (again.response.status, again.response.json["status"])
    assert [1, 1, 1, 1] == [len(backend.dispatches) for backend in backends]


def test_fifty_copies_at_once_are_one_delivery(each_world: World) -> None:
    """Whoever comes first is accepted, the others are told; each backend still has one run."""
    world = each_world
    backends = [world.backend(f"org/b{number}", "L1", SILENT) for number in range(4)]
    world.start()
    world.sim.hold_webhooks = True
    pr = world.up.open_pull_request()

    with ThreadPoolExecutor(50) as pool:
        sent = [
            pool.submit(world.post, "pull_request", pr.delivery.body, delivery_id=pr.delivery.guid) for _ in range(50)
        ]
        answers = Counter((one.result().status, one.result().json["status"]) for one in sent)
    for backend in backends:
        backend.wait_for_runs()
    world.idle()

    assert Counter({(202, "accepted"): 1, (200, "duplicate"): 49}) == answers
    assert [1, 1, 1, 1] == [len(backend.dispatches) for backend in backends]
    assert [1, 1, 1, 1] == [len(backend.runs) for backend in backends]


def test_the_answer_does_not_wait_for_github(world: World) -> None:
    """Forty backends and a second for each of GitHub's answers: the webhook is answered at once all the same."""
    backends = [world.backend(f"org{number}/backend", "L1", SILENT) for number in range(40)]
    world.start()
    world.sim.latency = 1.0

    pr = world.up.open_pull_request()

    # GitHub gives us ten seconds and one call takes one, so under a second no call was waited for.
    assert pr.delivery.response.seconds < 0.9
    assert 202 == pr.delivery.response.status
    assert 0 == len(world.sim.log.dispatches())
    world.sim.latency = 0.0
    for backend in backends:
        backend.wait_for_runs()


@pytest.mark.parametrize("unit", ["characters", "bytes"])
def test_a_body_of_the_longest_kind_is_dispatched_whole_where_it_matters(world: World, unit: str) -> None:
    """GitHub refuses more than 65,535 characters, which a body alone may have: what listeners read stays true."""
    backend = world.backend("org/l1", "L1", SILENT)
    world.sim.limits.dispatch_unit = unit
    world.start()
    labels = [f"module: {number:03d} 標籤" for number in range(100)]

    pr = world.up.open_pull_request(title="加速 " * 60, body="漢" * 65_536, labels=labels, author="contributor")
    backend.wait_for_runs()

    (sent,) = backend.dispatches
    told, raw = payload(sent), pr.delivery.payload
    kept = told["payload"]["pull_request"]
    assert (pr.delivery.guid, "pull_request") == (told["delivery_id"], told["event_type"])
    assert ("opened", pr.number) == (told["payload"]["action"], told["payload"]["number"])
    for path in ("number", "title", "merged", "merge_commit_sha", "draft", "html_url"):
        assert raw["pull_request"][path] == kept[path]
    for side in ("head", "base"):
        for path in ("sha", "ref"):
            assert raw["pull_request"][side][path] == kept[side][path]
        assert raw["pull_request"][side]["repo"]["full_name"] == kept[side]["repo"]["full_name"]
    assert raw["pull_request"]["head"]["repo"]["clone_url"] == kept["head"]["repo"]["clone_url"]
    assert labels == [label["name"] for label in kept["labels"]]
    assert labels == told["relay"]["change"]["labels"]
    assert "contributor" == kept["user"]["login"]
    assert raw["pull_request"]["_links"]["html"]["href"] == kept["_links"]["html"]["href"]
    assert ("pytorch/pytorch", "contributor") == (
        told["payload"]["repository"]["full_name"],
        told["payload"]["sender"]["login"],
    )
    assert "body" not in kept


def test_a_push_of_two_thousand_commits_is_dispatched(world: World) -> None:
    """The list of commits stays behind; where the ref stood before and stands now is what a listener needs."""
    backend = world.backend("org/l1", "L1", SILENT)
    world.start()
    before = world.up.head

    (pushed,) = world.up.push(commits=2000)
    backend.wait_for_runs()

    assert len(pushed.body) > 500_000
    (sent,) = backend.dispatches
    told = payload(sent)
    assert "push" == told["event_type"] == sent.body["event_type"]
    assert ("refs/heads/main", before, world.up.head) == tuple(
        told["payload"][key] for key in ("ref", "before", "after")
    )
    assert (False, None) == (told["payload"]["deleted"], told["payload"]["base_ref"])
    assert "committer" == told["payload"]["sender"]["login"]


def test_after_six_pushes_in_a_minute_only_the_last_head_gates(world: World) -> None:
    """Nobody waits for a head that was replaced; who asks for every commit gets every commit, in order."""
    last_only = world.backend("org/gate", "L4", GREEN)
    every = world.backend("org/every", "L2", SILENT, every_commit=True)
    world.start()
    world.sim.latency = 0.3  # So that the pushes come faster than GitHub takes what they cause.

    pr = world.up.open_pull_request()
    pushed = [pr.head_sha]
    for _ in range(5):
        pr.push()
        pushed.append(pr.head_sha)
    world.sim.latency = 0.0
    every.wait_for_runs(6)
    world.up.wait_for_check(pr.head_sha, "crcr/gate", conclusion="success")
    world.idle()

    assert pushed == heads(every.dispatches)
    told = heads(last_only.dispatches)
    assert pushed[-1] == told[-1]
    assert len(told) < len(pushed)
    open_gates = [
        sha
        for sha in pushed[:-1]
        if (gate := world.up.checks(sha).get("crcr/gate")) is not None and gate.conclusion != "cancelled"
    ]
    assert [] == open_gates


def test_six_refs_on_one_commit_are_one_test_unless_tags_are_asked_for(world: World) -> None:
    """A landing moves main and a handful of ciflow tags to one commit within a second: it is tested once."""
    plain = world.backend("org/plain", "L1", SILENT)
    tags = world.backend("org/tags", "L1", SILENT, refs=["refs/tags/ciflow/trunk/*"])
    both = world.backend("org/both", "L1", SILENT, refs=["refs/heads/main", "refs/tags/ciflow/**"])
    world.start()
    world.up.push("refs/heads/main")
    for backend in (plain, both):
        backend.wait_for_runs()
    sha = world.up.head

    world.sim.wait = False
    for number, kind in enumerate(("trunk", "inductor", "rocm", "xpu", "periodic")):
        world.up.push_tag(f"ciflow/{kind}/{number}", sha)
    world.sim.wait = True
    both.wait_for_runs(6)
    tags.wait_for_runs(1)
    world.pass_time(timedelta(minutes=1))
    world.idle()

    def refs(of: list[LoggedRequest]) -> list[str]:
        return sorted(payload(one)["payload"]["ref"] for one in of)

    assert ["refs/heads/main"] == refs(plain.dispatches)
    assert ["refs/tags/ciflow/trunk/0"] == refs(tags.dispatches)
    assert 6 == len(both.dispatches)
    assert {sha} == set(heads(both.dispatches))


def test_a_tag_that_comes_before_its_branch_gives_way_to_it(world: World) -> None:
    """GitHub sends a push's events in no order: the commit is tested once, and under the branch's name."""
    plain = world.backend("org/plain", "L1", SILENT)
    world.start()
    world.sim.hold_webhooks = True
    world.up.push("refs/heads/main")
    world.up.push_tag("ciflow/trunk/1", world.up.head)
    branch, tag = world.up.deliveries[-2:]
    world.sim.hold_webhooks = False

    world.sim.redeliver(tag.guid)
    world.sim.redeliver(branch.guid)
    plain.wait_for_runs()
    world.pass_time(timedelta(minutes=1))
    world.idle()

    assert ["refs/heads/main"] == [payload(one)["payload"]["ref"] for one in plain.dispatches]
