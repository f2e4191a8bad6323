"""A repository, its commits, branches, files and people.

https://docs.github.com/en/rest/repos and https://docs.github.com/en/rest/commits
"""

from __future__ import annotations

import base64
import hashlib
from collections import deque
from typing import TYPE_CHECKING

from relay.simulator import payloads
from relay.simulator.exchange import Answer, Call, Refused, Route, paged
from relay.simulator.model import Commit, Json, Network, Repository

if TYPE_CHECKING:
    from relay.simulator.world import World

#: Files above 1 MB are not sent as JSON, those above 100 MB not at all.
#: https://docs.github.com/en/rest/repos/contents#get-repository-content
CONTENT_CAP = 1_000_000
#: A comparison lists at most 300 files. https://docs.github.com/en/rest/commits/commits#compare-two-commits
COMPARED_FILES = 300
#: The older ``permission`` field folds the newer roles into three.
#: https://docs.github.com/en/rest/collaborators/collaborators#get-repository-permissions-for-a-user
FOLDED = {"admin": "admin", "maintain": "write", "write": "write", "triage": "read", "read": "read", "none": "none"}
#: The built-in roles, weakest first, and the flags in which each shows beside those of the weaker ones.
#: https://docs.github.com/en/organizations/managing-user-access-to-your-organizations-repositories/managing-repository-roles/about-custom-repository-roles
ROLES = ("none", "read", "triage", "write", "maintain", "admin")
FLAGS = ("pull", "triage", "push", "maintain", "admin")


def _get(world: World, call: Call) -> Answer:
    return Answer(200, payloads.repository(world, call.repo))


def _contents(world: World, call: Call) -> Answer:
    repository, path = call.repo, call.params["path"]
    ref = call.query.get("ref") or repository.default_branch
    sha = world.lookup(repository, ref)
    if sha is None:
        raise Refused(404, f"No commit found for the ref {ref}")
    text = repository.network.commits[sha].tree.get(path)
    if text is None:
        raise Refused(404, "Not Found")
    data = text.encode()
    if "raw" in call.headers.get("accept", ""):
        return Answer(200, data)
    url = f"{world.url}/repos/{repository.full_name}/contents/{path}?ref={ref}"
    large = len(data) > CONTENT_CAP
    body: Json = {
        "type": "file",
        "encoding": "none" if large else "base64",
        "size": len(data),
        "name": path.rpartition("/")[2],
        "path": path,
        "content": "" if large else base64.encodebytes(data).decode(),
        "sha": hashlib.sha1(b"blob %d\x00" % len(data) + data, usedforsecurity=False).hexdigest(),
        "url": url,
        "html_url": f"{world.url}/{repository.full_name}/blob/{ref}/{path}",
        "git_url": f"{world.url}/repos/{repository.full_name}/git/blobs/x",
        "download_url": f"{world.url}/raw/{repository.full_name}/{ref}/{path}",
        "_links": {"self": url},
    }
    return Answer(200, body)


def commit_json(world: World, repository: Repository, commit: Commit) -> Json:
    """A commit as the API shows it, without its files."""
    url = f"{world.url}/repos/{repository.full_name}/commits/{commit.sha}"
    person = {"name": commit.author, "email": "noreply@localhost", "date": payloads.stamp(commit.at)}
    return {
        "sha": commit.sha,
        "node_id": f"C_{commit.sha}",
        "url": url,
        "html_url": f"{world.url}/{repository.full_name}/commit/{commit.sha}",
        "comments_url": f"{url}/comments",
        "commit": {
            "author": person,
            "committer": person,
            "message": commit.message,
            "tree": _tree_json(world, repository, commit),
            "url": url,
            "comment_count": 0,
        },
        "author": None,
        "committer": None,
        "parents": [{"sha": parent, "url": url, "html_url": url} for parent in commit.parents],
    }


def _tree_json(world: World, repository: Repository, commit: Commit) -> Json:
    return {"sha": commit.tree_id, "url": f"{world.url}/repos/{repository.full_name}/git/trees/{commit.tree_id}"}


def _git_commit(world: World, call: Call) -> Answer:
    """https://docs.github.com/en/rest/git/commits#get-a-commit-object; it takes a SHA and no other name."""
    repository, sha = call.repo, call.params["sha"]
    commit = repository.network.commits.get(sha)
    if commit is None:
        raise Refused(404, "Not Found")
    whole = commit_json(world, repository, commit)
    inner = whole["commit"]
    body = {
        "sha": sha,
        "node_id": whole["node_id"],
        "url": f"{world.url}/repos/{repository.full_name}/git/commits/{sha}",
        "html_url": whole["html_url"],
        "author": inner["author"],
        "committer": inner["committer"],
        "message": inner["message"],
        "tree": inner["tree"],
        "parents": whole["parents"],
        "verification": {"verified": False, "reason": "unsigned", "signature": None, "payload": None},
    }
    return Answer(200, body)


def _commit(world: World, call: Call) -> Answer:
    """https://docs.github.com/en/rest/commits/commits#get-a-commit; commits of forks answer here too."""
    repository = call.repo
    sha = world.resolve(repository, call.params["ref"])
    commit = repository.network.commits[sha]
    parent = repository.network.commits[commit.parents[0]] if commit.parents else None
    files = changed_files(parent, commit)[:COMPARED_FILES]
    return Answer(200, {**commit_json(world, repository, commit), "files": files})


def _commits(world: World, call: Call) -> Answer:
    sha: str | None = world.resolve(call.repo, call.query.get("sha") or call.repo.default_branch)
    items = []
    while sha is not None:
        commit = call.repo.network.commits[sha]
        items.append(commit_json(world, call.repo, commit))
        sha = commit.parents[0] if commit.parents else None
    return paged(call, items, url=world.url)


def _where_head(world: World, call: Call) -> Answer:
    """https://docs.github.com/en/rest/commits/commits#list-branches-for-head-commit"""
    sha = world.resolve(call.repo, call.params["ref"])
    names = [
        ref.removeprefix("refs/heads/") for ref, at in call.repo.refs.items() if at == sha and "refs/heads/" in ref
    ]
    return Answer(200, [{"name": name, "commit": {"sha": sha, "url": ""}, "protected": False} for name in names])


def _branches(world: World, call: Call) -> Answer:
    items = [
        {"name": ref.removeprefix("refs/heads/"), "commit": {"sha": sha, "url": ""}, "protected": False}
        for ref, sha in call.repo.refs.items()
        if ref.startswith("refs/heads/")
    ]
    return paged(call, items, url=world.url)


def _branch(world: World, call: Call) -> Answer:
    name = call.params["branch"]
    sha = call.repo.refs.get(f"refs/heads/{name}")
    if sha is None:
        raise Refused(404, "Branch not found")
    shown = commit_json(world, call.repo, call.repo.network.commits[sha])
    return Answer(200, {"name": name, "commit": shown, "protected": name == call.repo.default_branch})


def _matching_refs(world: World, call: Call) -> Answer:
    """https://docs.github.com/en/rest/git/refs#list-matching-references"""
    prefix = f"refs/{call.params['ref']}"
    items = [
        {"ref": ref, "node_id": "", "url": "", "object": {"type": "commit", "sha": sha, "url": ""}}
        for ref, sha in sorted(call.repo.refs.items())
        if ref.startswith(prefix)
    ]
    return paged(call, items, url=world.url)


def ancestors(network: Network, sha: str) -> dict[str, None]:
    """A commit and everything it stands on, nearest first."""
    seen: dict[str, None] = {}
    waiting = deque([sha])
    while waiting:
        at = waiting.popleft()
        if at not in seen:
            seen[at] = None
            waiting.extend(network.commits[at].parents)
    return seen


def changed_files(base: Commit | None, head: Commit) -> list[Json]:
    """The files that differ between two trees, by path."""
    old = base.tree if base is not None else {}
    if head.tree is old:
        return []
    changed = []
    for path in sorted(old.keys() | head.tree.keys()):
        before, after = old.get(path), head.tree.get(path)
        if before == after:
            continue
        status = "added" if before is None else "removed" if after is None else "modified"
        added = after.count("\n") if after else 0
        removed = before.count("\n") if before else 0
        sha = hashlib.sha1((after or before or "").encode(), usedforsecurity=False).hexdigest()
        changed.append(
            {
                "sha": sha,
                "filename": path,
                "status": status,
                "additions": added,
                "deletions": removed,
                "changes": added + removed,
            }
        )
    return changed


def _compare(world: World, call: Call) -> Answer:
    """https://docs.github.com/en/rest/commits/commits#compare-two-commits"""
    repository = call.repo
    first, dots, second = call.params["basehead"].partition("...")
    base = world.lookup(repository, _own_ref(first))
    head = world.lookup(repository, _own_ref(second))
    if not dots or base is None or head is None:
        raise Refused(404, "Not Found")
    network = repository.network
    of_base, of_head = ancestors(network, base), ancestors(network, head)
    common = next((sha for sha in of_head if sha in of_base), None)
    if common is None:
        raise Refused(404, f"No common ancestor between {first} and {second}.")
    ahead = [sha for sha in of_head if sha not in of_base]
    behind = [sha for sha in of_base if sha not in of_head]
    status = "diverged" if ahead and behind else "ahead" if ahead else "behind" if behind else "identical"
    page, per_page = call.page()
    listed = list(reversed(ahead))[(page - 1) * per_page : page * per_page]
    body = {
        "url": f"{world.url}{call.path}",
        "base_commit": commit_json(world, repository, network.commits[base]),
        "merge_base_commit": commit_json(world, repository, network.commits[common]),
        "status": status,
        "ahead_by": len(ahead),
        "behind_by": len(behind),
        "total_commits": len(ahead),
        "commits": [commit_json(world, repository, network.commits[sha]) for sha in listed],
        "files": changed_files(network.commits[common], network.commits[head])[:COMPARED_FILES],
    }
    return Answer(200, body)


def _own_ref(text: str) -> str:
    # ``owner:branch`` names a fork's branch; the simulator's forks share the network, where shas are enough.
    return text.rpartition(":")[2]


def _permission(world: World, call: Call) -> Answer:
    login = call.params["user"]
    account = world.accounts.get(login.lower())
    if account is None:
        raise Refused(404, "Not Found")
    repository = call.repo
    role = repository.roles.get(login.lower(), "admin" if account is repository.owner else "")
    if not role:
        role = "none" if repository.private else "read"
    # A custom role has a name of its own and stands on a built-in one, which only the flags of the user tell.
    name = repository.custom_roles.get(login.lower(), role)
    flags = {flag: ROLES.index(role) >= place for place, flag in enumerate(FLAGS, start=1)}
    user = {**payloads.user(world, account), "permissions": flags, "role_name": name}
    return Answer(200, {"permission": FOLDED[role], "role_name": name, "user": user})


def _rate_limit(world: World, call: Call) -> Answer:
    installation = call.token.installation if call.token else None
    key = f"installation {installation.id}" if installation else "anonymous"
    limit, used = world.limits.budget(key, installation), world.limits.used(key)
    core = {"limit": limit, "used": used, "remaining": max(0, limit - used), "reset": int(world.seconds()) + 3600}
    return Answer(200, {"resources": {"core": core}, "rate": core})


ROUTES = [
    Route("GET", "/repo", _get, needs=("metadata", "read")),
    Route("GET", "/repo/contents/{path...}", _contents, needs=("contents", "read")),
    Route("GET", "/repo/compare/{basehead...}", _compare, needs=("contents", "read")),
    Route("GET", "/repo/commits", _commits, needs=("contents", "read")),
    Route("GET", "/repo/commits/{ref...}/branches-where-head", _where_head, needs=("contents", "read")),
    Route("GET", "/repo/commits/{ref...}", _commit, needs=("contents", "read")),
    Route("GET", "/repo/git/commits/{sha}", _git_commit, needs=("contents", "read")),
    Route("GET", "/repo/git/matching-refs/{ref...}", _matching_refs, needs=("contents", "read")),
    Route("GET", "/repo/branches", _branches, needs=("contents", "read")),
    Route("GET", "/repo/branches/{branch...}", _branch, needs=("contents", "read")),
    Route("GET", "/repo/collaborators/{user}/permission", _permission, needs=("metadata", "read")),
    Route("GET", "/rate_limit", _rate_limit, caller="anyone"),
]
