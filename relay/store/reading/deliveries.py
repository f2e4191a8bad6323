"""Deliveries: a webhook that came in, what was planned because of it, and each try at doing so. And dead letters."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, func, select, tuple_

from levels.outcomes import Outcome
from relay.deciding.effects import Kind
from relay.store.outbox import IS_DEAD
from relay.store.reading.pages import (
    MOST_MESSAGE,
    MOST_TITLE,
    USUAL,
    Decided,
    Page,
    bounded,
    decisions_of,
    name_of,
    paged,
)
from relay.store.tables import Attempt, Change, Delivery, Dispatch, Effect
from relay.store.told import owes_of

_attempt = Attempt.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_change = Change.__table__  # type: ignore[attr-defined]
_delivery = Delivery.__table__  # type: ignore[attr-defined]
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_effect = Effect.__table__  # type: ignore[attr-defined]

_SENDING = (Kind.DISPATCH.value, Kind.DECIDE_PATHS.value)

#: Bounds of one delivery's page: backends decided on, effects, and the newest tries at each of them.
MOST_DECISIONS = 500
MOST_EFFECTS = 1_000
MOST_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class DeliveryLine:
    """One inbound webhook. ``called`` backends are to be told, ``left_out`` are not; ``change_id`` None: no change."""

    id: str
    event: str
    action: str | None
    repository: str
    sender: str
    received_at: datetime
    change_id: int | None
    change_kind: str | None
    number: int | None
    head_sha: str | None
    called: int
    left_out: int


@dataclass(frozen=True, slots=True)
class AttemptLine:
    """One try at an effect. ``outcome``: done, retry, limited, dead."""

    number: int
    finished_at: datetime
    seconds: float
    outcome: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class EffectLine:
    """One thing that was decided to be done. ``state``: ready, running, done, dead, cancelled.

    ``tries`` are the newest, oldest of them first; ``attempts`` counts all.
    """

    id: int
    kind: str
    state: str
    due: datetime
    attempts: int
    created_at: datetime
    finished_at: datetime | None
    reason: str
    detail: str
    tries: tuple[AttemptLine, ...]


@dataclass(frozen=True, slots=True)
class Followed:
    """One backend's decision at this webhook, and what came of it: the dispatch and the effects that carried it out."""

    decided: Decided
    dispatch_id: int | None
    state: str | None
    reason_code: str | None
    reason: str | None
    outcome: Outcome | None
    sent_at: datetime | None
    effects: tuple[EffectLine, ...]


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """One webhook with everything that was planned because of it. ``left_out`` counts decisions beyond the bound."""

    delivery: DeliveryLine
    decisions: tuple[Followed, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An effect that was given up, with the reason; a redelivery or an admin can revive it."""

    id: int
    kind: str
    subject: str
    change_id: int | None
    delivery_id: str | None
    attempts: int
    created_at: datetime
    finished_at: datetime | None
    reason: str
    detail: str


def deliveries(conn: Connection, *, before: str | None = None, limit: int = USUAL) -> Page[DeliveryLine]:
    """Webhooks, newest first, from the one after ``before`` on. An unknown ``before`` gives an empty page."""
    limit = bounded(limit)
    query = (
        _lines().order_by(_delivery.c.received_at.desc(), _delivery.c.id.desc()).limit(limit + 1)  # One index scan.
    )
    if before is not None:
        start = conn.execute(select(_delivery.c.received_at).where(_delivery.c.id == before)).scalar()
        if start is None:
            return Page(())
        query = query.where(tuple_(_delivery.c.received_at, _delivery.c.id) < tuple_(start, before))
    rows = conn.execute(query).all()
    return paged([_line(row) for row in rows], limit, [row.id for row in rows])


@dataclass(frozen=True, slots=True)
class Sought:
    """Which webhooks: received since, of this event (``pull_request`` or ``pull_request.opened``), by which this
    backend was told, of which something was given up."""

    since: datetime | None = None
    event: str | None = None
    backend: str | None = None
    dead: bool = False


@dataclass(frozen=True, slots=True)
class FoundDelivery:
    """One webhook, and how many of the dispatches that it caused are dead letters."""

    delivery: DeliveryLine
    dead: int


def find_deliveries(conn: Connection, sought: Sought, limit: int) -> tuple[FoundDelivery, ...]:
    """The newest webhooks that are meant, newest first."""
    caused = select(_dispatch.c.id).where(
        _dispatch.c.change_id == _delivery.c.change_id, _dispatch.c.origin_delivery == _delivery.c.id
    )
    query = _lines().order_by(_delivery.c.received_at.desc(), _delivery.c.id.desc()).limit(limit)
    if sought.since is not None:
        query = query.where(_delivery.c.received_at >= sought.since)
    if sought.event is not None:
        event, _, action = sought.event.partition(".")
        query = query.where(_delivery.c.event == event)
        if action:
            query = query.where(_delivery.c.action == action)
    if sought.backend is not None:
        query = query.where(caused.where(_dispatch.c.backend == sought.backend).exists())
    if sought.dead:
        query = query.where(caused.where(_dispatch.c.state == "dead").exists())
    rows = conn.execute(query).all()
    dead = Counter(
        conn.execute(
            select(_dispatch.c.origin_delivery).where(
                _dispatch.c.change_id.in_({row.change_id for row in rows if row.change_id is not None}),
                _dispatch.c.state == "dead",
            )
        ).scalars()
    )
    return tuple(FoundDelivery(_line(row), dead[row.id]) for row in rows)


def delivery_page(conn: Connection, delivery_id: str) -> DeliveryPage | None:
    """One webhook with its decisions, dispatches, effects and tries, or None. Four statements."""
    row = conn.execute(_lines().where(_delivery.c.id == delivery_id)).first()
    if row is None:
        return None
    decisions = decisions_of(row.id, row.event, row.action, row.plan)
    told = {
        dispatch.backend: dispatch
        for dispatch in conn.execute(
            select(_dispatch)
            .where(_dispatch.c.change_id == row.change_id, _dispatch.c.origin_delivery == delivery_id)
            .order_by(_dispatch.c.id)
        )
    }
    shown = decisions[:MOST_DECISIONS]
    effects = _effects(conn, [told[one.backend].id for one in shown if one.backend in told])
    return DeliveryPage(
        delivery=_line(row),
        decisions=tuple(_followed(one, told.get(one.backend), effects) for one in shown),
        left_out=len(decisions) - len(shown),
    )


def dead_letters(conn: Connection, *, before: int | None = None, limit: int = USUAL) -> Page[DeadLetter]:
    """What was given up, newest effect first."""
    limit = bounded(limit)
    query = (
        select(_effect, _dispatch.c.change_id, _dispatch.c.origin_delivery)
        .select_from(
            _effect.outerjoin(_dispatch, and_(_dispatch.c.id == _effect.c.subject_id, _effect.c.kind.in_(_SENDING)))
        )
        .where(IS_DEAD)
        .order_by(_effect.c.id.desc())
        .limit(limit + 1)
    )
    if before is not None:
        query = query.where(_effect.c.id < before)
    rows = conn.execute(query).all()
    letters = [
        DeadLetter(
            id=row.id,
            kind=row.kind,
            subject=name_of(row.subject),
            change_id=row.change_id,
            delivery_id=row.origin_delivery,
            attempts=row.attempts,
            created_at=row.created_at,
            finished_at=row.finished_at,
            reason=row.reason,
            detail=name_of(row.detail, MOST_MESSAGE),
        )
        for row in rows
    ]
    return paged(letters, limit, [str(row.id) for row in rows])


def _lines() -> Any:
    """Deliveries with their changes; the payload, which is a body, and what was decided from are never read."""
    wanted = [column for column in _delivery.c if column.name not in {"payload", "ground"}]
    return select(*wanted, _change.c.kind, _change.c.number, _change.c.head_sha).select_from(
        _delivery.outerjoin(_change, _change.c.id == _delivery.c.change_id)
    )


def _line(row: Any) -> DeliveryLine:
    counted = Counter(one.effect for one in decisions_of(row.id, row.event, row.action, row.plan))
    left_out = counted.pop("none", 0)
    return DeliveryLine(
        id=row.id,
        event=name_of(row.event),
        action=row.action and name_of(row.action),
        repository=name_of(row.repository),
        sender=name_of(row.sender),
        received_at=row.received_at,
        change_id=row.change_id,
        change_kind=row.kind,
        number=row.number,
        head_sha=row.head_sha,
        called=counted.total(),
        left_out=left_out,
    )


def _followed(decided: Decided, row: Any, effects: dict[int, tuple[EffectLine, ...]]) -> Followed:
    return Followed(
        decided=decided,
        dispatch_id=None if row is None else row.id,
        state=None if row is None else row.state,
        reason_code=None if row is None else row.reason_code,
        reason=None if row is None else name_of(row.reason, MOST_TITLE),
        outcome=Outcome(row.outcome) if row is not None and owes_of(row) else None,
        sent_at=None if row is None else row.sent_at,
        effects=() if row is None else effects.get(row.id, ()),
    )


def _effects(conn: Connection, dispatch_ids: Sequence[int]) -> dict[int, tuple[EffectLine, ...]]:
    if not dispatch_ids:
        return {}
    rows = conn.execute(
        select(_effect)
        .where(_effect.c.kind.in_(_SENDING), _effect.c.subject_id.in_(dispatch_ids))
        .order_by(_effect.c.id)
        .limit(MOST_EFFECTS)
    ).all()
    tries = _tries(conn, [row.id for row in rows])
    found: defaultdict[int, list[EffectLine]] = defaultdict(list)
    for row in rows:
        found[row.subject_id].append(
            EffectLine(
                id=row.id,
                kind=row.kind,
                state=row.state,
                due=row.due,
                attempts=row.attempts,
                created_at=row.created_at,
                finished_at=row.finished_at,
                reason=row.reason,
                detail=name_of(row.detail, MOST_MESSAGE),
                tries=tries.get(row.id, ()),
            )
        )
    return {dispatch_id: tuple(mine) for dispatch_id, mine in found.items()}


def _tries(conn: Connection, effect_ids: Sequence[int]) -> dict[int, tuple[AttemptLine, ...]]:
    if not effect_ids:
        return {}
    ranked = (
        select(
            _attempt.c.id,
            func.row_number().over(partition_by=_attempt.c.effect_id, order_by=_attempt.c.id.desc()).label("place"),
        )
        .where(_attempt.c.effect_id.in_(effect_ids))
        .subquery()
    )
    rows = conn.execute(
        select(_attempt)
        .join(ranked, and_(ranked.c.id == _attempt.c.id, ranked.c.place <= MOST_ATTEMPTS))
        .order_by(_attempt.c.id)
    )
    found: defaultdict[int, list[AttemptLine]] = defaultdict(list)
    for row in rows:
        found[row.effect_id].append(
            AttemptLine(
                row.number, row.finished_at, row.seconds, row.outcome, row.reason, name_of(row.detail, MOST_MESSAGE)
            )
        )
    return {effect_id: tuple(mine) for effect_id, mine in found.items()}
