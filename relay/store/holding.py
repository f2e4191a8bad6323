"""What a pause holds back: dispatches that no backend has heard of yet wait until it ends, and are told then.

A pause never touches what was sent. A result that still comes counts as ever; while nothing was heard of a backend,
the gate does not wait for it (``relay.store.check_facts``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, case, exists, func, select, update

from allowlist.model import Level, RepoName
from levels.outcomes import Outcome
from relay.deciding import effects
from relay.deciding.effects import Kind
from relay.deciding.plan import BY_LABEL, HeadState, Purpose
from relay.deciding.terms import Terms
from relay.store.candidates import IS_OPEN
from relay.store.checks import CheckTerms, touch_head
from relay.store.outbox import cancel, enqueue
from relay.store.redispatch import REDISPATCHED
from relay.store.tables import Backend, Change, Delivery, Dispatch, Effect

_backend = Backend.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_change = Change.__table__  # type: ignore[attr-defined]
_delivery = Delivery.__table__  # type: ignore[attr-defined]
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_effect = Effect.__table__  # type: ignore[attr-defined]

#: The state and the reason of a dispatch that a pause holds back.
PAUSED = "paused"

_SENDING = (Kind.DISPATCH, Kind.DECIDE_PATHS)
_UNTOLD = ("pending_paths", "planned")

# It stands in the statement's text, as the partial index has it.
_IS_PAUSED = _dispatch.c.state == bindparam("paused_state", PAUSED, literal_execute=True)


def hold(conn: Connection, repo: RepoName, reason: str, now: datetime) -> tuple[str, ...]:
    """Keep back what this backend has not been told yet; returns the heads concerned.

    What the worker has in its hands at this moment, or will try again, is looked at once more before it is sent
    (``hold_one``).
    """
    waiting = conn.execute(
        select(_dispatch.c.id)
        .join(_effect, _effect.c.subject_id == _dispatch.c.id)
        .where(
            IS_OPEN,
            _effect.c.kind.in_([kind.value for kind in _SENDING]),
            _effect.c.state == "ready",
            _dispatch.c.backend == str(repo),
            _dispatch.c.state.in_(_UNTOLD),
            # One that was tried may have arrived, and that is asked before anything is held back.
            _effect.c.attempts == 0,
            # One that reported was told, whatever became of our note of it.
            _dispatch.c.outcome == Outcome.QUEUED.value,
        )
    ).scalars()
    cancelled = cancel(conn, kinds=_SENDING, subject_ids=waiting.all(), reason=PAUSED, now=now)
    return _mark(conn, cancelled, reason, now)


def hold_one(conn: Connection, dispatch_id: int, reason: str, terms: CheckTerms, now: datetime) -> None:
    """The worker was about to send this, and found its backend paused."""
    for head_sha in _mark(conn, (dispatch_id,), reason, now):
        touch_head(conn, head_sha, terms, now)


def _mark(conn: Connection, dispatch_ids: Sequence[int], reason: str, now: datetime) -> tuple[str, ...]:
    if not dispatch_ids:
        return ()
    changes = conn.execute(
        update(_dispatch)
        .where(_dispatch.c.id.in_(dispatch_ids), _dispatch.c.state.in_(_UNTOLD))
        .values(
            state=PAUSED,
            reason_code=PAUSED,
            reason=reason,
            outcome=case(
                (_dispatch.c.outcome == Outcome.QUEUED.value, Outcome.PAUSED.value), else_=_dispatch.c.outcome
            ),
            outcome_at=now,
            next_deadline=None,
        )
        .returning(_dispatch.c.change_id)
    ).scalars()
    heads = conn.execute(select(_change.c.head_sha).distinct().where(_change.c.id.in_(sorted(set(changes)))))
    return tuple(sorted(heads.scalars()))


def tell_held(conn: Connection, repo: RepoName, terms: CheckTerms, now: datetime) -> tuple[int, ...]:
    """The pause is over: tell the backend of what is still of interest, drop the rest; returns whom it is told of.

    Of several dispatches of one change the newest is told. What every commit is wanted of is told although its head
    was replaced, and a notice as long as its change's head stands.
    """
    rows = conn.execute(
        select(
            _dispatch,
            _change.c.kind,
            _change.c.thread,
            _change.c.head_sha,
            _change.c.state.label("change_state"),
            _change.c.created_at.label("since"),
            _delivery.c.plan,
        )
        .select_from(
            _dispatch.join(_change, _change.c.id == _dispatch.c.change_id).outerjoin(
                _delivery, _delivery.c.id == _dispatch.c.origin_delivery
            )
        )
        .where(_IS_PAUSED, _dispatch.c.backend == str(repo))
        .order_by(_dispatch.c.id)
        .with_for_update(of=_dispatch)
    ).all()
    if not rows:
        return ()
    newest = _newest(conn, repo, sorted({row.change_id for row in rows}))
    told = [row for row in rows if _wanted(row, newest) and _until(row, terms, now) > now]
    keep = {row.id for row in told}
    _drop(conn, [row.id for row in rows if row.id not in keep], now)
    for row in told:
        _plan_again(conn, row, _until(row, terms, now), terms, now)
    for head_sha in sorted({row.head_sha for row in rows}):
        touch_head(conn, head_sha, terms, now)
    return tuple(row.id for row in told)


def held_without_pause(conn: Connection) -> tuple[RepoName, ...]:
    """Backends that are not paused and yet have dispatches held back.

    A webhook that read of a pause may be written down in the moment after that pause has ended.
    """
    repos = conn.execute(
        select(_dispatch.c.backend)
        .distinct()
        .where(
            _IS_PAUSED,
            ~exists(_backend.c.repo).where(
                _backend.c.repo == _dispatch.c.backend, _backend.c.paused_until.is_not(None)
            ),
        )
    ).scalars()
    return tuple(sorted(RepoName.parse(repo) for repo in repos))


def _newest(conn: Connection, repo: RepoName, change_ids: Sequence[int]) -> frozenset[int]:
    found = conn.execute(
        select(func.max(_dispatch.c.id))
        .where(
            _dispatch.c.backend == str(repo),
            _dispatch.c.change_id.in_(change_ids),
            _dispatch.c.purpose == Purpose.TEST.value,
        )
        .group_by(_dispatch.c.change_id)
    ).scalars()
    return frozenset(found)


def _wanted(row: Any, newest: frozenset[int]) -> bool:
    if row.purpose != Purpose.TEST:
        return bool(row.change_state != HeadState.SUPERSEDED)
    if row.id not in newest:
        return False
    return row.change_state == HeadState.OPEN or Terms.from_json(row.terms).every_commit


def _until(row: Any, terms: CheckTerms, now: datetime) -> datetime:
    """When the gate gives the dispatch up, if it is told now. A merge queue waits for its own time alone."""
    promised = Terms.from_json(row.terms)
    until = now + promised.queue + promised.run
    return min(until, row.since + terms.group_deadline) if row.kind == "merge_group" else until


def _drop(conn: Connection, dispatch_ids: Sequence[int], now: datetime) -> None:
    if not dispatch_ids:
        return
    conn.execute(
        update(_dispatch)
        .where(_dispatch.c.id.in_(dispatch_ids))
        .values(
            state="superseded",
            reason_code="overtaken",
            reason="",
            outcome=Outcome.NOT_REQUIRED.value,
            outcome_at=now,
            next_deadline=None,
        )
    )


def _plan_again(conn: Connection, row: Any, until: datetime, terms: CheckTerms, now: datetime) -> None:
    repo, level = RepoName.parse(row.backend), Level(row.level)
    # The patterns stand with the decision where changed files decide.
    by_paths = any(one.get("backend") == row.backend and "paths" in one for one in json.loads(row.plan or "[]"))
    # A dispatch that is not the webhook's own was asked for by a person, who is its cause, or by a label.
    own = "wanted" if row.delivery_id == row.origin_delivery else BY_LABEL
    conn.execute(
        update(_dispatch)
        .where(_dispatch.c.id == row.id)
        .values(
            state="pending_paths" if by_paths else "planned",
            reason_code=REDISPATCHED if row.cause else own,
            reason=row.cause,
            give_up_at=until,
            next_deadline=until if row.purpose == Purpose.TEST else None,
            outcome=Outcome.QUEUED.value if row.outcome == Outcome.PAUSED.value else row.outcome,
            outcome_at=now,
        )
    )
    if by_paths:
        owed = effects.decide_paths(row.id, repo, row.thread, level, terms.upstream)
    else:
        owed = effects.send_dispatch(row.id, repo, row.thread, level)
    enqueue(conn, [owed], now)
