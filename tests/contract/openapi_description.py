"""GitHub's own description of its API, cut to the operations that we use, and a check of requests against it.

The description is public test data: npm fetches it when a test first asks, into a cache that git ignores. The package
unpacks to 385 MB and the one file we need takes 12 s to load, so it is cut once to the paths below, without its prose.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import openapi_core
from openapi_core import OpenAPI
from openapi_core.testing import MockRequest

from tests.contract.npm_package import CACHE, read_json

PACKAGE = "@octokit/openapi@23.0.2"
_MEMBER = "generated/api.github.com.json"

#: Every operation that relay.github can send. A new call belongs here, or its test fails with "path not found".
OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "/app": ("get",),
    "/app/installations": ("get",),
    "/app/installations/{installation_id}/access_tokens": ("post",),
    "/repos/{owner}/{repo}": ("get",),
    "/repos/{owner}/{repo}/actions/permissions": ("get",),
    "/repos/{owner}/{repo}/actions/runs": ("get",),
    "/repos/{owner}/{repo}/actions/runs/{run_id}/attempts/{attempt_number}": ("get",),
    "/repos/{owner}/{repo}/actions/runs/{run_id}/attempts/{attempt_number}/jobs": ("get",),
    "/repos/{owner}/{repo}/actions/runs/{run_id}/cancel": ("post",),
    "/repos/{owner}/{repo}/actions/runs/{run_id}/rerun": ("post",),
    "/repos/{owner}/{repo}/actions/runs/{run_id}/rerun-failed-jobs": ("post",),
    "/repos/{owner}/{repo}/check-runs": ("post",),
    "/repos/{owner}/{repo}/check-runs/{check_run_id}": ("patch",),
    "/repos/{owner}/{repo}/collaborators/{username}/permission": ("get",),
    "/repos/{owner}/{repo}/commits/{commit_sha}/pulls": ("get",),
    "/repos/{owner}/{repo}/commits/{ref}/check-runs": ("get",),
    "/repos/{owner}/{repo}/compare/{basehead}": ("get",),
    "/repos/{owner}/{repo}/contents/{path}": ("get",),
    "/repos/{owner}/{repo}/dispatches": ("post",),
    "/repos/{owner}/{repo}/git/commits/{commit_sha}": ("get",),
    "/repos/{owner}/{repo}/installation": ("get",),
    "/repos/{owner}/{repo}/issues/comments/{comment_id}": ("patch",),
    "/repos/{owner}/{repo}/issues/{issue_number}/comments": ("get", "post"),
    "/repos/{owner}/{repo}/pulls/{pull_number}": ("get",),
    "/repos/{owner}/{repo}/pulls/{pull_number}/files": ("get",),
}

_PROSE = frozenset({"summary", "example", "examples", "externalDocs", "operationId", "tags"})
# Below these keys the names are chosen by the API (a property may be called "description"), so they are no prose.
_NAMED = frozenset({"properties", "schemas", "parameters", "responses", "headers", "content", "requestBodies"})


def load() -> OpenAPI:
    """The cut description, fetched first where the cache is empty. Raises PackageUnavailableError."""
    digest = hashlib.sha256(json.dumps(OPERATIONS, sort_keys=True).encode()).hexdigest()[:12]
    kept = CACHE / f"octokit-openapi-23.0.2-{digest}.json"
    if not kept.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        # Written beside and renamed, so that two test processes never read half a file.
        draft = kept.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(cut(read_json(PACKAGE, _MEMBER)), separators=(",", ":")))
        draft.replace(kept)
    return OpenAPI.from_dict(json.loads(kept.read_text()))


def cut(whole: Mapping[str, Any]) -> dict[str, Any]:
    """The paths of OPERATIONS and all they refer to, without prose and extensions."""
    kept: dict[str, Any] = {
        "openapi": whole["openapi"],
        "info": {"title": "GitHub, cut", "version": whole["info"]["version"]},
        "servers": [{"url": "/"}],
        "paths": {},
        "components": {},
    }
    for path, methods in OPERATIONS.items():
        item = whole["paths"][path]
        kept["paths"][path] = {method: _bare(item[method]) for method in methods}
        if "parameters" in item:
            kept["paths"][path]["parameters"] = _bare(item["parameters"])
    owed = _references(kept["paths"])
    while owed:
        reference = owed.pop()
        _, _, kind, name = reference.split("/")
        section = kept["components"].setdefault(kind, {})
        if name not in section:
            section[name] = _bare(whole["components"][kind][name])
            owed |= _references(section[name])
    return kept


def _bare(node: Any, named: bool = False) -> Any:
    if isinstance(node, list):
        return [_bare(each) for each in node]
    if not isinstance(node, dict):
        return node
    kept = {
        key: _bare(value, named=not named and key in _NAMED)
        for key, value in node.items()
        if named or not (key in _PROSE or key.startswith("x-"))
    }
    if not named and "description" in kept:
        kept["description"] = ""  # A response must have one, so it is emptied and not dropped.
    return kept


def _references(node: Any) -> set[str]:
    if isinstance(node, list):
        return set().union(*map(_references, node))
    if not isinstance(node, dict):
        return set()
    found = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
    return found.union(*map(_references, node.values()))


def validate(description: OpenAPI, method: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
    """Check one request as it went out. Raises openapi_core's OpenAPIError saying what GitHub would refuse."""
    parts = urlsplit(url)
    request = MockRequest(
        f"{parts.scheme}://{parts.netloc}",
        method.lower(),
        parts.path,
        args=dict(parse_qsl(parts.query)),
        headers=dict(headers),
        data=body or None,
        content_type=headers.get("content-type", "application/json"),
    )
    description.validate_request(request)


OpenAPIError = openapi_core.exceptions.OpenAPIError
