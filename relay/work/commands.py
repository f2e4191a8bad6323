"""Decides a command and carries it out, once GitHub has told what its sender may do.

The role is asked for outside of any transaction; everything else happens in the one that notes the command's end, so
that a command is carried out once or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import structlog
from sqlalchemy import Connection

from allowlist.model import Allowlist
from relay.deciding.authority import Ruling, rule
from relay.deciding.commands import PREFIX, Verb
from relay.deciding.facts import CheckFacts, Place
from relay.github.observed import Role
from relay.github.port import GitHub
from relay.store import commands
from relay.store.checks import CheckTerms
from relay.store.commands import CommandRow
from relay.store.comments import want_comment
from relay.store.dispatching import address_of
from relay.store.engine import Store
from relay.store.outbox import Claimed
from relay.texts.markup import plain
from relay.texts.replies import answer, help_text, status_text
from relay.tracing import trace_id
from relay.work.acts import Act, Done, override, rerun, run
from relay.work.outbox import Note

log = structlog.get_logger(__name__)

#: Who an act of the relay itself is put down to.
SELF = "relay"

_RUNS = (Verb.RUN.value, Verb.RERUN.value)


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a command ends: its state, and the sentences of the answer, where there is one."""

    state: str
    said: tuple[str, ...]
    outcome: str
    heard: bool = True


class CommandRunner:
    """Performs RUN_COMMAND effects. ``listed`` gives the allowlist in force, ``fresh_id`` a new delivery id."""

    def __init__(
        self,
        *,
        store: Store,
        github: GitHub,
        terms: CheckTerms,
        place: Place,
        listed: Callable[[], Allowlist],
        fresh_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._github = github
        self._terms = terms
        self._place = place
        self._listed = listed
        self._fresh_id = fresh_id

    async def run(self, effect: Claimed) -> Note | None:
        """Ask for the sender's role, then decide with what the store holds at that moment."""
        row, at = await self._store.read(
            lambda conn: (commands.load_command(conn, effect.subject_id), address_of(conn, self._terms.upstream))
        )
        if row is None or row.state != "asked":
            return None
        if row.head_sha is None:
            # No pull request of ours, so there is nothing that anybody could ask for.
            return lambda conn, now: self._end(conn, row, None, _unheard("nothing is known of this pull request"), now)
        role = await self._github.role_of(at, row.sender)
        return lambda conn, now: self._decide(conn, row, role, now)

    def gave_up(self, effect: Claimed, detail: str) -> Note:
        """GitHub did not tell the sender's role, so nothing is done.

        That is put on record, and told to whoever would have an answer without being asked who they are: the author,
        and somebody whom GitHub named with a role before. To others we say nothing, as ever.
        """

        def failed(conn: Connection, now: datetime) -> None:
            row = commands.load_command(conn, effect.subject_id)
            if row is None or row.state != "asked":
                return
            subject = f"{plain(_shown(row), 100)} by {plain(row.sender, 60)}"
            on = f"pull request {row.number}" if row.number is not None else f"commit {row.head_sha}"
            commands.audit(
                conn, who=SELF, what="command given up", subject=f"{subject} on {on}", why=detail, after="", now=now
            )
            heard = row.head_sha is not None and self._known(conn, row, row.head_sha)
            said = "Not done: GitHub did not tell for hours what you may ask for here. Please ask again."
            self._end(conn, row, None, _Ended("failed", (said,), detail, heard=heard), now)

        return failed

    def _known(self, conn: Connection, row: CommandRow, head_sha: str) -> bool:
        is_author = row.sender.lower() in commands.authors_of(conn, head_sha, row.number)
        named = (commands.last_role(conn, row.sender) or Role.NONE.name).upper()
        role = Role[named] if named in Role.__members__ else Role.NONE
        return rule(Verb.HELP, role, is_author=is_author)[0] is not Ruling.UNHEARD

    def _decide(self, conn: Connection, row: CommandRow, role: Role, now: datetime) -> None:
        self._end(conn, row, role, self._ruled(conn, row, role, now), now)

    def _ruled(self, conn: Connection, row: CommandRow, role: Role, now: datetime) -> _Ended:
        head_sha = row.head_sha or ""
        verb = Verb(row.verb) if row.verb in set(Verb) else Verb.UNKNOWN
        authors = commands.authors_of(conn, head_sha, row.number)
        if verb is Verb.OVERRIDE:
            # It holds for the commit. Somebody else's pull request of the same commit makes its author no other person.
            authors |= commands.authors_of(conn, head_sha, None)
        is_author = row.sender.lower() in authors
        before = commands.done_for(conn, row.sender, head_sha, _RUNS)
        ruling, why = rule(verb, role, is_author=is_author, done_before=before)
        if ruling is Ruling.UNHEARD:
            return _unheard(why)
        if ruling is Ruling.REFUSED:
            return _Ended("refused", (f"Not done: {why}.",), why)
        if verb is Verb.HELP:
            return _Ended("done", tuple(help_text().splitlines()), "help")
        if verb is Verb.UNKNOWN:
            return _Ended("refused", ("There is no such command.", "", *help_text().splitlines()), "unknown command")
        facts = commands.gate_of(conn, head_sha, self._terms, self._listed())
        if facts is None or not facts.open_changes:
            said = "Not done: this commit is not the newest of an open pull request any more."
            return _Ended("refused", (said,), "not the newest commit")
        if verb is Verb.STATUS:
            return _Ended("done", tuple(status_text(facts, self._place).splitlines()), "status")
        return self._act(conn, row, verb, facts, now)

    def _act(self, conn: Connection, row: CommandRow, verb: Verb, facts: CheckFacts, now: datetime) -> _Ended:
        act = Act(
            conn=conn,
            row=row,
            facts=facts,
            listed=self._listed(),
            terms=self._terms,
            place=self._place,
            fresh_id=self._fresh_id,
            now=now,
        )
        done: Done = {Verb.RUN: run, Verb.RERUN: rerun, Verb.OVERRIDE: override}[verb](act)
        return _Ended("done" if done.changed else "refused", done.said, " ".join(done.said))

    def _end(self, conn: Connection, row: CommandRow, role: Role | None, ended: _Ended, now: datetime) -> None:
        """Note the end, and answer where a comment asked and its writer may have an answer."""
        named = None if role is None else role.name.lower()
        commands.finish(conn, row.id, state=ended.state, role=named, outcome=ended.outcome, now=now)
        log.info(
            "command",
            delivery=row.delivery_id,
            trace=trace_id(row.delivery_id),
            head=row.head_sha,
            backend=row.backend,
            number=row.number,
            verb=row.verb,
            source=row.source,
            sender=row.sender,
            role=named,
            state=ended.state,
        )
        if ended.heard and row.comment_id is not None and row.number is not None:
            body = answer(row.sender, _shown(row), ended.said)
            want_comment(conn, row.number, f"command {row.comment_id}", body, self._terms.upstream, now)


def _unheard(why: str) -> _Ended:
    return _Ended("refused", (), why, heard=False)


def _shown(row: CommandRow) -> str:
    """The command as it was read, for the head of its answer."""
    said = row.words if row.verb == Verb.UNKNOWN else f"{row.verb} {row.backend or ''}"
    return f"{PREFIX} {said.strip()}"
