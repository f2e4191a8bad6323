"""A relay that dies where it is told, and is started again each time, as a service manager would."""

from __future__ import annotations

import json
import signal
import threading
import time
import urllib.request
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from sqlalchemy.engine import make_url

from relay.serving import listening_socket
from relay.simulator import wait_until
from tests.crash.crossings import Crossing, Deaths, read_crossings
from tests.started.process import Started, start
from tests.stories.relay_process import environment
from tests.stories.world import World

#: What a dead process had begun is taken over a minute later, on SQLite as soon as it must show at GitHub. Nobody waits
#: for that here: time is told to pass, and no more of it than is needed.
TAKEN_OVER = {"sqlite": timedelta(seconds=1), "postgresql": timedelta(seconds=61)}
#: The longest that a start may take.
START_SECONDS = 120.0


class MortalRelay:
    """One service at one address: a process at a time, the next one as soon as one was killed."""

    def __init__(self, world: World, die_at: Deaths = ()) -> None:
        self._world = world
        self._die_at = frozenset(die_at)
        self._ahead = timedelta()
        self._clock = world.folder / "clock"
        self._clock.write_text(f"{0:20.3f}")
        self.record = world.folder / "crossings"
        self.log = world.folder / "relay.log"
        self._closing = threading.Event()
        self.starts = 0
        self.killed_at: list[datetime] = []
        self._met_before_death: list[int] = []
        self.strange: list[str] = []
        with listening_socket() as (_, port):
            self._port = port
        world.port = port

    def __enter__(self) -> Self:
        self._output = self.log.open("ab")
        process = self._start()
        self._watch = threading.Thread(target=self._watching, args=(process,), name="service manager", daemon=True)
        self._watch.start()
        self.wait_until_up()
        self._world.sim.webhook_url = f"{self._world.url}/github/webhook"
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._watch.join(30)
        self._output.close()

    def pass_time(self, by: timedelta) -> None:
        """Let time pass, for the service and for the simulator."""
        self._ahead += by
        with self._clock.open("r+") as file:
            file.write(f"{self._ahead.total_seconds():20.3f}")
        self._world.clock.advance(by)

    def wait_until_up(self) -> None:
        """Block until it answers. Raises TimeoutError with what it said last, RuntimeError where it does not start."""
        try:
            wait_until(self._answers, START_SECONDS, what="a service that answers")
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.log.read_text()[-2000:]}") from None

    def crossings(self) -> list[Crossing]:
        """Every crossing so far, of all its processes."""
        return read_crossings(self.record)

    def deaths(self) -> list[Crossing]:
        """Where it died, and when: whatever was met last before the next start."""
        return [self.crossings()[met - 1] for met in self._met_before_death]

    def _answers(self) -> bool:
        if self.strange:
            raise RuntimeError(self.strange[0])
        try:
            urllib.request.urlopen(f"{self._world.url}/readyz", timeout=5).close()
        except OSError:
            time.sleep(0.01)
            return False
        return True

    def _start(self) -> Started:
        self.starts += 1
        return start(
            *("--port", str(self._port), "--record", str(self.record), "--clock", str(self._clock)),
            *("--die-at", json.dumps(list(self._die_at))),
            module="tests.crash.serve",
            environment=environment(self._world.settings()),
            folder=self._world.folder,
            output=self._output,
        )

    def _watching(self, process: Started) -> None:
        while True:
            status = self._ended(process)
            if self._closing.is_set():
                return
            if status != -signal.SIGKILL:
                self.strange.append(f"a process ended with {status} by itself: {self.log.read_text()[-2000:]}")
                return
            met = self.crossings()
            # A busy machine tells us late, and how close to a request it died is what explains that this was repeated.
            late = timedelta(seconds=time.perf_counter() - met[-1].at)
            self.killed_at.append(self._world.clock.now() - late)
            self._met_before_death.append(len(met))
            self._world.hushed(0.1)  # What it had sent is read before time passes and the next one sends.
            self.pass_time(TAKEN_OVER[make_url(self._world.database_url).get_backend_name()])
            process = self._start()

    def _ended(self, process: Started) -> int:
        """Wait for its end, which is ours to bring about where the block ends first."""
        while (status := process.poll()) is None:
            if self._closing.wait(0.01):
                process.kill()
                return process.wait(30)
        return status
