"""GitHub's JSON for accounts, repositories, pull requests and checks, as the API and the webhooks show them.

Shapes follow https://docs.github.com/en/webhooks/webhook-events-and-payloads.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from relay.simulator.model import Account, App, CheckRun, CheckSuite, Comment, Json, Label, Pull, Repository

if TYPE_CHECKING:
    from relay.simulator.world import World

# The API's URL templates of a repository, as every repository object repeats them.
_REPOSITORY_URLS = {
    "forks_url": "/forks",
    "keys_url": "/keys{/key_id}",
    "collaborators_url": "/collaborators{/collaborator}",
    "teams_url": "/teams",
    "hooks_url": "/hooks",
    "issue_events_url": "/issues/events{/number}",
    "events_url": "/events",
    "assignees_url": "/assignees{/user}",
    "branches_url": "/branches{/branch}",
    "tags_url": "/tags",
    "blobs_url": "/git/blobs{/sha}",
    "git_tags_url": "/git/tags{/sha}",
    "git_refs_url": "/git/refs{/sha}",
    "trees_url": "/git/trees{/sha}",
    "statuses_url": "/statuses/{sha}",
    "languages_url": "/languages",
    "stargazers_url": "/stargazers",
    "contributors_url": "/contributors",
    "subscribers_url": "/subscribers",
    "subscription_url": "/subscription",
    "commits_url": "/commits{/sha}",
    "git_commits_url": "/git/commits{/sha}",
    "comments_url": "/comments{/number}",
    "issue_comment_url": "/issues/comments{/number}",
    "contents_url": "/contents/{+path}",
    "compare_url": "/compare/{base}...{head}",
    "merges_url": "/merges",
    "archive_url": "/{archive_format}{/ref}",
    "downloads_url": "/downloads",
    "issues_url": "/issues{/number}",
    "pulls_url": "/pulls{/number}",
    "milestones_url": "/milestones{/number}",
    "notifications_url": "/notifications{?since,all,participating}",
    "labels_url": "/labels{/name}",
    "releases_url": "/releases{/id}",
    "deployments_url": "/deployments",
}
_USER_URLS = {
    "followers_url": "/followers",
    "following_url": "/following{/other_user}",
    "gists_url": "/gists{/gist_id}",
    "starred_url": "/starred{/owner}{/repo}",
    "subscriptions_url": "/subscriptions",
    "organizations_url": "/orgs",
    "repos_url": "/repos",
    "events_url": "/events{/privacy}",
    "received_events_url": "/received_events",
}


def stamp(at: datetime | None) -> str | None:
    """GitHub's form of a time: whole seconds, UTC."""
    return None if at is None else at.strftime("%Y-%m-%dT%H:%M:%SZ")


def user(world: World, account: Account) -> Json:
    """An account."""
    url = f"{world.url}/users/{account.login}"
    return {
        "login": account.login,
        "id": account.id,
        "node_id": f"U_{account.id}",
        "avatar_url": f"{world.url}/avatars/{account.id}",
        "gravatar_id": "",
        "url": url,
        "html_url": f"{world.url}/{account.login}",
        "type": account.type,
        "user_view_type": "public",
        "site_admin": False,
        **{name: url + ending for name, ending in _USER_URLS.items()},
    }


def repository(world: World, repo: Repository) -> Json:
    """A repository in full."""
    url = f"{world.url}/repos/{repo.full_name}"
    html = f"{world.url}/{repo.full_name}"
    return {
        "id": repo.id,
        "node_id": f"R_{repo.id}",
        "name": repo.name,
        "full_name": repo.full_name,
        "private": repo.private,
        "owner": user(world, repo.owner),
        "html_url": html,
        "description": None,
        "fork": repo.parent is not None,
        "url": url,
        **{name: url + ending for name, ending in _REPOSITORY_URLS.items()},
        "created_at": stamp(repo.created_at),
        "updated_at": stamp(repo.created_at),
        "pushed_at": stamp(repo.created_at),
        "git_url": f"git://{html.partition('://')[2]}.git",
        "ssh_url": f"git@localhost:{repo.full_name}.git",
        "clone_url": f"{html}.git",
        "svn_url": html,
        "homepage": None,
        "size": 1,
        "stargazers_count": 0,
        "watchers_count": 0,
        "language": "Python",
        "has_issues": True,
        "has_projects": True,
        "has_downloads": True,
        "has_wiki": True,
        "has_pages": False,
        "has_discussions": False,
        "forks_count": 0,
        "mirror_url": None,
        "archived": repo.archived,
        "disabled": False,
        "open_issues_count": repo.open_pulls,
        "license": None,
        "allow_forking": True,
        "is_template": False,
        "web_commit_signoff_required": False,
        "topics": [],
        "visibility": "private" if repo.private else "public",
        "forks": 0,
        "open_issues": 0,
        "watchers": 0,
        "default_branch": repo.default_branch,
    }


def repository_brief(repo: Repository) -> Json:
    """A repository as installation events list it."""
    return {
        "id": repo.id,
        "node_id": f"R_{repo.id}",
        "name": repo.name,
        "full_name": repo.full_name,
        "private": repo.private,
    }


def label(world: World, repo: Repository, item: Label) -> Json:
    """A label."""
    return {
        "id": item.id,
        "node_id": f"LA_{item.id}",
        "url": f"{world.url}/repos/{repo.full_name}/labels/{item.name}",
        "name": item.name,
        "color": "ededed",
        "default": False,
        "description": None,
    }


def pull(world: World, repo: Repository, item: Pull) -> Json:
    """A pull request in full."""
    url = f"{world.url}/repos/{repo.full_name}/pulls/{item.number}"
    issue = f"{world.url}/repos/{repo.full_name}/issues/{item.number}"
    html = f"{world.url}/{repo.full_name}/pull/{item.number}"
    statuses = f"{world.url}/repos/{repo.full_name}/statuses/{item.head_sha}"
    return {
        "url": url,
        "id": item.id,
        "node_id": f"PR_{item.id}",
        "html_url": html,
        "diff_url": f"{html}.diff",
        "patch_url": f"{html}.patch",
        "issue_url": issue,
        "number": item.number,
        "state": item.state,
        "locked": False,
        "title": item.title,
        "user": user(world, item.author),
        "body": item.body,
        "created_at": stamp(item.created_at),
        "updated_at": stamp(item.updated_at),
        "closed_at": stamp(item.closed_at),
        "merged_at": stamp(item.merged_at),
        "merge_commit_sha": item.merge_commit_sha,
        "assignee": None,
        "assignees": [],
        "requested_reviewers": [],
        "requested_teams": [],
        "labels": [label(world, repo, entry) for entry in item.labels],
        "milestone": None,
        "draft": item.draft,
        "commits_url": f"{url}/commits",
        "review_comments_url": f"{url}/comments",
        "review_comment_url": f"{world.url}/repos/{repo.full_name}/pulls/comments{{/number}}",
        "comments_url": f"{issue}/comments",
        "statuses_url": statuses,
        "head": _side(world, item.head_repo, item.head_ref, item.head_sha),
        "base": _side(world, repo, item.base_ref, item.base_sha),
        "_links": {
            "self": {"href": url},
            "html": {"href": html},
            "issue": {"href": issue},
            "comments": {"href": f"{issue}/comments"},
            "review_comments": {"href": f"{url}/comments"},
            "review_comment": {"href": f"{world.url}/repos/{repo.full_name}/pulls/comments{{/number}}"},
            "commits": {"href": f"{url}/commits"},
            "statuses": {"href": statuses},
        },
        "author_association": item.author_association,
        "auto_merge": None,
        "active_lock_reason": None,
        "merged": item.merged,
        "mergeable": None if item.state != "open" else True,
        "rebaseable": None,
        "mergeable_state": "unknown",
        "merged_by": None,
        "comments": 0,
        "review_comments": 0,
        "maintainer_can_modify": True,
        "commits": 1,
        "additions": 1,
        "deletions": 0,
        "changed_files": 1,
    }


def _side(world: World, repo: Repository, ref: str, sha: str) -> Json:
    return {
        "label": f"{repo.owner.login}:{ref}",
        "ref": ref,
        "sha": sha,
        "user": user(world, repo.owner),
        "repo": repository(world, repo),
    }


def app_brief(world: World, app: App) -> Json:
    """An app as checks and ``GET /app`` show it."""
    owner = world.account(f"{app.slug}-owner")
    return {
        "id": app.id,
        "slug": app.slug,
        "node_id": f"A_{app.id}",
        "client_id": f"Iv1.{app.id}",
        "owner": user(world, owner),
        "name": app.slug,
        "description": None,
        "external_url": world.url,
        "html_url": f"{world.url}/apps/{app.slug}",
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
        "permissions": app.permissions,
        "events": sorted(app.events),
    }


def check_suite(world: World, repo: Repository, item: CheckSuite) -> Json:
    """A check suite with the state that its newest runs give it."""
    runs = item.runs
    done = bool(runs) and all(run.status == "completed" for run in runs)
    return {
        "id": item.id,
        "node_id": f"CS_{item.id}",
        "head_branch": None,
        "head_sha": item.head_sha,
        "status": "completed" if done else "queued",
        "conclusion": None if not done else _worst(runs),
        "url": f"{world.url}/repos/{repo.full_name}/check-suites/{item.id}",
        "before": None,
        "after": item.head_sha,
        "pull_requests": pulls_of_head(world, repo, item.head_sha),
        "app": app_brief(world, item.app),
        "created_at": stamp(item.created_at),
        "updated_at": stamp(item.created_at),
        "latest_check_runs_count": len({run.name for run in runs}),
        "check_runs_url": f"{world.url}/repos/{repo.full_name}/check-suites/{item.id}/check-runs",
    }


def _worst(runs: list[CheckRun]) -> str:
    return next((run.conclusion for run in runs if run.conclusion not in {None, "success"}), "success") or "success"


def pulls_of_head(world: World, repo: Repository, sha: str) -> list[Json]:
    """The open pull requests of a head, in brief; those from forks are left out.

    https://docs.github.com/en/rest/guides/using-the-rest-api-to-interact-with-checks
    """
    return [
        {
            "url": f"{world.url}/repos/{repo.full_name}/pulls/{item.number}",
            "id": item.id,
            "number": item.number,
            "head": {"ref": item.head_ref, "sha": item.head_sha, "repo": {"id": repo.id, "name": repo.name}},
            "base": {"ref": item.base_ref, "sha": item.base_sha, "repo": {"id": repo.id, "name": repo.name}},
        }
        for item in repo.own_pulls
        if item.head_sha == sha and item.state == "open"
    ]


def check_run(world: World, repo: Repository, item: CheckRun) -> Json:
    """A check run."""
    url = f"{world.url}/repos/{repo.full_name}/check-runs/{item.id}"
    html = f"{world.url}/{repo.full_name}/runs/{item.id}"
    return {
        "id": item.id,
        "node_id": f"CR_{item.id}",
        "name": item.name,
        "head_sha": item.head_sha,
        "external_id": item.external_id,
        "url": url,
        "html_url": html,
        "details_url": item.details_url or html,
        "status": item.status,
        "conclusion": item.conclusion,
        "started_at": stamp(item.started_at),
        "completed_at": stamp(item.completed_at),
        "output": {
            "title": item.title,
            "summary": item.summary,
            "text": item.text,
            "annotations_count": len(item.annotations),
            "annotations_url": f"{url}/annotations",
        },
        "check_suite": {"id": item.suite.id},
        "app": app_brief(world, item.app),
        "pull_requests": pulls_of_head(world, repo, item.head_sha),
        "actions": item.actions,
    }


def comment(world: World, repo: Repository, item: Comment) -> Json:
    """An issue comment."""
    issue = f"{world.url}/repos/{repo.full_name}/issues/{item.number}"
    return {
        "id": item.id,
        "node_id": f"IC_{item.id}",
        "url": f"{world.url}/repos/{repo.full_name}/issues/comments/{item.id}",
        "html_url": f"{world.url}/{repo.full_name}/pull/{item.number}#issuecomment-{item.id}",
        "issue_url": issue,
        "user": user(world, item.user),
        "created_at": stamp(item.created_at),
        "updated_at": stamp(item.updated_at),
        "author_association": "NONE",
        "body": item.body,
        "performed_via_github_app": app_brief(world, world.apps[str(item.app_id)]) if item.app_id else None,
    }
