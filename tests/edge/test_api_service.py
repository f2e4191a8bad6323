"""The API about the service itself: backends, deliveries, dead letters, decisions, and the allowlist."""

from __future__ import annotations

from datetime import timedelta

from allowlist.model import Allowlist, Entry, Fault, Level, RepoName
from tests.conftest import Clock
from tests.edge.shown import Shown, history

NPU = Entry(RepoName("org", "npu"), Level.L4, 3, oncalls=("alice",))


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
