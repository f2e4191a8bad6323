"""The app came to backends' repositories, or left them: where they are reached, and what may be tried again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, select, update

from allowlist.model import Allowlist, Entry, RepoName
from levels.powers import POWERS
from relay.deciding import effects
from relay.deciding.effects import Kind
from relay.deciding.events import InstallationEvent
from relay.deciding.plan import Decision
from relay.store.checks import CheckTerms
from relay.store.circuits import try_backends
from relay.store.intake import Received, Recorded, note_delivery, note_plan
from relay.store.outbox import dead_of, enqueue, on_conflict_do_nothing, revive
from relay.store.reviving import revive_all_checks, revive_dispatches
from relay.store.tables import Backend, Effect

_backend = Backend.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_effect = Effect.__table__  # type: ignore[attr-defined]

#: What a dead effect may have died of that an installation mends.
MENDED = ("not_installed", "missing_permission", "suspended", "forbidden")

#: What is done at upstream beside its checks. What a person asked for is theirs to ask again.
UPSTREAMS = (Kind.RECONCILE_COMMENT, Kind.CONFIRM_COMMIT)


def record_installation(
    conn: Connection,
    event: InstallationEvent,
    received: Received,
    *,
    allowlist: Allowlist,
    terms: CheckTerms,
    now: datetime,
) -> Recorded:
    """Write down an installation event. It concerns listed repositories only; others are none of ours."""
    concerned = _concerned(event, allowlist)
    if not note_delivery(conn, received, action=event.action, repository="", sender=event.account, now=now):
        return Recorded("duplicate", ())
    decisions = _installed(conn, event, concerned, terms, now) if event.grants else _left(conn, event, concerned)
    if event.grants and _reaches(event, terms.upstream):
        decisions += revive_all_checks(conn, MENDED, now)
        revive(conn, kinds=UPSTREAMS, now=now, reasons=MENDED)
    note_plan(conn, received.delivery_id, decisions)
    return Recorded("accepted", decisions)


def _reaches(event: InstallationEvent, repo: RepoName) -> bool:
    if not event.repositories:
        return event.account == repo.owner and event.action != "added"
    return any(repository.name == repo for repository in event.repositories)


def _concerned(event: InstallationEvent, allowlist: Allowlist) -> tuple[Entry, ...]:
    """The entries an event speaks of; one that names no repository speaks of all of its account's."""
    if not event.repositories:
        if event.action in {"added", "removed"}:
            return ()
        return tuple(entry for entry in allowlist.entries if entry.repo.owner == event.account)
    named = {repository.name for repository in event.repositories}
    return tuple(entry for entry in allowlist.entries if entry.repo in named)


def _installed(
    conn: Connection, event: InstallationEvent, concerned: Sequence[Entry], terms: CheckTerms, now: datetime
) -> tuple[Decision, ...]:
    repos = [str(entry.repo) for entry in concerned]
    if not repos:
        return ()
    conn.execute(on_conflict_do_nothing(conn, _backend), [{"repo": repo, "private": False} for repo in repos])
    conn.execute(update(_backend).where(_backend.c.repo.in_(repos)).values(installation_id=event.installation_id))
    try_backends(conn, repos, now)
    # Whoever may report must be known by id, and the first mint for a repository is what tells it.
    recorded = [entry.repo for entry in concerned if POWERS[entry.level].recorded]
    enqueue(conn, [effects.pin_backend(repo) for repo in recorded], now)
    pinned = tuple(Decision("pin_backend", str(repo), "installed") for repo in recorded)
    dead = conn.execute(
        select(_effect.c.subject_id).where(
            dead_of([Kind.DISPATCH]),
            _effect.c.subject.in_(repos),
            _effect.c.reason.in_(MENDED),
        )
    )
    revived = revive_dispatches(conn, dead.scalars().all(), terms, now)
    # A permission to read actions is often granted late: what ran meanwhile can still be looked at.
    revive(conn, kinds=[Kind.PIN_BACKEND, Kind.OBSERVE], now=now, subjects=repos, reasons=MENDED)
    return pinned + revived


def _left(conn: Connection, event: InstallationEvent, concerned: Sequence[Entry]) -> tuple[Decision, ...]:
    """Forget the installation where it is the one we knew: a later one may have been noted already."""
    repos = [str(entry.repo) for entry in concerned]
    if not repos:
        return ()
    forgotten = conn.execute(
        update(_backend)
        .where(_backend.c.repo.in_(repos), _backend.c.installation_id == event.installation_id)
        .values(installation_id=None)
        .returning(_backend.c.repo)
    )
    return tuple(Decision("none", repo, "uninstalled") for repo in sorted(forgotten.scalars()))
