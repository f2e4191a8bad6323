"""The thread in which the simulated GitHub lives, and the way into it from other threads."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

import uvicorn

T = TypeVar("T")


class Closing(Protocol):
    """Something that has to be closed on the loop."""

    async def close(self) -> None:
        """Stop, and release what is held."""


class _Server(uvicorn.Server):
    """A server that says when it is up."""

    def __init__(self, config: uvicorn.Config, ready: threading.Event) -> None:
        super().__init__(config)
        self._ready = ready
        self.ended = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, and say so."""
        await super().startup(sockets)
        self._ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End at once: requests that are held back by a fault lose their connection and are not waited for."""
        for server in self.servers:
            server.close()
        for sock in sockets or []:
            sock.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        # uvicorn learns of it on the next turns of the loop; until then it would answer for what is cancelled.
        for _ in range(3):
            await asyncio.sleep(0)
        tasks = list(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def main_loop(self) -> None:
        """Tick as uvicorn does, but end at once when told to: tests start and stop hundreds of simulators."""
        ticks = 0
        while not await self.on_tick(ticks % 864_000):
            ticks += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ended.wait(), 0.1)


class LoopThread:
    """uvicorn on a loop of its own. ``call`` runs a function there, so that all state changes on one thread."""

    def __init__(
        self, application: Any, http: type[asyncio.Protocol], host: str, port: int, closing: list[Closing]
    ) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except OSError:
            self._socket.close()
            raise
        self.host, self.port = host, int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            application,
            http=http,
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="none",
            proxy_headers=False,
            server_header=False,
            backlog=4096,
            timeout_keep_alive=60,
            timeout_graceful_shutdown=1,
        )
        self._config = config
        self._ready = threading.Event()
        self._server = _Server(config, self._ready)
        self._closing = closing
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="github-simulator", daemon=True)

    def start(self) -> None:
        """Serve. Raises RuntimeError when the server does not come up."""
        self._thread.start()
        if not self._ready.wait(20) or self._failure is not None:
            raise RuntimeError("the simulator did not start") from self._failure

    def stop(self) -> None:
        """Stop serving, cancel what is under way, and join the thread. One that never started only frees its port."""
        if self._thread.ident is None:
            self._socket.close()
            return
        self._server.should_exit = True
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # The loop may close on its own in this very moment.
                loop.call_soon_threadsafe(self._server.ended.set)
        self._thread.join(20)

    def join(self) -> None:
        """Wait until the server has stopped."""
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the loop and return what it returns or raise what it raises. Safe from any thread."""
        loop = self._loop
        if loop is None:
            raise RuntimeError("the simulator is not running: use it inside its with block")
        if threading.current_thread() is self._thread:
            return function()
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 (it is raised in the thread that asked)
                future.set_exception(error)

        loop.call_soon_threadsafe(run)
        return future.result(60)

    def wait_for(self, work: Coroutine[Any, Any, T], timeout: float = 60.0) -> T:
        """Run a coroutine on the loop and wait for its result. Not for the loop's own thread."""
        if self._loop is None:
            raise RuntimeError("the simulator is not running: use it inside its with block")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=self._config.get_loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 (the starting thread raises it)
            self._failure = error
        finally:
            self._loop = None
            self._ready.set()
            self._socket.close()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._server.serve(sockets=[self._socket])
        for item in self._closing:
            await item.close()
