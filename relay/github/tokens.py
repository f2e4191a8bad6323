"""Installation ids and installation tokens: asked for once however many wait, kept in memory, never shown.

A token opens one repository with the permissions of one kind of call. Its mint's answer is the only place from which
a repository's ids are taken, so this is also where a name that leads to another repository is found out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from cachetools import LRUCache

from allowlist.model import RepoName
from relay.github import answers, calls
from relay.github.calls import Permissions
from relay.github.errors import (
    Forbidden,
    GitHubError,
    IdentityChanged,
    Invalid,
    NotInstalled,
    RetryLater,
    classify,
)
from relay.github.keys import AppKey
from relay.github.port import Address, Located
from relay.github.wire import API_VERSION, Answer, Call, Clock, Headers, Wire

_RENEW_EARLY = timedelta(minutes=5)
_MOST_KEPT = 8_192

T = TypeVar("T")
TokenKey = tuple[AppKey, int | RepoName, Permissions]


@dataclass(frozen=True, slots=True, eq=False)
class Token:
    """A good token: the headers that carry it, what it opens, and until when we use it."""

    authority: Headers
    minted: answers.Minted

    @property
    def located(self) -> Located:
        return self.minted.located

    def __repr__(self) -> str:
        return "<Token>"


class OneFlight(Generic[T]):
    """Of several who ask for the same thing at once, one does the work; the others wait for its outcome."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, asyncio.Task[T]] = {}

    async def join(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        """The outcome of ``work``, which is started only if no flight for ``key`` is under way."""
        flight = self._flights.get(key)
        if flight is None:
            flight = asyncio.ensure_future(self._fly(key, work))
            # If all who waited are cancelled, nobody else would look at the error.
            flight.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._flights[key] = flight
        # One who is cancelled must not take the others' flight down.
        return await asyncio.shield(flight)

    async def _fly(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        try:
            return await work()
        finally:
            self._flights.pop(key, None)

    async def aclose(self) -> None:
        """End what is under way."""
        flights = list(self._flights.values())
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)


class Tokens:
    """The cache of installation tokens, per app, repository and permissions."""

    def __init__(self, *, wire: Wire, now: Clock) -> None:
        self._wire = wire
        self._now = now
        self._kept: LRUCache[TokenKey, Token] = LRUCache(_MOST_KEPT)
        self._installations: LRUCache[tuple[AppKey, RepoName], int] = LRUCache(_MOST_KEPT)
        self._mints: OneFlight[Token] = OneFlight()
        self._lookups: OneFlight[int] = OneFlight()

    async def get(self, app: AppKey, at: Address, permissions: Permissions, *, fresh: bool = False) -> Token:
        """A token for this repository that is good for five minutes at least; ``fresh``: one that is minted now.

        Raises IdentityChanged when the address's pinned id is not the repository that GitHub finds there.
        """
        token = None if fresh else self.peek(app, at, permissions)
        if token is None:
            key = (app, at.repo, at.repository_id, permissions)
            token = await self._mints.join(key, lambda: self._mint(app, at, permissions))
        return token

    def peek(self, app: AppKey, at: Address, permissions: Permissions) -> Token | None:
        """The token if one is kept and still good."""
        token = self._kept.get((app, at.repository_id or at.repo, permissions))
        if token is None or token.minted.expires_at - self._now() <= _RENEW_EARLY:
            return None
        return token

    def drop(self, app: AppKey, at: Address, permissions: Permissions, refused: Token) -> None:
        """Forget a token that GitHub refused, unless a newer one has taken its place."""
        for name in {at.repo, at.repository_id or at.repo, refused.located.repository_id}:
            if self._kept.get((app, name, permissions)) is refused:
                del self._kept[app, name, permissions]

    def forget(self, app: AppKey, at: Address, token: Token) -> None:
        """Forget all about a repository that GitHub no longer finds, whatever the permissions."""
        self._installations.pop((app, at.repo), None)
        names = {at.repo, token.located.full_name, token.located.repository_id}
        for key in [key for key in self._kept if key[0] is app and key[1] in names]:
            del self._kept[key]

    async def as_app(
        self, app: AppKey, call: Call, installation_id: int | None = None, *, repeatable: bool = True
    ) -> Answer:
        """Send a call in which the app speaks for itself. ``repeatable``: a repetition would not double its effect."""
        send = self._wire.send_repeatable if repeatable else self._wire.send
        answer = await send(call, authority_of(app.jwt(self._now())))
        if answer.status < 300:
            return answer
        if answer.status == 401:
            app.forget_jwt()
        method = "GET" if repeatable else call.method
        error = classify(answer.status, answer.headers, answer.body, self._now(), method=method)
        error.installation_id = installation_id
        raise error

    async def aclose(self) -> None:
        """End the mints under way and forget every token."""
        await self._mints.aclose()
        await self._lookups.aclose()
        self._kept.clear()

    async def _mint(self, app: AppKey, at: Address, permissions: Permissions) -> Token:
        token = await self._mint_anywhere(app, at, permissions)
        located = token.located
        if at.repository_id is not None:
            raise_if_other(at.repo, at.repository_id, located)
        if located.full_name != at.repo:
            await self._confirm_rename(token, at)
        self._kept[app, at.repository_id or at.repo, permissions] = token
        # The caller pins the id that it is told, and asks by it from then on.
        self._kept[app, located.repository_id, permissions] = token
        return token

    async def _mint_anywhere(self, app: AppKey, at: Address, permissions: Permissions) -> Token:
        known = at.installation_id or self._installations.get((app, at.repo))
        if known is not None:
            try:
                return await self._mint_at(app, known, at, permissions)
            except NotInstalled:
                # The app may have been removed and installed again, under a new number.
                self._installations.pop((app, at.repo), None)
        found = await self._lookups.join((app, at.repo), lambda: self._look_up(app, at.repo))
        try:
            return await self._mint_at(app, found, at, permissions)
        except NotInstalled:
            if at.repository_id is not None:
                await self._find_impostor(app, found, at.repo, at.repository_id)
            raise

    async def _look_up(self, app: AppKey, repo: RepoName) -> int:
        answer = await self.as_app(app, calls.installation_of(repo))
        try:
            found = answers.an_id(answers.a_dict(answer.json(), "the answer").get("id"), "id")
        except ValueError as error:
            raise unreadable(error, "the installation") from None
        self._installations[app, repo] = found
        return found

    async def _mint_at(self, app: AppKey, installation_id: int, at: Address, permissions: Permissions) -> Token:
        try:
            answer = await self.as_app(app, calls.mint(installation_id, at, permissions), installation_id)
        except Invalid as error:
            if error.status == 422:
                raise _refused_mint(error, at, permissions) from None
            raise
        try:
            minted = answers.minted(answer.json(), installation_id)
        except ValueError as error:
            raise unreadable(error, "the mint") from None
        return Token(authority_of(minted.secret), minted)

    async def _find_impostor(self, app: AppKey, installation_id: int, repo: RepoName, pinned: int) -> None:
        """The pinned repository is not in the installation that its name leads to: does another bear the name?"""
        try:
            other = await self._mint_at(app, installation_id, Address(repo), calls.METADATA)
        except NotInstalled:
            return
        raise_if_other(repo, pinned, other.located)

    async def _confirm_rename(self, token: Token, at: Address) -> None:
        """The id answers under another name. That is a rename if the old name still leads to the same id.

        Otherwise someone else has taken the old name, and what is listed is no longer what was meant.
        """
        expected = token.located.repository_id
        answer = await self._wire.send_repeatable(
            calls.repository(at.repo),
            token.authority,
            installation_id=token.located.installation_id,
            repository_id=expected,
        )
        if answer.status not in (200, 404):
            raise classify(answer.status, answer.headers, answer.body, self._now(), method="GET")
        found: int | None = None
        if answer.status == 200:
            try:
                found = answers.an_id(answers.a_dict(answer.json(), "the answer").get("id"), "id")
            except ValueError as error:
                raise unreadable(error, "the repository") from None
        if found != expected:
            other = f"repository {found}" if found else "nothing that the app can see"
            raise IdentityChanged(
                f"{at.repo} was renamed to {token.located.full_name}, and the old name now leads to {other}.",
                expected_id=expected,
                found_id=found,
            )


def raise_if_other(repo: RepoName, pinned: int, found: Located) -> None:
    """Raise IdentityChanged unless what GitHub found is the pinned repository."""
    if found.repository_id != pinned:
        raise IdentityChanged(
            f"{repo} is now repository {found.repository_id}, not the pinned {pinned}.",
            expected_id=pinned,
            found_id=found.repository_id,
        )


def authority_of(secret: str) -> Headers:
    """The headers that say who we are, built once per token."""
    return [
        (b"authorization", b"Bearer " + secret.encode("ascii")),
        (b"x-github-api-version", API_VERSION),
    ]


def unreadable(error: ValueError, what: str, *, ambiguous: bool = False) -> RetryLater:
    """GitHub answered well but in words that we cannot read: an outage of its own kind."""
    return RetryLater(f"GitHub's answer about {what} is unreadable: {error}.", reason="bad_answer", ambiguous=ambiguous)


def _refused_mint(error: Invalid, at: Address, permissions: Permissions) -> GitHubError:
    """What 422 from the mint means: the installation lacks the repository, or a permission that we asked for.

    https://docs.github.com/rest/apps/apps#create-an-installation-access-token-for-an-app
    """
    wanted = ", ".join(f"{name}: {access}" for name, access in permissions)
    if "permission" in error.detail.lower():
        return Forbidden(
            f"{error.detail} The app's installation at {at.repo} needs {wanted}.",
            reason="missing_permission",
            status=422,
            permission=wanted,
        )
    return NotInstalled(f"{error.detail} The app's installation does not cover {at.repo}.", status=422)


def refused(answer: Answer, now: Clock, method: str, installation_id: int) -> GitHubError:
    """The error of an answer to a call with a token."""
    error = classify(answer.status, answer.headers, answer.body, now(), method=method)
    error.installation_id = installation_id
    return error
