"""A backend works again and is told of what it missed, but for what another try would not mend or might repeat."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, insert, select, update

from allowlist.model import RepoName
from relay.deciding.circuits import State, backend_key
from relay.deciding.terms import Terms
from relay.store.engine import Store
from relay.store.returning import bring_back, probe, try_now
from relay.store.tables import Effect
from relay.store.tables_limits import Circuit
from tests.store.taking_in import TERMS
from tests.store.test_doubts import LATER, MINUTE, NOW, put

BACKEND = "org/npu"
DISPATCH = select(Effect.state).where(Effect.id == 1)


def gave_up(store: Store, reason: str, state: State) -> None:
    """A dispatch that died of this, to a backend whose circuit stands like that."""
    tries = ((1, 1, "retry", True), (2, 10, "dead", False))
    put(store, 1, *tries, state="dead", effect="dead", terms=Terms(7200.0, 21600.0).to_json())
    circuit = {"key": backend_key(BACKEND), "state": state.value, "since": NOW, "held_until": NOW, "refusing": True}

    def unit(conn: Connection) -> None:
        conn.execute(update(Effect).values(reason=reason, subject=BACKEND))
        conn.execute(insert(Circuit), Circuit(**circuit).model_dump())

    store.write_now(unit)


@pytest.mark.parametrize(("reason", "expected"), [("github_unavailable", "ready"), ("maybe_delivered", "dead")])
def test_what_may_have_arrived_is_not_sent_again_by_itself(store: Store, reason: str, expected: str) -> None:
    """That is a person's to decide: it was sent three times, and nobody knows how often it ran."""
    gave_up(store, reason, State.RETURNED)

    (back,) = store.write_now(lambda conn: bring_back(conn, TERMS, LATER))

    assert BACKEND == str(back)
    assert expected == store.read_now(lambda conn: conn.execute(DISPATCH).scalar_one())


@pytest.mark.parametrize(("reason", "expected"), [("github_unavailable", "ready"), ("maybe_delivered", "dead")])
def test_nor_is_it_a_probe(store: Store, reason: str, expected: str) -> None:
    """Neither where nothing else comes by nor where somebody asks for one."""
    gave_up(store, reason, State.OFF)

    store.write_now(lambda conn: probe(conn, TERMS, LATER + 10 * MINUTE))
    by_itself = store.read_now(lambda conn: conn.execute(DISPATCH).scalar_one())
    store.write_now(lambda conn: try_now(conn, [RepoName.parse(BACKEND)], TERMS, LATER))

    assert expected == by_itself == store.read_now(lambda conn: conn.execute(DISPATCH).scalar_one())
