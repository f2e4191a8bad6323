"""One process of the service: its HTTP application, and the work that goes on beside the requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from importlib.metadata import version
from typing import Literal

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from relay.app import Relay
from relay.condition import Condition
from relay.deciding.facts import Place
from relay.edge.admin import admin_router
from relay.edge.api import answer_invalid, api_router
from relay.edge.callback import callback_router
from relay.edge.health import health_router
from relay.edge.pages import http_error_handler, pages_router
from relay.edge.problems import ProblemError, answer_problem, answer_store_down
from relay.edge.reader import InForce
from relay.edge.webhook import webhook_router
from relay.store.engine import StoreDownError
from relay.store.handover import begin_work
from relay.store.notify import listen
from relay.store.reports import KeepTerms
from relay.traffic import CountTraffic
from relay.work.schedule import UNSURE

log = structlog.get_logger(__name__)

Role = Literal["all", "web", "worker"]


def create_app(relay: Relay, role: Role = "all") -> FastAPI:
    """The HTTP application of one process. Its lifespan runs the worker, the sweep and the allowlist's keeper."""
    application = FastAPI(
        title="Cross-repository CI relay",
        version=version("cross-repo-ci-relay"),
        lifespan=partial(_running, relay, role),
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
    )
    application.add_middleware(CountTraffic, traffic=relay.traffic, answered=relay.metrics.answered)
    application.add_exception_handler(ProblemError, answer_problem)
    application.add_exception_handler(StoreDownError, answer_store_down)
    application.add_exception_handler(RequestValidationError, answer_invalid)
    application.add_exception_handler(HTTPException, http_error_handler())
    settings = relay.settings
    condition = Condition(
        store=relay.store,
        keeper=relay.keeper,
        worker=relay.worker,
        sweep=relay.sweep,
        lookout=relay.lookout,
        line=relay.line,
        rotation=relay.rotation,
        now=relay.now,
        version=application.version,
        works=role != "web",
    )
    application.include_router(
        health_router(parts=condition.parts, build=condition.build, gauge=relay.figures.read, metrics=relay.metrics)
    )
    if role != "worker":
        application.include_router(
            webhook_router(
                store=relay.store,
                settings=settings,
                allowlist=relay.keeper.current,
                now=relay.now,
                wake=relay.worker.wake,
                metrics=relay.metrics,
                fresh_id=relay.chance.guid,
                secrets=relay.credentials.webhook_secrets,
            )
        )
        application.include_router(
            callback_router(
                store=relay.store,
                verifier=relay.verifier,
                capabilities=relay.credentials.keys,
                allowlist=relay.keeper.current,
                terms=KeepTerms(relay.terms, hud=relay.hud is not None),
                now=relay.now,
                wake=relay.worker.wake,
                legacy_ignored=settings.legacy_ignored,
                counted=relay.metrics.callback,
            )
        )
        application.include_router(
            admin_router(
                store=relay.store,
                tokens=relay.credentials.admins,
                label_prefix=settings.label_prefix,
                terms=relay.terms,
                now=relay.now,
                wake=relay.worker.wake,
            )
        )
        place = Place(settings.public_url, settings.label_prefix, settings.outcomes)

        def in_force() -> InForce:
            return relay.keeper.state

        application.include_router(
            api_router(store=relay.store, in_force=in_force, terms=relay.terms, place=place, now=relay.now)
        )
        application.include_router(pages_router(store=relay.store, in_force=in_force, terms=relay.terms, place=place))
    return application


@contextlib.asynccontextmanager
async def _running(relay: Relay, role: Role, _application: FastAPI) -> AsyncIterator[None]:
    try:
        await relay.keeper.start()
    except Exception:
        # uvicorn ends the process without a word of why, so we say it here.
        log.exception("not_started")
        raise
    tasks = [
        asyncio.create_task(relay.keeper.run(), name="allowlist"),
        asyncio.create_task(relay.rotation.run(), name="secrets"),
    ]
    working = []
    end_work: Callable[[], None] | None = None
    if role != "web":
        end_work = await asyncio.to_thread(begin_work, relay.store, relay.now(), UNSURE * relay.settings.retry_scale)
        working = [
            asyncio.create_task(relay.worker.run(), name="worker"),
            asyncio.create_task(relay.sweep.run(), name="sweep"),
            asyncio.create_task(relay.lookout.run(), name="lookout"),
        ]
        tasks.append(asyncio.create_task(listen(relay.store, relay.worker.wake, line=relay.line), name="listen"))
    log.info("started", role=role, upstream=str(relay.settings.upstream), worker=relay.worker.name)
    try:
        yield
    finally:
        relay.worker.stop()
        relay.sweep.stop()
        relay.lookout.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *working, return_exceptions=True)
        await relay.github.aclose()
        await relay.http.aclose()
        if relay.hud is not None:
            await relay.hud.aclose()
        await asyncio.to_thread(relay.store.close)
        if end_work is not None:
            end_work()
        log.info("stopped")
