"""What GitHub lists: the deliveries of our webhook, upstream's pull requests and branches."""

from __future__ import annotations

from functools import partial

from relay.github import answers_listed, calls, calls_listed
from relay.github.asking import Asking, read
from relay.github.errors import Invalid, NotInstalled
from relay.github.keys import AppKey
from relay.github.listed import BranchHead, HookDeliveries, PullListed, PullPage, RefHead, Side
from relay.github.port import Address

_MOST_REF_PAGES = 10


class Listings(Asking):
    """Implements ``relay.github.listed.GitHubLists``."""

    def app_id_of(self, side: Side) -> str:
        """See ``relay.github.listed.GitHubLists.app_id_of``."""
        return self._app_on(side).app_id

    async def deliveries(self, side: Side, cursor: str | None, count: int = calls.PER_PAGE) -> HookDeliveries:
        """See ``relay.github.listed.GitHubLists.deliveries``."""
        answer = await self.tokens.as_app(self._app_on(side), calls_listed.deliveries(cursor, count))
        link = answer.headers.get("link", "")
        return read(answer, lambda body: answers_listed.deliveries(body, link), "the app's deliveries")

    async def redeliver(self, side: Side, delivery_id: int) -> bool:
        """See ``relay.github.listed.GitHubLists.redeliver``."""
        try:
            await self.tokens.as_app(self._app_on(side), calls_listed.redeliver(delivery_id), repeatable=False)
        except (NotInstalled, Invalid) as error:
            # Past three days, or so that GitHub will not: either way it never comes again.
            if error.status in (404, 410, 422):
                return False
            raise
        return True

    async def pulls(self, at: Address, state: str, page: int, etag: str | None = None) -> PullPage | None:
        """See ``relay.github.listed.GitHubLists.pulls``."""
        answer, _ = await self._ask(
            at, calls.PULLS, partial(calls_listed.pulls, state=state, page=page, etag=etag), good=(304,)
        )
        if answer.status == 304:
            return None
        found = read(answer, answers_listed.pulls, "pull requests")
        return PullPage(found, answer.headers.get("etag"), more=len(found) >= calls.PER_PAGE)

    async def pull_listed(self, at: Address, number: int) -> PullListed:
        """See ``relay.github.listed.GitHubLists.pull_listed``."""
        answer, _ = await self._ask(
            at, calls.PULLS, partial(calls.pull, number=number), missing=f"the pull request {number}"
        )
        return read(answer, answers_listed.pull, "the pull request")

    async def branch(self, at: Address, name: str, etag: str | None = None) -> BranchHead | None:
        """See ``relay.github.listed.GitHubLists.branch``."""
        answer, _ = await self._ask(
            at,
            calls.CONTENTS,
            partial(calls_listed.branch, name=name, etag=etag),
            good=(304,),
            missing=f"the branch {name}",
        )
        if answer.status == 304:
            return None
        return read(answer, lambda body: answers_listed.branch(body, answer.headers.get("etag")), "the branch")

    async def refs(self, at: Address, prefix: str) -> tuple[RefHead, ...]:
        """See ``relay.github.listed.GitHubLists.refs``."""
        found: dict[str, RefHead] = {}
        for page in range(1, _MOST_REF_PAGES + 1):
            answer, _ = await self._ask(at, calls.CONTENTS, partial(calls_listed.refs, prefix=prefix, page=page))
            listed = read(answer, answers_listed.refs, "refs")
            found |= {each.ref: each for each in listed}
            if len(listed) < calls.PER_PAGE:
                break
        return tuple(found.values())

    def _app_on(self, side: Side) -> AppKey:
        return self._apps.upstream if side is Side.UPSTREAM else self._apps.downstream
