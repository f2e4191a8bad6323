"""Circuits in SQL: shared by all replicas, one row for each thing that is in trouble and none for what is well.

Whoever changes circuits locks all their rows first, and only then accounts (``relay.store.budgets``). There are few:
claims and endings read the whole table, which is usually empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Connection, and_, case, delete, func, insert, select, update

from relay.deciding.circuits import (
    GITHUB,
    Circuit,
    Failure,
    Pace,
    State,
    after_limit,
    backend_key,
    first_failure,
    keys_of,
)
from relay.deciding.effects import HUD_PACING, Kind
from relay.store.candidates import IS_OPEN
from relay.store.conflict import on_conflict_replace
from relay.store.tables import Audit, Effect
from relay.store.tables_limits import Circuit as CircuitRow

_circuit = CircuitRow.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_effect = Effect.__table__  # type: ignore[attr-defined]
_audit = Audit.__table__  # type: ignore[attr-defined]

_COLUMNS = tuple(one.name for one in fields(Circuit))
_ALL = select(*[_circuit.c[name] for name in _COLUMNS]).order_by(_circuit.c.key)
_LOCKED = _ALL.with_for_update()

#: Who an act of the relay itself is put down to.
SELF = "relay"


@dataclass(frozen=True, slots=True)
class Contact:
    """What one try says of those whom it concerned. All False: nobody was asked, or it says nothing."""

    effect_id: int
    kind: Kind
    pacing: str
    subject: str
    answered: bool = False  # GitHub, or the HUD, gave an answer that makes sense.
    down: bool = False  # There was none, or a broken one.
    refused: bool = False  # What was asked for was refused, and waiting will not mend that.
    limited: bool = False  # The account was told to rest.
    reason: str = ""
    detail: str = ""
    not_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Turned:
    """A circuit that opened, closed, or switched a backend off. ``before`` None: all was well."""

    key: str
    before: State | None
    after: State | None
    since: datetime
    reason: str
    detail: str


@dataclass(slots=True)
class Book:
    """All circuits while one transaction decides on them. The changed ones are written by ``keep``."""

    circuits: dict[str, Circuit]
    changed: set[str] = field(default_factory=set)

    def put(self, key: str, circuit: Circuit | None) -> None:
        """Replace a circuit, or forget it."""
        if circuit is None:
            self.circuits.pop(key, None)
        else:
            self.circuits[key] = circuit
        self.changed.add(key)


def load(conn: Connection) -> dict[str, Circuit]:
    """All circuits in trouble, by key, for those who only look."""
    return {row.key: _read(row) for row in conn.execute(_ALL)}


def lock(conn: Connection) -> Book:
    """All circuits in trouble, which nobody else changes before this transaction ends."""
    return Book({row.key: _read(row) for row in conn.execute(_LOCKED)})


def _read(row: object) -> Circuit:
    values = {name: getattr(row, name) for name in _COLUMNS}
    return Circuit(**{**values, "state": State(values["state"])})


def keep(conn: Connection, book: Book) -> None:
    """Write the changed circuits."""
    for key in sorted(book.changed):
        circuit = book.circuits.get(key)
        if circuit is None:
            conn.execute(delete(_circuit).where(_circuit.c.key == key))
        else:
            upsert = on_conflict_replace(conn, _circuit, "key", [name for name in _COLUMNS if name != "key"])
            conn.execute(upsert, {**asdict(circuit), "state": circuit.state.value})
    book.changed.clear()


def note(conn: Connection, contacts: Iterable[Contact], now: datetime, pace: Pace) -> tuple[Turned, ...]:
    """Draw the conclusions from tries that have ended; returns what has changed for somebody who reads the log.

    The last thing that a transaction does, as others wait for these rows.
    """
    said = [one for one in contacts if one.answered or one.down or one.refused or one.limited]
    if not said:
        return ()
    if not any(one.down or one.refused or one.limited for one in said) and conn.execute(_ALL.limit(1)).first() is None:
        return ()
    book = lock(conn)
    before = dict(book.circuits)
    for contact in said:
        for key in keys_of(contact.kind, contact.pacing, contact.subject):
            _conclude(book, key, contact, now, pace)
    seen = [_turned(key, before.get(key), book.circuits.get(key)) for key in sorted(book.changed)]
    turned = tuple(one for one in seen if one is not None)
    _hope(book, before, now)
    keep(conn, book)
    _wait_for_probe(conn, book, said)
    for one in turned:
        _follow(conn, one, before.get(one.key), book.circuits.get(one.key), now)
    return turned


def _wait_for_probe(conn: Connection, book: Book, said: Sequence[Contact]) -> None:
    """What failed at a closed door is due again with the next probe, and the try does not count against it.

    So there is always something to probe with, and an outage of any length makes no dead letters.
    """
    for contact in said:
        if not contact.down:
            continue
        every = [book.circuits.get(key) for key in keys_of(contact.kind, contact.pacing, contact.subject)]
        ends = [one.held_until for one in every if one is not None and one.shut_off and one.held_until is not None]
        if ends:
            conn.execute(
                update(_effect)
                .where(_effect.c.id == contact.effect_id, _effect.c.state == "ready")
                .values(
                    due=max([*ends, *([contact.not_before] if contact.not_before is not None else [])]),
                    failures=case((_effect.c.failures > 1, _effect.c.failures - 1), else_=_effect.c.failures),
                )
            )


def _conclude(book: Book, key: str, contact: Contact, now: datetime, pace: Pace) -> None:
    circuit = book.circuits.get(key)
    if contact.limited:
        if key == contact.pacing and (circuit is None or not circuit.shut_off):
            book.put(key, after_limit(key, now))
        elif key == GITHUB and circuit is not None:
            book.put(key, circuit.worked(now))
        return
    # While GitHub as a whole is away, nothing is held against a backend: it would be switched off for somebody else.
    down = contact.down and not (key == backend_key(contact.subject) and _is_shut(book, GITHUB))
    blamed = down or (contact.refused and key == backend_key(contact.subject))
    if blamed:
        who = contact.pacing if key == GITHUB else str(contact.effect_id)
        failure = Failure(who, contact.reason, contact.detail, contact.refused, contact.not_before)
        book.put(key, first_failure(key, failure, now, pace) if circuit is None else circuit.failed(failure, now, pace))
    elif circuit is not None and (contact.answered or contact.refused):
        book.put(key, circuit.worked(now))


def _is_shut(book: Book, key: str) -> bool:
    circuit = book.circuits.get(key)
    return circuit is not None and circuit.shut_off


def _hope(book: Book, before: Mapping[str, Circuit], now: datetime) -> None:
    """What one account learned is worth a probe of all that had no answer either: it may have been GitHub."""
    back = [key for key in book.changed if key != HUD_PACING and _is_account(key) and _reopened(book, before, key)]
    if not back:
        return
    for key, circuit in list(book.circuits.items()):
        if circuit.state is State.OPEN and key != HUD_PACING and not circuit.refusing and not circuit.due(now):
            book.put(key, _probe_now(circuit, now))


def _is_account(key: str) -> bool:
    return key == GITHUB or not key.startswith(backend_key(""))


def _reopened(book: Book, before: Mapping[str, Circuit], key: str) -> bool:
    was, now = before.get(key), book.circuits.get(key)
    return was is not None and was.shut_off and (now is None or not now.shut_off)


def _probe_now(circuit: Circuit, now: datetime) -> Circuit:
    return Circuit(**{**asdict(circuit), "state": circuit.state, "held_until": now})


def _turned(key: str, before: Circuit | None, after: Circuit | None) -> Turned | None:
    told = before if after is None or not after.shut_off else after
    told = told or after
    if told is None or (before is not None and after is not None and before.state is after.state):
        return None
    return Turned(
        key,
        None if before is None else before.state,
        None if after is None else after.state,
        told.since,
        told.reason,
        told.detail,
    )


def _follow(conn: Connection, turned: Turned, before: Circuit | None, after: Circuit | None, now: datetime) -> None:
    """What a change of a circuit brings with it, in the same transaction."""
    repo = turned.key.removeprefix(backend_key("")) if turned.key.startswith(backend_key("")) else None
    if repo is not None and State.OFF in (turned.before, turned.after):
        what = "backend switched off" if turned.after is State.OFF else "backend switched on"
        lasted = f"nothing worked since {turned.since:%Y-%m-%d %H:%M:%S} UTC"
        why = f"{lasted}: {turned.detail}" if turned.after is State.OFF else "a probe worked"
        row = {"at": now, "who": SELF, "what": what, "subject": repo, "why": why, "before": "", "after": ""}
        conn.execute(insert(_audit), row)
    works_again = before is not None and before.was_ill and (after is None or not after.shut_off)
    # What waits for a backend that is given up for now is ended now, and not when its next try would have been.
    if works_again or (after is not None and after.ends_what_comes):
        _bring_forward(conn, turned.key, now)


def _bring_forward(conn: Connection, key: str, now: datetime) -> None:
    """Let what failed and waits for its next try be tried again, as budgets allow. Never before a time GitHub named."""
    whose: ColumnElement[bool]
    if key == GITHUB:
        whose = _effect.c.pacing != HUD_PACING
    elif key.startswith(backend_key("")):
        whose = and_(_effect.c.kind == Kind.DISPATCH.value, _effect.c.subject == key.removeprefix(backend_key("")))
    else:
        whose = _effect.c.pacing == key
    waiting = (
        select(_effect.c.id)
        # A failure at an open circuit does not count, so it is by its reason that one is known which was tried.
        .where(IS_OPEN, _effect.c.state == "ready", _effect.c.attempts > 0, _effect.c.reason != "", _effect.c.due > now)
        .where(whose)
    )
    if conn.dialect.name == "postgresql":
        waiting = waiting.with_for_update(skip_locked=True)
    conn.execute(
        update(_effect)
        .where(_effect.c.id.in_(waiting))
        .values(due=case((_effect.c.not_before > now, _effect.c.not_before), else_=now))
    )


def try_backends(conn: Connection, repos: Iterable[str], now: datetime) -> None:
    """There is a reason to hope for these backends: what they are told next is a probe."""
    keys = [backend_key(repo) for repo in repos]
    if keys:
        conn.execute(
            update(_circuit)
            .where(_circuit.c.key.in_(keys), _circuit.c.state.in_([State.OPEN.value, State.OFF.value]))
            .values(held_until=now)
        )


def ready_to_return(conn: Connection) -> tuple[Circuit, ...]:
    """Backends that work again, and have not been told yet of what they missed."""
    rows = conn.execute(_ALL.where(_circuit.c.state == State.RETURNED.value))
    return tuple(_read(row) for row in rows)


def returned(conn: Connection, back: Sequence[Circuit], now: datetime) -> None:
    """These backends were told of what they missed. Failures since then count on; one that is shut again stays so.

    The last thing that a transaction does, since others wait for these rows while it may wait for dispatches.
    """
    for circuit in sorted(back, key=lambda one: one.key):
        # As it was when it was looked at: what has come meanwhile is for the next look.
        same = and_(
            _circuit.c.key == circuit.key,
            _circuit.c.state == State.RETURNED.value,
            _circuit.c.failures == circuit.failures,
        )
        if circuit.failures:
            conn.execute(update(_circuit).where(same).values(state=State.COUNTING.value, since=now))
        else:
            conn.execute(delete(_circuit).where(same))


def overdue_probes(conn: Connection, now: datetime, grace: timedelta) -> tuple[Circuit, ...]:
    """Backends whose dispatches are ended at once and whose probe has been due for so long: nothing came for them."""
    return tuple(
        one for one in load(conn).values() if one.backend is not None and one.ends_what_comes and one.due(now - grace)
    )


def counts(conn: Connection) -> Mapping[State, int]:
    """How many circuits stand in each state, for the metrics."""
    rows = conn.execute(select(_circuit.c.state, func.count()).group_by(_circuit.c.state))
    found = Counter({State(state): int(count) for state, count in rows})
    return {state: found[state] for state in State}


def circuits_of(conn: Connection, repos: Iterable[str]) -> dict[str, Circuit]:
    """The circuit that stands open for each of these backends, by repository: its own, or else a wider one."""
    every = load(conn)
    found: dict[str, Circuit] = {}
    for repo in repos:
        owner = repo.partition("/")[0]
        for key in (backend_key(repo), f"account {owner}", GITHUB):
            circuit = every.get(key)
            if circuit is not None and circuit.shut_off:
                found[repo] = circuit
                break
    return found
