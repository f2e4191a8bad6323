"""What one backend was told of one change, and what has become of it, from a dispatch's row: for checks and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Select, and_, not_, select

from allowlist.model import Allowlist, Level, RepoName
from levels.outcomes import Outcome
from relay.deciding.facts import DispatchFacts, LegFacts, OnBase, OverrideFacts
from relay.deciding.terms import Terms
from relay.store.checks import SHOWN_STATES, CheckTerms
from relay.store.observing import OBSERVED_LEVELS
from relay.store.tables import Backend, Dispatch

_backend = Backend.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]

#: Dispatches with what ``dispatch_facts`` must know of their backends.
DISPATCHES: Select[Any] = select(
    _dispatch,
    _backend.c.private,
    _backend.c.repository_id,
    _backend.c.paused_until,
    _backend.c.pause_reason,
).select_from(_dispatch.outerjoin(_backend, _backend.c.repo == _dispatch.c.backend))


#: Dispatches whose outcome says something. A notice has none, nor has what was sent to a backend from which nothing is
#: taken at its level.
OWES = and_(
    _dispatch.c.purpose != "notify",
    not_(and_(_dispatch.c.state == "sent", _dispatch.c.level.not_in(OBSERVED_LEVELS), _dispatch.c.legs_reported == 0)),
)


def owes(*, purpose: str, level: int, state: str, legs_reported: int) -> bool:
    """Whether a dispatch's outcome says something, as ``OWES`` asks the database."""
    unheard = state == "sent" and level not in OBSERVED_LEVELS and legs_reported == 0
    return purpose != "notify" and not unheard


def owes_of(row: Any) -> bool:
    """The same of a dispatch's row."""
    return owes(purpose=row.purpose, level=row.level, state=row.state, legs_reported=row.legs_reported)


def dispatch_facts(
    row: Any,
    labels: Sequence[str],
    legs: tuple[LegFacts, ...],
    terms: CheckTerms,
    listed: Allowlist | None,
    overrides: Mapping[RepoName, OverrideFacts],
    *,
    change_state: str = "open",
    base: OnBase | None = None,
) -> DispatchFacts:
    """The facts of one row of ``DISPATCHES``. ``legs`` are those that decide.

    ``listed`` is the allowlist in force, None where levels at dispatch stand. Text is as people and backends wrote it.
    """
    repo = RepoName.parse(row.backend)
    then = Level(row.level)
    entry = None if listed is None else listed.get(repo)
    level: Level | None = then
    if listed is not None and change_state == "open":
        # A promise made at dispatch is not raised afterwards, and what was taken back since holds nobody up.
        level = None if entry is None else min(then, entry.level)
    promised = Terms.from_json(row.terms)
    seen = {leg.backend_version for leg in legs}
    facts = DispatchFacts(
        id=row.id,
        change_id=row.change_id,
        backend=repo,
        level_then=then,
        level=level,
        device=row.device,
        shown=level is not None and row.state in SHOWN_STATES and terms.shows(level, row.device, labels),
        state=row.state,
        reason_code=row.reason_code,
        reason=row.reason,
        terms=promised,
        outcome=standing(change_state, row.state, row.outcome),
        outcome_at=row.outcome_at,
        created_at=row.created_at,
        sent_at=row.sent_at,
        started_at=row.started_at,
        give_up_at=row.give_up_at,
        next_deadline=row.next_deadline,
        concluded_at=row.concluded_at,
        legs_reported=row.legs_reported,
        legs_expected=row.legs_expected,
        missing_versions=tuple(version for version in promised.versions if version not in seen),
        late=row.late,
        private=is_private(row),
        oncalls=() if entry is None else entry.oncalls,
        legs=legs,
        observed_at=row.observed_at,
        observe_note=row.observe_note,
        cause=row.cause,
        origin=row.origin_delivery,
        rerun_at=row.rerun_at,
        rerun_by=row.rerun_by,
        override=overrides.get(repo),
        base=base,
    )
    paused = row.paused_until is not None and change_state == "open"
    return facts.while_paused(row.pause_reason or "") if paused else facts


def is_private(row: Any) -> bool:
    """Whether to show no more than of a private repository: it is one, or GitHub has not told us yet."""
    return row.repository_id is None or bool(row.private)


def outcome_of(state: str, outcome: str) -> Outcome:
    """The outcome of a dispatch whose head is open.

    One that was dropped for a newer head owes nothing; if its head came back and nobody was told again, it was not
    delivered. Raises ValueError for an outcome that is none.
    """
    return Outcome.UNDELIVERED if state == "superseded" else Outcome(outcome)


def standing(change_state: str, state: str, outcome: str) -> Outcome:
    """A dispatch's outcome: as the gate takes it while its head is open, as it was left afterwards."""
    return outcome_of(state, outcome) if change_state == "open" else Outcome(outcome)
