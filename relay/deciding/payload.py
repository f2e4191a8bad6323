"""What a backend is sent: the upstream webhook, trimmed to the paths that listeners read, and our own block beside it.

A webhook cannot be sent verbatim: a pull request's body alone may hold 65,536 characters, and GitHub refuses a
``client_payload`` of more than 65,535. So a webhook is trimmed once, when it comes, and kept as JSON text; each
dispatch joins that text with its own block and never parses it again.
https://docs.github.com/en/rest/repos/repos#create-a-repository-dispatch-event
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from relay.results.combinations import combination_id
from relay.tracing import trace_id

#: GitHub counts characters; we count bytes of UTF-8, which are never fewer.
MAX_CLIENT_PAYLOAD = 65_535
#: A title that has to give way keeps this many characters.
SHORT_TITLE = 100
SCHEMA = 1

_REPO = {"full_name": None}
_HEAD_REPO = {"full_name": None, "clone_url": None}
_LABELS: tuple[Mapping[str, Any]] = ({"name": None},)

#: The documented paths. None keeps a value as it is, a mapping keeps these keys, a tuple does so for each item.
_KEPT: Mapping[str, Any] = {
    "action": None,
    "number": None,
    "repository": _REPO,
    "sender": {"login": None},
    "ref": None,
    "before": None,
    "after": None,
    "base_ref": None,
    "deleted": None,
    "label": {"name": None},
    "pull_request": {
        "number": None,
        "title": None,
        "merged": None,
        "merge_commit_sha": None,
        "draft": None,
        "html_url": None,
        "head": {"sha": None, "ref": None, "repo": _HEAD_REPO},
        "base": {"ref": None, "sha": None, "repo": _REPO},
        "labels": _LABELS,
        "user": {"login": None},
        "_links": {"html": {"href": None}},
    },
    "merge_group": {"head_sha": None, "head_ref": None, "base_sha": None, "base_ref": None},
}

_REPOSITORIES: tuple[Mapping[str, Any]] = ({"id": None, "full_name": None},)

#: Installation events are forwarded to nobody; these paths are what their delivery row remembers.
_KEPT_OF_INSTALLATION: Mapping[str, Any] = {
    "action": None,
    "installation": {"id": None, "account": {"login": None, "slug": None}},
    "repositories": _REPOSITORIES,
    "repositories_added": _REPOSITORIES,
    "repositories_removed": _REPOSITORIES,
    "sender": {"login": None},
}

#: Events of repositories are forwarded to nobody either.
_KEPT_OF_REPOSITORY: Mapping[str, Any] = {
    "action": None,
    "repository": {"id": None, "full_name": None, "private": None},
    "changes": {"repository": {"name": {"from": None}}},
    "sender": {"login": None},
}

_KEPT_OF: Mapping[str, Mapping[str, Any]] = {
    "installation": _KEPT_OF_INSTALLATION,
    "installation_repositories": _KEPT_OF_INSTALLATION,
    "repository": _KEPT_OF_REPOSITORY,
}


class TooLargeError(ValueError):
    """The payload exceeds GitHub's bound even with everything shortened that may be."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__(
            f"client_payload has {size:,} bytes after shortening the title and the labels; "
            f"GitHub takes {MAX_CLIENT_PAYLOAD:,}"
        )


@dataclass(frozen=True, slots=True)
class ChangeFacts:
    """``relay.change``: what is under test, from our record."""

    kind: str
    number: int | None
    head_sha: str
    base_ref: str | None
    base_sha: str | None
    merge_sha: str | None
    landed_sha: str | None
    labels: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class RelayBlock:
    """``relay``: what a dispatch says beside the webhook. ``token`` is its capability."""

    token: str
    origin_delivery: str
    callback_url: str
    dashboard_url: str
    change: ChangeFacts
    versions: tuple[str, ...]
    deadline: datetime


@dataclass(frozen=True, slots=True)
class ClientPayload:
    """Ready JSON text, and the paths that had to be shortened to make it fit (``relay.shortened`` says so too)."""

    body: bytes
    shortened: tuple[str, ...] = ()


def trim(event: str, raw: object) -> str:
    """The kept paths of a webhook with their values, as JSON text. Null stays null, and absent stays absent."""
    kept = _keep(raw, _KEPT_OF.get(event, _KEPT))
    return _dump(kept if isinstance(kept, dict) else {})


def _keep(value: Any, shape: Any) -> Any:
    if isinstance(shape, tuple):
        return [_keep(item, shape[0]) for item in value] if isinstance(value, list) else _scalar(value)
    if shape is not None and isinstance(value, dict):
        return {key: _keep(value[key], inner) for key, inner in shape.items() if key in value}
    return _scalar(value)


def _scalar(value: Any) -> Any:
    """No documented path ends in an object or an array, so what does is not GitHub's and may be of any size."""
    return None if isinstance(value, dict | list) else value


def with_labels(payload: str, labels: Sequence[str]) -> str:
    """A stored pull request payload with the labels as they are now. Other payloads are returned as they are."""
    raw = json.loads(payload)
    if not isinstance(raw, dict) or not isinstance(raw.get("pull_request"), dict):
        return payload
    raw["pull_request"]["labels"] = [{"name": name} for name in labels]
    return _dump(raw)


def client_payload(event_type: str, delivery_id: str, payload: str, block: RelayBlock) -> ClientPayload:
    """Join a stored payload with a dispatch's own block into ``client_payload``.

    Over GitHub's bound the title is shortened first, then labels are left out from the last on, always in the same
    way for the same input. Raises TooLargeError where even that does not help.
    """
    body = _join(event_type, delivery_id, payload, block, ())
    if len(body) <= MAX_CLIENT_PAYLOAD:
        return ClientPayload(body)
    return _shortened(event_type, delivery_id, payload, block)


def _join(event_type: str, delivery_id: str, payload: str, block: RelayBlock, shortened: tuple[str, ...]) -> bytes:
    head = f'{{"event_type":{_dump(event_type)},"delivery_id":{_dump(delivery_id)},"payload":'
    return f'{head}{payload},"relay":{_dump(_block(block, shortened))}}}'.encode()


def _block(block: RelayBlock, shortened: tuple[str, ...]) -> dict[str, Any]:
    change = block.change
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "token": block.token,
        "origin_delivery": block.origin_delivery,
        "trace_id": trace_id(block.origin_delivery),
        "callback_url": block.callback_url,
        "dashboard_url": block.dashboard_url,
        "change": {
            "kind": change.kind,
            "number": change.number,
            "head_sha": change.head_sha,
            "base_ref": change.base_ref,
            "base_sha": change.base_sha,
            "merge_sha": change.merge_sha,
            "landed_sha": change.landed_sha,
            "labels": change.labels,
            "reason": change.reason,
        },
        "combinations": [
            {"id": combination_id(version, None), "backend_version": version} for version in block.versions
        ],
        "deadline": rfc3339(block.deadline),
    }
    if shortened:
        fields["shortened"] = shortened
    return fields


def rfc3339(moment: datetime) -> str:
    """The moment in UTC, to the second, as RFC 3339 writes it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _shortened(event_type: str, delivery_id: str, payload: str, block: RelayBlock) -> ClientPayload:
    raw = json.loads(payload)
    pull_request = raw.get("pull_request") if isinstance(raw, dict) else None
    pull_request = pull_request if isinstance(pull_request, dict) else {}
    notes: list[str] = []
    title = pull_request.get("title")
    if isinstance(title, str) and len(title) > SHORT_TITLE:
        pull_request["title"] = title[: SHORT_TITLE - 1] + "…"
        notes.append("payload.pull_request.title")
        body = _join(event_type, delivery_id, _dump(raw), block, tuple(notes))
        if len(body) <= MAX_CLIENT_PAYLOAD:
            return ClientPayload(body, tuple(notes))
    labels = pull_request.get("labels")
    labels = labels if isinstance(labels, list) else []
    notes += ["payload.pull_request.labels"] if labels else []
    notes += ["relay.change.labels"] if block.change.labels else []

    def keeping(count: int) -> bytes:
        if labels:
            pull_request["labels"] = labels[:count]
        cut = replace(block, change=replace(block.change, labels=block.change.labels[:count]))
        return _join(event_type, delivery_id, _dump(raw), cut, tuple(notes))

    smallest = keeping(0)
    if len(smallest) > MAX_CLIENT_PAYLOAD:
        raise TooLargeError(len(smallest))
    # The size grows with the count, so the largest count that fits is found by halving.
    fits, too_many = 0, max(len(labels), len(block.change.labels)) + 1
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if len(keeping(middle)) <= MAX_CLIENT_PAYLOAD:
            fits = middle
        else:
            too_many = middle
    return ClientPayload(keeping(fits), tuple(notes))


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
