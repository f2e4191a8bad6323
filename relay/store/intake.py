"""One transaction for a webhook: the delivery, what it changed, whom it will be told, and the effects that will do so.

``record`` is a unit of work: it has no effect but on its connection and may run again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from allowlist.filters import Filtered, decide_paths, paths_match
from allowlist.model import Allowlist, Entry, Level, RepoName
from levels.outcomes import Outcome
from relay.deciding import effects
from relay.deciding.effects import Kind, NewEffect
from relay.deciding.events import PullRequestEvent, PushEvent
from relay.deciding.grounds import LABEL_UNKNOWN, Ground, ground_of, ground_text, let_stand, plan_text
from relay.deciding.plan import Decision, HeadState, NewDispatch, Plan, plan
from relay.deciding.terms import Terms
from relay.store.cancelling import want_cancelled
from relay.store.checks import CheckTerms, touch_head
from relay.store.comments import want_comment
from relay.store.heads import write_head
from relay.store.outbox import cancel, enqueue
from relay.store.reviving import revive_checks, revive_dispatches
from relay.store.tables import Change, Delivery, Dispatch
from relay.store.thread import load_known, take_turns
from relay.texts.label_help import TOPIC as HELP_TOPIC
from relay.texts.label_help import label_help

__all__ = ["PathsAnswer", "Received", "Recorded", "apply_paths", "record", "supersede"]

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_delivery = Delivery.__table__  # type: ignore[attr-defined]

_SENDING = (Kind.DISPATCH, Kind.DECIDE_PATHS)
_NOT_ALL_NAMED = "GitHub did not name every file that this changes, so the entry's paths cannot say no"
# Built once, since they run for every webhook.
_KEEP_DELIVERY: Mapping[str, Any] = {
    "sqlite": sqlite.insert(_delivery).on_conflict_do_nothing().returning(_delivery.c.id),
    "postgresql": postgresql.insert(_delivery).on_conflict_do_nothing().returning(_delivery.c.id),
}
_KEEP_PLAN = (
    update(_delivery)
    .where(_delivery.c.id == bindparam("b_id"))
    .values(change_id=bindparam("b_change"), plan=bindparam("b_plan"), ground=bindparam("b_ground"))
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What became of a delivery: ``accepted`` or ``duplicate``, and what was decided."""

    status: str
    planned: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class Received:
    """A webhook as it came: its id, the event's name, and its trimmed payload as JSON text."""

    delivery_id: str
    event: str
    payload: str


def record(
    conn: Connection,
    event: PullRequestEvent | PushEvent,
    received: Received,
    *,
    allowlist: Allowlist,
    terms: CheckTerms,
    now: datetime,
    fresh_id: Callable[[], str],
) -> Recorded:
    """Write down a webhook and everything that follows from it; a second time only revive what had been given up."""
    repository = str(terms.upstream)
    action = event.action if isinstance(event, PullRequestEvent) else None
    if not note_delivery(conn, received, action=action, repository=repository, sender=event.sender, now=now):
        return Recorded("duplicate", revive_delivery(conn, received.delivery_id, terms, now))
    take_turns(conn, event)
    known = load_known(conn, event, now)
    prefixes = (terms.label_prefix, *terms.aliases)
    decided = plan(
        event,
        delivery_id=received.delivery_id,
        received_at=now,
        allowlist=allowlist,
        known=known,
        label_prefixes=prefixes,
        fresh_id=fresh_id,
    )
    change_id = write_head(conn, event, decided, received.delivery_id, now)
    if decided.superseded_heads:
        conn.execute(
            update(_change)
            .where(_change.c.id.in_(decided.superseded_heads), _change.c.state == HeadState.OPEN.value)
            .values(state=HeadState.SUPERSEDED.value, ended_at=now)
        )
    supersede(conn, decided.superseded_dispatches, decided.superseded_reason, now)
    stood = _give_way(conn, decided, now)
    dispatches, decisions = let_stand(decided.dispatches, decided.decisions, stood)
    write_dispatches(conn, dispatches, change_id, decided.thread, received.delivery_id, terms.upstream, now)
    if action == "closed" and decided.head_state is HeadState.CLOSED:
        want_cancelled(conn, decided.thread, now)
    if isinstance(event, PullRequestEvent):
        moved = {head.head_sha for head in known.heads if head.id in decided.superseded_heads}
        for head_sha in sorted(moved | {decided.head_sha}):
            touch_head(conn, head_sha, terms, now)
        help_body = label_help(event, allowlist, prefixes)
        if help_body is not None:
            want_comment(conn, event.number, HELP_TOPIC, help_body, terms.upstream, now)
            decisions += (LABEL_UNKNOWN,)
    ground = ground_of(event, known, allowlist, prefixes, stood)
    _keep_plan(conn, received.delivery_id, plan_text(decisions, dispatches), change_id, ground)
    return Recorded("accepted", decisions)


def note_delivery(
    conn: Connection, received: Received, *, action: str | None, repository: str, sender: str, now: datetime
) -> bool:
    """Keep a delivery; False where its id is known already. GitHub repeats the id when it redelivers."""
    row = {
        "id": received.delivery_id,
        "event": received.event,
        "action": action,
        "repository": repository,
        "sender": sender,
        "received_at": now,
        "payload": received.payload,
        "plan": "[]",
    }
    return conn.execute(_KEEP_DELIVERY[conn.dialect.name], row).first() is not None


def note_plan(
    conn: Connection,
    delivery_id: str,
    decisions: Sequence[Decision],
    change_id: int | None = None,
    ground: Ground | None = None,
) -> None:
    """Keep what was decided on a delivery, from what, and the change that it concerns, if it concerns one."""
    _keep_plan(conn, delivery_id, plan_text(decisions, ()), change_id, ground)


def _keep_plan(conn: Connection, delivery_id: str, text: str, change_id: int | None, ground: Ground | None) -> None:
    kept = None if ground is None else ground_text(ground)
    conn.execute(_KEEP_PLAN, {"b_id": delivery_id, "b_change": change_id, "b_plan": text, "b_ground": kept})


def supersede(conn: Connection, dispatch_ids: Sequence[int], reason: str, now: datetime) -> frozenset[int]:
    """Take back dispatches that no backend has heard of; returns those for which that was still possible.

    One that the worker holds at this moment may have gone out already, so it stays as it is.
    """
    if not dispatch_ids:
        return frozenset()
    cancelled = cancel(conn, kinds=_SENDING, subject_ids=dispatch_ids, reason=reason, now=now)
    gone = conn.execute(
        update(_dispatch)
        .where(
            _dispatch.c.id.in_(dispatch_ids),
            (_dispatch.c.id.in_(cancelled) & _dispatch.c.state.in_(("pending_paths", "planned")))
            | (_dispatch.c.state == "paused"),  # Nothing waits in the outbox for a paused one.
        )
        .values(
            state="superseded",
            reason_code=reason,
            reason="",
            outcome=Outcome.NOT_REQUIRED.value,
            outcome_at=now,
            next_deadline=None,
        )
        .returning(_dispatch.c.id)
    )
    return frozenset(gone.scalars())


def _give_way(conn: Connection, decided: Plan, now: datetime) -> frozenset[str]:
    """Let a branch's dispatches replace those of a tag; returns the backends for which the tag's was sent meanwhile.

    For those, that one stands.
    """
    claimed = [dispatch_id for told in decided.dispatches for dispatch_id in told.instead_of]
    gone = supersede(conn, claimed, "same_commit", now)
    return frozenset(
        str(told.entry.repo)
        for told in decided.dispatches
        if told.otherwise is not None and not gone.issuperset(told.instead_of)
    )


_INSERT = insert(_dispatch).returning(_dispatch.c.id, _dispatch.c.backend)


def write_dispatches(
    conn: Connection,
    dispatches: Sequence[NewDispatch],
    change_id: int,
    thread: str,
    origin_delivery: str,
    upstream: RepoName,
    now: datetime,
    *,
    until: datetime | None = None,
) -> None:
    """Write down who is told, and owe the telling. ``until`` is when the change itself can wait no longer."""
    if not dispatches:
        return
    # Most entries share the default terms, and writing them as JSON fifty times costs more than all statements here.
    promised = [Terms.of(told.entry) for told in dispatches]
    texts = {terms: terms.to_json() for terms in set(promised)}
    rows = [
        _dispatch_row(told, terms, texts[terms], change_id, origin_delivery, now, until)
        for told, terms in zip(dispatches, promised, strict=True)
    ]
    # A plan has at most one dispatch for each backend, so the backend tells the new rows apart, whatever their order.
    ids = {row.backend: row.id for row in conn.execute(_INSERT, rows)}
    owed = [_effect(told, ids[str(told.entry.repo)], thread, upstream) for told in dispatches if told.state != "paused"]
    enqueue(conn, owed, now)


def _dispatch_row(
    told: NewDispatch,
    terms: Terms,
    terms_text: str,
    change_id: int,
    origin_delivery: str,
    now: datetime,
    until: datetime | None,
) -> dict[str, Any]:
    entry = told.entry
    paused = told.state == "paused"
    give_up_at = now + terms.queue + terms.run
    if until is not None:
        give_up_at = min(give_up_at, until)
    return {
        "change_id": change_id,
        "backend": str(entry.repo),
        # A demotion holds for whoever looks while it lasts (``relay.store.check_facts``). What is told meanwhile owes
        # what the allowlist says, or closing and reopening would let its head off for good.
        "level": int(entry.promised),
        "device": entry.device,
        "purpose": told.purpose.value,
        "event_type": told.event_type,
        "delivery_id": told.delivery_id,
        "origin_delivery": origin_delivery,
        "payload_delivery": told.payload_delivery,
        "state": told.state,
        "reason_code": "paused" if paused else told.reason,
        "reason": told.decision.detail,
        "terms": terms_text,
        "created_at": now,
        "give_up_at": give_up_at,
        # Only a test owes results by a time, and only one that will be sent.
        "next_deadline": give_up_at if told.purpose == "test" and not paused else None,
        "outcome": (Outcome.PAUSED if paused else Outcome.QUEUED).value,
        "outcome_at": now,
        "legs_reported": 0,
        "late": False,
    }


def _effect(told: NewDispatch, dispatch_id: int, thread: str, upstream: RepoName) -> NewEffect:
    entry = told.entry
    if told.state == "pending_paths":
        made = effects.decide_paths(dispatch_id, entry.repo, thread, entry.level, upstream)
    else:
        made = effects.send_dispatch(dispatch_id, entry.repo, thread, entry.level)
    return replace(made, delay=told.delay) if told.delay else made


def revive_delivery(conn: Connection, delivery_id: str, terms: CheckTerms, now: datetime) -> tuple[Decision, ...]:
    """Somebody pressed "Redeliver": what had been given up of this delivery is tried again."""
    change_id = conn.execute(select(_delivery.c.change_id).where(_delivery.c.id == delivery_id)).scalar()
    if change_id is None:
        return ()
    dead = conn.execute(
        select(_dispatch.c.id).where(
            _dispatch.c.change_id == change_id,
            _dispatch.c.origin_delivery == delivery_id,
            _dispatch.c.state == "dead",
        )
    )
    return revive_dispatches(conn, dead.scalars().all(), terms, now) + revive_checks(conn, change_id, now)


@dataclass(frozen=True, slots=True)
class PathsAnswer:
    """The paths that a change touches, as GitHub named them; not complete where there may be more.

    ``doubt`` says why GitHub named none, where it would not.
    """

    paths: Sequence[str]
    complete: bool
    doubt: str = ""


def apply_paths(conn: Connection, dispatch_id: int, answer: PathsAnswer, *, terms: CheckTerms, now: datetime) -> None:
    """Decide a dispatch that waited for its changed files: send it, or record why not. A decided one stays as it is."""
    row = conn.execute(
        select(
            _dispatch.c.backend,
            _dispatch.c.level,
            _dispatch.c.terms,
            _change.c.thread,
            _change.c.head_sha,
            _change.c.state,
            _delivery.c.plan,
        )
        .select_from(
            _dispatch.join(_change, _change.c.id == _dispatch.c.change_id).outerjoin(
                _delivery, _delivery.c.id == _dispatch.c.origin_delivery
            )
        )
        .where(_dispatch.c.id == dispatch_id, _dispatch.c.state == "pending_paths")
        .with_for_update(of=_dispatch)
    ).first()
    if row is None:
        return
    repo, level = RepoName.parse(row.backend), Level(row.level)
    entry = _with_patterns(repo, level, row.plan)
    verdict = decide_paths(entry, answer.paths, complete=answer.complete)
    settled: Mapping[str, Any] = {"outcome_at": now, "next_deadline": None}
    if row.state != HeadState.OPEN and not Terms.from_json(row.terms).every_commit:
        # The head moved on while GitHub was asked, and nobody waits for this one any more.
        values = {"state": "superseded", "reason_code": "newer_head", "outcome": Outcome.NOT_REQUIRED.value, **settled}
    elif isinstance(verdict, Filtered):
        values = {
            "state": "filtered",
            "reason_code": f"filtered_{verdict.reason}",
            "reason": verdict.text,
            "outcome": Outcome.FILTERED.value,
            **settled,
        }
    else:
        # In doubt it is told, and whoever asks why is told of the doubt.
        doubt = "" if answer.paths and paths_match(entry, answer.paths) else answer.doubt or _NOT_ALL_NAMED
        values = {"state": "planned", "reason": doubt}
        enqueue(conn, [effects.send_dispatch(dispatch_id, repo, row.thread, level)], now)
    conn.execute(update(_dispatch).where(_dispatch.c.id == dispatch_id).values(**values))
    touch_head(conn, row.head_sha, terms, now)


def _with_patterns(repo: RepoName, level: Level, plan_text: str | None) -> Entry:
    """The entry as far as its path filter goes, with the patterns that were in force when the event came."""
    for decision in json.loads(plan_text or "[]"):
        if decision.get("backend") == str(repo):
            return Entry(repo, level, paths=tuple(decision.get("paths", ())))
    return Entry(repo, level)
