"""GitHub's answers as values. Everything in them is checked here; what does not fit raises ValueError."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from allowlist.model import RepoName
from relay.github.port import ChangedPaths, Located

# GitHub lists at most this many files, https://docs.github.com/rest/pulls/pulls#list-pull-requests-files
# and https://docs.github.com/rest/commits/commits#compare-two-commits
MOST_PULL_FILES = 3_000
MOST_COMPARED_FILES = 300


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

    check_run_id: int
    name: str
    external_id: str


@dataclass(frozen=True, slots=True)
class FoundRun:
    """One run in a listing. ``title`` is its ``run-name`` where its workflow sets one."""

    title: str
    created_at: datetime


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


def minted(answer: Any, installation_id: int) -> Minted:
    """The answer of the mint, which names the one repository that the token was narrowed to."""
    body = a_dict(answer, "the answer")
    secret = a_text(body.get("token"), "token")
    if not secret.isascii() or not secret.isprintable() or " " in secret:
        raise ValueError("token cannot stand in a header")
    expires_at = datetime.fromisoformat(a_text(body.get("expires_at"), "expires_at"))
    repositories = a_list(body.get("repositories"), "repositories")
    if len(repositories) != 1:
        raise ValueError(f"repositories holds {len(repositories)}, where the token was narrowed to one")
    repository = a_dict(repositories[0], "repositories[0]")
    owner = a_dict(repository.get("owner"), "repositories[0].owner")
    branch = repository.get("default_branch")
    return Minted(
        secret=secret,
        expires_at=expires_at if expires_at.tzinfo else expires_at.replace(tzinfo=UTC),
        located=Located(
            installation_id=installation_id,
            repository_id=an_id(repository.get("id"), "repositories[0].id"),
            owner_id=an_id(owner.get("id"), "repositories[0].owner.id"),
            # What does not say that it is public is treated as private.
            private=repository.get("private") is not False,
            full_name=RepoName.parse(a_text(repository.get("full_name"), "repositories[0].full_name")),
            default_branch=a_text(branch, "default_branch") if branch is not None else None,
        ),
    )


def check_runs(answer: Any) -> tuple[FoundCheck, ...]:
    """One page of a commit's check runs."""
    runs = a_list(a_dict(answer, "the answer").get("check_runs"), "check_runs")
    return tuple(
        FoundCheck(
            an_id(a_dict(run, "a check run").get("id"), "a check run's id"),
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
            str(a_dict(run, "a run").get("display_title") or run.get("name") or ""),
            datetime.fromisoformat(a_text(run.get("created_at"), "created_at")),
        )
        for run in listed
    )


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
