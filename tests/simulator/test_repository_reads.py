"""Reads of repositories and pull requests: refs, files, comparisons, people, pages."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from relay.simulator import App, Simulator, Upstream
from tests.simulator.scene import Caller, Clock


@pytest.fixture
def up(sim: Simulator, app: App) -> Upstream:
    return sim.create_upstream("pytorch/pytorch", files={".github/allowlist.yml": "L1:\n  - org/npu\n", "a.py": "1\n"})


@pytest.fixture
def get(up: Upstream, caller: Caller) -> Callable[..., Any]:
    token = caller.mint(up.installation.id)
    return lambda path, **more: caller.call(token, "GET", f"/repos/pytorch/pytorch{path}", **more)


def test_contents_come_with_an_etag_that_changes_with_the_file(up: Upstream, get: Callable[..., Any]) -> None:
    """The allowlist is read so: base64, at a ref, and 304 when nothing changed."""
    first = get("/contents/.github/allowlist.yml?ref=main")
    assert "L1:\n  - org/npu\n" == base64.b64decode(first.json()["content"]).decode()

    assert 304 == get("/contents/.github/allowlist.yml", headers={"if-none-match": first.headers["etag"]}).status_code
    up.push(files={".github/allowlist.yml": "L2:\n  - org/npu\n"})
    again = get("/contents/.github/allowlist.yml?ref=main", headers={"if-none-match": first.headers["etag"]})
    assert (200, True) == (again.status_code, again.headers["etag"] != first.headers["etag"])
    raw = get("/contents/.github/allowlist.yml", headers={"accept": "application/vnd.github.raw+json"})
    assert "L2:\n  - org/npu\n" == raw.text


def test_contents_that_are_not_there_are_404(get: Callable[..., Any]) -> None:
    """No file, no ref."""
    assert 404 == get("/contents/none.yml").status_code
    assert 404 == get("/contents/a.py?ref=none").status_code


def test_a_file_over_1_mb_has_no_content_in_json(up: Upstream, get: Callable[..., Any]) -> None:
    """The encoding says none, and the raw form still has it."""
    up.push(files={"big": "x" * 1_000_001})

    shown = get("/contents/big").json()
    assert ("none", "", 1_000_001) == (shown["encoding"], shown["content"], shown["size"])
    assert 1_000_001 == len(get("/contents/big", headers={"accept": "application/vnd.github.raw"}).content)


def test_a_fork_s_commit_answers_upstream_but_heads_no_branch_there(up: Upstream, get: Callable[..., Any]) -> None:
    """So "the commit endpoint knows it" proves nothing about the branch it is on."""
    pr = up.open_pull_request()

    assert (200, pr.head_sha) == (
        get(f"/commits/{pr.head_sha}").status_code,
        get(f"/commits/{pr.head_sha}").json()["sha"],
    )
    assert [] == get(f"/commits/{pr.head_sha}/branches-where-head").json()
    assert ["main"] == [item["name"] for item in get(f"/commits/{up.head}/branches-where-head").json()]
    assert ["diverged", "ahead"] == [
        (up.push(), get(f"/compare/{up.head}...{pr.head_sha}").json()["status"])[1],
        get(f"/compare/{pr.pull.base_sha}...{pr.head_sha}").json()["status"],
    ]
    assert 422 == get(f"/commits/{'f' * 40}").status_code


@pytest.mark.parametrize(
    ("basehead", "status", "ahead", "behind"),
    [
        ("main...main", "identical", 0, 0),
        ("release...main", "ahead", 2, 0),
        ("main...release", "behind", 0, 2),
        ("side...main", "diverged", 2, 1),
    ],
)
def test_a_comparison_counts_both_ways(
    up: Upstream, get: Callable[..., Any], basehead: str, status: Any, ahead: int, behind: int
) -> None:
    """ahead, behind, identical, diverged; names with or without slashes."""
    up.push("refs/heads/release", sha=up.head)
    up.push("refs/heads/side")
    up.push(commits=2, files={"b.py": "b\n"})

    found = get(f"/compare/{basehead}").json()

    assert (status, ahead, behind) == (found["status"], found["ahead_by"], found["behind_by"])
    assert ahead == found["total_commits"] == len(found["commits"])


def test_a_comparison_with_nothing_known_is_404(get: Callable[..., Any]) -> None:
    """A missing side, or no dots."""
    assert 404 == get("/compare/main...none").status_code
    assert 404 == get("/compare/main").status_code


def test_branches_are_listed_and_shown(up: Upstream, get: Callable[..., Any]) -> None:
    """Also those with slashes in their names."""
    up.push("refs/heads/release/2.9")

    assert ["main", "release/2.9"] == [item["name"] for item in get("/branches").json()]
    assert up.repository.refs["refs/heads/release/2.9"] == get("/branches/release/2.9").json()["commit"]["sha"]
    assert 404 == get("/branches/none").status_code
    assert 2 == len(get("/commits?sha=release/2.9").json())


def test_a_pull_request_s_files_end_at_3000(up: Upstream, get: Callable[..., Any]) -> None:
    """100 a page, 30 pages, and not one file more: what lies beyond cannot be seen."""
    pr = up.open_pull_request(files=[f"src/{number:05}.py" for number in range(3005)])

    assert 100 == len(get(f"/pulls/{pr.number}/files?per_page=500").json())
    last = get(f"/pulls/{pr.number}/files?per_page=100&page=30")
    assert (100, False) == (len(last.json()), 'rel="next"' in last.headers["link"])
    assert [] == get(f"/pulls/{pr.number}/files?per_page=100&page=31").json()
    first = get(f"/pulls/{pr.number}/files").json()
    assert (30, "src/00000.py", "added") == (len(first), first[0]["filename"], first[0]["status"])


def test_a_pull_request_s_files_are_what_it_changed_since_it_left_the_base(
    up: Upstream, get: Callable[..., Any]
) -> None:
    """What landed on the base meanwhile is not its change."""
    pr = up.open_pull_request(files={"a.py": "2\n", ".github/allowlist.yml": None})
    up.push(files={"other.py": "x\n"})

    assert [(".github/allowlist.yml", "removed"), ("a.py", "modified")] == [
        (item["filename"], item["status"]) for item in get(f"/pulls/{pr.number}/files").json()
    ]


def test_pull_requests_are_listed_by_state_base_and_head(up: Upstream, get: Callable[..., Any]) -> None:
    """Newest first, open ones unless asked."""
    up.push("refs/heads/release")
    one = up.open_pull_request(author="alice", head_ref="topic")
    two = up.open_pull_request(base="release")
    three = up.open_pull_request()
    three.close()

    def numbers(query: str) -> list[int]:
        return [item["number"] for item in get(f"/pulls?{query}").json()]

    assert [two.number, one.number] == numbers("")
    assert [3, 2, 1] == numbers("state=all")
    assert [3] == numbers("state=closed")
    assert [2] == numbers("base=release")
    assert [1] == numbers("head=alice:topic")
    assert [1, 2] == numbers("sort=updated")
    assert one.head_sha == get(f"/pulls/{one.number}").json()["head"]["sha"]
    assert [one.number] == [item["number"] for item in get(f"/commits/{one.head_sha}/pulls").json()]
    assert [one.head_sha] == [item["sha"] for item in get(f"/pulls/{one.number}/commits").json()]
    assert 404 == get("/pulls/99").status_code


def test_pages_link_to_their_neighbours(up: Upstream, get: Callable[..., Any], sim: Simulator) -> None:
    """first, prev, next and last, and the query is kept."""
    for _ in range(5):
        up.open_pull_request()

    links = get("/pulls?per_page=2&page=2&state=all").headers["link"]

    assert [
        f'<{sim.url}/repos/pytorch/pytorch/pulls?per_page=2&page={page}&state=all>; rel="{rel}"'
        for page, rel in ((1, "prev"), (1, "first"), (3, "next"), (3, "last"))
    ] == links.split(", ")
    assert "link" not in get("/pulls?per_page=5").headers


@pytest.mark.parametrize(
    ("role", "folded"),
    [("admin", "admin"), ("maintain", "write"), ("write", "write"), ("triage", "read"), ("read", "read")],
)
def test_role_name_tells_triage_from_read_and_permission_does_not(
    up: Upstream, get: Callable[..., Any], role: str, folded: str
) -> None:
    """The older field folds five roles into three."""
    up.set_role("alice", role)

    answer = get("/collaborators/Alice/permission").json()

    assert (role, folded) == (answer["role_name"], answer["permission"])


def test_anybody_may_read_a_public_repository_and_nobody_unknown_has_a_role(
    up: Upstream, get: Callable[..., Any]
) -> None:
    """A login that does not exist is 404; the owner is admin."""
    up.open_pull_request(author="stranger")

    assert "read" == get("/collaborators/stranger/permission").json()["role_name"]
    assert "admin" == get("/collaborators/pytorch/permission").json()["role_name"]
    assert 404 == get("/collaborators/nobody-of-this-name/permission").status_code


def test_a_custom_role_shows_what_it_stands_on_only_in_the_flags(up: Upstream, get: Callable[..., Any]) -> None:
    """Its own name says nothing; a role that GitHub does not have cannot be given."""
    up.set_role("alice", "triage", custom="security")

    answer = get("/collaborators/alice/permission").json()

    assert ("security", "read") == (answer["role_name"], answer["permission"])
    assert {"pull": True, "triage": True, "push": False, "maintain": False, "admin": False} == answer["user"][
        "permissions"
    ]
    up.set_role("alice", "write")
    assert "write" == get("/collaborators/alice/permission").json()["role_name"]
    with pytest.raises(ValueError, match="a role is one of"):
        up.set_role("alice", "owner")


def test_a_git_commit_tells_its_tree(up: Upstream, get: Callable[..., Any], caller: Caller) -> None:
    """Equal files have an equal tree, however they came about; only a SHA names a git commit."""
    before = up.head
    up.push(files={"b.py": "x\n"})
    middle = up.head
    up.push(files={"b.py": None})

    trees = {sha: get(f"/git/commits/{sha}").json()["tree"]["sha"] for sha in (before, middle, up.head)}
    assert trees[before] == trees[up.head] != trees[middle]
    assert trees[middle] == get(f"/commits/{middle}").json()["commit"]["tree"]["sha"]
    for name in ("main", "f" * 40, before[:12]):
        assert 404 == get(f"/git/commits/{name}").status_code
    narrow = caller.mint(up.installation.id, permissions={"issues": "write"})
    assert 403 == caller.call(narrow, "GET", f"/repos/pytorch/pytorch/git/commits/{before}").status_code


def test_comments_are_listed_since_their_last_change_and_name_their_app(
    up: Upstream, caller: Caller, clock: Clock, app: App
) -> None:
    """Oldest first; a person's comment has no app; what is no time is refused."""
    pr = up.open_pull_request()
    token = caller.mint(up.installation.id)
    path = f"/repos/pytorch/pytorch/issues/{pr.number}/comments"
    up.comment(pr, "eve", "first")
    clock.forward(minutes=5)
    caller.call(token, "POST", path, json={"body": "second"})

    first, second = caller.call(token, "GET", path).json()
    assert (None, app.id) == (first["performed_via_github_app"], second["performed_via_github_app"]["id"])
    since = second["updated_at"]
    assert [second["id"]] == [item["id"] for item in caller.call(token, "GET", f"{path}?since={since}").json()]
    assert 422 == caller.call(token, "GET", f"{path}?since=yesterday").status_code


def test_comments_are_written_changed_and_deleted_by_the_app(up: Upstream, caller: Caller) -> None:
    """With issues or pull requests: write, and within GitHub's length."""
    pr = up.open_pull_request()
    token = caller.mint(up.installation.id, permissions={"pull_requests": "write"})
    path = f"/repos/pytorch/pytorch/issues/{pr.number}/comments"

    made = caller.call(token, "POST", path, json={"body": "Result"})
    assert (201, "crcr-4242[bot]") == (made.status_code, made.json()["user"]["login"])
    one = f"/repos/pytorch/pytorch/issues/comments/{made.json()['id']}"
    assert "Better" == caller.call(token, "PATCH", one, json={"body": "Better"}).json()["body"]
    assert ["Better"] == [item["body"] for item in caller.call(token, "GET", path).json()]
    for body in ({}, {"body": ""}, {"body": 5}, {"body": "x" * 65_537}):
        assert 422 == caller.call(token, "POST", path, json=body).status_code
    assert 201 == caller.call(token, "POST", path, json={"body": "x" * 65_536}).status_code
    assert 204 == caller.call(token, "DELETE", one).status_code
    assert 404 == caller.call(token, "GET", one).status_code
    up.archive()
    assert 403 == caller.call(token, "POST", path, json={"body": "late"}).status_code
    reader = caller.mint(up.installation.id, permissions={"contents": "write"})
    assert 403 == caller.call(reader, "GET", path).status_code


def test_labels_are_added_and_removed_by_the_app(up: Upstream, caller: Caller) -> None:
    """What is not there cannot be removed."""
    pr = up.open_pull_request()
    token = caller.mint(up.installation.id)
    path = f"/repos/pytorch/pytorch/issues/{pr.number}/labels"

    assert ["ciflow/crcr/npu"] == [
        item["name"] for item in caller.call(token, "POST", path, json={"labels": ["ciflow/crcr/npu"]}).json()
    ]
    assert 200 == caller.call(token, "DELETE", f"{path}/ciflow/crcr/npu").status_code
    assert [] == caller.call(token, "GET", path).json()
    assert 404 == caller.call(token, "DELETE", f"{path}/ciflow/crcr/npu").status_code
    assert 422 == caller.call(token, "POST", path, json={"labels": "x"}).status_code


def test_a_repository_answers_by_name_in_any_case_and_by_id(
    up: Upstream, get: Callable[..., Any], caller: Caller
) -> None:
    """And an endpoint that does not exist is 404."""
    token = caller.mint(up.installation.id)

    assert up.id == caller.call(token, "GET", "/repos/PyTorch/PYTORCH").json()["id"]
    assert up.name == caller.call(token, "GET", f"/repositories/{up.id}").json()["full_name"]
    assert 404 == get("/no/such/endpoint").status_code
    assert 404 == caller.call(token, "GET", "/repositories/99999999999999999999").status_code
    rate = caller.call(token, "GET", "/rate_limit").json()["resources"]["core"]
    assert (5000, True) == (rate["limit"], rate["remaining"] < 5000)


def test_a_comparison_and_a_commit_list_300_files_at_most(up: Upstream, get: Callable[..., Any]) -> None:
    """A path filter that relies on them is blind beyond."""
    before = up.head
    up.push(files=[f"src/{number:04}.py" for number in range(301)])

    assert 300 == len(get(f"/compare/{before}...main").json()["files"])
    assert 300 == len(get(f"/commits/{up.head}").json()["files"])
