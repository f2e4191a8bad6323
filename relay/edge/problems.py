"""How the relay says no: RFC 9457 problem details with a stable code, what is wrong, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse

MEDIA_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True)
class FieldFault:
    """One field that cannot be accepted: its path in the body, the rule it breaks, and the fix."""

    field: str
    rule: str
    fix: str = ""


class ProblemError(Exception):
    """A request that is answered with a problem. ``code`` is stable, ``detail`` is for people.

    ``retry_after`` (whole seconds) goes with 429 and 503: nothing was consumed, and the caller may send again.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        faults: Sequence[FieldFault] = (),
        retry_after: int | None = None,
    ) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status = status
        self.code = code
        self.detail = detail
        self.faults = tuple(faults)
        self.retry_after = retry_after

    def body(self) -> dict[str, object]:
        """The problem as it is sent. ``ok`` stands beside RFC 9457's members because production's callers read it."""
        fields: dict[str, object] = {
            "ok": False,
            "type": f"about:blank#{self.code}",
            "title": self.code.replace("_", " "),
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
        }
        if self.faults:
            fields["errors"] = [{"field": f.field, "rule": f.rule, "fix": f.fix} for f in self.faults]
        return fields

    def response(self) -> JSONResponse:
        """The answer to send."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.status == 408:
            headers["Connection"] = "close"  # What is left of the request would otherwise still be waited for.
        return JSONResponse(self.body(), self.status, headers, MEDIA_TYPE)


def store_down() -> ProblemError:
    """Our database did not answer, so nothing was consumed."""
    return ProblemError(
        503,
        "store_unreachable",
        "The database did not answer. Nothing was consumed; send again.",
        retry_after=5,
    )


async def answer_problem(_request: Request, error: Exception) -> JSONResponse:
    """Exception handler for ProblemError."""
    if not isinstance(error, ProblemError):
        raise error
    return error.response()


async def answer_store_down(_request: Request, _error: Exception) -> JSONResponse:
    """Exception handler for StoreDownError."""
    return store_down().response()
