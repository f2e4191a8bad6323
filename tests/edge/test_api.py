"""The API tells the whole record, page by page, and never what is nobody's to read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event

from allowlist.model import Allowlist, Entry, Fault, Level, RepoName
from relay.store.engine import Store
from relay.store.reading_change import change_page
from tests.conftest import Clock
from tests.edge.shown import Shown, history
from tests.work.record import TERMS

NPU = Entry(RepoName("org", "npu"), Level.L4, 3, oncalls=("alice",))


@pytest.fixture
def by_sqlite(sqlite_template: Path, tmp_path: Path, clock: Clock) -> Iterator[Shown]:
    """The same on one database, for what does not depend on it."""
    shutil.copy(sqlite_template, tmp_path / "one.db")
    store = Store(f"sqlite:///{tmp_path / 'one.db'}")
    yield Shown(store, clock)
    store.close()


@pytest.fixture
def shown(store: Store, clock: Clock) -> Shown:
    """Pages and API over an empty record on each database."""
    return Shown(store, clock)


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


def test_backends_are_those_listed_and_those_known_by_name(shown: Shown) -> None:
    """Who left the list is still found; pages follow the name."""
    shown.list_backends(NPU, Entry(RepoName("org", "zeta"), Level.L1, 4))
    shown.know("org/gone", last_error="boom")

    first = shown.json("/backends", limit=2)
    second = shown.json("/backends", limit=2, after=first["next"])

    assert ["org/gone", "org/npu"] == [one["repo"] for one in first["items"]]
    assert [None, "L4"] == [one["entry"] and one["entry"]["level"] for one in first["items"]]
    assert (["org/zeta"], None) == ([one["repo"] for one in second["items"]], second["next"])


def test_a_backend_tells_its_ids_its_trouble_and_how_its_tests_ended(shown: Shown) -> None:
    """What an admin and a maintainer ask first."""
    history(shown)

    detail = shown.json("/backends/ORG/npu", limit=5)

    assert (812_233, 99_001, False) == tuple(
        detail["backend"][name] for name in ("repository_id", "installation_id", "private")
    )
    assert [{"outcome": "success", "count": 6}, {"outcome": "failure", "count": 1}] == detail["backend"]["outcomes"]
    assert [4711, 6, 5, 4, 3] == [one["number"] for one in detail["dispatches"]]
    older = shown.json("/backends/org/npu", limit=5, before=detail["next"])
    assert ([2, 1], None) == ([one["number"] for one in older["dispatches"]], older["next"])


def test_a_delivery_tells_each_try(shown: Shown) -> None:
    """From the webhook to the decision, the dispatch, and every attempt with its end."""
    history(shown)
    (delivery,) = shown.json("/deliveries")["items"]
    assert (2, 1, 4711) == (delivery["called"], delivery["left_out"], delivery["number"])

    change = shown.record.change("e" * 40, number=12)
    shown.record.planned(change, [{"effect": "dispatch", "backend": "org/npu", "reason": "wanted"}])
    told = shown.record.dispatch(change)
    shown.tried(told, ("retry", "server_error", "GitHub answered 502"), ("done", "", ""))
    origin = shown.json("/deliveries", limit=1)["items"][0]["id"]
    shown.record.edit_dispatch(told, origin_delivery=origin)

    (followed,) = shown.json(f"/deliveries/{origin}")["decisions"]

    assert ("org/npu", told) == (followed["decided"]["backend"], followed["dispatch_id"])
    (effect,) = followed["effects"]
    assert [("retry", "server_error"), ("done", "")] == [(one["outcome"], one["reason"]) for one in effect["tries"]]


def test_deliveries_of_one_second_are_paged_without_loss(shown: Shown) -> None:
    """GitHub sends many webhooks at once, so the time alone does not order them."""
    change = shown.record.change()
    for _ in range(5):
        shown.record.planned(change, [])

    seen: list[str] = []
    start: dict[str, str] = {}
    while True:
        page = shown.json("/deliveries", limit=2, **start)
        seen += [one["id"] for one in page["items"]]
        if page["next"] is None:
            break
        start = {"before": page["next"]}

    assert (5, 5) == (len(seen), len(set(seen)))


def test_dead_letters_name_change_delivery_and_reason(shown: Shown) -> None:
    """What was given up is found without knowing what to look for."""
    change = shown.record.change()
    told = shown.record.dispatch(change, "org/quiet")
    shown.tried(told, ("dead", "not_installed", "the app is not installed"), state="dead")

    page = shown.json("/dead-letters")

    assert [("dispatch", "org/quiet", change, "not_installed")] == [
        (one["kind"], one["subject"], one["change_id"], one["reason"]) for one in page["items"]
    ]


def test_why_says_it_in_a_sentence(shown: Shown) -> None:
    """Of a backend that its filters left out, the filter is named."""
    history(shown)

    (decision,) = shown.json("/why", pull=4711, backend="org/Nightly")["decisions"]

    assert (
        "2026-11-30 12:42:00 UTC  pull_request opened at c0ffee12c0ff: "
        "not called: asks for nightly, this is pull_request"
    ) == decision["sentence"]


def test_why_of_nothing_known_is_a_404_that_says_where_to_look(shown: Shown) -> None:
    """An empty list would look like an answer."""
    answer = shown.client.get("/api/v1/why", params={"pull": 1, "backend": "org/npu"})

    assert (404, "nothing_known") == (answer.status_code, answer.json()["code"])
    assert "application/problem+json" == answer.headers["content-type"]


def test_the_allowlist_is_told_with_faults_and_age(by_sqlite: Shown, clock: Clock) -> None:
    """An admin sees what is in force, what is wrong, and how old the reading is."""
    by_sqlite.listed.allowlist = Allowlist((NPU,), digest="d9")
    by_sqlite.listed.faults = (Fault(7, "level", "L9 is no level", "Use L1 to L4."),)
    by_sqlite.listed.trouble = "cannot read it"
    clock.advance(timedelta(seconds=90))

    told = by_sqlite.json("/allowlist")

    assert ("d9", 90.0, "cannot read it", True) == tuple(
        told[name] for name in ("digest", "age_seconds", "trouble", "loaded")
    )
    assert [("org/npu", "L4", 7200.0, ["alice"])] == [
        (one["repo"], one["level"], one["queue_seconds"], one["oncalls"]) for one in told["entries"]
    ]
    assert [(7, "error")] == [(one["line"], one["severity"]) for one in told["faults"]]


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
