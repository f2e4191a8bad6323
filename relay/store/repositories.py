"""What happens to backends' repositories as such: archived and back, renamed, moved, gone, hidden.

By the repository's pinned id alone. A name may have come to mean another repository since, and whoever is not pinned
yet was never told anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import chain

from sqlalchemy import ColumnElement, Connection, not_, or_, select, update

from allowlist.model import Allowlist, RepoName
from relay.deciding import effects
from relay.deciding.effects import Kind
from relay.deciding.events import Ignored, RepositoryEvent
from relay.deciding.plan import Decision
from relay.github.port import Located
from relay.store.checks import CheckTerms
from relay.store.dispatching import address_of, note_backend_error
from relay.store.installing import UPSTREAMS
from relay.store.intake import Received, Recorded, note_delivery, note_plan
from relay.store.outbox import dead_of, enqueue, revive
from relay.store.returning import try_now
from relay.store.reviving import revive_all_checks, revive_dispatches
from relay.store.tables import Backend, Effect

_backend = Backend.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_effect = Effect.__table__  # type: ignore[attr-defined]

#: What a dead effect may have died of that the return of its repository, or its new place, mends.
MENDED = ("archived", "not_installed", "gone", "redirect_refused", "forbidden")

#: By what the row of a backend that is archived says so, in the first word of its last error.
ARCHIVED = ("archived", "circuit_open", "switched_off")

#: Why GitHub shows no repository that was deleted.
GONE = ("not_installed", "gone")

_SAID = {
    "archived": "GitHub says that this repository was archived: unarchive it, or take it off the allowlist",
    "deleted": "GitHub says that this repository was deleted: restore it, or take it off the allowlist",
}


def record_repository(
    conn: Connection,
    event: RepositoryEvent,
    received: Received,
    *,
    allowlist: Allowlist,
    terms: CheckTerms,
    now: datetime,
) -> Recorded | Ignored:
    """Write down what happened to a listed repository or to upstream; others are none of ours, and not kept.

    GitHub tells an app of every repository that it is installed on, and the names in our record anybody may read.
    """
    repos = _known_by(conn, event.id, allowlist)
    if not repos and not _is_upstreams(conn, event, terms.upstream):
        return Ignored("repository_unwanted", "no listed backend is known by this id, and it is not upstream's")
    # By the name that is listed: what a private repository is called from now on is for its owner to tell.
    name = str(repos[0] if repos else terms.upstream)
    if not note_delivery(conn, received, action=event.action, repository=name, sender=event.sender, now=now):
        return Recorded("duplicate", ())
    decisions: tuple[Decision, ...] = ()
    if event.mends:
        decisions = _back(conn, event.action, repos, terms, now)
        # Upstream is known by its name, as in all of its webhooks.
        if event.name == terms.upstream:
            decisions += revive_all_checks(conn, MENDED, now)
            revive(conn, kinds=UPSTREAMS, now=now, reasons=MENDED)
    elif event.action in _SAID:
        for repo in repos:
            note_backend_error(conn, repo, f"{event.action}: {_SAID[event.action]}", now)
        # A webhook may be old when it comes at last: whether that still holds, GitHub says.
        decisions = _look_again(conn, event.action, repos, now)
    else:
        decisions = _seen(conn, event.action, repos, now)
    note_plan(conn, received.delivery_id, decisions)
    return Recorded("accepted", decisions)


def _known_by(conn: Connection, repository_id: int, allowlist: Allowlist) -> tuple[RepoName, ...]:
    """The listed backends whose repository this is."""
    pinned = conn.execute(select(_backend.c.repo).where(_backend.c.repository_id == repository_id)).scalars().all()
    return tuple(entry.repo for entry in allowlist.entries if str(entry.repo) in pinned)


def _is_upstreams(conn: Connection, event: RepositoryEvent, upstream: RepoName) -> bool:
    """Whether it happened to upstream, under the name that we know or under another one."""
    return event.name == upstream or address_of(conn, upstream).repository_id == event.id


def known_ids(conn: Connection) -> frozenset[int]:
    """The ids of all repositories that were ever pinned: whatever happens to another one is none of ours."""
    pinned = select(_backend.c.repository_id).where(_backend.c.repository_id.is_not(None))
    return frozenset(conn.execute(pinned).scalars())


def _back(
    conn: Connection, action: str, repos: Sequence[RepoName], terms: CheckTerms, now: datetime
) -> tuple[Decision, ...]:
    """There is a reason to try again: what had been given up, and where nothing was tried any more."""
    if not repos:
        return ()
    names = [str(repo) for repo in repos]
    if action == "unarchived":
        mended = update(_backend).where(_backend.c.repo.in_(names), _says(*ARCHIVED))
        conn.execute(mended.values(last_error=None, last_error_at=None))
    # Another owner means other ids in the tokens of its runs.
    enqueue(conn, [effects.pin_backend(repo) for repo in repos], now)
    probed = try_now(conn, repos, terms, now)
    others = [str(repo) for repo in repos if repo not in probed]
    dead = conn.execute(
        select(_effect.c.subject_id).where(
            dead_of([Kind.DISPATCH]), _effect.c.subject.in_(others), _effect.c.reason.in_(MENDED)
        )
    )
    revived = [*chain(*probed.values()), *revive_dispatches(conn, dead.scalars().all(), terms, now)]
    revive(conn, kinds=[Kind.PIN_BACKEND, Kind.OBSERVE], now=now, subjects=names, reasons=MENDED)
    return tuple(revived)


def _seen(conn: Connection, action: str, repos: Sequence[RepoName], now: datetime) -> tuple[Decision, ...]:
    """Hide what is private now at once. That it is private no more we do not take from a webhook, which may be old."""
    if not repos:
        return ()
    if action == "privatized":
        conn.execute(update(_backend).where(_backend.c.repo.in_([str(repo) for repo in repos])).values(private=True))
    return _look_again(conn, action, repos, now)


def _look_again(conn: Connection, action: str, repos: Sequence[RepoName], now: datetime) -> tuple[Decision, ...]:
    enqueue(conn, [effects.pin_backend(repo) for repo in repos], now)
    return tuple(Decision("pin_backend", str(repo), action) for repo in repos)


def note_seen(conn: Connection, repo: RepoName, located: Located, now: datetime) -> None:
    """GitHub has just shown this repository: whether it is archived is said by that, whatever a webhook had said."""
    mine = update(_backend).where(_backend.c.repo == str(repo))
    if located.archived:
        other = or_(_backend.c.last_error.is_(None), not_(_says(*ARCHIVED)))
        error = f"archived: {_SAID['archived']}"
        conn.execute(mine.where(other).values(last_error=error, last_error_at=now))
    else:
        conn.execute(mine.where(_says(*_SAID)).values(last_error=None, last_error_at=None))


def note_not_seen(conn: Connection, repo: RepoName, reason: str, detail: str, now: datetime) -> None:
    """GitHub would not show this repository. Where it is known to be deleted, that is why, and goes on being said."""
    mine = select(_backend.c.repo).where(_backend.c.repo == str(repo), _says("deleted"))
    if reason not in GONE or conn.execute(mine).first() is None:
        note_backend_error(conn, repo, f"{reason}: {detail}", now)


def _says(*words: str) -> ColumnElement[bool]:
    """The row's last error begins with one of these words."""
    return or_(*[_backend.c.last_error.like(f"{word}: %") for word in words])
