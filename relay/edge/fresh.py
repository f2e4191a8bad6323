"""Answers that a reader need not load again: each carries a hash of its body, and an unchanged one is answered 304."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

#: The reader may keep the answer, and asks each time whether it is still true.
REVALIDATE = "no-cache"


def conditional(
    request: Request,
    body: bytes,
    media_type: str,
    *,
    headers: Mapping[str, str] | None = None,
    cache: str = REVALIDATE,
) -> Response:
    """The body, or 304 where the reader has it already.

    https://www.rfc-editor.org/rfc/rfc9110#name-if-none-match: the comparison is the weak one, since a proxy that
    compresses the body marks our tag as weak.
    """
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    fields = {"ETag": tag, "Cache-Control": cache, **(headers or {})}
    if _has(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=fields)
    return Response(body, media_type=media_type, headers=fields)


def _has(stated: str, tag: str) -> bool:
    known = {one.strip().removeprefix("W/") for one in stated.split(",")}
    return tag in known or "*" in known
