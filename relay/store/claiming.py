"""Claiming what is due: the most urgent first, within what each account may spend, and past nothing that is held back.

Three things hold an effect back, and all replicas share them: a time that GitHub named or a budget that is spent
(``relay.store.budgets``), a circuit that is open (``relay.store.circuits``), and what is in flight already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import BindParameter, Connection, and_, bindparam, func, or_, select, update
from sqlalchemy.dialects import postgresql

from relay.budgets import IN_FLIGHT, is_urgent, price_of
from relay.circuits import ACCOUNTS_PROBED, GITHUB, Circuit, Pace, State, backend_key, keys_of, stopped_text
from relay.effects import GATE_PRIORITY, HUD_PACING, Kind
from relay.store import budgets, circuits
from relay.store.budgets import Account
from relay.store.circuits import Book
from relay.store.tables import Effect, Pacing

#: A claim that nobody comes back from is free again after this long. Longer than any single GitHub call may take.
LEASE = timedelta(seconds=60)

#: How often one claim looks again after it met an account that is full: what waits behind must not wait with it.
LOOKS = 8

#: What a dispatch died of that was not tried because its backend does not answer as it should.
CIRCUIT_OPEN = "circuit_open"
SWITCHED_OFF = "switched_off"

_effect = Effect.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_pacing = Pacing.__table__  # type: ignore[attr-defined]

# These stand in the statement's text and not among its values, as the partial indexes have them: of a value that comes
# later neither database can tell that the index holds what is asked for, and would read all that was ever done.
OPEN_STATES: BindParameter[str] = bindparam("open_states", ["ready", "running"], expanding=True, literal_execute=True)
_IS_RUNNING = _effect.c.state == bindparam("running_state", "running", literal_execute=True)


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why an effect is not tried but ended at once."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """An effect that is ours to perform until its lease ends."""

    id: int
    lane: str
    pacing: str
    kind: Kind
    subject_id: int
    subject: str
    attempts: int
    failures: int
    created_at: datetime
    stopped: Stopped | None = None


@dataclass(slots=True)
class _Shut:
    """What a look leaves out."""

    accounts: set[str] = field(default_factory=set)
    backends: set[str] = field(default_factory=set)
    github: bool = False


def _candidates(dialect: str, *, selective: bool) -> Any:
    """What is due at the head of each lane. ``now`` and ``count`` are bound when it runs."""
    candidate, heads = _heads(dialect)
    now = bindparam("now", type_=_effect.c.due.type)
    due = (
        select(
            candidate.c.id,
            candidate.c.lane,
            candidate.c.pacing,
            candidate.c.kind,
            candidate.c.subject_id,
            candidate.c.subject,
            candidate.c.attempts,
            candidate.c.failures,
            candidate.c.created_at,
            candidate.c.priority,
        )
        .select_from(heads.outerjoin(_pacing, _pacing.c.key == candidate.c.pacing))
        .where(
            or_(_pacing.c.not_before.is_(None), _pacing.c.not_before <= now),
            or_(_pacing.c.free_at.is_(None), _pacing.c.free_at <= now, candidate.c.priority <= bindparam("urgent")),
            candidate.c.due <= now,
            or_(candidate.c.state == "ready", and_(candidate.c.state == "running", candidate.c.lease < now)),
        )
        # Newest first within one priority, so that after an outage the heads people look at are served first.
        .order_by(candidate.c.priority, candidate.c.id.desc())
        .limit(bindparam("count"))
    )
    if selective:
        due = due.where(
            candidate.c.pacing.not_in(bindparam("accounts", expanding=True)),
            or_(
                candidate.c.kind != Kind.DISPATCH.value,
                candidate.c.subject.not_in(bindparam("backends", expanding=True)),
            ),
            or_(bindparam("github") == 1, candidate.c.pacing == HUD_PACING),
        )
    return due


def _heads(dialect: str) -> tuple[Any, Any]:
    """The oldest open effect of each lane: what its columns are taken from, and what a statement selects from.

    Nothing is locked here, since all who write take turns (``relay.store.engine``).
    """
    if dialect == "postgresql":
        # One pass and one sort. Where it knows nothing of how many are open, and it seldom does, PostgreSQL would join
        # the heads to their rows by looking at each with each: 190 ms for 5,000 open effects, and this takes 12.
        oldest = (
            select(_effect)
            .where(_effect.c.state.in_(OPEN_STATES))
            .ext(postgresql.distinct_on(_effect.c.lane))
            .order_by(_effect.c.lane, _effect.c.id)
            .subquery("candidate")
        )
        return oldest, oldest
    # There the index alone answers which they are, and a row is found by its number.
    heads = (
        select(func.min(_effect.c.id).label("id"))
        .where(_effect.c.state.in_(OPEN_STATES))
        .group_by(_effect.c.lane)
        .subquery("heads")
    )
    candidate = _effect.alias("candidate")
    return candidate, heads.join(candidate, candidate.c.id == heads.c.id)


_CANDIDATES = {
    (dialect, selective): _candidates(dialect, selective=selective)
    for dialect in ("sqlite", "postgresql")
    for selective in (False, True)
}

_RUNNING = (
    select(_effect.c.pacing, func.count().label("count"))
    .where(_IS_RUNNING, _effect.c.lease >= bindparam("now", type_=_effect.c.due.type))
    .group_by(_effect.c.pacing)
)

_TAKE = (
    update(_effect)
    .where(_effect.c.id.in_(bindparam("ids", expanding=True)))
    .values(
        state="running",
        attempts=_effect.c.attempts + 1,
        lease=bindparam("until", type_=_effect.c.due.type),
        owner=bindparam("me"),
    )
)


_POSTPONE = (
    update(_effect).where(_effect.c.id == bindparam("b_id")).values(due=bindparam("b_until", type_=_effect.c.due.type))
)


def claim(
    conn: Connection, *, owner: str, count: int, now: datetime, lease: timedelta = LEASE, pace: Pace | None = None
) -> list[Claimed]:
    """Take up to ``count`` effects that are due, most urgent first. They are ours until ``now + lease``."""
    book = circuits.lock(conn)
    running = Counter({row.pacing: row.count for row in conn.execute(_RUNNING, {"now": now})})
    admission = _Admission(book, running, now, pace or Pace())
    claimed: list[Claimed] = []
    for _ in range(LOOKS):
        if len(claimed) >= count or not (rows := _look(conn, admission, count - len(claimed))):
            break
        keys = {row.pacing for row in rows if row.pacing != HUD_PACING} - set(admission.accounts)
        admission.accounts |= budgets.lock(conn, keys, now)
        taken = [one for row in rows if (one := admission.admit(row)) is not None]
        if taken:
            conn.execute(_TAKE, {"ids": [one.id for one in taken], "until": now + lease, "me": owner})
        claimed += taken
        admission.postpone(conn)
        # What is kept now is what the next look leaves out.
        budgets.keep(conn, admission.accounts.values())
        if len(taken) == len(rows):
            break
    if book.changed:
        circuits.keep(conn, book)
    return claimed


def _look(conn: Connection, admission: _Admission, count: int) -> Sequence[Any]:
    shut = admission.shut
    selective = bool(shut.accounts or shut.backends or shut.github)
    given: dict[str, Any] = {"now": admission.now, "count": count, "urgent": GATE_PRIORITY}
    if selective:
        given |= {
            "accounts": sorted(shut.accounts),
            "backends": sorted(shut.backends),
            "github": 0 if shut.github else 1,
        }
    return conn.execute(_CANDIDATES[conn.dialect.name, selective], given).all()


class _Admission:
    """Decides on candidates one after another, the most urgent first."""

    def __init__(self, book: Book, running: Counter[str], now: datetime, pace: Pace) -> None:
        self._book = book
        self._running = running
        self._pace = pace
        self._probed: set[str] = set()  # Circuits of which one probe goes out with this claim.
        self._postponed: dict[int, datetime] = {}  # Effects for which contents must be free first.
        self._asked: set[str] = set()  # Accounts at which GitHub as a whole is probed.
        self.now = now
        self.accounts: dict[str, Account] = {}
        self.shut = _Shut()
        for key, circuit in book.circuits.items():
            waits = circuit.shut_off and not circuit.due(now) and not circuit.ends_what_comes
            if waits or self._is_full(circuit):
                self._shut(key)
        self.shut.accounts |= {key for key, count in running.items() if count >= IN_FLIGHT and key != HUD_PACING}

    def admit(self, row: Any) -> Claimed | None:
        """The effect as it is to be performed, or ended; None where it must wait."""
        kind = Kind(row.kind)
        keys = keys_of(kind, row.pacing, row.subject)
        stopped = self._stopped(keys)
        if stopped is None and not (self._passes(keys, row.pacing) and self._pays(kind, row)):
            return None
        if stopped is None:
            self._begun(keys, row.pacing)
        return Claimed(
            id=row.id,
            lane=row.lane,
            pacing=row.pacing,
            kind=kind,
            subject_id=row.subject_id,
            subject=row.subject,
            attempts=row.attempts + 1,
            failures=row.failures,
            created_at=row.created_at,
            stopped=stopped,
        )

    def _stopped(self, keys: Sequence[str]) -> Stopped | None:
        """Whether a backend's circuit ends this at once: it is no probe, and waiting would not mend it."""
        circuit = self._book.circuits.get(keys[-1])
        if circuit is None or circuit.backend is None or not circuit.ends_what_comes:
            return None
        if circuit.key not in self._probed and circuit.due(self.now):
            return None
        return Stopped(SWITCHED_OFF if circuit.state is State.OFF else CIRCUIT_OPEN, stopped_text(circuit))

    def _passes(self, keys: Sequence[str], pacing: str) -> bool:
        """Whether no circuit holds it back. One that does leaves all of its kind out of the next look."""
        for key in keys:
            circuit = self._book.circuits.get(key)
            if circuit is None:
                continue
            if self._is_full(circuit):
                return self._shut(key)
            if not circuit.shut_off:
                continue
            if key == GITHUB:
                if len(self._asked) >= ACCOUNTS_PROBED or not (self._asked or circuit.due(self.now)):
                    return self._shut(key)
                if pacing in self._asked:
                    return self._shut(pacing)
            elif key in self._probed or not circuit.due(self.now):
                return self._shut(key)
        return True

    def _pays(self, kind: Kind, row: Any) -> bool:
        """Whether its account has room for it, and then it is spent."""
        if row.pacing == HUD_PACING:
            return True
        if self._running[row.pacing] >= IN_FLIGHT:
            return self._shut(row.pacing)
        urgent = is_urgent(row.priority)
        price, account = price_of(kind, row.attempts), self.accounts[row.pacing]
        later = account.spent.contents_free_at(price, times=self._pace.budgets)
        if later is not None:
            # Only what creates contents waits for them, and by itself: the account has room for all else.
            self._postponed[row.id] = later
            return False
        return account.take(price, self.now, urgent=urgent, times=self._pace.budgets)

    def postpone(self, conn: Connection) -> None:
        """Let what must wait by itself be due later, so that no further look meets it."""
        if self._postponed:
            rows = [{"b_id": effect_id, "b_until": later} for effect_id, later in sorted(self._postponed.items())]
            conn.execute(_POSTPONE, rows)
            self._postponed.clear()

    def _begun(self, keys: Sequence[str], pacing: str) -> None:
        self._running[pacing] += 1
        for key in keys:
            circuit = self._book.circuits.get(key)
            if circuit is None or not circuit.shut_off:
                continue
            if key == GITHUB:
                self._asked.add(pacing)
            if key not in self._probed:
                self._probed.add(key)
                self._book.put(key, circuit.probed(self.now, self._pace))

    def _is_full(self, circuit: Circuit) -> bool:
        return circuit.allowed is not None and self._in_flight(circuit.key) >= circuit.allowed

    def _in_flight(self, key: str) -> int:
        if key == GITHUB:
            return sum(count for pacing, count in self._running.items() if pacing != HUD_PACING)
        return self._running[key]

    def _shut(self, key: str) -> bool:
        """Leave these out of the next look. Always False, as the answer to whether something passes."""
        if key == GITHUB:
            self.shut.github = True
        elif key.startswith(backend_key("")):
            self.shut.backends.add(key.removeprefix(backend_key("")))
        else:
            self.shut.accounts.add(key)
        return False
