"""All facts of one check, read in a handful of statements."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, select

from allowlist.model import Allowlist, Level, RepoName
from levels.powers import POWERS
from relay.deciding.facts import ChangeFacts, CheckFacts, DispatchFacts, LeftOut, LegFacts, RowFacts
from relay.store.base_results import Compared, base_of, compare
from relay.store.checks import CHECKED_KINDS, CheckTerms
from relay.store.overrides import overrides_of
from relay.store.queued import members_of
from relay.store.reported import failed_tests, has_failed, leg_facts
from relay.store.tables import Change, Check, Delivery, Dispatch, Job, Report
from relay.store.told import DISPATCHES, dispatch_facts

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_check = Check.__table__  # type: ignore[attr-defined]
_delivery = Delivery.__table__  # type: ignore[attr-defined]
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_job = Job.__table__  # type: ignore[attr-defined]
_report = Report.__table__  # type: ignore[attr-defined]

#: More failing legs and tests than this are counted, not listed: the check's text would not hold them.
MOST_LEGS_WITH_TESTS = 40
MOST_TESTS_OF_A_LEG = 12

#: The webhooks of a head whose decisions are looked at: the first ones decided who was asked.
MOST_PLANS = 5


# Built once: to build these for each look costs more than to run them.
_CHECK = select(_check).where(_check.c.id == bindparam("check_id"))
_CHANGES = (
    select(_change)
    .where(_change.c.head_sha == bindparam("head_sha"), _change.c.kind.in_(CHECKED_KINDS))
    .order_by(_change.c.received_at, _change.c.id)
)


def _newest(*conditions: ColumnElement[bool]) -> Select[Any]:
    """The newest dispatch of each change and backend that owes a result."""
    newest = (
        select(func.max(_dispatch.c.id))
        .where(
            _dispatch.c.change_id.in_(bindparam("change_ids", expanding=True)),
            _dispatch.c.purpose == "test",
            *conditions,
        )
        .group_by(_dispatch.c.change_id, _dispatch.c.backend)
    )
    return DISPATCHES.where(_dispatch.c.id.in_(newest)).order_by(_dispatch.c.id)


_NEWEST = _newest()
_NEWEST_OF_BACKEND = _newest(_dispatch.c.backend == bindparam("backend"))
_PLANS = (
    select(_delivery.c.plan)
    .where(_delivery.c.change_id.in_(bindparam("change_ids", expanding=True)))
    .order_by(_delivery.c.received_at, _delivery.c.id)
    .limit(MOST_PLANS)
)
_LEGS = (
    select(_job, _report.c.workflow_name)
    .select_from(_job.outerjoin(_report, _report.c.id == _job.c.report_id))
    .where(_job.c.dispatch_id.in_(bindparam("dispatch_ids", expanding=True)), _job.c.deciding)
    .order_by(_job.c.backend_version, _job.c.suite_version, _job.c.job_name, _job.c.id)
)


def load_check(
    conn: Connection, check_id: int, terms: CheckTerms, *, listed: Allowlist | None = None
) -> CheckFacts | None:
    """Everything that this check says, or None where there is no such check.

    ``listed`` is the allowlist in force, so that a backend whose level went down is held back by nothing it may no
    longer do. Without one the levels at dispatch stand.
    """
    row = conn.execute(_CHECK, {"check_id": check_id}).first()
    if row is None:
        return None
    changes = _changes(conn, row.head_sha)
    backend = None if row.backend is None else RepoName.parse(row.backend)
    dispatches = _dispatches(conn, row.head_sha, changes, backend, terms, listed)
    group = next((change for change in changes if change.is_open and change.kind == "merge_group"), None)
    if group is not None:
        if backend is None:
            dispatches += _standing_verdicts(conn, row.head_sha, group, dispatches, terms, listed)
        until, over = group.received_at + terms.group_deadline, group.ended_at is not None
        dispatches = tuple(one.within(until, over=over) for one in dispatches)
    return CheckFacts(
        left_out=_left_out(conn, changes, dispatches, listed) if backend is None else (),
        row=RowFacts(
            id=row.id,
            mark=row.wanted,
            applied=row.applied,
            github_id=row.github_id,
            creating=row.creating,
            create_sent_at=row.create_sent_at,
            status=row.status,
            conclusion=row.conclusion,
            title=row.title,
            created_at=row.created_at,
        ),
        name=row.name,
        head_sha=row.head_sha,
        backend=backend,
        changes=changes,
        dispatches=dispatches,
    )


def _changes(conn: Connection, head_sha: str) -> tuple[ChangeFacts, ...]:
    rows = conn.execute(_CHANGES, {"head_sha": head_sha}).all()
    gone = [row.thread for row in rows if row.state != "open"]
    later: dict[str, str] = {}
    if gone and len(gone) == len(rows):
        for newer in conn.execute(
            select(_change.c.thread, _change.c.head_sha)
            .where(_change.c.thread.in_(gone), _change.c.head_sha != head_sha, _change.c.state != "superseded")
            .order_by(_change.c.updated_at, _change.c.id)
        ):
            later[newer.thread] = newer.head_sha
    return tuple(
        ChangeFacts(
            id=row.id,
            kind=row.kind,
            number=row.number,
            base_ref=row.base_ref,
            state=row.state,
            labels=tuple(json.loads(row.labels)),
            received_at=row.received_at,
            replaced_by=later.get(row.thread) if row.state == "superseded" else None,
            ended_at=row.ended_at,
            base_sha=row.base_sha,
        )
        for row in rows
    )


def _dispatches(
    conn: Connection,
    head_sha: str,
    changes: Sequence[ChangeFacts],
    backend: RepoName | None,
    terms: CheckTerms,
    listed: Allowlist | None,
) -> tuple[DispatchFacts, ...]:
    """For each open change and backend the newest dispatch that owes a result."""
    labels = {change.id: change.labels for change in changes if change.is_open}
    if not labels:
        return ()
    of = {"change_ids": sorted(labels)}
    if backend is None:
        rows = conn.execute(_NEWEST, of).all()
    else:
        rows = conn.execute(_NEWEST_OF_BACKEND, {**of, "backend": str(backend)}).all()
    # The gate speaks of nobody's failures but those that hold a merge back.
    bases = {change.id: base_of(change.kind, change.base_ref, change.base_sha) for change in changes}
    asked = [row for row in rows if backend is not None or POWERS[Level(row.level)].blocks]
    compared = compare(conn, ((row, bases[row.change_id]) for row in asked))
    legs = _legs(conn, [row.id for row in rows], compared) if backend is not None else {}
    group = any(change.kind == "merge_group" for change in changes)
    overrides = {one.backend: one for one in overrides_of(conn, head_sha, group=group)}
    return tuple(
        dispatch_facts(
            row,
            labels[row.change_id],
            legs.get(row.id, ()),
            terms,
            listed,
            overrides,
            base=compared[row.id].on_base if row.id in compared else None,
        )
        for row in rows
    )


def _standing_verdicts(
    conn: Connection,
    head_sha: str,
    group: ChangeFacts,
    own: Sequence[DispatchFacts],
    terms: CheckTerms,
    listed: Allowlist | None,
) -> tuple[DispatchFacts, ...]:
    """What gating backends that were not told of this merge group said of the pull requests in it.

    Each stands for its own pull request alone, and so does an override: none speaks for the others in the group.
    """
    members = {member.change_id: member for member in members_of(conn, head_sha)}
    if not members:
        return ()
    answered = {one.backend for one in own}
    overrides = {
        member.change_id: {one.backend: one for one in overrides_of(conn, member.head_sha, group=False)}
        for member in members.values()
    }
    found = []
    rows = conn.execute(_NEWEST, {"change_ids": sorted(members)}).all()
    base = base_of(group.kind, group.base_ref, group.base_sha)
    compared = compare(conn, ((row, base) for row in rows if POWERS[Level(row.level)].blocks))
    for row in rows:
        on_base = compared[row.id].on_base if row.id in compared else None
        one = dispatch_facts(row, (), (), terms, listed, overrides[row.change_id], base=on_base)
        if one.gates and one.backend not in answered:
            found.append(replace(one, shown=False, of_pull=members[row.change_id].number))
    return tuple(found)


def _left_out(
    conn: Connection, changes: Sequence[ChangeFacts], dispatches: Sequence[DispatchFacts], listed: Allowlist | None
) -> tuple[LeftOut, ...]:
    """The gating backends that the first webhooks of this head did not call, with the reason given then."""
    gating = {str(entry.repo): entry.repo for entry in (listed.entries if listed else ()) if POWERS[entry.level].blocks}
    asked = {str(one.backend) for one in dispatches}
    if not gating.keys() - asked:
        return ()
    open_changes = [change.id for change in changes if change.is_open]
    plans = conn.execute(_PLANS, {"change_ids": open_changes}).scalars()
    found: dict[str, LeftOut] = {}
    for plan in plans:
        for decision in json.loads(plan):
            backend = decision["backend"]
            if decision["effect"] == "none" and backend in gating and backend not in asked:
                left = LeftOut(gating[backend], decision["reason"], decision.get("detail", ""))
                found.setdefault(backend, left)
    return tuple(found[backend] for backend in sorted(found))


def _legs(
    conn: Connection, dispatch_ids: Sequence[int], compared: Mapping[int, Compared]
) -> dict[int, tuple[LegFacts, ...]]:
    rows = conn.execute(_LEGS, {"dispatch_ids": list(dispatch_ids)}).all()
    failing = [row.report_id for row in rows if has_failed(row)]
    known = frozenset[int]().union(*(one.known for one in compared.values()))
    tests = failed_tests(conn, failing[:MOST_LEGS_WITH_TESTS], MOST_TESTS_OF_A_LEG, known)
    legs: defaultdict[int, list[LegFacts]] = defaultdict(list)
    for row in rows:
        legs[row.dispatch_id].append(leg_facts(row, tests.get(row.report_id, ((), 0))))
    return {dispatch_id: tuple(of_one) for dispatch_id, of_one in legs.items()}
