"""Every request that the relay sends to GitHub, as pure functions from values to a ``Call``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from allowlist.model import RepoName
from relay.github.errors import Invalid
from relay.github.port import (
    MAX_CHECK_TEXT,
    MAX_CLIENT_PAYLOAD,
    MAX_COMMENT,
    MAX_EVENT_TYPE,
    Address,
    CheckRunWrite,
    Located,
)
from relay.github.wire import ACCEPT_JSON, LARGE_ANSWER, Call

#: Permissions as sorted pairs, so that they can be part of a key.
Permissions = tuple[tuple[str, str], ...]

# What each kind of call needs, https://docs.github.com/rest/authentication/permissions-required-for-github-apps
METADATA: Permissions = (("metadata", "read"),)
DISPATCH: Permissions = (("contents", "write"),)
CHECKS: Permissions = (("checks", "write"),)
RUNS: Permissions = (("actions", "read"),)
RERUNS: Permissions = (("actions", "write"),)
PULLS: Permissions = (("pull_requests", "read"),)
# A comment on a pull request takes this or issues write.
COMMENTS: Permissions = (("pull_requests", "write"),)
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


def app() -> Call:
    """The app itself, by its own token."""
    return Call("GET", "/app", "/app")


def runs_of(of: Located, event: str, page: int) -> Call:
    """One page of the runs that this event has started, newest first."""
    query = {"event": event, "per_page": PER_PAGE, "page": page}
    return Call(
        "GET",
        "/repos/{owner}/{repo}/actions/runs",
        f"/repos/{of.full_name}/actions/runs?{urlencode(query)}",
        largest_answer=LARGE_ANSWER,
    )


def run_attempt(of: Located, run_id: str, attempt: int, etag: str | None) -> Call:
    """One attempt of a run."""
    return Call(
        "GET",
        "/repos/{owner}/{repo}/actions/runs/{run_id}/attempts/{attempt_number}",
        f"{_run(of, run_id)}/attempts/{int(attempt)}",
        headers=ACCEPT_JSON + unless(etag),
    )


def attempt_jobs(of: Located, run_id: str, attempt: int, page: int) -> Call:
    """One page of the jobs of an attempt."""
    return Call(
        "GET",
        "/repos/{owner}/{repo}/actions/runs/{run_id}/attempts/{attempt_number}/jobs",
        f"{_run(of, run_id)}/attempts/{int(attempt)}/jobs?per_page={PER_PAGE}&page={page}",
        largest_answer=LARGE_ANSWER,
    )


def rerun(of: Located, run_id: str) -> Call:
    """Run all jobs of a run again."""
    return Call("POST", "/repos/{owner}/{repo}/actions/runs/{run_id}/rerun", f"{_run(of, run_id)}/rerun")


def rerun_failed_jobs(of: Located, run_id: str) -> Call:
    """Run a run's failed jobs again."""
    return Call(
        "POST",
        "/repos/{owner}/{repo}/actions/runs/{run_id}/rerun-failed-jobs",
        f"{_run(of, run_id)}/rerun-failed-jobs",
    )


def cancel_run(of: Located, run_id: str) -> Call:
    """Cancel a run."""
    return Call("POST", "/repos/{owner}/{repo}/actions/runs/{run_id}/cancel", f"{_run(of, run_id)}/cancel")


def role_of(at: Located, login: str) -> Call:
    """What a person may do in the repository."""
    return Call(
        "GET",
        "/repos/{owner}/{repo}/collaborators/{username}/permission",
        f"/repos/{at.full_name}/collaborators/{quote(login, safe='')}/permission",
    )


def create_comment(on: Located, number: int, body: str) -> Call:
    """A new comment; to GitHub every pull request is an issue too."""
    return _write(
        "POST",
        "/repos/{owner}/{repo}/issues/{issue_number}/comments",
        f"/repos/{on.full_name}/issues/{int(number)}/comments",
        {"body": _comment(body)},
    )


def update_comment(on: Located, comment_id: int, body: str) -> Call:
    """The same comment with another text."""
    return _write(
        "PATCH",
        "/repos/{owner}/{repo}/issues/comments/{comment_id}",
        f"/repos/{on.full_name}/issues/comments/{int(comment_id)}",
        {"body": _comment(body)},
    )


def comments_of(on: Located, number: int, since: datetime | None, page: int) -> Call:
    """One page of a pull request's comments, oldest first: GitHub knows no other order here."""
    query: dict[str, Any] = {"per_page": PER_PAGE, "page": page}
    if since is not None:
        query["since"] = _instant(since)
    return Call(
        "GET",
        "/repos/{owner}/{repo}/issues/{issue_number}/comments",
        f"/repos/{on.full_name}/issues/{int(number)}/comments?{urlencode(query)}",
        largest_answer=LARGE_ANSWER,
    )


def pull(of: Located, number: int) -> Call:
    """A pull request."""
    return Call("GET", "/repos/{owner}/{repo}/pulls/{pull_number}", f"/repos/{of.full_name}/pulls/{int(number)}")


def pulls_of_commit(of: Located, sha: str, page: int) -> Call:
    """One page of the pull requests that a commit is part of."""
    return Call(
        "GET",
        "/repos/{owner}/{repo}/commits/{commit_sha}/pulls",
        f"/repos/{of.full_name}/commits/{quote(sha, safe='')}/pulls?per_page={PER_PAGE}&page={page}",
        largest_answer=LARGE_ANSWER,
    )


def git_commit(of: Located, sha: str) -> Call:
    """A commit as git has it, without its files."""
    return Call(
        "GET",
        "/repos/{owner}/{repo}/git/commits/{commit_sha}",
        f"/repos/{of.full_name}/git/commits/{quote(sha, safe='')}",
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
    return Call(
        "GET",
        "/repos/{owner}/{repo}/contents/{path}",
        f"/repos/{of.full_name}/contents/{quote(path, safe='')}{query}",
        headers=_RAW + unless(etag),
        largest_answer=_LARGEST_FILE,
    )


def _run(of: Located, run_id: str) -> str:
    if not (run_id.isascii() and run_id.isdigit() and len(run_id) <= 19):
        raise Invalid(f"a run's id has digits only, at most 19 of them, got {run_id[:60]!r}.", reason="run_id")
    return f"/repos/{of.full_name}/actions/runs/{run_id}"


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


def _comment(body: str) -> str:
    if not body.strip():
        raise Invalid("a comment's body has at least one visible character.", reason="body")
    return _cut(body, MAX_COMMENT)


def _cut(text: str, most: int = MAX_CHECK_TEXT) -> str:
    """The text within GitHub's limit: words that say less are better than words that never appear."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def unless(etag: str | None) -> tuple[tuple[bytes, bytes], ...]:
    """Answer only if it is no longer what this ETag stands for."""
    if not etag:
        return ()
    if not etag.isascii() or not etag.isprintable():
        raise Invalid("an ETag is printable ASCII text.", reason="etag")
    return ((b"if-none-match", etag.encode()),)
