"""The requests by which the relay finds out what it has not heard of, as pure functions from values to a ``Call``."""

from __future__ import annotations

from urllib.parse import quote, unquote, urlencode

from relay.github.calls import PER_PAGE, unless
from relay.github.port import Located
from relay.github.wire import ACCEPT_JSON, LARGE_ANSWER, Call


def deliveries(cursor: str | None, count: int) -> Call:
    """One page of the app's deliveries. Not filtered by GitHub's ``status``: its "failure" is a code from 400 to 599,

    and a receiver that was down or slow has none of those.
    https://docs.github.com/rest/apps/webhooks#list-deliveries-for-an-app-webhook
    """
    query = {"per_page": str(count)}
    if cursor is not None:
        query["cursor"] = unquote(cursor)  # As it stood in a URL.
    return Call("GET", "/app/hook/deliveries", f"/app/hook/deliveries?{urlencode(query)}", largest_answer=LARGE_ANSWER)


def redeliver(delivery_id: int) -> Call:
    """Send a delivery again, https://docs.github.com/rest/apps/webhooks#redeliver-a-delivery-for-an-app-webhook."""
    return Call(
        "POST",
        "/app/hook/deliveries/{delivery_id}/attempts",
        f"/app/hook/deliveries/{int(delivery_id)}/attempts",
    )


def pulls(of: Located, state: str, page: int, etag: str | None) -> Call:
    """One page of pull requests, the last updated first. https://docs.github.com/rest/pulls/pulls#list-pull-requests"""
    query = {"state": state, "sort": "updated", "direction": "desc", "per_page": PER_PAGE, "page": page}
    return Call(
        "GET",
        "/repos/{owner}/{repo}/pulls",
        f"/repos/{of.full_name}/pulls?{urlencode(query)}",
        headers=ACCEPT_JSON + unless(etag),
        largest_answer=LARGE_ANSWER,
    )


def branch(of: Located, name: str, etag: str | None) -> Call:
    """A branch with its newest commit. https://docs.github.com/rest/branches/branches#get-a-branch"""
    return Call(
        "GET",
        "/repos/{owner}/{repo}/branches/{branch}",
        f"/repos/{of.full_name}/branches/{quote(name, safe='/')}",
        headers=ACCEPT_JSON + unless(etag),
        largest_answer=LARGE_ANSWER,
    )


def refs(of: Located, prefix: str, page: int) -> Call:
    """The refs that begin so. https://docs.github.com/rest/git/refs#list-matching-references"""
    return Call(
        "GET",
        "/repos/{owner}/{repo}/git/matching-refs/{ref}",
        f"/repos/{of.full_name}/git/matching-refs/{quote(prefix, safe='/')}?per_page={PER_PAGE}&page={page}",
        largest_answer=LARGE_ANSWER,
    )
