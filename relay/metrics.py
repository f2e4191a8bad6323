"""What the service counts, for ``/metrics``. One object with a registry of its own, so that no module keeps state."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

from relay.deciding.effects import Kind
from relay.deciding.gaps import Cause
from relay.metrics_waiting import WaitingGauges

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
#: From what a busy minute costs to what an outage does: the last try of the schedule comes after half a day.
_AGES = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600, 10_800, 21_600)


class Metrics:
    """Counters and histograms of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.webhooks = Counter("crcr_webhooks", "Webhooks answered.", ["event", "status"], registry=self.registry)
        self.callbacks = Counter("crcr_callbacks", "Callbacks answered.", ["code"], registry=self.registry)
        self.attempts = Counter("crcr_attempts", "Attempts at effects.", ["kind", "outcome"], registry=self.registry)
        self.attempt_seconds = Histogram(
            "crcr_attempt_seconds", "Time an attempt took.", ["kind"], registry=self.registry, buckets=_SECONDS
        )
        self.effect_age = Histogram(
            "crcr_effect_age_seconds",
            "Time from the decision (the webhook, the callback) to the effect being done.",
            ["kind"],
            registry=self.registry,
            buckets=_AGES,
        )
        self.answer_seconds = Histogram(
            "crcr_answer_seconds",
            "Time to an accepting answer, the reading of the body included.",
            ["what"],
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.github_requests = Counter(
            "crcr_github_requests", "Requests to GitHub.", ["method", "route", "status"], registry=self.registry
        )
        self.effects_open = Gauge("crcr_effects_open", "Effects that are still owed.", registry=self.registry)
        self.oldest_takable_seconds = Gauge(
            "crcr_oldest_effect_seconds",
            "Time since the oldest effect that waits for nothing but a worker could be taken.",
            registry=self.registry,
        )
        self.oldest_due_seconds = Gauge(
            "crcr_oldest_due_seconds",
            "Time since the oldest effect that is not done was due, whatever it waits for.",
            registry=self.registry,
        )
        self.allowlist_age_seconds = Gauge(
            "crcr_allowlist_age_seconds", "Time since the allowlist's source was last read.", registry=self.registry
        )
        self.gaps_found = Counter(
            "crcr_gaps_found", "What webhooks did not tell, found by looking.", ["cause"], registry=self.registry
        )
        self.gaps_healed = Counter(
            "crcr_gaps_healed", "Of that, what was made good by us.", ["cause"], registry=self.registry
        )
        self.gaps_open = Gauge("crcr_gaps_open", "What is still to be made good.", ["cause"], registry=self.registry)
        for cause in Cause:
            self.gaps_found.labels(cause.value)
            self.gaps_healed.labels(cause.value)
            self.gaps_open.labels(cause.value)
        self.circuits = Gauge(
            "crcr_circuits", "Accounts and backends (and GitHub) in trouble.", ["state"], registry=self.registry
        )
        self.accounts_held = Gauge(
            "crcr_accounts_held",
            "Accounts left alone for a limit, or until their budget is free.",
            ["cause"],
            registry=self.registry,
        )
        # A label set costs microseconds to look up and is asked for at each attempt, so those of effects are kept.
        self._attempt = {
            (kind, outcome): self.attempts.labels(kind.value, outcome)
            for kind in Kind
            for outcome in ("done", "retry", "limited", "dead")
        }
        self._seconds = {kind: self.attempt_seconds.labels(kind.value) for kind in Kind}
        self._age = {kind: self.effect_age.labels(kind.value) for kind in Kind}
        self._answered = {what: self.answer_seconds.labels(what) for what in ("webhook", "callback")}
        self.waiting = WaitingGauges(self.registry)

    def attempt(self, kind: Kind, outcome: str, seconds: float, age: float) -> None:
        """One attempt at an effect ended so, after so many seconds and that long after it was decided."""
        self._attempt[kind, outcome].inc()
        self._seconds[kind].observe(seconds)
        if outcome == "done":
            self._age[kind].observe(max(0.0, age))

    def answered(self, path: str, status: int, seconds: float) -> None:
        """A request was answered. What we refuse is left out: anybody could make these figures what they like."""
        if status < 300 and path.startswith("/github/"):
            what = "webhook" if path == "/github/webhook" else "callback"
            self._answered[what].observe(seconds)

    def callback(self, code: str) -> None:
        """One callback was answered with this code."""
        self.callbacks.labels(code).inc()

    def github(
        self, method: str, route: str, status: int | None, _seconds: float, _installation_id: int | None
    ) -> None:
        """One request to GitHub ended with this status, or with None where no answer came."""
        self.github_requests.labels(method, route, "none" if status is None else str(status)).inc()

    def gap_found(self, cause: str) -> None:
        """A gap of this cause was found."""
        self.gaps_found.labels(cause).inc()

    def gap_healed(self, cause: str) -> None:
        """A gap of this cause was healed."""
        self.gaps_healed.labels(cause).inc()

    def render(self, names: Sequence[str] = ()) -> bytes:
        """The page that Prometheus reads, or those series alone that are named."""
        return generate_latest(self.registry.restricted_registry(names) if names else self.registry)
