"""Which permissions each app needs, and which of them an installation lacks."""

from __future__ import annotations

from collections.abc import Mapping

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

_RANK = {"read": 1, "write": 2, "admin": 3}


def lacking(granted: Mapping[str, str], needed: Mapping[str, str]) -> dict[str, str]:
    """The needed permissions that are not granted, or not far enough. Write includes read."""
    return {name: access for name, access in needed.items() if _RANK.get(granted.get(name, ""), 0) < _RANK[access]}
