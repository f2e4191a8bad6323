"""The record of every request the simulator answered. Tests assert on it, since it is what GitHub saw."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request. ``effect`` says that state changed, whatever the answer was; ``fault`` names a scripted fault.

    ``installation`` and ``repository`` are the ids of the token's installation and of the repository that the path
    named; ``repository_name`` is its name at that time. ``body`` is the parsed JSON, None where there was none.
    """

    at: datetime
    method: str
    path: str
    query: str
    status: int
    installation: int | None
    repository: int | None
    repository_name: str | None
    body: Any
    headers: dict[str, str]
    effect: bool
    fault: str | None
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class SentCallback:
    """One callback as a backend sent it, each try for itself. ``answer`` is the status, 0 where none came.

    ``token`` is the capability in the body; the rest is what the body says under ``workflow``.
    """

    began: datetime
    ended: datetime
    backend: str
    token: str
    delivery_id: str
    run_id: str
    attempt: str
    job: str
    check_run_id: str
    status: str
    conclusion: str | None
    answer: int


class RequestLog:
    """An append-only list of requests with the questions that tests ask of it."""

    def __init__(self) -> None:
        self._entries: list[LoggedRequest] = []

    def append(self, entry: LoggedRequest) -> None:
        """Note one answered request."""
        self._entries.append(entry)

    def __iter__(self) -> Iterator[LoggedRequest]:
        return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: int) -> LoggedRequest:
        return self._entries[index]

    def clear(self) -> None:
        """Forget everything so far."""
        self._entries.clear()

    def since(self, position: int) -> list[LoggedRequest]:
        """The requests after the first ``position`` ones; ``len(log)`` taken earlier is such a position."""
        return self._entries[position:]

    def of(self, method: str, ending: str, repository: str | None = None) -> list[LoggedRequest]:
        """The requests of a method whose path ends so, optionally at one repository (compared without case)."""
        wanted = repository.lower() if repository else None
        return [
            entry
            for entry in self
            if entry.method == method
            and entry.path.endswith(ending)
            and (wanted is None or (entry.repository_name or "").lower() == wanted)
        ]

    def dispatches(self, repository: str | None = None, *, effective: bool = True) -> list[LoggedRequest]:
        """The repository_dispatch calls; by default only those that took effect, whatever their answer."""
        return [entry for entry in self.of("POST", "/dispatches", repository) if entry.effect or not effective]

    def checks(self, repository: str | None = None, *, name: str | None = None) -> list[LoggedRequest]:
        """The writes to check runs that took effect, oldest first; ``name`` keeps those that carry it."""
        return [
            entry
            for entry in self
            if entry.method in {"POST", "PATCH"}
            and "/check-runs" in entry.path
            and entry.effect
            and (repository is None or (entry.repository_name or "").lower() == repository.lower())
            and (name is None or (isinstance(entry.body, dict) and entry.body.get("name") == name))
        ]

    def mints(self) -> list[LoggedRequest]:
        """The installation access tokens that were asked for."""
        return self.of("POST", "/access_tokens")

    def errors(self) -> list[LoggedRequest]:
        """The requests that were refused or failed."""
        return [entry for entry in self if entry.status >= 400 or entry.status == 0]
