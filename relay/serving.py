"""Serves a built relay over HTTP: as the process's own job, or in a thread for the demo, the tests and benchmarks."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

import structlog
import uvicorn

from relay.app import Relay
from relay.patience import Room, patient
from relay.process import Role, create_app

log = structlog.get_logger(__name__)

# More connections than honest callers have. Some more come in to be answered 503 at once instead of late.
_MOST_CONNECTIONS = 1_900
_SPARE = 100
# File descriptors that are for others than callers: GitHub's, the HUD's and the database's connections, and files.
_OTHERS = 300
_DESCRIPTORS = 4_096
_SWITCH_SECONDS = 0.0005
_ENDING = (signal.SIGINT, signal.SIGTERM)
#: How long requests under way may take to finish.
FINISHING_SECONDS = 20
_KEEP_ALIVE_SECONDS = 75  # Longer than the idle time of load balancers, so that they and not we close first.


class _Server(uvicorn.Server):
    """uvicorn's server, which takes its leave.

    The first SIGTERM or SIGINT has the worker claim nothing more and ``/readyz`` say so; requests are taken for as
    long as the settings say, so that whoever spreads them has time to see it. Then what is under way is finished, and
    the process ends with 0. A second signal ends it at once, which costs nothing but time: see the outbox.
    """

    def __init__(self, config: uvicorn.Config, relay: Relay, drain_seconds: float) -> None:
        super().__init__(config)
        self._relay = relay
        self._drain_seconds = drain_seconds
        self._told_at: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Listen to the signals that end a process; its owner's handlers are back afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self._told) for each in _ENDING}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _told(self, _number: int, _frame: FrameType | None) -> None:
        for each in _ENDING:
            signal.signal(each, signal.SIG_DFL)
        self._told_at = time.monotonic()

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: take leave step by step, once told to."""
        if self._told_at is not None:
            if not self._relay.worker.stopping:
                log.info("leaving", seconds=self._drain_seconds)
                self._relay.worker.stop()
                self._relay.sweep.stop()
                self._relay.lookout.stop()
                # A connection that is kept would bring the next request to a process that has gone by then.
                self.config.encoded_headers.append((b"connection", b"close"))
            self.should_exit = time.monotonic() - self._told_at >= self._drain_seconds
        return await super().on_tick(counter)

    def end(self) -> None:
        """Take no more requests, finish those under way, and end. From another thread than the server's."""
        self.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # The loop may close on its own in this very moment.
                self._loop.call_soon_threadsafe(self._ended.set)

    async def main_loop(self) -> None:
        """Tick as uvicorn does, but end at once when told to: tests start and stop hundreds of relays."""
        self._loop = asyncio.get_running_loop()
        ticks = 0
        while not await self.on_tick(ticks % 864_000):
            ticks += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), 0.1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End as uvicorn does, but look every few milliseconds whether all requests are finished."""
        for server in self.servers:
            server.close()
        for each in sockets or []:
            each.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.sleep(0.01)  # Whoever was let in just now is known on the loop's next turn.
        try:
            async with asyncio.timeout(FINISHING_SECONDS):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 (nobody would tell us)
                    await asyncio.sleep(0.005)
        except TimeoutError:
            log.warning("requests_cut_short", seconds=FINISHING_SECONDS)
            for task in self.server_state.tasks:
                task.cancel()
        await self.lifespan.shutdown()


def connections_of(descriptors: int) -> int:
    """How many callers may be connected to a process that may have so many files open."""
    return max(_SPARE, min(_MOST_CONNECTIONS, descriptors - _SPARE - _OTHERS))


def _descriptors() -> int:
    """How many files this process may have open, after asking for as many as it can use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _DESCRIPTORS
    if soft < _DESCRIPTORS:
        soft = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def _server(relay: Relay, role: Role, most: int = _MOST_CONNECTIONS) -> _Server:
    config = uvicorn.Config(
        create_app(relay, role),
        log_config=None,
        lifespan="on",
        access_log=False,
        server_header=False,
        # uvicorn counts connections, idle ones too, which at ``most`` make room for others.
        limit_concurrency=most + _SPARE // 2,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        backlog=2048,
        http=patient(Room(most, _SPARE)),
        ws="none",
    )
    # A worker has no callers that would have to go elsewhere.
    return _Server(config, relay, 0.0 if role == "worker" else relay.settings.drain_seconds)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((host, port))
    return listening


def run(relay: Relay, *, host: str, port: int, role: Role) -> None:
    """Serve until SIGINT or SIGTERM, then finish what is under way. Raises OSError when the address cannot be had."""
    listening = _listen(host, port)
    # The writer's thread hands over Python's lock at each statement and must get it back from a busy event loop: with
    # the usual 5 ms for each, a webhook of twenty statements would wait a tenth of a second.
    sys.setswitchinterval(_SWITCH_SECONDS)
    # What was loaded so far lives as long as the process, so that the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    # Little of what a request makes refers to itself; at the usual 700 objects the collector runs several times in one.
    gc.set_threshold(10_000, 20, 20)
    _server(relay, role, connections_of(_descriptors())).run(sockets=[listening])


@contextlib.contextmanager
def listening_socket(host: str = "127.0.0.1", port: int = 0) -> Iterator[tuple[socket.socket, int]]:
    """A bound socket and its port, for callers that must know their address before they can be built."""
    listening = _listen(host, port)
    try:
        yield listening, int(listening.getsockname()[1])
    finally:
        listening.close()


@contextlib.contextmanager
def serving(relay: Relay, listening: socket.socket, *, role: Role = "all") -> Iterator[None]:
    """Serve in a thread of its own for as long as the block runs. Raises RuntimeError when it does not come up."""
    server = _server(relay, role)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="relay", daemon=True)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise RuntimeError("the relay did not start; its log says why")
            thread.join(0.005)
        yield
    finally:
        server.end()
        thread.join(30)
