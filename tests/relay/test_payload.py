"""What is sent fits GitHub's bounds, says the truth on every documented path, and carries nothing else."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.deciding.payload import (
    MAX_CLIENT_PAYLOAD,
    ChangeFacts,
    RelayBlock,
    TooLargeError,
    client_payload,
    trim,
    with_labels,
)
from tests.relay.documented import ABSENT, DOCUMENTED, at

DATA = Path(__file__).parent / "data"


def block(**changes: Any) -> RelayBlock:
    """A dispatch's own block."""
    change = ChangeFacts("pull_request", 7, "a" * 40, "main", "b" * 40, None, None, ("bug",), "wanted")
    made = RelayBlock(
        token="crcr1.5.feed",
        origin_delivery="D1",
        callback_url="https://relay.example/github/callback",
        dashboard_url="https://relay.example/changes/1",
        change=change,
        versions=(),
        deadline=datetime(2026, 11, 30, 20, tzinfo=UTC),
    )
    return replace(made, **changes)


def opened() -> dict[str, Any]:
    """A pull request as production sends it."""
    raw: dict[str, Any] = json.loads((DATA / "pull_request_opened.json").read_text())
    return raw


def test_every_documented_path_keeps_its_value() -> None:
    """A listener that reads a documented path reads what GitHub said."""
    raw = opened()
    kept = json.loads(trim("pull_request", raw))

    assert {path: at(raw, path) for path in DOCUMENTED} == {path: at(kept, path) for path in DOCUMENTED}
    assert len(trim("pull_request", raw)) < 2000


@pytest.mark.parametrize(
    "path",
    ["pull_request.head.repo", "pull_request.user", "pull_request.merge_commit_sha", "base_ref", "label", "sender"],
)
def test_null_stays_null_and_absent_stays_absent(path: str) -> None:
    """A listener tells "the fork is gone" from "this event has no fork"."""
    raw = opened()
    *parents, last = path.split(".")
    parent: Any = raw
    for part in parents:
        parent = parent[part]
    parent[last] = None
    assert at(json.loads(trim("pull_request", raw)), path) is None
    del parent[last]
    assert ABSENT is at(json.loads(trim("pull_request", raw)), path)


def test_labels_keep_their_names_and_nothing_else() -> None:
    """A label's description and colour are nobody's business here."""
    raw = opened()
    raw["pull_request"]["labels"] = [{"id": 1, "name": "bug", "description": "x"}, {"name": "夜間"}]
    raw["label"] = {"name": "夜間", "color": "fff"}

    kept = json.loads(trim("pull_request", raw))

    assert [{"name": "bug"}, {"name": "夜間"}] == kept["pull_request"]["labels"]
    assert {"name": "夜間"} == kept["label"]


def test_an_object_where_a_value_belongs_is_not_forwarded() -> None:
    """Otherwise anything could be smuggled through a path that we promise to keep."""
    raw = opened()
    raw["pull_request"]["_links"]["html"]["href"] = {"evil": "x" * 100_000}

    assert json.loads(trim("pull_request", raw))["pull_request"]["_links"]["html"]["href"] is None


@pytest.mark.parametrize("raw", [None, [], "x", 5, {}])
def test_any_json_can_be_trimmed(raw: object) -> None:
    """Trimming never fails; what is wanted of an event is checked elsewhere."""
    assert {} == json.loads(trim("push", raw))


def test_an_installation_keeps_what_its_record_needs() -> None:
    """Installation events are forwarded to nobody."""
    raw = {"action": "created", "installation": {"id": 1, "token": "secret"}, "repositories": [{"id": 2, "x": 1}]}

    assert {"action": "created", "installation": {"id": 1}, "repositories": [{"id": 2}]} == json.loads(
        trim("installation", raw)
    )


def test_the_client_payload_is_the_protocols() -> None:
    """Four keys at the top, and our block whole."""
    sent = client_payload(
        "pull_request", "D1", '{"action":"opened"}', block(versions=("2.4", "2.5"), deadline=_in_another_zone())
    )

    assert () == sent.shortened
    assert {
        "event_type": "pull_request",
        "delivery_id": "D1",
        "payload": {"action": "opened"},
        "relay": {
            "schema": 1,
            "token": "crcr1.5.feed",
            "origin_delivery": "D1",
            "trace_id": hashlib.sha256(b"D1").hexdigest()[:32],
            "callback_url": "https://relay.example/github/callback",
            "dashboard_url": "https://relay.example/changes/1",
            "change": {
                "kind": "pull_request",
                "number": 7,
                "head_sha": "a" * 40,
                "base_ref": "main",
                "base_sha": "b" * 40,
                "merge_sha": None,
                "landed_sha": None,
                "labels": ["bug"],
                "reason": "wanted",
            },
            "combinations": [
                {"id": _twelve('{"backend_version":"2.4"}'), "backend_version": "2.4"},
                {"id": _twelve('{"backend_version":"2.5"}'), "backend_version": "2.5"},
            ],
            "deadline": "2026-11-30T20:00:00Z",
        },
    } == json.loads(sent.body)


def _in_another_zone() -> datetime:
    return datetime(2026, 11, 30, 22, tzinfo=timezone(timedelta(hours=2)))


def _twelve(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def test_a_body_of_three_byte_characters_fits() -> None:
    """CASES 6: 65,536 characters of three bytes each, and 100 labels of 50 characters; all paths true."""
    raw = opened()
    raw["pull_request"]["body"] = "語" * 65_536
    names = tuple(f"{index:03d}" + "語" * 47 for index in range(100))
    raw["pull_request"]["labels"] = [{"name": name, "description": "語" * 100} for name in names]

    sent = client_payload(
        "pull_request",
        "D1",
        trim("pull_request", raw),
        block(change=replace(block().change, labels=names)),
    )

    assert () == sent.shortened
    assert len(sent.body) <= MAX_CLIENT_PAYLOAD
    payload = json.loads(sent.body)["payload"]
    assert {path: at(raw, path) for path in DOCUMENTED} == {path: at(payload, path) for path in DOCUMENTED}
    assert [{"name": name} for name in names] == payload["pull_request"]["labels"]


def test_a_push_of_two_thousand_commits_fits() -> None:
    """CASES 6: the commits are left out, since no documented path names them."""
    raw = {"ref": "refs/heads/main", "before": "a" * 40, "after": "b" * 40, "base_ref": None, "deleted": False}
    big = raw | {"commits": [{"id": "c" * 40, "message": "m" * 1000}] * 2000, "head_commit": {"message": "m" * 65536}}

    sent = client_payload("push", "D1", trim("push", big), block())

    assert raw == json.loads(sent.body)["payload"]


def test_too_long_a_title_gives_way_first() -> None:
    """GitHub's titles have 256 characters, but a payload that GitHub would refuse helps nobody."""
    raw = {"pull_request": {"title": "語" * 60_000, "labels": [{"name": "bug"}]}}

    sent = client_payload("pull_request", "D1", trim("pull_request", raw), block())

    assert ("payload.pull_request.title",) == sent.shortened
    got = json.loads(sent.body)
    assert "語" * 99 + "…" == got["payload"]["pull_request"]["title"]
    assert ["payload.pull_request.title"] == got["relay"]["shortened"]
    assert [{"name": "bug"}] == got["payload"]["pull_request"]["labels"]


def test_then_labels_give_way_from_the_last_on() -> None:
    """As many as fit are kept, in their order, and the payload says that some are missing."""
    names = tuple(f"{index:04d}" + "x" * 200 for index in range(1000))
    raw = {"pull_request": {"title": "t", "labels": [{"name": name} for name in names]}}
    mine = block(change=replace(block().change, labels=names))

    sent = client_payload("pull_request", "D1", trim("pull_request", raw), mine)
    again = client_payload("pull_request", "D1", trim("pull_request", raw), mine)

    assert ("payload.pull_request.labels", "relay.change.labels") == sent.shortened
    assert sent == again
    got = json.loads(sent.body)
    count = len(got["relay"]["change"]["labels"])
    assert list(names[:count]) == got["relay"]["change"]["labels"]
    assert [{"name": name} for name in names[:count]] == got["payload"]["pull_request"]["labels"]
    # One more of each would not have fitted.
    assert MAX_CLIENT_PAYLOAD - 500 < len(sent.body) <= MAX_CLIENT_PAYLOAD


def test_what_cannot_be_shortened_is_refused_with_its_size() -> None:
    """No documented path but two may be touched: a head ref is true or not sent."""
    raw = {"pull_request": {"title": "t", "head": {"ref": "r" * 70_000}}}

    with pytest.raises(TooLargeError, match=r"client_payload has 70,\d+ bytes .* GitHub takes 65,535"):
        client_payload("pull_request", "D1", trim("pull_request", raw), block())


def test_a_repeat_carries_the_labels_of_now() -> None:
    """The stored payload is as old as its webhook; the label that caused the repeat is newer."""
    stored = trim("pull_request", opened())

    repeated = json.loads(with_labels(stored, ["ciflow/crcr/npu", "bug"]))

    assert [{"name": "ciflow/crcr/npu"}, {"name": "bug"}] == repeated["pull_request"].pop("labels")
    before = json.loads(stored)
    before["pull_request"].pop("labels")
    assert before == repeated


@pytest.mark.parametrize("stored", ['{"ref":"refs/heads/main"}', '{"pull_request":null}', "[]", "null"])
def test_a_payload_without_a_pull_request_has_no_labels(stored: str) -> None:
    """A push is repeated as it was."""
    assert stored == with_labels(stored, ["bug"])


@given(
    title=st.text(max_size=300),
    labels=st.lists(st.text(min_size=1, max_size=50), max_size=100),
    body=st.text(max_size=2000),
    fork=st.booleans(),
)
def test_any_pull_request_fits_and_stays_true(title: str, labels: list[str], body: str, fork: bool) -> None:
    """Within GitHub's own bounds nothing is ever shortened."""
    raw = opened()
    raw["pull_request"] |= {"title": title, "labels": [{"name": name} for name in labels], "body": body}
    if not fork:
        raw["pull_request"]["head"]["repo"] = None

    sent = client_payload("pull_request", "D1", trim("pull_request", raw), block())

    assert () == sent.shortened
    assert len(sent.body) <= MAX_CLIENT_PAYLOAD
    got = json.loads(sent.body)
    assert len(got) <= 10
    assert {path: at(raw, path) for path in DOCUMENTED} == {path: at(got["payload"], path) for path in DOCUMENTED}
