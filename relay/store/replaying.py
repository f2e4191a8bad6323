"""Dead letters, tried again because somebody asks: which there are, and what becomes of each.

One run per dispatch stands above the wish: what GitHub took is not sent again, what a newer head or another dispatch
replaced is dropped, and what a person had asked for is theirs to ask again. Each answer says which it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, func, or_, select, update

from allowlist.model import Allowlist, RepoName
from relay.deciding.effects import Kind
from relay.deciding.plan import Purpose
from relay.deciding.terms import Terms
from relay.store.checks import CheckTerms
from relay.store.circuits import try_backends
from relay.store.documents import audit
from relay.store.outbox import IS_DEAD
from relay.store.redispatch import Asking, Refusal, redispatch
from relay.store.reviving import replaced_by, revive_dispatches
from relay.store.tables import Change, Check, Delivery, Dispatch, Effect, Report

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_check = Check.__table__  # type: ignore[attr-defined]
_delivery = Delivery.__table__  # type: ignore[attr-defined]
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_effect = Effect.__table__  # type: ignore[attr-defined]
_report = Report.__table__  # type: ignore[attr-defined]

_SENDING = (Kind.DISPATCH, Kind.DECIDE_PATHS)
_OF_DISPATCHES = (*_SENDING, Kind.RERUN, Kind.CANCEL_RUNS, Kind.OBSERVE)
#: What a person asked for. They were told that it failed, and may have asked again since.
_ASKED = frozenset({Kind.RUN_COMMAND, Kind.RERUN, Kind.CANCEL_RUNS})

#: Dead letters that one transaction looks at, so that no caller of the service waits long behind it.
BATCH = 200


class Fate(StrEnum):
    """What became of a dead letter."""

    REVIVED = "revived"  # It is tried again, with a fresh schedule.
    DROPPED = "dropped"  # It is over: nobody waits for it any more. It is no dead letter from now on.
    LEFT = "left"  # It stays a dead letter.


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which dead letters: of these deliveries, given up within these times (both inclusive), of this backend."""

    deliveries: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    backend: RepoName | None = None

    def __str__(self) -> str:
        parts = [
            f"deliveries {', '.join(self.deliveries)}" if self.deliveries else "",
            f"given up since {self.since.isoformat()}" if self.since else "",
            f"given up until {self.until.isoformat()}" if self.until else "",
            f"backend {self.backend}" if self.backend else "",
        ]
        return "; ".join(part for part in parts if part) or "every dead letter"


@dataclass(frozen=True, slots=True)
class Replayed:
    """One dead letter, what it died of, and what becomes of it, with a sentence for people."""

    effect_id: int
    kind: str
    backend: str
    delivery_id: str | None
    number: int | None
    head_sha: str | None
    reason: str
    fate: Fate
    why: str


@dataclass(frozen=True, slots=True)
class ToldAgain:
    """One backend that is told once more although it was told: the new dispatch, or why there is none."""

    backend: str
    dispatch_id: int | None
    why: str


def between(conn: Connection, first: str, last: str) -> tuple[str, ...] | None:
    """The deliveries received from one to another, oldest first; None where either is not known."""
    ends: dict[str, datetime] = {
        row.id: row.received_at
        for row in conn.execute(
            select(_delivery.c.id, _delivery.c.received_at).where(_delivery.c.id.in_([first, last]))
        )
    }
    if first not in ends or last not in ends:
        return None
    start, end = sorted((ends[first], ends[last]))
    found = conn.execute(
        select(_delivery.c.id)
        .where(_delivery.c.received_at >= start, _delivery.c.received_at <= end)
        .order_by(_delivery.c.received_at, _delivery.c.id)
    )
    return tuple(found.scalars())


def unknown(conn: Connection, deliveries: Sequence[str]) -> tuple[str, ...]:
    """Those of these deliveries that the relay never received, or has forgotten."""
    known = set(conn.execute(select(_delivery.c.id).where(_delivery.c.id.in_(deliveries))).scalars())
    return tuple(one for one in deliveries if one not in known)


def replay(
    conn: Connection,
    chosen: Chosen,
    *,
    listed: Allowlist | None,
    terms: CheckTerms,
    now: datetime,
    after: int = 0,
    dry_run: bool = False,
) -> tuple[Replayed, ...]:
    """Try chosen dead letters again, oldest first from the one behind ``after`` on, at most ``BATCH``.

    With ``dry_run`` nothing is written, and the answer is the same. ``listed`` is the allowlist in force, None where
    it is not known.
    """
    rows = conn.execute(_dead(chosen).where(_effect.c.id > after).order_by(_effect.c.id).limit(BATCH)).all()
    replaced = replaced_by(conn, [row.dispatch_id for row in rows if row.kind in _SENDING and row.dispatch_id])
    found = tuple(_judged(row, listed, replaced) for row in rows)
    if not dry_run:
        _revive(conn, rows, found, terms, now)
    return found


def note_replay(
    conn: Connection, chosen: Chosen, found: Sequence[Replayed], *, who: str, why: str, now: datetime
) -> None:
    """Audit a replay: who asked for what and why, and what came of it."""
    counts = [f"{sum(1 for one in found if one.fate is fate)} {fate}" for fate in Fate]
    audit(conn, at=now, who=who, what="deliveries replayed", subject=str(chosen), why=why, after=", ".join(counts))


def tell_again(
    conn: Connection,
    delivery_id: str,
    backend: RepoName | None,
    *,
    asking: Asking,
    fresh_ids: Sequence[str],
    listed: Allowlist,
    terms: CheckTerms,
    now: datetime,
) -> tuple[ToldAgain, ...]:
    """Tell the backends that this delivery told once more, each by a dispatch of its own, which then decides.

    ``fresh_ids`` has one id for each of them at least (``told_by`` says how many there are).
    """
    found = told_by(conn, delivery_id, backend)
    again: list[ToldAgain] = []
    for (change_id, repo), fresh_id in zip(found, fresh_ids, strict=False):
        made = redispatch(conn, change_id, repo, asking, fresh_id=fresh_id, allowlist=listed, terms=terms, now=now)
        if isinstance(made, Refusal):
            again.append(ToldAgain(str(repo), None, made.sentence.replace("`", "")))
        else:
            again.append(
                ToldAgain(str(repo), made, "told once more, by a dispatch of its own that decides from now on")
            )
            audit(
                conn,
                at=now,
                who=asking.cause.partition(":")[0],
                what="delivery replayed again",
                subject=f"{delivery_id} to {repo}",
                why=asking.cause,
                after=f"dispatch {made}",
            )
    return tuple(again)


def told_by(conn: Connection, delivery_id: str, backend: RepoName | None) -> tuple[tuple[int, RepoName], ...]:
    """The change, and each backend for which this delivery caused a test that was taken by GitHub."""
    query = (
        select(_dispatch.c.change_id, _dispatch.c.backend)
        .where(
            _dispatch.c.origin_delivery == delivery_id,
            _dispatch.c.purpose == Purpose.TEST.value,
            _dispatch.c.state == "sent",
        )
        .order_by(_dispatch.c.id)
    )
    # By the change, which has an index; the delivery has none.
    change_id = conn.execute(select(_delivery.c.change_id).where(_delivery.c.id == delivery_id)).scalar()
    query = query.where(_dispatch.c.change_id == change_id)
    if backend is not None:
        query = query.where(_dispatch.c.backend == str(backend))
    return tuple((row.change_id, RepoName.parse(row.backend)) for row in conn.execute(query))


# --- Looking ---------------------------------------------------------------------------------------------------------


def _dead(chosen: Chosen) -> Any:
    """Dead letters with the dispatch, report or check that each is about."""
    kinds = [kind.value for kind in _OF_DISPATCHES]
    of = case((_effect.c.kind.in_(kinds), _effect.c.subject_id), else_=_report.c.dispatch_id)
    is_pin = _effect.c.kind == Kind.PIN_BACKEND.value
    backend = func.coalesce(_dispatch.c.backend, _check.c.backend, case((is_pin, _effect.c.subject), else_=""))
    query = (
        select(
            _effect.c.id,
            _effect.c.kind,
            _effect.c.subject_id,
            _effect.c.reason,
            backend.label("backend"),
            _dispatch.c.id.label("dispatch_id"),
            _dispatch.c.state,
            _dispatch.c.purpose,
            _dispatch.c.terms,
            _dispatch.c.origin_delivery,
            _change.c.number,
            _change.c.state.label("change_state"),
            func.coalesce(_change.c.head_sha, _check.c.head_sha).label("head_sha"),
        )
        .select_from(
            _effect.outerjoin(
                _report, and_(_effect.c.kind == Kind.FORWARD_HUD.value, _report.c.id == _effect.c.subject_id)
            )
            .outerjoin(_dispatch, _dispatch.c.id == of)
            .outerjoin(_change, _change.c.id == _dispatch.c.change_id)
            .outerjoin(_check, and_(_effect.c.kind == Kind.RECONCILE_CHECK.value, _check.c.id == _effect.c.subject_id))
        )
        .where(IS_DEAD)
    )
    return query.where(*_conditions(chosen, backend))


def _conditions(chosen: Chosen, backend: Any) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if chosen.deliveries:
        heads = (
            select(_change.c.head_sha)
            .join(_delivery, _delivery.c.change_id == _change.c.id)
            .where(_delivery.c.id.in_(chosen.deliveries))
        )
        found.append(or_(_dispatch.c.origin_delivery.in_(chosen.deliveries), _check.c.head_sha.in_(heads)))
    if chosen.since is not None:
        found.append(_effect.c.finished_at >= chosen.since)
    if chosen.until is not None:
        found.append(_effect.c.finished_at <= chosen.until)
    if chosen.backend is not None:
        found.append(backend == str(chosen.backend))
    return found


# --- Judging ---------------------------------------------------------------------------------------------------------


def _judged(row: Any, listed: Allowlist | None, replaced: dict[int, str]) -> Replayed:
    fate, why = _fate(row, listed, replaced)
    return Replayed(
        effect_id=row.id,
        kind=row.kind,
        backend=row.backend,
        delivery_id=row.origin_delivery,
        number=row.number,
        head_sha=row.head_sha,
        reason=row.reason,
        fate=fate,
        why=why,
    )


def _fate(row: Any, listed: Allowlist | None, replaced: dict[int, str]) -> tuple[Fate, str]:
    if row.kind in _ASKED:
        return Fate.LEFT, "a person asked for this and was told that it failed; it is theirs to ask again"
    if row.kind not in _SENDING:
        return Fate.REVIVED, "tried again"
    if row.dispatch_id is None:
        return Fate.DROPPED, "its dispatch is forgotten"
    if row.state == "sent":
        return Fate.DROPPED, "GitHub took this dispatch; one that was taken is not sent again"
    if row.state not in {"dead", "planned", "pending_paths"}:
        return Fate.DROPPED, f"this dispatch is {row.state} meanwhile"
    if row.dispatch_id in replaced:
        return Fate.DROPPED, replaced[row.dispatch_id]
    overtaken = row.purpose == Purpose.TEST and row.change_state != "open"
    if overtaken and not Terms.from_json(row.terms).every_commit:
        over = "a newer head took this one's place" if row.change_state == "superseded" else "the change is closed"
        return Fate.DROPPED, over
    if listed is not None and listed.get(RepoName.parse(row.backend)) is None:
        return Fate.LEFT, "the backend is not on the allowlist any more"
    return Fate.REVIVED, "sent again" if row.kind == Kind.DISPATCH else "decided again"


def _revive(conn: Connection, rows: Sequence[Any], found: Sequence[Replayed], terms: CheckTerms, now: datetime) -> None:
    fates = {one.effect_id: one for one in found}
    dropped = [one.effect_id for one in found if one.fate is Fate.DROPPED]
    if dropped:
        conn.execute(
            update(_effect)
            .where(_effect.c.id.in_(dropped), IS_DEAD)
            .values(state="cancelled", finished_at=now, reason="replay_dropped")
        )
    revived = [row for row in rows if fates[row.id].fate is Fate.REVIVED]
    # Somebody has mended something, so a backend that is left alone is tried now and not at its next probe.
    try_backends(conn, sorted({row.backend for row in revived if row.kind in _SENDING}), now)
    revive_dispatches(conn, [row.dispatch_id for row in revived if row.kind in _SENDING], terms, now)
    others = [row.id for row in revived if row.kind not in _SENDING]
    if others:
        conn.execute(
            update(_effect)
            .where(_effect.c.id.in_(others), IS_DEAD)
            .values(state="ready", due=now, failures=0, finished_at=None, coalesce_key=None)
        )
