"""One change as its page shows it: its gate, each backend with its combinations and jobs, and who was not called."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sqlalchemy import Connection, case, func, select, union_all

from allowlist.model import Allowlist
from levels.gate import Line
from levels.outcomes import GATE_TABLE, NO_OVERRIDES, UNSETTLED, GateEffect, Outcome
from relay.deciding.facts import CheckFacts, DispatchFacts
from relay.store.base_results import base_of, compare
from relay.store.check_facts import load_check
from relay.store.checks import CheckTerms
from relay.store.overrides import overrides_of
from relay.store.reading.asked import AskedLine, asked_on
from relay.store.reading.changes import ChangeLine, CheckLine, change_lines, check_line
from relay.store.reading.legs import Combination, LegLine, combinations, load_legs
from relay.store.reading.pages import Decided, decisions_of, name_of
from relay.store.tables import Change, Check, Delivery, Dispatch
from relay.store.told import DISPATCHES, dispatch_facts, is_private, owes, standing
from relay.texts.words import GATE_NAME

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_check = Check.__table__  # type: ignore[attr-defined]
_delivery = Delivery.__table__  # type: ignore[attr-defined]
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]

#: Bounds of one page. What is beyond is counted or found through the backend's own page.
MOST_DISPATCHES = 1_000
MOST_CHECKS = 300
MOST_HEADS = 20
MOST_DELIVERIES = 30

#: How far back a backend's other results are looked at, to tell a broken backend from a breaking change.
ELSEWHERE = 20
MOST_COMPARED = 10


@dataclass(frozen=True, slots=True)
class HeadLine:
    """Another head of the same pull request or ref."""

    id: int
    head_sha: str
    state: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """How a backend's last settled results on other changes ended: the question whether it is this change."""

    settled: int
    passed: int


@dataclass(frozen=True, slots=True)
class Told:
    """One dispatch with its event: what the backend was told of."""

    facts: DispatchFacts
    purpose: str
    event_type: str
    delivery_id: str
    origin_delivery: str

    @property
    def owes(self) -> bool:
        """Whether a result of it is awaited, or was."""
        facts = self.facts
        return owes(purpose=self.purpose, level=facts.level_then, state=facts.state, legs_reported=facts.legs_reported)


@dataclass(frozen=True, slots=True)
class BackendOnChange:
    """One backend on this change. ``told`` is the dispatch that counts, ``others`` are earlier ones and mere notices.

    ``effect`` is what it does to the gate: NOT_REQUIRED for one that cannot hold a merge back. ``legs`` is bounded,
    ``legs_left_out`` counts the rest. The names of tests, URLs and messages of a private backend are not here.
    """

    told: Told
    effect: GateEffect
    legs: tuple[LegLine, ...]
    legs_left_out: int
    others: tuple[Told, ...]
    elsewhere: Elsewhere | None

    @property
    def combinations(self) -> tuple[Combination, ...]:
        """The deciding legs by backend version, suite version and environment."""
        return combinations(self.legs)

    @property
    def replaced(self) -> tuple[LegLine, ...]:
        """Legs of earlier attempts that a newer one has replaced, and those that decide nothing."""
        return tuple(leg for leg in self.legs if not leg.deciding)


@dataclass(frozen=True, slots=True)
class ChangePage:
    """Everything about one change. ``gate`` is None where the change has no gate (a push, a self-reported night)."""

    change: ChangeLine
    heads: tuple[HeadLine, ...]
    gate: CheckFacts | None
    checks: tuple[CheckLine, ...]
    backends: tuple[BackendOnChange, ...]
    not_called: tuple[Decided, ...]
    deliveries: tuple[str, ...]
    asked: tuple[AskedLine, ...] = ()

    @property
    def current(self) -> HeadLine | None:
        """The head that took this one's place, if one did and is still there."""
        return next((head for head in self.heads if head.state != "superseded"), None)


def change_page(
    conn: Connection,
    change_id: int,
    terms: CheckTerms,
    listed: Allowlist | None = None,
    overrides: Mapping[Outcome, GateEffect] = NO_OVERRIDES,
) -> ChangePage | None:
    """One change, or None. A dozen statements, however many backends and jobs it has.

    ``listed`` is the allowlist in force, None while none was read: then the levels at dispatch stand.
    ``overrides`` are the settings' changes to the table of outcomes.
    """
    row = conn.execute(select(_change).where(_change.c.id == change_id)).first()
    if row is None:
        return None
    (change,) = change_lines(conn, [row])
    checks = conn.execute(
        select(_check).where(_check.c.head_sha == row.head_sha).order_by(_check.c.name).limit(MOST_CHECKS)
    ).all()
    gate_id = next((check.id for check in checks if check.name == GATE_NAME), None)
    gate = None if gate_id is None else load_check(conn, gate_id, terms, listed=listed)
    backends = _backends(conn, row, change.labels, terms, listed, _lines(gate, overrides))
    deliveries = conn.execute(
        select(_delivery.c.id, _delivery.c.event, _delivery.c.action, _delivery.c.plan)
        .where(_delivery.c.change_id == change_id)
        .order_by(_delivery.c.received_at.desc(), _delivery.c.id.desc())
        .limit(MOST_DELIVERIES)
    ).all()
    return ChangePage(
        change=change,
        heads=_heads(conn, row),
        gate=gate,
        checks=tuple(check_line(check) for check in checks),
        backends=backends,
        not_called=_not_called(deliveries, {str(one.told.facts.backend) for one in backends}),
        deliveries=tuple(delivery.id for delivery in deliveries),
        asked=asked_on(conn, row.head_sha, row.number),
    )


def _lines(gate: CheckFacts | None, overrides: Mapping[Outcome, GateEffect]) -> Mapping[int, Line]:
    """The gate's verdict by dispatch."""
    return {} if gate is None else {int(line.detail): line for line in gate.verdict(overrides).lines}


def _heads(conn: Connection, row: Any) -> tuple[HeadLine, ...]:
    """The other heads of this thread, the newest first. A ref may have had thousands; only a few are of use."""
    others = conn.execute(
        select(_change.c.id, _change.c.head_sha, _change.c.state)
        .where(_change.c.thread == row.thread, _change.c.id != row.id)
        .order_by(_change.c.updated_at.desc(), _change.c.id.desc())
        .limit(MOST_HEADS)
    )
    return tuple(HeadLine(other.id, other.head_sha, other.state) for other in others)


def _not_called(deliveries: Sequence[Any], called: set[str]) -> tuple[Decided, ...]:
    """For each backend that no dispatch was planned for, the newest decision that says why."""
    found: dict[str, Decided] = {}
    for delivery in deliveries:
        for decided in decisions_of(delivery.id, delivery.event, delivery.action, delivery.plan):
            if decided.effect == "none" and decided.backend not in called:
                found.setdefault(decided.backend, decided)
    return tuple(found[backend] for backend in sorted(found))


def _backends(
    conn: Connection,
    change: Any,
    labels: Sequence[str],
    terms: CheckTerms,
    listed: Allowlist | None,
    lines: Mapping[int, Line],
) -> tuple[BackendOnChange, ...]:
    rows = conn.execute(
        DISPATCHES.where(_dispatch.c.change_id == change.id).order_by(_dispatch.c.id.desc()).limit(MOST_DISPATCHES)
    ).all()
    by_backend: defaultdict[str, list[Any]] = defaultdict(list)
    for row in rows:
        by_backend[row.backend].append(row)
    # The newest that owes a result counts; where there is none, the newest notice is all there is.
    counting = {
        backend: next((row for row in mine if row.purpose != "notify"), mine[0]) for backend, mine in by_backend.items()
    }
    base = base_of(change.kind, change.base_ref, change.base_sha)
    compared = compare(conn, ((row, base) for row in counting.values() if row.purpose != "notify"))
    known = frozenset[int]().union(*(one.known for one in compared.values()))
    legs = load_legs(conn, {row.id: is_private(row) for row in counting.values()}, known)
    failing = [backend for backend, row in counting.items() if _bad(standing(change.state, row.state, row.outcome))]
    elsewhere = _elsewhere(conn, sorted(failing)[:MOST_COMPARED], change.thread)
    group = change.kind == "merge_group"
    answered_for = {one.backend: one for one in overrides_of(conn, change.head_sha, group=group)}
    facts_of = partial(dispatch_facts, labels=labels, terms=terms, listed=listed, change_state=change.state)
    found: list[BackendOnChange] = []
    for backend, row in counting.items():
        mine, left_out = legs.get(row.id, ((), 0))
        on_base = compared[row.id].on_base if row.id in compared else None
        deciding = tuple(leg.facts for leg in mine if leg.deciding)
        line = lines.get(row.id)
        found.append(
            BackendOnChange(
                told=_told(row, facts_of(row, legs=deciding, overrides=answered_for, base=on_base)),
                effect=GateEffect.NOT_REQUIRED if line is None else line.effect,
                legs=mine,
                legs_left_out=left_out,
                others=tuple(
                    _told(other, facts_of(other, legs=(), overrides={}))
                    for other in by_backend[backend]
                    if other.id != row.id
                ),
                elsewhere=elsewhere.get(backend),
            )
        )
    return tuple(sorted(found, key=_worst_first))


_EFFECTS = (
    GateEffect.BLOCKS,
    GateEffect.PENDING,
    GateEffect.STEPS_DOWN,
    GateEffect.PASSES,
    GateEffect.NOT_REQUIRED,
)


def _worst_first(one: BackendOnChange) -> tuple[int, int, str]:
    """What decides the gate first; among the others what would matter most; then by name."""
    facts = one.told.facts
    return _EFFECTS.index(one.effect), _EFFECTS.index(GATE_TABLE[facts.outcome]), str(facts.backend)


def _bad(outcome: Outcome) -> bool:
    """Whether something ran and did not pass, so that somebody asks whether it is this change."""
    return GATE_TABLE[outcome] is GateEffect.BLOCKS


def _told(row: Any, facts: DispatchFacts) -> Told:
    """The same with every text as one line of bounded length."""
    said = facts.override
    clean = replace(
        facts,
        reason=name_of(facts.reason, 300),
        observe_note=name_of(facts.observe_note, 600),
        cause=name_of(facts.cause, 300),
        rerun_by=name_of(facts.rerun_by, 120),
        base=None if facts.base is None else replace(facts.base, branch=name_of(facts.base.branch)),
        override=None if said is None else replace(said, who=name_of(said.who, 120), why=name_of(said.why, 500)),
    )
    return Told(clean, row.purpose, row.event_type, row.delivery_id, row.origin_delivery)


def _elsewhere(conn: Connection, backends: Sequence[str], thread: str) -> dict[str, Elsewhere]:
    """For each of these backends how its last settled tests of other changes ended."""
    if not backends:
        return {}
    unsettled = [str(outcome) for outcome in UNSETTLED] + [Outcome.FILTERED.value, Outcome.NOT_REQUIRED.value]
    recent = [
        select(
            select(_dispatch.c.backend, _dispatch.c.outcome)
            .join(_change, _change.c.id == _dispatch.c.change_id)
            .where(
                _dispatch.c.backend == backend,
                _dispatch.c.purpose == "test",
                _dispatch.c.outcome.not_in(unsettled),
                _change.c.thread != thread,
            )
            .order_by(_dispatch.c.id.desc())
            .limit(ELSEWHERE)
            .subquery()
        )
        for backend in backends
    ]
    every = union_all(*recent).subquery()
    rows = conn.execute(
        select(
            every.c.backend,
            func.count().label("settled"),
            func.sum(case((every.c.outcome == Outcome.SUCCESS.value, 1), else_=0)).label("passed"),
        ).group_by(every.c.backend)
    )
    found = {row.backend: Elsewhere(row.settled, int(row.passed)) for row in rows}
    return {backend: found.get(backend, Elsewhere(0, 0)) for backend in backends}
