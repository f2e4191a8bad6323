"""Which runs a closed pull request wants cancelled, on both databases."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from relay.store.cancelling import ToCancel, load_cancel
from relay.store.engine import Store
from tests.conftest import Clock
from tests.relay.planning import S2, XPU, pull_request
from tests.store.taking_in import Intake

CANCELS = replace(XPU, cancel_on_close=True)


@pytest.fixture
def intake(store: Store, clock: Clock) -> Intake:
    """A backend whose entry wants it, told of a pull request's first two heads."""
    made = Intake(store, (CANCELS,), clock.now())
    made.take(pull_request(), "D1")
    made.mark_dispatches("sent")
    made.take(pull_request("synchronize", S2, 1), "D2")
    return made


def to_cancel(intake: Intake, dispatch_id: int) -> ToCancel | None:
    """What the worker would find."""
    return intake.store.read_now(lambda conn: load_cancel(conn, dispatch_id))


def test_all_heads_that_were_told_are_wanted_cancelled(intake: Intake) -> None:
    """The older head's run takes a runner, too; what was never sent is dropped without asking anybody."""
    intake.take(pull_request("closed", S2, 2, closed=True), "D3")

    assert [("org/xpu", "ready")] == intake.effects("cancel_runs")
    found = to_cancel(intake, 1)
    assert found is not None
    assert (XPU.repo, "D1", ()) == (found.backend, found.delivery_id, found.runs)
    assert intake.now - timedelta(minutes=5) == found.since
    assert "superseded" == intake.dispatches("state")[1][0]


def test_a_pull_request_that_was_reopened_keeps_its_runs(intake: Intake) -> None:
    """Somebody waits for them again before we came to it."""
    intake.take(pull_request("closed", S2, 2, closed=True), "D3")

    intake.take(pull_request("reopened", S2, 3), "D4")

    assert to_cancel(intake, 1) is None


def test_a_result_leaves_nothing_to_cancel(intake: Intake) -> None:
    """What is settled has no run that anybody would stop."""
    intake.mark_dispatches("sent", "success")

    intake.take(pull_request("closed", S2, 2, closed=True), "D3")

    assert [] == intake.effects("cancel_runs")
