"""The simulated GitHub's state and the registries in which it is found."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING

from relay.simulator.exchange import Refused
from relay.simulator.faults import Faults
from relay.simulator.keys import private_pem, rsa_key
from relay.simulator.limits import Limits
from relay.simulator.log import RequestLog, SentCallback
from relay.simulator.model import (
    Account,
    App,
    Commit,
    Installation,
    Network,
    Repository,
    Token,
)

if TYPE_CHECKING:
    from relay.simulator.hud import Hud
    from relay.simulator.oidc import Oidc
    from relay.simulator.runners import Runners
    from relay.simulator.webhooks import Webhooks


class World:
    """Everything that exists. Ids, shas and GUIDs come from the seed; time comes from ``now``."""

    webhooks: Webhooks
    runners: Runners
    oidc: Oidc
    hud: Hud

    def __init__(self, now: Callable[[], datetime], seed: int) -> None:
        self.now = now
        self.url = ""
        self.latency = 0.0
        self.webhook_url: str | None = None
        self.callback_url: str | None = None
        self.random = random.Random(seed)  # noqa: S311 (a seeded world is the point; nothing here is a secret)
        self.faults = Faults()
        self.limits = Limits()
        self.log = RequestLog()
        self.callbacks: list[SentCallback] = []
        self.accounts: dict[str, Account] = {}
        self.apps: dict[str, App] = {}
        self.installations: dict[int, Installation] = {}
        self.tokens: dict[str, Token] = {}
        self.verified_jwts: dict[str, tuple[App, float]] = {}
        self.repositories: dict[int, Repository] = {}
        self.by_name: dict[str, Repository] = {}
        self.old_names: dict[str, Repository] = {}
        self._ids = {
            "account": count(3_527_104_903),
            "repository": count(769_332_775),
            "installation": count(12_345_678),
            "pull": count(2_000_181_739),
            "label": count(208_045_946),
            "comment": count(1_296_269),
            "suite": count(5_118_396),
            # A job of Actions is a check run and has its id, so both are counted together.
            "check_run": count(98_765_432_100),
            "run": count(24_033_272_679),
            "delivery": count(12_345_678_901),
        }

    def next_id(self, kind: str) -> int:
        """The next id of a kind."""
        return next(self._ids[kind])

    def seconds(self) -> float:
        """Now, in seconds since the epoch."""
        return self.now().timestamp()

    def sha(self) -> str:
        """A fresh 40-digit commit id."""
        return f"{self.random.getrandbits(160):040x}"

    def guid(self) -> str:
        """A fresh UUID."""
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def secret(self, prefix: str = "") -> str:
        """A fresh opaque token."""
        return f"{prefix}{self.random.getrandbits(216):054x}"

    def account(self, login: str, kind: str = "Organization") -> Account:
        """The account of that login, made on first mention. Logins compare without case."""
        found = self.accounts.get(login.lower())
        if found is None:
            found = self.accounts[login.lower()] = Account(self.next_id("account"), login, kind)
        return found

    def add_app(
        self, app_id: int, permissions: Mapping[str, str], events: frozenset[str], webhook_url: str | None
    ) -> App:
        """Register an app. Raises ValueError when the id is taken."""
        if str(app_id) in self.apps:
            raise ValueError(f"app id {app_id} is taken")
        key = rsa_key(f"app {len(self.apps)}")
        app = App(
            id=app_id,
            slug=f"crcr-{app_id}",
            private_key_pem=private_pem(key),
            public_key=key.public_key(),
            webhook_secret=self.secret(),
            permissions=dict(permissions),
            events=events,
            webhook_url=webhook_url,
        )
        self.apps[str(app_id)] = app
        return app

    def add_repository(
        self,
        full_name: str,
        *,
        files: Mapping[str, str] | None = None,
        private: bool = False,
        parent: Repository | None = None,
        owner_type: str = "Organization",
    ) -> Repository:
        """Create a repository with one commit on ``main``, or a fork. Raises ValueError when the name is taken."""
        owner, _, name = full_name.partition("/")
        if not owner or not name or "/" in name:
            raise ValueError(f"expected owner/name, got {full_name!r}")
        if full_name.lower() in self.by_name:
            raise ValueError(f"{full_name} exists")
        repository = Repository(
            id=self.next_id("repository"),
            owner=self.account(owner, owner_type),
            name=name,
            network=parent.network if parent else Network(),
            created_at=self.now(),
            private=private,
            parent=parent,
        )
        if parent is None:
            root = self.commit(repository, (), "Initial commit", owner, dict(files or {"README.md": f"# {name}\n"}))
            repository.refs["refs/heads/main"] = root.sha
        else:
            head = parent.refs[f"refs/heads/{parent.default_branch}"]
            repository.refs[f"refs/heads/{parent.default_branch}"] = head
        self.repositories[repository.id] = repository
        self.by_name[full_name.lower()] = repository
        # A new repository takes the name over, and the redirect from a renamed one ends.
        # https://docs.github.com/en/repositories/creating-and-managing-repositories/renaming-a-repository
        self.old_names.pop(full_name.lower(), None)
        return repository

    def rename(self, repository: Repository, full_name: str) -> None:
        """Rename or transfer a repository; the old name redirects from now on."""
        owner, _, name = full_name.partition("/")
        if full_name.lower() in self.by_name:
            raise ValueError(f"{full_name} exists")
        del self.by_name[repository.full_name.lower()]
        self.old_names[repository.full_name.lower()] = repository
        repository.owner, repository.name = self.account(owner), name
        self.by_name[full_name.lower()] = repository
        self.old_names.pop(full_name.lower(), None)

    def delete(self, repository: Repository) -> None:
        """Delete a repository; it answers 404 from now on."""
        self.by_name.pop(repository.full_name.lower(), None)
        self.repositories.pop(repository.id, None)
        for installation in self.installations.values():
            installation.repositories.pop(repository.id, None)

    def commit(
        self,
        repository: Repository,
        parents: tuple[str, ...],
        message: str,
        author: str,
        tree: Mapping[str, str],
        *,
        sha: str | None = None,
    ) -> Commit:
        """Add a commit to the repository's network; no ref points to it yet."""
        made = Commit(sha or self.sha(), parents, message, author, self.now(), tree)
        repository.network.commits[made.sha] = made
        return made

    def fork(self, repository: Repository, login: str) -> Repository:
        """The fork of a repository by a user, made on first mention."""
        name = f"{login}/{repository.name}"
        found = self.by_name.get(name.lower())
        if found is None:
            found = self.add_repository(name, parent=repository, owner_type="User")
        return found

    def installation_of(self, app: App, repository: Repository) -> Installation | None:
        """The installation of an app that includes a repository."""
        for installation in self.installations.values():
            if installation.app is app and repository.id in installation.repositories:
                return installation
        return None

    def installed_on(self, repository: Repository) -> list[Installation]:
        """Every installation that includes a repository and is not suspended."""
        return [
            installation
            for installation in self.installations.values()
            if repository.id in installation.repositories and not installation.suspended
        ]

    def resolve(self, repository: Repository, ref: str) -> str:
        """The commit that a sha, branch, tag or full ref names. Raises Refused (422) when there is none."""
        found = self.lookup(repository, ref)
        if found is None:
            raise Refused(422, f"No commit found for SHA: {ref}")
        return found

    def lookup(self, repository: Repository, ref: str) -> str | None:
        """The commit that a sha, branch, tag or full ref names, None when there is none.

        Shas are looked up in the whole network, so that commits of forks are found at the parent.
        """
        if len(ref) == 40 and ref in repository.network.commits:
            return ref
        for name in (ref, f"refs/{ref}", f"refs/heads/{ref}", f"refs/tags/{ref}"):
            if name in repository.refs:
                return repository.refs[name]
        return None
