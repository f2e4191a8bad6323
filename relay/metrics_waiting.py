"""What waits, and for how long: the figures that nobody counts as they change, and that are read when somebody asks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from prometheus_client import CollectorRegistry, Counter, Gauge

from relay.deciding.effects import Kind
from relay.store.waiting import Waiting

#: So many causes of dead letters have a time series each, the commonest first; the rest are one together.
MOST_REASONS = 40
OTHER = "other"


class WaitingGauges:
    """Gauges in ``registry``. Every label is of a closed set, or is cut to so many."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.oldest = Gauge(
            "crcr_oldest_open_seconds",
            "Time since the oldest effect that is not done was decided.",
            ["kind"],
            registry=registry,
        )
        self.open = Gauge("crcr_effects_waiting", "Effects that are not done.", ["kind"], registry=registry)
        self.dead = Gauge(
            "crcr_dead_letters",
            "Effects that were given up, by what they died of.",
            ["kind", "reason"],
            registry=registry,
        )
        self.unheard = Gauge(
            "crcr_oldest_unheard_seconds",
            "Time since the oldest dispatch was sent of which no run has said a word, on open changes.",
            registry=registry,
        )
        self.job = Gauge(
            "crcr_oldest_open_job_seconds",
            "Time since the oldest job began that has not ended, on open changes.",
            registry=registry,
        )
        self.overdue = Gauge(
            "crcr_oldest_deadline_seconds",
            "How long ago the oldest deadline passed that nobody has looked at.",
            registry=registry,
        )
        self.gates = Gauge("crcr_gates_open", "Gates that wait on open changes.", registry=registry)
        self.allowlist_entries = Gauge(
            "crcr_allowlist_entries", "Entries of the allowlist in force.", registry=registry
        )
        self.allowlist_faults = Gauge(
            "crcr_allowlist_faults", "Faults of the allowlist in force.", ["severity"], registry=registry
        )
        self.allowlist_unread = Gauge(
            "crcr_allowlist_unread", "1 while the allowlist's source cannot be read.", registry=registry
        )
        self.requests_left = Gauge(
            "crcr_github_requests_left",
            "What GitHub lets the account ask in this hour that has least left, as last told to this process.",
            ["side"],
            registry=registry,
        )
        self.write_failures = Counter(
            "crcr_database_write_failures", "Commits that the database did not take.", registry=registry
        )
        self._failed = 0

    def show(self, waiting: Waiting) -> None:
        """Show what was read."""
        for kind in Kind:
            self.oldest.labels(kind.value).set(waiting.oldest.get(kind, timedelta()).total_seconds())
            self.open.labels(kind.value).set(waiting.open.get(kind, 0))
        self.unheard.set(waiting.unheard.total_seconds())
        self.job.set(waiting.job.total_seconds())
        self.overdue.set(waiting.overdue.total_seconds())
        self.gates.set(waiting.gates)
        # What nobody died of any more must not go on being shown.
        self.dead.clear()
        for (kind_name, reason), count in bounded(waiting.dead).items():
            self.dead.labels(kind_name, reason).set(count)

    def failed(self, commits: int) -> None:
        """So many commits have failed since the start."""
        self.write_failures.inc(max(0, commits - self._failed))
        self._failed = max(commits, self._failed)

    def left(self, by_side: Mapping[str, int]) -> None:
        """So many requests are left, by side; nothing is shown of a side that has not been told lately."""
        self.requests_left.clear()
        for side, left in by_side.items():
            self.requests_left.labels(side).set(left)


def bounded(dead: Mapping[tuple[str, str], int]) -> Mapping[tuple[str, str], int]:
    """The commonest causes, and of each kind the rest together."""
    ordered = sorted(dead, key=lambda cause: (-dead[cause], cause))
    found = {cause: dead[cause] for cause in ordered[:MOST_REASONS]}
    for kind, reason in ordered[MOST_REASONS:]:
        found[kind, OTHER] = found.get((kind, OTHER), 0) + dead[kind, reason]
    return found
