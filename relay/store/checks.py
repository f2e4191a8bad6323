"""Which checks a commit owes, and what GitHub was last told of each.

``touch_head`` is called inside the transaction that changes a fact, ``load_check`` (``relay.store.check_facts``) reads
all facts of one check, and ``relay.store.check_notes`` records what came of writing it. A check row holds the wanted
state (``wanted``) and the one that GitHub took (``applied``), both as hashes; where they differ, a write is owed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Boolean, Connection, and_, bindparam, exists, func, literal_column, or_, select, update

from allowlist.model import Level, RepoName
from levels.powers import POWERS, Show
from relay.deciding.effects import Kind, NewEffect, reconcile_check
from relay.store.candidates import OPEN
from relay.store.outbox import enqueue, on_conflict_do_nothing
from relay.store.queued import groups_holding
from relay.store.sooner import sooner
from relay.store.tables import Change, Check, Dispatch, Effect, Job, Report
from relay.texts.words import GATE_NAME, backend_check_name, job_check_name

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_check = Check.__table__  # type: ignore[attr-defined]
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_effect = Effect.__table__  # type: ignore[attr-defined]
_job = Job.__table__  # type: ignore[attr-defined]
_report = Report.__table__  # type: ignore[attr-defined]

#: Kinds of change that can be merged, and so carry checks. A push and a self-reported commit have nobody to hold back.
CHECKED_KINDS = ("pull_request", "merge_group")

#: States in which a dispatch has a check of its own. One that was filtered is named in the gate alone, and one whose
#: paths are not decided yet would only make a check that may have to be taken back.
SHOWN_STATES = ("planned", "sent", "dead", "paused")

#: Levels whose dispatches a check may show.
SHOWN_LEVELS = tuple(int(level) for level in Level if POWERS[level].check is not Show.NEVER)

#: Put before ``wanted`` by each touch: what should show is unknown until the reconciler has looked. Two touches differ
#: from one, so that a look which began before the second cannot pass for an answer to it.
TOUCHED = "+"

#: A create that GitHub was slow with can take effect after we gave up waiting for it, and after a look that found
#: nothing. For so long after it was sent each look asks which check runs there are. No limit is documented.
LATE = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class CheckTerms:
    """What decides which checks are due and how often one may be written."""

    upstream: RepoName
    label_prefix: str
    interval: timedelta
    aliases: tuple[str, ...] = ("ciflow/oot/",)
    per_job: bool = False
    #: How long a merge group's gate waits in all.
    group_deadline: timedelta = timedelta(minutes=50)

    def shows(self, level: Level, device: str | None, labels: Sequence[str]) -> bool:
        """Whether a backend of this level has a check on a change with these labels."""
        show = POWERS[level].check
        if show is not Show.LABELLED:
            return show is Show.ALWAYS
        wanted = {f"{prefix}{device}".lower() for prefix in (self.label_prefix, *self.aliases)}
        # GitHub compares label names without case.
        return device is not None and any(label.lower() in wanted for label in labels)


@dataclass(frozen=True, slots=True)
class Due:
    """A check that owes a look: what is needed to plan one."""

    id: int
    name: str
    written_at: datetime | None
    failed: bool = False  # A try to write it did, and waits for the next.


def touch_head(
    conn: Connection, head_sha: str, terms: CheckTerms, now: datetime, *, backend: RepoName | str | None = None
) -> None:
    """Make sure that every check which this commit owes exists and will be looked at.

    Call it inside the transaction, after anything changed that a check may depend on. ``backend`` narrows the look to
    that backend's checks and the gate, where nothing else can have changed.
    """
    _look_at(conn, _touched(conn, head_sha, None if backend is None else {str(backend)}, terms, now), now)


def touch_reported(
    conn: Connection, concerned: Mapping[str, Collection[str]], terms: CheckTerms, now: datetime
) -> None:
    """As ``touch_head`` for several commits, on each of which these backends alone may have changed something."""
    looks: list[tuple[Due, NewEffect]] = []
    for head_sha in sorted(concerned):
        looks += _touched(conn, head_sha, concerned[head_sha], terms, now)
    _look_at(conn, looks, now)


def _touched(
    conn: Connection, head_sha: str, backends: Collection[str] | None, terms: CheckTerms, now: datetime
) -> list[tuple[Due, NewEffect]]:
    """Mark the checks that may have changed, made first where they are missing; the looks at them."""
    names, found, queued = _names_due(conn, head_sha, terms, backends)
    # A backend that can neither show nor block here leaves the gate as it is: its reports cost no look at it.
    gate_too = backends is None or bool(found)
    due = _mark(conn, head_sha, backends, gate_too=gate_too)
    missing = names.keys() - {check.name for check in due}
    if not gate_too:
        missing -= {GATE_NAME}
    if missing:
        rows = [_new_row(head_sha, name, names[name], now) for name in sorted(missing)]
        conn.execute(on_conflict_do_nothing(conn, _check), rows)
        due = _mark(conn, head_sha, backends, gate_too=gate_too)
    looks = [(check, look(check, head_sha, terms, now)) for check in sorted(due, key=lambda check: check.id)]
    if gate_too and queued:
        # A merge group's gate says what the gates of its pull requests say.
        for group in groups_holding(conn, queued):
            looks += [(check, look(check, group, terms, now)) for check in _mark(conn, group, (), gate_too=True)]
    return looks


def _look_at(conn: Connection, looks: Sequence[tuple[Due, NewEffect]], now: datetime) -> None:
    enqueue(conn, [effect for _, effect in looks], now)
    # A retry may be hours away, and the look at what is new would wait behind it.
    sooner(conn, [effect.lane for check, effect in looks if check.failed], now)


def touch_backends(conn: Connection, repos: Sequence[RepoName], terms: CheckTerms, now: datetime) -> tuple[str, ...]:
    """Look again at every open head that these backends were called for; returns the heads.

    For a change of the allowlist: a level that went down must release the gates which wait for it.
    """
    if not repos:
        return ()
    heads = conn.execute(
        select(_change.c.head_sha)
        .distinct()
        .join(_dispatch, _dispatch.c.change_id == _change.c.id)
        .where(
            _change.c.state == "open",
            _change.c.kind.in_(CHECKED_KINDS),
            _dispatch.c.purpose == "test",
            _dispatch.c.backend.in_([str(repo) for repo in repos]),
        )
        .order_by(_change.c.head_sha)
    ).scalars()
    found = tuple(heads)
    for head_sha in found:
        touch_head(conn, head_sha, terms, now)
    return found


def rename_device(conn: Connection, repo: RepoName, device: str) -> None:
    """The allowlist has given this backend another device: on open changes the new device's label shows its check."""
    open_changes = select(_change.c.id).where(_change.c.state == "open", _change.c.kind.in_(CHECKED_KINDS))
    conn.execute(
        update(_dispatch)
        .where(
            _dispatch.c.backend == str(repo),
            _dispatch.c.purpose == "test",
            _dispatch.c.change_id.in_(open_changes),
            _dispatch.c.device.is_distinct_from(device),
        )
        .values(device=device)
    )


def heal(conn: Connection, terms: CheckTerms, now: datetime, *, count: int = 200) -> tuple[int, ...]:
    """Enqueue checks that owe a look while no effect is on its way; returns their ids.

    The wanted and the applied state differ where a touch relied on an effect that was claimed in the same moment. And
    where a create's answer was lost, what came of it late is asked for once it can no longer come. One whose effect
    died is left alone until the next touch: its reason stands in the outbox, and trying again is a person's choice.
    """
    settled = select(_effect.c.id).where(
        _effect.c.kind == Kind.RECONCILE_CHECK.value,
        _effect.c.subject_id == _check.c.id,
        or_(
            _effect.c.state.in_(("ready", "running")),
            and_(
                _effect.c.state == "dead",
                or_(_check.c.written_at.is_(None), _effect.c.finished_at >= _check.c.written_at),
            ),
        ),
    )
    owed = (
        _check.c.wanted.is_distinct_from(_check.c.applied),
        and_(_check.c.creating, or_(_check.c.create_sent_at.is_(None), _check.c.create_sent_at <= now - LATE)),
    )
    rows = [
        row
        for reason in owed
        for row in conn.execute(
            select(_check.c.id, _check.c.name, _check.c.head_sha, _check.c.written_at)
            .where(reason, ~exists(settled))
            .order_by(_check.c.id.desc())
            .limit(count)
        )
    ]
    enqueue(conn, [look(Due(row.id, row.name, row.written_at), row.head_sha, terms, now) for row in rows], now)
    return tuple(dict.fromkeys(row.id for row in rows))


# --- Which checks are due --------------------------------------------------------------------------------------------


_group = _change.alias("merge_group")

# Built once: a touch comes with most callbacks, and to build these costs more than to run them.
_THEIRS = and_(
    _dispatch.c.change_id == _change.c.id, _dispatch.c.purpose == "test", _dispatch.c.level.in_(SHOWN_LEVELS)
)
_SHOWN = select(
    _change.c.id,
    _change.c.labels,
    _dispatch.c.id.label("dispatch_id"),
    _dispatch.c.backend,
    _dispatch.c.level,
    _dispatch.c.device,
    _dispatch.c.state,
    _change.c.number,
    exists(_group.c.id)
    .where(_group.c.number == _change.c.number, _group.c.kind == "merge_group", _group.c.state == "open")
    .label("queued"),
    _change.c.kind,
).where(_change.c.head_sha == bindparam("head_sha"), _change.c.state == "open", _change.c.kind.in_(CHECKED_KINDS))

_DISPATCHES_SHOWN = _SHOWN.select_from(_change.outerjoin(_dispatch, _THEIRS))
# A report touches one backend's checks, and there may be a hundred others on its commit.
_DISPATCHES_OF = _SHOWN.select_from(
    _change.outerjoin(_dispatch, and_(_THEIRS, _dispatch.c.backend.in_(bindparam("backends", expanding=True))))
)

# By its lane (``reconcile_check``) and not by ``last_error``: of a try that took too long, or met a fault of ours, the
# check's own row says nothing. No statement of its own, for few have failed. In plain text, since SQLAlchemy leaves the
# tables' names out of what SQLite is to return, and the effect's id would stand for the check's.
_FAILED = literal_column(
    "EXISTS (SELECT 1 FROM effect"  # noqa: S608  # Made of what stands in another module.
    """ WHERE effect.lane = 'check ' || "check".head_sha || ' ' || CAST("check".id AS TEXT)"""
    f" AND effect.{OPEN} AND effect.state = 'ready' AND effect.failures > 0)",
    Boolean(),
)
_MARK_ALL = (
    update(_check)
    .where(_check.c.head_sha == bindparam("b_head_sha"))
    .values(wanted=TOUCHED + func.coalesce(_check.c.wanted, ""))
    .returning(_check.c.id, _check.c.name, _check.c.written_at, _FAILED.label("failed"))
)
_IS_THEIRS = _check.c.backend.in_(bindparam("b_backends", expanding=True))
_MARK_BACKENDS = _MARK_ALL.where(_IS_THEIRS)
_MARK_BACKENDS_AND_GATE = _MARK_ALL.where(or_(_IS_THEIRS, _check.c.backend.is_(None)))


def _names_due(
    conn: Connection, head_sha: str, terms: CheckTerms, backends: Collection[str] | None
) -> tuple[dict[str, str | None], set[str], list[int]]:
    """The names of all checks due on this commit, each with its backend (None: the gate); of ``backends`` alone if set.

    Beside them, the backends that a check here may speak of, and the pull requests of this commit that are queued.
    """
    if backends is None:
        rows = conn.execute(_DISPATCHES_SHOWN, {"head_sha": head_sha}).all()
    else:
        rows = conn.execute(_DISPATCHES_OF, {"head_sha": head_sha, "backends": sorted(backends)}).all()
    names: dict[str, str | None] = {GATE_NAME: None} if rows else {}
    shown: dict[int, RepoName] = {}
    for row in rows:
        if row.state in SHOWN_STATES and terms.shows(Level(row.level), row.device, json.loads(row.labels)):
            repo = RepoName.parse(row.backend)
            names[backend_check_name(repo)] = row.backend
            shown[row.dispatch_id] = repo
    if terms.per_job and shown:
        names.update(_job_names(conn, shown))
    queued = sorted({row.number for row in rows if row.queued and row.kind == "pull_request"})
    return names, {row.backend for row in rows if row.backend is not None}, queued


def _job_names(conn: Connection, shown: dict[int, RepoName]) -> dict[str, str | None]:
    rows = conn.execute(
        select(_job.c.dispatch_id, _job.c.job_name, _report.c.workflow_name)
        .distinct()
        .join(_report, _report.c.id == _job.c.report_id)
        .where(_job.c.dispatch_id.in_(shown))
    )
    return {
        job_check_name(shown[row.dispatch_id], row.workflow_name, row.job_name): str(shown[row.dispatch_id])
        for row in rows
    }


def _mark(conn: Connection, head_sha: str, backends: Collection[str] | None, *, gate_too: bool) -> list[Due]:
    """Mark the checks of this commit as touched, and return them."""
    if backends is None:
        rows = conn.execute(_MARK_ALL, {"b_head_sha": head_sha})
    else:
        statement = _MARK_BACKENDS_AND_GATE if gate_too else _MARK_BACKENDS
        rows = conn.execute(statement, {"b_head_sha": head_sha, "b_backends": sorted(backends)})
    return [Due(row.id, row.name, row.written_at, bool(row.failed)) for row in rows]


def _new_row(head_sha: str, name: str, backend: str | None, now: datetime) -> dict[str, object]:
    return {
        "head_sha": head_sha,
        "name": name,
        "backend": backend,
        "creating": False,
        "status": "queued",
        "title": "",
        "summary": "",
        "text": "",
        "details_url": "",
        "created_at": now,
        "writes": 0,
    }


def look(check: Due, head_sha: str, terms: CheckTerms, now: datetime) -> NewEffect:
    """The first write goes out at once; a later one waits until the interval since the last is over."""
    delay = timedelta()
    if check.written_at is not None:
        # Never more than the interval, whatever the clock said when it was written.
        delay = min(max(delay, check.written_at + terms.interval - now), terms.interval)
    return reconcile_check(check.id, head_sha, terms.upstream, gate=check.name == GATE_NAME, delay=delay)
