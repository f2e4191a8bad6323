"""One request and its answer, and the table that leads from one to the other.

Handlers are plain functions on the event loop: all state is in memory, so there is nothing to wait for, and nothing
can change between two lines of one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from relay.simulator.model import App, Json, Repository, Token

if TYPE_CHECKING:
    from relay.simulator.world import World

DOCS = "https://docs.github.com/rest"


class Refused(Exception):  # noqa: N818 (it is an answer, and no fault of ours)
    """The request is answered with an error, as GitHub words it."""

    def __init__(
        self, status: int, message: str, *, errors: list[Any] | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        self.body: Json = {"message": message, "documentation_url": DOCS, "status": str(status)}
        if errors:
            self.body["errors"] = errors


def invalid(resource: str, field_name: str, code: str, message: str | None = None) -> Refused:
    """A 422 in the form that most endpoints use.

    https://docs.github.com/en/rest/using-the-rest-api/troubleshooting-the-rest-api#validation-failed
    """
    error: Json = {"resource": resource, "field": field_name, "code": code}
    if message is not None:
        error["message"] = message
    return Refused(422, "Validation Failed", errors=[error])


@dataclass(slots=True)
class Answer:
    """What a handler answers. ``effect`` says that state changed."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    effect: bool = False


@dataclass(slots=True)
class Call:
    """One request, read whole."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    raw: bytes
    app: App | None = None
    token: Token | None = None
    repository: Repository | None = None
    params: dict[str, str] = field(default_factory=dict)
    _body: Any = None
    _parsed: bool = False

    @property
    def body(self) -> Any:
        """The JSON body; None where there is none. Raises Refused (400) when it is not JSON."""
        if not self._parsed:
            self._parsed = True
            if self.raw:
                try:
                    self._body = json.loads(self.raw)
                except (ValueError, RecursionError) as error:
                    raise Refused(400, "Problems parsing JSON") from error
        return self._body

    def parsed_or_none(self) -> Any:
        """The JSON body where there is one that can be read."""
        try:
            return self.body
        except Refused:
            return None

    def mapping(self) -> Json:
        """The JSON body, which must be an object; an absent one counts as empty."""
        body = self.body
        if body is None:
            return {}
        if not isinstance(body, dict):
            raise Refused(400, "Body should be a JSON object")
        return body

    @property
    def repo(self) -> Repository:
        """The repository that the path names; only routes under one may ask."""
        if self.repository is None:
            raise LookupError(f"{self.path} names no repository")
        return self.repository

    def page(self) -> tuple[int, int]:
        """``(page, per_page)``: 30 unless asked, never more than 100.

        https://docs.github.com/en/rest/using-the-rest-api/using-pagination-in-the-rest-api
        """
        return max(1, self._number("page", 1)), min(100, max(1, self._number("per_page", 30)))

    def _number(self, name: str, default: int) -> int:
        text = self.query.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default


Handler = Callable[["World", Call], Answer]


@dataclass(frozen=True)
class Route:
    """One endpoint. ``needs`` is the permission and the access that a token must have for it, or else ``or_needs``.

    ``caller`` is ``token`` (an installation token), ``app`` (a JWT of the app), ``anyone``, or ``outside`` for what is
    no part of GitHub's API and so has no limits of its.
    ``template`` has ``{name}`` for one segment and ``{name...}`` for the rest; a template that begins with ``/repo``
    stands for both ``/repos/{owner}/{name}`` and ``/repositories/{id}``.
    ``creates_content`` marks endpoints that GitHub documents as creating content.
    """

    method: str
    template: str
    handler: Handler
    needs: tuple[str, str] | None = None
    or_needs: tuple[str, str] | None = None
    caller: str = "token"
    creates_content: bool = False


_REPOSITORY = re.compile(r"/(?:repos/(?P<owner>[^/]+)/(?P<name>[^/]+)|repositories/(?P<id>\d{1,18}))(?P<rest>/.*)?\Z")


@dataclass(frozen=True)
class RepositoryPath:
    """A path under a repository, named by owner and name or by id."""

    owner: str
    name: str
    id: int | None
    rest: str


def repository_path(path: str) -> RepositoryPath | None:
    """Split a path under a repository; None for any other path."""
    found = _REPOSITORY.match(path)
    if found is None:
        return None
    number = found["id"]
    return RepositoryPath(
        found["owner"] or "", found["name"] or "", int(number) if number else None, found["rest"] or ""
    )


class Routes:
    """The endpoints, looked up by method and path."""

    def __init__(self, routes: list[Route]) -> None:
        self._under_repository: dict[str, list[tuple[re.Pattern[str], Route]]] = {}
        self._elsewhere: dict[str, list[tuple[re.Pattern[str], Route]]] = {}
        for route in routes:
            under = route.template == "/repo" or route.template.startswith("/repo/")
            table = self._under_repository if under else self._elsewhere
            template = route.template.removeprefix("/repo") if under else route.template
            table.setdefault(route.method, []).append((_pattern(template), route))

    def find(self, method: str, path: str, *, under_repository: bool) -> tuple[Route, dict[str, str]] | None:
        """The route and its parameters; ``path`` is what follows the repository where it is under one."""
        table = self._under_repository if under_repository else self._elsewhere
        for pattern, route in table.get(method, ()):
            found = pattern.match(path)
            if found is not None:
                return route, found.groupdict()
        return None


def _pattern(template: str) -> re.Pattern[str]:
    text = re.sub(r"\{(\w+)\.\.\.\}", r"(?P<\1>.+)", re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template))
    return re.compile(text + r"\Z")


def paged(
    call: Call,
    items: list[Any],
    *,
    key: str | None = None,
    url: str = "",
    shown: Callable[[Any], Any] = lambda item: item,
) -> Answer:
    """One page of a list with its ``Link`` header; with ``key`` as ``{total_count, key: [...]}``.

    ``shown`` says how an item of the page is shown, where that is too dear to be done for all.

    https://docs.github.com/en/rest/using-the-rest-api/using-pagination-in-the-rest-api#using-link-headers
    """
    page, per_page = call.page()
    last = max(1, -(-len(items) // per_page))
    part = [shown(item) for item in items[(page - 1) * per_page : page * per_page]]
    others = "".join(f"&{name}={value}" for name, value in call.query.items() if name not in {"page", "per_page"})
    targets: dict[str, int] = {}
    if page > 1:
        targets.update(prev=page - 1, first=1)
    if page < last:
        targets.update(next=page + 1, last=last)
    links = ", ".join(
        f'<{url}{call.path}?per_page={per_page}&page={number}{others}>; rel="{rel}"' for rel, number in targets.items()
    )
    headers = {"link": links} if links else {}
    return Answer(200, {"total_count": len(items), key: part} if key is not None else part, headers)
