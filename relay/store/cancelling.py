"""The runs of a closed pull request or of a merge group that is gone, where the entry wants them cancelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, exists, or_, select

from allowlist.model import RepoName
from levels.outcomes import UNSETTLED
from relay.deciding.effects import cancel_runs
from relay.deciding.plan import HeadState, Purpose
from relay.deciding.terms import Terms
from relay.github.port import Address
from relay.store.dispatching import ToSend, address_of, note_backend_error
from relay.store.outbox import enqueue
from relay.store.rerunning import KnownRun, runs_of
from relay.store.tables import Change, Dispatch, Job

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_job = Job.__table__  # type: ignore[attr-defined]

#: GitHub's clock and ours may differ by so much when a run is looked for that began after we had told the backend.
_LEEWAY = timedelta(minutes=5)

#: How long a run that was just asked for may take to show at GitHub: it is looked for by its name.
_SHOWS = timedelta(seconds=15)


@dataclass(frozen=True, slots=True)
class ToCancel:
    """What a dispatch still runs. ``runs`` is empty where none is known; one is then found by ``delivery_id``."""

    backend: RepoName
    address: Address
    delivery_id: str
    since: datetime
    runs: tuple[KnownRun, ...]


def want_cancelled(conn: Connection, thread: str, now: datetime) -> None:
    """This pull request or merge group is over: owe the cancelling of what its heads run, where wanted."""
    running = exists(_job.c.id).where(_job.c.dispatch_id == _dispatch.c.id, _job.c.conclusion.is_(None))
    rows = conn.execute(
        select(_dispatch.c.id, _dispatch.c.backend, _dispatch.c.terms)
        .join(_change, _change.c.id == _dispatch.c.change_id)
        .where(
            _change.c.thread == thread,
            _dispatch.c.purpose == Purpose.TEST.value,
            _dispatch.c.state == "sent",
            or_(_dispatch.c.outcome.in_([outcome.value for outcome in UNSETTLED]), running),
        )
        .order_by(_dispatch.c.id)
    ).all()
    wanted = [row for row in rows if Terms.from_json(row.terms).cancel_on_close]
    enqueue(conn, [cancel_runs(row.id, RepoName.parse(row.backend)) for row in wanted], now)


def want_late_cancelled(conn: Connection, sent: Sequence[ToSend], now: datetime) -> None:
    """GitHub took these while they were in a worker's hands. Cancel those whose pull request or group ended then."""
    wanted = [one for one in sent if one.terms.cancel_on_close and one.purpose == Purpose.TEST]
    if not wanted:
        return
    over = select(_change.c.id).where(
        _change.c.id.in_({one.change_id for one in wanted}), _change.c.state == HeadState.CLOSED.value
    )
    closed = set(conn.execute(over).scalars())
    late = [one for one in wanted if one.change_id in closed]
    enqueue(conn, [cancel_runs(one.id, one.address.repo, _SHOWS) for one in late], now)


def load_cancel(conn: Connection, dispatch_id: int) -> ToCancel | None:
    """What is to be cancelled of this dispatch, or None where somebody waits for it again."""
    row = conn.execute(
        select(_dispatch, _change.c.thread)
        .join(_change, _change.c.id == _dispatch.c.change_id)
        .where(_dispatch.c.id == dispatch_id)
    ).first()
    if row is None:
        return None
    reopened = conn.execute(
        select(_change.c.id).where(_change.c.thread == row.thread, _change.c.state == HeadState.OPEN.value).limit(1)
    ).first()
    if reopened is not None:
        return None
    repo = RepoName.parse(row.backend)
    return ToCancel(
        backend=repo,
        address=address_of(conn, repo),
        delivery_id=row.delivery_id,
        since=(row.sent_at or row.created_at) - _LEEWAY,
        runs=runs_of(conn, dispatch_id),
    )


def note_not_cancelled(conn: Connection, repo: RepoName, why: str, now: datetime) -> None:
    """GitHub would not cancel a run; the backend's page says why. Nobody waits for that run, so no more is lost."""
    told = f"not cancelled when its pull request was closed or its merge group was gone: {why}"
    note_backend_error(conn, repo, told, now)
