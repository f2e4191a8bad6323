"""Webhook bodies with all that the relay reads and little else."""

from __future__ import annotations

from typing import Any

from allowlist.model import RepoName

UPSTREAM = RepoName("up", "stream")
SHA_1, SHA_2, ZERO = "a" * 40, "b" * 40, "0" * 40
GROUP_1, GROUP_2 = "c" * 40, "d" * 40


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


def check_run(action: str = "rerequested", **changes: Any) -> dict[str, Any]:
    """A press at one check of app 4."""
    raw: dict[str, Any] = {
        "action": action,
        "check_run": {"id": 900, "name": "crcr/gate", "head_sha": SHA_1, "app": {"id": 4}},
        "repository": {"full_name": "up/stream"},
        "sender": {"login": "ada", "type": "User"},
    }
    if action == "requested_action":
        raw["requested_action"] = {"identifier": "rerun"}
    for path, value in changes.items():
        set_at(raw, path.replace("__", "."), value)
    return raw


def check_suite(**changes: Any) -> dict[str, Any]:
    """A press at "Re-run all"."""
    raw: dict[str, Any] = {
        "action": "rerequested",
        "check_suite": {"id": 901, "head_sha": SHA_1, "app": {"id": 4}},
        "repository": {"full_name": "up/stream"},
        "sender": {"login": "ada", "type": "User"},
    }
    for path, value in changes.items():
        set_at(raw, path.replace("__", "."), value)
    return raw


def comment(body: str = "/crcr status", **changes: Any) -> dict[str, Any]:
    """A comment on a pull request."""
    raw: dict[str, Any] = {
        "action": "created",
        "issue": {"number": 7, "pull_request": {"url": "https://api.github.com/repos/up/stream/pulls/7"}},
        "comment": {"id": 902, "body": body, "user": {"login": "ada", "type": "User"}},
        "repository": {"full_name": "up/stream"},
        "sender": {"login": "ada", "type": "User"},
    }
    for path, value in changes.items():
        set_at(raw, path.replace("__", "."), value)
    return raw


def merge_group(action: str = "checks_requested", **changes: Any) -> dict[str, Any]:
    """A merge queue's temporary commit of pull request 7."""
    raw: dict[str, Any] = {
        "action": action,
        "merge_group": {
            "head_sha": GROUP_1,
            "head_ref": f"refs/heads/gh-readonly-queue/main/pr-7-{SHA_2}",
            "base_sha": SHA_2,
            "base_ref": "refs/heads/main",
            "head_commit": {"id": GROUP_1, "tree_id": "e" * 40, "message": "Merge pull request #7"},
        },
        "repository": {"full_name": "up/stream"},
        "sender": {"login": "github-merge-queue[bot]", "type": "Bot"},
    }
    if action == "destroyed":
        raw["reason"] = "invalidated"
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
