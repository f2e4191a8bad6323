"""The documented paths of a payload, and how a listener would read one."""

from __future__ import annotations

import re
from typing import Any

#: PROTOCOL 2's list of the paths that real listeners read, below ``payload``.
DOCUMENTED = re.findall(
    r"\S+",
    "action number repository.full_name sender.login ref before after base_ref deleted label.name "
    "pull_request.number pull_request.title pull_request.merged pull_request.merge_commit_sha pull_request.draft "
    "pull_request.html_url pull_request.head.sha pull_request.head.ref pull_request.head.repo.full_name "
    "pull_request.head.repo.clone_url pull_request.base.ref pull_request.base.sha "
    "pull_request.base.repo.full_name pull_request.user.login pull_request._links.html.href "
    "merge_group.head_sha merge_group.head_ref merge_group.base_sha merge_group.base_ref",
)

ABSENT = object()


def at(raw: Any, path: str) -> Any:
    """The value at a path; ABSENT where it, or anything above it, is absent. Null above it is null."""
    for part in path.split("."):
        if not isinstance(raw, dict):
            return raw if raw is None else ABSENT
        if part not in raw:
            return ABSENT
        raw = raw[part]
    return raw
