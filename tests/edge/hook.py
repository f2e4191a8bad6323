"""GitHub's side of the webhook: bodies that are signed and posted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import httpx2
from fastapi import FastAPI
from starlette.testclient import TestClient

from allowlist.model import Allowlist, Entry
from relay.edge.signature import sign
from relay.edge.webhook import webhook_router
from relay.metrics import Metrics
from relay.settings import load_settings
from relay.store.engine import Store

SECRETS = ("an old secret", "a new secret")


@dataclass
class Hook:
    """A webhook edge of its own, with nothing behind it but a store."""

    store: Store
    entries: tuple[Entry, ...]
    at: datetime
    wakes: int = 0
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        settings = load_settings(
            {}, upstream="up/stream", github_app_id=4, github_private_key="unused", webhook_secrets=",".join(SECRETS)
        )
        self.app = FastAPI()
        self.app.include_router(
            webhook_router(
                store=self.store,
                settings=settings,
                allowlist=lambda: Allowlist(self.entries),
                now=lambda: self.at,
                wake=self._wake,
                metrics=self.metrics,
            )
        )
        # An exception that nothing answers must fail a test and not become a 500.
        self.client = TestClient(self.app, raise_server_exceptions=True)

    def _wake(self) -> None:
        self.wakes += 1

    def post(
        self,
        event: str,
        body: bytes | Mapping[str, Any],
        delivery_id: str | None = "D1",
        *,
        secret: str | None = SECRETS[1],
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        """Send a webhook as GitHub does."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"content-type": "application/json", "x-github-event": event}
        if delivery_id is not None:
            sent["x-github-delivery"] = delivery_id
        if secret is not None:
            sent["x-hub-signature-256"] = sign(secret.encode(), content)
        answer: httpx2.Response = self.client.post(
            "/github/webhook", content=content, headers=sent | dict(headers or {})
        )
        return answer

    def counted(self, event: str, status: str) -> float:
        """How many webhooks of this event were answered so."""
        return self.metrics.registry.get_sample_value("crcr_webhooks_total", {"event": event, "status": status}) or 0
