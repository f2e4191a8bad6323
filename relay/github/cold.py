"""What ``crcr doctor`` wants to know of GitHub, by PyGithub in threads: rare, paginated, in no hurry.

PyGithub's defaults would sleep between calls and repeat them by itself, so each object is built with them off.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import github as pygithub
from github import Auth

from allowlist.model import RepoName
from relay.github.calls import METADATA, Permissions
from relay.github.errors import Forbidden, RetryLater, classify, clean
from relay.github.keys import AppKey
from relay.github.port import Address
from relay.github.tokens import Token, Tokens
from relay.github.wire import Clock

_ADMINISTRATION: Permissions = (("administration", "read"),)
_TIMEOUT_SECONDS = 10
_UNHURRIED: dict[str, Any] = {
    "retry": None,
    "seconds_between_requests": None,
    "seconds_between_writes": None,
    "lazy": True,
    "per_page": 100,
    "timeout": _TIMEOUT_SECONDS,
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AppFacts:
    """What GitHub knows of the app itself: the permissions and events its owner has asked for."""

    slug: str
    permissions: MappingProxyType[str, str]
    events: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InstallationFacts:
    """One installation: where, with what granted, and whether its account has suspended it."""

    installation_id: int
    account: str
    permissions: MappingProxyType[str, str]
    events: tuple[str, ...]
    all_repositories: bool
    suspended: bool


@dataclass(frozen=True, slots=True)
class RepositoryFacts:
    """One repository. ``actions_enabled`` is None where the app may not ask (it needs administration read)."""

    repository_id: int
    full_name: RepoName
    default_branch: str
    archived: bool
    actions_enabled: bool | None


class ColdGitHub:
    """Slow questions, each in a thread of its own; tokens come from the same cache as the hot path's."""

    def __init__(self, *, tokens: Tokens, api_url: str, user_agent: str, now: Clock) -> None:
        self._tokens = tokens
        self._api_url = api_url.rstrip("/")
        self._user_agent = user_agent
        self._now = now

    async def app(self, app: AppKey) -> AppFacts:
        """The app's own settings. Raises GitHubError."""

        def ask(api: pygithub.GithubIntegration) -> AppFacts:
            found = api.get_app()
            return AppFacts(found.slug, MappingProxyType(dict(found.permissions)), tuple(found.events))

        return await self._in_thread(lambda: self._as_app(app, ask))

    async def installations(self, app: AppKey) -> tuple[InstallationFacts, ...]:
        """All installations of the app. Raises GitHubError."""

        def ask(api: pygithub.GithubIntegration) -> tuple[InstallationFacts, ...]:
            return tuple(
                InstallationFacts(
                    installation_id=found.id,
                    account=str(found.raw_data["account"]["login"]),
                    permissions=MappingProxyType({str(k): str(v) for k, v in found.raw_data["permissions"].items()}),
                    events=tuple(map(str, found.events)),
                    all_repositories=found.repository_selection == "all",
                    suspended=found.suspended_at is not None,
                )
                for found in api.get_installations()
            )

        return await self._in_thread(lambda: self._as_app(app, ask))

    async def repository(self, app: AppKey, at: Address) -> RepositoryFacts:
        """The repository as the app sees it. Raises GitHubError."""
        token = await self._tokens.get(app, at, METADATA)
        try:
            administration = await self._tokens.get(app, at, _ADMINISTRATION)
        except Forbidden:
            administration = None

        def ask() -> RepositoryFacts:
            with self._with_token(token) as api:
                found = api.get_repo(str(token.located.full_name))
                facts = RepositoryFacts(
                    repository_id=found.id,
                    full_name=RepoName.parse(found.full_name),
                    default_branch=found.default_branch,
                    archived=found.archived,
                    actions_enabled=None,
                )
            if administration is None:
                return facts
            with self._with_token(administration) as api:
                _, answer = api.requester.requestJsonAndCheck("GET", f"/repos/{facts.full_name}/actions/permissions")
            return RepositoryFacts(
                facts.repository_id, facts.full_name, facts.default_branch, facts.archived, answer["enabled"] is True
            )

        return await self._in_thread(ask)

    def _as_app(self, app: AppKey, ask: Callable[[pygithub.GithubIntegration], T]) -> T:
        # Our own signature is cached; PyGithub would parse the key again for each call.
        auth = Auth.AppAuth(app.app_id, sign_func=lambda _claims: app.jwt(self._now()))
        api = pygithub.GithubIntegration(auth=auth, base_url=self._api_url, user_agent=self._user_agent, **_UNHURRIED)
        try:
            return ask(api)
        finally:
            api.close()

    @contextmanager
    def _with_token(self, token: Token) -> Iterator[pygithub.Github]:
        api = pygithub.Github(
            auth=Auth.Token(token.minted.secret), base_url=self._api_url, user_agent=self._user_agent, **_UNHURRIED
        )
        try:
            yield api
        finally:
            api.close()

    async def _in_thread(self, ask: Callable[[], T]) -> T:
        """Run ``ask`` and say what went wrong in our own terms. Causes are not chained: they may hold a token."""
        try:
            return await asyncio.to_thread(ask)
        except pygithub.GithubException as error:
            headers = {name.lower(): str(value) for name, value in (error.headers or {}).items()}
            body = json.dumps(error.data, default=str).encode("utf-8", "replace")
            raise classify(error.status, headers, body, self._now(), method="GET") from None
        except OSError as error:
            # The errors of requests, over which PyGithub talks, are OSErrors.
            raise RetryLater(
                f"No answer from GitHub ({type(error).__name__}).", reason="network", ambiguous=False
            ) from None
        except (
            pygithub.BadAttributeException, ArithmeticError, AssertionError, AttributeError, LookupError,
            RuntimeError, TypeError, ValueError,
        ) as error:  # fmt: skip
            # PyGithub meets an answer that is not what it expects with whatever its code runs into.
            raise RetryLater(
                f"GitHub's answer is unreadable: {clean(str(error))}.", reason="bad_answer", ambiguous=False
            ) from None
