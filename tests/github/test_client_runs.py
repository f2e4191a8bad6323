"""Runs: what is asked, what is believed, and what a refused rerun means for the run."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from allowlist.model import RepoName
from relay.github.client import GitHubClient
from relay.github.errors import Forbidden, GitHubError, Invalid, Limited, NotInstalled, RetryLater
from relay.github.observed import FoundRun, JobObserved, Rerun, Rerunning, RunObserved
from relay.github.port import Address
from tests.github.stand_in import HEAD, StandIn

pytestmark = pytest.mark.anyio

NPU = Address(RepoName("org", "npu"), repository_id=7, installation_id=50)
RUNS = "/repos/org/npu/actions/runs"
ONE = f"{RUNS}/17"
THEN = datetime(2026, 11, 30, 11, 0, tzinfo=UTC)


def a_run(**change: Any) -> dict[str, Any]:
    return {
        "id": 17,
        "name": "ci",
        "display_title": "crcr d-1",
        "status": "completed",
        "conclusion": "failure",
        "run_attempt": 2,
        "path": ".github/workflows/ci.yml",
        "event": "repository_dispatch",
        "head_sha": HEAD,
        "created_at": "2026-11-30T11:00:00Z",
        "updated_at": "2026-11-30T11:30:00Z",
    } | change


def a_job(**change: Any) -> dict[str, Any]:
    return {
        "id": 5,
        "name": "build (3.12)",
        "status": "completed",
        "conclusion": "success",
        "started_at": "2026-11-30T11:01:00Z",
        "completed_at": "2026-11-30T11:02:00Z",
    } | change


def told(body: Any, status: int = 200, **headers: str) -> httpx.Response:
    return httpx.Response(status, json=body, headers=headers)


async def test_an_attempt_is_observed_and_the_next_look_is_free(client: GitHubClient, github: StandIn) -> None:
    """Its own status, conclusion and workflow file; a 304 says that nothing changed."""
    path = f"{ONE}/attempts/2"
    github.will("GET", path, told(a_run(), etag='W/"r"'), httpx.Response(304))

    ended = THEN + timedelta(minutes=30)
    expected = RunObserved(
        "17", 2, "completed", "failure", ".github/workflows/ci.yml", "repository_dispatch", HEAD, "crcr d-1",
        THEN, ended, 'W/"r"',
    )  # fmt: skip
    assert expected == await client.observe_run(NPU, "17", 2, None)
    assert await client.observe_run(NPU, "17", 2, 'W/"r"') is None
    assert 'W/"r"' == github.calls("GET", "/attempts/2")[1].headers["if-none-match"]
    assert [{"permissions": {"actions": "read"}, "repository_ids": [7]}] == github.bodies("/access_tokens")


@pytest.mark.parametrize(
    ("path", "file"),
    [
        (".github/workflows/ci.yml@main", ".github/workflows/ci.yml"),
        (".github/workflows/ci.yaml@refs/heads/a.yml", ".github/workflows/ci.yaml"),
        (".github/workflows/a@b.yml", ".github/workflows/a@b.yml"),
        ("dynamic/pages/build", "dynamic/pages/build"),
        (None, ""),
    ],
)
async def test_a_workflow_file_is_told_without_its_ref(
    client: GitHubClient, github: StandIn, path: str | None, file: str
) -> None:
    """GitHub adds the ref in some answers; the file is what is compared with the one a callback claims."""
    github.will("GET", f"{ONE}/attempts/2", told(a_run(path=path)))

    observed = await client.observe_run(NPU, "17", 2, None)

    assert observed is not None
    assert file == observed.path


@pytest.mark.parametrize(
    "change",
    [
        {"id": "17"},
        {"run_attempt": 0},
        {"status": None},
        {"head_sha": "main"},
        {"created_at": "soon"},
        {"updated_at": 5},
    ],
)
async def test_an_attempt_that_is_none_is_an_outage(client: GitHubClient, github: StandIn, change: Any) -> None:
    """What GitHub says decides between verified and disputed, so it is believed whole or not at all."""
    github.will("GET", f"{ONE}/attempts/2", told(a_run(**change)))

    with pytest.raises(RetryLater, match="unreadable"):
        await client.observe_run(NPU, "17", 2, None)


async def test_a_title_cannot_spoil_a_look(client: GitHubClient, github: StandIn) -> None:
    """Whoever names a run, its odd characters are replaced and the run is still seen."""
    body = json.dumps(a_run(display_title="a\x00b\ud800 d-1")).encode()
    github.will("GET", f"{ONE}/attempts/2", httpx.Response(200, content=body))

    observed = await client.observe_run(NPU, "17", 2, None)

    assert observed is not None
    assert "a\ufffdb\ufffd d-1" == observed.title


async def test_an_attempt_that_is_not_there_is_said_to_be_missing(client: GitHubClient, github: StandIn) -> None:
    """Not "the app is not installed"."""
    with pytest.raises(Invalid, match="attempt 3 of the run 17 nowhere in org/npu") as caught:
        await client.observe_run(NPU, "17", 3, None)

    assert "not_found" == caught.value.reason


@pytest.mark.parametrize("run_id", ["", "abc", "1/../2", "１７", "-1", "1" * 20, "17?x"])
async def test_a_run_s_id_has_digits_only(client: GitHubClient, github: StandIn, run_id: str) -> None:
    """It was told by a callback, and anything else would name another endpoint."""
    with pytest.raises(Invalid, match="digits only") as caught:
        await client.rerun_run(NPU, run_id)
    assert "run_id" == caught.value.reason
    with pytest.raises(Invalid, match="digits only"):
        await client.observe_jobs(NPU, run_id, 1)
    assert [] == [request for request in github.requests if "/actions/" in request.url.path]


async def test_jobs_are_read_to_the_last_page(client: GitHubClient, github: StandIn) -> None:
    """A matrix has more jobs than a page; a job that waits has neither start nor end."""
    waits = a_job(id=500, name="late", status="queued", conclusion=None, started_at=None, completed_at=None)
    first = [a_job(id=number) for number in range(1, 101)]
    github.will("GET", f"{ONE}/attempts/2/jobs", told({"jobs": first}), told({"jobs": [first[-1], waits]}))

    jobs = await client.observe_jobs(NPU, "17", 2)

    minute = timedelta(minutes=1)
    assert JobObserved(1, "build (3.12)", "completed", "success", THEN + minute, THEN + 2 * minute) == jobs[0]
    assert (101, JobObserved(500, "late", "queued", None, None, None)) == (len(jobs), jobs[-1])


async def test_jobs_end_at_a_thousand(client: GitHubClient, github: StandIn) -> None:
    """A run with jobs without end costs ten calls and no more."""
    pages = [told({"jobs": [a_job(id=page * 100 + n) for n in range(1, 101)]}) for page in range(12)]
    github.will("GET", f"{ONE}/attempts/1/jobs", *pages)

    assert 1_000 == len(await client.observe_jobs(NPU, "17", 1))
    assert 10 == len(github.calls("GET", "/jobs"))


@pytest.mark.parametrize(
    "body", [{}, {"jobs": None}, {"jobs": [5]}, {"jobs": [a_job(id=None)]}, {"jobs": [a_job(started_at="x")]}]
)
async def test_jobs_that_are_none_are_an_outage(client: GitHubClient, github: StandIn, body: Any) -> None:
    """An unreadable listing must not look like a run without jobs."""
    github.will("GET", f"{ONE}/attempts/1/jobs", told(body))

    with pytest.raises(RetryLater, match="unreadable"):
        await client.observe_jobs(NPU, "17", 1)


async def test_runs_are_listed_until_they_are_older_than_asked(client: GitHubClient, github: StandIn) -> None:
    """The newest come first, so the first old one ends the search; one that moved to the next page counts once."""
    page = [a_run(id=number, conclusion=None, status="queued") for number in range(200, 100, -1)]
    old = a_run(id=1, created_at="2026-11-30T10:59:59Z")
    github.will("GET", RUNS, told({"workflow_runs": page}), told({"workflow_runs": [page[-1], old] * 50}))

    runs = await client.find_runs(NPU, THEN)

    assert FoundRun("200", "crcr d-1", "queued", None, 2, ".github/workflows/ci.yml", THEN) == runs[0]
    assert [str(number) for number in range(200, 100, -1)] == [run.run_id for run in runs]
    assert {"event": "repository_dispatch", "per_page": "100", "page": "2"} == dict(
        github.calls("GET", "/runs")[1].url.params
    )
    assert 2 == len(github.calls("GET", "/runs"))


async def test_runs_that_we_may_not_see_are_an_error_and_not_none(client: GitHubClient, github: StandIn) -> None:
    """ "No such run" would be taken for a lost dispatch; the older question answers None for the same."""
    refused = told({"message": "Resource not accessible by integration"}, 403)
    github.will("GET", RUNS, refused, refused)

    with pytest.raises(Forbidden):
        await client.find_runs(NPU, THEN)
    assert await client.find_run(NPU, "d-1", THEN) is None


async def test_a_rerun_is_asked_for_once(client: GitHubClient, github: StandIn) -> None:
    """With the one permission it needs and no body; each of the two buttons has an endpoint."""
    github.will("POST", f"{ONE}/rerun", told({}, 201))
    github.will("POST", f"{ONE}/rerun-failed-jobs", told({}, 201))

    assert Rerunning(Rerun.STARTED) == await client.rerun_run(NPU, "17")
    assert Rerunning(Rerun.STARTED) == await client.rerun_failed_jobs(NPU, "17")
    assert [b"", b""] == [request.content for request in github.calls("POST", "")[1:]]
    assert [{"permissions": {"actions": "write"}, "repository_ids": [7]}] == github.bodies("/access_tokens")


# GitHub sends this with any refusal, https://docs.github.com/rest/overview/permissions-required-for-github-apps
NAMED = {"x-accepted-github-permissions": "actions=write"}


@pytest.mark.parametrize(
    ("status", "message"),
    [(403, "This workflow is already running"), (403, "The workflow run is ALREADY RUNNING."), (409, "Conflict")],
)
@pytest.mark.parametrize("headers", [{}, NAMED])
async def test_a_run_that_runs_needs_no_rerun(
    client: GitHubClient, github: StandIn, status: int, message: str, headers: dict[str, str]
) -> None:
    """Two people press at once, or our first try got through: what was wanted is under way."""
    github.will("POST", f"{ONE}/rerun", told({"message": message}, status, **headers))

    assert Rerunning(Rerun.RUNNING) == await client.rerun_run(NPU, "17")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (403, "Unable to re-run this workflow run because it was created over a month ago"),
        (403, "Unable to retry this workflow run because it was created over a month ago"),
        (403, "This workflow run cannot be retried"),
        (403, "This workflow run has been rerun too many times"),
        (404, "Not Found"),
        (410, "Gone"),
        (422, "The run cannot be run again"),
    ],
)
@pytest.mark.parametrize("headers", [{}, NAMED])
async def test_a_run_that_will_not_run_again_says_why(
    client: GitHubClient, github: StandIn, status: int, message: str, headers: dict[str, str]
) -> None:
    """The permission that GitHub names beside it is not what is missing; the caller dispatches anew and says so."""
    github.will("POST", f"{ONE}/rerun-failed-jobs", told({"message": message}, status, **headers))

    answer = await client.rerun_failed_jobs(NPU, "17")

    assert Rerun.IMPOSSIBLE is answer.outcome
    assert ("nowhere in org/npu" if status == 404 else message) in answer.reason
    assert "needs the permission" not in answer.reason


@pytest.mark.parametrize(
    ("status", "message", "kind", "reason"),
    [
        (403, "Resource not accessible by integration", Forbidden, "missing_permission"),
        (403, "Must have admin rights to Repository to re-run.", Forbidden, "missing_permission"),
        (403, "", Forbidden, "missing_permission"),
        (403, "Repository was archived so is read-only.", Forbidden, "archived"),
        (403, "Actions has been disabled for this workflow run.", Forbidden, "actions_disabled"),
        (403, "You have exceeded a secondary rate limit.", Limited, "rate_limited"),
        (429, "Too many re-runs", Limited, "rate_limited"),
        (502, "Unable to re-run", RetryLater, "github_unavailable"),
    ],
)
async def test_a_refusal_that_says_nothing_of_the_run_stands(
    client: GitHubClient, github: StandIn, status: int, message: str, kind: type[GitHubError], reason: str
) -> None:
    """A missing permission, a setting, a limit and an outage are no reason to dispatch anew behind someone's back."""
    github.will("POST", f"{ONE}/rerun", told({"message": message}, status, **NAMED))

    with pytest.raises(kind) as caught:
        await client.rerun_run(NPU, "17")

    assert reason == caught.value.reason
    assert (status == 502) == getattr(caught.value, "ambiguous", False)


async def test_an_installation_without_actions_write_is_forbidden_at_the_mint(
    client: GitHubClient, github: StandIn
) -> None:
    """The token itself is refused, before any rerun; that is no "refused run" although it is a 422 as well."""
    mint = "/app/installations/50/access_tokens"
    github.will("POST", mint, told({"message": "The permissions requested are not granted to this installation."}, 422))

    with pytest.raises(Forbidden) as caught:
        await client.rerun_run(NPU, "17")

    assert ("missing_permission", "actions: write") == (caught.value.reason, caught.value.permission)


async def test_an_app_that_is_gone_is_not_a_run_that_is_gone(client: GitHubClient, github: StandIn) -> None:
    """Dispatching anew would fail alike."""
    github.repositories.clear()

    with pytest.raises(NotInstalled):
        await client.rerun_run(Address(RepoName("org", "npu")), "17")


@pytest.mark.parametrize(("status", "taken"), [(202, True), (409, False), (404, False), (410, False)])
async def test_a_cancel_that_comes_late_is_no_error(
    client: GitHubClient, github: StandIn, status: int, taken: bool
) -> None:
    """The run was over or is gone: nothing is left to cancel."""
    github.will("POST", f"{ONE}/cancel", told({"message": "x"}, status))

    assert taken == await client.cancel_run(NPU, "17")


async def test_a_cancel_that_is_refused_says_so(client: GitHubClient, github: StandIn) -> None:
    """A missing permission is somebody's to grant; what GitHub finds invalid is ours to mend."""
    github.will("POST", f"{ONE}/cancel", told({"message": "Resource not accessible by integration"}, 403))
    github.will("POST", f"{ONE}/cancel", told({"message": "No"}, 422))

    with pytest.raises(Forbidden):
        await client.cancel_run(NPU, "17")
    with pytest.raises(Invalid):
        await client.cancel_run(NPU, "17")
