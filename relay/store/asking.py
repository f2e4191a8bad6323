"""One transaction for a webhook by which a person asks something of us: the delivery, and the command it is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, select

from allowlist.model import RepoName
from relay.deciding.commands import Verb
from relay.deciding.events_asked import CheckEvent, CommentEvent
from relay.deciding.plan import Decision
from relay.store.commands import Asked, ask
from relay.store.intake import Received, Recorded, note_delivery, note_plan
from relay.store.tables import Change, Check, Command

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_check = Check.__table__  # type: ignore[attr-defined]
_command = Command.__table__  # type: ignore[attr-defined]

#: What our checks' buttons ask for.
BUTTONS: Mapping[str, Verb] = MappingProxyType({"rerun": Verb.RERUN, "redispatch": Verb.RUN})

#: What one person may ask on one pull request within an hour, by comments and at checks. Each costs us a call to
#: GitHub, and most a comment, so more is somebody's machine. "Re-run failed" sends one event for each failed check.
ASKED_WITHIN = timedelta(hours=1)
MOST_COMMENTS = 30
MOST_PRESSES = 300

_HEAD = (
    select(_change.c.head_sha)
    .where(_change.c.number == bindparam("b_number"), _change.c.kind == "pull_request", _change.c.state != "superseded")
    .order_by(_change.c.updated_at.desc(), _change.c.id.desc())
    .limit(1)
)
#: The head that was there at a moment: one that came later was not spoken of.
_HEAD_THEN = (
    select(_change.c.head_sha)
    .where(
        _change.c.number == bindparam("b_number"),
        _change.c.kind == "pull_request",
        _change.c.created_at <= bindparam("b_by", type_=_change.c.created_at.type),
    )
    .order_by(_change.c.updated_at.desc(), _change.c.id.desc())
    .limit(1)
)
_NUMBER = (
    select(_change.c.number)
    .where(_change.c.head_sha == bindparam("b_head"), _change.c.number.is_not(None))
    .order_by(_change.c.state != "open", _change.c.id)
    .limit(1)
)
_CHECK = select(_check.c.id, _check.c.backend).where(
    _check.c.head_sha == bindparam("b_head"), _check.c.name == bindparam("b_name")
)


def record_asked(
    conn: Connection, event: CheckEvent | CommentEvent, received: Received, upstream: RepoName, now: datetime
) -> Recorded:
    """Write down what somebody asks, to be decided once GitHub has told their role. A redelivery asks nothing new."""
    action = _action(event)
    if not note_delivery(conn, received, action=action, repository=str(upstream), sender=event.sender, now=now):
        return Recorded("duplicate", ())
    asked = _of_comment(conn, event, received) if isinstance(event, CommentEvent) else _of_check(conn, event, received)
    if isinstance(asked, Asked) and _too_often(conn, asked, now):
        asked = Decision("none", "", "asked_too_often", "this person has asked for too much here within the last hour")
    if isinstance(asked, Asked):
        ask(conn, asked, now, upstream=upstream)
        # No backend is told by this, and the one that was named may be none: it is only what somebody wrote.
        decision = Decision("command", "", asked.verb, asked.backend or "")
    else:
        decision = asked
    note_plan(conn, received.delivery_id, [decision])
    return Recorded("accepted", (decision,))


def _too_often(conn: Connection, asked: Asked, now: datetime) -> bool:
    comments = asked.source == "comment"
    here = _command.c.head_sha == asked.head_sha if asked.number is None else _command.c.number == asked.number
    counted = select(func.count()).where(
        here,
        func.lower(_command.c.sender) == asked.sender.lower(),
        (_command.c.source == "comment") if comments else (_command.c.source != "comment"),
        _command.c.created_at > now - ASKED_WITHIN,
    )
    return int(conn.execute(counted).scalar() or 0) >= (MOST_COMMENTS if comments else MOST_PRESSES)


def _action(event: CheckEvent | CommentEvent) -> str:
    if isinstance(event, CommentEvent):
        return "created"
    return "requested_action" if event.button else "rerequested"


def _of_comment(conn: Connection, event: CommentEvent, received: Received) -> Asked:
    """The head is the one that its writer could see: what is pushed afterwards was not spoken of."""
    of = {"b_number": event.number}
    head_sha = None
    if event.asked.verb is Verb.OVERRIDE and event.written_at is not None:
        # A push can be known before the comment that was written before it: nobody has answered for that.
        # GitHub tells a comment's time in whole seconds.
        by = event.written_at.replace(microsecond=999_999)
        head_sha = conn.execute(_HEAD_THEN, {**of, "b_by": by}).scalar()
    return Asked(
        delivery_id=received.delivery_id,
        source="comment",
        sender=event.sender,
        verb=event.asked.verb,
        number=event.number,
        head_sha=head_sha or conn.execute(_HEAD, of).scalar(),
        comment_id=event.comment_id,
        backend=event.asked.backend,
        words=event.asked.words,
    )


def _of_check(conn: Connection, event: CheckEvent, received: Received) -> Asked | Decision:
    verb, row = Verb.RERUN, None
    if event.button:
        if event.button not in BUTTONS:
            return Decision("none", "", "button_unknown", "none of our checks has such a button")
        verb = BUTTONS[event.button]
    if event.name is not None:
        row = _check_of(conn, event.head_sha, event.name)
        if row is None:
            return Decision("none", "", "check_unknown", "no check of ours has this name on this commit")
    return Asked(
        delivery_id=received.delivery_id,
        source="check_suite" if event.name is None else "action" if event.button else "check_run",
        sender=event.sender,
        verb=verb,
        number=conn.execute(_NUMBER, {"b_head": event.head_sha}).scalar(),
        head_sha=event.head_sha,
        backend=None if row is None else row.backend,
        check_id=None if row is None else row.id,
    )


def _check_of(conn: Connection, head_sha: str, name: str) -> Row[Any] | None:
    return conn.execute(_CHECK, {"b_head": head_sha, "b_name": name}).first()
