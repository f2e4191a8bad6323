"""What people do upstream: push, open and change pull requests, comment, queue; each act sends its webhooks.

All of it runs on the event loop. Payloads follow https://docs.github.com/en/webhooks/webhook-events-and-payloads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from relay.simulator import payloads
from relay.simulator.model import ZERO_SHA, Account, Comment, Commit, Json, Label, Pull, Repository

if TYPE_CHECKING:
    from relay.simulator.webhooks import Delivery
    from relay.simulator.world import World

#: Something done on the loop that sends webhooks.
Act = Callable[[], "list[Delivery]"]
#: Changed files: new text by path (None deletes), or paths whose text is made up.
Files = Mapping[str, str | None] | Sequence[str]

#: A push of more than three tags at once sends no push events.
#: https://docs.github.com/en/webhooks/webhook-events-and-payloads#push
TAGS_AT_ONCE = 3
#: A push event lists at most 2,048 commits.
#: https://docs.github.com/en/webhooks/webhook-events-and-payloads#push
COMMITS_LISTED = 2048


def changed_tree(tree: Mapping[str, str], files: Files, mark: str) -> Mapping[str, str]:
    """A tree with files changed: a mapping gives their new text (None deletes), a list of paths gets made-up text."""
    if not files:
        return tree
    changed = dict(tree)
    if isinstance(files, Mapping):
        for path, text in files.items():
            if text is None:
                changed.pop(path, None)
            else:
                changed[path] = text
    else:
        changed.update((path, f"{mark}\n") for path in files)
    return changed


def add_commit(
    world: World, repo: Repository, parent: str, files: Files, message: str, author: str, sha: str | None = None
) -> Commit:
    """A commit on top of another with files changed."""
    mark = sha or world.sha()
    tree = changed_tree(repo.network.commits[parent].tree, files, mark)
    return world.commit(repo, (parent,), message, author, tree, sha=mark)


def push(
    world: World,
    repo: Repository,
    ref: str,
    *,
    files: Files,
    message: str,
    author: str,
    sha: str | None = None,
    commits: int = 1,
    forced: bool = False,
) -> list[Delivery]:
    """Push to a branch or tag. With ``sha`` of a commit that exists the ref is set to it; else commits are made."""
    before = repo.refs.get(ref)
    made: list[Commit] = []
    if sha is not None and sha in repo.network.commits:
        after = sha
    else:
        tip = before or repo.refs[f"refs/heads/{repo.default_branch}"]
        for number in range(commits):
            last = number == commits - 1
            made.append(add_commit(world, repo, tip, files if last else (), message, author, sha if last else None))
            tip = made[-1].sha
        after = tip
    repo.refs[ref] = after
    deliveries = _push_event(world, repo, ref, before, after, made, author, forced=forced)
    branch = ref.removeprefix("refs/heads/")
    # A push to the head branch of an open pull request is a synchronize as well.
    for pull in list(repo.own_pulls):
        if pull.state == "open" and pull.head_ref == branch and pull.head_sha != after:
            deliveries += synchronize(world, repo, pull, after, pull.author)
    return deliveries


def push_tags(world: World, repo: Repository, tags: Sequence[str], sha: str, author: str) -> list[Delivery]:
    """Push several tags in one go; of more than three GitHub sends no events."""
    deliveries = []
    for tag in tags:
        before = repo.refs.get(f"refs/tags/{tag}")
        repo.refs[f"refs/tags/{tag}"] = sha
        if len(tags) <= TAGS_AT_ONCE:
            deliveries += _push_event(world, repo, f"refs/tags/{tag}", before, sha, [], author)
    return deliveries


def delete_ref(world: World, repo: Repository, ref: str, author: str) -> list[Delivery]:
    """Delete a branch or tag; GitHub tells of it by a push whose ``after`` is all zeros."""
    before = repo.refs.pop(ref)
    return _push_event(world, repo, ref, before, None, [], author)


def _push_event(
    world: World,
    repo: Repository,
    ref: str,
    before: str | None,
    after: str | None,
    made: list[Commit],
    author: str,
    *,
    forced: bool = False,
) -> list[Delivery]:
    listed = [_pushed_commit(world, repo, commit) for commit in made[-COMMITS_LISTED:]]
    head = None if after is None else _pushed_commit(world, repo, repo.network.commits[after])
    payload: Json = {
        "ref": ref,
        "before": before or ZERO_SHA,
        "after": after or ZERO_SHA,
        "created": before is None,
        "deleted": after is None,
        "forced": forced,
        "base_ref": None,
        "compare": f"{world.url}/{repo.full_name}/compare/{(before or ZERO_SHA)[:12]}...{(after or ZERO_SHA)[:12]}",
        "commits": listed,
        "head_commit": head,
        "pusher": {"name": author, "email": f"{author}@users.noreply.localhost"},
    }
    return world.webhooks.emit("push", payload, repo, world.account(author, "User"))


def _pushed_commit(world: World, repo: Repository, commit: Commit) -> Json:
    parent = repo.network.commits.get(commit.parents[0]) if commit.parents else None
    old = parent.tree if parent is not None else {}
    person = {"name": commit.author, "email": f"{commit.author}@users.noreply.localhost", "username": commit.author}
    return {
        "id": commit.sha,
        "tree_id": commit.tree_id,
        "distinct": True,
        "message": commit.message,
        "timestamp": payloads.stamp(commit.at),
        "url": f"{world.url}/{repo.full_name}/commit/{commit.sha}",
        "author": person,
        "committer": person,
        "added": [] if commit.tree is old else sorted(commit.tree.keys() - old.keys()),
        "removed": [] if commit.tree is old else sorted(old.keys() - commit.tree.keys()),
        "modified": []
        if commit.tree is old
        else sorted(path for path, text in commit.tree.items() if path in old and old[path] != text),
    }


def pull_event(
    world: World, repo: Repository, pull: Pull, action: str, sender: Account, extra: Json | None = None
) -> list[Delivery]:
    """Send a ``pull_request`` event."""
    pull.updated_at = world.now()
    payload = {"action": action, "number": pull.number, "pull_request": payloads.pull(world, repo, pull)}
    return world.webhooks.emit("pull_request", {**payload, **(extra or {})}, repo, sender)


def open_pull(
    world: World,
    repo: Repository,
    *,
    title: str,
    body: str | None,
    labels: Sequence[str],
    author: str,
    author_association: str,
    files: Files,
    fork: bool,
    base: str,
    head_ref: str | None,
    draft: bool,
    head_sha: str | None,
) -> tuple[Pull, list[Delivery]]:
    """Open a pull request with one commit; ``head_sha`` of a commit that exists reuses it."""
    number = repo.next_number
    repo.next_number += 1
    person = world.account(author, "User")
    home = world.fork(repo, author) if fork else repo
    base_sha = repo.refs[f"refs/heads/{base}"]
    if head_sha is not None and head_sha in repo.network.commits:
        head = head_sha
    else:
        head = add_commit(world, repo, base_sha, files, title, author, head_sha).sha
    ref = head_ref or f"change-{number}"
    home.refs[f"refs/heads/{ref}"] = head
    pull = Pull(
        id=world.next_id("pull"),
        number=number,
        title=title,
        body=body,
        author=person,
        author_association=author_association,
        base_ref=base,
        base_sha=base_sha,
        head_repo=home,
        head_ref=ref,
        head_sha=head,
        created_at=world.now(),
        updated_at=world.now(),
        labels=[label_named(world, repo, name) for name in labels],
        draft=draft,
    )
    repo.pulls[number] = pull
    repo.open_pulls += 1
    if not fork:
        repo.own_pulls.append(pull)
    _test_merge(world, repo, pull)
    return pull, pull_event(world, repo, pull, "opened", person)


def label_named(world: World, repo: Repository, name: str) -> Label:
    """The repository's label of that name, made on first mention."""
    found = repo.labels.get(name.lower())
    if found is None:
        found = repo.labels[name.lower()] = Label(world.next_id("label"), name)
    return found


def _test_merge(world: World, repo: Repository, pull: Pull) -> None:
    """Make the test merge that GitHub keeps for an open pull request, and its two refs."""
    head = repo.network.commits[pull.head_sha]
    merged = world.commit(
        repo, (pull.base_sha, pull.head_sha), f"Merge {pull.head_sha} into {pull.base_sha}", "web-flow", head.tree
    )
    pull.merge_commit_sha = merged.sha
    repo.refs[f"refs/pull/{pull.number}/head"] = pull.head_sha
    repo.refs[f"refs/pull/{pull.number}/merge"] = merged.sha


def synchronize(world: World, repo: Repository, pull: Pull, after: str, sender: Account) -> list[Delivery]:
    """Move a pull request's head. Raises ValueError for a commit that does not exist."""
    if after not in repo.network.commits:
        raise ValueError(f"there is no commit {after} in the network of {repo.full_name}")
    before = pull.head_sha
    pull.head_sha = after
    pull.head_repo.refs[f"refs/heads/{pull.head_ref}"] = after
    pull.base_sha = repo.refs.get(f"refs/heads/{pull.base_ref}", pull.base_sha)
    _test_merge(world, repo, pull)
    return pull_event(world, repo, pull, "synchronize", sender, {"before": before, "after": after})


def label_pull(world: World, repo: Repository, pull: Pull, name: str, sender: Account, *, on: bool) -> list[Delivery]:
    """Add or remove a label; nothing is sent where nothing changes."""
    item = label_named(world, repo, name)
    if (item in pull.labels) == on:
        return []
    if on:
        pull.labels.append(item)
    else:
        pull.labels.remove(item)
    action = "labeled" if on else "unlabeled"
    return pull_event(world, repo, pull, action, sender, {"label": payloads.label(world, repo, item)})


def close_pull(
    world: World, repo: Repository, pull: Pull, sender: Account, *, merged: bool, keep_merge_sha: bool
) -> list[Delivery]:
    """Close a pull request; merging pushes to the base as well."""
    deliveries: list[Delivery] = []
    if pull.state == "open":
        repo.open_pulls -= 1
    pull.state, pull.closed_at = "closed", world.now()
    if merged:
        base = f"refs/heads/{pull.base_ref}"
        tip = repo.refs[base]
        tree = {**repo.network.commits[tip].tree, **repo.network.commits[pull.head_sha].tree}
        message = f"{pull.title} (#{pull.number})"
        commit = world.commit(repo, (tip, pull.head_sha), message, pull.author.login, tree)
        repo.refs[base] = commit.sha
        pull.merged, pull.merged_at, pull.merge_commit_sha = True, world.now(), commit.sha
        deliveries += _push_event(world, repo, base, tip, commit.sha, [commit], sender.login)
    elif not keep_merge_sha:
        pull.merge_commit_sha = None
    return [*pull_event(world, repo, pull, "closed", sender), *deliveries]


def reopen_pull(world: World, repo: Repository, pull: Pull, sender: Account) -> list[Delivery]:
    """Reopen a closed pull request."""
    if pull.state == "closed":
        repo.open_pulls += 1
    pull.state, pull.closed_at = "open", None
    _test_merge(world, repo, pull)
    return pull_event(world, repo, pull, "reopened", sender)


def edit_pull(
    world: World, repo: Repository, pull: Pull, sender: Account, *, base: str | None, title: str | None
) -> list[Delivery]:
    """Change a pull request's base or title."""
    changes: Json = {}
    if base is not None:
        changes["base"] = {"ref": {"from": pull.base_ref}, "sha": {"from": pull.base_sha}}
        pull.base_ref, pull.base_sha = base, repo.refs[f"refs/heads/{base}"]
        _test_merge(world, repo, pull)
    if title is not None:
        changes["title"] = {"from": pull.title}
        pull.title = title
    return pull_event(world, repo, pull, "edited", sender, {"changes": changes})


def add_comment(
    world: World, repo: Repository, pull: Pull, person: Account, body: str, app_id: int | None = None
) -> tuple[Comment, list[Delivery]]:
    """Comment on a pull request."""
    now = world.now()
    item = Comment(world.next_id("comment"), pull.number, person, body, now, now, app_id)
    repo.comments[item.id] = item
    issue = {
        "number": pull.number,
        "title": pull.title,
        "state": pull.state,
        "user": payloads.user(world, pull.author),
        "labels": [payloads.label(world, repo, entry) for entry in pull.labels],
        "body": pull.body,
        "html_url": f"{world.url}/{repo.full_name}/pull/{pull.number}",
        "pull_request": {"url": f"{world.url}/repos/{repo.full_name}/pulls/{pull.number}"},
    }
    payload = {"action": "created", "issue": issue, "comment": payloads.comment(world, repo, item)}
    return item, world.webhooks.emit("issue_comment", payload, repo, person)


def queue(
    world: World, repo: Repository, pull: Pull, sender: Account, on: str | None = None
) -> tuple[Json, list[Delivery]]:
    """Put a pull request into the merge queue: a temporary branch, its push, and ``checks_requested``.

    ``on`` is the head of the group before it, where there is one: a queue builds each on the last.

    https://docs.github.com/en/repositories/configuring-branches-and-merges-in-your-repository/configuring-pull-request-merges/managing-a-merge-queue
    """
    base = f"refs/heads/{pull.base_ref}"
    base_sha = on or repo.refs[base]
    tree = {**repo.network.commits[base_sha].tree, **repo.network.commits[pull.head_sha].tree}
    message = f"Merge pull request #{pull.number}\n\n{pull.title}"
    commit = world.commit(repo, (base_sha, pull.head_sha), message, pull.author.login, tree)
    ref = f"refs/heads/gh-readonly-queue/{pull.base_ref}/pr-{pull.number}-{base_sha}"
    repo.refs[ref] = commit.sha
    group: Json = {
        "head_sha": commit.sha,
        "head_ref": ref,
        "base_sha": base_sha,
        "base_ref": base,
        "head_commit": {
            "id": commit.sha,
            "tree_id": commit.tree_id,
            "message": message,
            "timestamp": payloads.stamp(commit.at),
            "author": {"name": pull.author.login, "email": "noreply@localhost"},
            "committer": {"name": "GitHub", "email": "noreply@localhost"},
        },
    }
    repo.merge_groups[commit.sha] = group
    deliveries = _push_event(world, repo, ref, None, commit.sha, [commit], sender.login)
    payload: Json = {"action": "checks_requested", "merge_group": group}
    return group, world.webhooks.emit("merge_group", payload, repo, sender) + deliveries


def leave_queue(world: World, repo: Repository, group: Json, reason: str, sender: Account) -> list[Delivery]:
    """Take a merge group out of the queue: ``merged``, ``invalidated`` or ``dequeued``."""
    repo.refs.pop(group["head_ref"], None)
    if reason == "merged":
        repo.refs[group["base_ref"]] = group["head_sha"]
    payload: Json = {"action": "destroyed", "reason": reason, "merge_group": group}
    return world.webhooks.emit("merge_group", payload, repo, sender)
