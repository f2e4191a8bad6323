"""What waits, and for how long, in SQL. Each figure is read by an index that holds what is open, and little else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, func, select

from relay.deciding.effects import Kind
from relay.store.candidates import OPEN_STATES
from relay.store.observing import OBSERVED_LEVELS
from relay.store.outbox import IS_DEAD
from relay.store.tables import Change, Check, Dispatch, Effect, Job
from relay.texts.words import GATE_NAME

_change: Any = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_check: Any = Check.__table__  # type: ignore[attr-defined]
_dispatch: Any = Dispatch.__table__  # type: ignore[attr-defined]
_effect: Any = Effect.__table__  # type: ignore[attr-defined]
_job: Any = Job.__table__  # type: ignore[attr-defined]

# The kind is looked at afterwards: by the index that it has of its own, all that were ever done would be read.
_kind = func.coalesce(_effect.c.kind, "")
_EVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is open. Times are since it began to wait, zero where nothing does; ``dead`` is by kind and reason."""

    open: Mapping[Kind, int]
    oldest: Mapping[Kind, timedelta]
    dead: Mapping[tuple[str, str], int]
    unheard: timedelta
    job: timedelta
    overdue: timedelta
    gates: int


def waiting(conn: Connection, now: datetime) -> Waiting:
    """Look at everything that is open."""
    owed = conn.execute(
        select(_kind, func.count(), func.min(_effect.c.created_at))
        .where(_effect.c.state.in_(OPEN_STATES))
        .group_by(_kind)
    ).all()
    dead = conn.execute(
        select(_kind, _effect.c.reason, func.count()).where(IS_DEAD).group_by(_kind, _effect.c.reason)
    ).all()
    return Waiting(
        open={Kind(kind): int(count) for kind, count, _ in owed},
        oldest={Kind(kind): max(timedelta(), now - since) for kind, _, since in owed},
        dead={(kind, reason): int(count) for kind, reason, count in dead},
        unheard=_age(conn, _unheard(), now),
        job=_age(conn, _open_job(), now),
        overdue=_age(conn, select(func.min(_dispatch.c.next_deadline)).where(_dispatch.c.next_deadline <= now), now),
        gates=int(conn.execute(_open_gates()).scalar() or 0),
    )


def _age(conn: Connection, oldest: Any, now: datetime) -> timedelta:
    since: datetime | None = conn.execute(oldest).scalar()
    return timedelta() if since is None else max(timedelta(), now - since)


def _unsettled() -> Any:
    """Dispatches that the sweep will look at again, on changes that are open."""
    return (_dispatch.c.next_deadline > _EVER) & (_change.c.state == "open")


def _unheard() -> Any:
    joined = _dispatch.join(_change, _change.c.id == _dispatch.c.change_id)
    return (
        select(func.min(_dispatch.c.sent_at))
        .select_from(joined)
        .where(
            _unsettled(),
            _dispatch.c.state == "sent",
            _dispatch.c.started_at.is_(None),
            _dispatch.c.outcome == "queued",
            _dispatch.c.level.in_(OBSERVED_LEVELS),
        )
    )


def _open_job() -> Any:
    joined = _dispatch.join(_change, _change.c.id == _dispatch.c.change_id).join(
        _job, _job.c.dispatch_id == _dispatch.c.id
    )
    return select(func.min(_job.c.started_at)).select_from(joined).where(_unsettled(), _job.c.status != "completed")


def _open_gates() -> Any:
    """By the changes whose gate may still wait: of checks that were ever written there are many more."""
    joined = _change.join(_check, (_check.c.head_sha == _change.c.head_sha) & (_check.c.name == GATE_NAME))
    return (
        select(func.count(func.distinct(_check.c.id)))
        .select_from(joined)
        .where(_change.c.ended_at.is_(None), _change.c.state == "open", _check.c.status != "completed")
    )
