"""What happens in the world while the relay dies: a pull request's life with every kind of effect and of commit in it.

People and backends act as they do at GitHub: a delivery that got no 2xx is delivered again by whoever looks after the
webhook, and a report that got no answer is sent again by the action.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from relay.simulator import (
    Backend,
    Delivery,
    Fault,
    JobPlan,
    Kind,
    Listener,
    Match,
    Mode,
    PullRequest,
    Reports,
    wait_until,
)
from tests.crash.mortal import MortalRelay
from tests.stories.world import World

GATE = "crcr/gate"
CHECK = "crcr/four/gate"
LABEL = "ciflow/crcr/dev1"
#: The longest that one thing may take: a process may die over and over meanwhile, on a machine that does much else.
PATIENCE = 200.0

#: How every check ends, by the place of its commit in the story: whoever dies meanwhile, GitHub shows this at the end.
ENDS = {(place, name): "success" for place in ("opened", "pushed") for name in (GATE, "crcr/three/label", CHECK)}

QUICK = Listener(jobs=(JobPlan(name="test"),), mode=Mode.DIRECT)
FLAKY = Listener(
    jobs=(
        JobPlan(name="build", backend_version="1.0"),
        JobPlan(name="test", conclusion="failure", flaky_until=2, failed_tests=(("suite.Ops", "test_add", "3"),)),
    ),
    mode=Mode.DIRECT,
)
#: Its runs have no name of their own, so that nothing at GitHub says which dispatch started them.
NAMELESS = Listener(jobs=QUICK.jobs, mode=Mode.DIRECT, named_runs=False)
ENDLESS = Listener(jobs=(JobPlan(name="test", duration=600, reports=Reports.SILENT),), mode=Mode.DIRECT)
#: An entry whose listener does not hear of the end of a pull request, so that the relay cancels what still runs.
NOT_CLOSED = ["opened", "reopened", "synchronize"]


@dataclass(frozen=True)
class Told:
    """What a pass leaves to be looked at: its world, and the commits by their place in the story."""

    world: World
    heads: dict[str, str]
    night: str
    night_answered: int


def open_world(folder: Path, database_url: str) -> World:
    """A world for one pass, with settings that shorten its waits."""
    world = World(folder, database_url)
    world.given |= {"retry_scale": 0.02, "check_interval_seconds": 0.05, "sweep_seconds": 0.3}
    return world


def people_it(world: World) -> None:
    """Backends of every level, and people with their roles."""
    world.given |= {"hud_api_url": world.sim.hud_url, "hud_key": world.sim.hud.key}
    world.sim.world.runners.step.tries = 100
    world.backend("one/tell", "L1", NAMELESS)
    world.backend("two/paths", "L2", QUICK, paths=["src/**"])
    world.backend("two/docs", "L2", QUICK, paths=["docs/**"])
    world.backend("two/endless", "L2", ENDLESS, cancel_on_close=True, actions=NOT_CLOSED)
    world.backend("three/label", "L3", QUICK)
    world.backend("four/gate", "L4", FLAKY)
    for login, role in (("triager", "triage"), ("writer", "write"), ("contributor", "read")):
        world.up.set_role(login, role)
    world.sim.faults.add(Fault(Kind.SERVER_ERROR, Match("POST", "/dispatches$", repository="two/paths")))


class Cast:
    """Acts, each until it has its effect, however often the relay dies under it."""

    def __init__(self, world: World, relay: MortalRelay) -> None:
        self.world = world
        self.relay = relay

    def act(self, deliveries: Sequence[Delivery]) -> None:
        """Something was done upstream. Whatever webhook was not taken is delivered again until it is."""
        for delivery in deliveries:
            self._until(partial(self._taken, delivery.guid), f"delivery {delivery.guid} ({delivery.event})")

    def check(self, head_sha: str, name: str, conclusion: str) -> None:
        """Wait until the check on this head concludes so."""
        self.world.up.wait_for_check(head_sha, name, conclusion=conclusion, timeout=PATIENCE)

    def report_a_night(self, backend: Backend, sha: str) -> int:
        """A report of a run that no dispatch started, sent until it is answered; returns the answer's status."""
        payload = {"repository": {"full_name": self.world.up.name}, "head_sha": sha}
        body = {"event_type": "nightly", "delivery_id": sha, "payload": payload}
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            answer = backend.callback(
                body,
                "completed",
                "success",
                "test",
                run_id="71",
                event_name="schedule",
                url=f"{self.world.url}/github/callback",
            )
            if 0 < answer.status < 500:
                return answer.status
            time.sleep(0.05)
        raise TimeoutError("the report of a night was not answered")

    def calm(self) -> None:
        """Wait until what was done is noted as well: a head that is left before is not what it would be without deaths.

        Its gate showed, and nobody had noted that: then the gate of a head that was left ends as cancelled.
        """
        self._until(lambda: self._due() == 0, "a relay with nothing due")

    def settle(self) -> None:
        """Wait until the relay owes nothing: all webhooks are taken, nothing is due, nor after some minutes."""
        for waits in range(3):
            if waits:
                self.relay.pass_time(timedelta(minutes=5))
            self._until(self._quiet, "a relay that owes nothing")

    def _quiet(self) -> bool:
        starts = self.relay.starts
        taken = {one.guid for one in self.world.sim.deliveries if one.ok}
        if not all(self._taken(one.guid) for one in self.world.sim.deliveries if one.guid not in taken):
            return False
        asked = len(self.world.sim.log)
        for _ in range(3):
            if self._due() != 0:
                time.sleep(0.02)
                return False
            time.sleep(0.05)
        # Commits that are not effects, such as a sweep's, may still come; a process that died says so by its successor.
        return starts == self.relay.starts and asked == len(self.world.sim.log)

    def _due(self) -> float:
        time.sleep(0.01)
        try:
            return self.world.metric("crcr_oldest_due_seconds")
        except OSError:
            return -1

    def _taken(self, guid: str) -> bool:
        time.sleep(0.01)
        attempts = [one for one in self.world.sim.deliveries if one.guid == guid]
        if any(one.ok for one in attempts):
            return True
        if attempts[-1].response.error == "under way":
            return False
        if self._due() >= 0:
            self.world.sim.redeliver(guid)
        return False

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            wait_until(lambda: bool(self.relay.strange) or condition(), PATIENCE, what=what)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; the relay said: {self.relay.log.read_text()[-1500:]}") from None


def tell(world: World, relay: MortalRelay) -> Told:
    """Play the story to its end, and leave the relay with nothing to do."""
    cast, up = Cast(world, relay), world.up
    heads: dict[str, str] = {}

    pr = up.open_pull_request(author="contributor", files=("src/add.py",))
    cast.act(pr.deliveries)
    heads["opened"] = pr.head_sha
    cast.check(pr.head_sha, GATE, "failure")

    cast.act(pr.label(LABEL))
    cast.check(pr.head_sha, "crcr/three/label", "success")

    ended(world, "four/gate")
    cast.act(up.comment(pr, "triager", "/crcr rerun four/gate"))
    cast.check(pr.head_sha, GATE, "success")
    cast.check(pr.head_sha, CHECK, "success")
    cast.calm()

    cast.act(pr.push(files=("src/add.py",)))
    heads["pushed"] = pr.head_sha
    cast.check(pr.head_sha, GATE, "failure")
    cast.act(up.comment(pr, "contributor", "/crcr status"))
    ended(world, "four/gate")
    cast.act(up.press_action(pr.head_sha, CHECK, "rerun", "triager"))
    cast.check(pr.head_sha, GATE, "success")
    cast.check(pr.head_sha, CHECK, "success")

    cast.act(up.push("refs/heads/nightly"))
    night = up.repository.refs["refs/heads/nightly"]
    answered = cast.report_a_night(world.sim.backend("two/paths"), night)

    endless_runs(world, pr)
    cast.calm()
    cast.act(pr.close())
    cast.settle()
    return Told(world, heads, night, answered)


def ended(world: World, backend: str) -> None:
    """Wait until GitHub holds the newest run of this backend for over: only such a run can be run again."""
    runs = world.sim.backend(backend)
    wait_until(lambda: runs.runs[-1].status == "completed", PATIENCE, what=f"the end of the run of {backend}")


def endless_runs(world: World, pr: PullRequest) -> None:
    """Wait until the run that is to be cancelled is there."""

    def there() -> bool:
        return any(_head(run.client_payload) == pr.head_sha for run in world.sim.backend("two/endless").runs)

    wait_until(there, PATIENCE, what="a run to be cancelled")


def _head(client_payload: dict[str, Any]) -> str:
    return str(client_payload["relay"]["change"]["head_sha"])
