"""Check runs, changed paths, files and ancestry: what is asked, what is believed."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import httpx
import httpx2
import pytest

from relay.github.client import GitHubClient
from relay.github.errors import Invalid, RetryLater
from relay.github.port import Address, ChangedPaths, CheckAction, CheckRunFound, CheckRunWrite, FileVersion
from tests.github.stand_in import HEAD, UPSTREAM, StandIn

pytestmark = pytest.mark.anyio

UP = Address(UPSTREAM, repository_id=1, installation_id=40)
FILES = "/repos/up/stream/pulls/5/files"


def a_check(**change: Any) -> CheckRunWrite:
    fields: dict[str, Any] = {
        "name": "crcr/org/npu",
        "head_sha": HEAD,
        "status": "in_progress",
        "conclusion": None,
        "title": "running",
        "summary": "since 14:05 UTC",
        "text": "",
        "details_url": "https://relay.example/changes/1",
        "external_id": "17",
        "started_at": datetime(2026, 11, 30, 15, 5, tzinfo=timezone(timedelta(hours=1))),
        "completed_at": None,
    }
    return CheckRunWrite(**(fields | change))


async def test_a_check_run_is_created_and_updated_in_place(client: GitHubClient, github: StandIn) -> None:
    """The whole wanted state travels; times in UTC; the commit only at creation; checks write and nothing else."""
    number = await client.create_check_run(UP, a_check())
    done = a_check(
        status="completed",
        conclusion="failure",
        completed_at=datetime(2026, 11, 30, 14, 9, tzinfo=UTC),
        actions=(CheckAction("Re-run", "Dispatch this backend again", "rerun"),),
    )
    await client.update_check_run(UP, number, done)

    assert 900 == number
    (created,) = github.bodies("/check-runs")
    assert {
        "name": "crcr/org/npu",
        "head_sha": HEAD,
        "status": "in_progress",
        "external_id": "17",
        "details_url": "https://relay.example/changes/1",
        "started_at": "2026-11-30T14:05:00Z",
        "output": {"title": "running", "summary": "since 14:05 UTC", "text": ""},
        "actions": [],
    } == created
    (updated,) = github.bodies("/check-runs/900")
    assert "head_sha" not in updated
    assert ("completed", "failure", "2026-11-30T14:09:00Z") == tuple(
        updated[key] for key in ("status", "conclusion", "completed_at")
    )
    assert [{"label": "Re-run", "description": "Dispatch this backend again", "identifier": "rerun"}] == updated[
        "actions"
    ]
    assert [{"permissions": {"checks": "write"}, "repository_ids": [1]}] == github.bodies("/access_tokens")


async def test_a_long_check_is_cut_to_github_s_limit(client: GitHubClient, github: StandIn) -> None:
    """A check that says less is better than one that GitHub refuses for ever; lone surrogates have no UTF-8."""
    await client.create_check_run(UP, a_check(summary="日" * 70_000, text="x" * 65_535 + "y", title="bad \ud800"))

    (body,) = github.bodies("/check-runs")
    assert (65_535, 65_535) == (len(body["output"]["summary"]), len(body["output"]["text"]))
    assert body["output"]["text"].endswith("x…")
    assert "bad ?" == body["output"]["title"]


@pytest.mark.parametrize(
    "change",
    [
        {"conclusion": "success"},
        {"status": "completed"},
        {"status": "completed", "conclusion": "stale"},
        {"status": "completed", "conclusion": "banana"},
        {"status": "done"},
        {"actions": (CheckAction("a", "b", "c"),) * 4},
    ],
)
def test_a_check_run_that_github_would_refuse_cannot_be_built(change: dict[str, Any]) -> None:
    """GitHub completes a run that carries a conclusion, whatever status is sent with it."""
    with pytest.raises(ValueError):  # noqa: PT011  The enumerations' own words differ by Python version.
        a_check(**change)


@pytest.mark.parametrize("fields", [("x" * 21, "d", "i"), ("l", "x" * 41, "i"), ("l", "d", "x" * 21), ("", "d", "i")])
def test_an_action_s_words_fit_its_button(fields: tuple[str, str, str]) -> None:
    """GitHub's limits are 20, 40 and 20 characters."""
    with pytest.raises(ValueError, match="characters"):
        CheckAction(*fields)


async def test_an_ambiguous_create_can_be_looked_up(client: GitHubClient, github: StandIn) -> None:
    """After a 502 the check may be there: ours are known by name and external id, the newest first."""
    github.will("POST", "/repos/up/stream/check-runs", httpx.Response(502))
    with pytest.raises(RetryLater) as caught:
        await client.create_check_run(UP, a_check())
    assert caught.value.ambiguous

    full = [{"id": n, "name": "crcr/org/npu", "external_id": "other"} for n in range(1, 101)]
    rest = [
        {"id": 300, "name": "crcr/org/npu", "external_id": "17", "status": "completed", "conclusion": "success"},
        {"id": 301, "name": "crcr/org/npu", "external_id": "17", "status": "queued", "conclusion": None},
        {"id": 302, "name": "crcr/gate", "external_id": "17"},
        {"id": 303, "name": "crcr/org/npu", "external_id": None},
    ]
    path = f"/repos/up/stream/commits/{HEAD}/check-runs"
    github.will("GET", path, *(httpx.Response(200, json={"check_runs": page}) for page in (full, rest, [])))

    both = (CheckRunFound(301, "queued", None), CheckRunFound(300, "completed", "success"))
    assert both == await client.find_check_runs(UP, HEAD, "crcr/org/npu", "17")
    assert () == await client.find_check_runs(UP, HEAD, "crcr/org/npu", "17")
    asked = dict(github.calls("GET", "/check-runs")[1].url.params)
    assert {"check_name": "crcr/org/npu", "filter": "all", "per_page": "100", "page": "2", "app_id": "11"} == asked


@pytest.mark.parametrize(
    "answer",
    [b"", b"<html>", b"[]", b'{"id":"900"}', b'{"id":true}', b'{"id":-1}', b'{"id":1e30}', b"[" * 200_000],
)
async def test_a_created_check_run_with_an_unreadable_answer_is_ambiguous(
    client: GitHubClient, github: StandIn, answer: bytes
) -> None:
    """201 says that it exists, whatever the body is; so it is looked up and not created twice."""
    github.will("POST", "/repos/up/stream/check-runs", httpx.Response(201, content=answer))

    with pytest.raises(RetryLater) as caught:
        await client.create_check_run(UP, a_check())

    assert (True, "bad_answer") == (caught.value.ambiguous, caught.value.reason)


async def test_a_commit_that_github_does_not_know_yet_is_asked_for_again(client: GitHubClient, github: StandIn) -> None:
    """A webhook can be quicker than GitHub's own copies; a gate that was given up for that would block for ever."""
    refused = [{"message": f"No commit found for SHA: {HEAD}"}, {"message": "Invalid request."}]
    answers = [httpx.Response(422, json=body) for body in refused]
    github.will("POST", "/repos/up/stream/check-runs", *answers)

    with pytest.raises(RetryLater) as caught:
        await client.create_check_run(UP, a_check())
    with pytest.raises(Invalid):
        await client.create_check_run(UP, a_check())

    assert (False, "commit_unknown") == (caught.value.ambiguous, caught.value.reason)


async def test_looking_for_a_check_run_waits_for_its_commit_too(client: GitHubClient, github: StandIn) -> None:
    """An earlier create may have had its effect, so who gives up the look leaves a check open that nobody will end."""
    said = (422, f"No commit found for SHA: {HEAD}"), (404, "Not Found"), (422, "Validation Failed")
    answers = [httpx.Response(status, json={"message": words}) for status, words in said]
    github.will("GET", f"/repos/up/stream/commits/{HEAD}/check-runs", *answers)
    reasons = []

    for error in (RetryLater, RetryLater, Invalid):
        with pytest.raises(error) as caught:
            await client.find_check_runs(UP, HEAD, "crcr/org/npu", "17")
        reasons.append(caught.value.reason)

    assert ["commit_unknown", "commit_unknown", "refused"] == reasons


async def test_a_vanished_check_run_is_not_an_uninstalled_app(client: GitHubClient, github: StandIn) -> None:
    """The token was just minted, so the app is there; the check run is what is missing."""
    github.will("PATCH", "/repos/up/stream/check-runs/5", httpx.Response(404, json={"message": "Not Found"}))

    with pytest.raises(Invalid) as caught:
        await client.update_check_run(UP, 5, a_check())

    assert "not_found" == caught.value.reason


def page_of(count: int, start: int = 0) -> httpx.Response:
    return httpx.Response(200, json=[{"filename": f"src/{n}.py"} for n in range(start, start + count)])


async def test_changed_paths_are_read_to_the_last_page(client: GitHubClient, github: StandIn) -> None:
    """All pages, each file once, moved files under both names."""
    moved = httpx.Response(200, json=[{"filename": "new.py", "previous_filename": "old.py"}, {"filename": "src/0.py"}])
    github.will("GET", FILES, page_of(100), moved)

    changed = await client.changed_paths(UP, 5)

    assert ChangedPaths((*(f"src/{n}.py" for n in range(100)), "new.py", "old.py"), complete=True) == changed
    assert [{"permissions": {"pull_requests": "read"}, "repository_ids": [1]}] == github.bodies("/access_tokens")


async def test_a_full_last_page_is_followed_by_an_empty_one(client: GitHubClient, github: StandIn) -> None:
    """Exactly 100 files are complete, but only the second page can say so."""
    github.will("GET", FILES, page_of(100), page_of(0))

    assert (await client.changed_paths(UP, 5)).complete
    assert 2 == len(github.calls("GET", "/files"))


async def test_three_thousand_files_are_where_github_stops(client: GitHubClient, github: StandIn) -> None:
    """Beyond GitHub's end nobody knows, so the listing is not complete and the reader dispatches."""
    github.will("GET", FILES, *(page_of(100, start) for start in range(0, 3_000, 100)))

    changed = await client.changed_paths(UP, 5)

    assert (3_000, False) == (len(changed.paths), changed.complete)
    assert 30 == len(github.calls("GET", "/files"))


async def test_a_renamed_repository_keeps_the_page(client: GitHubClient, github: StandIn) -> None:
    """GitHub's redirect names the page too: a listing that lost it would look complete after its first page."""
    target = "https://api.github.com/repositories/1/pulls/5/files?per_page=100&page=1"
    github.will("GET", FILES, httpx.Response(301, headers={"location": target}), page_of(3, 100))
    github.will("GET", "/repositories/1/pulls/5/files", page_of(100))

    assert 103 == len((await client.changed_paths(UP, 5)).paths)


@pytest.mark.parametrize(
    ("status", "count", "complete"),
    [("ahead", 3, True), ("identical", 0, True), ("ahead", 300, False), ("diverged", 3, False), ("behind", 0, False)],
)
async def test_a_comparison_is_complete_only_for_plain_progress(
    client: GitHubClient, github: StandIn, status: str, count: int, complete: bool
) -> None:
    """After a force-push the listing leaves out what the old head alone had; at 300 files GitHub stops."""
    files = [{"filename": f"{n}.c"} for n in range(count)]
    path = f"/repos/up/stream/compare/{'b' * 40}...{HEAD}"
    github.will("GET", path, httpx.Response(200, json={"status": status, "files": files}))

    changed = await client.compare_paths(UP, "b" * 40, HEAD)

    assert (tuple(f"{n}.c" for n in range(count)), complete) == (changed.paths, changed.complete)


@pytest.mark.parametrize(("base", "head"), [("0" * 40, HEAD), (HEAD, "0" * 40)])
async def test_a_new_branch_has_nothing_to_compare_with(
    client: GitHubClient, github: StandIn, base: str, head: str
) -> None:
    """No call is made; the answer is that there may be more, so the reader dispatches."""
    assert ChangedPaths((), complete=False) == await client.compare_paths(UP, base, head)
    await client.locate(UP)
    assert [] == github.calls("GET", HEAD)


LIST = Address(UPSTREAM, 1, 40), ".github/allow list.yml", "release/1.x"


async def test_a_file_is_read_once_and_then_only_looked_at(client: GitHubClient, github: StandIn) -> None:
    """The ETag of the last version makes the next look free while nothing changed."""
    path = "/repos/up/stream/contents/.github/allow list.yml"
    github.will(
        "GET",
        path,
        httpx.Response(200, content=b"L1:\n", headers={"etag": 'W/"abc"', "content-type": "text/plain"}),
        httpx.Response(304),
    )
    of, file, ref = LIST
    first = await client.read_file(of, file, ref, None)
    assert FileVersion(b"L1:\n", 'W/"abc"') == first

    assert await client.read_file(of, file, ref, 'W/"abc"') is None
    one, two = github.calls("GET", ".yml")
    assert ("if-none-match" in one.headers, 'W/"abc"') == (False, two.headers["if-none-match"])
    assert "application/vnd.github.raw+json" == one.headers["accept"]
    assert "release/1.x" == one.url.params["ref"]


async def test_a_file_told_in_json_is_understood(client: GitHubClient, github: StandIn) -> None:
    """Servers between us and GitHub may ignore what form we accept; a folder is no file."""
    path = "/repos/up/stream/contents/a.yml"
    told: dict[str, Any] = {
        "type": "file",
        "encoding": "base64",
        "content": base64.encodebytes(b"L1: []\n" * 20).decode(),
    }
    folder = [{"type": "file", "name": "a.yml"}, {"type": "dir", "name": "b"}]
    bodies: list[Any] = [told, folder, told | {"content": "%%"}, {"L1": []}]
    github.will("GET", path, *(httpx.Response(200, json=body) for body in bodies))

    version = await client.read_file(UP, "a.yml", None, None)
    assert version is not None
    assert b"L1: []\n" * 20 == version.text
    with pytest.raises(Invalid, match="is a folder"):
        await client.read_file(UP, "a.yml", None, None)
    with pytest.raises(RetryLater):
        await client.read_file(UP, "a.yml", None, None)
    own = await client.read_file(UP, "a.yml", None, None)
    assert own is not None
    assert {"L1": []} == json.loads(own.text)


@pytest.mark.parametrize("path", ["", "/a", "../x", "a/../../b", "a//b", "./a", "a/"])
async def test_a_path_cannot_leave_the_repository(client: GitHubClient, github: StandIn, path: str) -> None:
    """A path with dots would name another endpoint of the API."""
    with pytest.raises(Invalid, match="part"):
        await client.read_file(UP, path, None, None)
    assert [] == github.calls("GET")


async def test_a_missing_file_is_said_to_be_missing(client: GitHubClient, github: StandIn) -> None:
    """Not "the app is not installed", which would send the admin to the wrong page."""
    with pytest.raises(Invalid, match=r"finds the file a.yml nowhere in up/stream"):
        await client.read_file(UP, "a.yml", None, None)
    assert 1 == github.minted


def compared(status: str) -> httpx.Response:
    return httpx.Response(200, json={"status": status, "files": []})


@pytest.mark.parametrize(
    ("main", "release", "contained"),
    [
        (compared("behind"), None, True),
        (compared("identical"), None, True),
        (compared("ahead"), compared("behind"), True),
        (compared("diverged"), httpx.Response(404), False),
        (httpx.Response(404), compared("identical"), True),
        (httpx.Response(404), httpx.Response(404), False),
    ],
)
async def test_a_commit_belongs_where_a_branch_holds_it(
    client: GitHubClient, github: StandIn, main: httpx.Response, release: httpx.Response | None, contained: bool
) -> None:
    """A fork's commit answers at upstream's commit endpoint; only a branch that is not behind it proves anything."""
    github.will("GET", f"/repos/up/stream/compare/main...{HEAD}", main)
    if release is not None:
        github.will("GET", f"/repos/up/stream/compare/release/1...{HEAD}", release)

    assert contained == await client.contains_commit(UP, HEAD, ["release/1"])


async def test_what_is_no_sha_is_nowhere(client: GitHubClient, github: StandIn) -> None:
    """A branch name in place of a SHA would be compared with itself and "found"."""
    assert not await client.contains_commit(UP, "main")
    assert not await client.contains_commit(UP, HEAD.upper() + "\n")
    await client.locate(UP)
    assert 1 == len(github.requests)


async def test_a_read_is_tried_again_when_the_connection_breaks(client: GitHubClient, github: StandIn) -> None:
    """One quick second try for reads; a timeout is not repeated, since it has cost ten seconds already."""
    github.will("GET", FILES, httpx2.ReadError("x"), page_of(1), httpx2.ReadTimeout("x"))
    assert ("src/0.py",) == (await client.changed_paths(UP, 5)).paths

    with pytest.raises(RetryLater) as caught:
        await client.changed_paths(UP, 5)

    assert not caught.value.ambiguous
    assert 3 == len(github.calls("GET", "/files"))
