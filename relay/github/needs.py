"""Which permissions each app needs, and which of them an installation lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Of the app on upstream: checks, comments and labels, the allowlist and commits, changed files, merge groups.
UPSTREAM_NEEDS: Mapping[str, str] = {
    "checks": "write",
    "contents": "read",
    "issues": "write",
    "merge_queues": "read",
    "metadata": "read",
    "pull_requests": "write",
}
#: Of the app on backends: a repository_dispatch needs contents write; runs are observed by actions read.
DOWNSTREAM_NEEDS: Mapping[str, str] = {"actions": "read", "contents": "write", "metadata": "read"}


@dataclass(frozen=True, slots=True)
class Option:
    """A permission that the relay can do without. ``without`` is a clause that says what it does instead."""

    permission: str
    access: str
    without: str


#: Of the app on backends, beyond what it needs.
DOWNSTREAM_OPTIONS: tuple[Option, ...] = (
    Option(
        "actions",
        "write",
        "a rerun is dispatched anew, all jobs of it, and runs of closed or superseded heads are not cancelled",
    ),
)

_RANK = {"read": 1, "write": 2, "admin": 3}


def lacking(granted: Mapping[str, str], needed: Mapping[str, str]) -> dict[str, str]:
    """The needed permissions that are not granted, or not far enough. Write includes read."""
    return {name: access for name, access in needed.items() if _RANK.get(granted.get(name, ""), 0) < _RANK[access]}


def forgone(granted: Mapping[str, str], options: Sequence[Option]) -> tuple[Option, ...]:
    """The optional permissions that are not granted: no fault, but somebody may wonder what is missing."""
    return tuple(option for option in options if lacking(granted, {option.permission: option.access}))
