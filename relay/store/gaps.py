"""Gaps as rows: found, worked on, ended. Beside them whose turn it is, and since when each entry asks for what.

Several replicas may look at the same time, so each of these is decided by one statement: a turn goes to whoever moves
it on, a gap to whoever takes it up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, and_, bindparam, case, delete, func, or_, select, update

from allowlist.model import Allowlist, Entry, RepoName
from relay.deciding.gaps import HEALED, Cause, How
from relay.store.outbox import on_conflict_do_nothing
from relay.store.tables import Delivery
from relay.store.tables_gaps import Gap, Listing, Turn

_gap: Any = Gap.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_listing: Any = Listing.__table__  # type: ignore[attr-defined]
_turn: Any = Turn.__table__  # type: ignore[attr-defined]
_delivery: Any = Delivery.__table__  # type: ignore[attr-defined]

_T = TypeVar("_T")

#: Whoever took a gap up and died leaves it to others after so long.
HELD = timedelta(minutes=10)

#: How many values one statement names. SQLite takes 32,766 and PostgreSQL 65,535; one outage may leave more behind.
_PORTION = 500


# --- Turns -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taken:
    """A turn that is ours: when it was first done to the end, and how far the last one came (None: never)."""

    began_at: datetime | None
    mark: datetime | None


def take_turn(conn: Connection, name: str, every: timedelta, now: datetime) -> Taken | None:
    """Take this turn if it is due, and let it be due again after ``every``; None where it is not, or another has it."""
    conn.execute(on_conflict_do_nothing(conn, _turn), {"name": name, "due_at": now})
    row = conn.execute(
        update(_turn)
        .where(_turn.c.name == name, _turn.c.due_at <= now)
        .values(due_at=now + every)
        .returning(_turn.c.began_at, _turn.c.mark)
    ).first()
    return None if row is None else Taken(row.began_at, row.mark)


def look_at_turn(conn: Connection, name: str) -> Taken:
    """How far a turn has come, whoever does it."""
    row = conn.execute(select(_turn.c.began_at, _turn.c.mark).where(_turn.c.name == name)).first()
    return Taken(None, None) if row is None else Taken(row.began_at, row.mark)


def finish_turn(conn: Connection, name: str, mark: datetime, now: datetime) -> None:
    """It was done to the end, up to ``mark`` in GitHub's time.

    Where another has come further meanwhile, that stands, unless it lies ahead: a clock that ran ahead has made it.
    """
    new = bindparam("new_mark", mark, type_=_turn.c.mark.type)
    further = and_(_turn.c.mark > new, _turn.c.mark <= now)
    values = {"mark": case((further, _turn.c.mark), else_=new), "began_at": func.coalesce(_turn.c.began_at, now)}
    conn.execute(update(_turn).where(_turn.c.name == name).values(**values))


def put_off(conn: Connection, name: str, until: datetime) -> None:
    """Let it be due at this time."""
    conn.execute(update(_turn).where(_turn.c.name == name).values(due_at=until))


def hasten(conn: Connection, name: str, usual: timedelta, now: datetime) -> None:
    """Let it be due now, unless it was put off for longer than usual."""
    conn.execute(update(_turn).where(_turn.c.name == name, _turn.c.due_at <= now + usual).values(due_at=now))


# --- Since when an entry asks ----------------------------------------------------------------------------------------


def note_listings(conn: Connection, allowlist: Allowlist, now: datetime) -> None:
    """Remember for each entry since when it asks for what it asks now; forget those that are listed no more."""
    wanted = {str(entry.repo): _asks(entry) for entry in allowlist.entries}
    rows = conn.execute(select(_listing.c.backend, _listing.c.asks)).all()
    known: dict[str, str] = {row.backend: row.asks for row in rows}
    gone = sorted(known.keys() - wanted.keys())
    if gone:
        conn.execute(delete(_listing).where(_listing.c.backend.in_(gone)))
    new = [{"backend": repo, "asks": asks, "since": now} for repo, asks in wanted.items() if repo not in known]
    if new:
        conn.execute(on_conflict_do_nothing(conn, _listing), new)
    for repo, asks in wanted.items():
        if known.get(repo, asks) != asks:
            conn.execute(update(_listing).where(_listing.c.backend == repo).values(asks=asks, since=now))


def asking_since(conn: Connection) -> Mapping[RepoName, datetime]:
    """Since when each listed backend asks for what it asks now."""
    rows = conn.execute(select(_listing.c.backend, _listing.c.since)).all()
    return {RepoName.parse(row.backend): row.since for row in rows}


def _asks(entry: Entry) -> str:
    """What decides whom an event is told to. A level decides what a result may do, so a promotion asks nothing new."""
    asked = (
        sorted(entry.events),
        sorted(entry.actions),
        entry.refs,
        entry.base,
        entry.labels,
        entry.paths,
        sorted(entry.authors),
    )
    return hashlib.sha256(repr(asked).encode()).hexdigest()


# --- Gaps ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewGap:
    """A gap that was found. ``subject`` is the thread; ``updated_at`` GitHub's time of what was missed."""

    cause: Cause
    subject: str
    head_sha: str
    updated_at: datetime
    number: int | None = None
    ref: str | None = None
    detail: str = ""

    def telling(self, backends: Sequence[str]) -> Self:
        """The same gap, with who may be told once it is closed."""
        return replace(self, detail=", ".join(backends))


@dataclass(frozen=True, slots=True)
class OpenGap:
    """A gap that is still to be healed."""

    id: int
    cause: Cause
    subject: str
    head_sha: str
    number: int | None
    ref: str | None
    tries: int


def note_gap(conn: Connection, found: NewGap, now: datetime) -> bool:
    """Write a gap down; False where it is known and still open."""
    row = {
        "cause": found.cause.value,
        "subject": found.subject,
        "head_sha": found.head_sha,
        "number": found.number,
        "ref": found.ref,
        "event": "",
        "detail": found.detail,
        "updated_at": found.updated_at,
        "found_at": now,
        "tries": 0,
        "app_id": "",
        "healed": False,
        "how": "",
    }
    same = (_gap.c.cause == row["cause"], _gap.c.subject == found.subject, _gap.c.head_sha == found.head_sha)
    known = conn.execute(select(_gap.c.id, _gap.c.ended_at).where(*same).with_for_update()).first()
    if known is None:
        return bool(conn.execute(on_conflict_do_nothing(conn, _gap), row).rowcount)
    if known.ended_at is None:
        return False
    again = {"ended_at": None, "healed": False, "how": "", "tries": 0, "not_before": None, "delivery_id": None}
    values = {"found_at": now, "updated_at": found.updated_at, "detail": found.detail, **again}
    conn.execute(update(_gap).where(_gap.c.id == known.id).values(**values))
    return True


def take_up(conn: Connection, most: int, now: datetime) -> tuple[OpenGap, ...]:
    """The newest open gaps whose time has come, at most so many; nobody else gets them for a while."""
    due = or_(_gap.c.not_before.is_(None), _gap.c.not_before <= now)
    rows = conn.execute(
        select(_gap.c.id)
        .where(_gap.c.ended_at.is_(None), _gap.c.cause != Cause.DELIVERY_FAILED.value, due)
        .order_by(_gap.c.updated_at.desc(), _gap.c.id.desc())
        .limit(most)
        .with_for_update(skip_locked=True)
    )
    ids = list(rows.scalars())
    taken = conn.execute(
        update(_gap)
        .where(_gap.c.id.in_(ids))
        .values(not_before=now + HELD, tries=_gap.c.tries + 1)
        .returning(_gap.c.id, _gap.c.cause, _gap.c.subject, _gap.c.head_sha, _gap.c.number, _gap.c.ref, _gap.c.tries)
    )
    found = {row.id: OpenGap(row.id, Cause(row.cause), *row[2:]) for row in taken}
    return tuple(found[gap_id] for gap_id in ids if gap_id in found)


def wait_until(conn: Connection, gap_ids: Sequence[int], until: datetime) -> None:
    """Leave these gaps alone until then."""
    conn.execute(update(_gap).where(_gap.c.id.in_(gap_ids), _gap.c.ended_at.is_(None)).values(not_before=until))


def let_go(conn: Connection, gap_ids: Sequence[int], now: datetime) -> None:
    """These were taken up, and nobody came to them: others may have them now, and no try is counted."""
    these = (_gap.c.id.in_(gap_ids), _gap.c.ended_at.is_(None))
    conn.execute(update(_gap).where(*these).values(not_before=now, tries=_gap.c.tries - 1))


def end_gap(conn: Connection, gap_id: int, how: How, now: datetime, delivery_id: str | None = None) -> bool:
    """It is over; False where it was already."""
    ended = conn.execute(
        update(_gap)
        .where(_gap.c.id == gap_id, _gap.c.ended_at.is_(None))
        .values(ended_at=now, how=how.value, healed=how in HEALED, delivery_id=delivery_id)
    )
    return bool(ended.rowcount)


def open_by_cause(conn: Connection) -> Mapping[Cause, int]:
    """How many gaps of each cause are open."""
    rows = conn.execute(
        select(_gap.c.cause, func.count()).where(_gap.c.ended_at.is_(None)).group_by(_gap.c.cause)
    ).all()
    return {Cause(cause): count for cause, count in rows}


# --- Deliveries that failed ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FailedDelivery:
    """A webhook that GitHub could not deliver, as it is written down."""

    guid: str
    github_id: int
    app_id: str
    event: str
    delivered_at: datetime


@dataclass(frozen=True, slots=True)
class OpenDelivery:
    """A delivery that failed and whose end is not known yet."""

    id: int
    guid: str
    github_id: int
    tries: int
    asking_at: datetime | None
    asked_at: datetime | None


def note_failed(conn: Connection, failed: Sequence[FailedDelivery], now: datetime) -> tuple[FailedDelivery, ...]:
    """Write down deliveries that failed; returns those of which nobody had written. Each is asked for but once."""
    known: set[str] = set()
    for guids in _portions([one.guid for one in failed]):
        mine = (_gap.c.cause == Cause.DELIVERY_FAILED.value, _gap.c.subject.in_(guids))
        known.update(conn.execute(select(_gap.c.subject).where(*mine)).scalars())
    new = {one.guid: one for one in failed if one.guid not in known}
    rows = [
        {
            "cause": Cause.DELIVERY_FAILED.value,
            "subject": one.guid,
            "head_sha": "",
            "event": one.event,
            "detail": "",
            "updated_at": one.delivered_at,
            "found_at": now,
            "tries": 0,
            "app_id": one.app_id,
            "github_id": one.github_id,
            "healed": False,
            "how": "",
        }
        for one in new.values()
    ]
    if rows:
        conn.execute(on_conflict_do_nothing(conn, _gap), rows)
    return tuple(new.values())


def open_deliveries(conn: Connection, app_id: str) -> tuple[OpenDelivery, ...]:
    """The failed deliveries of this app whose end is not known yet."""
    rows = conn.execute(
        select(_gap.c.id, _gap.c.subject, _gap.c.github_id, _gap.c.tries, _gap.c.asking_at, _gap.c.asked_at).where(
            _gap.c.ended_at.is_(None), _gap.c.cause == Cause.DELIVERY_FAILED.value, _gap.c.app_id == app_id
        )
    )
    return tuple(OpenDelivery(*row) for row in rows)


def claim_asking(conn: Connection, app_id: str, most: int, now: datetime) -> tuple[OpenDelivery, ...]:
    """The newest that nobody has asked for, at most so many. From here on nobody else asks for them."""
    due = or_(_gap.c.not_before.is_(None), _gap.c.not_before <= now)
    rows = conn.execute(
        select(_gap.c.id)
        .where(
            _gap.c.ended_at.is_(None),
            _gap.c.cause == Cause.DELIVERY_FAILED.value,
            _gap.c.app_id == app_id,
            _gap.c.asking_at.is_(None),
            due,
        )
        .order_by(_gap.c.updated_at.desc(), _gap.c.github_id.desc())
        .limit(most)
        .with_for_update(skip_locked=True)
    )
    ids = list(rows.scalars())
    taken = conn.execute(
        update(_gap)
        .where(_gap.c.id.in_(ids), _gap.c.asking_at.is_(None))
        .values(asking_at=now, tries=_gap.c.tries + 1)
        .returning(_gap.c.id, _gap.c.subject, _gap.c.github_id, _gap.c.tries, _gap.c.asking_at, _gap.c.asked_at)
    )
    found = {row.id: OpenDelivery(*row) for row in taken}
    return tuple(found[gap_id] for gap_id in ids if gap_id in found)


def note_asked(conn: Connection, gap_id: int, now: datetime) -> None:
    """GitHub has said that it will send it again."""
    conn.execute(update(_gap).where(_gap.c.id == gap_id).values(asked_at=now))


def not_asked(conn: Connection, gap_ids: Sequence[int], until: datetime | None = None) -> None:
    """It is certain that GitHub was not asked, so somebody may do so, from ``until`` on."""
    for ids in _portions(gap_ids):
        these = (_gap.c.id.in_(ids), _gap.c.asked_at.is_(None))
        conn.execute(update(_gap).where(*these).values(asking_at=None, not_before=until))


def received(conn: Connection, guids: Iterable[str]) -> frozenset[str]:
    """Those of these deliveries that have reached us, and are kept."""
    found: set[str] = set()
    for part in _portions(sorted(set(guids))):
        found.update(conn.execute(select(_delivery.c.id).where(_delivery.c.id.in_(part))).scalars())
    return frozenset(found)


def _portions(values: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """As many at a time as one statement may name."""
    for start in range(0, len(values), _PORTION):
        yield values[start : start + _PORTION]
