"""What is forgotten, and when: a change with all that hangs on it, a while after its head stopped being open.

``forget`` takes a little at a time, because the writer it runs on serves callers too. Whatever order it is stopped in,
what is left is whole enough to be read, and the next call goes on from there. Backends, what people and the allowlist
changed, and what all rows amounted to (``relay.store.aggregates``) are kept for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, bindparam, delete, exists, func, select

from relay.deciding.effects import Kind
from relay.store.aggregates import count_forgotten
from relay.store.deadlines import SELF
from relay.store.tables import (
    AllowlistVersion,
    Attempt,
    Audit,
    Change,
    Check,
    Command,
    Comment,
    Delivery,
    Dispatch,
    Effect,
    Gap,
    Job,
    Observation,
    Override,
    Report,
    TestResult,
)

_attempt = Attempt.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_audit = Audit.__table__  # type: ignore[attr-defined]
_change = Change.__table__  # type: ignore[attr-defined]
_check = Check.__table__  # type: ignore[attr-defined]
_command = Command.__table__  # type: ignore[attr-defined]
_comment = Comment.__table__  # type: ignore[attr-defined]
_delivery = Delivery.__table__  # type: ignore[attr-defined]
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_effect = Effect.__table__  # type: ignore[attr-defined]
_gap = Gap.__table__  # type: ignore[attr-defined]
_job = Job.__table__  # type: ignore[attr-defined]
_observation = Observation.__table__  # type: ignore[attr-defined]
_override = Override.__table__  # type: ignore[attr-defined]
_report = Report.__table__  # type: ignore[attr-defined]
_test_result = TestResult.__table__  # type: ignore[attr-defined]
_version = AllowlistVersion.__table__  # type: ignore[attr-defined]

#: How long after its end a change is kept where nobody says otherwise.
KEEP = timedelta(days=90)

#: The most of one kind that one call takes, so that no caller waits long behind it. A report may hold 1,000 tests.
CHANGES = 20
DISPATCHES = 50
REPORTS = 100
ROWS = 500

#: Effects go with the row they are about. Those about none go by their age.
OF_DISPATCHES = frozenset({Kind.DISPATCH, Kind.DECIDE_PATHS, Kind.RERUN, Kind.CANCEL_RUNS, Kind.OBSERVE})
OF_REPORTS = frozenset({Kind.FORWARD_HUD})
OF_CHECKS = frozenset({Kind.RECONCILE_CHECK})
OF_CHANGES = frozenset({Kind.CONFIRM_COMMIT})
OF_COMMENTS = frozenset({Kind.RECONCILE_COMMENT})
OF_COMMANDS = frozenset({Kind.RUN_COMMAND})
OF_NOTHING = frozenset({Kind.PIN_BACKEND})


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What one call took: whole changes, and rows of any kind. ``more`` says whether another call would find some."""

    changes: int = 0
    rows: int = 0
    more: bool = False


_ENDED: Select[Any] = (
    select(_change.c.id, _change.c.head_sha, _change.c.number)
    .where(
        _change.c.ended_at < bindparam("before", type_=_change.c.ended_at.type),
        # A backend that is still awaited is settled by the sweep first.
        ~exists(_dispatch.c.id).where(_dispatch.c.change_id == _change.c.id, _dispatch.c.next_deadline.is_not(None)),
    )
    .order_by(_change.c.ended_at, _change.c.id)
    .limit(CHANGES)
    .with_for_update(of=_change, skip_locked=True)
)


def forget(conn: Connection, before: datetime, *, reports: int = REPORTS, dispatches: int = DISPATCHES) -> Forgotten:
    """Forget some of what ended before this moment. Call it again while it says that there is more.

    Of reports, which are the most by far, and of dispatches it takes so many at most.

    Safe on two replicas at once: each takes changes that the other has not locked.
    """
    ended = conn.execute(_ENDED, {"before": before}).all()
    changes, rows, left = _forget_ended(conn, ended, reports, dispatches) if ended else (0, 0, False)
    # Last, since some of it waits for its change to be gone.
    loose, more_loose = _forget_loose(conn, before)
    return Forgotten(changes, rows + loose, more=left or more_loose or len(ended) == CHANGES)


def _forget_ended(conn: Connection, ended: Sequence[Row[Any]], reports: int, dispatches: int) -> tuple[int, int, bool]:
    """Of these changes as much as one step takes: whole changes, rows of any kind, and whether something is left."""
    change_ids = [row.id for row in ended]
    rows = _forget_dispatches(conn, change_ids, reports, dispatches)
    left = set(conn.execute(select(_dispatch.c.change_id).where(_dispatch.c.change_id.in_(change_ids))).scalars())
    gone = [row for row in ended if row.id not in left]
    if gone:
        rows += _forget_changes(conn, [row.id for row in gone])
        rows += _forget_of_heads(conn, sorted({row.head_sha for row in gone}))
        rows += _forget_of_numbers(conn, sorted({row.number for row in gone if row.number is not None}))
    return len(gone), rows, bool(left)


def _forget_dispatches(conn: Connection, change_ids: Sequence[int], most: int, dispatches: int) -> int:
    """Some dispatches of these changes, each once all its reports are gone."""
    # Locked, so that no callback can add a report to one that is about to go.
    of_changes = select(_dispatch.c.id).where(_dispatch.c.change_id.in_(change_ids)).order_by(_dispatch.c.id)
    ids = conn.execute(of_changes.limit(dispatches).with_for_update(skip_locked=True)).scalars().all()
    if not ids:
        return 0
    reports = select(_report.c.id).where(_report.c.dispatch_id.in_(ids)).order_by(_report.c.id).limit(most)
    report_ids = conn.execute(reports).scalars().all()
    reported = (
        select(_report.c.dispatch_id).where(_report.c.dispatch_id.in_(ids), _report.c.id.not_in(report_ids)).distinct()
    )
    left = set(conn.execute(reported).scalars())
    done = [dispatch_id for dispatch_id in ids if dispatch_id not in left]
    # What goes is counted in the transaction in which it goes, and so exactly once.
    count_forgotten(conn, report_ids=report_ids, dispatch_ids=done)
    rows = 0
    if report_ids:
        rows += _delete(conn, _test_result, _test_result.c.report_id.in_(report_ids))
        rows += _forget_effects(conn, OF_REPORTS, report_ids)
        rows += _delete(conn, _report, _report.c.id.in_(report_ids))
    if done:
        rows += _delete(conn, _job, _job.c.dispatch_id.in_(done))
        rows += _delete(conn, _observation, _observation.c.dispatch_id.in_(done))
        rows += _forget_effects(conn, OF_DISPATCHES, done)
        rows += _delete(conn, _dispatch, _dispatch.c.id.in_(done))
    return rows


def _forget_changes(conn: Connection, change_ids: Sequence[int]) -> int:
    """These changes, and the webhooks that told of them."""
    rows = _forget_effects(conn, OF_CHANGES, change_ids)
    rows += _delete(conn, _delivery, _delivery.c.change_id.in_(change_ids))
    return rows + _delete(conn, _change, _change.c.id.in_(change_ids))


def _forget_of_heads(conn: Connection, head_shas: Sequence[str]) -> int:
    """What hangs on a commit, where no change is left of it."""
    left = select(_change.c.head_sha).where(_change.c.head_sha.in_(head_shas))
    gone = sorted({*head_shas} - {*conn.execute(left).scalars()})
    check_ids = conn.execute(select(_check.c.id).where(_check.c.head_sha.in_(gone))).scalars().all()
    rows = _forget_effects(conn, OF_CHECKS, check_ids)
    rows += _delete(conn, _check, _check.c.id.in_(check_ids))
    return rows + _delete(conn, _override, _override.c.head_sha.in_(gone))


def _forget_of_numbers(conn: Connection, numbers: Sequence[int]) -> int:
    """What hangs on a pull request, where no head is left of it."""
    left = select(_change.c.number).where(_change.c.number.in_(numbers))
    gone = sorted({*numbers} - {*conn.execute(left).scalars()})
    comment_ids = conn.execute(select(_comment.c.id).where(_comment.c.number.in_(gone))).scalars().all()
    rows = _forget_effects(conn, OF_COMMENTS, comment_ids)
    return rows + _delete(conn, _comment, _comment.c.id.in_(comment_ids))


def _forget_loose(conn: Connection, before: datetime) -> tuple[int, bool]:
    """What hangs on no change and is old by itself; and whether there may be more of it."""
    pins = conn.execute(
        select(_effect.c.id)
        .where(_effect.c.kind.in_(_words(OF_NOTHING)), _effect.c.subject_id == 0, _effect.c.finished_at < before)
        .limit(ROWS)
    )
    effect_ids = pins.scalars().all()
    of_a_change = exists(_change.c.id).where(_change.c.number == _command.c.number)
    commands = select(_command.c.id).where(_command.c.created_at < before, ~of_a_change).limit(ROWS)
    command_ids = conn.execute(commands).scalars().all()
    rows = _delete_effects(conn, effect_ids) + _forget_effects(conn, OF_COMMANDS, command_ids)
    rows += _delete(conn, _command, _command.c.id.in_(command_ids))
    taken = [len(effect_ids), len(command_ids)]
    for table, old in (
        (_delivery, and_(_delivery.c.received_at < before, _delivery.c.change_id.is_(None))),
        # As long as a head is here, what was found about it keeps others from being told of it again.
        (_gap, and_(_gap.c.ended_at < before, ~exists(_change.c.id).where(_change.c.head_sha == _gap.c.head_sha))),
        # Our own conclusions went with their dispatches; what a person or the allowlist changed stays on record.
        (_audit, and_(_audit.c.at < before, _audit.c.who == SELF, _audit.c.what.in_(("deadline", "observed")))),
    ):
        taken.append(_delete(conn, table, table.c.id.in_(select(table.c.id).where(old).limit(ROWS))))
    taken.append(_forget_versions(conn, before))
    return rows + sum(taken[2:]), max(taken) == ROWS


def _forget_versions(conn: Connection, before: datetime) -> int:
    """Allowlists that nothing kept was decided by: another has been in force since before all that is kept.

    Deliveries of changes that are still open are older than that, and can then not be decided again.
    """
    newest = select(func.max(_version.c.kept_at)).where(_version.c.kept_at < before).scalar_subquery()
    old = select(_version.c.digest).where(_version.c.kept_at < newest).limit(ROWS)
    return _delete(conn, _version, _version.c.digest.in_(old))


def _forget_effects(conn: Connection, kinds: Collection[Kind], subject_ids: Sequence[int]) -> int:
    """The effects on these rows, in whatever state: a worker that holds one finds that its note no longer fits."""
    of_subjects = select(_effect.c.id).where(_effect.c.kind.in_(_words(kinds)), _effect.c.subject_id.in_(subject_ids))
    return _delete_effects(conn, conn.execute(of_subjects).scalars().all())


def _delete_effects(conn: Connection, effect_ids: Sequence[int]) -> int:
    rows = 0
    for start in range(0, len(effect_ids), ROWS):
        some = effect_ids[start : start + ROWS]
        rows += _delete(conn, _attempt, _attempt.c.effect_id.in_(some))
        rows += _delete(conn, _effect, _effect.c.id.in_(some))
    return rows


def _delete(conn: Connection, table: Any, condition: ColumnElement[bool]) -> int:
    return int(conn.execute(delete(table).where(condition)).rowcount)


def _words(kinds: Collection[Kind]) -> list[str]:
    return sorted(kind.value for kind in kinds)
