"""Asking GitHub something in a repository: with the right app's token, and with errors that say what is missing.

Nothing here waits for a limit or repeats a write: an error says what is owed, and the outbox decides when.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from allowlist.model import RepoName
from relay.github.calls import Permissions
from relay.github.errors import Forbidden, GitHubError, Invalid, Limited, NotInstalled
from relay.github.http import AsyncClient, HttpPool
from relay.github.keys import AppKey, Apps
from relay.github.port import Address, Located
from relay.github.tokens import Token, Tokens, refused, unreadable
from relay.github.wire import IN_FLIGHT, Answer, Call, Clock, Observe, Wire
from relay.github.witness import Witness

#: What we take as a commit's name: a branch's name would lead elsewhere tomorrow.
SHA = re.compile(r"[0-9a-f]{40}")

T = TypeVar("T")


def ignore(method: str, route: str, status: int | None, seconds: float, installation_id: int | None) -> None:
    """An observer that does not look."""


class Asking:
    """One way to GitHub, over which every method of the port asks. Takes over ``http`` and closes it."""

    def __init__(
        self,
        *,
        apps: Apps,
        upstream: RepoName,
        http: AsyncClient | HttpPool,
        api_url: str,
        now: Clock,
        observe: Observe = ignore,
        in_flight: int = IN_FLIGHT,
    ) -> None:
        self._apps = apps
        self._upstream = upstream
        self._now = now
        self.witness = Witness(now)
        self._wire = Wire(
            http=http,
            api_url=api_url,
            observe=observe,
            in_flight=in_flight,
            heard=self.witness.heard,
            sending=self.witness.sending,
        )
        self.tokens = Tokens(wire=self._wire, now=now)

    def app_of(self, repo: RepoName) -> AppKey:
        """The app that speaks for us in this repository."""
        return self._apps.upstream if repo == self._upstream else self._apps.downstream

    async def aclose(self) -> None:
        """Close all connections. The object cannot be used afterwards."""
        await self.tokens.aclose()
        await self._wire.aclose()

    @contextlib.contextmanager
    def _saying_where(self, repo: RepoName) -> Iterator[None]:
        """Have what is refused for good say on whose side that is, so that its reader knows who has to mend it.

        What is decided for a backend may well fail at upstream: a check of it is written there.
        """
        try:
            yield
        except (NotInstalled, Forbidden, Invalid) as error:
            whose = "upstream's" if repo == self._upstream else "the backend's"
            error.say_where(f"That is on {whose} side, at {repo}.")
            raise

    async def _ask(
        self,
        at: Address,
        permissions: Permissions,
        make: Callable[[Located], Call],
        *,
        repeatable: bool = True,
        good: tuple[int, ...] = (),
        missing: str | None = None,
    ) -> tuple[Answer, Located]:
        """Send the call that ``make`` builds for where the repository lives now; raise for what is not 2xx or good."""
        with self._saying_where(at.repo):
            return await self._asked(at, permissions, make, repeatable, good, missing)

    async def _asked(
        self,
        at: Address,
        permissions: Permissions,
        make: Callable[[Located], Call],
        repeatable: bool,
        good: tuple[int, ...],
        missing: str | None,
    ) -> tuple[Answer, Located]:
        """See ``_ask``.

        A refused token is replaced once, also for a write: 401 comes before any effect. Where the token's mint has
        just shown that the app is installed, 404 means that something in the repository is ``missing``.
        """
        app = self.app_of(at.repo)
        token = await self.tokens.get(app, at, permissions)
        answer = await self._send(at, make, token, repeatable)
        if answer.status == 401:
            self.tokens.drop(app, at, permissions, token)
            token = await self.tokens.get(app, at, permissions)
            answer = await self._send(at, make, token, repeatable)
        if answer.status < 300 or answer.status in good:
            return answer, token.located
        if answer.status == 401:
            self.tokens.drop(app, at, permissions, token)
        error = refused(answer, self._now, "GET" if repeatable else "POST", token.located.installation_id)
        if isinstance(error, Limited):
            self.witness.limited(token.located.installation_id, error)
        if isinstance(error, NotInstalled):
            if missing is None:
                self.tokens.forget(app, at, token)
                if at.repository_id is not None:
                    # The name may have been taken by another owner since the mint; a new mint tells that apart.
                    await self.tokens.get(app, at, permissions)
            else:
                error = _missing(missing, at, error)
        raise error

    async def _send(self, at: Address, make: Callable[[Located], Call], token: Token, repeatable: bool) -> Answer:
        located = token.located
        send = self._wire.send_repeatable if repeatable else self._wire.send
        self.witness.hold_back(located.installation_id)
        try:
            answer = await send(
                make(located),
                token.authority,
                installation_id=located.installation_id,
                repository_id=located.repository_id,
            )
            self.witness.left(at, answer.headers)
            return answer
        except GitHubError as error:
            error.installation_id = located.installation_id
            raise


def read(answer: Answer, as_value: Callable[[Any], T], what: str, *, ambiguous: bool = False) -> T:
    """The answer as a value; one that cannot be read is an outage. ``ambiguous``: the call has taken effect."""
    try:
        return as_value(answer.json())
    except ValueError as error:
        raise unreadable(error, what, ambiguous=ambiguous) from None


def _missing(what: str, at: Address, error: NotInstalled) -> Invalid:
    return Invalid(f"GitHub finds {what} nowhere in {at.repo} (404).", reason="not_found", status=error.status)
