"""``POST /repos/{owner}/{repo}/dispatches`` with all its limits.

https://docs.github.com/en/rest/repos/repos#create-a-repository-dispatch-event
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from relay.simulator.exchange import Answer, Call, Refused, Route
from relay.simulator.model import Json

if TYPE_CHECKING:
    from relay.simulator.world import World

#: "Must be 100 characters or fewer", "The maximum number of top-level properties is 10", "less than 64KB" (same page).
EVENT_TYPE_CHARACTERS = 100
TOP_LEVEL_KEYS = 10
PAYLOAD_CHARACTERS = 65_535


def _dispatch(world: World, call: Call) -> Answer:
    repository = call.repo
    body = call.mapping()
    event_type, payload = _checked(body, len(call.raw), world.limits.dispatch_unit)
    if repository.archived:
        # https://docs.github.com/en/repositories/archiving-a-github-repository/archiving-repositories
        raise Refused(403, "Repository was archived so is read-only.")
    if not repository.actions_enabled:
        # https://docs.github.com/en/repositories/managing-your-repositorys-settings-and-features/enabling-features-for-your-repository/managing-github-actions-settings-for-a-repository
        raise Refused(422, "Actions has been disabled for this repository.")
    world.runners.dispatched(repository, event_type, payload)
    return Answer(204, effect=True)


def _checked(body: Json, size: int, unit: str) -> tuple[str, Json]:
    unknown = sorted(set(body) - {"event_type", "client_payload"})
    if unknown:
        raise Refused(422, f'Invalid request.\n\n"{unknown[0]}" is not a permitted key.')
    event_type = body.get("event_type")
    if event_type is None:
        raise Refused(422, 'Invalid request.\n\n"event_type" wasn\'t supplied.')
    if not isinstance(event_type, str):
        raise Refused(422, f"Invalid request.\n\nFor 'properties/event_type', {event_type!r} is not a string.")
    if not event_type or len(event_type) > EVENT_TYPE_CHARACTERS:
        raise Refused(422, "Invalid request.\n\nevent_type must have from 1 to 100 characters.")
    payload = body.get("client_payload")
    if payload is None:
        payload = {}
    if not isinstance(payload, dict):
        raise Refused(422, "Invalid request.\n\nFor 'properties/client_payload', it is not an object.")
    if len(payload) > TOP_LEVEL_KEYS:
        raise Refused(422, f"Invalid request.\n\nNo more than 10 properties are allowed; {len(payload)} were supplied.")
    # Most bodies are short enough as they came, so that their payload need not be measured.
    if size > PAYLOAD_CHARACTERS:
        text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
        measured = len(text) if unit == "characters" else len(text.encode("utf-8", "surrogatepass"))
        if measured > PAYLOAD_CHARACTERS:
            raise Refused(422, "Invalid request.\n\nclient_payload is too large (maximum is 65535 characters).")
    return event_type, payload


ROUTES = [Route("POST", "/repo/dispatches", _dispatch, needs=("contents", "write"))]
