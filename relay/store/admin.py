"""What an admin does to a backend: pause it, or lower its level for a time. Each act is audited with who, and why.

A pause and a demotion end by themselves. ``end_expired`` clears what has run out, so that whoever reads the row
without a clock finds what is in force.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, or_, select, update

from allowlist.model import Level, RepoName
from relay.store.checks import CheckTerms, touch_backends, touch_head
from relay.store.documents import audit
from relay.store.holding import held_without_pause, hold, tell_held
from relay.store.outbox import on_conflict_do_nothing
from relay.store.tables import Backend

_backend = Backend.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.

#: Who an act of the relay itself is put down to.
SELF = "relay"


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is sent to this backend until then."""

    repo: RepoName
    until: datetime
    reason: str

    def __str__(self) -> str:
        return f"paused until {stamp(self.until)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Demotion:
    """This backend has at most that level until then, whatever the allowlist says."""

    repo: RepoName
    to: Level
    until: datetime
    reason: str

    def __str__(self) -> str:
        return f"at most {self.to} until {stamp(self.until)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Ended:
    """What ran out, and dispatches that a pause no longer holds back."""

    pauses: tuple[RepoName, ...]
    demotions: tuple[RepoName, ...]
    told: int


def stamp(at: datetime) -> str:
    """A time as it stands in the audit."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def pauses(conn: Connection) -> tuple[Pause, ...]:
    """The pauses on record, by backend."""
    rows = conn.execute(select(_backend).where(_backend.c.paused_until.is_not(None)).order_by(_backend.c.repo))
    return tuple(Pause(RepoName.parse(row.repo), row.paused_until, row.pause_reason or "") for row in rows)


def demotions(conn: Connection) -> tuple[Demotion, ...]:
    """The demotions on record, by backend."""
    rows = conn.execute(select(_backend).where(_backend.c.demoted_until.is_not(None)).order_by(_backend.c.repo))
    return tuple(
        Demotion(RepoName.parse(row.repo), Level(row.demoted_to), row.demoted_until, row.demote_reason or "")
        for row in rows
        if row.demoted_to is not None
    )


def pause(conn: Connection, wanted: Pause, who: str, terms: CheckTerms, now: datetime) -> None:
    """Send this backend nothing until then. What was sent goes on, and what is answered counts."""
    before = _pause_of(conn, wanted.repo)
    _write(conn, wanted.repo, paused_until=wanted.until, pause_reason=wanted.reason)
    held = hold(conn, wanted.repo, wanted.reason, now)
    _audit(conn, now, who, "backend paused", wanted.repo, wanted.reason, _text(before), str(wanted))
    _look_again(conn, wanted.repo, held, terms, now)


def resume(conn: Connection, repo: RepoName, who: str, why: str, terms: CheckTerms, now: datetime) -> int | None:
    """End a pause: returns how many dispatches that waited are sent now, or None where it is not paused."""
    before = _pause_of(conn, repo)
    if before is None:
        return None
    _write(conn, repo, paused_until=None, pause_reason=None)
    _audit(conn, now, who, "backend resumed", repo, why, str(before), "")
    return _tell(conn, repo, terms, now)


def demote(conn: Connection, wanted: Demotion, who: str, terms: CheckTerms, now: datetime) -> None:
    """Lower a backend's level for a time.

    Each process takes it into its allowlist within seconds and then looks once more at the heads concerned
    (``AllowlistKeeper``): any sooner, a look may still find the old level.
    """
    before = _demotion_of(conn, wanted.repo)
    _write(conn, wanted.repo, demoted_to=int(wanted.to), demoted_until=wanted.until, demote_reason=wanted.reason)
    _audit(conn, now, who, "backend demoted", wanted.repo, wanted.reason, _text(before), str(wanted))
    touch_backends(conn, [wanted.repo], terms, now)


def restore(conn: Connection, repo: RepoName, who: str, why: str, terms: CheckTerms, now: datetime) -> bool:
    """End a demotion; False where there is none."""
    before = _demotion_of(conn, repo)
    if before is None:
        return False
    _write(conn, repo, demoted_to=None, demoted_until=None, demote_reason=None)
    _audit(conn, now, who, "backend restored", repo, why, str(before), "")
    touch_backends(conn, [repo], terms, now)
    return True


def end_expired(conn: Connection, terms: CheckTerms, now: datetime) -> Ended:
    """Clear pauses and demotions that have run out, and tell backends what waits although they are not paused."""
    due = conn.execute(
        select(_backend.c.repo)
        .where(or_(_backend.c.paused_until <= now, _backend.c.demoted_until <= now))
        .order_by(_backend.c.repo)
    ).scalars()
    ended: list[RepoName] = []
    restored: list[RepoName] = []
    told = 0
    for repo in [RepoName.parse(name) for name in due]:
        paused, demoted = _pause_of(conn, repo), _demotion_of(conn, repo)
        if paused is not None and paused.until <= now:
            _write(conn, repo, paused_until=None, pause_reason=None)
            _audit(conn, now, SELF, "pause expired", repo, paused.reason, str(paused), "")
            told += _tell(conn, repo, terms, now)
            ended.append(repo)
        if demoted is not None and demoted.until <= now:
            _write(conn, repo, demoted_to=None, demoted_until=None, demote_reason=None)
            _audit(conn, now, SELF, "demotion expired", repo, demoted.reason, str(demoted), "")
            touch_backends(conn, [repo], terms, now)
            restored.append(repo)
    for repo in held_without_pause(conn):
        told += len(tell_held(conn, repo, terms, now))
    return Ended(tuple(ended), tuple(restored), told)


def _tell(conn: Connection, repo: RepoName, terms: CheckTerms, now: datetime) -> int:
    told = tell_held(conn, repo, terms, now)
    touch_backends(conn, [repo], terms, now)
    return len(told)


def _look_again(conn: Connection, repo: RepoName, heads: Sequence[str], terms: CheckTerms, now: datetime) -> None:
    seen = touch_backends(conn, [repo], terms, now)
    for head_sha in sorted(set(heads) - set(seen)):
        touch_head(conn, head_sha, terms, now)


def _pause_of(conn: Connection, repo: RepoName) -> Pause | None:
    """The pause on record; the backend's row is locked from here on."""
    row = _row(conn, repo)
    if row is None or row.paused_until is None:
        return None
    return Pause(repo, row.paused_until, row.pause_reason or "")


def _demotion_of(conn: Connection, repo: RepoName) -> Demotion | None:
    row = _row(conn, repo)
    if row is None or row.demoted_until is None or row.demoted_to is None:
        return None
    return Demotion(repo, Level(row.demoted_to), row.demoted_until, row.demote_reason or "")


def _row(conn: Connection, repo: RepoName) -> Any:
    return conn.execute(select(_backend).where(_backend.c.repo == str(repo)).with_for_update()).first()


def _write(conn: Connection, repo: RepoName, **values: object) -> None:
    conn.execute(on_conflict_do_nothing(conn, _backend), {"repo": str(repo), "private": False})
    conn.execute(update(_backend).where(_backend.c.repo == str(repo)).values(**values))


def _audit(
    conn: Connection, now: datetime, who: str, what: str, repo: RepoName, why: str, before: str, after: str
) -> None:
    audit(conn, at=now, who=who, what=what, subject=str(repo), why=why, before=before, after=after)


def _text(act: Pause | Demotion | None) -> str:
    return "" if act is None else str(act)
