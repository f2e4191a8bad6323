"""A webhook by which a person asks something becomes one command, whatever is sent again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from relay.deciding.commands import Spoken, Verb
from relay.deciding.events import CheckEvent, CommentEvent
from relay.deciding.plan import Decision
from relay.store.asking import ASKED_WITHIN, MOST_COMMENTS, MOST_PRESSES, record_asked
from relay.store.engine import Store
from relay.store.intake import Received, Recorded
from relay.store.tables import Check, Command
from tests.conftest import Clock
from tests.relay.planning import S1, S2, XPU, pull_request
from tests.store.taking_in import UPSTREAM, Intake

_command: Any = Command.__table__  # type: ignore[attr-defined]
_check: Any = Check.__table__  # type: ignore[attr-defined]

#: What a command is kept with, but for when.
ASKED = ("source", "verb", "number", "head_sha", "comment_id", "backend", "check_id", "sender", "words", "state")


@pytest.fixture
def kept(store: Store, clock: Clock) -> Intake:
    """Pull request 7 at S1, with its gate and a backend's check."""
    intake = Intake(store, (XPU,), clock.now())
    intake.take(pull_request(), "opened")
    return intake


def asked(kept: Intake, event: CheckEvent | CommentEvent, delivery_id: str = "D") -> Recorded:
    """Take in a webhook that asks something."""
    received = Received(delivery_id, "asks", "{}")
    return kept.store.write_now(lambda conn: record_asked(conn, event, received, UPSTREAM, kept.now))


def check_id(kept: Intake, name: str) -> int:
    """Our row of the check on S1."""
    (found,) = [row[0] for row in kept.rows(_check, "id", "head_sha", "name") if row[1:] == (S1, name)]
    return int(found)


def test_a_comment_is_kept_with_the_head_that_its_writer_saw(kept: Intake) -> None:
    """What is pushed afterwards was not spoken of, above all not by an override."""
    asked(kept, CommentEvent(7, 902, Spoken(Verb.OVERRIDE, "org/xpu", "flaky"), "ada"))
    kept.take(pull_request("synchronize", S2, 1), "pushed")
    asked(kept, CommentEvent(7, 903, Spoken(Verb.STATUS), "ada"), "D2")

    assert [
        ("comment", "override", 7, S1, 902, "org/xpu", None, "ada", "flaky", "asked"),
        ("comment", "status", 7, S2, 903, None, None, "ada", "", "asked"),
    ] == kept.rows(_command, *ASKED)
    assert [("", "ready"), ("", "ready")] == kept.effects("run_command")


def test_an_override_speaks_of_no_commit_that_came_after_it_was_written(kept: Intake) -> None:
    """Whoever pushes while somebody writes an override must not have it for a commit that nobody looked at."""
    later = replace(kept, now=kept.now + timedelta(minutes=2))
    later.take(pull_request("synchronize", S2, 1), "pushed")
    for verb in (Verb.OVERRIDE, Verb.STATUS):
        for number, minutes in enumerate((1, 3)):
            event = CommentEvent(
                7, 902, Spoken(verb, "org/xpu", "flaky"), "grace", kept.now + timedelta(minutes=minutes)
            )
            asked(later, event, f"{verb} {number}")

    heads = [("override", S1), ("override", S2), ("status", S2), ("status", S2)]
    assert heads == kept.rows(_command, "verb", "head_sha")


def test_a_comment_on_a_pull_request_that_we_never_saw_is_kept_too(kept: Intake) -> None:
    """Whoever decides it can say that nothing is known."""
    asked(kept, CommentEvent(8, 902, Spoken(Verb.STATUS), "ada"))

    assert [("comment", "status", 8, None, 902, None, None, "ada", "", "asked")] == kept.rows(_command, *ASKED)


@pytest.mark.parametrize(
    ("name", "button", "source", "verb", "backend"),
    [
        ("crcr/gate", "", "check_run", "rerun", None),
        ("crcr/org/xpu", "", "check_run", "rerun", "org/xpu"),
        ("crcr/org/xpu", "rerun", "action", "rerun", "org/xpu"),
        ("crcr/org/xpu", "redispatch", "action", "run", "org/xpu"),
    ],
)
def test_a_press_at_a_check_is_a_command_about_its_backend(
    kept: Intake, name: str, button: str, source: str, verb: str, backend: str | None
) -> None:
    """The check is ours, so our record says whose it is; nothing is read out of its name."""
    recorded = asked(kept, CheckEvent(4, S1, name, button, "ada"))

    wanted = (source, verb, 7, S1, None, backend, check_id(kept, name), "ada", "", "asked")
    assert [wanted] == kept.rows(_command, *ASKED)
    assert (Decision("command", "", verb, backend or ""),) == recorded.planned


def test_rerun_all_is_one_command_about_the_head(kept: Intake) -> None:
    """It names no check, and so no backend."""
    asked(kept, CheckEvent(4, S1, None, "", "ada"))

    assert [("check_suite", "rerun", 7, S1, None, None, None, "ada", "", "asked")] == kept.rows(_command, *ASKED)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (CheckEvent(4, S1, "crcr/other/one", "", "ada"), "check_unknown"),
        (CheckEvent(4, S2, "crcr/gate", "", "ada"), "check_unknown"),
        (CheckEvent(4, S1, "crcr/org/xpu", "explode", "ada"), "button_unknown"),
    ],
)
def test_what_is_none_of_our_checks_or_buttons_asks_nothing(kept: Intake, event: CheckEvent, reason: str) -> None:
    """The delivery is kept with the reason, and no command is."""
    recorded = asked(kept, event)

    assert [reason] == [decision.reason for decision in recorded.planned]
    assert [] == kept.rows(_command, "id")


def test_a_redelivery_asks_nothing_new(kept: Intake) -> None:
    """GitHub repeats the id when somebody presses "Redeliver"."""
    event = CommentEvent(7, 902, Spoken(Verb.RERUN), "ada")
    asked(kept, event)

    assert Recorded("duplicate", ()) == asked(kept, event)
    assert 1 == len(kept.rows(_command, "id"))


def test_two_pull_requests_on_one_head_are_both_reached_by_its_check(kept: Intake, store: Store) -> None:
    """The command names one that is open; what is decided concerns the head."""
    kept.take(pull_request(number=8), "second")
    kept.take(pull_request("closed", minutes=1), "closed")
    asked(kept, CheckEvent(4, S1, "crcr/gate", "", "ada"))

    assert [(8, S1)] == kept.rows(_command, "number", "head_sha")


@pytest.mark.parametrize(
    ("event", "most"),
    [
        (CommentEvent(7, 902, Spoken(Verb.STATUS), "Ada"), MOST_COMMENTS),
        pytest.param(CheckEvent(4, S1, "crcr/gate", "", "Ada"), MOST_PRESSES, marks=pytest.mark.slow),
    ],
)
def test_one_person_asks_only_so_often(kept: Intake, event: CommentEvent | CheckEvent, most: int) -> None:
    """Each command costs a call to GitHub, whoever asks: a flood costs rows of deliveries alone, and nobody else."""
    before = replace(kept, now=kept.now - ASKED_WITHIN)
    asked(before, event, "long ago")
    told = [asked(kept, event, f"D{number}").planned[0].reason for number in range(most + 1)]
    other = asked(kept, replace(event, sender="grace"), "grace").planned[0].effect

    assert ["asked_too_often"] == [reason for reason in told if reason == "asked_too_often"]
    assert "asked_too_often" == told[-1]
    assert "command" == other
    assert 1 + most + 1 == len(kept.effects("run_command"))
