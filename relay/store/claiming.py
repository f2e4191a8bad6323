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

from sqlalchemy import Connection, and_, bindparam, case, func, select, update

from relay.deciding.budgets import IN_FLIGHT, is_urgent, price_of
from relay.deciding.circuits import ACCOUNTS_PROBED, GITHUB, Circuit, Pace, State, backend_key, keys_of, stopped_text
from relay.deciding.effects import HUD_PACING, Kind
from relay.store import budgets, candidates, circuits
from relay.store.budgets import Account, may_be_asked
from relay.store.candidates import IS_RUNNING, LOOKS, NOTHING, TIME, TURN, Holder
from relay.store.circuits import Book
from relay.store.tables import Effect

#: A claim that nobody comes back from is free again after this long. Longer than any single GitHub call may take.
LEASE = timedelta(seconds=60)

#: How often one claim looks again after it met what must wait, at no more than so many each time: what can go behind it
#: must not wait with it.
ROUNDS = 8
MOST_AT_ONCE = 400

#: Rows go to the HUD before anything but a gate is written, so that it hears in time under any load; and no more of
#: them at once, so that they keep nothing else back.
HUD_IN_FLIGHT = 40

#: Looks at runs come last and can be many, and each asks GitHub several times: no more of them at once, so that what
#: comes meanwhile finds a place. What waits for one of theirs waits for this.
LOOKS_IN_FLIGHT = 40

#: What a dispatch died of that was not tried because its backend does not answer as it should.
CIRCUIT_OPEN = "circuit_open"
SWITCHED_OFF = "switched_off"

_effect = Effect.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.


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


class Claims(list[Claimed]):
    """What one claim took; and whether the HUD had no place left when it ended, so that rows may wait for one.

    ``more``: others may go that were not looked at, so that the next claim must not be waited for.
    ``freed``: the lane up to which it was looked for what was forgotten; empty once all were looked into.
    """

    hud_is_full = False
    more = False
    freed = ""


@dataclass(slots=True)
class _Shut:
    """What no further look goes to."""

    accounts: set[str] = field(default_factory=set)
    backends: set[str] = field(default_factory=set)
    github: bool = False


_IS_HELD = _effect.c.lease >= bindparam("now", type_=_effect.c.due.type)
# What nobody came back from takes no place: it would keep itself from being taken over.
_RUNNING = (
    select(
        _effect.c.pacing,
        func.sum(case((_IS_HELD, 1), else_=0)).label("held"),
        func.count().label("count"),
        func.sum(case((and_(_IS_HELD, _effect.c.kind == Kind.OBSERVE.value), 1), else_=0)).label("looks"),
    )
    .where(IS_RUNNING)
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
        waits_for=NOTHING,
    )
)


_POSTPONE = (
    update(_effect)
    .where(_effect.c.id == bindparam("b_id"))
    .values(due=bindparam("b_until", type_=_effect.c.due.type), waits_for=TIME)
)


def claim(
    conn: Connection,
    *,
    owner: str,
    count: int,
    now: datetime,
    lease: timedelta = LEASE,
    pace: Pace | None = None,
    free_after: str | None = None,
) -> Claims:
    """Take up to ``count`` effects that are due, most urgent first. They are ours until ``now + lease``.

    ``free_after``: look for those, too, that were forgotten by who ended the one before them, in some of the lanes that
    come after this one (``candidates.free_turns``).
    """
    claimed = Claims()
    if free_after is not None:
        claimed.freed = candidates.free_turns(conn, free_after).lane
    book = circuits.lock(conn)
    begun = conn.execute(_RUNNING, {"now": now}).all()
    running = Counter({row.pacing: int(row.held) for row in begun})
    claimed.more = candidates.wake(conn, now)
    looks = sum(int(row.looks) for row in begun)
    admission = _Admission(book, running, looks, now, pace or Pace())
    # Without GitHub there is nobody to ask for but the HUD.
    holders = (Holder(HUD_PACING),) if admission.shut.github else candidates.holders(conn)
    overdue = candidates.overdue(conn, now) if any(row.held < row.count for row in begun) else ()
    size = count
    for _ in range(ROUNDS):
        if len(claimed) >= count:
            break
        keys = [NOTHING, *(holder.key for holder in holders if admission.may_go(holder))]
        look = candidates.look(conn, keys, size, overdue)
        accounts = {row.pacing for row in look.rows if row.pacing != HUD_PACING} - set(admission.accounts)
        admission.accounts |= budgets.lock(conn, accounts, now)
        taken = admission.take_from(look.rows, count - len(claimed))
        if taken:
            conn.execute(_TAKE, {"ids": [one.id for one in taken], "until": now + lease, "me": owner})
        claimed += taken
        admission.put_aside(conn)
        if look.whole:
            break
        # Whatever was met and must wait is out of the way now. There may be much of it.
        size = min(size * 4, MOST_AT_ONCE)
        overdue = [row for row in overdue if row.id not in admission.seen]
    else:
        # What may go stands behind more keys than so many looks get through.
        claimed.more = True
    claimed.hud_is_full = admission.hud_is_full
    budgets.keep(conn, admission.accounts.values())
    if book.changed:
        circuits.keep(conn, book)
    return claimed


def _most(pacing: str) -> int:
    """How much may be in flight there."""
    return HUD_IN_FLIGHT if pacing == HUD_PACING else IN_FLIGHT


class _Admission:
    """Decides on candidates one after another, the most urgent first."""

    def __init__(self, book: Book, running: Counter[str], looks: int, now: datetime, pace: Pace) -> None:
        self._book = book
        self._running = running
        self._looks = looks
        self._pace = pace
        self._probed: set[str] = set()  # Circuits of which one probe goes out with this claim.
        self._postponed: dict[int, datetime] = {}  # Effects for which contents must be free first.
        self._asked: set[str] = set()  # Accounts at which GitHub as a whole is probed.
        self._waiting: dict[int, str] = {}  # What was met and must wait, and for what.
        self._exhausted: set[str] = set()  # Those behind which nothing more can go with this claim.
        self.seen: set[int] = set()
        self.now = now
        self.accounts: dict[str, Account] = {}
        self.shut = _Shut()
        for key, circuit in book.circuits.items():
            waits = circuit.shut_off and not circuit.due(now) and not circuit.ends_what_comes
            if waits or self._is_full(circuit):
                self._shut(key)
        self.shut.accounts |= {key for key, count in running.items() if count >= _most(key)}

    @property
    def hud_is_full(self) -> bool:
        """Whether no place is left there now, or no more of them may be taken than are."""
        return HUD_PACING in self.shut.accounts or self._running[HUD_PACING] >= HUD_IN_FLIGHT

    def may_go(self, holder: Holder) -> bool:
        """Whether something that waits for this account or backend may be able to go now."""
        key = holder.key
        if key == LOOKS and self._looks >= LOOKS_IN_FLIGHT:
            return False
        if key in self._exhausted or key in self.shut.accounts or (self.shut.github and key != HUD_PACING):
            return False
        if key.removeprefix(backend_key("")) in self.shut.backends:
            return False
        account = self.accounts.get(key)
        if account is not None:
            return account.may_be_asked(self.now, urgent=is_urgent(holder.first))
        return may_be_asked(holder.not_before, holder.free_at, self.now, urgent=is_urgent(holder.first))

    def take_from(self, rows: Sequence[Any], most: int) -> list[Claimed]:
        """Those of the candidates that go now, or are ended; of all others it is noted what they wait for."""
        taken: list[Claimed] = []
        for row in rows:
            if len(taken) >= most:
                break
            self.seen.add(row.id)
            if row.behind:
                self._wait(row, TURN)
            elif row.due > self.now:
                self._wait(row, TIME)
            elif (one := self._admit(row)) is not None:
                taken.append(one)
        return taken

    def _wait(self, row: Any, key: str) -> None:
        if row.waits_for == key:
            self._exhausted.add(key)
        else:
            self._waiting[row.id] = key

    def _admit(self, row: Any) -> Claimed | None:
        """The effect as it is to be performed, or ended; None where it must wait."""
        kind = Kind(row.kind)
        holder = self._holder(kind, row)
        if holder is None and kind is Kind.OBSERVE and self._looks >= LOOKS_IN_FLIGHT:
            holder = LOOKS
        if holder is not None:
            self._wait(row, holder)
            return None
        keys = keys_of(kind, row.pacing, row.subject)
        stopped = self._stopped(keys)
        if stopped is None:
            if not (self._passes(keys, row.pacing) and self._pays(kind, row)):
                if row.id not in self._postponed:
                    self._wait(row, self._holder(kind, row) or row.pacing)
                return None
            self._begun(keys, row.pacing)
            self._looks += kind is Kind.OBSERVE
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

    def _holder(self, kind: Kind, row: Any) -> str | None:
        """The account or backend that keeps this back, as far as is known by now."""
        # What waits for GitHub as a whole waits at its account, so that a probe finds several accounts at once.
        if row.pacing in self.shut.accounts or (self.shut.github and row.pacing != HUD_PACING):
            return str(row.pacing)
        account = self.accounts.get(row.pacing)
        if account is not None and not account.may_be_asked(self.now, urgent=is_urgent(row.priority)):
            return account.key
        if kind is Kind.DISPATCH and row.subject in self.shut.backends:
            return backend_key(row.subject)
        return None

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
        if self._running[row.pacing] >= _most(row.pacing):
            return self._shut(row.pacing)
        if row.pacing == HUD_PACING:
            return True
        urgent = is_urgent(row.priority)
        price, account = price_of(kind, row.attempts), self.accounts[row.pacing]
        later = account.spent.contents_free_at(price, times=self._pace.budgets)
        if later is not None:
            # Only what creates contents waits for them, and by itself: the account has room for all else.
            self._postponed[row.id] = later
            return False
        return account.take(price, self.now, urgent=urgent, times=self._pace.budgets)

    def put_aside(self, conn: Connection) -> None:
        """Note of what must wait what it waits for, so that no further look meets it."""
        candidates.park(conn, self._waiting)
        self._waiting.clear()
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
