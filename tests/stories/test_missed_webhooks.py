"""CASE 9: webhooks that never reached us. GitHub sends none again by itself, so the relay asks, looks and compares.

What GitHub saw is what counts: which deliveries it was asked for again, what it was told to dispatch, what shows.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest

from relay.app import build
from relay.serving import listening_socket, serving
from relay.settings import load_settings
from relay.simulator import Backend, JobPlan, Listener, Mode, PullRequest, Reports, wait_until
from tests.edge.browsing import words
from tests.stories.counted import by_cause, shown
from tests.stories.relay_process import run as crcr
from tests.stories.world import World

pytestmark = pytest.mark.slow

BY_HAND = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
NOBODY = "http://127.0.0.1:9/hook"
GATE = "crcr/gate"
OFTEN = {"missed_seconds": 0.1, "gaps_seconds": 0.1}
NEVER = 86_400.0
#: Longer than a webhook may be late without being missed.
LATER = timedelta(minutes=3)


def watching(world: World, **given: float) -> None:
    """Start the relay, and wait until it has looked at upstream for the first time."""
    before = len(world.sim.log)
    world.start(**{**OFTEN, **given})
    looked(world, before)
    world.clock.advance(timedelta(minutes=1))


def looked(world: World, since: int) -> None:
    """Wait until the relay has looked at all of upstream, from this place of GitHub's log on."""
    wait_until(
        lambda: any("/git/matching-refs/" in entry.path for entry in world.sim.log.since(since)), what="a whole look"
    )
    world.idle()


def look_again(world: World) -> None:
    """Let two whole looks pass, so that whatever the first found has been acted on."""
    for _ in range(2):
        looked(world, len(world.sim.log))


def outage(world: World) -> None:
    """The relay is gone: what GitHub sends gets no answer."""
    world.idle()
    world.stop()
    world.sim.webhook_url = NOBODY


def heads_told(backend: Backend) -> Counter[str]:
    """How often each head was dispatched to a backend, by what GitHub took."""
    return Counter(
        entry.body["client_payload"]["relay"]["change"]["head_sha"]
        for entry in backend.world.log.dispatches(backend.name)
        if entry.body["client_payload"]["payload"].get("action") != "closed"
    )


def closed_told(backend: Backend) -> list[int]:
    """The pull requests of whose end a backend was told."""
    sent = [entry.body["client_payload"]["payload"] for entry in backend.world.log.dispatches(backend.name)]
    return [payload["number"] for payload in sent if payload.get("action") == "closed"]


def asked_again(world: World) -> Counter[str]:
    """How often each GUID's redelivery was asked for."""
    guids = {str(item.id): item.guid for item in world.sim.deliveries}
    return Counter(guids[entry.path.split("/")[4]] for entry in world.sim.log.of("POST", "/attempts"))


def gate(world: World, pr: PullRequest) -> str | None:
    """What the gate of a pull request's head says, or None while there is none."""
    shown = world.up.checks(pr.head_sha).get(GATE)
    return None if shown is None else shown.conclusion or shown.status


def test_an_hour_without_a_relay_costs_nobody_a_run(each_world: World) -> None:
    """Opened, updated and closed meanwhile: each backend gets one run of each newest head, and the gates are there."""
    world = each_world
    backends = [world.backend("org/one", "L4", BY_HAND), world.backend("org/two", "L2", BY_HAND)]
    watching(world)
    moved, ended, calm = (world.up.open_pull_request() for _ in range(3))
    before = [pr.head_sha for pr in (moved, ended, calm)]
    for backend in backends:
        backend.wait_for_runs(3)
    outage(world)
    world.clock.advance(timedelta(minutes=10))
    new, flash = world.up.open_pull_request(), world.up.open_pull_request()
    for act in (moved.push, moved.push, new.push, moved.push, flash.close):
        world.clock.advance(timedelta(minutes=1))
        act()
    ended.close()
    world.up.push()
    world.clock.advance(timedelta(hours=1))

    failed = {item.guid for item in world.sim.deliveries if not item.ok}
    world.start()
    for backend in backends:
        wait_until(lambda backend=backend: {moved.head_sha, new.head_sha} <= heads_told(backend).keys(), what="runs")  # type: ignore[misc]
    look_again(world)

    heads = {*before, moved.head_sha, new.head_sha, world.up.head}
    for backend in backends:
        assert dict.fromkeys(heads, 1) == dict(heads_told(backend))
    assert dict.fromkeys(failed, 1) == dict(asked_again(world))
    assert ["in_progress"] * 3 == [gate(world, pr) for pr in (moved, new, calm)]
    assert "cancelled" == gate(world, ended)


def test_past_three_days_the_comparison_finds_what_github_forgot(world: World) -> None:
    """No delivery can be asked for any more; what upstream shows is enough."""
    backend = world.backend("org/one", "L4", BY_HAND)
    watching(world)
    moved, ended = world.up.open_pull_request(), world.up.open_pull_request()
    backend.wait_for_runs(2)
    outage(world)
    world.clock.advance(timedelta(minutes=10))
    moved.push()
    ended.close()
    new = world.up.open_pull_request()
    world.up.push()
    world.clock.advance(timedelta(days=3, minutes=1))

    world.start()
    wait_until(lambda: {moved.head_sha, new.head_sha, world.up.head} <= heads_told(backend).keys(), what="runs")
    wait_until(lambda: closed_told(backend) == [ended.number], what="the end of a pull request")
    look_again(world)

    made = {"never_delivered": 2, "closed_missed": 1, "push_missed": 1}
    assert made == by_cause(world, "crcr_gaps_found_total") == by_cause(world, "crcr_gaps_healed_total")
    assert {} == by_cause(world, "crcr_gaps_open")
    page = words(shown(world, "/gaps"))
    assert made == {cause: page.count(f" {cause.replace('_', ' ')} ") for cause in made}
    for pr, said in ((new, "never delivered #{}"), (ended, "closed missed #{}")):
        assert said.format(pr.number) in page
    assert (3, 1, 0) == (page.count(" planned , "), page.count(" closed , "), page.count(" open "))
    assert {} == dict(asked_again(world))
    assert {1} == set(heads_told(backend).values())
    told = [entry.body["client_payload"] for entry in world.sim.log.dispatches(backend.name)]
    reasons = {one["relay"]["change"]["head_sha"]: one["relay"]["change"]["reason"] for one in told}
    assert "missed" == reasons[new.head_sha]
    mine = next(one["payload"] for one in told if one["relay"]["change"]["head_sha"] == new.head_sha)
    assert (new.number, "opened", "contributor") == (mine["number"], mine["action"], mine["sender"]["login"])
    assert mine["pull_request"]["head"]["repo"]["clone_url"]


@contextlib.contextmanager
def another(world: World) -> Iterator[None]:
    """A second replica beside the world's own, on the same database."""
    with listening_socket() as (socket, _):
        socket.listen(16)
        relay = build(load_settings({}, **world.settings()), now=world.clock.now, migrate=False)
        with serving(relay, socket.dup()):
            yield


def test_two_replicas_ask_once_and_tell_once(each_world: World) -> None:
    """Both look all the time; a turn is one's alone, and what one has written down the other leaves."""
    world = each_world
    backend = world.backend("org/one", "L4", BY_HAND)
    watching(world)
    with another(world):
        for _ in range(3):
            world.sim.webhook_url = NOBODY
            lost = [world.up.open_pull_request() for _ in range(3)]
            world.sim.webhook_url = f"{world.url}/github/webhook"
            world.clock.advance(LATER)
            wait_until(lambda lost=lost: {pr.head_sha for pr in lost} <= heads_told(backend).keys(), what="runs")  # type: ignore[misc]
            look_again(world)

    assert 9 == len(heads_told(backend))
    assert {1} == set(heads_told(backend).values())
    assert {1} >= set(asked_again(world).values())


def test_the_console_says_what_it_would_do_and_does_it_when_told(world: World) -> None:
    """A dry run prints each gap and tells nobody; without it the service sends what was planned."""
    backend = world.backend("org/one", "L4", BY_HAND)
    # The console is a process of its own and goes by the real time, at which the story arrives only with it.
    world.clock.advance(-timedelta(hours=1))
    watching(world, gaps_seconds=NEVER)
    world.sim.webhook_url = NOBODY
    pr = world.up.open_pull_request()
    world.clock.advance(timedelta(minutes=59))

    dry = crcr(world, "gaps", "heal", "--dry-run")
    world.idle()
    assert (1, "") == (dry.returncode, dry.stderr)
    assert [
        f"never_delivered  pull {pr.number} {pr.head_sha[:12]}: would tell org/one",
        "1 gap found",
    ] == dry.stdout.splitlines()
    assert [] == world.sim.log.dispatches()
    healed = crcr(world, "gaps", "heal")
    backend.wait_for_runs(1)

    assert (0, "") == (healed.returncode, healed.stderr)
    assert "1 gap found, 0 left" in healed.stdout
    assert {pr.head_sha: 1} == dict(heads_told(backend))


def test_a_first_start_gates_what_is_open_and_tells_nobody(world: World) -> None:
    """What was open before the relay gets its gate and no run, also if it is talked about; its next push is told."""
    backend = world.backend("org/one", "L4", BY_HAND)
    world.sim.hold_webhooks = True
    prs = [world.up.open_pull_request() for _ in range(5)]
    closed = world.up.open_pull_request()
    closed.close()
    world.sim.hold_webhooks = False
    world.clock.advance(timedelta(days=1))

    watching(world)
    wait_until(lambda: all(gate(world, pr) == "success" for pr in prs), what="their gates")
    prs[0].label("needs review")
    world.clock.advance(LATER)
    look_again(world)
    assert [] == world.sim.log.dispatches()
    assert gate(world, closed) is None
    prs[1].push()

    backend.wait_for_runs(1)
    look_again(world)
    assert {prs[1].head_sha: 1} == dict(heads_told(backend))


def test_all_pages_of_open_pull_requests_are_read(world: World) -> None:
    """250 are open, GitHub shows 100 a page: none is overlooked, and each is noted once."""
    world.backend("org/one", "L4", BY_HAND)
    world.sim.hold_webhooks = True
    for _ in range(250):
        world.up.open_pull_request()
    world.clock.advance(timedelta(days=1))

    watching(world)

    wait_until(lambda: len(noted(world)) > 0, what="the first look's end")
    assert 250 == len({one["number"] for one in noted(world) if one["number"] is not None})
    queries = [entry.query for entry in world.sim.log.of("GET", "/pulls") if "state=open" in entry.query]
    assert ["1", "2", "3"] == [query.rpartition("=")[2] for query in queries]


def noted(world: World) -> list[dict[str, object]]:
    """All gaps of a first start, page by page."""
    items: list[dict[str, object]] = []
    more = ""
    while True:
        page = world.get(f"/api/v1/gaps?cause=first_start&limit=100{more}")
        items += page["items"]
        if page["next"] is None:
            return items
        more = f"&before={page['next']}"


def test_whoever_joins_later_is_not_told_of_what_was_pushed_before(world: World) -> None:
    """For heads updated since the entry took effect: an entry that is new, or asks for more, begins with the next."""
    first = world.backend("org/one", "L2", BY_HAND)
    watching(world)
    pr = world.up.open_pull_request()
    first.wait_for_runs(1)
    world.clock.advance(timedelta(minutes=10))
    second = world.backend("org/two", "L4", BY_HAND)
    world.settled(lambda: len(world.get("/api/v1/allowlist")["entries"]) == 2, "two entries")
    world.sim.webhook_url = NOBODY
    pr.label("needs review")
    world.clock.advance(LATER)
    look_again(world)
    assert [] == second.runs

    pr.push()
    world.clock.advance(LATER)
    second.wait_for_runs(1)
    look_again(world)

    assert {pr.head_sha: 1} == dict(heads_told(second))
    assert 1 == heads_told(first)[pr.head_sha]


def test_a_promotion_binds_only_heads_dispatched_after_it(world: World) -> None:
    """From L2 to L4 while a head is open: its gate passes as before, whatever the result; the next head waits."""
    backend = world.backend("org/one", "L2", BY_HAND)
    watching(world)
    pr = world.up.open_pull_request()
    (run,) = backend.wait_for_runs(1)
    wait_until(lambda: gate(world, pr) == "success", what="a gate")

    world.allow("org/one", "L4")
    world.settled(lambda: [one["level"] for one in world.get("/api/v1/allowlist")["entries"]] == ["L4"], "L4")
    world.clock.advance(LATER)
    look_again(world)
    backend.callback(run, "completed", "failure", "test")
    world.idle()
    assert "success" == gate(world, pr)
    assert 1 == len(backend.runs)
    pr.push()

    backend.wait_for_runs(2)
    wait_until(lambda: gate(world, pr) == "in_progress", what="a gate that waits")


def test_labels_put_on_meanwhile_show_what_they_ask_for(world: World) -> None:
    """A missed label of an L3 backend shows its check; a missed removal ends it."""
    backend = world.backend("org/one", "L3", BY_HAND)
    watching(world, missed_seconds=NEVER)
    pr = world.up.open_pull_request()
    backend.wait_for_runs(1)
    world.sim.webhook_url = NOBODY
    world.clock.advance(LATER)
    pr.label("ciflow/crcr/dev1")
    world.clock.advance(LATER)

    wait_until(lambda: "crcr/org/one" in world.up.checks(pr.head_sha), what="the label's check")
    pr.unlabel("ciflow/crcr/dev1")
    world.clock.advance(LATER)
    wait_until(lambda: world.up.checks(pr.head_sha)["crcr/org/one"].conclusion == "neutral", what="its end")

    assert {pr.head_sha: 1} == dict(heads_told(backend))


def test_a_merge_group_is_found_and_let_go(world: World) -> None:
    """A queue that is not answered hangs; one that dropped its group is waited for by nobody."""
    backend = world.backend("org/one", "L4", BY_HAND, events=["merge_group"])
    watching(world, missed_seconds=NEVER)
    pr = world.up.open_pull_request()
    world.clock.advance(LATER)
    world.sim.webhook_url = NOBODY
    group = world.up.add_to_merge_queue(pr)

    (run,) = backend.wait_for_runs(1)
    wait_until(lambda: GATE in world.up.checks(group.head_sha), what="the group's gate")
    world.up.destroy_merge_group(group)
    world.clock.advance(LATER)
    wait_until(lambda: world.up.checks(group.head_sha)[GATE].conclusion == "cancelled", what="the end of its gate")

    assert "merge_group" == run.client_payload["event_type"]
    assert {group.head_sha: 1} == dict(heads_told(backend))


def test_upstream_under_a_new_name_is_still_looked_at(world: World) -> None:
    """GitHub redirects to the repository's id, and what was missed is found there."""
    backend = world.backend("org/one", "L2", BY_HAND)
    watching(world)
    world.up.open_pull_request()
    backend.wait_for_runs(1)
    world.sim.webhook_url = NOBODY
    world.up.rename("pytorch/torch")
    pr = world.up.open_pull_request()
    world.clock.advance(LATER)

    wait_until(lambda: heads_told(backend)[pr.head_sha] == 1, what="the run of what was missed")


def test_each_of_two_apps_is_asked_for_what_it_could_not_deliver(world: World) -> None:
    """Upstream's app and the backends' have a list of deliveries each, and neither's holds what the other's does."""
    theirs = world.sim.create_app(5252)
    backend = world.backend("org/one", "L4", BY_HAND)
    late = world.sim.create_backend("late/two", listener=BY_HAND, installed=False)
    world.allow("late/two", "L2")
    world.given |= {
        "downstream_app_id": theirs.id,
        "downstream_private_key": theirs.private_key_pem,
        "webhook_secrets": (world.app.webhook_secret, theirs.webhook_secret),
    }
    watching(world, gaps_seconds=NEVER)
    first = world.up.open_pull_request()
    backend.wait_for_runs(1)
    world.idle()
    assert [] == late.runs
    world.sim.webhook_url = NOBODY
    (came,) = late.install()
    second = world.up.open_pull_request()
    world.sim.webhook_url = f"{world.url}/github/webhook"
    world.clock.advance(timedelta(minutes=1))

    late.wait_for_runs(2)
    backend.wait_for_runs(2)
    world.idle()

    for one in (backend, late):
        assert {first.head_sha: 1, second.head_sha: 1} == dict(heads_told(one))
    assert {came.guid: 1, second.delivery.guid: 1} == dict(asked_again(world))
    assert (theirs, world.app) == (came.app, second.delivery.app)
