"""What is done to a repository as a whole, with the events that GitHub sends for it to apps that asked.

https://docs.github.com/en/webhooks/webhook-events-and-payloads#repository
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.simulator import payloads
from relay.simulator.model import Json, Repository

if TYPE_CHECKING:
    from relay.simulator.webhooks import Delivery
    from relay.simulator.world import World


def archive(world: World, repository: Repository, *, on: bool) -> list[Delivery]:
    """Archive a repository or lift that."""
    repository.archived = on
    return _tell(world, repository, "archived" if on else "unarchived")


def make_private(world: World, repository: Repository, *, on: bool) -> list[Delivery]:
    """Make a repository private, or public."""
    repository.private = on
    return _tell(world, repository, "privatized" if on else "publicized")


def rename(world: World, repository: Repository, full_name: str) -> list[Delivery]:
    """Give a repository another name, or another owner, which is a transfer."""
    before, name = repository.owner, repository.name
    world.rename(repository, full_name)
    if repository.owner is before:
        return _tell(world, repository, "renamed", {"repository": {"name": {"from": name}}})
    kind = "organization" if before.type == "Organization" else "user"
    return _tell(world, repository, "transferred", {"owner": {"from": {kind: payloads.user(world, before)}}})


def delete(world: World, repository: Repository) -> list[Delivery]:
    """Delete a repository; whoever was installed there hears of it."""
    deliveries = _tell(world, repository, "deleted")
    world.delete(repository)
    return deliveries


def _tell(world: World, repository: Repository, action: str, changes: Json | None = None) -> list[Delivery]:
    payload: Json = {"action": action, **({} if changes is None else {"changes": changes})}
    return world.webhooks.emit("repository", payload, repository, repository.owner)
