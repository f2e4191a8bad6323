"""Installing an app on repositories and taking it away, with the events that GitHub sends for it.

https://docs.github.com/en/webhooks/webhook-events-and-payloads#installation
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from relay.simulator import payloads
from relay.simulator.model import Account, App, Installation, Json, Repository

if TYPE_CHECKING:
    from relay.simulator.webhooks import Delivery
    from relay.simulator.world import World


def installation_json(world: World, installation: Installation) -> Json:
    """An installation as the API and the events show it."""
    account = installation.account
    return {
        "id": installation.id,
        "account": payloads.user(world, account),
        "app_id": installation.app.id,
        "app_slug": installation.app.slug,
        "target_id": account.id,
        "target_type": account.type,
        "repository_selection": "selected",
        "permissions": {"metadata": "read", **installation.permissions},
        "events": sorted(installation.app.events),
        "access_tokens_url": f"{world.url}/app/installations/{installation.id}/access_tokens",
        "repositories_url": f"{world.url}/installation/repositories",
        "html_url": f"{world.url}/settings/installations/{installation.id}",
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
        "single_file_name": None,
        "has_multiple_single_files": False,
        "single_file_paths": [],
        "suspended_by": None,
        "suspended_at": payloads.stamp(world.now()) if installation.suspended else None,
    }


def install(
    world: World, app: App, repository: Repository, permissions: Mapping[str, str] | None
) -> tuple[Installation, list[Delivery]]:
    """Install an app on a repository. An account has one installation of an app, so a second repository joins it."""
    account = repository.owner
    for installation in world.installations.values():
        if installation.app is app and installation.account is account:
            installation.repositories[repository.id] = repository
            if permissions is not None:
                installation.permissions = dict(permissions)
            return installation, _changed(world, installation, account, added=[repository])
    installation = Installation(
        id=world.next_id("installation"),
        app=app,
        account=account,
        permissions=dict(app.permissions if permissions is None else permissions),
        repositories={repository.id: repository},
    )
    world.installations[installation.id] = installation
    return installation, act(world, installation, "created", account)


def uninstall(world: World, installation: Installation, repository: Repository) -> list[Delivery]:
    """Take a repository out of an installation; with its last one the installation is deleted."""
    installation.repositories.pop(repository.id, None)
    if installation.repositories:
        return _changed(world, installation, installation.account, removed=[repository])
    installation.repositories[repository.id] = repository
    deliveries = act(world, installation, "deleted", installation.account)
    del world.installations[installation.id]
    return deliveries


def suspend(world: World, installation: Installation, *, on: bool) -> list[Delivery]:
    """Suspend an installation or lift that."""
    installation.suspended = on
    return act(world, installation, "suspend" if on else "unsuspend", installation.account)


def grant(world: World, installation: Installation, permissions: Mapping[str, str]) -> list[Delivery]:
    """Accept other permissions for an installation."""
    installation.permissions = dict(permissions)
    return act(world, installation, "new_permissions_accepted", installation.account)


def ping(world: World, app: App) -> list[Delivery]:
    """The event that a webhook gets when it is set up.

    https://docs.github.com/en/webhooks/webhook-events-and-payloads#ping
    """
    if not world.webhooks.target(app):
        return []
    hook = {"type": "App", "id": app.id + 1_000_000, "active": True, "events": sorted(app.events), "app_id": app.id}
    payload = {"zen": "Keep it logically awesome.", "hook_id": hook["id"], "hook": hook}
    return [world.webhooks.send("ping", payload, app, None, None)]


def act(world: World, installation: Installation, action: str, sender: Account) -> list[Delivery]:
    """Send an ``installation`` event; every app gets those about itself."""
    if not world.webhooks.target(installation.app):
        return []
    payload = {
        "action": action,
        "installation": installation_json(world, installation),
        "repositories": [payloads.repository_brief(item) for item in installation.repositories.values()],
        "requester": None,
        "sender": payloads.user(world, sender),
    }
    return [world.webhooks.send("installation", payload, installation.app, installation, None)]


def _changed(
    world: World,
    installation: Installation,
    sender: Account,
    *,
    added: list[Repository] | None = None,
    removed: list[Repository] | None = None,
) -> list[Delivery]:
    if not world.webhooks.target(installation.app):
        return []
    payload = {
        "action": "added" if added else "removed",
        "installation": installation_json(world, installation),
        "repository_selection": "selected",
        "repositories_added": [payloads.repository_brief(item) for item in added or []],
        "repositories_removed": [payloads.repository_brief(item) for item in removed or []],
        "requester": None,
        "sender": payloads.user(world, sender),
    }
    return [world.webhooks.send("installation_repositories", payload, installation.app, installation, None)]
