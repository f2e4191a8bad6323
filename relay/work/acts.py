"""What run, rerun and override do, inside the transaction that ends the command. Nothing here asks GitHub."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from allowlist.model import Allowlist, RepoName
from levels.gate import Line
from levels.outcomes import GateEffect, Outcome
from levels.powers import POWERS
from relay.deciding.commands import named_backend
from relay.deciding.facts import CheckFacts, DispatchFacts, Place
from relay.store.answering import HOLDS_NOTHING, answer_for
from relay.store.checks import CheckTerms
from relay.store.commands import CommandRow, audit
from relay.store.redispatch import Asking, Refusal, redispatch
from relay.store.rerunning import KnownRun, ask_rerun, asked_lately, runs_of
from relay.texts.markup import prose
from relay.texts.words import PHRASES, clock, several

#: Outcomes that no failed job stands behind: their runs are run again as a whole.
_NO_FAILED_JOB = frozenset({Outcome.SKIPPED, Outcome.NEUTRAL})

_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class Act:
    """One command that was granted, with everything that it is carried out with."""

    conn: Connection
    row: CommandRow
    facts: CheckFacts
    listed: Allowlist
    terms: CheckTerms
    place: Place
    fresh_id: Callable[[], str]
    now: datetime

    @property
    def asked_by(self) -> str:
        """Who asked and when, as checks and listeners are told."""
        return f"asked for by {self.row.sender} at {clock(self.now)}"

    def of(self, backend: RepoName) -> tuple[DispatchFacts, ...]:
        """What this backend was told of the open changes with this head."""
        return tuple(one for one in self.facts.dispatches if one.backend == backend)


@dataclass(frozen=True, slots=True)
class Done:
    """Whether anything was changed, and the answer in sentences of ours."""

    changed: bool
    said: tuple[str, ...]


def run(act: Act) -> Done:
    """Tell a backend anew of this head."""
    backend = _backend(act, usage="/crcr run BACKEND")
    if isinstance(backend, Done):
        return backend
    return _anew(act, backend)


def rerun(act: Act) -> Done:
    """Run again what failed: of one backend, of all that failed, or every run of all that have a check here."""
    if act.row.backend is not None:
        backend = _backend(act, usage="/crcr rerun [BACKEND]")
        if isinstance(backend, Done):
            return backend
        mine = act.of(backend)
        if not mine:
            return Done(False, (f"`{backend}` was not told of this commit: `/crcr run {backend}` tells it.",))
        return _together([_rerun_one(act, one, only_failed=True) for one in mine])
    whole = act.row.source == "check_suite"
    wanted = _shown(act) if whole else _failed(act)
    if not wanted:
        return Done(False, ("Nothing to run again: no backend here has failed.",))
    return _together([_rerun_one(act, one, only_failed=not whole) for one in wanted])


def override(act: Act) -> Done:
    """Let the sender answer for a backend on this head."""
    backend = _backend(act, usage="/crcr override BACKEND REASON")
    if isinstance(backend, Done):
        return backend
    why = act.row.words.strip()[:_LONGEST_REASON]
    if not why:
        return Done(False, (f"An override needs a reason: `/crcr override {backend} REASON`.",))
    row = act.row
    refused = answer_for(
        act.conn, act.facts, backend, row.number, who=row.sender, why=why, terms=act.terms, now=act.now
    )
    if refused is not None:
        return Done(False, (refused.sentence,))
    return Done(
        True,
        (
            (
                f"`{backend}` does not hold this commit back any more, and the gate says who decided so and why: "
                f"{prose(why, _LONGEST_REASON)}."
            ),
            "It holds for this commit and for merge groups with it. A new push ends it.",
        ),
    )


def _backend(act: Act, *, usage: str) -> RepoName | Done:
    """The backend that the command names."""
    word = act.row.backend
    if word is None and act.row.check_id is None:
        return Done(False, (f"Which backend? Write `{usage}`.",))
    entries = [entry for entry in act.listed.entries if POWERS[entry.level].recorded]
    found = named_backend(word or "", entries)
    return Done(False, (f"Not done: {found}.",)) if isinstance(found, str) else found.repo


def _shown(act: Act) -> tuple[DispatchFacts, ...]:
    return tuple(one for one in act.facts.dispatches if one.shown)


def _failed(act: Act) -> tuple[DispatchFacts, ...]:
    """At the gate, whatever it does not count as passed; in a comment every backend with a check that failed."""
    if act.row.source == "comment":
        return tuple(one for one in _shown(act) if not one.awaited and one.standing not in HOLDS_NOTHING)
    lines: tuple[Line, ...] = act.facts.verdict(act.place.overrides).lines
    wanted = {line.detail for line in lines if line.effect in {GateEffect.BLOCKS, GateEffect.STEPS_DOWN}}
    return tuple(one for one in act.facts.dispatches if str(one.id) in wanted and not one.awaited)


def _together(parts: list[Done]) -> Done:
    return Done(any(part.changed for part in parts), tuple(f"- {said}" for part in parts for said in part.said))


def _rerun_one(act: Act, one: DispatchFacts, *, only_failed: bool) -> Done:
    """Ask for the runs of one dispatch again; where none is known that GitHub could repeat, tell the backend anew."""
    name = f"`{one.backend}`"
    if one.state in {"planned", "pending_paths"}:
        return Done(False, (f"{name} is about to be told; there is nothing to run again yet.",))
    runs = runs_of(act.conn, one.id)
    if one.awaited and not any(run.failed for run in runs):
        return Done(False, (f"{name} {PHRASES[one.outcome].verb} since {clock(one.started_at or one.created_at)}.",))
    if only_failed and one.standing in HOLDS_NOTHING:
        said = f"{name} {PHRASES[one.standing].verb}: nothing of it failed. `/crcr run {one.backend}` tells it anew."
        return Done(False, (said,))
    if asked_lately(act.conn, one.id, act.now):
        return Done(False, (f"{name}: its runs were asked for again a moment ago.",))
    wanted = _wanted(runs, only_failed=only_failed)
    if not wanted or not all(each.at_github for each in wanted):
        return _anew(act, one.backend, why="no run of it is known at GitHub", dispatch=one)
    ask_rerun(
        act.conn,
        one.id,
        one.backend,
        wanted,
        only_failed=only_failed and one.outcome not in _NO_FAILED_JOB,
        by=act.asked_by,
        terms=act.terms,
        now=act.now,
    )
    _put_on_record(act, one.backend, "rerun")
    what = "what failed" if only_failed else "all jobs"
    said = (
        f"{name}: GitHub is asked to run {what} of {several(len(wanted), 'run')} again. If it cannot, the backend is "
        "told anew, and its check says so."
    )
    return Done(True, (said,))


def _wanted(runs: tuple[KnownRun, ...], *, only_failed: bool) -> tuple[KnownRun, ...]:
    """The runs that failed; where none did, as when results went missing, all."""
    failed = tuple(each for each in runs if each.failed)
    return failed if only_failed and failed else runs


def _anew(act: Act, backend: RepoName, why: str = "", dispatch: DispatchFacts | None = None) -> Done:
    changes = [change.id for change in act.facts.open_changes] if dispatch is None else [dispatch.change_id]
    parts: list[Done] = []
    for change_id in changes:
        asking = Asking(act.asked_by + (f"; {why}" if why else ""), act.row.delivery_id)
        made = redispatch(
            act.conn,
            change_id,
            backend,
            asking,
            fresh_id=act.fresh_id(),
            allowlist=act.listed,
            terms=act.terms,
            now=act.now,
        )
        if isinstance(made, Refusal):
            parts.append(Done(False, (f"Not done: {made.sentence}.",)))
        else:
            because = f" ({why})" if why else ""
            parts.append(Done(True, (f"`{backend}` is told of this commit anew{because}; its new run decides.",)))
    if any(part.changed for part in parts):
        _put_on_record(act, backend, "run")
        parts = [part for part in parts if part.changed]
    return Done(any(part.changed for part in parts), tuple(dict.fromkeys(said for part in parts for said in part.said)))


def _put_on_record(act: Act, backend: RepoName, what: str) -> None:
    row = act.row
    audit(
        act.conn,
        who=row.sender,
        what=what,
        subject=f"{backend} on {act.facts.head_sha}",
        why=f"{row.source} {row.verb}",
        after="",
        now=act.now,
    )
