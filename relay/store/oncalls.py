"""The word to a backend's on-calls when its check on a pull request has failed: one comment, edited for later heads.

The first time that it passes afterwards the comment says so, too: who was called need not look any further.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from levels.outcomes import Outcome
from relay.deciding.facts import CheckFacts, Place
from relay.store.checks import CheckTerms
from relay.store.comments import said_about, want_comment
from relay.texts.rendering import Rendered
from relay.texts.replies import oncall_text, passing_text, tells_of_passing
from relay.texts.words import backend_check_name

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
        if number is None:
            continue
        topic = f"oncall {one.backend}"
        said = said_about(conn, number, topic)
        if one.outcome in _CALLS and one.override is None:
            if said is not None and said.head_sha == facts.head_sha and not tells_of_passing(said.body):
                continue
            body = oncall_text(one, facts.head_sha, written.details_url, one.outcome_at, place)
            want_comment(conn, number, topic, body, terms.upstream, now, head_sha=facts.head_sha)
        elif one.outcome is Outcome.SUCCESS and said is not None and not tells_of_passing(said.body):
            # People come to a comment hours after it called them. The head stays the one for which they were named.
            body = passing_text(one, facts.head_sha, one.outcome_at, said.body)
            want_comment(conn, number, topic, body, terms.upstream, now, head_sha=said.head_sha)
