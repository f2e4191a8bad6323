"""The word to a backend's on-calls when its check on a pull request has failed: one comment, edited for later heads."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from levels.outcomes import Outcome
from relay.facts import CheckFacts, Place
from relay.rendering import Rendered
from relay.replies import oncall_text
from relay.store.checks import CheckTerms
from relay.store.comments import head_named, want_comment
from relay.words import backend_check_name

#: Outcomes that a backend's own people should look at. A cancelled run was somebody's wish, and what steps down says
#: so in the check alone.
_CALLS = frozenset(
    {
        Outcome.FAILURE,
        Outcome.TIMED_OUT,
        Outcome.ACTION_REQUIRED,
        Outcome.LOST,
        Outcome.INCOMPLETE,
        Outcome.DISPUTED,
    }
)


def tell_oncalls(
    conn: Connection, facts: CheckFacts, written: Rendered, place: Place, terms: CheckTerms, now: datetime
) -> None:
    """Call it once GitHub shows this state. People are named for a head once, however often it fails afterwards."""
    if written.conclusion is None or written.closing or facts.backend is None:
        return
    if facts.name != backend_check_name(facts.backend):
        return
    numbers = {change.id: change.number for change in facts.open_changes if change.kind == "pull_request"}
    for one in facts.shown(place.overrides):
        number = numbers.get(one.change_id)
        if number is None or one.outcome not in _CALLS or one.override is not None:
            continue
        topic = f"oncall {one.backend}"
        if head_named(conn, number, topic) == facts.head_sha:
            continue
        body = oncall_text(one, facts.head_sha, written.details_url, one.outcome_at, place)
        want_comment(conn, number, topic, body, terms.upstream, now, head_sha=facts.head_sha)
