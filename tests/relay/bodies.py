"""Webhook bodies with all that the relay reads and little else."""

from __future__ import annotations

from typing import Any

from allowlist.model import RepoName

UPSTREAM = RepoName("up", "stream")
SHA_1, SHA_2, ZERO = "a" * 40, "b" * 40, "0" * 40


def pull_request(action: str = "opened", **changes: Any) -> dict[str, Any]:
    """A pull request's webhook with all that we read and little else."""
    raw: dict[str, Any] = {
        "action": action,
        "number": 7,
        "pull_request": {
            "number": 7,
            "state": "open",
            "title": "Fix it",
            "html_url": "https://github.com/up/stream/pull/7",
            "draft": False,
            "merged": False,
            "merge_commit_sha": None,
            "updated_at": "2026-11-30T10:00:00Z",
            "author_association": "MEMBER",
            "labels": [{"name": "bug"}],
            "user": {"login": "ada"},
            "head": {"sha": SHA_1, "ref": "topic", "repo": {"full_name": "ada/stream"}},
            "base": {"sha": SHA_2, "ref": "main", "repo": {"full_name": "Up/Stream"}},
        },
        "repository": {"full_name": "Up/Stream"},
        "sender": {"login": "ada"},
    }
    for path, value in changes.items():
        set_at(raw, path.replace("__", "."), value)
    return raw


def push(**changes: Any) -> dict[str, Any]:
    """A push's webhook."""
    raw: dict[str, Any] = {
        "ref": "refs/heads/main",
        "before": SHA_1,
        "after": SHA_2,
        "base_ref": None,
        "deleted": False,
        "repository": {"full_name": "up/stream", "pushed_at": 1_764_500_000},
        "head_commit": {"message": "Land it"},
        "sender": {"login": "bot"},
    }
    for path, value in changes.items():
        set_at(raw, path.replace("__", "."), value)
    return raw


def set_at(raw: dict[str, Any], path: str, value: Any) -> None:
    """Replace the value at a dotted path; ``...`` removes it."""
    *parents, last = path.split(".")
    for part in parents:
        raw = raw[part]
    if value is ...:
        raw.pop(last, None)
    else:
        raw[last] = value
