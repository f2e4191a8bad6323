"""The API tells the whole record, page by page, and never what is nobody's to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event

from allowlist.model import Entry, Level, RepoName
from relay.store.engine import Store
from relay.store.reading.change import change_page
from tests.conftest import Clock
from tests.edge.shown import Shown, history
from tests.work.record import TERMS

NPU = Entry(RepoName("org", "npu"), Level.L4, 3, oncalls=("alice",))


def the_backend(detail: Any, repo: str) -> Any:
    """This backend's part of a change."""
    (found,) = [one for one in detail["backends"] if one["backend"] == repo]
    return found


def test_changes_come_newest_first_page_by_page(shown: Shown) -> None:
    """Each page says where the next one begins, the last says that it is the last, and none is told twice."""
    made = [shown.record.change(f"{number:040x}", number=number) for number in range(1, 8)]

    seen: list[int] = []
    before: dict[str, str] = {}
    sizes = []
    while True:
        page = shown.json("/changes", limit=3, **before)
        sizes.append(len(page["items"]))
        seen += [item["id"] for item in page["items"]]
        if page["next"] is None:
            break
        before = {"before": page["next"]}

    assert made[::-1] == seen
    assert [3, 3, 1] == sizes


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        ({}, [4, 3, 2, 1]),
        ({"kind": "push"}, [4]),
        ({"state": "closed"}, [3]),
        ({"number": "2"}, [2]),
        ({"backend": "Org/NPU"}, [1]),
        ({"backend": "org/npu", "state": "closed"}, []),
    ],
)
def test_changes_can_be_filtered(shown: Shown, wanted: dict[str, str], numbers: list[int]) -> None:
    """By kind, state, number and backend, and by several at once; a backend's name in any case."""
    shown.record.told(shown.record.change("a" * 40, number=1))
    shown.record.change("b" * 40, number=2)
    shown.record.change("c" * 40, number=3, state="closed")
    shown.record.change("d" * 40, number=4, kind="push")

    assert numbers == [item["number"] for item in shown.json("/changes", **wanted)["items"]]


def test_a_change_tells_gate_backends_combinations_and_who_was_not_called(shown: Shown) -> None:
    """What a reviewer needs stands in one answer, and agrees with the check."""
    detail = shown.json(f"/changes/{history(shown)}")

    assert "blocks" == detail["gate"]["effect"]
    assert detail["change"]["gate"]["title"] == detail["gate"]["title"]
    npu = the_backend(detail, "org/npu")
    assert ("blocks", "failure", 3, 4) == (
        npu["gate"],
        npu["dispatch"]["outcome"],
        npu["dispatch"]["legs_reported"],
        npu["dispatch"]["legs_expected"],
    )
    assert [("2.9", "failure", 1), ("2.8", "success", 0)] == [
        (one["backend_version"], one["outcome"], one["failing"])
        for one in npu["combinations"][:1] + npu["combinations"][-1:]
    ]
    failed = npu["combinations"][0]["legs"][0]
    assert ["test_backward_fp16[npu]", "test_fused_dropout"] == [test["name"] for test in failed["failed_tests"]]
    assert (180.0, 2460.0, "test") == (failed["queue_seconds"], failed["execution_seconds"], failed["failure_class"])
    assert {"settled": 6, "passed": 6} == npu["elsewhere"]
    assert [("org/nightly", "filtered_event")] == [(one["backend"], one["reason"]) for one in detail["not_called"]]
    assert {"crcr/gate", "crcr/org/npu", "crcr/org/gaudi"} <= {check["name"] for check in detail["checks"]}


def test_backends_that_decide_the_gate_stand_first(shown: Shown) -> None:
    """Blocking before waiting before no verdict before those that nothing waits for."""
    gates = [one["gate"] for one in shown.json(f"/changes/{history(shown)}")["backends"]]

    assert ["blocks", "pending", "pending", "steps_down", "not_required", "not_required", "not_required"] == gates


def test_a_closed_change_has_no_gate_to_wait_for(shown: Shown) -> None:
    """What was superseded or closed asks nobody to do anything."""
    change = shown.record.change()
    shown.record.told(change)
    shown.record.edit_change(change, state="superseded")

    gate = shown.json(f"/changes/{change}")["gate"]

    assert (None, "Superseded") == (gate["effect"], gate["answer"])


def test_a_private_backend_keeps_its_tests_links_and_messages(shown: Shown) -> None:
    """Of a private repository only counts and conclusions are public."""
    change = shown.record.change()
    told = shown.record.told(change, "org/hidden", Level.L2, private=True)
    shown.record.report(
        told,
        "failure",
        url="https://internal.test/runs/1",
        counts=(1, 1, 0),
        tests=[("secret_name", "secret_class", "secret_message")],
    )

    answer = shown.client.get(f"/api/v1/changes/{change}")

    assert "secret" not in answer.text
    assert "internal.test" not in answer.text
    hidden = the_backend(answer.json(), "org/hidden")
    leg = hidden["combinations"][0]["legs"][0]
    assert (True, "failure", 1, [], None) == (
        hidden["private"],
        leg["outcome"],
        leg["failed"],
        leg["failed_tests"],
        leg["url"],
    )


def test_a_backend_is_private_until_github_has_told_us(shown: Shown) -> None:
    """A repository that we know nothing of is shown as one that is private."""
    change = shown.record.change()
    told = shown.record.told(change)
    shown.record.report(told, "failure", tests=[("secret_name", "", "")])
    shown.know("org/npu", repository_id=None)

    assert "secret_name" not in shown.client.get(f"/api/v1/changes/{change}").text

    shown.know("org/npu", repository_id=5)

    assert "secret_name" in shown.client.get(f"/api/v1/changes/{change}").text


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "data:text/html,x", "https://user:pass@evil.test/", "//evil.test"]
)
def test_an_unsafe_url_is_not_told(by_sqlite: Shown, url: str) -> None:
    """A reader's program may follow what we call a URL."""
    change = by_sqlite.record.change()
    by_sqlite.describe(change, html_url=url)
    by_sqlite.record.report(by_sqlite.record.told(change), "success", url=url)

    detail = by_sqlite.json(f"/changes/{change}")

    assert detail["change"]["html_url"] is None
    assert detail["backends"][0]["combinations"][0]["legs"][0]["url"] is None


def test_bodies_are_never_served(shown: Shown) -> None:
    """Neither a webhook's payload nor a report's body leaves the store."""
    change = shown.record.change()
    told = shown.record.told(change)
    shown.record.report(told, "success")
    shown.record.planned(change, [{"effect": "dispatch", "backend": "org/npu", "reason": "wanted"}])
    delivery = shown.json("/deliveries")["items"][0]["id"]

    for path in (f"/changes/{change}", "/deliveries", f"/deliveries/{delivery}"):
        assert not {"payload", "body"} & keys_of(shown.json(path))


def keys_of(value: Any) -> set[str]:
    """Every key anywhere in a JSON value."""
    if isinstance(value, dict):
        return set(value).union(*(keys_of(one) for one in value.values()))
    return set().union(*(keys_of(one) for one in value)) if isinstance(value, list) else set()


def test_an_older_attempt_does_not_count_and_is_kept(shown: Shown) -> None:
    """After a re-run the page shows what stands, and beside it what it replaced."""
    change = shown.record.change()
    told = shown.record.told(change)
    shown.record.report(told, "failure", attempt=1)
    shown.record.report(told, "success", attempt=2)

    npu = the_backend(shown.json(f"/changes/{change}"), "org/npu")

    assert ["success"] == [leg["conclusion"] for one in npu["combinations"] for leg in one["legs"]]
    assert ["failure"] == [leg["conclusion"] for leg in npu["replaced_legs"]]


def test_a_change_takes_few_statements_however_much_there_is(store: Store, clock: Clock) -> None:
    """Twenty backends with jobs and failing tests cost as many statements as two."""
    shown = Shown(store, clock)
    changes = []
    for size in (2, 20):
        change = shown.record.change(f"{size:040x}", number=size)
        for number in range(size):
            told = shown.record.told(change, f"org/b{number}")
            shown.record.report(told, "failure", tests=[("t", "", "")])
        changes.append(change)

    counts = [statements(store, change) for change in changes]

    assert counts[0] == counts[1]
    assert counts[1] <= 16


def statements(store: Store, change: int) -> int:
    """How many statements it takes to read this change."""
    ran: list[str] = []

    def unit(conn: Connection) -> None:
        event.listen(conn, "before_cursor_execute", lambda *args: ran.append(args[2]))
        assert change_page(conn, change, TERMS) is not None

    store.read_now(unit)
    return len(ran)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/changes?limit=0", "query.limit"),
        ("/changes?limit=101", "query.limit"),
        ("/changes?limit=many", "query.limit"),
        ("/changes?before=9223372036854775808", "query.before"),
        ("/changes?kind=tag", "query.kind"),
        ("/changes?backend=nobody", "query.backend"),
        ("/changes?backend=org/..", "query.backend"),
        ("/changes?backend=org/npu%00", "query.backend"),
        ("/changes/first", "path.change_id"),
        ("/backends?after=x", "query.after"),
        ("/backends/-/..npu%20", "path"),
        ("/why?pull=1", "query.backend"),
        ("/why?backend=org/npu", "query.pull"),
        ("/deliveries?before=%00", "query.before"),
    ],
)
def test_a_bad_parameter_is_named_with_its_rule(by_sqlite: Shown, path: str, field: str) -> None:
    """422 as a problem, with the field and the rule, and nothing of the database's own words."""
    answer = by_sqlite.client.get(f"/api/v1{path}")

    assert (422, "application/problem+json") == (answer.status_code, answer.headers["content-type"])
    (fault,) = answer.json()["errors"]
    assert field == fault["field"]
    assert fault["rule"]


@pytest.mark.parametrize("path", ["/changes/1", "/backends/org/none", "/deliveries/none"])
def test_what_is_not_there_is_a_404_problem(by_sqlite: Shown, path: str) -> None:
    """With a code of its own, so that a program can tell it from a wrong address."""
    answer = by_sqlite.client.get(f"/api/v1{path}")

    assert (404, "application/problem+json") == (answer.status_code, answer.headers["content-type"])
    assert answer.json()["code"].startswith("no_such_")


def test_an_unchanged_answer_is_304_and_a_changed_one_is_not(shown: Shown) -> None:
    """A reader who asks every few seconds costs no body until something has happened."""
    change = shown.record.change()
    told = shown.record.told(change)
    path = f"/api/v1/changes/{change}"
    tag = shown.client.get(path).headers["etag"]

    same = shown.client.get(path, headers={"If-None-Match": f'"other", W/{tag}'})
    shown.record.report(told, "success")
    moved = shown.client.get(path, headers={"If-None-Match": tag})

    assert (304, b"", tag) == (same.status_code, same.content, same.headers["etag"])
    assert 200 == moved.status_code
    assert tag != moved.headers["etag"]


def test_a_store_that_does_not_answer_is_a_503_that_says_when_to_ask_again(tmp_path: Path, clock: Clock) -> None:
    """Our fault is told as ours, without the database's own words."""
    shown = Shown(Store(f"sqlite:///{tmp_path / 'empty.db'}"), clock)

    for path in ("/changes", "/changes/1", "/backends", "/deliveries", "/dead-letters", "/why?pull=1&backend=a/b"):
        answer = shown.client.get(f"/api/v1{path}")

        assert (503, "store_unreachable") == (answer.status_code, answer.json()["code"])
        assert "5" == answer.headers["retry-after"]
        assert "no such table" not in answer.text
    shown.store.close()


def test_programs_are_told_not_to_run_frame_or_guess(by_sqlite: Shown) -> None:
    """An answer that a browser shows must not become a page of somebody's making."""
    headers = by_sqlite.client.get("/api/v1/changes").headers

    assert ("nosniff", "no-cache") == (headers["x-content-type-options"], headers["cache-control"])
    assert "default-src 'none'" in headers["content-security-policy"]
