"""What earlier tries at a dispatch leave open, and what else to the same backend may have started runs meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, and_, bindparam, case, func, or_, select, union_all, update

from relay.deciding.arrival import Sibling
from relay.deciding.effects import Kind
from relay.store.claiming import Claimed
from relay.store.tables import Attempt, Dispatch, Effect

#: What a dispatch waits for, or died of, of which nobody can say whether it arrived.
MAYBE_DELIVERED = "maybe_delivered"
#: What it waits for while others, which were sent a moment ago, hide whether it arrived.
UNSETTLED = "unsettled"

_attempt = Attempt.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_effect = Effect.__table__  # type: ignore[attr-defined]

_MAY_HAVE_WORKED = or_(
    func.coalesce(_attempt.c.unsure, _attempt.c.outcome.in_(("retry", "dead"))),
    # Done, and its outcome could not be noted; or a fault of ours at any moment.
    _attempt.c.reason == "internal_error",
)


@dataclass(frozen=True, slots=True)
class Tries:
    """The tries at one dispatch, since it was last given up, that may have arrived.

    ``failed``: they ended with a failure that came after the request was sent. ``died``: nobody noted their end.
    ``first_at`` is the beginning of the first. ``waited``: it was waited for, since nothing could be seen; ``since``
    are those that failed after that. ``unsettled_since``: from then on it was only looked for, as others that had been
    sent a moment before hid whether it had arrived.
    """

    failed: int
    died: int
    first_at: datetime
    waited: bool
    since: int = 0
    unsettled_since: datetime | None = None


_TRIES = (
    select(
        _attempt.c.number,
        _attempt.c.finished_at,
        _attempt.c.seconds,
        _attempt.c.outcome,
        _attempt.c.reason,
        _MAY_HAVE_WORKED.label("unsure"),
    )
    .where(_attempt.c.effect_id == bindparam("b_effect"))
    .order_by(_attempt.c.number)
)


def tries_of(conn: Connection, effect: Claimed) -> Tries:
    """What the tries before this one leave open. Who revives what was given up wants it sent, whatever was before."""
    failed = died = since = 0
    waited = False
    unsettled: datetime | None = None
    began: list[datetime] = []
    number, at = 1, effect.created_at
    for row in conn.execute(_TRIES, {"b_effect": effect.id}):
        if row.number > number:
            died += row.number - number
            began.append(at)
        number, at = row.number + 1, row.finished_at
        if row.reason != UNSETTLED:
            unsettled = None
        elif unsettled is None:
            unsettled = row.finished_at
        if row.outcome == "dead":
            failed, died, since, waited = 0, 0, 0, False
            began.clear()
        elif row.unsure:
            failed, since = failed + 1, since + waited
            began.append(row.finished_at - timedelta(seconds=row.seconds))
        waited = waited or (row.outcome != "dead" and row.reason == MAYBE_DELIVERED)
    if effect.attempts > number:
        died += effect.attempts - number
        began.append(at)
    return Tries(failed, died, min(began, default=effect.created_at), waited, since, unsettled)


_IN_TIME = _attempt.c.finished_at >= bindparam("b_since", type_=_attempt.c.finished_at.type)
# GitHub said 204 to this try: what is noted with an ending bears the same time.
_TAKEN = and_(
    _attempt.c.outcome == "done",
    func.coalesce(_attempt.c.unsure, True).is_(False),
    _attempt.c.finished_at == _dispatch.c.sent_at,
)
# Those that are not ended, and those that ended since, each by the index of what became of dispatches. Of all that a
# backend was told in ninety days that reads what was tried in the last minutes. The kind stands in the text, as there.
_one = _effect.alias("one")
_THEIRS = select(_one.c.id).where(
    _one.c.kind == bindparam("dispatch_kind", Kind.DISPATCH.value, literal_execute=True),
    _one.c.subject == bindparam("b_backend"),
)
_TRIED_SINCE = union_all(
    _THEIRS.where(_one.c.finished_at.is_(None)),
    _THEIRS.where(_one.c.finished_at >= bindparam("b_since", type_=_one.c.finished_at.type)),
)
_OTHERS = (
    select(
        _dispatch.c.delivery_id,
        _dispatch.c.event_type,
        _dispatch.c.state,
        _dispatch.c.sent_at,
        _effect.c.state.label("effect_state"),
        _effect.c.attempts,
        func.count(_attempt.c.id).label("noted"),
        func.sum(case((and_(_IN_TIME, or_(_attempt.c.outcome == "done", _MAY_HAVE_WORKED)), 1), else_=0)).label("most"),
        func.sum(case((_TAKEN, 1), else_=0)).label("proven"),
    )
    .select_from(
        _effect.join(_dispatch, _dispatch.c.id == _effect.c.subject_id).outerjoin(
            _attempt, _attempt.c.effect_id == _effect.c.id
        )
    )
    .where(_effect.c.id.in_(_TRIED_SINCE), _dispatch.c.id != bindparam("b_id"))
    .group_by(_dispatch.c.id, _effect.c.id)
)


def note_earlier(conn: Connection, effect: Claimed) -> None:
    """This try found that an earlier one had arrived, and sent nothing itself."""
    conn.execute(
        update(_attempt)
        .where(_attempt.c.effect_id == effect.id, _attempt.c.number == effect.attempts)
        .values(unsure=True)
    )


def siblings_of(
    conn: Connection, dispatch_id: int, backend: str, *, since: datetime, first_at: datetime, shown_before: datetime
) -> tuple[Sibling, ...]:
    """The other dispatches to this backend that were tried after ``since``, and may have started a run.

    What was taken before ``first_at`` may have started its run before the first that is counted, and what was taken
    after ``shown_before`` may have none yet.
    """
    asked = {"b_backend": backend, "b_id": dispatch_id, "b_since": since}
    found = []
    for row in conn.execute(_OTHERS, asked):
        # A try whose end nobody noted died, or is under way.
        most = row.most + row.attempts - row.noted
        taken = row.effect_state == "done" and row.state == "sent" and row.sent_at is not None
        certain = bool(row.proven) and first_at <= row.sent_at <= shown_before
        fresh = row.effect_state == "running" or (taken and row.sent_at > shown_before)
        if most:
            found.append(Sibling(row.delivery_id, row.event_type, most, certain, fresh))
    return tuple(found)
