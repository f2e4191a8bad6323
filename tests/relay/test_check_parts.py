"""Parts of a backend's check that come and go: its buttons, and what GitHub itself shows."""

from __future__ import annotations

import pytest

from levels.outcomes import Outcome
from relay.deciding.facts import DispatchFacts
from relay.texts.rendering import render_backend
from tests.relay.check_stories import FAILED, PLACE, check, dispatch, leg


@pytest.mark.parametrize(
    ("one", "buttons"),
    [
        (dispatch(Outcome.FAILURE, FAILED), ["rerun", "redispatch"]),
        (dispatch(Outcome.LOST, leg("slow", None)), ["rerun", "redispatch"]),
        (dispatch(Outcome.CANCELLED), ["rerun", "redispatch"]),  # Seen at GitHub, and never reported.
        (dispatch(Outcome.SILENT, ended=120, concluded=120), ["redispatch"]),
        (dispatch(Outcome.UNDELIVERED, state="dead"), ["redispatch"]),
        (dispatch(Outcome.PAUSED, state="paused"), []),
        (dispatch(Outcome.SUCCESS, leg()), []),
        (dispatch(Outcome.RUNNING, leg(conclusion=None)), []),
    ],
)
def test_a_check_has_the_buttons_that_can_do_something(one: DispatchFacts, buttons: list[str]) -> None:
    """Where no run is known there is none to run again, and a paused backend would refuse both."""
    shown = render_backend(check(one), PLACE)

    assert buttons == [button.identifier for button in shown.actions]
    assert ("/crcr" in shown.summary) is bool(buttons)


def test_what_github_shows_has_a_column_once_somebody_has_looked() -> None:
    """A column of dashes tells a reader nothing; afterwards each job says whether it was seen."""
    unseen = render_backend(check(dispatch(Outcome.SUCCESS, leg(), leg("b"))), PLACE)
    seen = render_backend(check(dispatch(Outcome.SUCCESS, leg(observed="success"), leg("b"))), PLACE)

    assert "At GitHub" not in unseen.text
    assert "| passed | verified |" in seen.text
    for shown in (unseen, seen):
        rows = [line for line in shown.text.splitlines() if line.startswith("|")]
        assert 1 == len({line.count(" | ") for line in rows})
