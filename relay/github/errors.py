"""What went wrong at GitHub, named by what the caller must do about it.

``classify`` is pure: a status, headers, a body and the time in, an error out. The words in GitHub's answers are
hostile text until ``clean`` has cut them.
"""

# ruff: noqa: N818  An error is named for what happened, which an "Error" behind it would not make clearer.

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

_MOST_WORDS = 300
_MOST_BODY = 65_536
_MIN_WAIT = timedelta(seconds=1)
_MAX_WAIT = timedelta(hours=24)
# "at least one minute" where GitHub names no time,
# https://docs.github.com/rest/using-the-rest-api/best-practices-for-using-the-rest-api
_DEFAULT_WAIT = timedelta(seconds=60)

# GitHub's token prefixes, JSON web tokens and anything after "Bearer": never repeated, whoever sent it to us.
_SECRETS = re.compile(r"\b(?:gh[a-z]_\w+|github_pat_\w+|eyJ[\w.-]+)|(?i:\bbearer\s+\S+)")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]+")
_LIMIT_WORDS = re.compile(r"rate limit|abuse detection|too many requests", re.IGNORECASE)
_PERMISSION_WORDS = re.compile(r"not accessible by integration|permission|must have", re.IGNORECASE)


class GitHubError(Exception):
    """Something GitHub refused or could not do.

    ``reason`` is a stable code, ``detail`` is for people, ``said`` the same before ``say_where`` named a repository in
    it, ``status`` the HTTP status where there was one, ``installation_id`` whose call it was where that is known.
    """

    reason = "github_error"

    def __init__(self, detail: str, *, reason: str | None = None, status: int | None = None) -> None:
        super().__init__(detail)
        self.detail = self.said = detail
        self.reason = reason or type(self).reason
        self.status = status
        self.installation_id: int | None = None

    def say_where(self, side: str) -> None:
        """Add to the detail on whose side this is. Once, though all who wait for one token get the same error."""
        self.detail = f"{self.said} {side}"


class RetryLater(GitHubError):
    """GitHub or the network failed; the same call may work later, not before ``retry_at`` where that is set.

    ``ambiguous`` says that the call may have taken effect although it failed.
    """

    reason = "github_unavailable"

    def __init__(
        self,
        detail: str,
        *,
        ambiguous: bool,
        reason: str | None = None,
        status: int | None = None,
        retry_at: datetime | None = None,
    ) -> None:
        super().__init__(detail, reason=reason, status=status)
        self.ambiguous = ambiguous
        self.retry_at = retry_at


class Limited(GitHubError):
    """A primary or secondary rate limit; nothing of this ``scope`` may be sent before ``retry_at``.

    ``named``: the time is GitHub's own word. Otherwise it is the least that its pages ask for.
    """

    reason = "rate_limited"

    def __init__(self, detail: str, *, retry_at: datetime, status: int | None = None, named: bool = True) -> None:
        super().__init__(detail, status=status)
        self.retry_at = retry_at
        self.named = named
        self.scope = "installation"


class NotInstalled(GitHubError):
    """The app is not installed there, or the repository is gone or out of the installation's selection."""

    reason = "not_installed"


class Forbidden(GitHubError):
    """Refused for good until someone changes a setting; ``permission`` names the one that is missing, if one is."""

    reason = "forbidden"

    def __init__(
        self, detail: str, *, reason: str | None = None, status: int | None = None, permission: str | None = None
    ) -> None:
        super().__init__(detail, reason=reason, status=status)
        self.permission = permission


class Invalid(GitHubError):
    """The request itself is wrong, or what it asks for does not exist; repeating it is pointless."""

    reason = "invalid"


class Unauthenticated(GitHubError):
    """GitHub does not accept our key or token, though a fresh one was tried."""

    reason = "unauthenticated"


class IdentityChanged(GitHubError):
    """The name leads to another repository than the one that was pinned. Final: a person must look."""

    reason = "identity_changed"

    def __init__(self, detail: str, *, expected_id: int, found_id: int | None) -> None:
        super().__init__(detail)
        self.expected_id = expected_id
        self.found_id = found_id


def clean(text: str) -> str:
    """Foreign text as one short printable line without anything that looks like a secret."""
    line = _SECRETS.sub("[secret]", text[: _MOST_WORDS * 4])
    line = " ".join(_UNPRINTABLE.sub(" ", line).split())
    return line if len(line) <= _MOST_WORDS else line[: _MOST_WORDS - 1] + "…"


def classify(
    status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, method: str = "POST"
) -> GitHubError:
    """The error that this answer means. ``headers`` have lower-case names; ``method`` tells reads from writes."""
    words = _words(body)
    said = f"GitHub answered {status}" + (f": {words}" if words else "")
    if status == 429 or (status == 403 and _is_limit(headers, words)):
        named = "retry-after" in headers or headers.get("x-ratelimit-remaining", "").strip() == "0"
        return Limited(f"{said}.", retry_at=_retry_at(headers, now), status=status, named=named)
    if status >= 500 or status == 408:
        # An answer of 5xx to a write may come after its effect.
        retry_at = _retry_at(headers, now) if "retry-after" in headers else None
        ambiguous = method not in ("GET", "HEAD")
        return RetryLater(f"{said}.", ambiguous=ambiguous, status=status, retry_at=retry_at)
    if status == 403:
        return _forbidden(said, headers, words)
    return _final(said, status)


def _final(said: str, status: int) -> GitHubError:
    if status == 401:
        return Unauthenticated(f"{said}. Check the app id, its private key and this machine's clock.", status=status)
    if status == 404:
        return NotInstalled(
            f"{said}. The app is not installed there, or the repository is gone or not selected.", status=status
        )
    if 300 <= status < 400:
        return Invalid(f"{said}, a redirect that is not followed.", reason="redirect_refused", status=status)
    return Invalid(f"{said}.", reason={410: "gone", 422: "refused"}.get(status), status=status)


def _forbidden(said: str, headers: Mapping[str, str], words: str) -> Forbidden:
    lower = words.lower()
    if "archived" in lower:
        return Forbidden(f"{said}. The repository is archived.", reason="archived", status=403)
    if "suspended" in lower:
        return Forbidden(f"{said}. The app's installation is suspended.", reason="suspended", status=403)
    if "actions" in lower and "disabled" in lower:
        return Forbidden(f"{said}. Actions are off in that repository.", reason="actions_disabled", status=403)
    # GitHub names what would have been enough, for example "contents=write",
    # https://docs.github.com/rest/overview/permissions-required-for-github-apps
    permission = clean(headers.get("x-accepted-github-permissions", "")) or None
    if permission or _PERMISSION_WORDS.search(words):
        need = f" The app's installation needs the permission {permission}." if permission else ""
        return Forbidden(f"{said}.{need}", reason="missing_permission", status=403, permission=permission)
    return Forbidden(f"{said}.", status=403)


def _is_limit(headers: Mapping[str, str], words: str) -> bool:
    spent = headers.get("x-ratelimit-remaining", "").strip() == "0"
    return spent or "retry-after" in headers or _LIMIT_WORDS.search(words) is not None


def _retry_at(headers: Mapping[str, str], now: datetime) -> datetime:
    """``retry-after`` if there, else the reset of a spent primary limit, else a minute; never in the past."""
    at = _after(headers.get("retry-after"), now)
    if at is None and headers.get("x-ratelimit-remaining", "0").strip() == "0":
        # The reset time is the primary limit's; a secondary limit leaves some of that and names no time.
        at = _epoch(headers.get("x-ratelimit-reset"))
    if at is None:
        at = now + _DEFAULT_WAIT
    return min(max(at, now + _MIN_WAIT), now + _MAX_WAIT)


def _after(text: str | None, now: datetime) -> datetime | None:
    if text is None:
        return None
    seconds = _number(text)
    if seconds is not None:
        return now + timedelta(seconds=min(max(seconds, 0.0), _MAX_WAIT.total_seconds()))
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _epoch(text: str | None) -> datetime | None:
    seconds = _number(text) if text is not None else None
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _words(body: bytes) -> str:
    """What the answer says: its message and the messages of its errors, or the start of whatever it is."""
    try:
        answer: Any = json.loads(body[:_MOST_BODY])
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        return clean(body[: _MOST_WORDS * 4].decode("utf-8", "replace"))
    errors = answer.get("errors")
    said = [answer.get("message"), *(errors[:5] if isinstance(errors, list) else [errors])]
    parts = (each.get("message") if isinstance(each, dict) else each for each in said)
    return clean("; ".join(part for part in parts if isinstance(part, str))).rstrip(". ")
