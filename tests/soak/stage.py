"""The stage: a simulated GitHub with upstream and the fleet, and the relays' settings for a time that is squeezed."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any

from relay.simulator import Backend, Run, Simulator
from relay.simulator.webhooks import Delivery
from tests.soak.fleet import Member, allowlist, listener

UPSTREAM = "pytorch/pytorch"
#: 10 s, 1 min, 5 min ... become 0.1 s, 0.6 s, 3 s ...
RETRY_SCALE = 0.01


class Stage:
    """What the relay talks to. The simulator lives in this process, so that its record needs no copying."""

    def __init__(self, folder: Path, members: tuple[Member, ...], seed: int, merge_group_seconds: float) -> None:
        self.folder = folder
        self.members = members
        self.sim = Simulator(seed=seed)
        self.sim.wait = False
        self.sim.hud.key = "the key of the hud"
        # Budgets are squeezed as the relay's own are: what it may spend is still less than what GitHub allows.
        limits = self.sim.limits
        limits.primary_per_hour = int(5_000 / RETRY_SCALE)
        limits.points_per_minute = int(limits.points_per_minute / RETRY_SCALE)
        limits.content_per_minute = int(limits.content_per_minute / RETRY_SCALE)
        limits.content_per_hour = int(limits.content_per_hour / RETRY_SCALE)
        self._merge_group_seconds = merge_group_seconds
        self.text = allowlist(members)
        self._log_seen = self._rows_seen = self._calls_seen = self._deliveries_seen = 0
        self._waiting: list[Delivery] = []
        self._running: list[Run] = []
        self._runs_seen = dict.fromkeys((member.name for member in members), 0)
        self.dispatched = self.accepted = self.refused_webhooks = 0

    def set_up(self) -> None:
        """Create everybody. The simulator must be running."""
        self.app = self.sim.create_app()
        self.up = self.sim.create_upstream(UPSTREAM, files={"README.md": "Upstream\n"})
        self.up.push("refs/heads/release/2.9", files={"VERSION": "2.9\n"})
        self.backends: dict[str, tuple[Member, Backend]] = {
            member.name: (member, self.sim.create_backend(member.name, listener=listener(member)))
            for member in self.members
        }
        (self.folder / "allowlist.yml").write_text(self.text)

    def settings(self, database_url: str, url: str) -> Mapping[str, Any]:
        """What a relay is started with."""
        return {
            "upstream": UPSTREAM,
            "github_api_url": self.sim.url,
            "github_app_id": self.app.id,
            "github_private_key": self.app.private_key_pem,
            "webhook_secrets": (self.app.webhook_secret,),
            "allowlist": str(self.folder / "allowlist.yml"),
            "database_url": database_url,
            "public_url": url,
            "oidc_issuers": ({"issuer": self.sim.oidc.issuer, "jwks_url": self.sim.oidc.jwks_url},),
            "hud_api_url": self.sim.hud_url,
            "hud_key": self.sim.hud.key,
            "retry_scale": RETRY_SCALE,
            "check_interval_seconds": 1.0,
            "sweep_seconds": 1.0,
            "merge_group_minutes": self._merge_group_seconds / 60,
        }

    def new_runs(self) -> Iterator[tuple[Member, list[Run]]]:
        """The runs that began since it was last asked."""
        for name, (member, backend) in self.backends.items():
            seen = self._runs_seen[name]
            if len(backend.repository.runs) > seen:
                # Between its two first moments, which another thread may see, a run has no attempt yet.
                runs = list(takewhile(lambda run: run.attempts, backend.runs[seen:]))
                self._runs_seen[name] += len(runs)
                self._running += runs
                yield member, runs

    def redeliver(self) -> int:
        """Deliver again what was not taken, as GitHub's own page would; returns how many are not taken yet."""
        every = self.sim.world.webhooks.deliveries
        fresh = every[self._deliveries_seen :]
        self._deliveries_seen += len(fresh)
        self._waiting += fresh
        left: list[Delivery] = []
        for one in self._waiting:
            if one.response.error == "under way":
                left.append(one)
            elif not one.ok and (one.response.status == 0 or one.response.status >= 500):
                self.up.did(lambda one=one: [self.sim.world.webhooks.redeliver(one)])  # type: ignore[misc]
            elif not one.ok:
                self.refused_webhooks += 1
        self._waiting = left
        return len(left) + len(every) - self._deliveries_seen

    def count(self) -> None:
        """Bring the figures up to date."""
        for entry in self.sim.log.since(self._log_seen):
            self._log_seen += 1
            self.dispatched += entry.effect and entry.path.endswith("/dispatches")
            if "/check-runs" in entry.path and isinstance(entry.body, dict):
                entry.body.pop("output", None)
        for call in self.sim.callbacks[self._calls_seen :]:
            self._calls_seen += 1
            self.accepted += call.answer == 200

    def tidy(self) -> None:
        """Forget what nobody will look at: bodies of a week do not fit into memory, and slow the collector down."""
        for row in self.sim.hud.rows[self._rows_seen :]:
            self._rows_seen += 1
            kept = row.body["untrusted"]["callback_payload"]
            kept.pop("payload", None)
            for name in ("failed_tests", "test_results", "notes", "url", "started_at", "completed_at"):
                kept["workflow"].pop(name, None)
        still: list[Run] = []
        for run in self._running:
            if run.status != "completed":
                still.append(run)
                continue
            told = run.client_payload["payload"]
            brief = {name: told[name] for name in ("action", "ref", "number") if name in told}
            told.clear()
            told.update(brief)
        self._running = still
        gc.collect(1)
        gc.freeze()

    @property
    def running(self) -> int:
        """How many runs are not over, as far as they were seen."""
        return sum(run.status != "completed" for run in self._running)

    def open_checks(self) -> int:
        """How many of GitHub's newest checks are open."""
        newest = {(run.head_sha, run.name): run for run in list(self.up.repository.check_runs.values())}
        return sum(run.status != "completed" for run in newest.values())


def seconds() -> float:
    """Now, as the simulator's record has it."""
    return datetime.now(UTC).timestamp()
