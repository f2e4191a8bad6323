"""Every request that the relay sends to GitHub, as pure functions from values to a ``Call``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from allowlist.model import RepoName
from relay.github.errors import Invalid
from relay.github.port import MAX_CHECK_TEXT, MAX_CLIENT_PAYLOAD, MAX_EVENT_TYPE, Address, CheckRunWrite, Located
from relay.github.wire import ACCEPT_JSON, LARGE_ANSWER, Call

#: Permissions as sorted pairs, so that they can be part of a key.
Permissions = tuple[tuple[str, str], ...]

# What each kind of call needs, https://docs.github.com/rest/authentication/permissions-required-for-github-apps
METADATA: Permissions = (("metadata", "read"),)
DISPATCH: Permissions = (("contents", "write"),)
CHECKS: Permissions = (("checks", "write"),)
RUNS: Permissions = (("actions", "read"),)
PULL_FILES: Permissions = (("pull_requests", "read"),)
CONTENTS: Permissions = (("contents", "read"),)

PER_PAGE = 100
_RAW = ((b"accept", b"application/vnd.github.raw+json"),)
_JSON_BODY = (*ACCEPT_JSON, (b"content-type", b"application/json"))
_LARGEST_FILE = 8 << 20


def installation_of(repo: RepoName) -> Call:
    """Which installation of the app covers this repository? The app asks for itself."""
    return Call("GET", "/repos/{owner}/{repo}/installation", f"/repos/{repo}/installation")


def mint(installation_id: int, at: Address, permissions: Permissions) -> Call:
    """A token for one repository and no more permissions than the call needs, by id once the id is known."""
    narrowed: dict[str, Any] = {"permissions": dict(permissions)}
    if at.repository_id is not None:
        narrowed["repository_ids"] = [at.repository_id]
    else:
        narrowed["repositories"] = [at.repo.name]
    return _write(
        "POST",
        "/app/installations/{installation_id}/access_tokens",
        f"/app/installations/{installation_id}/access_tokens",
        narrowed,
    )


def repository(repo: RepoName) -> Call:
    """The repository itself."""
    return Call("GET", "/repos/{owner}/{repo}", f"/repos/{repo}")


def dispatch(to: Located, event_type: str, client_payload: bytes) -> Call:
    """One ``repository_dispatch``. The payload is not parsed again: it is ready JSON text, placed as it is.

    Raises Invalid for what GitHub would refuse, https://docs.github.com/rest/repos/repos#create-a-repository-dispatch-event
    """
    if not 1 <= len(event_type) <= MAX_EVENT_TYPE:
        raise Invalid(f"event_type has 1 to {MAX_EVENT_TYPE} characters, got {len(event_type)}.", reason="event_type")
    # Bytes are never fewer than characters, so the count of characters is needed only beyond the limit.
    if len(client_payload) > MAX_CLIENT_PAYLOAD:
        characters = len(client_payload.decode("utf-8", "replace"))
        if characters > MAX_CLIENT_PAYLOAD:
            raise Invalid(
                f"client_payload has {characters} characters, GitHub takes {MAX_CLIENT_PAYLOAD}.",
                reason="payload_too_large",
            )
    body = b'{"event_type":' + json.dumps(event_type).encode() + b',"client_payload":' + client_payload + b"}"
    return Call(
        "POST", "/repos/{owner}/{repo}/dispatches", f"/repos/{to.full_name}/dispatches", body, headers=_JSON_BODY
    )


def create_check_run(on: Located, check: CheckRunWrite) -> Call:
    """A new check run on the head SHA."""
    body = {"name": check.name, "head_sha": check.head_sha} | _check(check)
    return _write("POST", "/repos/{owner}/{repo}/check-runs", f"/repos/{on.full_name}/check-runs", body)


def update_check_run(on: Located, check_run_id: int, check: CheckRunWrite) -> Call:
    """The same check run in a new state; its commit cannot change."""
    return _write(
        "PATCH",
        "/repos/{owner}/{repo}/check-runs/{check_run_id}",
        f"/repos/{on.full_name}/check-runs/{int(check_run_id)}",
        {"name": check.name} | _check(check),
    )


def check_runs_of(on: Located, head_sha: str, name: str, app_id: str, page: int) -> Call:
    """The app's check runs of this name on the commit, older ones included."""
    query = {"check_name": name, "filter": "all", "per_page": PER_PAGE, "page": page}
    if app_id.isdigit():  # A client id, which may stand for the number elsewhere, is no filter here.
        query["app_id"] = app_id
    return Call(
        "GET",
        "/repos/{owner}/{repo}/commits/{ref}/check-runs",
        f"/repos/{on.full_name}/commits/{quote(head_sha, safe='')}/check-runs?{urlencode(query)}",
        largest_answer=LARGE_ANSWER,
    )


def dispatched_runs(of: Located, page: int) -> Call:
    """One page of the runs that repository dispatches have started, newest first."""
    query = {"event": "repository_dispatch", "per_page": PER_PAGE, "page": page}
    return Call(
        "GET",
        "/repos/{owner}/{repo}/actions/runs",
        f"/repos/{of.full_name}/actions/runs?{urlencode(query)}",
        largest_answer=LARGE_ANSWER,
    )


def pull_files(of: Located, number: int, page: int) -> Call:
    """One page of the files that a pull request changes."""
    return Call(
        "GET",
        "/repos/{owner}/{repo}/pulls/{pull_number}/files",
        f"/repos/{of.full_name}/pulls/{int(number)}/files?per_page={PER_PAGE}&page={page}",
        largest_answer=LARGE_ANSWER,
    )


def compare(of: Located, base: str, head: str, per_page: int | None = None) -> Call:
    """How ``head`` differs from ``base``; ``per_page`` bounds the commits, never the files."""
    target = f"/repos/{of.full_name}/compare/{quote(base, safe='')}...{quote(head, safe='')}"
    return Call(
        "GET",
        "/repos/{owner}/{repo}/compare/{basehead}",
        target if per_page is None else f"{target}?per_page={per_page}",
        largest_answer=LARGE_ANSWER,
    )


def read_file(of: Located, path: str, ref: str | None, etag: str | None) -> Call:
    """A file's bytes. Raises Invalid for a path that could name something else than a file of this repository."""
    if not path or any(part in ("", ".", "..") for part in path.split("/")):
        raise Invalid(f"a file's path has no empty, . or .. part, got {path[:200]!r}.", reason="path")
    query = f"?{urlencode({'ref': ref})}" if ref else ""
    conditional = ((b"if-none-match", _header_text(etag)),) if etag else ()
    return Call(
        "GET",
        "/repos/{owner}/{repo}/contents/{path}",
        f"/repos/{of.full_name}/contents/{quote(path, safe='')}{query}",
        headers=_RAW + conditional,
        largest_answer=_LARGEST_FILE,
    )


def _write(method: str, route: str, target: str, body: Mapping[str, Any]) -> Call:
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    # A lone surrogate, which JSON text may smuggle in, has no UTF-8 form.
    return Call(method, route, target, text.encode("utf-8", "replace"), headers=_JSON_BODY)


def _check(check: CheckRunWrite) -> dict[str, Any]:
    body: dict[str, Any] = {
        "status": str(check.status),
        "external_id": check.external_id,
        # The text is sent even when empty, so that an update takes an earlier one away.
        "output": {"title": check.title, "summary": _cut(check.summary), "text": _cut(check.text)},
        # An empty list takes the buttons of an earlier state away.
        "actions": [
            {"label": action.label, "description": action.description, "identifier": action.identifier}
            for action in check.actions
        ],
    }
    if check.conclusion is not None:
        body["conclusion"] = str(check.conclusion)
    if check.details_url:
        body["details_url"] = check.details_url
    if check.started_at is not None:
        body["started_at"] = _instant(check.started_at)
    if check.completed_at is not None:
        body["completed_at"] = _instant(check.completed_at)
    return body


def _cut(text: str) -> str:
    """The text within GitHub's limit: a check that says less is better than one that never appears."""
    return text if len(text) <= MAX_CHECK_TEXT else text[: MAX_CHECK_TEXT - 1] + "…"


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _header_text(etag: str) -> bytes:
    if not etag.isascii() or not etag.isprintable():
        raise Invalid("an ETag is printable ASCII text.", reason="etag")
    return etag.encode()
