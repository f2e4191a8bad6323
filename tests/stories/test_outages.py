"""GitHub away for an hour, or failing at random: nothing is lost, nobody is stormed, and the newest heads go first."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from relay.github.http import AsyncHTTPTransport, Request, Response
from relay.simulator import Backend, Fault, JobPlan, Kind, Listener, Match, Mode, Reports
from relay.simulator.keys import plain_http
from tests.stories.world import World

SILENT = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
MINUTE = timedelta(minutes=1)


def told(backend: Backend) -> list[str]:
    """The heads that GitHub took a dispatch of, in order."""
    return [one.body["client_payload"]["relay"]["change"]["head_sha"] for one in backend.dispatches]


def pass_minutes(world: World, count: int, step: int = 1) -> None:
    """Let an outage last: there is no idle relay to wait for, so each step ends when it asks nothing any more."""
    for _ in range(0, count, step):
        world.clock.advance(step * MINUTE)
        assert world.relay is not None
        world.relay.worker.wake()
        world.hushed(0.2)


def test_an_hour_without_github_loses_nothing(each_world: World) -> None:
    """CASES 8: all is sent within minutes of GitHub's return, the newest and L4 first; replaced heads are dropped.

    Meanwhile a dead GitHub is probed and not stormed, and the lateness does not depend on how long it was away.
    """
    world = each_world
    backends = [world.backend(f"org{number}/backend", "L1", SILENT) for number in range(3)]
    gating = world.backend("org5/gating", "L4", SILENT)
    world.start()
    down = world.sim.faults.add(Fault(Kind.SERVER_ERROR, times=None, status=503))

    prs = [world.up.open_pull_request(title=f"Change {number}") for number in range(4)]
    replaced = prs[0].head_sha
    world.hushed(0.2)
    pass_minutes(world, 10, step=5)
    prs[0].push()
    newest = world.up.open_pull_request(title="The newest")
    asked = len(world.sim.log)
    pass_minutes(world, 48, step=8)
    probes = len(world.sim.log) - asked
    answers = [delivery.response.status for delivery in world.sim.deliveries if delivery.event == "pull_request"]
    assert [202] * 6 == answers
    assert [] == world.sim.log.dispatches()
    world.sim.faults.remove(down)
    since = len(world.sim.log)
    world.clock.advance(3 * MINUTE)
    for backend in [*backends, gating]:
        backend.wait_for_runs(5)
    world.idle()

    wanted = {newest.head_sha, *(pr.head_sha for pr in prs)}
    for backend in [*backends, gating]:
        assert (5, wanted) == (len(told(backend)), set(told(backend)))
    # At most three accounts are probed at a time, six times, and a probe may need a look or a token first.
    assert probes <= 6 * 3 * 3
    # What goes out first while it comes back a few at a time: the gate of the newest head, and then L4 before L1.
    sent = [one for one in list(world.sim.log)[since:] if one.path.endswith("/dispatches") and one.effect]
    first = [one.repository_name for one in sent[:4]]
    assert "org5/gating" in first
    assert newest.head_sha == told(gating)[0]
    (why,) = [
        one
        for one in world.get(f"/api/v1/why?pull={prs[0].number}&backend={gating.name}")["decisions"]
        if one["head_sha"] == replaced
    ]
    assert ("superseded", "newer_head") == (why["state"], why["state_reason"])


def test_an_hour_of_random_failures_loses_nothing(world: World) -> None:
    """Half of all calls fail, whatever they ask: what is brought forward too often must not run out of tries."""
    backends = [world.backend(f"org{number}/backend", "L1", SILENT) for number in range(4)]
    world.start()
    world.sim.faults.add(Fault(Kind.SERVER_ERROR, times=None, share=0.5, seed=4))

    prs = [world.up.open_pull_request(title=f"Change {number}") for number in range(6)]
    world.hushed(0.2)
    pass_minutes(world, 60, step=6)
    world.sim.faults.clear()
    world.clock.advance(timedelta(hours=2))
    for backend in backends:
        backend.wait_for_runs(6)

    for backend in backends:
        assert {pr.head_sha: 1 for pr in prs} == Counter(told(backend))


def test_one_account_without_answers_costs_the_others_nothing(world: World) -> None:
    """One installation times out for an hour: it is probed, all others flow at once, and then it gets its own."""
    ill = [world.backend(f"ill/b{number}", "L1", SILENT) for number in range(3)]
    well = world.backend("well/backend", "L1", SILENT)
    world.start()
    down = world.sim.faults.add(Fault(Kind.RESET, Match("POST", "/dispatches$", account="ill"), times=None))

    for number in range(3):
        world.up.open_pull_request(title=f"Change {number}")
        well.wait_for_runs(number + 1)
    world.hushed(0.2)
    pass_minutes(world, 12, step=4)
    tried = len(world.sim.log)
    pass_minutes(world, 40, step=8)
    probes = [one for one in list(world.sim.log)[tried:] if one.path.endswith("/dispatches")]
    world.up.open_pull_request(title="Meanwhile")
    well.wait_for_runs(4)
    world.sim.faults.remove(down)
    world.clock.advance(3 * MINUTE)

    for backend in ill:
        assert 4 == len(backend.wait_for_runs(4))
    assert 1 <= len(probes) <= 5  # One of the twelve that wait, each time.


def test_slow_answers_are_waited_for_and_not_repeated(world: World) -> None:
    """GitHub takes its time for each dispatch: nothing is sent twice, and webhooks are answered all the while."""
    backend = world.backend("org/backend", "L1", SILENT)
    other = world.backend("other/backend", "L1", SILENT)
    world.start()
    world.sim.faults.add(Fault(Kind.LATENCY, Match("POST", "/dispatches$", account="org"), times=1, seconds=2.0))

    pr = world.up.open_pull_request()
    other.wait_for_runs()
    assert [] == backend.runs
    backend.wait_for_runs()
    world.idle()

    assert [pr.head_sha] == told(backend)
    assert 202 == pr.delivery.response.status
    assert 1 == len(world.sim.log.dispatches(backend.name, effective=False))


class Impatient(AsyncHTTPTransport):
    """Waits a twentieth as long as told for one backend's dispatches; ``waits`` is what it is told, in seconds."""

    def __init__(self) -> None:
        super().__init__(verify=plain_http())
        self.waits: set[float] = set()

    async def handle_async_request(self, request: Request) -> Response:
        """Send it on."""
        if request.url.path == "/repos/slow/backend/dispatches":
            waits = request.extensions["timeout"]
            self.waits.add(waits["read"])
            request.extensions["timeout"] = {name: wait / 20 for name, wait in waits.items()}
        return await super().handle_async_request(request)


def test_an_answer_that_takes_longer_than_we_wait_is_asked_after_and_not_repeated(world: World) -> None:
    """GitHub takes longer than our 10 s (half a second here) and does it nevertheless: nobody waits along, one run."""
    slow = world.backend("slow/backend", "L1", SILENT)
    other = world.backend("other/backend", "L1", SILENT)
    opened: list[Impatient] = []

    def opens() -> Impatient:
        opened.append(Impatient())
        return opened[-1]

    world.transport = opens
    world.start()
    world.sim.faults.add(Fault(Kind.LATENCY, Match("POST", "/dispatches$", account="slow"), times=1, seconds=0.8))

    world.up.open_pull_request()
    other.wait_for_runs()
    assert [] == slow.runs
    slow.wait_for_runs()
    world.hushed(0.2)
    assert [] == world.sim.log.of("GET", "/actions/runs")
    world.pass_time(timedelta(seconds=13))
    world.settled(lambda: world.sim.log.of("GET", "/actions/runs") != [], "a look at the runs")
    world.idle()

    assert {10.0} == set().union(*(one.waits for one in opened))
    assert 1 == len(world.sim.log.of("GET", "/actions/runs"))
    assert (1, 1) == (len(slow.runs), len(world.sim.log.dispatches(slow.name, effective=False)))


def test_an_hour_without_the_hud_costs_nobody_anything(world: World) -> None:
    """Callbacks are answered as ever; a dead HUD is probed and not stormed, and each row arrives once afterwards."""
    backend = world.backend("org/backend", "L2", SILENT)
    world.start(hud_api_url=world.sim.hud_url, hud_key=world.sim.hud.key)
    world.up.open_pull_request()
    (run,) = backend.wait_for_runs()
    world.idle()
    down = world.sim.faults.add(Fault(Kind.SERVER_ERROR, Match("POST", "/hud/"), times=None, status=503))

    answers = [backend.callback(run, "completed", "success", f"job {number}").status for number in range(20)]
    world.hushed(0.2)
    pass_minutes(world, 10, step=5)
    tried = world.sim.faults.met(down)
    pass_minutes(world, 50, step=10)
    probes = world.sim.faults.met(down) - tried
    world.sim.faults.remove(down)
    world.clock.advance(3 * MINUTE)
    world.settled(lambda: len(world.sim.hud.rows) >= 20, what="all rows")
    world.idle()

    assert [200] * 20 == answers
    assert 1 <= probes <= 5  # One of the twenty that wait, each time.
    assert 20 == len(world.sim.hud.rows)
