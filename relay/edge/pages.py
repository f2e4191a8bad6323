"""The pages: server-rendered, without scripts, public to read. Whatever others wrote is escaped, and cut before that.

A page says what the API says; both read through ``relay.edge.reader``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from allowlist.model import RepoName
from relay.dashboard.theme import Theme, load_theme
from relay.deciding.facts import Place
from relay.edge.fresh import conditional
from relay.edge.problems import ProblemError
from relay.edge.reader import InForce, Reader
from relay.phrases import gate_answer, gate_title
from relay.store.checks import CheckTerms
from relay.store.engine import Store, StoreDownError
from relay.store.reading.changes import KINDS, STATES, ChangeFilter
from relay.store.reading.pages import MOST_ID
from relay.texts.rendering import render

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'none'; frame-ancestors 'none'; "
        "base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

#: An asset's address holds its hash, so what it names never changes.
_FOR_EVER = "public, max-age=31536000, immutable"
_HTML = "text/html; charset=utf-8"
_MOST_ID_DIGITS = 19
_DELIVERY = re.compile(r"[!-~]{1,128}", re.ASCII)
_PROGRAMS = ("/api/", "/github/")

View = Callable[[Request], Awaitable[Response]]


class NotHereError(Exception):
    """There is no such page; the message says what was looked for."""


def pages_router(*, store: Store, in_force: Callable[[], InForce], terms: CheckTerms, place: Place) -> APIRouter:
    """The routes of all pages and static files. ``in_force`` tells the allowlist and its condition."""
    site = _Site(Reader(store, in_force, terms, place), load_theme())
    router = APIRouter(include_in_schema=False)
    views: dict[str, View] = {
        "/": site.home,
        "/changes": site.changes,
        "/changes/{change_id}": site.change,
        "/pull/{number}": site.pull,
        "/backends": site.backends,
        "/backends/{owner}/{repo}": site.backend,
        "/deliveries": site.deliveries,
        "/deliveries/{delivery_id}": site.delivery,
        "/audit": site.audit,
        "/gaps": site.gaps,
    }
    for path, view in views.items():
        router.add_route(path, site.guarded(view), methods=["GET", "HEAD"])
    router.add_route("/static/{name}", site.static, methods=["GET", "HEAD"])
    return router


def http_error_handler() -> Callable[[Request, Exception], Awaitable[Response]]:
    """An exception handler for Starlette's HTTPException: a page for people, a problem for programs."""
    theme = load_theme()

    async def answer(request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        if error.status_code != 404 or request.url.path.startswith(_PROGRAMS):
            code = _CODES.get(error.status_code, "refused")
            response: Response = ProblemError(error.status_code, code, str(error.detail)).response()
        else:
            response = _error_page(theme, 404, "There is no such page.")
        response.headers.update(error.headers or {})
        return response

    return answer


_CODES = {400: "bad_request", 404: "no_such_path", 405: "method_not_allowed"}


def _error_page(theme: Theme, status: int, sentence: str) -> Response:
    body = theme.page("error.html", status=status, sentence=sentence)
    headers = {**HEADERS, "Cache-Control": "no-store"}
    if status == 503:
        headers["Retry-After"] = "5"
    return Response(body, status, headers, _HTML)


class _Site:
    """All pages over one reader."""

    def __init__(self, reader: Reader, theme: Theme) -> None:
        self._reader = reader
        self._theme = theme

    def guarded(self, view: View) -> View:
        """The view with its errors as pages."""

        async def answer(request: Request) -> Response:
            try:
                return await view(request)
            except NotHereError as missing:
                return _error_page(self._theme, 404, str(missing))
            except StoreDownError:
                return _error_page(self._theme, 503, "The database does not answer just now. Nothing was lost.")

        return answer

    async def home(self, request: Request) -> Response:
        """What is open, and whether the service itself needs somebody."""
        open_changes = await self._reader.changes(ChangeFilter(state="open"), None, 20)
        dead = await self._reader.dead_letters(None, 5)
        return await self._page(
            request,
            "home.html",
            changes=open_changes,
            dead=dead,
            state=self._reader.in_force(),
            upstream=str(self._reader.terms.upstream),
            public_url=self._reader.place.public_url,
        )

    async def changes(self, request: Request) -> Response:
        """All changes, filtered, newest first."""
        asked = {name: request.query_params.get(name, "") for name in ("kind", "state", "number", "backend")}
        wanted = ChangeFilter(
            kind=asked["kind"] if asked["kind"] in KINDS else None,
            state=asked["state"] if asked["state"] in STATES else None,
            number=_number(asked["number"]),
            backend=_repo(asked["backend"]),
        )
        page = await self._reader.changes(wanted, _number(request.query_params.get("before", "")))
        kept: dict[str, object] = {
            "kind": wanted.kind,
            "state": wanted.state,
            "number": wanted.number,
            "backend": None if wanted.backend is None else str(wanted.backend),
        }
        return await self._page(
            request, "changes.html", page=page, wanted=wanted, states=STATES, next=_next(request, page.next, kept)
        )

    async def change(self, request: Request) -> Response:
        """Is it this change, and may I merge?"""
        change_id = _number(request.path_params["change_id"])
        page = None if change_id is None else await self._reader.change(change_id)
        if page is None:
            raise NotHereError("There is no such change; it may have been forgotten after its time.")
        place = self._reader.place
        gated = page.gate is not None and page.change.state == "open"
        verdict = page.gate.verdict(place.overrides) if page.gate is not None and gated else None
        rendered = render(page.gate, place) if page.gate is not None else None
        return await self._page(
            request,
            "change.html",
            page=page,
            change=page.change,
            answer=gate_answer(
                page.change.state,
                None if verdict is None else verdict.effect,
                overridden=page.gate is not None and page.gate.answered_for(place.overrides),
            ),
            title=gate_title(rendered, page.change.gate.title if page.change.gate is not None else ""),
        )

    async def pull(self, request: Request) -> Response:
        """The newest head of a pull request."""
        number = _number(request.path_params["number"])
        found = None if number is None else await self._reader.newest(number)
        if found is None:
            raise NotHereError("No webhook of this pull request has come, so nothing is known of it.")
        return RedirectResponse(f"/changes/{found}", 302, {**HEADERS, "Cache-Control": "no-cache"})

    async def backends(self, request: Request) -> Response:
        """Who is told."""
        page = await self._reader.backends(_repo(request.query_params.get("after", "")))
        return await self._page(
            request,
            "backends.html",
            page=page,
            state=self._reader.in_force(),
            next=_next(request, page.next, key="after"),
        )

    async def backend(self, request: Request) -> Response:
        """One backend."""
        repo = _repo(f"{request.path_params['owner']}/{request.path_params['repo']}")
        before = _number(request.query_params.get("before", ""))
        page = None if repo is None else await self._reader.backend(repo, before)
        if page is None:
            raise NotHereError("There is no such backend: it is not on the allowlist, and was not before.")
        return await self._page(
            request,
            "backend.html",
            backend=page.backend,
            dispatches=page.dispatches,
            next=_next(request, page.dispatches.next),
        )

    async def deliveries(self, request: Request) -> Response:
        """Webhooks that came in, and what was given up."""
        page = await self._reader.deliveries(_delivery(request.query_params.get("before", "")))
        dead = await self._reader.dead_letters(None, 20)
        return await self._page(
            request,
            "deliveries.html",
            page=page,
            dead=dead,
            next=_next(request, page.next),
            public_url=self._reader.place.public_url,
        )

    async def delivery(self, request: Request) -> Response:
        """One webhook."""
        delivery_id = _delivery(request.path_params["delivery_id"])
        page = None if delivery_id is None else await self._reader.delivery(delivery_id)
        if page is None:
            raise NotHereError("No delivery with this id was accepted. Ignored ones are not kept.")
        return await self._page(request, "delivery.html", page=page, delivery=page.delivery)

    async def audit(self, request: Request) -> Response:
        """Who did what, and why."""
        page = await self._reader.audit(_number(request.query_params.get("before", "")))
        return await self._page(request, "audit.html", page=page, next=_next(request, page.next))

    async def gaps(self, request: Request) -> Response:
        """What webhooks did not tell."""
        page = await self._reader.gaps(_number(request.query_params.get("before", "")))
        return await self._page(request, "gaps.html", page=page, next=_next(request, page.next))

    async def static(self, request: Request) -> Response:
        """One static file; cached for ever under the address that holds its hash."""
        asset = self._theme.assets.get(request.path_params["name"])
        if asset is None:
            return _error_page(self._theme, 404, "There is no such file.")
        fixed = request.query_params.get("v") == asset.digest
        cache = {"cache": _FOR_EVER} if fixed else {}
        return conditional(request, asset.body, asset.media_type, headers=HEADERS, **cache)

    async def _page(self, request: Request, template: str, **values: Any) -> Response:
        # A page of the largest bounds takes tens of milliseconds to fill, which a webhook should not wait for.
        body = await asyncio.to_thread(self._theme.page, template, **values)
        return conditional(request, body, _HTML, headers=HEADERS)


def _number(text: str) -> int | None:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_ID_DIGITS):
        return None
    number = int(text)
    return number if number <= MOST_ID else None


def _repo(text: str) -> RepoName | None:
    try:
        return RepoName.parse(text)
    except ValueError:
        return None


def _delivery(text: str) -> str | None:
    return text if _DELIVERY.fullmatch(text) else None


def _next(
    request: Request, start: str | None, kept: Mapping[str, object] = MappingProxyType({}), key: str = "before"
) -> str | None:
    """The address of the next page, with the filters that were understood."""
    if start is None:
        return None
    query = {name: str(value) for name, value in kept.items() if value is not None}
    return f"{request.url.path}?{urlencode({**query, key: start})}"
