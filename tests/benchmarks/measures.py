"""The measurements, one function for each group of lines of the table."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.benchmarks.load import Answers, Load
from tests.benchmarks.material import Told, Webhooks, report, reports, told
from tests.benchmarks.site import Databases, GitHub, Relay, backend_names
from tests.benchmarks.table import Figure, milliseconds, percentile, spread

_LINES = 64
#: What a look at upstream asks last, and how long it is waited for.
_LAST_LOOK = "matching-refs"
_LOOK_SECONDS = 20.0
#: A matrix of ten jobs, each with a start and an end, is what a backend usually reports.
_JOBS = 10


@dataclass(frozen=True)
class Bench:
    """What every measurement needs; ``seconds`` is how long each load lasts."""

    github: GitHub
    webhooks: Webhooks
    databases: Databases
    seconds: float
    repeats: int
    profile: bool = False

    @contextlib.contextmanager
    def relay(self, level: str, backends: int, *, hud: bool = False, patient: bool = False) -> Iterator[Relay]:
        """A relay with its tokens warm and nothing owed. ``patient``: it waits as long as in earnest."""
        profile_to = self.databases.folder / "profile" if self.profile else None
        names = backend_names(backends)
        self.github.ensure_backends(names)
        with tempfile.TemporaryDirectory(dir=self.databases.folder) as folder:
            relay = Relay(self.github, Path(folder), self.databases.fresh(), level, names, hud, profile_to, patient)
            since = self.github.position()
            relay.start()
            try:
                self._looked(since)
                relay.idle()
                asyncio.run(send(relay, self.webhooks.opened(2)))
                relay.idle()
                yield relay
            finally:
                relay.stop()

    def _looked(self, since: int) -> None:
        """Wait until the relay has compared upstream with what it knows, as it does once after each start."""
        end = time.monotonic() + _LOOK_SECONDS
        while time.monotonic() < end and not any(_LAST_LOOK in shape for shape in self.summary(since)["by_endpoint"]):
            time.sleep(0.1)

    def summary(self, since: int) -> dict[str, Any]:
        """What GitHub was asked since then."""
        answer: dict[str, Any] = self.github.tell("summary", since=since)
        return answer


async def send(relay: Relay, requests: Sequence[bytes], in_flight: int = 1) -> Answers:
    """Requests in a closed loop."""
    async with Load(relay.port, in_flight) as load:
        return await load.closed(requests, in_flight)


async def pace(relay: Relay, requests: Sequence[bytes], per_second: float) -> Answers:
    """Requests at a fixed rate."""
    async with Load(relay.port, _LINES) as load:
        return await load.paced(requests, per_second)


def last_out(bench: Bench, backends: int, budget: str = "") -> list[Figure]:
    """How long after a webhook GitHub has answered the last of its dispatches."""
    with bench.relay("L2", backends) as relay:
        return [_last_out(bench, relay, budget)]


def _last_out(bench: Bench, relay: Relay, budget: str) -> Figure:
    times = []
    for request in bench.webhooks.opened(bench.repeats):
        since = bench.github.position()
        began = time.perf_counter()
        asyncio.run(send(relay, [request]))
        relay.idle()
        # Both processes read the machine's one monotonic clock.
        times.append(bench.summary(since)["last_dispatch_ended"] - began)
        time.sleep(0.2)
    what = f"last of {len(relay.backends)} dispatches out, after the webhook"
    shown = f"{milliseconds(percentile(times, 0.5))} (median of {len(times)}; best {milliseconds(min(times))})"
    return Figure(what, shown, budget)


def fan_out(bench: Bench) -> list[Figure]:
    """Fifty backends: the last dispatch, what each costs, and the webhook's answer while the worker drains."""
    with bench.relay("L2", 50) as relay:
        figures = [_last_out(bench, relay, "under 150 ms")]
        requests = bench.webhooks.opened(max(4, int(bench.seconds)))
        since, cpu = bench.github.position(), relay.cpu()
        for request in requests:
            asyncio.run(send(relay, [request]))
            relay.idle()
        spent, summary = relay.cpu() - cpu, bench.summary(since)
        sent = summary["dispatches"]
        figures += [
            Figure(
                "CPU per dispatch, one webhook at a time",
                f"{spent / sent * 1000:.2f} ms ({sent} dispatches)",
                "under 4 ms",
            ),
            Figure("GitHub calls per dispatch, gate included", f"{summary['requests'] / sent:.3f}", "under 1.05"),
        ]
        return figures + _webhook_rate(bench, relay, 20)


def small_fan_out(bench: Bench) -> list[Figure]:
    """Five backends and a webhook every 10 ms."""
    with bench.relay("L2", 5) as relay:
        return _webhook_rate(bench, relay, 100)


def _webhook_rate(bench: Bench, relay: Relay, per_second: int) -> list[Figure]:
    requests = bench.webhooks.opened(int(per_second * bench.seconds))
    since, cpu = bench.github.position(), relay.cpu()
    answers = asyncio.run(pace(relay, requests, per_second))
    relay.idle()
    spent, summary = relay.cpu() - cpu, bench.summary(since)
    with_backends = f"{len(relay.backends)} backends, {per_second} webhooks/s"
    return [
        Figure(f"webhook answered, {with_backends}", spread(answers.seconds) + answers.refused, "p99 under 25 ms"),
        Figure(
            f"CPU per dispatch, {with_backends}",
            f"{spent / summary['dispatches'] * 1000:.2f} ms ({summary['dispatches']} dispatches)",
            "under 4 ms",
        ),
        Figure(f"memory after it, {with_backends}", f"{relay.memory():.0f} MB", "under 200 MB"),
    ]


def _dispatched(bench: Bench, relay: Relay, webhooks: int) -> list[Told]:
    since = bench.github.position()
    asyncio.run(send(relay, bench.webhooks.opened(webhooks)))
    relay.idle()
    return told(bench.github, since)


def callbacks(bench: Bench) -> list[Figure]:
    """Callbacks at L2 with the HUD on: closed loops of three sizes, and a fixed rate."""
    figures = []
    with bench.relay("L2", 50, hud=True) as relay:
        for in_flight, share, budget in ((1, 0.5, ""), (8, 1, ""), (32, 1.5, "280/s, p99 under 200 ms")):
            figures += _closed_callbacks(bench, relay, in_flight, share, budget)
        wanted = int(50 * bench.seconds)
        requests = reports(_dispatched(bench, relay, -(-wanted // (50 * 2 * _JOBS))), _JOBS)[:wanted]
        answers = asyncio.run(pace(relay, requests, 50))
        relay.idle()
        figures.append(Figure("callbacks at 50/s", spread(answers.seconds) + answers.refused, "p99 under 25 ms"))
        figures.append(Figure("memory after the callbacks", f"{relay.memory():.0f} MB", "under 200 MB"))
    return figures


def callbacks_without_checks(bench: Bench) -> list[Figure]:
    """The middle of ``callbacks`` alone, for whoever changes something and wants one number."""
    with bench.relay("L2", 50, hud=True) as relay:
        return _closed_callbacks(bench, relay, 32, 1, "280/s, p99 under 200 ms")


def callbacks_with_checks(bench: Bench) -> list[Figure]:
    """Callbacks at L4: each dispatch has a check, each change a gate."""
    with bench.relay("L4", 50, hud=True) as relay:
        return _closed_callbacks(bench, relay, 32, 1, "as at L2")


def _closed_callbacks(bench: Bench, relay: Relay, in_flight: int, share: float, budget: str) -> list[Figure]:
    rounds = max(1, int(bench.seconds * share * 300 / (50 * 2 * _JOBS)))
    requests = reports(_dispatched(bench, relay, rounds), _JOBS)
    cpu = relay.cpu()
    answers = asyncio.run(send(relay, requests, in_flight))
    busy = relay.cpu() - cpu
    # The looks at the runs cost the same however many jobs a run has, and come long after.
    relay.idle(later=False)
    spent = relay.cpu() - cpu
    how = f"{relay.level}, HUD on, {in_flight} in flight"
    return [
        Figure(
            f"callbacks, {how}",
            f"{answers.rate:.0f}/s, {spread(answers.seconds)}{answers.refused}",
            budget,
        ),
        Figure(
            f"CPU per callback, {how}",
            f"{spent / len(requests) * 1000:.2f} ms with HUD drained ({busy / answers.took:.2f} cores while they came)",
            "under 2.5 ms",
        ),
    ]


def check_writes(bench: Bench) -> list[Figure]:
    """One L4 backend with ten jobs that begin and end within seconds: what upstream's checks cost."""
    with bench.relay("L4", 1) as relay:
        since = bench.github.position()
        asyncio.run(send(relay, bench.webhooks.opened(1)))
        relay.idle()
        (to,) = told(bench.github, since)
        jobs = [f"test ({number})" for number in range(_JOBS)]
        requests = [report(to, job, "in_progress") for job in jobs]
        requests += [report(to, job, "completed", "success") for job in jobs]
        asyncio.run(pace(relay, requests, 2))
        relay.idle()
        summary = bench.summary(since)
    writes = sum(
        count for shape, count in summary["by_endpoint"].items() if "check-runs" in shape and "GET" not in shape
    )
    return [
        Figure("check writes for one L4 backend with 10 jobs, gate included", str(writes), "at most 6"),
        Figure("GitHub calls of it, its dispatch included", str(summary["requests"]), "at most 20"),
    ]


def killed(bench: Bench) -> list[Figure]:
    """``kill -9`` in the middle of a fan-out, at different moments, and a restart.

    What was under way comes again when its lease is over, so each time takes a minute.
    """
    lost, twice, times = 0, 0, min(3, bench.repeats)
    with bench.relay("L2", 50, patient=True) as relay:
        for number in range(times):
            since = bench.github.position()
            asyncio.run(send(relay, bench.webhooks.opened(1)))
            time.sleep(0.02 + 0.03 * number)
            relay.kill()
            relay.start()
            relay.idle(120)
            names = [entry["repository_name"] for entry in bench.github.tell("log", since=since, dispatches=True)]
            lost += 50 - len(set(names))
            twice += len(names) - len(set(names))
    what = f"kill -9 in a fan-out to 50, {times} times: dispatches lost"
    return [Figure(what, f"{lost} (sent twice: {twice})", "0")]


def outage(bench: Bench) -> list[Figure]:
    """GitHub refuses every connection for a while, and webhooks go on coming."""
    down = min(20.0, bench.seconds * 2)
    with bench.relay("L2", 200, patient=True) as relay:
        requests = bench.webhooks.opened(int(down) + 4)
        since = bench.github.position()

        async def through() -> None:
            async with Load(relay.port, 4) as load:
                sending = asyncio.create_task(load.paced(requests, 1))
                await asyncio.sleep(1.5)
                await asyncio.to_thread(bench.github.tell, "fault", kind="connection reset before effect", times=None)
                await asyncio.sleep(down)
                await asyncio.to_thread(bench.github.tell, "clear_faults")
                await sending

        asyncio.run(through())
        began = time.monotonic()
        relay.idle()
        took = time.monotonic() - began
        sent = bench.summary(since)["dispatches"]
    share = sent / (200 * len(requests))
    what = f"GitHub down {down:.0f} s while webhooks arrive, 200 backends: delivered"
    return [Figure(what, f"{share:.1%} ({took:.0f} s after the last webhook)", "100 %")]


def quick(bench: Bench) -> Bench:
    """The same in a fraction of the time."""
    return replace(bench, seconds=2.0, repeats=3)
