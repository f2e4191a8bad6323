"""What upstream repositories and backends have in common: a place at GitHub where things can be done."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from relay.simulator import installing, repositories
from relay.simulator.api_repos import ROLES
from relay.simulator.loop import LoopThread
from relay.simulator.model import Account, App, Installation, Repository
from relay.simulator.webhooks import Delivery
from relay.simulator.world import World

T = TypeVar("T")


class Site:
    """The world and the way onto its loop."""

    def __init__(self, world: World, loop: LoopThread) -> None:
        self.world = world
        self.loop = loop
        self.wait = True

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the loop."""
        return self.loop.call(function)

    def act(self, function: Callable[[], list[Delivery]]) -> list[Delivery]:
        """Do something that sends webhooks, and wait for their answers unless ``wait`` is off."""
        deliveries = self.loop.call(function)
        if self.wait:
            for delivery in deliveries:
                delivery.wait()
        return deliveries


def wait_until(condition: Callable[[], bool], timeout: float = 10.0, *, what: str = "the condition") -> None:
    """Block until a condition holds. Raises TimeoutError, naming ``what``, when it does not in time."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not come true within {timeout} s")
        time.sleep(0.005)


class Place:
    """A repository, seen from outside."""

    def __init__(self, site: Site, repository: Repository, app: App) -> None:
        self._site = site
        self.repository = repository
        self.app = app
        self.deliveries: list[Delivery] = []

    @property
    def world(self) -> World:
        """The state behind it."""
        return self._site.world

    @property
    def name(self) -> str:
        """``owner/name`` as it is now."""
        return self.repository.full_name

    @property
    def id(self) -> int:
        """The repository's id, which a rename leaves alone."""
        return self.repository.id

    @property
    def installation(self) -> Installation:
        """The app's installation here. Raises LookupError where it is not installed."""
        found = self.world.installation_of(self.app, self.repository)
        if found is None:
            raise LookupError(f"the app is not installed on {self.name}")
        return found

    def install(self, permissions: Mapping[str, str] | None = None) -> list[Delivery]:
        """Install the app, with the permissions it asks for unless others are given."""
        return self.did(lambda: installing.install(self.world, self.app, self.repository, permissions)[1])

    def uninstall(self) -> list[Delivery]:
        """Take the app away."""
        return self.did(lambda: installing.uninstall(self.world, self.installation, self.repository))

    def suspend(self, on: bool = True) -> list[Delivery]:
        """Suspend the installation, or lift that."""
        return self.did(lambda: installing.suspend(self.world, self.installation, on=on))

    def grant(self, permissions: Mapping[str, str]) -> list[Delivery]:
        """Set what the installation permits; a permission left out is one that is missing."""
        return self.did(lambda: installing.grant(self.world, self.installation, permissions))

    def rename(self, name: str) -> list[Delivery]:
        """Rename or transfer the repository; its old name redirects."""
        return self.did(lambda: repositories.rename(self.world, self.repository, name))

    def archive(self, on: bool = True) -> list[Delivery]:
        """Archive the repository, or lift that."""
        return self.did(lambda: repositories.archive(self.world, self.repository, on=on))

    def make_private(self, on: bool = True) -> list[Delivery]:
        """Make the repository private, or public."""
        return self.did(lambda: repositories.make_private(self.world, self.repository, on=on))

    def delete(self) -> list[Delivery]:
        """Delete the repository."""
        return self.did(lambda: repositories.delete(self.world, self.repository))

    def set_role(self, login: str, role: str, *, custom: str | None = None) -> None:
        """Give a person a role: admin, maintain, write, triage or read; ``custom`` names one that stands on it.

        Raises ValueError for a role that GitHub does not have.
        """
        if role not in ROLES:
            raise ValueError(f"a role is one of {', '.join(ROLES)}, got {role!r}")

        def give() -> None:
            self.world.account(login, "User")
            self.repository.roles[login.lower()] = role
            self.repository.custom_roles.pop(login.lower(), None)
            if custom is not None:
                self.repository.custom_roles[login.lower()] = custom

        self._site.call(give)

    @property
    def head(self) -> str:
        """The newest commit of the default branch."""
        return self.repository.refs[f"refs/heads/{self.repository.default_branch}"]

    def did(self, function: Callable[[], list[Delivery]]) -> list[Delivery]:
        """Do something that sends webhooks, and keep the deliveries."""
        deliveries = self._site.act(function)
        self.deliveries.extend(deliveries)
        return deliveries

    def person(self, login: str) -> Account:
        """The account of a person, made on first mention. On the loop only."""
        return self.world.account(login, "User")
