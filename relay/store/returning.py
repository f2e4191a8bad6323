"""Backends that were left alone because nothing worked there: probing them, and telling them of what they missed.

The worker lets the next dispatch through when a probe is due (``relay.store.claiming``). What is here is for backends
of which nothing comes by, and for the moment after a probe has worked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, func, select

from allowlist.model import RepoName
from relay.deciding.circuits import backend_key
from relay.deciding.effects import Kind
from relay.deciding.plan import Decision, HeadState, Purpose
from relay.store import circuits
from relay.store.checks import CheckTerms
from relay.store.doubts import MAYBE_DELIVERED
from relay.store.outbox import dead_of
from relay.store.reviving import revive_dispatches
from relay.store.tables import Change, Dispatch, Effect

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_effect = Effect.__table__  # type: ignore[attr-defined]

#: How long a due probe waits for a dispatch of its own accord before a dead letter is taken for it.
GRACE = timedelta(minutes=2)

#: What another try would not mend, whatever has become of the backend; or only a person may decide on.
HOPELESS = ("payload_too_large", "event_type", "identity_changed", MAYBE_DELIVERED)


def bring_back(conn: Connection, terms: CheckTerms, now: datetime) -> tuple[RepoName, ...]:
    """Tell backends that work again of what is still current; returns those backends.

    Of each open head the newest dispatch is told. Heads that were replaced or closed meanwhile are of no interest.
    """
    back = circuits.ready_to_return(conn)
    repos = tuple(RepoName.parse(circuit.backend or "") for circuit in back)
    for circuit, repo in zip(back, repos, strict=True):
        revive_dispatches(conn, _missed(conn, repo, circuit.since), terms, now)
    circuits.returned(conn, back, now)
    return repos


def probe(conn: Connection, terms: CheckTerms, now: datetime) -> tuple[RepoName, ...]:
    """Take the newest dead letter that is still current for a probe where one is due and nothing else came by."""
    probed: list[RepoName] = []
    for circuit in circuits.overdue_probes(conn, now, GRACE):
        repo = RepoName.parse(circuit.backend or "")
        missed = _missed(conn, repo, circuit.since)
        if missed and revive_dispatches(conn, missed[:1], terms, now):
            probed.append(repo)
    return tuple(probed)


def try_now(
    conn: Connection, repos: Sequence[RepoName], terms: CheckTerms, now: datetime
) -> Mapping[RepoName, tuple[Decision, ...]]:
    """There is a reason to hope for these backends: their next probe is due, and is sent where anything was missed.

    Returns, of those that are left alone, what is tried. The rest of what they missed they are told once that works.
    """
    circuits.try_backends(conn, [str(repo) for repo in repos], now)
    tried: dict[RepoName, tuple[Decision, ...]] = {}
    known = circuits.load(conn)
    for repo in repos:
        circuit = known.get(backend_key(str(repo)))
        if circuit is not None and circuit.ends_what_comes:
            tried[repo] = revive_dispatches(conn, _missed(conn, repo, circuit.since)[:1], terms, now)
    return tried


def _missed(conn: Connection, repo: RepoName, since: datetime) -> list[int]:
    """The dispatches that died since then and would still be of use, the newest first."""
    newest = (
        select(func.max(_dispatch.c.id))
        .where(_dispatch.c.backend == str(repo), _dispatch.c.purpose == Purpose.TEST.value)
        .group_by(_dispatch.c.change_id)
    )
    rows = conn.execute(
        select(_dispatch.c.id)
        .join(_effect, _effect.c.subject_id == _dispatch.c.id)
        .join(_change, _change.c.id == _dispatch.c.change_id)
        .where(
            dead_of([Kind.DISPATCH]),
            _effect.c.subject == str(repo),
            _effect.c.finished_at >= since,
            _effect.c.reason.not_in(HOPELESS),
            _dispatch.c.state == "dead",
            _change.c.state == HeadState.OPEN.value,
            _dispatch.c.id.in_(newest),
        )
        .order_by(_dispatch.c.id.desc())
    )
    return list(rows.scalars())
