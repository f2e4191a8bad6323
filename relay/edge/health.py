"""How the service says how it is: alive, able to work, which build, and its figures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response

from relay.edge.problems import MEDIA_TYPE
from relay.metrics import CONTENT_TYPE, Metrics


@dataclass(frozen=True, slots=True)
class Part:
    """One thing the service needs, and whether it is well. ``needed``: without it the service cannot do its work."""

    name: str
    well: bool
    detail: str
    needed: bool = True

    @property
    def state(self) -> str:
        """One word: ``degraded`` is not well and can be done without for a while."""
        return "ok" if self.well else "ill" if self.needed else "degraded"


@dataclass(frozen=True, slots=True)
class Build:
    """Which build answers, what it works by, and what its database looks like."""

    version: str
    commit: str | None
    allowlist_digest: str
    schema: str | None


def health_router(
    *,
    parts: Callable[[], Awaitable[tuple[Part, ...]]],
    build: Callable[[], Awaitable[Build]],
    gauge: Callable[[], Awaitable[None]],
    metrics: Metrics,
) -> APIRouter:
    """The routes. ``parts`` looks at everything the service needs; ``gauge`` reads the figures that are not counted."""
    router = APIRouter(tags=["health"])

    @router.get("/healthz", summary="Alive")
    async def healthz() -> Response:
        """The process answers; nothing else is asked."""
        return JSONResponse({"ok": True})

    @router.get(
        "/readyz",
        summary="Able to do its work",
        responses={503: {"description": "A part that is needed is ill; `parts` says which and why."}},
    )
    async def readyz() -> Response:
        """Every part with its state (ok, degraded, ill) and why; 503 when one that is needed is ill."""
        looked = await parts()
        well = all(part.well for part in looked if part.needed)
        body = {
            "ok": well,
            "parts": {
                part.name: {"state": part.state, "ok": part.well, "needed": part.needed, "detail": part.detail}
                for part in looked
            },
        }
        return JSONResponse(body, 200 if well else 503, None if well else {"Retry-After": "5"})

    @router.get("/version", summary="Which build this is")
    async def version() -> Response:
        """The build and its commit where that is known, the allowlist in force by its digest, the schema's revision."""
        answer = await build()
        return JSONResponse(
            {
                "version": answer.version,
                "commit": answer.commit,
                "allowlist_digest": answer.allowlist_digest,
                "schema": answer.schema,
            }
        )

    @router.get(
        "/metrics",
        summary="Figures for Prometheus",
        response_class=Response,
        responses={422: {"description": "Too many names.", "content": {MEDIA_TYPE: {"schema": {"type": "object"}}}}},
    )
    async def figures(
        names: Annotated[list[str] | None, Query(alias="name[]", max_length=100, description="Only these")] = None,
    ) -> Response:
        """Prometheus's text format. A page of a thousand lines takes ten milliseconds; a few of them cost nothing."""
        await gauge()
        return Response(metrics.render(names or ()), media_type=CONTENT_TYPE)

    return router
