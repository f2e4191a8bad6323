"""The webhook's answers, one by one, as the protocol's table has them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from allowlist.model import RepoName
from relay.edge.signature import sign
from relay.edge.webhook import MAX_BODY
from relay.store.engine import Store
from tests.conftest import Clock
from tests.edge.hook import SECRETS, Hook
from tests.relay.bodies import check_run, check_suite, comment, merge_group, pull_request, push
from tests.relay.planning import PATHS, XPU
from tests.store.taking_in import Intake

NIGHTLY = replace(XPU, repo=RepoName("org", "nightly"), events=frozenset({"nightly"}))


@pytest.fixture
def hook(store: Store, clock: Clock) -> Hook:
    """An edge with three backends behind it."""
    return Hook(store, (XPU, PATHS, NIGHTLY), clock.now())


@pytest.fixture
def kept(store: Store, clock: Clock) -> Intake:
    """A look at what was stored."""
    return Intake(store, (), clock.now())


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    """The problem's body, once status, type and code are as expected."""
    assert (status, code) == (answer.status_code, answer.json().get("code")), answer.text
    assert "application/problem+json" == answer.headers["content-type"]
    body: dict[str, Any] = answer.json()
    return body


def test_an_accepted_webhook_says_what_was_planned(hook: Hook, kept: Intake) -> None:
    """202 after one durable commit, whatever GitHub's API does."""
    answer = hook.post("pull_request", pull_request())

    assert 202 == answer.status_code
    assert {
        "ok": True,
        "status": "accepted",
        "delivery_id": "D1",
        "trace_id": hashlib.sha256(b"D1").hexdigest()[:32],
        "planned": [
            {"effect": "dispatch", "backend": "org/xpu", "reason": "wanted"},
            {"effect": "decide_paths", "backend": "org/paths", "reason": "pending_paths"},
            {
                "effect": "none",
                "backend": "org/nightly",
                "reason": "filtered_events",
                "detail": "entry wants events [nightly], this is pull_request",
            },
            {"effect": "check", "backend": None, "reason": "gate"},
        ],
    } == answer.json()
    assert [("D1", "pull_request", "opened")] == kept.deliveries("id", "event", "action")
    assert (1, 1) == (hook.wakes, hook.counted("pull_request", "accepted"))


def test_the_same_delivery_again_is_a_duplicate(hook: Hook, kept: Intake) -> None:
    """CASES 1: nothing is done twice, and nobody is woken for nothing."""
    hook.post("pull_request", pull_request())
    answer = hook.post("pull_request", pull_request())

    assert (200, "duplicate", "D1") == (answer.status_code, answer.json()["status"], answer.json()["delivery_id"])
    assert 2 == len(kept.dispatches("id"))
    assert 1 == hook.wakes


def test_a_duplicate_that_revives_wakes_the_worker(hook: Hook, kept: Intake) -> None:
    """What had been given up is due at once."""
    hook.post("pull_request", pull_request())
    kept.mark_effects("dead", "not_installed")
    kept.mark_dispatches("dead", "undelivered")

    answer = hook.post("pull_request", pull_request())

    assert [{"effect": "dispatch", "backend": "org/xpu", "reason": "revived"}] == answer.json()["planned"]
    assert 2 == hook.wakes


@pytest.mark.parametrize("secret", SECRETS)
def test_all_secrets_are_valid(hook: Hook, secret: str) -> None:
    """They rotate with overlap."""
    assert 202 == hook.post("pull_request", pull_request(), secret=secret).status_code


@pytest.mark.parametrize("event", ["pull_request", "star", "ping", ""])
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "signature_missing"),
        ({"x-hub-signature-256": "sha256=" + "0" * 64}, "signature_wrong"),
        ({"x-hub-signature-256": ""}, "signature_wrong"),
        ({"x-hub-signature": "sha1=" + "0" * 40}, "signature_missing"),
    ],
)
def test_an_unsigned_body_is_not_even_looked_at(
    hook: Hook, kept: Intake, event: str, headers: dict[str, str], code: str
) -> None:
    """401 comes before any fault of the body or the other headers, for events nobody wants too."""
    answer = hook.post(event, b"{ not json", None, secret=None, headers=headers)

    problem(answer, 401, code)
    assert [] == kept.deliveries("id")


def test_a_signature_of_another_body_does_not_fit(hook: Hook) -> None:
    """What is signed is the bytes as sent."""
    signature = sign(SECRETS[0].encode(), json.dumps(pull_request()).encode())

    answer = hook.post("pull_request", pull_request("closed"), headers={"x-hub-signature-256": signature})

    problem(answer, 401, "signature_wrong")


@pytest.mark.parametrize(
    ("delivery_id", "code"),
    [
        (None, "delivery_id_missing"),
        ("  ", "delivery_id_missing"),
        ("x" * 129, "delivery_id_malformed"),
        ("a\tb", "delivery_id_malformed"),
    ],
)
def test_a_delivery_needs_its_id(hook: Hook, delivery_id: str | None, code: str) -> None:
    """Without it a redelivery could not be told from news."""
    assert "Send" in problem(hook.post("pull_request", pull_request(), delivery_id), 400, code)["detail"]


def test_the_longest_delivery_id_is_taken(hook: Hook, kept: Intake) -> None:
    """GitHub's are GUIDs; other senders may be more generous."""
    assert 202 == hook.post("pull_request", pull_request(), "x" * 128).status_code
    assert [("x" * 128,)] == kept.deliveries("id")


def test_an_event_needs_its_name(hook: Hook) -> None:
    """The body alone does not say which event it is."""
    problem(hook.post("", pull_request()), 400, "event_missing")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "body_not_json"),
        (b"{", "body_not_json"),
        (b"{'a': 1}", "body_not_json"),
        (b'{"a": NaN}', "body_not_json"),
        (b"\xff\xfe{}", "body_not_utf8"),
        (b"[" * 10_000 + b"]" * 10_000, "body_too_deep"),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "body_too_deep"),
        (b"[]", "body_not_object"),
        (b"null", "body_not_object"),
        (b'"text"', "body_not_object"),
        (b"payload=%7B%7D", "body_is_form"),
    ],
)
@pytest.mark.parametrize("event", ["pull_request", "star"])
def test_a_body_that_is_no_webhook_is_refused(hook: Hook, kept: Intake, event: str, body: bytes, code: str) -> None:
    """400 with what is wrong, for events nobody wants too."""
    problem(hook.post(event, body), 400, code)
    assert [] == kept.deliveries("id")


def test_a_hook_left_at_github_s_default_is_told_what_to_change(hook: Hook) -> None:
    """GitHub's form for a new webhook offers application/x-www-form-urlencoded first."""
    answer = hook.post("ping", b"payload=%7B%7D", headers={"content-type": "application/x-www-form-urlencoded"})

    assert "application/json" in problem(answer, 400, "body_is_form")["detail"]


def test_a_body_over_the_cap_is_refused_before_it_is_read(hook: Hook, kept: Intake) -> None:
    """Its declared length suffices; one that declares none is stopped where it exceeds the cap."""
    declared = hook.post("push", b"x", headers={"content-length": str(MAX_BODY + 1)})
    problem(declared, 413, "body_too_large")

    chunk = b"x" * 1_000_000
    streamed = hook.client.post("/github/webhook", content=(chunk for _ in range(26)))
    problem(streamed, 413, "body_too_large")
    assert [] == kept.deliveries("id")


def test_the_largest_body_github_sends_is_taken(hook: Hook, kept: Intake) -> None:
    """25 MB, of which next to nothing is kept."""
    raw = pull_request()
    raw["pull_request"]["body"] = ""
    raw["pull_request"]["body"] = "x" * (MAX_BODY - len(json.dumps(raw)))

    assert 202 == hook.post("pull_request", raw).status_code
    ((payload,),) = kept.deliveries("payload")
    assert len(payload) < 1000


def test_a_wide_body_and_a_long_push_are_taken(hook: Hook, kept: Intake) -> None:
    """CASES 6: 65,536 characters of three bytes, 100 labels of 50 characters, 2,000 commits."""
    raw = pull_request()
    raw["pull_request"]["body"] = "語" * 65_536
    raw["pull_request"]["labels"] = [{"name": f"{number:03d}" + "語" * 47} for number in range(100)]
    commits = [{"id": "c" * 40, "message": "m" * 200}] * 2000

    assert 202 == hook.post("pull_request", raw, "D1").status_code
    assert 202 == hook.post("push", push() | {"commits": commits}, "D2").status_code
    payloads = dict(kept.deliveries("id", "payload"))
    assert raw["pull_request"]["labels"] == json.loads(payloads["D1"])["pull_request"]["labels"]
    assert {"ref", "before", "after", "base_ref", "deleted", "repository", "sender"} == json.loads(
        payloads["D2"]
    ).keys()


def test_broken_characters_are_mended_and_not_refused(hook: Hook, kept: Intake) -> None:
    """NUL and lone surrogates are in titles that people wrote; PostgreSQL can keep neither."""
    raw = json.dumps(pull_request()).replace("Fix it", "Fix\\u0000 \\ud800 it").encode()

    assert 202 == hook.post("pull_request", raw).status_code
    assert [("Fix\ufffd \ufffd it",)] == kept.changes("title")


def test_an_event_that_cannot_be_read_names_every_field(hook: Hook, kept: Intake) -> None:
    """Numbers where strings belong, and the reverse."""
    raw = pull_request(pull_request__number="7", pull_request__title=5, pull_request__head__sha=1)

    body = problem(hook.post("pull_request", raw), 422, "event_malformed")

    assert {"pull_request.number", "pull_request.title", "pull_request.head.sha"} == {
        fault["field"] for fault in body["errors"]
    }
    assert all(fault["rule"] and fault["fix"] for fault in body["errors"])
    assert [] == kept.deliveries("id")


@pytest.mark.parametrize(
    ("event", "raw", "reason"),
    [
        ("star", {"action": "created"}, "event_unwanted"),
        ("x" * 5000, {}, "event_unwanted"),
        ("check_run", check_run(check_run__app__id=5), "app_unwanted"),
        ("check_suite", check_suite(check_suite__app__id=5), "app_unwanted"),
        ("issue_comment", comment("Please rerun"), "comment_unwanted"),
        ("pull_request", pull_request("assigned"), "action_unwanted"),
        ("pull_request", pull_request(repository__full_name="other/repo"), "repository_unwanted"),
        ("push", push(deleted=True, after="0" * 40), "ref_deleted"),
        (
            "installation",
            {"action": "created", "installation": {"id": 1, "app_id": 5, "account": {"login": "org"}}},
            "app_unwanted",
        ),
    ],
)
def test_what_nobody_asked_for_is_answered_and_not_stored(
    hook: Hook, kept: Intake, event: str, raw: dict[str, Any], reason: str
) -> None:
    """202, so that GitHub counts it as delivered; the reason, so that a person can find out."""
    answer = hook.post(event, raw)

    assert (202, "ignored", reason) == (answer.status_code, answer.json()["status"], answer.json()["reason"])
    assert answer.json()["detail"]
    assert [] == kept.deliveries("id")
    assert 0 == hook.wakes


@pytest.mark.parametrize(
    ("event", "raw", "planned"),
    [
        ("issue_comment", comment("/crcr rerun org/xpu"), ("command", "org/xpu", "rerun")),
        ("check_suite", check_suite(), ("command", None, "rerun")),
        ("check_run", check_run(), ("command", None, "rerun")),
        ("check_run", check_run("requested_action", check_run__name="crcr/org/xpu"), ("command", "org/xpu", "rerun")),
        (
            "check_run",
            check_run(check_run__name="build"),
            ("none", "no check of ours has this name on this commit", "check_unknown"),
        ),
        ("merge_group", merge_group(), ("check", None, "gate")),
        ("merge_group", merge_group("destroyed"), ("check", None, "gate_closed")),
    ],
)
def test_what_people_and_queues_ask_is_accepted(
    hook: Hook, kept: Intake, event: str, raw: dict[str, Any], planned: tuple[str, str | None, str]
) -> None:
    """Kept with the delivery, decided afterwards: the answer waits for nothing but one commit."""
    hook.post("pull_request", pull_request(), "opened")

    answer = hook.post(event, raw)
    again = hook.post(event, raw)

    assert (202, "accepted") == (answer.status_code, answer.json()["status"])
    last = answer.json()["planned"][-1]
    assert planned == (last["effect"], last.get("detail"), last["reason"])
    assert last["backend"] is None
    assert (200, "duplicate") == (again.status_code, again.json()["status"])
    assert [("opened", "pull_request"), ("D1", event)] == sorted(kept.deliveries("id", "event"), reverse=True)


def test_event_names_do_not_fill_the_metrics(hook: Hook) -> None:
    """A header is anybody's text; each new name would be a time series for ever."""
    for number in range(3):
        hook.post(f"event-{number}", {})

    assert 3 == hook.counted("other", "ignored")


def test_a_ping_is_answered_with_what_the_hook_will_send(hook: Hook) -> None:
    """The first thing an admin sees says what is missing."""
    answer = hook.post("ping", {"zen": "x", "hook": {"id": 12, "events": ["push"]}})

    assert 202 == answer.status_code
    assert {
        "ok": True,
        "status": "ignored",
        "delivery_id": "D1",
        "reason": "ping",
        "detail": "pong; this hook does not send pull_request: subscribe it to them",
        "hook_id": 12,
        "hook_events": ["push"],
    } == answer.json()


def test_names_compare_without_case(hook: Hook) -> None:
    """Upstream may be set in one case and spelled by GitHub in another."""
    assert "accepted" == hook.post("push", push(repository__full_name="UP/Stream")).json()["status"]


def test_a_store_that_is_down_is_our_fault_and_passes(hook: Hook) -> None:
    """503 with Retry-After; GitHub marks the delivery as failed, and it can be redelivered."""
    hook.store.close()

    answer = hook.post("pull_request", pull_request())

    problem(answer, 503, "store_unreachable")
    assert int(answer.headers["retry-after"]) > 0
    assert 1 == hook.counted("pull_request", "store_unreachable")


def test_forty_backends_are_planned_and_none_is_called(store: Store, clock: Clock, kept: Intake) -> None:
    """CASES 7: the answer waits for the commit, and for no call to GitHub."""
    hook = Hook(store, tuple(replace(XPU, repo=RepoName("org", f"b{number}")) for number in range(40)), clock.now())

    answer = hook.post("pull_request", pull_request())

    assert 41 == len(answer.json()["planned"])
    assert {f"org/b{number}": "ready" for number in range(40)} == dict(kept.effects())


def test_the_description_names_every_answer(hook: Hook) -> None:
    """The OpenAPI description is what other people's tools believe."""
    operation = hook.app.openapi()["paths"]["/github/webhook"]["post"]

    assert {"200", "202", "400", "401", "408", "413", "422", "503"} == operation["responses"].keys()
    assert {"X-GitHub-Event", "X-GitHub-Delivery", "X-Hub-Signature-256"} == {
        parameter["name"] for parameter in operation["parameters"]
    }
