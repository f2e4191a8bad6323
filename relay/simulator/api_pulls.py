"""Pull requests, their files, labels and comments.

https://docs.github.com/en/rest/pulls and https://docs.github.com/en/rest/issues
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from relay.simulator import acts, payloads
from relay.simulator.api_repos import ancestors, changed_files, commit_json
from relay.simulator.exchange import Answer, Call, Refused, Route, invalid, paged
from relay.simulator.model import Account, Comment, Json, Pull

if TYPE_CHECKING:
    from relay.simulator.world import World

#: "Responses include a maximum of 3000 files." https://docs.github.com/en/rest/pulls/pulls#list-pull-requests-files
FILES_AT_MOST = 3000
#: A body holds at most 65,536 characters.
#: https://docs.github.com/en/rest/issues/comments#create-an-issue-comment
BODY_CHARACTERS = 65_536


def _number(call: Call) -> Pull:
    text = call.params["number"]
    found = call.repo.pulls.get(int(text)) if text.isdigit() and len(text) < 10 else None
    if found is None:
        raise Refused(404, "Not Found")
    return found


def _get(world: World, call: Call) -> Answer:
    return Answer(200, payloads.pull(world, call.repo, _number(call)))


def _list(world: World, call: Call) -> Answer:
    query, repository = call.query, call.repo
    state = query.get("state", "open")
    chosen = [pull for pull in repository.pulls.values() if state in {"all", pull.state}]
    if "base" in query:
        chosen = [pull for pull in chosen if pull.base_ref == query["base"]]
    if "head" in query:
        owner, _, ref = query["head"].partition(":")
        chosen = [
            pull for pull in chosen if pull.head_ref == ref and pull.head_repo.owner.login.lower() == owner.lower()
        ]
    # Newest first by default; the other orders are oldest first unless the query says so.
    updated = query.get("sort") == "updated"
    newest_first = query.get("direction", "asc" if updated else "desc") == "desc"
    chosen.sort(key=lambda pull: (pull.updated_at if updated else pull.created_at, pull.number), reverse=newest_first)
    return paged(call, chosen, url=world.url, shown=lambda pull: _listed(payloads.pull(world, repository, pull)))


#: What GitHub says of one pull request and not of each in a list.
#: https://docs.github.com/en/rest/pulls/pulls#list-pull-requests
_OF_ONE = frozenset(
    {
        "additions",
        "changed_files",
        "comments",
        "commits",
        "deletions",
        "maintainer_can_modify",
        "mergeable",
        "mergeable_state",
        "merged",
        "merged_by",
        "rebaseable",
        "review_comments",
    }
)


def _listed(whole: Json) -> Json:
    return {name: value for name, value in whole.items() if name not in _OF_ONE}


def _files(world: World, call: Call) -> Answer:
    repository, pull = call.repo, _number(call)
    commits = repository.network.commits
    of_base = ancestors(repository.network, pull.base_sha)
    common = next((sha for sha in ancestors(repository.network, pull.head_sha) if sha in of_base), None)
    base = commits[common] if common is not None else None
    return paged(call, changed_files(base, commits[pull.head_sha])[:FILES_AT_MOST], url=world.url)


def _pulls_of_commit(world: World, call: Call) -> Answer:
    """https://docs.github.com/en/rest/commits/commits#list-pull-requests-associated-with-a-commit"""
    sha = world.resolve(call.repo, call.params["ref"])
    found = [pull for pull in call.repo.pulls.values() if sha in {pull.head_sha, pull.merge_commit_sha}]
    return paged(call, [payloads.pull(world, call.repo, pull) for pull in found], url=world.url)


def _pull_commits(world: World, call: Call) -> Answer:
    repository, pull = call.repo, _number(call)
    of_base = ancestors(repository.network, pull.base_sha)
    shas = [sha for sha in ancestors(repository.network, pull.head_sha) if sha not in of_base]
    items = [commit_json(world, repository, repository.network.commits[sha]) for sha in reversed(shas)]
    return paged(call, items, url=world.url)


def _bot(world: World, call: Call) -> Account:
    if call.token is None:
        raise Refused(401, "Requires authentication")
    return world.account(f"{call.token.installation.app.slug}[bot]", "Bot")


def _body_text(call: Call) -> str:
    text = call.mapping().get("body")
    if not isinstance(text, str) or not text.strip():
        raise invalid("IssueComment", "body", "missing_field")
    if len(text) > BODY_CHARACTERS:
        raise invalid("IssueComment", "body", "custom", "Body is too long (maximum is 65536 characters)")
    if call.repo.archived:
        raise Refused(403, "Repository was archived so is read-only.")
    return text


def _comments(world: World, call: Call) -> Answer:
    """Oldest first, there is no other order. https://docs.github.com/en/rest/issues/comments#list-issue-comments"""
    pull, since = _number(call), call.query.get("since", "")
    try:
        least = payloads.stamp(datetime.fromisoformat(since)) or "" if since else ""
    except ValueError as error:
        raise Refused(422, f"Invalid since: {since!r}") from error
    items = [
        payloads.comment(world, call.repo, item)
        for item in call.repo.comments.values()
        if item.number == pull.number and (payloads.stamp(item.updated_at) or "") >= least
    ]
    return paged(call, items, url=world.url)


def _create_comment(world: World, call: Call) -> Answer:
    """https://docs.github.com/en/rest/issues/comments#create-an-issue-comment"""
    pull, text = _number(call), _body_text(call)
    app_id = call.token.installation.app.id if call.token else None
    item, _ = acts.add_comment(world, call.repo, pull, _bot(world, call), text, app_id)
    return Answer(201, payloads.comment(world, call.repo, item), effect=True)


def _comment(call: Call) -> Comment:
    text = call.params["comment"]
    found = call.repo.comments.get(int(text)) if text.isdigit() and len(text) < 19 else None
    if found is None:
        raise Refused(404, "Not Found")
    return found


def _get_comment(world: World, call: Call) -> Answer:
    return Answer(200, payloads.comment(world, call.repo, _comment(call)))


def _update_comment(world: World, call: Call) -> Answer:
    item, text = _comment(call), _body_text(call)
    item.body, item.updated_at = text, world.now()
    return Answer(200, payloads.comment(world, call.repo, item), effect=True)


def _delete_comment(world: World, call: Call) -> Answer:
    del call.repo.comments[_comment(call).id]
    return Answer(204, effect=True)


def _labels(world: World, call: Call) -> Answer:
    return paged(call, [payloads.label(world, call.repo, item) for item in _number(call).labels], url=world.url)


def _add_labels(world: World, call: Call) -> Answer:
    """https://docs.github.com/en/rest/issues/labels#add-labels-to-an-issue"""
    pull, names = _number(call), call.mapping().get("labels")
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise invalid("Label", "labels", "invalid")
    for name in names:
        acts.label_pull(world, call.repo, pull, name, _bot(world, call), on=True)
    return Answer(200, [payloads.label(world, call.repo, item) for item in pull.labels], effect=True)


def _remove_label(world: World, call: Call) -> Answer:
    pull, name = _number(call), call.params["name"]
    if all(item.name.lower() != name.lower() for item in pull.labels):
        raise Refused(404, "Label does not exist")
    acts.label_pull(world, call.repo, pull, name, _bot(world, call), on=False)
    return Answer(200, [payloads.label(world, call.repo, item) for item in pull.labels], effect=True)


# Comments and labels of a pull request take either permission, as each endpoint's page says.
# https://docs.github.com/en/rest/authentication/permissions-required-for-github-apps
_COMMENTS = "/repo/issues/{number}/comments"
_COMMENT = "/repo/issues/comments/{comment}"
_LABELS = "/repo/issues/{number}/labels"
ROUTES = [
    Route("GET", "/repo/pulls", _list, needs=("pull_requests", "read")),
    Route("GET", "/repo/pulls/{number}", _get, needs=("pull_requests", "read")),
    Route("GET", "/repo/pulls/{number}/files", _files, needs=("pull_requests", "read")),
    Route("GET", "/repo/pulls/{number}/commits", _pull_commits, needs=("pull_requests", "read")),
    Route("GET", "/repo/commits/{ref}/pulls", _pulls_of_commit, needs=("pull_requests", "read")),
    Route("GET", _COMMENTS, _comments, needs=("issues", "read"), or_needs=("pull_requests", "read")),
    Route(
        "POST",
        _COMMENTS,
        _create_comment,
        needs=("issues", "write"),
        or_needs=("pull_requests", "write"),
        creates_content=True,
    ),
    Route("GET", _COMMENT, _get_comment, needs=("issues", "read"), or_needs=("pull_requests", "read")),
    Route("PATCH", _COMMENT, _update_comment, needs=("issues", "write"), or_needs=("pull_requests", "write")),
    Route("DELETE", _COMMENT, _delete_comment, needs=("issues", "write"), or_needs=("pull_requests", "write")),
    Route("GET", _LABELS, _labels, needs=("issues", "read"), or_needs=("pull_requests", "read")),
    Route("POST", _LABELS, _add_labels, needs=("issues", "write"), or_needs=("pull_requests", "write")),
    Route(
        "DELETE",
        "/repo/issues/{number}/labels/{name...}",
        _remove_label,
        needs=("issues", "write"),
        or_needs=("pull_requests", "write"),
    ),
]
