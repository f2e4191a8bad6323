"""What a dispatch needs to be sent, and what is noted once it was, or never will be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, case, func, or_, select, update

from allowlist.model import Level, RepoName
from levels.outcomes import Outcome
from relay.deciding.effects import Kind
from relay.deciding.terms import Terms
from relay.github.port import Address, Located
from relay.store.checks import CheckTerms, touch_head
from relay.store.outbox import cancel, on_conflict_do_nothing
from relay.store.tables import Backend, Change, Delivery, Dispatch, Report

_dispatch = Dispatch.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_change = Change.__table__  # type: ignore[attr-defined]
_delivery = Delivery.__table__  # type: ignore[attr-defined]
_backend = Backend.__table__  # type: ignore[attr-defined]
_report = Report.__table__  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class ToSend:
    """A dispatch with everything its payload is made of."""

    id: int
    state: str
    address: Address
    level: Level
    purpose: str
    event_type: str
    delivery_id: str
    origin_delivery: str
    payload: str
    reason: str
    terms: Terms
    created_at: datetime
    give_up_at: datetime | None
    change_id: int
    kind: str
    thread: str
    number: int | None
    head_sha: str
    base_ref: str | None
    base_sha: str | None
    merge_sha: str | None
    landed_sha: str | None
    labels: tuple[str, ...]
    change_state: str
    reported: bool
    paused_until: datetime | None
    pause_reason: str | None

    @property
    def overtaken(self) -> bool:
        """Whether nobody waits for this test any more: its head was replaced or closed while it waited to be sent."""
        return self.purpose == "test" and self.change_state != "open" and not self.terms.every_commit


_LOAD = (
    select(
        _dispatch,
        _change.c.kind,
        _change.c.thread,
        _change.c.number,
        _change.c.head_sha,
        _change.c.base_ref,
        _change.c.base_sha,
        _change.c.merge_sha,
        _change.c.landed_sha,
        _change.c.labels,
        _change.c.state.label("change_state"),
        _delivery.c.payload,
        _backend.c.repository_id,
        _backend.c.installation_id,
        _backend.c.paused_until,
        _backend.c.pause_reason,
        select(_report.c.id).where(_report.c.dispatch_id == _dispatch.c.id).exists().label("reported"),
    )
    .select_from(
        _dispatch.join(_change, _change.c.id == _dispatch.c.change_id)
        .outerjoin(_delivery, _delivery.c.id == _dispatch.c.payload_delivery)
        .outerjoin(_backend, _backend.c.repo == _dispatch.c.backend)
    )
    .where(_dispatch.c.id.in_(bindparam("ids", expanding=True)))
)


def load_to_send(conn: Connection, ids: Sequence[int]) -> dict[int, ToSend]:
    """The dispatches of these ids, by id, in one statement."""
    rows = conn.execute(_LOAD, {"ids": list(ids)})
    return {
        row.id: ToSend(
            id=row.id,
            state=row.state,
            address=Address(RepoName.parse(row.backend), row.repository_id, row.installation_id),
            level=Level(row.level),
            purpose=row.purpose,
            event_type=row.event_type,
            delivery_id=row.delivery_id,
            origin_delivery=row.origin_delivery,
            payload=row.payload or "{}",
            reason=row.reason_code,
            terms=Terms.from_json(row.terms),
            created_at=row.created_at,
            give_up_at=row.give_up_at,
            change_id=row.change_id,
            kind=row.kind,
            thread=row.thread,
            number=row.number,
            head_sha=row.head_sha,
            base_ref=row.base_ref,
            base_sha=row.base_sha,
            merge_sha=row.merge_sha,
            landed_sha=row.landed_sha,
            labels=tuple(json.loads(row.labels)),
            change_state=row.change_state,
            reported=row.reported,
            paused_until=row.paused_until,
            pause_reason=row.pause_reason,
        )
        for row in rows
    }


_SENT = (
    update(_dispatch)
    # Not "in": a statement with a list in it cannot be carried out for many rows at once.
    .where(_dispatch.c.id == bindparam("b_id"), or_(_dispatch.c.state == "planned", _dispatch.c.state == "dead"))
    .values(
        state="sent",
        # Our 204 counts from the first time: a repeat after an ambiguous failure does not move the deadline.
        sent_at=func.coalesce(_dispatch.c.sent_at, bindparam("b_now", type_=_dispatch.c.sent_at.type)),
        # A callback can come before our note: then the deadline it set, of the run, stands.
        next_deadline=case(
            (
                _dispatch.c.started_at.is_(None) & _dispatch.c.next_deadline.is_not(None),
                bindparam("b_deadline", type_=_dispatch.c.sent_at.type),
            ),
            else_=_dispatch.c.next_deadline,
        ),
    )
)


_BACKEND_SENT = (
    update(_backend)
    .where(
        _backend.c.repo == bindparam("b_repo"),
        # A row that is written by every dispatch would make replicas wait for each other.
        or_(
            _backend.c.last_sent_at.is_(None),
            _backend.c.last_sent_at < bindparam("b_before", type_=_backend.c.last_sent_at.type),
        ),
    )
    .values(last_sent_at=bindparam("b_now", type_=_backend.c.last_sent_at.type))
)


def note_sent(conn: Connection, taken: Sequence[tuple[ToSend, Located | None]], now: datetime) -> None:
    """GitHub took these dispatches. Where it said who a repository is and that was not known yet, it is pinned."""
    sent = [{"b_id": one.id, "b_now": now, "b_deadline": now + one.terms.queue} for one, _ in taken]
    conn.execute(_SENT, sent)
    for one, located in taken:
        known = one.address
        if located is not None and (known.repository_id is None or known.installation_id != located.installation_id):
            pin(conn, known.repo, located, now)
    repos = sorted({str(one.address.repo) for one, _ in taken})
    before = now - timedelta(seconds=10)
    conn.execute(_BACKEND_SENT, [{"b_repo": repo, "b_now": now, "b_before": before} for repo in repos])


def note_overtaken(conn: Connection, sent: ToSend, now: datetime) -> None:
    """The worker held this dispatch while its head was replaced or closed, and found so before it was sent."""
    conn.execute(
        update(_dispatch)
        .where(_dispatch.c.id == sent.id, _dispatch.c.state.in_(("planned", "pending_paths")))
        .values(
            state="superseded",
            reason_code="newer_head" if sent.change_state == "superseded" else "change_closed",
            reason="",
            outcome=Outcome.NOT_REQUIRED.value,
            outcome_at=now,
            next_deadline=None,
        )
    )


def drop_if_overtaken(conn: Connection, dispatch_id: int, now: datetime) -> None:
    """A try failed and would be repeated. Where nobody waits for it any more, it is not.

    It would be the oldest of its lane, and hold up the newer head for as long as it waits for its own next try.
    """
    # Locked, so that a head which is replaced at this moment is either seen here, or finds the effect waiting again.
    conn.execute(
        select(_change.c.id)
        .join(_dispatch, _dispatch.c.change_id == _change.c.id)
        .where(_dispatch.c.id == dispatch_id)
        .with_for_update(of=_change)
    )
    sent = load_to_send(conn, [dispatch_id]).get(dispatch_id)
    if sent is not None and sent.overtaken:
        cancel(conn, kinds=(Kind.DISPATCH, Kind.DECIDE_PATHS), subject_ids=[dispatch_id], reason="overtaken", now=now)
        note_overtaken(conn, sent, now)


def note_undelivered(
    conn: Connection, sent: ToSend, reason: str, detail: str, terms: CheckTerms, now: datetime
) -> None:
    """The dispatch became a dead letter. Its checks are told, and the backend's page says why."""
    noted = conn.execute(
        update(_dispatch)
        .where(_dispatch.c.id == sent.id, _dispatch.c.state.in_(("planned", "pending_paths")))
        .values(
            state="dead",
            reason_code=reason,
            reason=detail,
            concluded=Outcome.UNDELIVERED.value,
            concluded_at=now,
            outcome=case(
                (_dispatch.c.outcome == Outcome.QUEUED.value, Outcome.UNDELIVERED.value), else_=_dispatch.c.outcome
            ),
            outcome_at=now,
            next_deadline=None,
        )
        .returning(_dispatch.c.id)
    ).first()
    note_backend_error(conn, sent.address.repo, f"{reason}: {detail}", now)
    if noted is not None:
        touch_head(conn, sent.head_sha, terms, now, backend=sent.address.repo)


def note_backend_error(conn: Connection, repo: RepoName, error: str, now: datetime) -> None:
    """Keep the last thing that went wrong with this backend."""
    conn.execute(on_conflict_do_nothing(conn, _backend), {"repo": str(repo), "private": False})
    conn.execute(update(_backend).where(_backend.c.repo == str(repo)).values(last_error=error, last_error_at=now))


def pin(conn: Connection, repo: RepoName, located: Located, now: datetime) -> None:
    """Keep the ids by which GitHub knows this repository. A pinned id is never replaced by another.

    Only a person may decide that a name now means another repository (``crcr backend repin``).
    """
    conn.execute(on_conflict_do_nothing(conn, _backend), {"repo": str(repo), "private": located.private})
    conn.execute(
        update(_backend)
        .where(
            _backend.c.repo == str(repo),
            or_(_backend.c.repository_id.is_(None), _backend.c.repository_id == located.repository_id),
        )
        .values(
            repository_id=located.repository_id,
            owner_id=located.owner_id,
            installation_id=located.installation_id,
            private=located.private,
            pinned_at=func.coalesce(_backend.c.pinned_at, bindparam("b_now", now, type_=_backend.c.pinned_at.type)),
        )
    )


_ADDRESS = select(_backend.c.repository_id, _backend.c.installation_id).where(_backend.c.repo == bindparam("repo"))


def address_of(conn: Connection, repo: RepoName) -> Address:
    """What we know of where this repository lives."""
    row = conn.execute(_ADDRESS, {"repo": str(repo)}).first()
    return Address(repo) if row is None else Address(repo, row.repository_id, row.installation_id)


def unpinned(conn: Connection, repos: Sequence[RepoName]) -> tuple[RepoName, ...]:
    """Which of these repositories have no pinned id yet."""
    pinned = set(
        conn.execute(
            select(_backend.c.repo).where(
                _backend.c.repo.in_([str(repo) for repo in repos]), _backend.c.repository_id.is_not(None)
            )
        ).scalars()
    )
    return tuple(repo for repo in repos if str(repo) not in pinned)
