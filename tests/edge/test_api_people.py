"""What people did about a change, as programs read it: overrides, runs asked for again, and what was asked."""

from __future__ import annotations

from functools import partial

from relay.store.commands import Asked, ask
from relay.store.overrides import set_override
from tests.edge.shown import Shown
from tests.work.record import NPU, TERMS
from tests.work.remembered_github import S1, UPSTREAM


def test_the_api_says_who_answers_for_a_backend_and_why(shown: Shown) -> None:
    """A dashboard of somebody else must not take an overridden backend for one that passed."""
    change = shown.record.change()
    shown.record.report(shown.record.told(change), "failure")
    shown.record.report(shown.record.told(change, "org/xpu"), "success")
    now = shown.clock.now()
    said = partial(set_override, head_sha=S1, backend=NPU, number=7, who="margaret", why="known\x07 <b>", now=now)
    shown.store.write_now(lambda conn: said(conn, terms=TERMS))

    found = {one["backend"]: one["override"] for one in shown.json(f"/changes/{change}")["backends"]}

    assert found["org/xpu"] is None
    assert ("margaret", "known <b>", 7) == tuple(found["org/npu"][name] for name in ("who", "why", "number"))
    assert now.isoformat().startswith(found["org/npu"]["at"][:19])


def test_the_api_says_why_a_backend_was_told_anew_and_who_asked_for_its_runs(shown: Shown) -> None:
    """Both stand on the page; a program reads them of each dispatch."""
    change = shown.record.change()
    first = shown.record.told(change)
    shown.record.report(first, "failure")
    shown.record.edit_dispatch(first, rerun_at=shown.clock.now(), rerun_by="asked for by triager at 15:05 UTC")
    shown.record.edit_dispatch(shown.record.told(change), cause="asked for by writer at 15:10 UTC\u202e")

    (told,) = shown.json(f"/changes/{change}")["backends"]
    (other,) = told["others"]

    assert ("asked for by writer at 15:10 UTC", None, "") == tuple(
        told["dispatch"][name] for name in ("cause", "rerun_at", "rerun_by")
    )
    assert ("", "asked for by triager at 15:05 UTC") == (other["cause"], other["rerun_by"])
    assert other["rerun_at"] is not None


def test_the_api_lists_what_was_asked_for(shown: Shown) -> None:
    """As it was written, with what became of it."""
    change = shown.record.change()
    asked = Asked("d9", "comment", "writer", "override", number=7, head_sha=S1, backend="npu", words="known")
    shown.store.write_now(lambda conn: ask(conn, asked, shown.clock.now(), upstream=UPSTREAM))

    (one,) = shown.json(f"/changes/{change}")["asked"]

    expected = {"sender": "writer", "source": "comment", "verb": "override", "backend": "npu", "words": "known"}
    assert {**expected, "state": "asked", "role": None} == {name: one[name] for name in (*expected, "state", "role")}
