"""GitHub's listings as values: deliveries, pull requests, branches. What does not fit raises ValueError."""

from __future__ import annotations

import re
from typing import Any

from relay.github import answers
from relay.github.answers import a_dict, a_list, a_sha, a_text, an_id, instant, shown
from relay.github.listed import BranchHead, HookDeliveries, HookDelivery, PullListed, RefHead

# The next page's cursor stands in the Link header alone and is opaque; anything but these characters is not passed on.
# https://docs.github.com/rest/apps/webhooks#list-deliveries-for-an-app-webhook
_NEXT = re.compile(r"[?&]cursor=([\w.~%+=-]{1,256})(?:&[^>]*)?>;\s*rel=\"next\"", re.ASCII)
_GUID = re.compile(r"[!-~]{1,128}", re.ASCII)


def deliveries(answer: Any, link: str) -> HookDeliveries:
    """One page of an app's deliveries."""
    items = tuple(_delivery(a_dict(each, "a delivery")) for each in a_list(answer, "the answer"))
    found = _NEXT.search(link)
    return HookDeliveries(items, found[1] if found else None)


def _delivery(body: dict[str, Any]) -> HookDelivery:
    guid = a_text(body.get("guid"), "guid")
    if not _GUID.fullmatch(guid):
        raise ValueError("guid has other characters than an id")
    repository = body.get("repository_id")
    return HookDelivery(
        delivery_id=an_id(body.get("id"), "id"),
        guid=guid,
        event=a_text(body.get("event"), "event"),
        action=shown(body.get("action")) or None,
        repository_id=None if repository is None else an_id(repository, "repository_id"),
        delivered_at=instant(body.get("delivered_at"), "delivered_at"),
        redelivery=body.get("redelivery") is True,
        # "A failed delivery has a status value that is not OK."
        # https://docs.github.com/webhooks/using-webhooks/handling-failed-webhook-deliveries
        ok=body.get("status") == "OK",
    )


def pull(answer: Any) -> PullListed:
    """One pull request, from a listing or by itself."""
    body = a_dict(answer, "the answer")
    head = a_dict(body.get("head"), "head")
    repo = head.get("repo")  # Null once the fork is gone.
    of = repo if isinstance(repo, dict) else {}
    merge_sha = body.get("merge_commit_sha")
    return PullListed(
        shown=answers.pull(answer),
        head_ref=a_text(head.get("ref"), "head.ref"),
        head_repo=shown(of.get("full_name")) or None,
        head_clone_url=shown(of.get("clone_url")) or None,
        merge_sha=None if merge_sha is None else a_sha(merge_sha, "merge_commit_sha"),
        # A listing leaves "merged" out and has the time alone.
        merged=body.get("merged") is True or body.get("merged_at") is not None,
    )


def pulls(answer: Any) -> tuple[PullListed, ...]:
    """One page of pull requests."""
    return tuple(pull(each) for each in a_list(answer, "the answer"))


def branch(answer: Any, etag: str | None) -> BranchHead:
    """One branch."""
    commit = a_dict(a_dict(answer, "the answer").get("commit"), "commit")
    git = commit.get("commit")
    told = git if isinstance(git, dict) else {}
    committer = told.get("committer")
    author = commit.get("author")  # Null where no account has the commit's address.
    return BranchHead(
        head_sha=a_sha(commit.get("sha"), "commit.sha"),
        message=shown(told.get("message")),
        author=shown(author.get("login")) if isinstance(author, dict) else "",
        committed_at=instant(committer.get("date"), "date") if isinstance(committer, dict) else None,
        etag=etag,
    )


def refs(answer: Any) -> tuple[RefHead, ...]:
    """The refs of one page."""
    listed = [a_dict(each, "a ref") for each in a_list(answer, "the answer")]
    return tuple(
        RefHead(a_text(each.get("ref"), "ref"), a_sha(a_dict(each.get("object"), "object").get("sha"), "object.sha"))
        for each in listed
    )
