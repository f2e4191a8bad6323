"""The relay's GitHub: the port over one HTTP connection pool.

Nothing here waits for a limit or repeats a write: an error says what is owed, and the outbox decides when.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from functools import partial

from relay.github import answers, calls
from relay.github.asking import SHA, read
from relay.github.conversations import Conversations
from relay.github.errors import GitHubError, Invalid, RetryLater
from relay.github.listings import Listings
from relay.github.port import Address, ChangedPaths, CheckRunFound, CheckRunWrite, FileVersion, Located
from relay.github.runs import Runs
from relay.github.tokens import unreadable
from relay.github.wire import Answer

# GitHub keeps 1,000 check runs of one name, https://docs.github.com/rest/guides/using-the-rest-api-to-interact-with-checks
_MOST_CHECK_PAGES = 10
_NO_COMMIT = "0" * 40
_UNKNOWN_COMMIT = "no commit found for sha"


class GitHubClient(Runs, Conversations, Listings):
    """Implements ``relay.github.port.GitHub`` and ``relay.github.listed.GitHubLists``.

    Takes over ``http`` and closes it.
    """

    async def locate(self, at: Address, *, fresh: bool = False) -> Located:
        app = self.app_of(at.repo)
        # Any token of that repository says where it is; the cheapest is one that is there.
        for permissions in (calls.METADATA, calls.DISPATCH, calls.CHECKS, calls.CONTENTS, calls.PULLS):
            token = None if fresh else self.tokens.peek(app, at, permissions)
            if token is not None:
                return token.located
        with self._saying_where(at.repo):
            return (await self.tokens.get(app, at, calls.METADATA, fresh=fresh)).located

    async def dispatch(self, to: Address, event_type: str, client_payload: bytes) -> Located:
        _, located = await self._ask(
            to,
            calls.DISPATCH,
            partial(calls.dispatch, event_type=event_type, client_payload=client_payload),
            repeatable=False,
        )
        return located

    async def create_check_run(self, on: Address, check: CheckRunWrite) -> int:
        try:
            answer, _ = await self._ask(
                on, calls.CHECKS, partial(calls.create_check_run, check=check), repeatable=False
            )
        except Invalid as error:
            raise _later(error) from None
        # The check run exists by now, whatever the answer says; so an unreadable one is ambiguous.
        return read(
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

    async def find_check_runs(
        self, on: Address, head_sha: str, name: str, external_id: str
    ) -> tuple[CheckRunFound, ...]:
        app_id = self.app_of(on.repo).app_id
        found: list[CheckRunFound] = []
        for page in range(1, _MOST_CHECK_PAGES + 1):
            asking = partial(calls.check_runs_of, head_sha=head_sha, name=name, app_id=app_id, page=page)
            try:
                answer, _ = await self._ask(on, calls.CHECKS, asking, missing="the commit")
            except Invalid as error:
                raise _later(error, statuses=(404, 422)) from None
            listed = read(answer, answers.check_runs, "check runs")
            found += [one.run for one in listed if one.name == name and one.external_id == external_id]
            if len(listed) < calls.PER_PAGE:
                break
        return tuple(sorted(found, key=lambda run: run.id, reverse=True))

    async def changed_paths(self, of: Address, number: int) -> ChangedPaths:
        paths: dict[str, None] = {}
        files = 0
        for page in range(1, answers.MOST_PULL_FILES // calls.PER_PAGE + 1):
            answer, _ = await self._ask(
                of,
                calls.PULLS,
                partial(calls.pull_files, number=number, page=page),
                missing="the pull request",
            )
            listed = read(answer, lambda body: answers.a_list(body, "the answer"), "changed files")
            paths |= dict.fromkeys(read(answer, answers.file_names, "changed files"))
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
        return read(answer, answers.compared, "the comparison")

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
        if not SHA.fullmatch(sha):
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
            if read(answer, answers.is_contained, "the comparison"):
                return True
        return False

    async def tree_of(self, at: Address, sha: str) -> str:
        if not SHA.fullmatch(sha):
            raise Invalid(f"a commit is named by 40 hexadecimal digits, got {sha[:60]!r}.", reason="sha")
        answer, _ = await self._ask(at, calls.CONTENTS, partial(calls.git_commit, sha=sha), missing="the commit")
        return read(answer, answers.tree, "the commit")

    async def _default_branch(self, of: Address) -> str:
        token = await self.tokens.get(self.app_of(of.repo), of, calls.CONTENTS)
        if token.located.default_branch is not None:
            return token.located.default_branch
        answer, _ = await self._ask(of, calls.CONTENTS, lambda found: calls.repository(found.full_name))
        return read(
            answer,
            lambda body: answers.a_text(answers.a_dict(body, "the answer").get("default_branch"), "default_branch"),
            "the repository",
        )


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


def _later(error: Invalid, statuses: tuple[int, ...] = (422,)) -> GitHubError:
    """The error to raise where a commit may be missing: one that GitHub does not know yet is asked for again.

    A webhook can be quicker than GitHub's own copies of a commit that was pushed just now. One that does not exist at
    all is given up with the retry schedule.
    """
    unknown = error.status == 404 or _UNKNOWN_COMMIT in error.detail.lower()
    if error.status in statuses and unknown:
        return RetryLater(error.detail, ambiguous=False, reason="commit_unknown", status=error.status)
    return error
