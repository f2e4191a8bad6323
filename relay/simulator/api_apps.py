"""Endpoints of an app: itself, its installations, their tokens, its webhook deliveries.

https://docs.github.com/en/rest/apps
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from relay.simulator import payloads
from relay.simulator.auth import at_least
from relay.simulator.exchange import Answer, Call, Refused, Route, paged
from relay.simulator.installing import installation_json
from relay.simulator.model import App, Installation, Json, Repository, Token

if TYPE_CHECKING:
    from relay.simulator.webhooks import Delivery
    from relay.simulator.world import World

#: https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app/generating-an-installation-access-token-for-a-github-app
TOKEN_LIFETIME = 3600
#: A token can be narrowed to at most 500 repositories (same page).
REPOSITORIES_AT_MOST = 500


def _app(call: Call) -> App:
    if call.app is None:
        raise Refused(401, "A JSON web token could not be decoded")
    return call.app


def _get_app(world: World, call: Call) -> Answer:
    app = _app(call)
    count = sum(item.app is app for item in world.installations.values())
    return Answer(200, {**payloads.app_brief(world, app), "installations_count": count})


def _list_installations(world: World, call: Call) -> Answer:
    app = _app(call)
    items = [installation_json(world, item) for item in world.installations.values() if item.app is app]
    return paged(call, items, url=world.url)


def _own(world: World, call: Call) -> Installation:
    text = call.params["installation"]
    found = world.installations.get(int(text)) if text.isdigit() and len(text) < 19 else None
    if found is None or found.app is not _app(call):
        raise Refused(404, "Not Found")
    return found


def _get_installation(world: World, call: Call) -> Answer:
    return Answer(200, installation_json(world, _own(world, call)))


def _repository_installation(world: World, call: Call) -> Answer:
    # https://docs.github.com/en/rest/apps/apps#get-a-repository-installation-for-the-authenticated-app
    # 404 when the app is not installed on the repository.
    found = world.installation_of(_app(call), call.repo)
    if found is None:
        raise Refused(404, "Not Found")
    return Answer(200, installation_json(world, found))


def _create_token(world: World, call: Call) -> Answer:
    """https://docs.github.com/en/rest/apps/apps#create-an-installation-access-token-for-an-app"""
    installation = _own(world, call)
    if installation.suspended:
        raise Refused(403, "This installation has been suspended")
    body = call.mapping()
    chosen = _narrowed_repositories(installation, body)
    permissions = _narrowed_permissions(installation, body)
    token = Token(
        value=world.secret("ghs_"),
        installation=installation,
        permissions=permissions,
        repository_ids=None if chosen is None else frozenset(item.id for item in chosen),
        expires_at=world.seconds() + TOKEN_LIFETIME,
    )
    world.tokens[token.value] = token
    answer: Json = {
        "token": token.value,
        "expires_at": payloads.stamp(datetime.fromtimestamp(token.expires_at, UTC)),
        "permissions": {"metadata": "read", **permissions},
        "repository_selection": "selected",
    }
    if chosen is not None:
        answer["repositories"] = [payloads.repository(world, item) for item in chosen]
    return Answer(201, answer, effect=True)


def _narrowed_repositories(installation: Installation, body: Json) -> list[Repository] | None:
    names, ids = body.get("repositories"), body.get("repository_ids")
    if names is None and ids is None:
        return None
    # ``repositories`` holds names without the owner, since an installation has one account.
    by_name = {item.name.lower(): item for item in installation.repositories.values()}
    found = [by_name.get(item.lower()) if isinstance(item, str) else None for item in _list(names)]
    found += [installation.repositories.get(item) if isinstance(item, int) else None for item in _list(ids)]
    chosen: dict[int, Repository] = {}
    for repository in found:
        if repository is None:
            raise Refused(
                422,
                "There is at least one repository that does not exist or is not accessible to the parent installation.",
            )
        chosen[repository.id] = repository
    if len(chosen) > REPOSITORIES_AT_MOST:
        raise Refused(422, "Too many repositories: at most 500 may be named.")
    return list(chosen.values())


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise Refused(422, "Invalid request.\n\nrepositories and repository_ids must be arrays.")
    return value


def _narrowed_permissions(installation: Installation, body: Json) -> dict[str, str]:
    wanted = body.get("permissions")
    # An empty object asks for nothing in particular and gets all; PyGithub sends one unless told otherwise.
    if wanted is None or wanted == {}:
        return dict(installation.permissions)
    if not isinstance(wanted, dict):
        raise Refused(422, "Invalid request.\n\npermissions must be an object.")
    for name, access in wanted.items():
        if access not in {"read", "write", "admin"} or not at_least(installation.permissions, name, access):
            raise Refused(422, "The permissions requested are not granted to this installation.")
    return {name: access for name, access in wanted.items() if name != "metadata"}


def _token_repositories(world: World, call: Call) -> Answer:
    if call.token is None:
        raise Refused(401, "Requires authentication")
    token = call.token
    items = [
        payloads.repository(world, item) for item in token.installation.repositories.values() if token.covers(item)
    ]
    return paged(call, items, key="repositories", url=world.url)


def _revoke_token(world: World, call: Call) -> Answer:
    if call.token is None:
        raise Refused(401, "Requires authentication")
    del world.tokens[call.token.value]
    return Answer(204, effect=True)


def _delivery_brief(world: World, delivery: Delivery) -> Json:
    response = delivery.response
    return {
        "id": delivery.id,
        "guid": delivery.guid,
        "delivered_at": payloads.stamp(delivery.delivered_at),
        "redelivery": delivery.redelivery,
        "duration": round(response.seconds, 2),
        "status": "OK" if delivery.ok else (response.error or f"Invalid HTTP Response: {response.status}"),
        "status_code": response.status,
        "event": delivery.event,
        "action": delivery.action,
        "installation_id": delivery.installation_id,
        "repository_id": delivery.repository_id,
        "throttled_at": None,
    }


def _list_deliveries(world: World, call: Call) -> Answer:
    """Newest first, by cursor. https://docs.github.com/en/rest/apps/webhooks#list-deliveries-for-an-app-webhook"""
    _, per_page = call.page()
    items = world.webhooks.kept(_app(call))
    cursor = call.query.get("cursor", "")
    if cursor:
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
            raise Refused(422, "Invalid cursor")
        items = [item for item in items if item.id <= int(cursor)]
    wanted = call.query.get("status", "")
    if wanted:
        # By the code alone: a receiver that was down or slow has none of either kind.
        least, most = (200, 399) if wanted == "success" else (400, 599)
        items = [item for item in items if least <= item.response.status <= most]
    part, rest = items[:per_page], items[per_page:]
    headers = {}
    if rest:
        status = f"&status={wanted}" if wanted else ""
        headers["link"] = (
            f'<{world.url}/app/hook/deliveries?per_page={per_page}&cursor={rest[0].id}{status}>; rel="next"'
        )
    return Answer(200, [_delivery_brief(world, item) for item in part], headers)


def _delivery(world: World, call: Call) -> Delivery:
    for item in world.webhooks.kept(_app(call)):
        if str(item.id) == call.params["delivery"]:
            return item
    raise Refused(404, "Not Found")


def _get_delivery(world: World, call: Call) -> Answer:
    delivery = _delivery(world, call)
    whole = {
        **_delivery_brief(world, delivery),
        "url": world.webhooks.target(delivery.app),
        "request": {"headers": delivery.headers, "payload": delivery.payload},
        "response": {"headers": delivery.response.headers, "payload": delivery.response.text},
    }
    return Answer(200, whole)


def _redeliver(world: World, call: Call) -> Answer:
    """https://docs.github.com/en/rest/apps/webhooks#redeliver-a-delivery-for-an-app-webhook"""
    world.webhooks.redeliver(_delivery(world, call))
    return Answer(202, {}, effect=True)


ROUTES = [
    Route("POST", "/app/installations/{installation}/access_tokens", _create_token, caller="app"),
    Route("GET", "/repo/installation", _repository_installation, caller="app"),
    Route("GET", "/app", _get_app, caller="app"),
    Route("GET", "/app/installations", _list_installations, caller="app"),
    Route("GET", "/app/installations/{installation}", _get_installation, caller="app"),
    Route("GET", "/app/hook/deliveries", _list_deliveries, caller="app"),
    Route("GET", "/app/hook/deliveries/{delivery}", _get_delivery, caller="app"),
    Route("POST", "/app/hook/deliveries/{delivery}/attempts", _redeliver, caller="app"),
    Route("GET", "/installation/repositories", _token_repositories, needs=("metadata", "read")),
    Route("DELETE", "/installation/token", _revoke_token),
]
