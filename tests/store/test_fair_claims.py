"""Under steady load no kind of work waits for ever behind another."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from allowlist.model import RepoName
from relay.effects import Kind, forward_hud
from relay.store import outbox
from relay.store.engine import Store
from relay.store.observing import first_look

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def test_reports_are_forwarded_while_runs_are_looked_at(store: Store) -> None:
    """As many looks come as can be done, for hours: the HUD hears of what is new all the same."""
    backend, forwarded = RepoName.parse("org/npu"), Counter[Kind]()
    for turn in range(10):
        now = NOW + timedelta(minutes=turn)
        both = [
            effect
            for number in range(turn * 10, turn * 10 + 10)
            for effect in (first_look(number, backend, 4), forward_hud(number, number, "test"))
        ]
        store.write_now(lambda conn, both=both, now=now: outbox.enqueue(conn, both, now - timedelta(hours=1)))  # type: ignore[misc]
        claimed = store.write_now(lambda conn, now=now: outbox.claim(conn, owner="me", count=10, now=now))  # type: ignore[misc]
        forwarded.update(effect.kind for effect in claimed)

    assert 100 == forwarded.total()
    assert 40 <= forwarded[Kind.FORWARD_HUD] <= 60
