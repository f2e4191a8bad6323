"""Reading a request's body: size before content, depth before parsing, and text that every database can keep."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from relay.edge.problems import ProblemError

#: Deeper nesting than this is nobody's honest message, and a parser that recurses would run out of stack.
MAX_DEPTH = 200

#: A body that takes longer, in seconds, is not waited for: whoever sends a byte a minute would hold its place for ever.
BODY_SECONDS = 60.0

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NOT_BRACKET = re.compile(rb"[^\[\]{}]+")
_SURROGATE = re.compile("[\ud800-\udfff]")


async def read_body(request: Request, limit: int, *, seconds: float = BODY_SECONDS) -> bytes:
    """The whole body, refused with 413 as soon as it is known to exceed ``limit`` bytes, with 408 if it is too slow."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit)
                chunks.append(chunk)
    except TimeoutError:
        raise ProblemError(
            408, "body_too_slow", f"The body did not come within {seconds:g} seconds. Send again."
        ) from None
    except ClientDisconnect:
        raise ProblemError(400, "body_incomplete", "The connection ended before the whole body had come.") from None
    return b"".join(chunks)


def _too_large(limit: int) -> ProblemError:
    return ProblemError(413, "body_too_large", f"The body may have at most {limit:,} bytes.")


def parse_json(body: bytes) -> Any:
    """The body as JSON, or a 400 problem. NUL and lone surrogates become U+FFFD.

    Neither can be stored as text by PostgreSQL, and a test's output may well hold them: a verdict must not be lost to
    a broken character. ``NaN`` and ``Infinity``, which Python would take, are no JSON.
    """
    try:
        # Fast, and bounded in depth by itself; it refuses lone surrogates, which the careful way below mends.
        value = from_json(body, allow_inf_nan=False)
    except ValueError:
        return _parse_carefully(body)
    return _clean(value) if b"\\u0000" in body else value


def _parse_carefully(body: bytes) -> Any:
    if _depth(body) > MAX_DEPTH:
        raise ProblemError(400, "body_too_deep", f"JSON may be nested at most {MAX_DEPTH} deep.")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProblemError(
            400, "body_not_utf8", f"The body is not UTF-8: byte {error.start} cannot be read. Send UTF-8."
        ) from None
    try:
        return _clean(json.loads(text, parse_constant=_refuse_constant))
    except (ValueError, RecursionError) as error:
        raise ProblemError(400, "body_not_json", f"The body is not JSON: {str(error)[:200]}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _depth(body: bytes) -> int:
    """How deep brackets nest outside strings; cheap, and bounded by the body's length."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return 0
    depth = deepest = 0
    for byte in _NOT_BRACKET.sub(b"", _STRING.sub(b"", body)):
        if byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
            if deepest > MAX_DEPTH:
                return deepest
        else:
            depth -= 1
    return deepest


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(key): _clean(item) for key, item in value.items()}
    return value


def clean_text(text: str) -> str:
    """The text with NUL and lone surrogates replaced, as every database can keep it."""
    return _SURROGATE.sub("\ufffd", text).replace("\x00", "\ufffd")
