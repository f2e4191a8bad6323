"""The simulator's HTTP side: one ASGI application that answers as GitHub, kept lean since benchmarks lean on it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import socket
import struct
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from relay.simulator import auth
from relay.simulator.exchange import Answer, Call, Refused, Route, Routes, repository_path
from relay.simulator.faults import AFTER, Fault, Kind
from relay.simulator.limits import ANONYMOUS, rate_headers, secondary_limit
from relay.simulator.log import LoggedRequest
from relay.simulator.model import Installation
from relay.simulator.world import World

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_LOGGED_HEADERS = ("user-agent", "accept", "x-github-api-version", "if-none-match", "idempotency-key")


class ResettableProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with the transport in the scope: a scripted reset has to cut the connection itself."""

    def on_message_begin(self) -> None:
        """Begin a request as uvicorn does, and add the transport."""
        super().on_message_begin()
        self.scope["simulator.transport"] = self.transport  # type: ignore[typeddict-unknown-key]


class _Reset(Exception):  # noqa: N818 (it is scripted, and no fault of ours)
    """The connection is to be cut without an answer."""


class Application:
    """Answers requests: latency, faults, caller, limits, route, handler, log."""

    def __init__(self, world: World, routes: list[Route], control: Callable[[Call], Awaitable[Answer]]) -> None:
        self._world = world
        self._routes = Routes(routes)
        self._control = control

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        call = await _read(scope, receive)
        if call.path.startswith("/_sim/"):
            await _write(send, call, await self._control(call))
            return
        began = time.perf_counter()
        outcome = _Outcome()
        answer: Answer | None = None
        with contextlib.suppress(_Reset):
            answer = await self._answer(call, outcome)
        # The log comes before the answer: whoever has the answer finds the request in the log.
        self._note(call, outcome, 0 if answer is None else answer.status, began)
        if answer is None:
            await _cut(scope)
        else:
            await _write(send, call, answer, malformed=outcome.fault is Kind.MALFORMED_JSON)

    def _note(self, call: Call, outcome: _Outcome, status: int, began: float) -> None:
        world, token, repository, headers = self._world, call.token, call.repository, call.headers
        world.log.append(
            LoggedRequest(
                at=world.now(),
                method=call.method,
                path=call.path,
                query="&".join(f"{name}={value}" for name, value in call.query.items()),
                status=status,
                installation=token.installation.id if token else None,
                repository=repository.id if repository else None,
                repository_name=repository.full_name if repository else outcome.named,
                body=call.parsed_or_none(),
                headers={name: headers[name] for name in _LOGGED_HEADERS if name in headers},
                effect=outcome.effect,
                fault=outcome.fault.value if outcome.fault else None,
                began=began,
                ended=time.perf_counter(),
            )
        )

    async def _answer(self, call: Call, outcome: _Outcome) -> Answer:
        world = self._world
        refused: Refused | None = None
        found: tuple[Route, dict[str, str]] | None = None
        try:
            found = self._locate(call, outcome)
        except Refused as error:
            refused = error
        installation = call.token.installation if call.token else None
        fault = world.faults.take(
            call.method,
            call.path,
            outcome.named,
            installation.account.login if installation else None,
            installation.id if installation else None,
        )
        key = _key(call)
        world.limits.enter(key)
        world.limits.comes(key, world.seconds(), time.perf_counter())
        try:
            # GitHub refuses a request over the limit of concurrent ones when it comes, not when its answer is ready.
            rate = {} if refused or found is None or found[0].caller == "outside" else self._charge(call, found[0], key)
            await self._pause(world.latency, fault)
            if fault is not None:
                outcome.fault = fault.kind
                await self._before(fault)
            if refused is not None:
                raise refused
            if found is None:
                raise Refused(404, "Not Found")
            route, call.params = found
            if route.caller != "outside":
                auth.authorize(call, route)
            answer = route.handler(world, call)
            outcome.effect = answer.effect
            if rate:
                answer.headers = {**rate, **answer.headers}
            self._conditional(call, answer, key)
        except Refused as error:
            world.limits.told(key, error, world.seconds(), time.perf_counter())
            answer = Answer(error.status, error.body, error.headers)
        finally:
            world.limits.leave(key)
        return await self._after(fault, answer) if fault is not None and fault.kind in AFTER else answer

    def _locate(self, call: Call, outcome: _Outcome) -> tuple[Route, dict[str, str]] | None:
        """Find caller, repository and route. Raises Refused for a bad caller, a moved repository or none."""
        under = repository_path(call.path)
        if under is None:
            found = self._routes.find(call.method, call.path, under_repository=False)
            if found is not None and found[0].caller == "outside":
                return found
            self._identify(call)
            return found
        self._identify(call)
        world = self._world
        if under.id is not None:
            repository = world.repositories.get(under.id)
        else:
            name = f"{under.owner}/{under.name}".lower()
            outcome.named = f"{under.owner}/{under.name}"
            repository = world.by_name.get(name)
            moved = world.old_names.get(name) if repository is None else None
            if moved is not None and moved.id in world.repositories:
                outcome.named = moved.full_name
                raise _redirect(world, call, moved.id, under.rest)
        if repository is None:
            raise Refused(404, "Not Found")
        outcome.named = repository.full_name
        call.repository = repository
        return self._routes.find(call.method, under.rest, under_repository=True)

    def _identify(self, call: Call) -> None:
        # https://docs.github.com/en/rest/using-the-rest-api/getting-started-with-the-rest-api#user-agent
        if not call.headers.get("user-agent"):
            raise Refused(
                403,
                "Request forbidden by administrative rules. Please make sure your request has a User-Agent header",
            )
        auth.identify(self._world, call)

    def _charge(self, call: Call, route: Route, key: str) -> dict[str, str]:
        world = self._world
        installation: Installation | None = call.token.installation if call.token else None
        return world.limits.charge(
            key, installation, call.method, creates_content=route.creates_content, now=world.seconds()
        )

    async def _pause(self, latency: float, fault: Fault | None) -> None:
        if fault is not None and fault.kind is Kind.LATENCY:
            latency += fault.seconds
        if latency > 0:
            await asyncio.sleep(latency)

    async def _before(self, fault: Fault) -> None:
        """Do what the fault does before any effect. Raises Refused or _Reset unless it lets the request through."""
        kind = fault.kind
        if kind is Kind.SERVER_ERROR:
            raise Refused(fault.status or 502, "Server Error")
        if kind is Kind.SECONDARY_LIMIT:
            raise secondary_limit(fault.status or 403, fault.retry_after)
        if kind is Kind.PRIMARY_LIMIT:
            now = self._world.seconds()
            headers = rate_headers(5000, 5000, now - 3600 + fault.seconds)
            raise Refused(fault.status or 403, "API rate limit exceeded for installation.", headers=headers)
        if kind is Kind.TIMEOUT:
            await asyncio.sleep(fault.seconds)
            raise _Reset
        if kind is Kind.RESET:
            raise _Reset
        if kind in _REFUSALS:
            status, message = _REFUSALS[kind]
            raise Refused(fault.status or status, message)

    async def _after(self, fault: Fault, answer: Answer) -> Answer:
        """Delay, spoil or lose the answer of a request that took effect."""
        if fault.kind is Kind.LATENCY_AFTER:
            await asyncio.sleep(fault.seconds)
        if fault.kind is Kind.TIMEOUT_AFTER:
            await asyncio.sleep(fault.seconds)
            raise _Reset
        if fault.kind is Kind.RESET_AFTER:
            raise _Reset
        if fault.kind is Kind.SERVER_ERROR_AFTER:
            return Answer(fault.status or 502, {"message": "Server Error"}, effect=answer.effect)
        return answer

    def _conditional(self, call: Call, answer: Answer, key: str) -> None:
        """Give a GET its ETag, and answer 304 when the caller has that version already.

        https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api#use-conditional-requests-if-appropriate
        """
        if call.method != "GET" or answer.status != 200:
            return
        text = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        tag = f'W/"{hashlib.sha256(text).hexdigest()}"'
        answer.headers = {**answer.headers, "etag": tag}
        if call.headers.get("if-none-match") == tag:
            answer.status, answer.body = 304, None
            if call.token is not None or call.app is not None:
                self._world.limits.refund(key)


class _Outcome:
    """What became of a request beside its answer."""

    def __init__(self) -> None:
        self.effect = False
        self.fault: Kind | None = None
        self.named: str | None = None


_REFUSALS = {
    Kind.MISSING_PERMISSION: (403, "Resource not accessible by integration"),
    Kind.UNAUTHORIZED: (401, "Bad credentials"),
    Kind.NOT_FOUND: (404, "Not Found"),
    Kind.GONE: (410, "Gone"),
    Kind.ARCHIVED: (403, "Repository was archived so is read-only."),
}


def _redirect(world: World, call: Call, repository_id: int, rest: str) -> Refused:
    # A renamed repository answers by a redirect to its id: 301 for reads, 307 for the rest, which keeps the method.
    # https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api#follow-redirects
    target = f"{world.url}/repositories/{repository_id}{rest}"
    refused = Refused(301 if call.method in {"GET", "HEAD"} else 307, "Moved Permanently", headers={"location": target})
    refused.body = {"message": "Moved Permanently", "url": target, "documentation_url": "https://docs.github.com/rest"}
    return refused


def _key(call: Call) -> str:
    if call.token is not None:
        return f"installation {call.token.installation.id}"
    return f"app {call.app.id}" if call.app is not None else ANONYMOUS


async def _read(scope: Scope, receive: Receive) -> Call:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    message = await receive()
    raw: bytes = message.get("body", b"")
    if message.get("more_body"):
        chunks = [raw]
        while message.get("more_body"):
            message = await receive()
            chunks.append(message.get("body", b""))
        raw = b"".join(chunks)
    text = scope["query_string"].decode("latin-1")
    query = dict(parse_qsl(text, keep_blank_values=True)) if text else {}
    return Call(scope["method"], scope["path"], query, headers, raw)


async def _write(send: Send, call: Call, answer: Answer, *, malformed: bool = False) -> None:
    body = answer.body
    if body is None:
        content = b""
    elif isinstance(body, bytes):
        content = body
    else:
        content = json.dumps(body, separators=(",", ":")).encode()
    if malformed:
        content = b'{"id": 1, "truncat'
    headers = [(b"content-length", str(len(content)).encode())] if answer.status not in {204, 304} else []
    if content:
        headers.append((b"content-type", b"application/json; charset=utf-8"))
    headers.extend((name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers.items())
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if call.method == "HEAD" else content})


async def _cut(scope: Scope) -> None:
    """Cut the connection with a TCP reset."""
    transport: asyncio.Transport = scope["simulator.transport"]
    peer: socket.socket | None = transport.get_extra_info("socket")
    if peer is not None:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
    # uvicorn learns of the cut on the next turns of the loop; until then it would answer 500 in our stead.
    for _ in range(3):
        await asyncio.sleep(0)
