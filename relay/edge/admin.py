"""What admins do over HTTP, each with a token of their own, so that the audit names them.

The same acts as ``crcr backend`` and ``crcr override``, for whoever may not reach the database.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import structlog
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import Connection

from allowlist.model import RepoName
from relay.acts_read import MOST_WORDS, listed_entry, named, parse_level, parse_until, parse_words
from relay.admins import AdminTokens
from relay.clock import Now
from relay.edge.api import invalid
from relay.edge.body import parse_json, read_body
from relay.edge.brake import Brake
from relay.edge.problems import FieldFault, ProblemError
from relay.store import admin
from relay.store.admin import Demotion, Pause
from relay.store.answering import answer_for_pull
from relay.store.checks import CheckTerms
from relay.store.engine import Store
from relay.store.redispatch import Refusal

#: Refused tokens in a minute and process, over all callers: an admin mistypes now and then, a guesser all the time.
REFUSED_PER_MINUTE = 30
_MOST_ID = 2**53 - 1

MOST_BYTES = 16 * 1024

T = TypeVar("T")
W = TypeVar("W", bound=BaseModel)

_log = structlog.get_logger(__name__)
_PROBLEM = {"content": {"application/problem+json": {"schema": {"type": "object"}}}}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    401: {"description": "No admin's token.", **_PROBLEM},
    404: {"description": "No admin tokens are set, so there is nobody who may.", **_PROBLEM},
    409: {"description": "There is nothing to be done, and the detail says why.", **_PROBLEM},
    422: {"description": "Fields are wrong; each is named with its rule.", **_PROBLEM},
    429: {"description": "Too many refused tokens.", **_PROBLEM},
    503: {"description": "Our fault; nothing was done. Send again after Retry-After.", **_PROBLEM},
}


class _Words(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WhyWords(_Words):
    """Why something is done."""

    reason: Annotated[str, Field(max_length=MOST_WORDS)] = ""


class PauseWords(_Words):
    """A pause: how long (30m, 4h, 2d) or until when (RFC 3339), and why. Reviewers read the reason."""

    until: Annotated[str, Field(max_length=60)]
    reason: Annotated[str, Field(max_length=MOST_WORDS)]


class DemoteWords(PauseWords):
    """A demotion: to which level as well."""

    to: Annotated[str, Field(max_length=20)]


class OverrideWords(_Words):
    """An answer for a backend on a pull request's newest head."""

    number: Annotated[int, Field(ge=1, le=_MOST_ID)]
    backend: Annotated[str, Field(max_length=200)]
    reason: Annotated[str, Field(max_length=MOST_WORDS)]


class Done(BaseModel):
    """What was done, in a sentence, and under whose name it stands in the audit."""

    ok: bool = True
    who: str
    said: str


def admin_router(
    *,
    store: Store,
    tokens: AdminTokens,
    label_prefix: str,
    terms: CheckTerms,
    now: Now,
    wake: Callable[[], None],
) -> APIRouter:
    """The routes under /api/v1/admin. ``wake`` is called after each act, so that what it leads to begins at once."""
    acts = _Acts(store, label_prefix, terms, now, wake)
    gate = _Gate(tokens, Brake(REFUSED_PER_MINUTE, now=now))
    router = APIRouter(prefix="/api/v1/admin", tags=["admin"], responses=_RESPONSES)

    def add(path: str, summary: str, model: type[W], act: Callable[[str, W, str], Awaitable[Done]]) -> None:
        async def endpoint(request: Request) -> Done:
            # Who asks comes first: a body is read for admins only.
            who = gate.admit(request)
            words = _validated(model, parse_json(await read_body(request, MOST_BYTES)))
            return await act("/".join(request.path_params.values()), words, who)

        body = {"required": True, "content": {"application/json": {"schema": model.model_json_schema()}}}
        router.add_api_route(
            path,
            endpoint,
            methods=["POST"],
            response_model=Done,
            name=act.__name__,
            summary=summary,
            description=act.__doc__ or "",
            openapi_extra={"requestBody": body, "security": [{"admin": []}], "parameters": _path_of(path)},
        )

    backend = "/backends/{owner}/{name}"
    add(f"{backend}/pause", "Send a backend nothing until then", PauseWords, acts.pause)
    add(f"{backend}/resume", "End a pause", WhyWords, acts.resume)
    add(f"{backend}/demote", "Lower a backend's level until then", DemoteWords, acts.demote)
    add(f"{backend}/restore", "End a demotion", WhyWords, acts.restore)
    add("/overrides", "Answer for a backend on one pull request's head", OverrideWords, acts.override)
    return router


def _path_of(path: str) -> list[dict[str, Any]]:
    """The path's parameters as the API's description has them; the endpoint takes them from the request itself."""
    names = [part.strip("{}") for part in path.split("/") if part.startswith("{")]
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _validated(model: type[W], raw: object) -> W:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise invalid(error.errors()) from None


class _Gate:
    """Lets admins in."""

    def __init__(self, tokens: AdminTokens, brake: Brake) -> None:
        self._tokens = tokens
        self._refused = brake

    def admit(self, request: Request) -> str:
        """Whose token the request carries. Raises ProblemError for none of ours."""
        if not len(self._tokens):
            raise ProblemError(404, "no_admins", "CRCR_ADMIN_TOKENS names nobody; use the `crcr` command instead.")
        given = request.headers.getlist("authorization")
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        who = self._tokens.name_of(token.strip()) if scheme.lower() == "bearer" and token.strip() else None
        if who is not None:
            return who
        wait = self._refused.wait("refused")
        if wait is not None:
            seconds = max(1, math.ceil(wait.total_seconds()))
            raise ProblemError(429, "too_many_refused", "Too many tokens were refused.", retry_after=seconds)
        _log.warning("admin_refused", path=request.url.path[:200])
        raise ProblemError(401, "no_admin", "Send one header `Authorization: Bearer <an admin's token>`.")


@dataclass(frozen=True, slots=True)
class _Acts:
    """The acts, each in one transaction with its audit row."""

    store: Store
    label_prefix: str
    terms: CheckTerms
    now: Now
    wake: Callable[[], None]

    async def pause(self, repo: str, words: PauseWords, who: str) -> Done:
        """What was sent goes on, and its results count."""
        now, about = self.now(), _read(lambda: named("repo", repo))
        wanted = _read(
            lambda: Pause(about, parse_until("until", words.until, now), parse_words("reason", words.reason))
        )

        def unit(conn: Connection) -> None:
            _read(lambda: listed_entry(conn, "repo", self.label_prefix, about))
            admin.pause(conn, wanted, who, self.terms, now)

        await self._do(unit, who, "pause", about)
        return Done(who=who, said=f"{about} is {wanted}")

    async def resume(self, repo: str, words: WhyWords, who: str) -> Done:
        """What waited for the backend is sent now."""
        about, why = _read(lambda: (named("repo", repo), parse_words("reason", words.reason, needed=False)))
        now = self.now()
        told = await self._do(lambda conn: admin.resume(conn, about, who, why, self.terms, now), who, "resume", about)
        if told is None:
            raise ProblemError(409, "not_paused", f"{about} is not paused.")
        return Done(who=who, said=f"{about} is resumed; what waited and is sent now: {told}")

    async def demote(self, repo: str, words: DemoteWords, who: str) -> Done:
        """Below what the allowlist says, which stays as it is."""
        now, about = self.now(), _read(lambda: named("repo", repo))
        until, why = _read(lambda: (parse_until("until", words.until, now), parse_words("reason", words.reason)))

        def unit(conn: Connection) -> Demotion:
            entry = _read(lambda: listed_entry(conn, "repo", self.label_prefix, about))
            wanted = Demotion(about, _read(lambda: parse_level("to", words.to, entry)), until, why)
            admin.demote(conn, wanted, who, self.terms, now)
            return wanted

        wanted = await self._do(unit, who, "demote", about)
        return Done(who=who, said=f"{about} has {wanted}")

    async def restore(self, repo: str, words: WhyWords, who: str) -> Done:
        """The allowlist's level is in force again."""
        about, why = _read(lambda: (named("repo", repo), parse_words("reason", words.reason, needed=False)))
        now = self.now()
        if not await self._do(
            lambda conn: admin.restore(conn, about, who, why, self.terms, now), who, "restore", about
        ):
            raise ProblemError(409, "not_demoted", f"{about} is not demoted.")
        return Done(who=who, said=f"{about} has the allowlist's level again")

    async def override(self, _path: str, words: OverrideWords, who: str) -> Done:
        """It holds for this head and the merge groups that contain it; a new push ends it."""
        about, why = _read(lambda: (named("backend", words.backend), parse_words("reason", words.reason)))
        now = self.now()
        done = await self._do(
            lambda conn: answer_for_pull(
                conn, words.number, about, who=who, why=why, terms=self.terms, listed=None, now=now
            ),
            who,
            "override",
            about,
        )
        if isinstance(done, Refusal):
            raise ProblemError(409, done.code, done.sentence)
        return Done(who=who, said=f"{who} answers for {about} on {done}")

    async def _do(self, unit: Callable[[Connection], T], who: str, what: str, about: RepoName) -> T:
        done = await self.store.write(unit, waited_for=True)
        _log.info("admin_act", who=who, what=what, backend=str(about))
        self.wake()
        return done


def _read(words: Callable[[], T]) -> T:
    """What the words mean. A fault in them names its field before a colon."""
    try:
        return words()
    except ValueError as error:
        field, _, rule = str(error).partition(": ")
        raise ProblemError(422, "invalid_field", str(error), faults=[FieldFault(field, rule)]) from None
