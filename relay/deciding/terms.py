"""The terms an entry had when a backend was told of a change: later edits of the allowlist do not move them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import timedelta

from allowlist.model import Entry, OnSilence


@dataclass(frozen=True, slots=True)
class Terms:
    """What a dispatch was promised and promises: deadlines in seconds, completeness, who may report."""

    queue_seconds: float
    run_seconds: float
    expected_jobs: int | None = None
    versions: tuple[str, ...] = ()
    workflow: str | None = None
    legacy: bool = False
    every_commit: bool = False
    on_silence: OnSilence = OnSilence.STEP_DOWN
    cancel_on_close: bool = False

    @classmethod
    def of(cls, entry: Entry) -> Terms:
        """The terms of this entry as it stands now."""
        return cls(
            queue_seconds=entry.timeouts.queue.total_seconds(),
            run_seconds=entry.timeouts.run.total_seconds(),
            expected_jobs=entry.expected_jobs,
            versions=entry.versions,
            workflow=entry.workflow,
            legacy=entry.legacy,
            every_commit=entry.every_commit,
            on_silence=entry.on_silence,
            cancel_on_close=entry.cancel_on_close,
        )

    @property
    def queue(self) -> timedelta:
        """How long after our 204 the backend may take to start."""
        return timedelta(seconds=self.queue_seconds)

    @property
    def run(self) -> timedelta:
        """How long after its first start the backend may take to finish."""
        return timedelta(seconds=self.run_seconds)

    def to_json(self) -> str:
        """The text kept on the dispatch row."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Terms:
        """Read what ``to_json`` wrote."""
        raw = json.loads(text)
        raw["versions"] = tuple(raw["versions"])
        raw["on_silence"] = OnSilence(raw["on_silence"])
        return cls(**raw)
