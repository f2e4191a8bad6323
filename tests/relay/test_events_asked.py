"""What people ask by buttons and comments, read from webhooks."""

from __future__ import annotations

from typing import Any

import pytest

from relay.deciding.commands import Spoken, Verb
from relay.deciding.events import CheckEvent, CommentEvent, parse
from relay.deciding.reading import BadEventError
from tests.relay.bodies import SHA_1, UPSTREAM, check_run, check_suite, comment


def faults_of(event: str, raw: object) -> set[str]:
    """The fields that a refusal names."""
    with pytest.raises(BadEventError) as caught:
        parse(event, raw, UPSTREAM)
    return {fault.field for fault in caught.value.faults}


def test_a_press_of_rerun_names_the_check_its_app_and_who_pressed() -> None:
    """Whose check it is stands in the event, since GitHub tells every app that may write checks."""
    assert CheckEvent(4, SHA_1, "crcr/gate", "", "ada") == parse("check_run", check_run(), UPSTREAM)


def test_a_press_of_a_button_names_the_button() -> None:
    """Buttons carry an identifier and no text."""
    found = parse("check_run", check_run("requested_action"), UPSTREAM)

    assert CheckEvent(4, SHA_1, "crcr/gate", "rerun", "ada") == found


def test_rerun_all_names_no_check() -> None:
    """One event for all checks of an app on a commit."""
    assert CheckEvent(4, SHA_1, None, "", "ada") == parse("check_suite", check_suite(), UPSTREAM)


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        ("/crcr status", Spoken(Verb.STATUS)),
        ("/crcr", Spoken(Verb.HELP)),
        ("/crcr rerun org/npu\r\nThank you!\n/crcr override org/npu no", Spoken(Verb.RERUN, "org/npu")),
        ("/crcr override org/npu it is flaky", Spoken(Verb.OVERRIDE, "org/npu", "it is flaky")),
    ],
)
def test_a_comment_asks_what_its_first_line_says(body: str, asked: Spoken) -> None:
    """What follows is for other readers."""
    assert CommentEvent(7, 902, asked, "ada") == parse("issue_comment", comment(body), UPSTREAM)


@pytest.mark.parametrize(
    ("event", "raw", "field"),
    [
        ("check_run", check_run(check_run__app=...), "check_run.app.id"),
        ("check_run", check_run(check_run__app__id="4"), "check_run.app.id"),
        ("check_run", check_run(check_run__head_sha="x"), "check_run.head_sha"),
        ("check_run", check_run(check_run__name=""), "check_run.name"),
        ("check_run", check_run() | {"action": 5}, "action"),
        ("check_run", check_run("requested_action", requested_action={}), "requested_action.identifier"),
        ("check_suite", check_suite(check_suite__app=None), "check_suite.app.id"),
        ("check_suite", check_suite(check_suite__head_sha=None), "check_suite.head_sha"),
        ("issue_comment", comment(comment__body=5), "comment.body"),
        ("issue_comment", comment(issue__number=0), "issue.number"),
        ("issue_comment", comment(comment__id=True), "comment.id"),
        ("issue_comment", comment(repository=None), "repository.full_name"),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(event: str, raw: dict[str, Any], field: str) -> None:
    """What is asked of us is read as strictly as everything else."""
    assert field in faults_of(event, raw)
