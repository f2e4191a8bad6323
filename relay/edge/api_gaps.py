"""``/api/v1/gaps``: what webhooks did not tell, for programs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from relay.deciding.gaps import Cause
from relay.edge.api_models import Model
from relay.edge.reader import Reader
from relay.store.reading.pages import MOST, MOST_ID, USUAL


class GapModel(Model):
    """One gap: something upstream that we did not hear of, or that a backend was not told of."""

    id: int
    cause: str = Field(description="A word of a closed set: delivery_failed, never_delivered, closed_missed and others")
    subject: str = Field(description="The pull request, branch or merge group; of a delivery its GUID")
    head_sha: str | None = Field(description="The commit; null for a delivery")
    number: int | None = Field(description="The pull request's number where it is one")
    event: str = Field(description="Of a delivery its event and action")
    backends: str = Field(description="Who may be told once it is closed")
    updated_at: datetime = Field(description="GitHub's time of what was missed")
    found_at: datetime
    asked_at: datetime | None = Field(description="When GitHub was asked to deliver it again")
    ended_at: datetime | None = Field(description="Null while it is open")
    healed: bool = Field(description="Whether it was made good")
    how: str = Field(description="How it ended; empty while it is open")
    delivery_id: str | None = Field(description="The delivery by which it was made good")


class GapList(Model):
    """Gaps, the last found first."""

    items: list[GapModel]
    next: str | None = Field(description="Send this as `before` for the next page; null on the last")


Answer = Callable[[Request, Callable[[], BaseModel]], Awaitable[Response]]


def add_gaps(router: APIRouter, reader: Reader, answer: Answer, responses: Mapping[int | str, dict[str, Any]]) -> None:
    """Add the route."""

    @router.get("/gaps", response_model=GapList, responses=dict(responses), summary="What webhooks did not tell")
    async def gaps(
        request: Request,
        cause: Annotated[Cause | None, Query(description="Only of this cause")] = None,
        before: Annotated[int | None, Query(ge=1, le=MOST_ID, description="`next` of the page before")] = None,
        limit: Annotated[int, Query(ge=1, le=MOST, description="The most that the page holds")] = USUAL,
    ) -> Response:
        """Deliveries that failed, heads and changes of which no webhook came, and what became of each."""
        page = await reader.gaps(before, None if cause is None else cause.value, limit)
        return await answer(request, lambda: GapList.model_validate(page))
