"""What GitHub's answers mean, as a table; and what hostile answers cannot do."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.github.errors import (
    Forbidden,
    GitHubError,
    Invalid,
    Limited,
    NotInstalled,
    RetryLater,
    Unauthenticated,
    classify,
    clean,
)

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
EPOCH = int(NOW.timestamp())


def said(words: str) -> bytes:
    return json.dumps({"message": words}).encode()


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "reason"),
    [
        (500, {}, b"", RetryLater, "github_unavailable"),
        (502, {}, b"<html>", RetryLater, "github_unavailable"),
        (408, {}, b"", RetryLater, "github_unavailable"),
        (429, {}, b"", Limited, "rate_limited"),
        (403, {"retry-after": "5"}, b"", Limited, "rate_limited"),
        (403, {"x-ratelimit-remaining": "0"}, b"", Limited, "rate_limited"),
        (403, {}, said("API rate limit exceeded for installation."), Limited, "rate_limited"),
        (403, {}, said("You have exceeded a secondary rate limit."), Limited, "rate_limited"),
        (403, {}, said("You have triggered an abuse detection mechanism."), Limited, "rate_limited"),
        (403, {"x-ratelimit-remaining": "4999"}, said("Resource not accessible by integration"), Forbidden,
         "missing_permission"),
        (403, {}, said("Repository was archived so is read-only."), Forbidden, "archived"),
        (403, {}, said("This installation has been suspended"), Forbidden, "suspended"),
        (403, {}, said("Actions has been disabled for this repository."), Forbidden, "actions_disabled"),
        (403, {}, said("No."), Forbidden, "forbidden"),
        (401, {}, said("Bad credentials"), Unauthenticated, "unauthenticated"),
        (404, {}, said("Not Found"), NotInstalled, "not_installed"),
        (410, {}, b"", Invalid, "gone"),
        (422, {}, said("Validation Failed"), Invalid, "refused"),
        (400, {}, b"", Invalid, "invalid"),
        (409, {}, b"", Invalid, "invalid"),
        (451, {}, b"", Invalid, "invalid"),
        (302, {}, b"", Invalid, "redirect_refused"),
        (304, {}, b"", Invalid, "redirect_refused"),
    ],
)  # fmt: skip
def test_each_answer_has_one_meaning(
    status: int, headers: dict[str, str], body: bytes, kind: type[GitHubError], reason: str
) -> None:
    """The outbox acts on the kind, people on the reason."""
    error = classify(status, headers, body, NOW)

    assert (kind, reason, status) == (type(error), error.reason, error.status)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "30"}, 30),
        ({"retry-after": "0.5"}, 1),
        ({"retry-after": "30", "x-ratelimit-remaining": "0", "x-ratelimit-reset": str(EPOCH + 900)}, 30),
        ({"retry-after": "Mon, 30 Nov 2026 12:02:00 GMT"}, 120),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(EPOCH + 900)}, 900),
        ({"x-ratelimit-remaining": "17", "x-ratelimit-reset": str(EPOCH + 900)}, 60),
        ({}, 60),
        ({"x-ratelimit-remaining": "0"}, 60),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(EPOCH - 900)}, 1),
        ({"retry-after": "-5"}, 1),
        ({"retry-after": "soon"}, 60),
        ({"retry-after": "nan"}, 60),
        ({"retry-after": "1e999"}, 60),
        ({"retry-after": "9" * 400}, 60),
        ({"retry-after": "999999999999"}, 86_400),
        ({"retry-after": "Mon, 30 Nov 9999999 12:02:00 GMT"}, 60),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1e300"}, 60),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "-1e300"}, 60),
    ],
)
def test_when_a_limit_ends(headers: dict[str, str], seconds: float) -> None:
    """retry-after first, then a spent limit's reset, else a minute; never the past, never beyond a day."""
    error = classify(429, headers, b"", NOW)

    assert isinstance(error, Limited)
    assert NOW + timedelta(seconds=seconds) == error.retry_at
    assert "installation" == error.scope


def test_an_outage_may_say_when_to_come_back() -> None:
    """A 503 with retry-after is an outage with an end, not a limit."""
    error = classify(503, {"retry-after": "120"}, b"", NOW)

    assert isinstance(error, RetryLater)
    assert NOW + timedelta(seconds=120) == error.retry_at
    assert classify(503, {}, b"", NOW).retry_at is None  # type: ignore[attr-defined]


@pytest.mark.parametrize(("method", "ambiguous"), [("POST", True), ("PATCH", True), ("GET", False)])
def test_only_a_write_can_have_had_an_effect(method: str, ambiguous: bool) -> None:
    """After a failed read there is nothing to be unsure of."""
    error = classify(502, {}, b"", NOW, method=method)

    assert isinstance(error, RetryLater)
    assert ambiguous == error.ambiguous


def test_a_validation_error_says_all_that_github_said() -> None:
    """GitHub puts what is wrong in a list beside the message."""
    body = {"message": "Validation Failed", "errors": [{"message": "head_sha is wrong"}, "and so is name", 3, None]}

    detail = classify(422, {}, json.dumps(body).encode(), NOW).detail

    assert "GitHub answered 422: Validation Failed; head_sha is wrong; and so is name." == detail


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe\x00",
        b"not json",
        b"[" * 100_000,
        b'{"message":' * 50_000,
        b"null",
        b"17",
        b'"text"',
        b'{"message": 5, "errors": {"a": 1}}',
        b'{"message": ["a"], "errors": "many"}',
        b'{"message": "\\ud800"}',
        b"x" * 10_000_000,
        json.dumps({"message": "x" * 10_000_000}).encode(),
        json.dumps({"message": "\x1b[31mred\r\nSet-Cookie: a\u202e\u200b"}).encode(),
    ],
)
@pytest.mark.parametrize("status", [403, 404, 422, 500])
def test_no_body_can_break_or_flood_us(body: bytes, status: int) -> None:
    """Whatever the body is, the detail is one short printable line that any log and database takes."""
    detail = classify(status, {}, body, NOW).detail

    assert len(detail) < 600
    assert "\n" not in detail
    assert detail.isprintable()
    detail.encode()


@pytest.mark.parametrize(
    "text",
    [
        "token ghs_16C7e42F292c6912E7710c838347Ae178B4a is bad",
        "gho_abcdefghijkl",
        "github_pat_11AAAAAAA0abc_def",
        "Authorization: Bearer abc.def",
        "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiIxIn0.c2lnbmF0dXJl",
    ],
)
def test_secrets_in_foreign_text_are_taken_out(text: str) -> None:
    """A proxy may echo our own headers back at us."""
    assert "[secret]" in clean(text)
    assert not any(part in clean(text) for part in ("16C7", "abcdefghijkl", "11AAAA", "abc.def", "c2lnbm"))


@given(st.text(max_size=2_000))
def test_clean_text_is_short_and_printable(text: str) -> None:
    """Any text at all, lone surrogates included."""
    line = clean(text)

    assert len(line) <= 300
    assert not any(ord(character) < 32 or 0xD800 <= ord(character) <= 0xDFFF for character in line)


@given(
    st.integers(300, 599),
    st.dictionaries(
        st.sampled_from(["retry-after", "x-ratelimit-reset", "x-ratelimit-remaining", "x-accepted-github-permissions"]),
        st.text(max_size=30),
    ),
    st.binary(max_size=200),
)
def test_any_answer_is_some_error(status: int, headers: dict[str, str], body: bytes) -> None:
    """There is no status, header or body for which the client would fall over instead of saying what happened."""
    error = classify(status, headers, body, NOW)

    assert error.reason
    if isinstance(error, Limited):
        assert NOW < error.retry_at <= NOW + timedelta(days=1)
