"""Answering for a backend: whether there is something to answer for, and the act with its record."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, select

from allowlist.model import Allowlist, RepoName
from levels.outcomes import Outcome
from relay.deciding.facts import CheckFacts
from relay.store.checks import CheckTerms
from relay.store.commands import audit, gate_of
from relay.store.overrides import set_override
from relay.store.redispatch import Refusal
from relay.store.tables import Change
from relay.texts.words import PHRASES

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.

#: Outcomes that hold nothing back, so that nobody need answer for them.
HOLDS_NOTHING = frozenset({Outcome.SUCCESS, Outcome.FILTERED, Outcome.UNLISTED, Outcome.NOT_REQUIRED})


def not_overridable(facts: CheckFacts, backend: RepoName) -> str | None:
    """Why there is nothing to answer for, or None where there is."""
    mine = [one for one in facts.dispatches if one.backend == backend]
    if not mine:
        return f"`{backend}` was not told of this commit, so there is nothing to answer for."
    if not any(one.gates for one in mine):
        return f"`{backend}` cannot hold a merge back, so there is nothing to answer for."
    if all(one.standing in HOLDS_NOTHING for one in mine):
        return f"`{backend}` {PHRASES[mine[0].standing].verb} here and holds nothing back."
    return None


def answer_for(
    conn: Connection,
    facts: CheckFacts,
    backend: RepoName,
    number: int | None,
    *,
    who: str,
    why: str,
    terms: CheckTerms,
    now: datetime,
) -> Refusal | None:
    """Let ``who`` answer for this backend on the commit of ``facts``, and put it on record."""
    said = not_overridable(facts, backend)
    if said is not None:
        return Refusal("nothing_to_override", said)
    set_override(conn, facts.head_sha, backend, number, who, why, now, terms)
    subject = f"{backend} on {facts.head_sha}"
    audit(conn, who=who, what="override", subject=subject, why=why, after=f"pull request {number}", now=now)
    return None


def answer_for_pull(
    conn: Connection,
    number: int,
    backend: RepoName,
    *,
    who: str,
    why: str,
    terms: CheckTerms,
    listed: Allowlist | None,
    now: datetime,
) -> str | Refusal:
    """The same for the newest commit of a pull request; returns that commit."""
    head_sha = conn.execute(
        select(_change.c.head_sha).where(
            _change.c.number == number, _change.c.kind == "pull_request", _change.c.state == "open"
        )
    ).scalar()
    facts = None if head_sha is None else gate_of(conn, head_sha, terms, listed)
    if facts is None:
        return Refusal("unknown", f"nothing is known of pull request {number}, or it is not open")
    refused = answer_for(conn, facts, backend, number, who=who, why=why, terms=terms, now=now)
    return refused or facts.head_sha
