"""``POST /github/webhook``: GitHub tells us what happened upstream, and is answered after one durable commit.

The order of the checks is the protocol's: size, signature, delivery id, then the body. Nothing of a body is parsed
before its signature fits, not even for events that nobody wants.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import structlog
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from allowlist.model import Allowlist, RepoName
from relay.check_terms import terms_of
from relay.clock import Now
from relay.deciding.events import (
    WANTED_EVENTS,
    CheckEvent,
    CommentEvent,
    Event,
    Ignored,
    InstallationEvent,
    MergeGroupEvent,
    PingEvent,
    RepositoryEvent,
    parse,
)
from relay.deciding.payload import trim
from relay.deciding.reading import BadEventError
from relay.edge.body import parse_json, read_body
from relay.edge.problems import FieldFault, ProblemError, store_down
from relay.edge.signature import is_signed
from relay.settings import Settings
from relay.store.asking import record_asked
from relay.store.engine import Store, StoreDownError
from relay.store.installing import record_installation
from relay.store.intake import Received, Recorded, record
from relay.store.queue import record_group
from relay.store.repositories import record_repository
from relay.tracing import trace_id

#: GitHub caps payloads at 25 MB. https://docs.github.com/en/webhooks/webhook-events-and-payloads#payload-cap
MAX_BODY = 25_000_000
MAX_DELIVERY_ID = 128
#: Larger bodies are hashed and parsed in a thread, so that one of them does not hold up everybody else.
_LARGE = 256 * 1024

_T = TypeVar("_T")

_log = structlog.get_logger(__name__)


class Count(Protocol):
    """Something that counts up."""

    def inc(self) -> None:
        """One more."""
        ...


class LabelledCounter(Protocol):
    """A counter for each event and answer."""

    def labels(self, *, event: str, status: str) -> Count:
        """The counter of this event and answer."""
        ...


class WebhookMetrics(Protocol):
    """What this edge counts."""

    @property
    def webhooks(self) -> LabelledCounter:
        """Webhooks by event and answer."""
        ...


_PROBLEM: dict[str, Any] = {"content": {"application/problem+json": {}}}
RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "This delivery was accepted before; what had been given up of it is tried again."},
    202: {"description": "Accepted after one durable commit, or ignored with the reason."},
    400: {"description": "No delivery id, no event name, or a body that is not a JSON object.", **_PROBLEM},
    401: {"description": "No signature, or none of ours. Nothing was stored.", **_PROBLEM},
    408: {"description": "The body did not come in time.", **_PROBLEM},
    413: {"description": "The body exceeds GitHub's cap.", **_PROBLEM},
    422: {"description": "An event that we act on lacks what we need of it; each field is named.", **_PROBLEM},
    503: {"description": "The database did not answer. Nothing was kept; send again.", **_PROBLEM},
}


def random_id() -> str:
    """A fresh delivery id, of the kind GitHub uses."""
    return str(uuid.uuid4())


def webhook_router(
    *,
    store: Store,
    settings: Settings,
    allowlist: Callable[[], Allowlist],
    now: Now,
    wake: Callable[[], None],
    metrics: WebhookMetrics,
    secrets: Callable[[], Sequence[bytes]] | None = None,
    fresh_id: Callable[[], str] = random_id,
) -> APIRouter:
    """The webhook's route. ``secrets`` gives those valid now, where they can change while the service runs."""
    fixed = tuple(secret.get_secret_value().encode() for secret in settings.webhook_secrets)
    edge = _WebhookEdge(
        store=store,
        settings=settings,
        allowlist=allowlist,
        now=now,
        wake=wake,
        metrics=metrics,
        secrets=secrets or (lambda: fixed),
        fresh_id=fresh_id,
    )
    router = APIRouter()
    router.add_api_route(
        "/github/webhook",
        edge.receive,
        methods=["POST"],
        responses=RESPONSES,
        status_code=202,
        summary="Receive a webhook from GitHub",
        response_class=JSONResponse,
        openapi_extra=_OPENAPI,
    )
    return router


def _header(name: str, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": True,
        "schema": {"type": "string"},
        "description": description,
    }


_OPENAPI = {
    "parameters": [
        _header("X-GitHub-Event", "The event's name."),
        _header("X-GitHub-Delivery", "The delivery's id; the same on a redelivery."),
        _header("X-Hub-Signature-256", "sha256= and the HMAC of the body."),
    ],
    "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}},
}


class _WebhookEdge:
    def __init__(
        self,
        *,
        store: Store,
        settings: Settings,
        allowlist: Callable[[], Allowlist],
        now: Now,
        wake: Callable[[], None],
        metrics: WebhookMetrics,
        secrets: Callable[[], Sequence[bytes]],
        fresh_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._upstream = settings.upstream
        self._checks_app = settings.github_app_id
        self._backends_app = settings.downstream_app_id or settings.github_app_id
        self._terms = terms_of(settings)
        self._allowlist = allowlist
        self._now = now
        self._wake = wake
        self._metrics = metrics
        self._secrets = secrets
        self._fresh_id = fresh_id

    async def receive(self, request: Request) -> Response:
        """Answer one webhook."""
        try:
            response, status = await self._answer(request)
        except ProblemError as problem:
            response, status = problem.response(), problem.code
        except StoreDownError:
            response, status = store_down().response(), "store_unreachable"
        self._count(request, status)
        return response

    def _count(self, request: Request, status: str) -> None:
        # The header is anybody's text, and each new value would make a new time series.
        name = request.headers.get("x-github-event", "")
        known = name if name in WANTED_EVENTS else "other"
        self._metrics.webhooks.labels(event=known, status=status).inc()

    async def _answer(self, request: Request) -> tuple[Response, str]:
        body = await read_body(request, MAX_BODY)
        signature = request.headers.get("x-hub-signature-256")
        if not await _aside(body, lambda: is_signed(body, signature, self._secrets())):
            raise _unsigned(signature)
        delivery_id = _delivery_id(request)
        name = request.headers.get("x-github-event")
        if not name:
            raise ProblemError(
                400, "event_missing", "The header X-GitHub-Event is missing. Send the event's name in it."
            )
        _refuse_form(request, body)
        raw = await _aside(body, lambda: parse_json(body))
        if not isinstance(raw, dict):
            raise ProblemError(
                400, "body_not_object", "The body must be a JSON object, as all of GitHub's webhooks are."
            )
        try:
            event = parse(name, raw, self._upstream)
        except BadEventError as error:
            faults = [FieldFault(fault.field, fault.rule, fault.fix) for fault in error.faults]
            raise ProblemError(422, "event_malformed", f"The {name} event cannot be read.", faults=faults) from None
        event = self._of_ours(self._of_our_app(event))
        if isinstance(event, Ignored):
            return _ignored(delivery_id, event.reason_code, event.detail), "ignored"
        if isinstance(event, PingEvent):
            return _pong(delivery_id, event), "ignored"
        received = Received(delivery_id, name, trim(name, raw))
        recorded = await self._record(event, received)
        if isinstance(recorded, Ignored):
            return _ignored(delivery_id, recorded.reason_code, recorded.detail), "ignored"
        if recorded.planned:
            self._wake()
        _log.info(
            "webhook",
            delivery=delivery_id,
            trace=trace_id(delivery_id),
            head=getattr(event, "head_sha", None),
            github_event=name,
            status=recorded.status,
            planned=len(recorded.planned),
        )
        return _recorded(delivery_id, recorded), recorded.status

    def _of_our_app(self, event: Event | Ignored) -> Event | Ignored:
        """Where upstream and backends have an app each, only the latter says how backends are reached.

        Other apps' checks are theirs to run again: GitHub sends these events to every app that may write checks.
        """
        if isinstance(event, InstallationEvent) and event.app_id not in {None, self._backends_app}:
            return Ignored("app_unwanted", f"this is an installation of app {event.app_id}, not of the backends' app")
        if isinstance(event, CheckEvent) and event.app_id != self._checks_app:
            return Ignored("app_unwanted", f"this check is of app {event.app_id}, and not ours to run again")
        return event

    def _of_ours(self, event: Event | Ignored) -> Event | Ignored:
        """An app may be installed for other reasons than ours, and who did so is not for everybody to read here."""
        if isinstance(event, InstallationEvent) and not _names_ours(event, self._allowlist(), self._upstream):
            return Ignored("repository_unwanted", "this installation names neither a listed backend nor upstream")
        return event

    async def _record(self, event: Event, received: Received) -> Recorded | Ignored:
        allowlist, now = self._allowlist(), self._now()
        if isinstance(event, InstallationEvent):
            installation = event
            return await self._store.write(
                lambda conn: record_installation(
                    conn, installation, received, allowlist=allowlist, terms=self._terms, now=now
                ),
                waited_for=True,
            )
        if isinstance(event, RepositoryEvent):
            repository = event
            return await self._store.write(
                lambda conn: record_repository(
                    conn, repository, received, allowlist=allowlist, terms=self._terms, now=now
                ),
                waited_for=True,
            )
        if isinstance(event, CheckEvent | CommentEvent):
            asking = event
            return await self._store.write(
                lambda conn: record_asked(conn, asking, received, self._upstream, now), waited_for=True
            )
        if isinstance(event, MergeGroupEvent):
            group = event
            return await self._store.write(
                lambda conn: record_group(conn, group, received, allowlist=allowlist, terms=self._terms, now=now),
                waited_for=True,
            )
        if isinstance(event, PingEvent):
            raise TypeError("a ping is answered and never recorded")
        change = event
        return await self._store.write(
            lambda conn: record(
                conn,
                change,
                received,
                allowlist=allowlist,
                terms=self._terms,
                now=now,
                fresh_id=self._fresh_id,
            ),
            waited_for=True,
        )


def _names_ours(event: InstallationEvent, allowlist: Allowlist, upstream: RepoName) -> bool:
    """Whether it concerns a listed backend or upstream; one that names no repository speaks of its whole account."""
    ours = {upstream, *(entry.repo for entry in allowlist.entries)}
    if event.repositories:
        return any(repository.name in ours for repository in event.repositories)
    return event.account in {repo.owner for repo in ours}


async def _aside(body: bytes, work: Callable[[], _T]) -> _T:
    return await asyncio.to_thread(work) if len(body) > _LARGE else work()


def _unsigned(signature: str | None) -> ProblemError:
    if signature is None:
        return ProblemError(
            401,
            "signature_missing",
            "The header X-Hub-Signature-256 is missing. Set a secret in the webhook's settings.",
        )
    return ProblemError(
        401,
        "signature_wrong",
        "X-Hub-Signature-256 fits none of our secrets. Set the same secret here and in the webhook's settings.",
    )


def _delivery_id(request: Request) -> str:
    delivery_id = request.headers.get("x-github-delivery", "").strip()
    if not delivery_id:
        raise ProblemError(
            400, "delivery_id_missing", "The header X-GitHub-Delivery is missing. Send the delivery's GUID in it."
        )
    if len(delivery_id) > MAX_DELIVERY_ID or not (delivery_id.isascii() and delivery_id.isprintable()):
        raise ProblemError(
            400,
            "delivery_id_malformed",
            f"X-GitHub-Delivery must have at most {MAX_DELIVERY_ID} printable ASCII characters. Send a GUID.",
        )
    return delivery_id


def _refuse_form(request: Request, body: bytes) -> None:
    """A webhook left at GitHub's default sends its JSON inside a form."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type == "application/x-www-form-urlencoded" or body.startswith(b"payload="):
        raise ProblemError(
            400,
            "body_is_form",
            "The body is a form, not JSON. Set the webhook's content type to application/json.",
        )


def _ignored(delivery_id: str, reason: str, detail: str, **more: object) -> Response:
    content = {"ok": True, "status": "ignored", "delivery_id": delivery_id, "reason": reason, "detail": detail, **more}
    return JSONResponse(content, 202)


def _pong(delivery_id: str, ping: PingEvent) -> Response:
    detail = "pong"
    if ping.missing_events:
        detail = f"pong; this hook does not send {', '.join(ping.missing_events)}: subscribe it to them"
    return _ignored(delivery_id, "ping", detail, hook_id=ping.hook_id, hook_events=ping.hook_events)


def _recorded(delivery_id: str, recorded: Recorded) -> Response:
    content: dict[str, object] = {
        "ok": True,
        "status": recorded.status,
        "delivery_id": delivery_id,
        "trace_id": trace_id(delivery_id),
        "planned": [
            {
                "effect": decision.effect,
                "backend": decision.backend or None,
                "reason": decision.reason,
                **({"detail": decision.detail} if decision.detail else {}),
            }
            for decision in recorded.planned
        ],
    }
    return JSONResponse(content, 200 if recorded.status == "duplicate" else 202)
