"""The callback edge: a backend's report comes in, and is kept or refused with a reason (PROTOCOL 3 and 4).

The order is: who calls, is it listed, is it calling too often, and only then the body. So a call that proves nothing
costs one signature check, and no body is read for it. The answer waits for one commit and nothing else.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

import structlog
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from allowlist.model import Allowlist, Entry
from relay.capability import CapabilityKeys
from relay.clock import Now
from relay.edge.body import parse_json, read_body
from relay.edge.brake import Brake
from relay.edge.oidc import OidcVerifier, VerifiedCaller
from relay.edge.problems import FieldFault, ProblemError, store_down
from relay.results.binding import Refusal
from relay.results.report import MalformedReportError, read_report
from relay.store.engine import Store, StoreDownError
from relay.store.reports import Accepted, Callback, Incoming, KeepTerms
from relay.tracing import trace_id

#: 1,000 failed tests of 5 KB each, and what else a body holds.
MOST_BYTES = 8 * 1024 * 1024
MOST_ITEMS = 100

#: Callbacks per verified repository and minute in one process. A night of 360 jobs, started, ended and sent again by an
#: impatient client, fits; what is over it is answered 429 and may come again.
PER_MINUTE = 1_200

#: The status of each refusal. A code that is not here is a fault of ours, and a test compares.
STATUS = MappingProxyType(
    {
        "not_listed": 403,
        "below_l2": 403,
        "event_refused": 403,
        "wrong_workflow": 403,
        "run_mismatch": 403,
        "identity_changed": 403,
        "bad_capability": 403,
        "other_backend": 403,
        "capability_expired": 403,
        "capability_required": 403,
        "no_such_dispatch": 404,
        "run_id_missing": 422,
        "not_pinned_yet": 503,
    }
)
_RETRY_AFTER = MappingProxyType({"not_pinned_yet": 10})
_IGNORED_BY_PRODUCTION = frozenset({"not_listed", "below_l2"})

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
_PROBLEM = {"content": {"application/problem+json": {"schema": {"type": "object"}}}}
_DESCRIBED: dict[int | str, dict[str, Any]] = {
    200: {"description": "Recorded; `replayed` when the same report came before."},
    400: {"description": "The body is not JSON.", **_PROBLEM},
    401: {"description": "The token is missing, malformed, of another audience or issuer, or expired.", **_PROBLEM},
    403: {"description": "The caller may not report this; the code says why.", **_PROBLEM},
    404: {"description": "No such dispatch.", **_PROBLEM},
    408: {"description": "The body did not come in time.", **_PROBLEM},
    413: {"description": "The body is too large.", **_PROBLEM},
    422: {"description": "Fields are wrong; each is named with its rule.", **_PROBLEM},
    429: {"description": "Too many calls; nothing was consumed.", **_PROBLEM},
    503: {"description": "Our fault; nothing was consumed. Send again after Retry-After.", **_PROBLEM},
}

_log = structlog.get_logger(__name__)


def callback_router(
    *,
    store: Store,
    verifier: OidcVerifier,
    capabilities: CapabilityKeys,
    allowlist: Callable[[], Allowlist],
    terms: KeepTerms,
    now: Now,
    wake: Callable[[], None],
    legacy_ignored: bool = False,
    per_minute: int = PER_MINUTE,
    counted: Callable[[str], None] = lambda code: None,
) -> APIRouter:
    """The routes. ``wake`` is called after a commit that left effects; ``counted`` is told how each callback ended."""
    edge = _Edge(store, verifier, capabilities, allowlist, terms, now, wake, legacy_ignored, per_minute, counted)
    router = APIRouter(tags=["callback"])
    body = {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
    items = {"required": True, "content": {"application/json": {"schema": {"type": "array", "items": {}}}}}
    for path in ("/github/callback", "/github/callback/"):
        router.add_api_route(
            path,
            edge.one,
            methods=["POST"],
            responses=_DESCRIBED,
            summary="Report what became of a job",
            include_in_schema=not path.endswith("/"),
            openapi_extra={"requestBody": body},
        )
    router.add_api_route(
        "/github/callback/batch",
        edge.batch,
        methods=["POST"],
        responses=_DESCRIBED,
        summary="Report what became of several jobs",
        openapi_extra={"requestBody": items},
    )
    return router


class _Edge:
    """What the routes share."""

    def __init__(
        self,
        store: Store,
        verifier: OidcVerifier,
        capabilities: CapabilityKeys,
        allowlist: Callable[[], Allowlist],
        terms: KeepTerms,
        now: Now,
        wake: Callable[[], None],
        legacy_ignored: bool,
        per_minute: int,
        counted: Callable[[str], None],
    ) -> None:
        self._store = store
        self._verifier = verifier
        self._capabilities = capabilities
        self._allowlist = allowlist
        self._terms = terms
        self._now = now
        self._wake = wake
        self._legacy_ignored = legacy_ignored
        self._brake_by_repo = Brake(per_minute, now=now)
        self._counted = counted

    async def one(self, request: Request) -> Response:
        """Take one callback."""
        try:
            caller, entry = await self._admit(request)
            raw = parse_json(await read_body(request, MOST_BYTES))
            answer = await self._take(caller, entry, raw)
        except ProblemError as problem:
            return _finished(request, self._refused(problem))
        return _finished(request, JSONResponse(answer))

    async def batch(self, request: Request) -> Response:
        """Take several callbacks, each on its own: what is wrong with one does not touch another."""
        try:
            caller, entry = await self._admit(request)
            items = parse_json(await read_body(request, MOST_BYTES))
            if not isinstance(items, list) or len(items) > MOST_ITEMS:
                rule = f"must be an array of at most {MOST_ITEMS} callbacks"
                raise ProblemError(422, "batch_malformed", f"The body {rule}.", faults=[FieldFault("(body)", rule)])
        except ProblemError as problem:
            return _finished(request, self._refused(problem))
        # All are handed to the store before the first is waited for, so that one commit can keep them all, in order.
        answers = await asyncio.gather(*(self._item(caller, entry, item, index) for index, item in enumerate(items)))
        return _finished(request, JSONResponse(answers))

    async def _item(self, caller: VerifiedCaller, entry: Entry, raw: object, index: int) -> dict[str, object]:
        """The answer to one of a batch: as a call of its own would have it, with the HTTP status as ``status``."""
        try:
            if index:
                self._brake(caller)  # The first was counted when the call was admitted.
            answer = await self._take(caller, entry, raw)
        except ProblemError as problem:
            if self._ignores(problem):
                return {"ok": True, "status": 200, "code": "ignored"}
            self._counted(problem.code)
            wait = {} if problem.retry_after is None else {"retry_after": problem.retry_after}
            return {**problem.body(), **wait}
        return {**answer, "status": 200, "code": answer["status"]}

    async def _admit(self, request: Request) -> tuple[VerifiedCaller, Entry]:
        """Who calls, whether it is listed, and whether it calls too often."""
        caller = await self._verifier.verify(_bearer(request.headers.getlist("authorization")))
        entry = self._allowlist().get(caller.repo)
        if entry is None:
            raise self._refusal(
                Refusal("not_listed", f"{caller.repo} is not on the allowlist, so it cannot report."),
                caller,
            )
        self._brake(caller)
        return caller, entry

    def _brake(self, caller: VerifiedCaller) -> None:
        wait = self._brake_by_repo.wait(str(caller.repo))
        if wait is not None:
            raise ProblemError(
                429,
                "too_many_calls",
                f"{caller.repo} may call {self._brake_by_repo.per_minute} times a minute. Nothing was consumed.",
                retry_after=max(1, math.ceil(wait.total_seconds())),
            )

    async def _take(self, caller: VerifiedCaller, entry: Entry, raw: object) -> dict[str, object]:
        try:
            report = read_report(raw)
        except MalformedReportError as error:
            faults = [FieldFault(fault.field, fault.rule, fault.fix) for fault in error.faults]
            raise ProblemError(
                422,
                "report_malformed",
                "Nothing was stored: " + "; ".join(f"{fault.field} {fault.rule}" for fault in faults[:3]),
                faults=faults,
            ) from None
        dispatch_id = None if report.capability is None else self._capabilities.dispatch_of(report.capability)
        callback = Callback(caller, report, entry, dispatch_id)
        try:
            incoming = Incoming(callback, self._terms, self._now())
            result: Accepted | Refusal = await self._store.write(incoming, waited_for=True)
        except StoreDownError:
            raise store_down() from None
        if isinstance(result, Refusal):
            if result.code == "not_pinned_yet":
                self._wake()
            raise self._refusal(result, caller)
        if result.urgent:
            self._wake()
        self._counted("replayed" if result.replayed else "recorded")
        _log.info(
            "callback_recorded",
            backend=str(caller.repo),
            head=result.head_sha,
            delivery=result.origin,
            trace=trace_id(result.origin),
            dispatch=result.dispatch_id,
            run_id=report.run_id,
            job=report.job_name[:200],
            status=report.status.value,
            conclusion=report.conclusion,
            replayed=result.replayed,
            decides=result.decides,
            jti=caller.jti,
        )
        return _recorded(result)

    def _refusal(self, refusal: Refusal, caller: VerifiedCaller) -> ProblemError:
        _log.info("callback_refused", backend=str(caller.repo), code=refusal.code, jti=caller.jti)
        faults: Sequence[FieldFault] = ()
        if refusal.code == "run_id_missing":
            faults = [FieldFault("workflow.run_id", "is required", "Send the run's id, any text.")]
        return ProblemError(
            STATUS[refusal.code],
            refusal.code,
            refusal.detail,
            faults=faults,
            retry_after=_RETRY_AFTER.get(refusal.code),
        )

    def _ignores(self, problem: ProblemError) -> bool:
        if not (self._legacy_ignored and problem.code in _IGNORED_BY_PRODUCTION):
            return False
        self._counted("ignored")
        return True

    def _refused(self, problem: ProblemError) -> Response:
        if self._ignores(problem):
            return JSONResponse({"ok": True, "status": "ignored"})
        self._counted(problem.code)
        answer = problem.response()
        if problem.status == 401:
            answer.headers["WWW-Authenticate"] = "Bearer"
        return answer


def _bearer(headers: Sequence[str]) -> str:
    if len(headers) == 1:
        scheme, _, token = headers[0].partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return token.strip()
    raise ProblemError(
        401, "token_missing", "Send one header `Authorization: Bearer <OIDC token>`, minted in the step that reports."
    )


def _recorded(result: Accepted) -> dict[str, object]:
    answer: dict[str, object] = {
        "ok": True,
        "status": "recorded",
        "replayed": result.replayed,
        "trace_id": trace_id(result.origin),
    }
    if not result.decides:
        answer["decides"], answer["reason"] = False, result.reason
    if result.notes:
        answer["notes"] = list(result.notes)
    return answer


def _finished(request: Request, answer: Response) -> Response:
    request_id = request.headers.get("x-request-id", "")
    if _REQUEST_ID.fullmatch(request_id):
        answer.headers["X-Request-Id"] = request_id
    return answer
