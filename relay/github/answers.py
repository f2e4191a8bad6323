"""GitHub's answers as values. Everything in them is checked here; what does not fit raises ValueError."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from allowlist.model import RepoName
from relay.github.observed import FoundRun, JobObserved, PullObserved, Role, RunObserved
from relay.github.port import ChangedPaths, CheckRunFound, Located

# GitHub lists at most this many files, https://docs.github.com/rest/pulls/pulls#list-pull-requests-files
# and https://docs.github.com/rest/commits/commits#compare-two-commits
MOST_PULL_FILES = 3_000
MOST_COMPARED_FILES = 300

_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_UNKEPT = re.compile(r"[\x00\ud800-\udfff]")
# A run's path may name the ref of its workflow file too, as in ".github/workflows/ci.yml@main".
_WORKFLOW = re.compile(r"(.+?\.ya?ml)(?:@.+)?", re.DOTALL)
_ROLES = {role.name.lower(): role for role in Role}
# The marks of the roles, weakest first; each role has those before its own too.
_FLAGS = (("pull", Role.READ), ("triage", Role.TRIAGE), ("push", Role.WRITE), ("maintain", Role.MAINTAIN))
_LAST_PAGE = re.compile(r"[?&]page=(\d{1,6})(?:&[^>]*)?>;\s*rel=\"last\"")


@dataclass(frozen=True, slots=True)
class Minted:
    """A token fresh from the mint, and what it opens."""

    secret: str
    expires_at: datetime
    located: Located

    def __repr__(self) -> str:
        return "<Minted>"


@dataclass(frozen=True, slots=True)
class FoundCheck:
    """One check run in a listing."""

    run: CheckRunFound
    name: str
    external_id: str


@dataclass(frozen=True, slots=True)
class FoundComment:
    """One comment in a listing, and by whom: an app's id and client id where GitHub says that an app wrote it."""

    comment_id: int
    body: str
    app: tuple[str, str] | None
    login: str
    by_bot: bool


def a_dict(value: Any, what: str) -> dict[str, Any]:
    """The value if it is a JSON object."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no object")
    return value


def a_list(value: Any, what: str) -> list[Any]:
    """The value if it is a JSON array."""
    if not isinstance(value, list):
        raise ValueError(f"{what} is no array")
    return value


def an_id(value: Any, what: str) -> int:
    """The value if it is a positive number that a database can hold."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 63:
        raise ValueError(f"{what} is no id")
    return value


def a_text(value: Any, what: str) -> str:
    """The value if it is text without lone surrogates, which no database takes."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{what} is no text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} is no valid text") from None
    return value


def a_sha(value: Any, what: str) -> str:
    """The value if it is the id of a git object."""
    if not isinstance(value, str) or not _SHA.fullmatch(value):
        raise ValueError(f"{what} is no SHA")
    return value


def minted(answer: Any, installation_id: int) -> Minted:
    """The answer of the mint, which names the one repository that the token was narrowed to."""
    body = a_dict(answer, "the answer")
    secret = a_text(body.get("token"), "token")
    if not secret.isascii() or not secret.isprintable() or " " in secret:
        raise ValueError("token cannot stand in a header")
    expires_at = instant(body.get("expires_at"), "expires_at")
    repositories = a_list(body.get("repositories"), "repositories")
    if len(repositories) != 1:
        raise ValueError(f"repositories holds {len(repositories)}, where the token was narrowed to one")
    repository = a_dict(repositories[0], "repositories[0]")
    owner = a_dict(repository.get("owner"), "repositories[0].owner")
    branch = repository.get("default_branch")
    return Minted(
        secret=secret,
        expires_at=expires_at,
        located=Located(
            installation_id=installation_id,
            repository_id=an_id(repository.get("id"), "repositories[0].id"),
            owner_id=an_id(owner.get("id"), "repositories[0].owner.id"),
            # What does not say that it is public is treated as private.
            private=repository.get("private") is not False,
            full_name=RepoName.parse(a_text(repository.get("full_name"), "repositories[0].full_name")),
            default_branch=a_text(branch, "default_branch") if branch is not None else None,
            archived=repository.get("archived") is True,
        ),
    )


def check_runs(answer: Any) -> tuple[FoundCheck, ...]:
    """One page of a commit's check runs."""
    runs = a_list(a_dict(answer, "the answer").get("check_runs"), "check_runs")
    return tuple(
        FoundCheck(
            CheckRunFound(
                an_id(a_dict(run, "a check run").get("id"), "a check run's id"),
                shown(run.get("status")),
                shown(run.get("conclusion")) or None,
            ),
            str(run.get("name") or ""),
            str(run.get("external_id") or ""),
        )
        for run in runs
    )


def runs(answer: Any) -> tuple[FoundRun, ...]:
    """One page of a repository's runs."""
    listed = a_list(a_dict(answer, "the answer").get("workflow_runs"), "workflow_runs")
    return tuple(
        FoundRun(
            run_id=str(an_id(a_dict(run, "a run").get("id"), "a run's id")),
            title=shown(run.get("display_title") or run.get("name")),
            status=shown(run.get("status")),
            conclusion=shown(run.get("conclusion")) or None,
            run_attempt=an_id(run.get("run_attempt", 1), "a run's run_attempt"),
            path=_workflow(run.get("path")),
            created_at=instant(run.get("created_at"), "created_at"),
        )
        for run in listed
    )


def run_attempt(answer: Any, etag: str | None) -> RunObserved:
    """One attempt of a run."""
    run = a_dict(answer, "the answer")
    return RunObserved(
        run_id=str(an_id(run.get("id"), "id")),
        run_attempt=an_id(run.get("run_attempt"), "run_attempt"),
        status=a_text(run.get("status"), "status"),
        conclusion=shown(run.get("conclusion")) or None,
        path=_workflow(run.get("path")),
        event=shown(run.get("event")),
        head_sha=a_sha(run.get("head_sha"), "head_sha"),
        title=shown(run.get("display_title") or run.get("name")),
        created_at=instant(run.get("created_at"), "created_at"),
        updated_at=instant(run.get("updated_at"), "updated_at"),
        etag=etag,
    )


def jobs(answer: Any) -> tuple[JobObserved, ...]:
    """One page of an attempt's jobs."""
    listed = a_list(a_dict(answer, "the answer").get("jobs"), "jobs")
    return tuple(
        JobObserved(
            job_id=an_id(a_dict(job, "a job").get("id"), "a job's id"),
            name=shown(job.get("name")),
            status=a_text(job.get("status"), "a job's status"),
            conclusion=shown(job.get("conclusion")) or None,
            started_at=_instant_or_none(job.get("started_at"), "started_at"),
            completed_at=_instant_or_none(job.get("completed_at"), "completed_at"),
        )
        for job in listed
    )


def pull(answer: Any) -> PullObserved:
    """One pull request."""
    body = a_dict(answer, "the answer")
    head, base = a_dict(body.get("head"), "head"), a_dict(body.get("base"), "base")
    state = body.get("state")
    if state not in ("open", "closed"):
        raise ValueError("state is neither open nor closed")
    labels = a_list(body.get("labels"), "labels")
    author = body.get("user")  # Null once the account is deleted.
    return PullObserved(
        number=an_id(body.get("number"), "number"),
        state=state,
        title=shown(body.get("title")),
        head_sha=a_sha(head.get("sha"), "head.sha"),
        base_ref=a_text(base.get("ref"), "base.ref"),
        base_sha=a_sha(base.get("sha"), "base.sha"),
        labels=tuple(shown(a_dict(label, "a label").get("name")) for label in labels),
        author=shown(a_dict(author, "user").get("login")) if author is not None else "",
        author_association=shown(body.get("author_association")),
        draft=body.get("draft") is True,
        merged=body.get("merged") is True,
        html_url=shown(body.get("html_url")),
        created_at=instant(body.get("created_at"), "created_at"),
        updated_at=instant(body.get("updated_at"), "updated_at"),
    )


def open_pulls(answer: Any, head_sha: str) -> tuple[tuple[int, ...], int]:
    """One page of a commit's pull requests: the open ones whose head it is, and how many were listed in all.

    GitHub lists those, too, that have the commit somewhere below their head, and merged ones.
    """
    listed = a_list(answer, "the answer")
    numbers = tuple(
        an_id(pull.get("number"), "number")
        for pull in (a_dict(each, "a pull request") for each in listed)
        if pull.get("state") == "open" and a_dict(pull.get("head"), "head").get("sha") == head_sha
    )
    return numbers, len(listed)


def comments(answer: Any) -> tuple[FoundComment, ...]:
    """One page of comments."""
    return tuple(_comment(a_dict(each, "a comment")) for each in a_list(answer, "the answer"))


def last_page(link: str) -> int:
    """The number of a listing's last page by its ``Link`` header, which a listing of one page lacks.

    https://docs.github.com/rest/using-the-rest-api/using-pagination-in-the-rest-api#using-link-headers
    """
    found = _LAST_PAGE.search(link)
    return max(1, int(found[1])) if found else 1


def role(answer: Any) -> Role:
    """The role that GitHub names; of a role with a name of its own, what it demonstrably includes.

    The older ``permission`` field is not looked at: it tells neither triage from read nor maintain from write.
    A role with a name of its own stands on a built-in one below admin, so it never counts as admin.
    https://docs.github.com/rest/collaborators/collaborators#get-repository-permissions-for-a-user
    """
    body = a_dict(answer, "the answer")
    name = body.get("role_name")
    if not isinstance(name, str):
        raise ValueError("role_name is no text")
    if name in _ROLES:
        return _ROLES[name]
    user = body.get("user")
    granted = user.get("permissions") if isinstance(user, dict) else None
    least = Role.NONE
    for flag, proven in _FLAGS:
        if not isinstance(granted, dict) or granted.get(flag) is not True:
            break
        least = proven
    return least


def tree(answer: Any) -> str:
    """The tree of a commit."""
    return a_sha(a_dict(a_dict(answer, "the answer").get("tree"), "tree").get("sha"), "tree.sha")


def file_names(files: Any) -> tuple[str, ...]:
    """The paths of a file listing. A moved file counts under both names: leaving a folder changes it too."""
    names: list[str] = []
    for file in a_list(files, "the file list"):
        names.append(a_text(a_dict(file, "a file").get("filename"), "a file's name"))
        if file.get("previous_filename") is not None:
            names.append(a_text(file["previous_filename"], "a file's previous name"))
    return tuple(names)


def compared(answer: Any) -> ChangedPaths:
    """The files of a comparison, complete only if the head simply follows the base.

    GitHub compares from the merge base. Where history was rewritten, what the base alone had is not listed.
    """
    body = a_dict(answer, "the answer")
    files = a_list(body.get("files", []), "files")
    return ChangedPaths(
        tuple(dict.fromkeys(file_names(files))),
        complete=body.get("status") in ("ahead", "identical") and len(files) < MOST_COMPARED_FILES,
    )


def is_contained(answer: Any) -> bool:
    """Does this comparison of a branch with a commit say that the branch holds the commit?"""
    return a_dict(answer, "the answer").get("status") in ("behind", "identical")


def _comment(body: dict[str, Any]) -> FoundComment:
    app, user = body.get("performed_via_github_app"), body.get("user")
    by = user if isinstance(user, dict) else {}
    return FoundComment(
        comment_id=an_id(body.get("id"), "a comment's id"),
        body=shown(body.get("body")),
        app=(str(app.get("id") or ""), shown(app.get("client_id"))) if isinstance(app, dict) else None,
        login=shown(by.get("login")),
        by_bot=by.get("type") == "Bot",
    )


def shown(value: Any) -> str:
    """What people wrote, as text that a database can hold: their odd characters must not hide a whole listing."""
    return _UNKEPT.sub("\ufffd", value) if isinstance(value, str) else ""


def _workflow(value: Any) -> str:
    text = shown(value)
    found = _WORKFLOW.fullmatch(text)
    return found[1] if found else text


def instant(value: Any, what: str) -> datetime:
    """A time, aware. Raises ValueError, naming ``what``, where it is none."""
    at = datetime.fromisoformat(a_text(value, what))
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _instant_or_none(value: Any, what: str) -> datetime | None:
    return None if value is None else instant(value, what)
