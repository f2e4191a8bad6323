"""Planning again what had been given up, once there is a reason to hope."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, and_, bindparam, or_, select, update

from levels.outcomes import Outcome
from relay.deciding.effects import Kind
from relay.deciding.plan import BY_LABEL, LIVE, Decision, Purpose
from relay.deciding.terms import Terms
from relay.store.checks import CheckTerms, touch_head
from relay.store.circuits import try_backends
from relay.store.outbox import revive
from relay.store.tables import Change, Check, Dispatch

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_check = Check.__table__  # type: ignore[attr-defined]
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]

#: A newer dispatch in one of these states speaks for an older one. Of two that were given up the newer is tried again.
_IN_ITS_PLACE = sorted({*LIVE, "paused", "dead"})


def revive_dispatches(
    conn: Connection, dispatch_ids: Sequence[int], terms: CheckTerms, now: datetime
) -> tuple[Decision, ...]:
    """Plan dead dispatches again, where their effects are still there to be tried again.

    One whose backend was told anew of the same commit meanwhile stays as it is: there is one run per dispatch.
    """
    replaced = replaced_by(conn, dispatch_ids)
    dispatch_ids = [dispatch_id for dispatch_id in dispatch_ids if dispatch_id not in replaced]
    if not dispatch_ids:
        return ()
    decisions: list[Decision] = []
    for kind, state in ((Kind.DISPATCH, "planned"), (Kind.DECIDE_PATHS, "pending_paths")):
        revived = revive(conn, kinds=[kind], now=now, subject_ids=dispatch_ids)
        decisions += _replan(conn, revived, state, terms, now)
    return tuple(decisions)


def replaced_by(conn: Connection, dispatch_ids: Sequence[int]) -> dict[int, str]:
    """Those of these dispatches in whose place something newer was told, each with a sentence that says what.

    A test by another test of the same commit; a notice by whatever was told of the
    thread since: a listener cancels on "closed", and one that came after its pull request was reopened would end the
    new run.
    """
    if not dispatch_ids:
        return {}
    newer, its_change = _dispatch.alias("newer"), _change.alias("its_change")
    rows = conn.execute(
        select(_dispatch.c.id, _dispatch.c.purpose)
        .select_from(
            _dispatch.join(_change, _change.c.id == _dispatch.c.change_id)
            .join(its_change, its_change.c.thread == _change.c.thread)
            .join(newer, and_(newer.c.change_id == its_change.c.id, newer.c.backend == _dispatch.c.backend))
        )
        .where(
            _dispatch.c.id.in_(dispatch_ids),
            newer.c.id > _dispatch.c.id,
            newer.c.state.in_(_IN_ITS_PLACE),
            or_(
                _dispatch.c.purpose == Purpose.NOTIFY.value,
                and_(newer.c.purpose == Purpose.TEST.value, newer.c.change_id == _dispatch.c.change_id),
            ),
        )
    )
    said = {
        Purpose.TEST.value: "the backend was told anew of this commit meanwhile",
        Purpose.NOTIFY.value: "something newer was told of this pull request meanwhile",
    }
    return {row.id: said[row.purpose] for row in rows}


def revive_checks(conn: Connection, change_id: int, now: datetime) -> tuple[Decision, ...]:
    """Look again at the checks of this change's commit whose writing had been given up."""
    of_change = select(_check.c.id).join(_change, _change.c.head_sha == _check.c.head_sha)
    check_ids = conn.execute(of_change.where(_change.c.id == change_id)).scalars().all()
    return _checks_again(revive(conn, kinds=[Kind.RECONCILE_CHECK], now=now, subject_ids=check_ids))


def revive_all_checks(conn: Connection, reasons: Sequence[str], now: datetime) -> tuple[Decision, ...]:
    """Look again at every check whose writing had been given up for one of these reasons."""
    return _checks_again(revive(conn, kinds=[Kind.RECONCILE_CHECK], now=now, reasons=reasons))


def _checks_again(revived: Sequence[int]) -> tuple[Decision, ...]:
    return (Decision("check", "", "revived"),) if revived else ()


_REPLAN = (
    update(_dispatch)
    .where(_dispatch.c.id == bindparam("b_id"), _dispatch.c.state == "dead")
    .values(
        state=bindparam("b_state"),
        reason_code=bindparam("b_reason"),
        reason="",
        give_up_at=bindparam("b_until", type_=_dispatch.c.give_up_at.type),
        next_deadline=bindparam("b_deadline", type_=_dispatch.c.give_up_at.type),
        concluded=None,
        concluded_at=None,
        outcome=bindparam("b_outcome"),
        outcome_at=bindparam("b_now", type_=_dispatch.c.outcome_at.type),
    )
)


def _replan(
    conn: Connection, dispatch_ids: Sequence[int], state: str, terms: CheckTerms, now: datetime
) -> list[Decision]:
    if not dispatch_ids:
        return []
    rows = conn.execute(
        select(
            _dispatch.c.id,
            _dispatch.c.backend,
            _dispatch.c.purpose,
            _dispatch.c.terms,
            _dispatch.c.outcome,
            _dispatch.c.delivery_id,
            _dispatch.c.origin_delivery,
            _change.c.head_sha,
            _change.c.kind,
            _change.c.created_at.label("since"),
        )
        .join(_change, _change.c.id == _dispatch.c.change_id)
        .where(_dispatch.c.id.in_(dispatch_ids), _dispatch.c.state == "dead")
        .order_by(_dispatch.c.id)
    ).all()
    for row in rows:
        promised = Terms.from_json(row.terms)
        until = now + promised.queue + promised.run
        if row.kind == "merge_group":
            # A merge queue waits for its own time and not for a backend's.
            until = min(until, row.since + terms.group_deadline)
        conn.execute(
            _REPLAN,
            {
                "b_id": row.id,
                "b_state": state,
                "b_reason": "wanted" if row.delivery_id == row.origin_delivery else BY_LABEL,
                "b_until": until,
                "b_deadline": until if row.purpose == "test" else None,
                # A report that came in spite of everything knows better than we do.
                "b_outcome": Outcome.QUEUED.value if row.outcome == Outcome.UNDELIVERED.value else row.outcome,
                "b_now": now,
            },
        )
    # Whoever asks for this, a person or a circuit, has a reason to hope.
    try_backends(conn, sorted({row.backend for row in rows}), now)
    for head_sha in sorted({row.head_sha for row in rows}):
        touch_head(conn, head_sha, terms, now)
    effect = "dispatch" if state == "planned" else "decide_paths"
    return [Decision(effect, row.backend, "revived") for row in rows]
