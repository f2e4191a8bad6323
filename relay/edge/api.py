"""The API: the same facts as the pages, for programs. Everything here is read, and anyone may read it.

What may not be read by anyone is never loaded: bodies, tokens, and of a private backend the names of tests, URLs and
messages (``relay.store.reading``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from allowlist.model import RepoName
from relay.clock import Now
from relay.deciding.facts import Place
from relay.edge import api_answers as answers
from relay.edge import api_models as models
from relay.edge import api_service_models as service
from relay.edge.api_gaps import add_gaps
from relay.edge.fresh import conditional
from relay.edge.problems import MEDIA_TYPE, FieldFault, ProblemError
from relay.edge.reader import InForce, Reader
from relay.store.checks import CheckTerms
from relay.store.engine import Store
from relay.store.reading.changes import ChangeFilter
from relay.store.reading.pages import MOST, MOST_ID, USUAL
from relay.texts.markup import plain

#: A program that reads has no use for scripts, frames or guesses about types.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

_MOST_FIELD = 200
_MOST_FAULTS = 20


def _problem(description: str) -> dict[str, Any]:
    # Written out, because FastAPI would describe a model as application/json, which a problem is not.
    schema = models.Problem.model_json_schema()
    schema["properties"]["errors"]["items"] = schema.pop("$defs")["FieldProblem"]
    return {"description": description, "content": {MEDIA_TYPE: {"schema": schema}}}


_RESPONSES: dict[int | str, dict[str, Any]] = {
    304: {"description": "What you have (If-None-Match) is still true."},
    422: _problem("A parameter is wrong; each is named with its rule."),
    503: _problem("The database did not answer. Ask again after Retry-After."),
}
_OR_404: dict[int | str, dict[str, Any]] = {**_RESPONSES, 404: _problem("There is no such thing here.")}

Limit = Annotated[int, Query(ge=1, le=MOST, description="The most that the page holds")]
BeforeId = Annotated[int | None, Query(ge=1, le=MOST_ID, description="`next` of the page before")]
Number = Annotated[int, Query(ge=1, le=MOST_ID, description="The pull request's number")]
Id = Annotated[int, Path(ge=1, le=MOST_ID)]
_REPO = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,38}/[A-Za-z0-9._-]{1,100}$"
RepoQuery = Query(pattern=_REPO, description="owner/repo, in any case")
_DELIVERY = r"^[!-~]{1,128}$"


def api_router(
    *, store: Store, in_force: Callable[[], InForce], terms: CheckTerms, place: Place, now: Now
) -> APIRouter:
    """The routes under /api/v1. ``in_force`` tells the allowlist and its condition, ``place`` where pages are."""
    reader = Reader(store, in_force, terms, place)
    router = APIRouter(prefix="/api/v1", tags=["api"])
    for add in (_add_changes, _add_backends, _add_deliveries, _add_audit):
        add(router, reader)
    _add_allowlist(router, reader, now)
    add_gaps(router, reader, _answer, _RESPONSES)
    return router


def _add_changes(router: APIRouter, reader: Reader) -> None:
    @router.get("/changes", response_model=models.ChangeList, responses=_RESPONSES, summary="What is under test")
    async def changes(
        request: Request,
        kind: Annotated[
            Literal["pull_request", "push", "merge_group", "self_reported"] | None,
            Query(description="Only this kind"),
        ] = None,
        state: Annotated[
            Literal["open", "superseded", "closed", "landed"] | None, Query(description="Only in this state")
        ] = None,
        number: Annotated[int | None, Query(ge=1, le=MOST_ID, description="Only this pull request")] = None,
        backend: Annotated[str | None, RepoQuery] = None,
        before: BeforeId = None,
        limit: Limit = USUAL,
    ) -> Response:
        """Changes, newest first."""
        wanted = ChangeFilter(kind, state, number, None if backend is None else _repo(backend, "query.backend"))
        page = await reader.changes(wanted, before, limit)
        return await _answer(request, lambda: models.ChangeList.model_validate(page))

    @router.get(
        "/changes/{change_id}",
        response_model=models.ChangeDetail,
        responses=_OR_404,
        summary="One change: gate, backends, combinations",
    )
    async def change(request: Request, change_id: Id) -> Response:
        """The gate, each backend with its jobs per combination, who was not called and why, and the checks."""
        page = await reader.change(change_id)
        if page is None:
            raise _missing("no_such_change", f"There is no change {change_id}. /api/v1/changes lists those there are.")
        return await _answer(request, lambda: answers.change_detail(page, reader.place))

    @router.get(
        "/why", response_model=service.WhyList, responses=_OR_404, summary="Why a backend was, or was not, told"
    )
    async def why(request: Request, pull: Number, backend: Annotated[str, RepoQuery]) -> Response:
        """Every decision about this backend for this pull request, oldest first, and what came of it."""
        repo = _repo(backend, "query.backend")
        found = await reader.why(pull, repo)
        if not found:
            raise _missing(
                "nothing_known",
                f"Nothing is known of pull request {pull} and {repo}: no webhook of it came while the backend was on "
                "the allowlist. /api/v1/allowlist says who is.",
            )
        decisions = [answers.why_model(one) for one in found]
        return await _answer(request, lambda: service.WhyList(pull=pull, backend=str(repo), decisions=decisions))


def _add_backends(router: APIRouter, reader: Reader) -> None:
    @router.get("/backends", response_model=service.BackendList, responses=_RESPONSES, summary="Who is told")
    async def backends(
        request: Request,
        after: Annotated[str | None, Query(pattern=_REPO, description="`next` of the page before")] = None,
        limit: Limit = USUAL,
    ) -> Response:
        """Backends by name: those on the allowlist, and those known from before."""
        page = await reader.backends(None if after is None else _repo(after, "query.after"), limit)
        items = [answers.backend(line) for line in page.items]
        return await _answer(request, lambda: service.BackendList(items=items, next=page.next))

    @router.get(
        "/backends/{owner}/{repo}",
        response_model=service.BackendDetail,
        responses=_OR_404,
        summary="One backend and what it was told of",
    )
    async def backend(
        request: Request,
        owner: Annotated[str, Path(max_length=100)],
        repo: Annotated[str, Path(max_length=200)],
        before: BeforeId = None,
        limit: Limit = USUAL,
    ) -> Response:
        """Its entry, pinned ids and installation, when it was last told and heard, and its dispatches."""
        name = _repo(f"{owner}/{repo}", "path")
        page = await reader.backend(name, before, limit)
        if page is None:
            raise _missing("no_such_backend", f"{name} is not on the allowlist, and was not before.")
        dispatches = [service.RecentDispatchModel.model_validate(one) for one in page.dispatches.items]
        return await _answer(
            request,
            lambda: service.BackendDetail(
                backend=answers.backend(page.backend), dispatches=dispatches, next=page.dispatches.next
            ),
        )


def _add_deliveries(router: APIRouter, reader: Reader) -> None:
    @router.get(
        "/deliveries", response_model=service.DeliveryList, responses=_RESPONSES, summary="Webhooks that came in"
    )
    async def deliveries(
        request: Request,
        before: Annotated[str | None, Query(pattern=_DELIVERY, description="`next` of the page before")] = None,
        limit: Limit = USUAL,
    ) -> Response:
        """Webhooks, newest first. Their payloads are not served."""
        page = await reader.deliveries(before, limit)
        return await _answer(request, lambda: service.DeliveryList.model_validate(page))

    @router.get(
        "/deliveries/{delivery_id}",
        response_model=service.DeliveryDetail,
        responses=_OR_404,
        summary="One webhook: what was planned and tried",
    )
    async def delivery(request: Request, delivery_id: Annotated[str, Path(pattern=_DELIVERY)]) -> Response:
        """The decision for each backend, its dispatch, and each try at it with its end."""
        page = await reader.delivery(delivery_id)
        if page is None:
            raise _missing("no_such_delivery", "No delivery with this id was accepted. Ignored ones are not kept.")
        return await _answer(request, lambda: service.DeliveryDetail.model_validate(page))

    @router.get(
        "/dead-letters", response_model=service.DeadLetterList, responses=_RESPONSES, summary="What was given up"
    )
    async def dead_letters(request: Request, before: BeforeId = None, limit: Limit = USUAL) -> Response:
        """Effects that were given up, with the reason, newest first."""
        page = await reader.dead_letters(before, limit)
        return await _answer(request, lambda: service.DeadLetterList.model_validate(page))


def _add_audit(router: APIRouter, reader: Reader) -> None:
    @router.get("/audit", response_model=service.AuditList, responses=_RESPONSES, summary="Who did what, and why")
    async def audit(request: Request, before: BeforeId = None, limit: Limit = USUAL) -> Response:
        """Acts of admins, of reviewers and of the service itself, newest first."""
        page = await reader.audit(before, limit)
        return await _answer(request, lambda: service.AuditList.model_validate(page))


def _add_allowlist(router: APIRouter, reader: Reader, now: Now) -> None:
    @router.get(
        "/allowlist", response_model=service.AllowlistModel, responses={304: _RESPONSES[304]}, summary="Who is listed"
    )
    async def allowlist(request: Request) -> Response:
        """The entries in force with their defaults, every fault of the file, and how old our reading is."""
        return await _answer(request, lambda: answers.in_force(reader.in_force(), now()))


async def _answer(request: Request, make: Callable[[], BaseModel]) -> Response:
    # A page of the largest bounds takes tens of milliseconds to write, which a webhook should not wait for.
    body = await asyncio.to_thread(lambda: make().model_dump_json().encode())
    return conditional(request, body, "application/json", headers=HEADERS)


def _repo(text: str, field: str) -> RepoName:
    try:
        return RepoName.parse(text)
    except ValueError as error:
        raise ProblemError(
            422,
            "invalid_parameter",
            "A repository's name is not one.",
            faults=[FieldFault(field, plain(str(error), _MOST_FIELD), "Send owner/repo as GitHub shows it.")],
        ) from None


def _missing(code: str, detail: str) -> ProblemError:
    return ProblemError(404, code, detail)


async def answer_invalid(_request: Request, error: Exception) -> JSONResponse:
    """Exception handler for FastAPI's RequestValidationError: a problem that names each field, its rule and the fix."""
    if not isinstance(error, RequestValidationError):
        raise error
    return invalid(error.errors()).response()


def invalid(errors: Sequence[Any]) -> ProblemError:
    """The problem that names each field at fault, of what pydantic found."""
    faults = [_fault(one) for one in errors[:_MOST_FAULTS]]
    return ProblemError(
        422, "invalid_parameter", "The request cannot be read; each field at fault is named.", faults=faults
    )


def _fault(error: dict[str, Any]) -> FieldFault:
    field = plain(".".join(str(part) for part in error.get("loc", ())), _MOST_FIELD)
    expected = (error.get("ctx") or {}).get("expected")
    fix = f"Send one of {expected}." if expected else _FIXES.get(str(error.get("type")), "")
    return FieldFault(field, plain(str(error.get("msg", "")), _MOST_FIELD), plain(fix, _MOST_FIELD))


_FIXES = {
    "missing": "Add it.",
    "int_parsing": "Send a whole number.",
    "string_pattern_mismatch": "Send owner/repo, or an id as we served it.",
}
