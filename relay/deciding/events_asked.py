"""What people ask of us on GitHub: a check's button, "Re-run", or a comment that starts with ``/crcr``.

These events only say what was asked and by whom. Whether it is done depends on the sender's role, which no event
carries: anybody who can read a repository can ask for a check to be run again.
https://docs.github.com/en/webhooks/webhook-events-and-payloads#check_run
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from allowlist.model import RepoName
from relay.deciding.commands import PREFIX, Spoken, spoken
from relay.deciding.reading import MAX_ID, MAX_LABEL, MAX_NUMBER, Ignored, Reading, action_of, foreign

CHECK_RUN_ACTIONS = frozenset({"rerequested", "requested_action"})
CHECK_SUITE_ACTIONS = frozenset({"rerequested"})
COMMENT_ACTIONS = frozenset({"created"})

#: A check's name holds at most our own prefix and a repository's name, or in the old form a job's.
_MAX_NAME = 1024
_MAX_COMMENT = 65_536


@dataclass(frozen=True, slots=True)
class CheckEvent:
    """Somebody pressed a check's "Re-run", one of its buttons, or "Re-run all".

    ``app_id`` is the app that made the check: only our own are ours to run again. ``name`` is None for a whole suite,
    ``button`` is the identifier of the button, empty for "Re-run".
    """

    app_id: int
    head_sha: str
    name: str | None
    button: str
    sender: str


@dataclass(frozen=True, slots=True)
class CommentEvent:
    """A comment on a pull request whose first line is meant for us. What is asked is hostile text.

    ``written_at`` is GitHub's time, in whole seconds; None where the event tells none.
    """

    number: int
    comment_id: int
    asked: Spoken
    sender: str
    written_at: datetime | None = None


def read_check_run(reading: Reading, upstream: RepoName) -> CheckEvent | Ignored:
    """One check: "Re-run", or a button of ours."""
    if (elsewhere := foreign(reading, upstream)) is not None:
        return elsewhere
    action = action_of(reading, CHECK_RUN_ACTIONS)
    if isinstance(action, Ignored):
        return action
    button = reading.text("requested_action.identifier", MAX_LABEL) if action == "requested_action" else ""
    return CheckEvent(
        app_id=reading.whole("check_run.app.id", MAX_ID),
        head_sha=reading.sha("check_run.head_sha"),
        name=reading.text("check_run.name", _MAX_NAME),
        button=button,
        sender=reading.login("sender.login"),
    )


def read_check_suite(reading: Reading, upstream: RepoName) -> CheckEvent | Ignored:
    """All checks of one app on one commit: "Re-run all"."""
    if (elsewhere := foreign(reading, upstream)) is not None:
        return elsewhere
    action = action_of(reading, CHECK_SUITE_ACTIONS)
    if isinstance(action, Ignored):
        return action
    return CheckEvent(
        app_id=reading.whole("check_suite.app.id", MAX_ID),
        head_sha=reading.sha("check_suite.head_sha"),
        name=None,
        button="",
        sender=reading.login("sender.login"),
    )


def read_comment(reading: Reading, upstream: RepoName) -> CommentEvent | Ignored:
    """A comment, where it is a command. Everything else that people write is none of our business."""
    if (elsewhere := foreign(reading, upstream)) is not None:
        return elsewhere
    action = action_of(reading, COMMENT_ACTIONS)
    if isinstance(action, Ignored):
        return action
    asked = spoken(reading.free_text("comment.body", _MAX_COMMENT))
    if asked is None:
        return Ignored("comment_unwanted", f"the first line of a command starts with {PREFIX}")
    # GitHub calls a pull request's conversation an issue, and marks it with this key.
    # https://docs.github.com/en/rest/issues/issues#list-repository-issues
    if reading.at("issue.pull_request") is None:
        return Ignored("comment_on_issue", "commands are taken on pull requests only")
    if "Bot" in {reading.at("sender.type"), reading.at("comment.user.type")}:
        # Two bots that answer each other would never end.
        return Ignored("comment_by_bot", "commands are taken from people only")
    return CommentEvent(
        number=reading.whole("issue.number", MAX_NUMBER),
        comment_id=reading.whole("comment.id", MAX_ID),
        asked=asked,
        sender=reading.login("sender.login"),
        written_at=reading.moment("comment.created_at"),
    )
