"""The relay's GitHub: the port over one HTTP connection pool.

Nothing here waits for a limit or repeats a write: an error says what is owed, and the outbox decides when.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from allowlist.model import RepoName
from relay.github import answers, calls
from relay.github.calls import Permissions
from relay.github.errors import Forbidden, GitHubError, Invalid, NotInstalled
from relay.github.http import AsyncClient, HttpPool
from relay.github.keys import AppKey, Apps
from relay.github.port import Address, ChangedPaths, CheckRunWrite, FileVersion, Located
from relay.github.tokens import Token, Tokens, refused, unreadable
from relay.github.wire import IN_FLIGHT, Answer, Call, Clock, Observe, Wire

_SHA = re.compile(r"[0-9a-f]{40}")
# GitHub keeps 1,000 check runs of one name, https://docs.github.com/rest/guides/using-the-rest-api-to-interact-with-checks
_MOST_CHECK_PAGES = 10
# GitHub lists at most 1,000 runs of a search, https://docs.github.com/rest/actions/workflow-runs
_MOST_RUN_PAGES = 10
_NO_COMMIT = "0" * 40

T = TypeVar("T")


def ignore(method: str, route: str, status: int | None, seconds: float, installation_id: int | None) -> None:
    """An observer that does not look."""


class GitHubClient:
    """Implements ``relay.github.port.GitHub``. Takes over ``http`` and closes it."""

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
        self._wire = Wire(http=http, api_url=api_url, observe=observe, in_flight=in_flight)
        self.tokens = Tokens(wire=self._wire, now=now)

    def app_of(self, repo: RepoName) -> AppKey:
        """The app that speaks for us in this repository."""
        return self._apps.upstream if repo == self._upstream else self._apps.downstream

    async def locate(self, at: Address) -> Located:
        app = self.app_of(at.repo)
        # Any token of that repository says where it is; the cheapest is one that is there.
        for permissions in (calls.METADATA, calls.DISPATCH, calls.CHECKS, calls.CONTENTS, calls.PULL_FILES):
            token = self.tokens.peek(app, at, permissions)
            if token is not None:
                return token.located
        return (await self.tokens.get(app, at, calls.METADATA)).located

    async def dispatch(self, to: Address, event_type: str, client_payload: bytes) -> Located:
        _, located = await self._ask(
            to,
            calls.DISPATCH,
            partial(calls.dispatch, event_type=event_type, client_payload=client_payload),
            repeatable=False,
        )
        return located

    async def find_run(self, of: Address, delivery_id: str, since: datetime) -> bool | None:
        for page in range(1, _MOST_RUN_PAGES + 1):
            try:
                answer, _ = await self._ask(of, calls.RUNS, partial(calls.dispatched_runs, page=page))
            except (Forbidden, Invalid):
                # Reading Actions is optional for the app on backends, and Actions may be off.
                return None
            listed = _read(answer, answers.runs, "workflow runs")
            if any(delivery_id in run.title for run in listed):
                return True
            if len(listed) < calls.PER_PAGE or listed[-1].created_at < since:
                break
        return False

    async def create_check_run(self, on: Address, check: CheckRunWrite) -> int:
        answer, _ = await self._ask(on, calls.CHECKS, partial(calls.create_check_run, check=check), repeatable=False)
        # The check run exists by now, whatever the answer says; so an unreadable one is ambiguous.
        return _read(
            answer,
            lambda body: answers.an_id(answers.a_dict(body, "the answer").get("id"), "id"),
            "the new check run",
            ambiguous=True,
        )

    async def update_check_run(self, on: Address, check_run_id: int, check: CheckRunWrite) -> None:
        await self._ask(
            on,
            calls.CHECKS,
            partial(calls.update_check_run, check_run_id=check_run_id, check=check),
            repeatable=False,
            missing="the check run",
        )

    async def find_check_run(self, on: Address, head_sha: str, name: str, external_id: str) -> int | None:
        app_id = self.app_of(on.repo).app_id
        found: list[int] = []
        for page in range(1, _MOST_CHECK_PAGES + 1):
            answer, _ = await self._ask(
                on,
                calls.CHECKS,
                partial(calls.check_runs_of, head_sha=head_sha, name=name, app_id=app_id, page=page),
                missing="the commit",
            )
            listed = _read(answer, answers.check_runs, "check runs")
            found += [run.check_run_id for run in listed if run.name == name and run.external_id == external_id]
            if len(listed) < calls.PER_PAGE:
                break
        return max(found, default=None)

    async def changed_paths(self, of: Address, number: int) -> ChangedPaths:
        paths: dict[str, None] = {}
        files = 0
        for page in range(1, answers.MOST_PULL_FILES // calls.PER_PAGE + 1):
            answer, _ = await self._ask(
                of,
                calls.PULL_FILES,
                partial(calls.pull_files, number=number, page=page),
                missing="the pull request",
            )
            listed = _read(answer, lambda body: answers.a_list(body, "the answer"), "changed files")
            paths |= dict.fromkeys(_read(answer, answers.file_names, "changed files"))
            files += len(listed)
            if len(listed) < calls.PER_PAGE:
                break
        return ChangedPaths(tuple(paths), complete=files < answers.MOST_PULL_FILES)

    async def compare_paths(self, of: Address, base: str, head: str) -> ChangedPaths:
        if _NO_COMMIT in (base, head):
            # A new branch has nothing before it, so all we could say is "there may be more".
            return ChangedPaths((), complete=False)
        answer, _ = await self._ask(
            of, calls.CONTENTS, partial(calls.compare, base=base, head=head), missing="one of the commits"
        )
        return _read(answer, answers.compared, "the comparison")

    async def read_file(self, of: Address, path: str, ref: str | None, etag: str | None) -> FileVersion | None:
        answer, _ = await self._ask(
            of,
            calls.CONTENTS,
            partial(calls.read_file, path=path, ref=ref, etag=etag),
            good=(304,),
            missing=f"the file {path}",
        )
        if answer.status == 304:
            return None
        if not answer.whole:
            raise Invalid(f"{of.repo}:{path} is too large to be read.", reason="file_too_large")
        return FileVersion(_file_bytes(answer, f"{of.repo}:{path}"), answer.headers.get("etag"))

    async def contains_commit(self, of: Address, sha: str, branches: Sequence[str] = ()) -> bool:
        if not _SHA.fullmatch(sha):
            return False
        default = await self._default_branch(of)
        for branch in dict.fromkeys((default, *branches)):
            try:
                answer, _ = await self._ask(
                    of,
                    calls.CONTENTS,
                    partial(calls.compare, base=branch, head=sha, per_page=1),
                    missing="the branch or the commit",
                )
            except Invalid as error:
                if error.reason != "not_found":
                    raise
                continue
            if _read(answer, answers.is_contained, "the comparison"):
                return True
        return False

    async def aclose(self) -> None:
        await self.tokens.aclose()
        await self._wire.aclose()

    async def _default_branch(self, of: Address) -> str:
        token = await self.tokens.get(self.app_of(of.repo), of, calls.CONTENTS)
        if token.located.default_branch is not None:
            return token.located.default_branch
        answer, _ = await self._ask(of, calls.CONTENTS, lambda found: calls.repository(found.full_name))
        return _read(
            answer,
            lambda body: answers.a_text(answers.a_dict(body, "the answer").get("default_branch"), "default_branch"),
            "the repository",
        )

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
        """Send the call that ``make`` builds for where the repository lives now; raise for what is not 2xx or good.

        A refused token is replaced once, also for a write: 401 comes before any effect. Where the token's mint has
        just shown that the app is installed, 404 means that something in the repository is ``missing``.
        """
        app = self.app_of(at.repo)
        token = await self.tokens.get(app, at, permissions)
        answer = await self._send(make, token, repeatable)
        if answer.status == 401:
            self.tokens.drop(app, at, permissions, token)
            token = await self.tokens.get(app, at, permissions)
            answer = await self._send(make, token, repeatable)
        if answer.status < 300 or answer.status in good:
            return answer, token.located
        if answer.status == 401:
            self.tokens.drop(app, at, permissions, token)
        error = refused(answer, self._now, "GET" if repeatable else "POST", token.located.installation_id)
        if isinstance(error, NotInstalled):
            if missing is None:
                self.tokens.forget(app, at, token)
                if at.repository_id is not None:
                    # The name may have been taken by another owner since the mint; a new mint tells that apart.
                    await self.tokens.get(app, at, permissions)
            else:
                error = _missing(missing, at, error)
        raise error

    async def _send(self, make: Callable[[Located], Call], token: Token, repeatable: bool) -> Answer:
        located = token.located
        send = self._wire.send_repeatable if repeatable else self._wire.send
        try:
            return await send(
                make(located),
                token.authority,
                installation_id=located.installation_id,
                repository_id=located.repository_id,
            )
        except GitHubError as error:
            error.installation_id = located.installation_id
            raise


def _read(answer: Answer, as_value: Callable[[Any], T], what: str, *, ambiguous: bool = False) -> T:
    try:
        return as_value(answer.json())
    except ValueError as error:
        raise unreadable(error, what, ambiguous=ambiguous) from None


def _missing(what: str, at: Address, error: NotInstalled) -> Invalid:
    return Invalid(f"GitHub finds {what} nowhere in {at.repo} (404).", reason="not_found", status=error.status)


def _file_bytes(answer: Answer, what: str) -> bytes:
    """The file itself. We ask for raw bytes; a server that wraps them in JSON all the same is understood too.

    Told by its shape and not by its content type, since a proxy may label raw bytes as JSON.
    """
    try:
        body = answer.json()
    except ValueError:
        return answer.body
    if isinstance(body, list) and body and all(isinstance(each, dict) and "type" in each for each in body):
        raise Invalid(f"{what} is a folder and no file.", reason="not_a_file")
    if not isinstance(body, dict) or not {"type", "encoding", "content"} <= body.keys():
        return answer.body
    if body["type"] != "file" or body["encoding"] != "base64":
        raise Invalid(f"{what} is a {body['type']!r:.20} and no file that can be read.", reason="not_a_file")
    try:
        return base64.b64decode("".join(answers.a_text(body["content"], "content").split()), validate=True)
    except (ValueError, binascii.Error) as error:
        raise unreadable(ValueError(str(error)), what) from None
