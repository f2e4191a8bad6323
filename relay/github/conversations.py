"""Pull requests and the people around them: what state they are in, who may do what, and what we say in comments.

https://docs.github.com/rest/pulls, https://docs.github.com/rest/issues/comments
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import partial

from relay.github import answers, calls
from relay.github.answers import FoundComment
from relay.github.asking import SHA, Asking, read
from relay.github.errors import Invalid
from relay.github.keys import AppKey
from relay.github.observed import PullObserved, Role
from relay.github.port import Address

# Letters, digits and hyphens; an enterprise's managed users have an underscore before their short code,
# https://docs.github.com/enterprise-cloud@latest/admin/managing-iam/iam-configuration-reference/username-considerations-for-external-authentication
_LOGIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,38})")
_MOST_COMMENT_PAGES = 10
_MOST_PULL_PAGES = 3


class Conversations(Asking):
    """The pull requests, people and comments part of the port."""

    async def role_of(self, at: Address, login: str) -> Role:
        """See ``relay.github.port.GitHub.role_of``."""
        if not _LOGIN.fullmatch(login):
            # Bots end in "[bot]", which no login of a person can; what is no login at all is nobody.
            return Role.NONE
        try:
            answer, _ = await self._ask(
                at, calls.METADATA, partial(calls.role_of, login=login), missing=f"the user {login}"
            )
        except Invalid as error:
            if error.reason == "not_found":
                return Role.NONE
            raise
        return read(answer, answers.role, "the person's role")

    async def create_comment(self, on: Address, number: int, body: str) -> int:
        """See ``relay.github.port.GitHub.create_comment``."""
        answer, _ = await self._ask(
            on,
            calls.COMMENTS,
            partial(calls.create_comment, number=number, body=body),
            repeatable=False,
            missing=f"the pull request {number}",
        )
        # The comment is there by now, whatever the answer says; so an unreadable one is ambiguous.
        return read(
            answer,
            lambda told: answers.an_id(answers.a_dict(told, "the answer").get("id"), "id"),
            "the new comment",
            ambiguous=True,
        )

    async def update_comment(self, on: Address, comment_id: int, body: str) -> None:
        """See ``relay.github.port.GitHub.update_comment``."""
        await self._ask(
            on,
            calls.COMMENTS,
            partial(calls.update_comment, comment_id=comment_id, body=body),
            repeatable=False,
            missing="the comment",
        )

    async def find_comment(self, on: Address, number: int, marker: str, since: datetime | None = None) -> int | None:
        """See ``relay.github.port.GitHub.find_comment``."""
        if not marker:
            raise Invalid("a marker has at least one character: every text contains an empty one.", reason="marker")
        listed, last = await self._comments(on, number, since, 1)
        # GitHub lists the oldest first and its first page says how many pages there are; the newest are wanted.
        for page in range(last, max(1, last - _MOST_COMMENT_PAGES), -1):
            newer, _ = await self._comments(on, number, since, page)
            found = await self._ours(on, newer, marker)
            if found is not None:
                return found
        return await self._ours(on, listed, marker)

    async def pull(self, at: Address, number: int) -> PullObserved:
        """See ``relay.github.port.GitHub.pull``."""
        answer, _ = await self._ask(
            at, calls.PULLS, partial(calls.pull, number=number), missing=f"the pull request {number}"
        )
        return read(answer, answers.pull, "the pull request")

    async def pulls_of_commit(self, at: Address, sha: str) -> tuple[int, ...]:
        """See ``relay.github.port.GitHub.pulls_of_commit``."""
        if not SHA.fullmatch(sha):
            return ()
        found: dict[int, None] = {}
        for page in range(1, _MOST_PULL_PAGES + 1):
            try:
                answer, _ = await self._ask(
                    at, calls.PULLS, partial(calls.pulls_of_commit, sha=sha, page=page), missing="the commit"
                )
            except Invalid as error:
                # What has the form of a commit's name and is refused as one (422) is a commit that is not there.
                if error.status in (404, 422):
                    return ()
                raise
            numbers, listed = read(answer, lambda body: answers.open_pulls(body, sha), "the commit's pull requests")
            found |= dict.fromkeys(numbers)
            if listed < calls.PER_PAGE:
                break
        return tuple(found)

    async def _comments(
        self, on: Address, number: int, since: datetime | None, page: int
    ) -> tuple[tuple[FoundComment, ...], int]:
        answer, _ = await self._ask(
            on,
            calls.COMMENTS,
            partial(calls.comments_of, number=number, since=since, page=page),
            missing=f"the pull request {number}",
        )
        return read(answer, answers.comments, "comments"), answers.last_page(answer.headers.get("link", ""))

    async def _ours(self, on: Address, listed: tuple[FoundComment, ...], marker: str) -> int | None:
        """The newest of these comments that carries the marker and is ours: anyone may copy a marker."""
        app = self.app_of(on.repo)
        for comment in sorted(listed, key=lambda each: each.comment_id, reverse=True):
            if marker in comment.body and await self._is_ours(app, comment):
                return comment.comment_id
        return None

    async def _is_ours(self, app: AppKey, comment: FoundComment) -> bool:
        if comment.app is not None:
            return app.app_id in comment.app
        # GitHub leaves the app out of some answers. An app's own account is its slug with "[bot]", which nobody else
        # can have; the slug is asked for since it can change.
        if not comment.by_bot:
            return False
        answer = await self.tokens.as_app(app, calls.app())
        slug = read(
            answer, lambda body: answers.a_text(answers.a_dict(body, "the answer").get("slug"), "slug"), "the app"
        )
        return comment.login == f"{slug}[bot]"
