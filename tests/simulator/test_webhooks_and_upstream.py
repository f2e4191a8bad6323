"""Webhooks as a receiver meets them, and what each act upstream sends."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relay.simulator import App, PullRequest, Simulator, Upstream
from tests.simulator.scene import Caller, Receiver


@pytest.fixture
def up(sim: Simulator, app: App, receiver: Receiver) -> Upstream:
    made = sim.create_upstream("pytorch/pytorch", files={"a.py": "1\n", "docs/x.md": "x\n"})
    sim.webhook_url = receiver.url
    return made


@pytest.fixture
def got(receiver: Receiver) -> Callable[..., Any]:
    """The newest webhook that came: its event and its payload."""
    return lambda position=-1: (
        receiver.got[position][0]["x-github-event"],
        json.loads(receiver.got[position][1]),
    )


def test_a_webhook_is_signed_and_names_itself(up: Upstream, receiver: Receiver, app: App) -> None:
    """The signature is over the bytes as sent; the headers are those of GitHub."""
    pr = up.open_pull_request()

    headers, body = receiver.got[-1]
    expected = hmac.new(app.webhook_secret.encode(), body, hashlib.sha256).hexdigest()
    assert f"sha256={expected}" == headers["x-hub-signature-256"]
    assert ("pull_request", pr.delivery.guid, str(app.id), "application/json") == (
        headers["x-github-event"],
        headers["x-github-delivery"],
        headers["x-github-hook-installation-target-id"],
        headers["content-type"],
    )
    assert headers["user-agent"].startswith("GitHub-Hookshot/")
    assert (202, True) == (pr.delivery.response.status, pr.delivery.ok)


def _paths(value: Any, prefix: str = "") -> set[str]:
    if not isinstance(value, dict):
        return {prefix}
    return {prefix} | {path for key, inner in value.items() for path in _paths(inner, f"{prefix}.{key}")}


#: A real ``pull_request`` webhook's fields that listeners, and a relay, can be expected to read.
REAL = """
.action .number .installation.id .repository.full_name .repository.id .repository.owner.login .sender.login
.repository.default_branch .repository.private .organization.login .pull_request.number .pull_request.title
.pull_request.body .pull_request.draft .pull_request.merged .pull_request.merge_commit_sha .pull_request.html_url
.pull_request.state .pull_request.user.login .pull_request.author_association .pull_request.labels
.pull_request._links.html.href .pull_request.head.sha .pull_request.head.ref .pull_request.head.label
.pull_request.head.repo.full_name .pull_request.head.repo.clone_url .pull_request.head.repo.fork
.pull_request.base.ref .pull_request.base.sha .pull_request.base.repo.full_name .pull_request.changed_files
.pull_request.updated_at .pull_request.closed_at .pull_request.merged_at .pull_request.mergeable_state
"""


def test_a_pull_request_payload_has_the_shape_of_a_real_one(up: Upstream, got: Callable[..., Any]) -> None:
    """Full size and full shape: a relay has to trim it, as it has to trim GitHub's."""
    up.open_pull_request(title="T", author="alice", labels=["x"], body="b" * 65_536)

    event, payload = got()
    assert set() == set(REAL.split()) - _paths(payload)
    assert len(json.dumps(payload)) > 80_000
    assert ("pull_request", "opened", "alice/pytorch", True, "x") == (
        event,
        payload["action"],
        payload["pull_request"]["head"]["repo"]["full_name"],
        payload["pull_request"]["head"]["repo"]["fork"],
        payload["pull_request"]["labels"][0]["name"],
    )


ACTS = [
    ("push", lambda pr: pr.push(), "synchronize"),
    ("label", lambda pr: pr.label("ciflow/crcr/npu"), "labeled"),
    ("close", lambda pr: pr.close(), "closed"),
    ("edit_base", lambda pr: pr.edit_base("release"), "edited"),
    ("edit_title", lambda pr: pr.edit_title("New"), "edited"),
    ("draft", lambda pr: pr.convert_to_draft(), "converted_to_draft"),
    ("ready", lambda pr: pr.ready_for_review(), "ready_for_review"),
]


@pytest.mark.parametrize(("name", "act", "action"), ACTS, ids=[name for name, _, _ in ACTS])
def test_each_act_on_a_pull_request_sends_its_event(
    up: Upstream, got: Callable[..., Any], name: str, act: Callable[[PullRequest], Any], action: str
) -> None:
    """One act, one event, with the state after it."""
    up.push("refs/heads/release")
    pr: PullRequest = up.open_pull_request()
    before = pr.head_sha

    act(pr)

    event, payload = got()
    assert ("pull_request", action, pr.head_sha) == (event, payload["action"], payload["pull_request"]["head"]["sha"])
    extra: dict[str, Callable[[], bool]] = {
        "push": lambda: (before, pr.head_sha) == (payload["before"], payload["after"]) and before != pr.head_sha,
        "label": lambda: payload["label"]["name"] == "ciflow/crcr/npu",
        "close": lambda: (
            payload["pull_request"]["merge_commit_sha"] is None and payload["pull_request"]["state"] == "closed"
        ),
        "edit_base": lambda: (
            payload["changes"]["base"]["ref"]["from"] == "main" and payload["pull_request"]["base"]["ref"] == "release"
        ),
        "edit_title": lambda: payload["changes"]["title"]["from"] == "Change something",
        "draft": lambda: payload["pull_request"]["draft"] is True,
        "ready": lambda: payload["pull_request"]["draft"] is False,
    }
    assert extra[name]()


def test_a_label_that_is_there_sends_nothing_and_unlabel_and_reopen_tell(
    up: Upstream, receiver: Receiver, got: Callable[..., Any]
) -> None:
    """Only a change is an event."""
    pr = up.open_pull_request(labels=["x"])
    count = len(receiver.got)
    assert [] == pr.label("x")
    assert count == len(receiver.got)

    pr.unlabel("x")
    assert ("unlabeled", []) == (got()[1]["action"], got()[1]["pull_request"]["labels"])
    pr.close()
    pr.reopen()
    assert ("reopened", "open") == (got()[1]["action"], got()[1]["pull_request"]["state"])


def test_merging_closes_and_pushes_to_the_base(up: Upstream, receiver: Receiver) -> None:
    """Two events: closed with merged true, and the push."""
    pr = up.open_pull_request()
    pr.close(merged=True)

    events = {head["x-github-event"]: json.loads(body) for head, body in receiver.got[-2:]}
    assert events["pull_request"]["pull_request"]["merged"] is True
    assert up.head == events["push"]["after"] == events["pull_request"]["pull_request"]["merge_commit_sha"]


def test_a_forced_push_back_returns_to_the_earlier_head(up: Upstream, got: Callable[..., Any]) -> None:
    """The old sha is the head again."""
    pr = up.open_pull_request()
    first = pr.head_sha
    pr.push()
    pr.force_push(first)

    assert (first, first) == (pr.head_sha, got()[1]["after"])


def test_a_push_lists_its_commits_and_files(up: Upstream, got: Callable[..., Any]) -> None:
    """And a known sha only moves the ref: six refs at one commit are six pushes with the same after."""
    before = up.head
    up.push(files={"a.py": "2\n", "new.py": "n\n", "docs/x.md": None}, message="Land\n\nBody", commits=3)

    event, payload = got()
    assert ("push", before, up.head, 3, "refs/heads/main") == (
        event,
        payload["before"],
        payload["after"],
        len(payload["commits"]),
        payload["ref"],
    )
    assert (["new.py"], ["docs/x.md"], ["a.py"], "Land\n\nBody") == (
        payload["head_commit"]["added"],
        payload["head_commit"]["removed"],
        payload["head_commit"]["modified"],
        payload["head_commit"]["message"],
    )
    up.push_tag("ciflow/trunk/1")
    assert ("refs/tags/ciflow/trunk/1", up.head, True) == (got()[1]["ref"], got()[1]["after"], got()[1]["created"])


def test_more_than_three_tags_at_once_send_nothing(up: Upstream, receiver: Receiver) -> None:
    """Three do, four do not; the tags are there all the same."""
    assert 3 == len(up.push_tags(["a", "b", "c"]))
    count = len(receiver.got)

    assert [] == up.push_tags(["d", "e", "f", "g"])

    assert (count, True) == (len(receiver.got), "refs/tags/g" in up.repository.refs)


def test_a_push_lists_2048_commits_at_most(sim: Simulator, up: Upstream, got: Callable[..., Any]) -> None:
    """The newest ones."""
    up.push(commits=2050)

    assert (2048, up.head) == (len(got()[1]["commits"]), got()[1]["commits"][-1]["id"])


def test_deleting_a_ref_is_a_push_to_zeros(up: Upstream, got: Callable[..., Any]) -> None:
    """deleted is true, after is all zeros, and there is no head commit."""
    up.push("refs/heads/gone")
    up.delete_ref("refs/heads/gone")

    payload = got()[1]
    assert (True, "0" * 40, None) == (payload["deleted"], payload["after"], payload["head_commit"])


def test_a_push_to_a_pull_request_s_own_branch_synchronizes_it(up: Upstream, receiver: Receiver) -> None:
    """Branches of the upstream repository itself send both events."""
    pr = up.open_pull_request(fork=False, head_ref="topic")
    up.push("refs/heads/topic")

    assert {"push", "pull_request"} == {head["x-github-event"] for head, _ in receiver.got[-2:]}
    assert pr.head_sha == up.repository.refs["refs/heads/topic"]


def test_the_merge_queue_asks_for_checks_and_ends(up: Upstream, receiver: Receiver) -> None:
    """A temporary branch, its push, checks_requested; then destroyed with the reason."""
    pr = up.open_pull_request()
    group = up.add_to_merge_queue(pr)

    events = {head["x-github-event"]: json.loads(body) for head, body in receiver.got[-2:]}
    asked = events["merge_group"]
    assert ("checks_requested", group.head_sha) == (asked["action"], asked["merge_group"]["head_sha"])
    assert (group.head_ref, group.head_sha) == (events["push"]["ref"], events["push"]["after"])
    assert group.head_ref.startswith("refs/heads/gh-readonly-queue/main/pr-1-")
    up.destroy_merge_group(group, "merged")
    ended = json.loads(receiver.got[-1][1])
    assert ("destroyed", "merged", group.head_sha) == (ended["action"], ended["reason"], up.head)
    assert group.head_ref not in up.repository.refs


def test_a_comment_tells_who_said_what(up: Upstream, got: Callable[..., Any]) -> None:
    """On a pull request the issue says so."""
    pr = up.open_pull_request()
    up.comment(pr, "bob", "/crcr rerun")

    event, payload = got()
    assert ("issue_comment", "created", "bob", "/crcr rerun", True) == (
        event,
        payload["action"],
        payload["comment"]["user"]["login"],
        payload["comment"]["body"],
        "pull_request" in payload["issue"],
    )


def test_installing_and_taking_away_is_told(
    sim: Simulator, app: App, receiver: Receiver, got: Callable[..., Any]
) -> None:
    """The first repository creates the installation, the next joins it; the last one's removal deletes it."""
    sim.webhook_url = receiver.url
    one = sim.create_backend("org/one")
    two = sim.create_backend("org/two")
    told = [(head["x-github-event"], json.loads(body)["action"]) for head, body in receiver.got]
    assert [("installation", "created"), ("installation_repositories", "added")] == told
    assert ["org/two"] == [item["full_name"] for item in got()[1]["repositories_added"]]

    one.uninstall()
    assert ("installation_repositories", ["org/one"]) == (
        got()[0],
        [item["full_name"] for item in got()[1]["repositories_removed"]],
    )
    two.suspend()
    assert ("installation", "suspend") == (got()[0], got()[1]["action"])
    two.suspend(on=False)
    two.uninstall()
    assert ("installation", "deleted") == (got()[0], got()[1]["action"])
    sim.ping()
    assert "ping" == got()[0]


def test_what_happens_to_a_repository_is_told(sim: Simulator, receiver: Receiver) -> None:
    """Archived and back, hidden and shown, renamed, moved, deleted: with the id, and the name that it has then."""
    sim.create_app(7)
    be = sim.create_backend("org/npu")
    sim.webhook_url = receiver.url
    for on in (True, False):
        be.archive(on)
    for on in (True, False):
        be.make_private(on)
    be.rename("org/npu2")
    be.rename("far/npu2")
    be.delete()

    told = [json.loads(body) for head, body in receiver.got if head["x-github-event"] == "repository"]
    assert [
        ("archived", "org/npu"),
        ("unarchived", "org/npu"),
        ("privatized", "org/npu"),
        ("publicized", "org/npu"),
        ("renamed", "org/npu2"),
        ("transferred", "far/npu2"),
        ("deleted", "far/npu2"),
    ] == [(one["action"], one["repository"]["full_name"]) for one in told]
    assert {be.id} == {one["repository"]["id"] for one in told}
    assert [True, False] == [one["repository"]["archived"] for one in told[:2]]
    assert {"repository": {"name": {"from": "npu"}}} == told[4]["changes"]
    assert "org" == told[5]["changes"]["owner"]["from"]["organization"]["login"]


def test_an_app_gets_the_events_it_asked_for_and_nothing_elsewhere(sim: Simulator, receiver: Receiver) -> None:
    """No subscription, no webhook; no installation, no webhook."""
    sim.webhook_url = receiver.url
    sim.create_app(7, events={"push"})
    up = sim.create_upstream("pytorch/pytorch")
    other = sim.create_upstream("pytorch/vision", installed=False)

    assert ([], 1) == (up.open_pull_request().deliveries, len(up.push()))
    assert [] == other.push()


def test_ids_and_shas_come_from_the_seed() -> None:
    """The same story has the same shas, and another seed others."""

    def head(seed: int) -> str:
        with Simulator(seed=seed) as sim:
            sim.create_app()
            return sim.create_upstream("pytorch/pytorch").open_pull_request().head_sha

    assert (head(1), True) == (head(1), head(1) != head(2))


def test_it_imports_nothing_of_the_relay_but_names() -> None:
    """A simulator that knew the relay's code would prove the relay by the relay."""
    folder = Path(__file__).parents[2] / "relay" / "simulator"
    lines = [line for path in folder.glob("*.py") for line in path.read_text().splitlines()]
    imports = {line.split()[1] for line in lines if line.startswith(("from relay", "import relay", "from levels"))}

    assert set() == {name for name in imports if not name.startswith("relay.simulator") and name != "relay"}


def test_an_act_need_not_wait_for_its_webhooks(sim: Simulator, up: Upstream, receiver: Receiver) -> None:
    """A story may go on while the receiver is still thinking."""
    sim.wait = False
    receiver.hang.clear()

    delivery = up.push()[0]

    assert "under way" == delivery.response.error
    receiver.hang.set()
    assert 202 == delivery.wait().status


def test_a_cursor_that_is_none_is_refused(up: Upstream, caller: Caller) -> None:
    """422, as for any parameter of the wrong form."""
    assert 422 == caller.as_app("GET", "/app/hook/deliveries?cursor=next").status_code


def test_open_pull_requests_are_counted_and_own_branches_named(up: Upstream, got: Callable[..., Any]) -> None:
    """A repository counts what is open, whatever was closed and opened again in between."""
    one = up.open_pull_request()
    up.open_pull_request(fork=False)
    assert 2 == got()[1]["repository"]["open_issues_count"]
    one.close()
    one.close()
    assert 1 == got()[1]["repository"]["open_issues_count"]
    one.reopen()
    assert 2 == got()[1]["repository"]["open_issues_count"]
    with pytest.raises(ValueError, match="there is no commit"):
        one.force_push("f" * 40)
