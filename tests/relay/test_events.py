"""Webhooks become typed events, are ignored with a reason, or are refused with every fault named."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from allowlist.model import RepoName
from relay.deciding.events import (
    Ignored,
    InstallationEvent,
    InstalledRepository,
    PingEvent,
    PullRequestEvent,
    PushEvent,
    parse,
)
from relay.deciding.reading import BadEventError
from tests.relay.bodies import (
    SHA_1,
    SHA_2,
    UPSTREAM,
    ZERO,
    check_run,
    check_suite,
    comment,
    pull_request,
    push,
    set_at,
)

DATA = Path(__file__).parent / "data"


def faults_of(event: str, raw: object) -> dict[str, str]:
    """The rule broken by each field at fault."""
    with pytest.raises(BadEventError) as caught:
        parse(event, raw, UPSTREAM)
    assert all(fault.fix for fault in caught.value.faults)
    return {fault.field: fault.rule for fault in caught.value.faults}


def test_a_pull_request_is_read_whole() -> None:
    """Every field has its type, names are in lower case, and times carry their zone."""
    found = parse("pull_request", pull_request(), UPSTREAM)

    assert found == PullRequestEvent(
        action="opened",
        number=7,
        head_sha=SHA_1,
        head_ref="topic",
        head_repo=RepoName("ada", "stream"),
        base_ref="main",
        base_sha=SHA_2,
        base_repo=UPSTREAM,
        labels=("bug",),
        label=None,
        author="ada",
        author_association="MEMBER",
        title="Fix it",
        draft=False,
        merged=False,
        closed=False,
        merge_commit_sha=None,
        html_url="https://github.com/up/stream/pull/7",
        updated_at=datetime(2026, 11, 30, 10, tzinfo=UTC),
        before=None,
        after=None,
        base_changed=False,
        sender="ada",
    )


def test_a_push_is_read_whole() -> None:
    """GitHub writes a push's time as seconds since 1970, unlike any other time of its."""
    assert parse("push", push(), UPSTREAM) == PushEvent(
        ref="refs/heads/main",
        before=SHA_1,
        after=SHA_2,
        base_ref=None,
        repository=UPSTREAM,
        sender="bot",
        message="Land it",
        pushed_at=datetime.fromtimestamp(1_764_500_000, UTC),
    )


@pytest.mark.parametrize(
    ("path", "value", "field", "expected"),
    [
        ("pull_request.head.repo", None, "head_repo", None),
        ("pull_request.user", None, "author", "ghost"),
        ("sender", None, "sender", "ghost"),
        ("pull_request.labels", [], "labels", ()),
        ("pull_request.labels", None, "labels", ()),
        ("pull_request.title", "x" * 5000, "title", "x" * 1024),
        ("pull_request.title", "\ufffd`$(rm -rf /)`", "title", "\ufffd`$(rm -rf /)`"),
        ("pull_request.title", None, "title", ""),
        ("pull_request.draft", ..., "draft", False),
        ("pull_request.merged", None, "merged", False),
        ("pull_request.updated_at", ..., "updated_at", None),
        ("pull_request.updated_at", "2026-11-30T12:00:00+02:00", "updated_at", datetime(2026, 11, 30, 10, tzinfo=UTC)),
        ("pull_request.author_association", ..., "author_association", ""),
        ("pull_request.head.sha", "A" * 40, "head_sha", SHA_1),
        ("pull_request.head.sha", "c" * 64, "head_sha", "c" * 64),
        ("pull_request.state", "closed", "closed", False),  # An "opened" speaks of an open pull request.
    ],
)
def test_what_github_may_leave_out_is_no_fault(path: str, value: Any, field: str, expected: Any) -> None:
    """A deleted fork, a ghost, no labels: all of it happens, and none of it stops a dispatch."""
    raw = pull_request()
    set_at(raw, path, value)

    assert expected == getattr(parse("pull_request", raw, UPSTREAM), field)


def test_a_synchronize_names_the_heads_it_links() -> None:
    """The link orders heads that share a second."""
    found = parse("pull_request", pull_request("synchronize") | {"before": SHA_2, "after": SHA_1}, UPSTREAM)

    assert isinstance(found, PullRequestEvent)
    assert (SHA_2, SHA_1) == (found.before, found.after)


def test_a_label_is_named_by_the_events_that_move_one() -> None:
    """Which label it was decides whether a run starts."""
    found = parse("pull_request", pull_request("labeled") | {"label": {"name": "ciflow/crcr/npu"}}, UPSTREAM)

    assert isinstance(found, PullRequestEvent)
    assert "ciflow/crcr/npu" == found.label


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("action", 5),
        ("action", ...),
        ("pull_request", None),
        ("pull_request", []),
        ("pull_request.number", "7"),
        ("pull_request.number", True),
        ("pull_request.number", 0),
        ("pull_request.number", 2**63),
        ("pull_request.number", 7.0),
        ("pull_request.head", None),
        ("pull_request.head.sha", "abc"),
        ("pull_request.head.sha", "g" * 40),
        ("pull_request.head.sha", "a" * 41),
        ("pull_request.head.sha", 1234567890123456789012345678901234567890),
        ("pull_request.head.ref", ""),
        ("pull_request.head.ref", "x" * 1025),
        ("pull_request.head.repo.full_name", "no-slash"),
        ("pull_request.base.ref", 3),
        ("pull_request.base.sha", None),
        ("pull_request.base.repo.full_name", "a/b/c"),
        ("pull_request.labels", "bug"),
        ("pull_request.labels", [{"name": 5}]),
        ("pull_request.labels", [5]),
        ("pull_request.labels", [{}]),
        ("pull_request.labels", [{"name": "x"}] * 1001),
        ("pull_request.title", 5),
        ("pull_request.draft", "yes"),
        ("pull_request.merged", 1),
        ("pull_request.merge_commit_sha", "none"),
        ("pull_request.html_url", ["x"]),
        ("pull_request.updated_at", "yesterday"),
        ("pull_request.updated_at", "2026-11-30T10:00:00"),
        ("pull_request.updated_at", "0001-01-01T00:00:00+23:59"),
        ("pull_request.updated_at", 10**20),
        ("pull_request.updated_at", True),
        ("pull_request.user.login", 5),
        ("pull_request.user", "ada"),
        ("sender.login", {}),
        ("repository.full_name", 5),
        ("repository.full_name", "up stream"),
        ("repository", None),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(path: str, value: Any) -> None:
    """Numbers where strings belong, and the reverse: the answer says which field, which rule, and what to send."""
    raw = pull_request()
    set_at(raw, path, value)

    faults = faults_of("pull_request", raw)

    assert any(field.startswith(path) for field in faults)


def test_every_fault_is_named_and_not_the_first_only() -> None:
    """Whoever mends a sender by hand should need one round."""
    raw = pull_request(pull_request__number="7", pull_request__head__sha=None, pull_request__labels=[{"name": 1}])

    assert {"pull_request.number", "pull_request.head.sha", "pull_request.labels[0].name"} == faults_of(
        "pull_request", raw
    ).keys()


@pytest.mark.parametrize("raw", [None, [], "text", 5, True])
def test_a_body_that_is_no_object_is_refused(raw: object) -> None:
    """JSON allows more at its top than a webhook may be."""
    assert {"(body)"} == faults_of("push", raw).keys()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("ref", 5),
        ("ref", "main"),
        ("ref", ...),
        ("before", None),
        ("after", "xyz"),
        ("deleted", "no"),
        ("base_ref", 5),
        ("head_commit.message", 5),
        ("repository.pushed_at", "soon"),
        ("repository.pushed_at", 1.5),
    ],
)
def test_a_push_of_the_wrong_kind_is_named(path: str, value: Any) -> None:
    """A push is read as strictly as a pull request."""
    raw = push()
    set_at(raw, path, value)

    assert {path} == faults_of("push", raw).keys()


@pytest.mark.parametrize(
    ("event", "raw", "reason"),
    [
        ("star", {"action": "created"}, "event_unwanted"),
        ("", {}, "event_unwanted"),
        ("check_run", check_run("created"), "action_unwanted"),
        ("check_run", check_run(repository__full_name="other/repo"), "repository_unwanted"),
        ("check_suite", check_suite(action="completed"), "action_unwanted"),
        ("check_suite", check_suite(repository__full_name="other/repo"), "repository_unwanted"),
        ("issue_comment", comment(action="edited"), "action_unwanted"),
        ("issue_comment", comment(action="deleted"), "action_unwanted"),
        ("issue_comment", comment(repository__full_name="other/repo"), "repository_unwanted"),
        ("issue_comment", comment(issue__pull_request=...), "comment_on_issue"),
        ("issue_comment", comment(sender__type="Bot"), "comment_by_bot"),
        ("issue_comment", comment(comment__user__type="Bot"), "comment_by_bot"),
        ("issue_comment", comment("Looks good\n/crcr rerun"), "comment_unwanted"),
        ("issue_comment", comment(" /crcr rerun"), "comment_unwanted"),
        ("issue_comment", comment("> /crcr rerun"), "comment_unwanted"),
        ("issue_comment", comment("/crcrrerun"), "comment_unwanted"),
        ("issue_comment", comment("\n/crcr rerun"), "comment_unwanted"),
        ("issue_comment", comment(""), "comment_unwanted"),
        ("issue_comment", comment(comment__body=None), "comment_unwanted"),
        ("pull_request", pull_request("assigned"), "action_unwanted"),
        ("pull_request", pull_request("edited"), "edited_without_base"),
        ("pull_request", pull_request("edited") | {"changes": {"title": {"from": "x"}}}, "edited_without_base"),
        ("pull_request", pull_request(repository__full_name="other/repo"), "repository_unwanted"),
        # Another repository's event is none of ours, whatever else is wrong with it.
        ("pull_request", {"repository": {"full_name": "other/repo"}}, "repository_unwanted"),
        ("push", push(repository__full_name="other/repo"), "repository_unwanted"),
        ("push", push(deleted=True), "ref_deleted"),
        ("push", push(after=ZERO), "ref_deleted"),
        ("push", push(after="0" * 64), "ref_deleted"),
        ("installation", {"action": "renamed"}, "action_unwanted"),
        ("installation_repositories", {"action": "created"}, "action_unwanted"),
    ],
)
def test_what_nobody_asked_for_is_ignored_with_a_reason(event: str, raw: object, reason: str) -> None:
    """Ignoring is an answer too, and it says why."""
    found = parse(event, raw, UPSTREAM)

    assert isinstance(found, Ignored)
    assert reason == found.reason_code
    assert found.detail


def test_an_edit_of_the_base_is_work() -> None:
    """What would be merged has changed, though no commit has."""
    found = parse("pull_request", pull_request("edited") | {"changes": {"base": {"ref": {"from": "dev"}}}}, UPSTREAM)

    assert isinstance(found, PullRequestEvent)
    assert found.base_changed


@pytest.mark.parametrize(
    ("action", "state", "closed"),
    [("closed", "open", True), ("labeled", "closed", True), ("reopened", "closed", False)],
)
def test_closed_is_a_state_and_not_only_an_action(action: str, state: str, closed: bool) -> None:
    """Labels are put on closed pull requests too, which must not open them again."""
    raw = pull_request(action, pull_request__state=state) | {"label": {"name": "Merged"}}
    found = parse("pull_request", raw, UPSTREAM)

    assert isinstance(found, PullRequestEvent)
    assert closed == found.closed


@pytest.mark.parametrize(
    ("raw", "hook_id", "missing"),
    [
        ({"zen": "Speak like a human.", "hook_id": 1, "hook": {"id": 1, "events": ["push", "pull_request"]}}, 1, ()),
        ({"hook": {"id": 2, "events": ["*"]}}, 2, ()),
        ({"hook": {"id": 3, "events": ["push", 5]}}, 3, ("pull_request",)),
        ({"hook": {"id": "3", "events": "push"}}, None, ()),
        ({"hook": None}, None, ()),
        ({}, None, ()),
    ],
)
def test_a_ping_says_what_the_hook_will_not_send(raw: object, hook_id: int | None, missing: tuple[str, ...]) -> None:
    """A hook without pull_request events is the commonest wrong set-up, and its ping is the first chance to say so."""
    found = parse("ping", raw, UPSTREAM)

    assert isinstance(found, PingEvent)
    assert (hook_id, missing) == (found.hook_id, found.missing_events)


@pytest.mark.parametrize(
    ("event", "action", "key", "grants"),
    [
        ("installation", "created", "repositories", True),
        ("installation", "deleted", "repositories", False),
        ("installation", "suspend", "repositories", False),
        ("installation", "unsuspend", "repositories", True),
        ("installation", "new_permissions_accepted", "repositories", True),
        ("installation_repositories", "added", "repositories_added", True),
        ("installation_repositories", "removed", "repositories_removed", False),
    ],
)
def test_an_installation_names_its_repositories(event: str, action: str, key: str, grants: bool) -> None:
    """Both installation events say the same thing in two shapes, and become one."""
    raw = {
        "action": action,
        "installation": {"id": 9, "app_id": 4, "account": {"login": "Org"}},
        "repositories_added": [],
        "repositories_removed": [],
        key: [{"id": 11, "full_name": "Org/Repo"}],
    }

    found = parse(event, raw, UPSTREAM)

    assert found == InstallationEvent(action, 9, 4, "org", (InstalledRepository(RepoName("org", "repo"), 11),))
    assert grants == found.grants


def test_an_enterprise_is_named_by_its_slug() -> None:
    """An enterprise account has no login."""
    found = parse(
        "installation", {"action": "deleted", "installation": {"id": 9, "account": {"slug": "big-co"}}}, UPSTREAM
    )

    assert found == InstallationEvent("deleted", 9, None, "big-co", ())


def test_an_installation_of_the_wrong_kind_is_named() -> None:
    """The path of a repository says which of many it is."""
    raw = {"action": "created", "installation": {"id": "9"}, "repositories": [{"id": "1", "full_name": "x"}, 5]}

    assert {
        "installation.id",
        "installation.account.slug",
        "repositories[0].full_name",
        "repositories[0].id",
        "repositories[1].full_name",
        "repositories[1].id",
    } == faults_of("installation", raw).keys()


def test_production_samples_are_read() -> None:
    """Bodies as they travel today."""
    raw = json.loads((DATA / "pull_request_opened.json").read_text())
    found = parse("pull_request", raw, RepoName.parse(raw["repository"]["full_name"].upper()))

    assert isinstance(found, PullRequestEvent)
    assert (raw["number"], raw["pull_request"]["head"]["sha"]) == (found.number, found.head_sha)
    deleted = json.loads((DATA / "push_tag_deleted.json").read_text())
    ignored = parse("push", deleted, RepoName("pytorch", "pytorch"))
    assert isinstance(ignored, Ignored)
    assert "ref_deleted" == ignored.reason_code
