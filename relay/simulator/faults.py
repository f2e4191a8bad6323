"""Scripted faults: what GitHub does on a bad day, matched to requests and counted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from random import Random


class Kind(StrEnum):
    """What goes wrong. "After" means that the request took effect and only its answer was lost."""

    LATENCY = "latency"
    LATENCY_AFTER = "latency after effect"
    SERVER_ERROR = "server error before effect"
    SERVER_ERROR_AFTER = "server error after effect"
    SECONDARY_LIMIT = "secondary limit"
    PRIMARY_LIMIT = "primary limit"
    TIMEOUT = "timeout before effect"
    TIMEOUT_AFTER = "timeout after effect"
    RESET = "connection reset before effect"
    RESET_AFTER = "connection reset after effect"
    MISSING_PERMISSION = "missing permission"
    UNAUTHORIZED = "bad credentials"
    NOT_FOUND = "not found"
    GONE = "gone"
    ARCHIVED = "archived"
    MALFORMED_JSON = "malformed JSON"


AFTER = frozenset(
    {Kind.LATENCY_AFTER, Kind.SERVER_ERROR_AFTER, Kind.TIMEOUT_AFTER, Kind.RESET_AFTER, Kind.MALFORMED_JSON}
)


@dataclass(frozen=True)
class Match:
    """Which requests a fault meets. Every field that is set must agree; ``path`` is a regular expression to search.

    ``repository`` and ``account`` (the installation's) compare without case.
    """

    method: str | None = None
    path: str | None = None
    repository: str | None = None
    account: str | None = None
    installation: int | None = None

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        return re.compile(self.path) if self.path is not None else None

    def meets(
        self, method: str, path: str, repository: str | None, account: str | None, installation: int | None
    ) -> bool:
        """Whether a request is one of these."""
        return (
            (self.method is None or self.method == method)
            and (self._pattern is None or self._pattern.search(path) is not None)
            and (self.repository is None or self.repository.lower() == (repository or "").lower())
            and (self.account is None or self.account.lower() == (account or "").lower())
            and (self.installation is None or self.installation == installation)
        )


@dataclass(frozen=True)
class Fault:
    """One scripted fault: it lets ``skip`` matching requests pass, then meets ``times`` of them (None: all).

    ``status`` is the answer's status where the kind leaves a choice (502, 403). ``seconds`` is the latency, how long
    a timeout holds the line, or how far off a primary limit's reset is. ``retry_after`` None leaves the header out.
    ``share`` of 1 meets all matching requests; a smaller one meets that share of them, at random by ``seed``.
    """

    kind: Kind
    match: Match = Match()
    times: int | None = 1
    skip: int = 0
    status: int | None = None
    seconds: float = 30.0
    retry_after: int | None = None
    share: float = 1.0
    seed: int = 0


@dataclass
class _Armed:
    fault: Fault
    chance: Random
    met: int = 0
    seen: int = 0


class Faults:
    """The faults in force, oldest first; the first that matches a request meets it."""

    def __init__(self) -> None:
        self._armed: list[_Armed] = []

    def add(self, fault: Fault) -> Fault:
        """Put a fault in force, and return it for ``remove``."""
        self._armed.append(_Armed(fault, Random(fault.seed)))  # noqa: S311 (which requests fail is no secret)
        return fault

    def remove(self, fault: Fault) -> None:
        """Take a fault out of force; one that is not in force is no error."""
        self._armed = [armed for armed in self._armed if armed.fault is not fault]

    def clear(self) -> None:
        """Take every fault out of force."""
        self._armed = []

    def met(self, fault: Fault) -> int:
        """How many requests this fault has met so far; 0 after it was removed."""
        return sum(armed.met for armed in self._armed if armed.fault is fault)

    def take(
        self, method: str, path: str, repository: str | None, account: str | None, installation: int | None
    ) -> Fault | None:
        """The fault that this request meets, if any; it counts as met."""
        for armed in self._armed:
            fault = armed.fault
            if fault.times is not None and armed.met >= fault.times:
                continue
            if not fault.match.meets(method, path, repository, account, installation):
                continue
            armed.seen += 1
            if armed.seen <= fault.skip or (fault.share < 1 and armed.chance.random() >= fault.share):
                continue
            armed.met += 1
            return fault
        return None
