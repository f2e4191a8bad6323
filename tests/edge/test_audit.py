"""The audit as people and programs read it, on both databases."""

from __future__ import annotations

from datetime import timedelta

from allowlist.model import Entry, Level, RepoName
from relay.store.admin import Demotion, Pause, demote, pause
from relay.store.documents import audit
from tests.edge.shown import Shown
from tests.work.record import TERMS

NPU = RepoName.parse("org/npu")


def test_who_did_what_and_why_newest_first_in_pages(shown: Shown) -> None:
    """Each act in full, and the next page begins where one ends."""
    now = shown.clock.now()
    acts = [
        Pause(NPU, now + timedelta(hours=1), "first"),
        Pause(NPU, now + timedelta(hours=2), "second"),
    ]
    for act in acts:
        shown.store.write_now(lambda conn, act=act: pause(conn, act, "ada", TERMS, now))  # type: ignore[misc]

    first = shown.json("/audit", limit=1)
    second = shown.json("/audit", limit=1, before=first["next"])

    (newest,) = first["items"]
    (oldest,) = second["items"]
    assert None is second["next"]
    assert ("ada", "backend paused", "org/npu", "second", str(acts[0]), str(acts[1])) == tuple(
        newest[name] for name in ("who", "what", "subject", "why", "before", "after")
    )
    assert ("first", "") == (oldest["why"], oldest["before"])
    html = shown.page("/audit")
    assert html.index("second") < html.index("<td>first</td>")


def test_hostile_words_stay_words(by_sqlite: Shown) -> None:
    """Whatever somebody gave as their name or reason is escaped and cut."""
    script = "<script>alert(1)</script>"
    by_sqlite.store.write_now(
        lambda conn: audit(conn, at=by_sqlite.clock.now(), who=script, what=script, subject=script, why=script * 500)
    )

    html = by_sqlite.page("/audit")

    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert len(by_sqlite.json("/audit")["items"][0]["why"]) < 2_000


def test_an_empty_audit_says_so(by_sqlite: Shown) -> None:
    """A new relay has done nothing yet."""
    assert {"items": [], "next": None} == by_sqlite.json("/audit")
    assert "no act was written down" in by_sqlite.page("/audit")


def test_a_backend_s_page_tells_of_its_demotion(by_sqlite: Shown) -> None:
    """Whoever wonders at its level finds until when, and why."""
    now = by_sqlite.clock.now()
    by_sqlite.list_backends(Entry(NPU, Level.L2))
    lowered = Demotion(NPU, Level.L2, now + timedelta(hours=4), "wrong compiler")
    by_sqlite.store.write_now(lambda conn: demote(conn, lowered, "ada", TERMS, now))

    told = by_sqlite.json("/backends/org/npu")["backend"]

    assert ("L2", "wrong compiler") == (told["demoted_to"], told["demote_reason"])
    assert "At most L2 until" in by_sqlite.page("/backends/org/npu")
