"""One check as GitHub should show it: status, conclusion, title, summary and text, from its facts. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import datetime

from levels.outcomes import Conclusion, GateEffect, Outcome, worst
from relay.deciding.facts import CheckFacts, DispatchFacts, Place, labelled
from relay.texts import gate_text
from relay.texts.backend_text import (
    backend_title,
    combinations,
    job_title,
    jobs,
    oncall,
    overview,
    run_again,
    tests,
    where,
)
from relay.texts.base_text import todo
from relay.texts.markup import MAX_TEXT, MAX_TITLE, Section, assemble, plain
from relay.texts.words import (
    GATE_NAME,
    Ending,
    backend_check_name,
    demoted,
    job_check_name,
    labelled_now,
    not_called,
    over,
    reason_phrase,
    superseded,
    unlabelled,
)


@dataclass(frozen=True, slots=True)
class Button:
    """A button on a check. It says nothing of who may press it: that is decided once somebody has."""

    label: str
    description: str
    identifier: str


_RERUN = Button("Re-run", "Run again what failed of it", "rerun")
_REDISPATCH = Button("Re-dispatch", "Tell the backend anew, in a new run", "redispatch")
_RERUN_FAILED = Button("Re-run failed", "Run again what did not pass", "rerun")

#: Room that is left unused, so that a character GitHub counts differently costs nothing.
_SPARE = 535


@dataclass(frozen=True, slots=True)
class Rendered:
    """The whole state of one check run.

    ``partial``: concluded, while jobs may still report. ``closing``: ends what is there, and is nothing to create.
    ``actions`` are its buttons; they follow from what the title says, so that no write is owed to them alone.
    """

    status: str
    conclusion: Conclusion | None
    title: str
    summary: str
    text: str
    details_url: str
    started_at: datetime | None = None
    completed_at: datetime | None = None
    partial: bool = False
    closing: bool = False
    actions: tuple[Button, ...] = ()

    def digest(self) -> str:
        """What tells two states apart that are worth a write.

        Summary and text count once nothing more is to come: until then they change with each job, and GitHub's limit
        on writes is for all backends together.
        """
        said = [self.status, self.conclusion, self.title, self.partial]
        if self.conclusion is not None and not self.partial:
            said += [self.summary, self.text]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def replaced(facts: CheckFacts) -> Rendered:
    """What the older of two check runs of one name says, which GitHub does not show any more."""
    return Rendered(
        status="completed",
        conclusion=Conclusion.CANCELLED,
        title="Replaced by a newer check run",
        summary="Another check run of this name stands on this commit, and that one shows what holds.",
        text="",
        details_url="",
        started_at=facts.row.created_at,
        closing=True,
    )


def render(facts: CheckFacts, place: Place) -> Rendered | None:
    """What this check should show, or None where what GitHub shows (or does not show) is to stay."""
    if not facts.open_changes:
        return _ended(facts, place, _gone(facts), Conclusion.CANCELLED)
    if facts.backend is None:
        return render_gate(facts, place)
    shown = facts.shown(place.overrides)
    if not shown:
        why = _hidden(facts, place)
        return None if why is None else _ended(facts, place, why, Conclusion.NEUTRAL)
    if facts.name == backend_check_name(facts.backend):
        return render_backend(facts, place)
    return render_job(facts, place)


def change_url(facts: CheckFacts, place: Place) -> str:
    """The relay's page about the change that this check stands on."""
    changes = facts.open_changes or facts.changes
    return f"{place.public_url}/changes/{changes[-1].id}" if changes else place.public_url


# --- Endings ---------------------------------------------------------------------------------------------------------


def _gone(facts: CheckFacts) -> Ending:
    """Why no open change has this head any more; the change that left last says it."""
    if not facts.changes:
        return over("pull_request")
    last = facts.changes[-1]
    return superseded(last.replaced_by) if last.state == "superseded" else over(last.kind)


def _hidden(facts: CheckFacts, place: Place) -> Ending | None:
    """Why the backend has no check on any of the open changes, or None while that is not decided."""
    mine = [one for one in facts.dispatches if one.backend == facts.backend]
    if not mine or facts.backend is None:
        return not_called(facts.backend, "no dispatch of it is known") if facts.backend is not None else None
    newest = mine[-1]
    if newest.state == "pending_paths":
        return None
    if newest.level is None or newest.level < newest.level_then:
        if newest.level is not None and labelled(newest.level):
            return labelled_now(newest.backend, newest.level, place.label_prefix, newest.device)
        return demoted(newest.backend, newest.level)
    if newest.state in {"filtered", "superseded"}:
        return not_called(newest.backend, reason_phrase(newest.reason_code, newest.reason))
    if labelled(newest.level):
        return unlabelled(place.label_prefix, newest.device)
    return demoted(newest.backend, newest.level)


def _ended(facts: CheckFacts, place: Place, why: Ending, conclusion: Conclusion) -> Rendered | None:
    """An open check ends; one that had completed stays as it is, and one that never was is not made for this."""
    if facts.row.completed or not facts.row.written:
        return None
    return Rendered(
        status="completed",
        conclusion=conclusion,
        title=plain(why.title, MAX_TITLE),
        summary=why.sentence,
        text="",
        details_url=change_url(facts, place),
        started_at=facts.row.created_at,
        closing=True,
    )


# --- The gate --------------------------------------------------------------------------------------------------------


def render_gate(facts: CheckFacts, place: Place) -> Rendered:
    """The required check: what it waits for, what blocks it, and what that means for the merge."""
    verdict = facts.verdict(place.overrides)
    known = {str(one.id): one for one in facts.dispatches}
    required = [line for line in verdict.lines if line.effect is not GateEffect.NOT_REQUIRED]
    others = [line for line in verdict.lines if line.effect is GateEffect.NOT_REQUIRED]
    rows = [gate_text.row(line, known[line.detail], place) for line in required]
    page = f"[the relay's page of this change](<{change_url(facts, place)}>)"
    sections = [Section((gate_text.meaning(verdict, required, known),), (), "")]
    sections += [
        Section((gate_text.overridden(known[line.detail], who),), (), "")
        for line in required
        if line.effect is GateEffect.STEPS_DOWN and (who := gate_text.override_of(line, known)) is not None
    ]
    if rows:
        head = ("| Backend | Result | This gate | What happened |", "| --- | --- | --- | --- |")
        sections.append(Section(head, rows, f"{{count}} more backends are left out here; all are on {page}."))
    asked_here = any(change.kind == "pull_request" for change in facts.open_changes)
    acts = gate_text.todo(required, known, commands=asked_here)
    if acts:
        sections.append(Section(("**What to do**", ""), acts, f"{{count}} more are left out here, see {page}."))
    if others or facts.left_out:
        sections.append(Section((gate_text.not_required(others, known, facts.left_out),), (), ""))
    foot = (
        f"`{GATE_NAME}` weighs all L4 backends for commit `{facts.head_sha[:12]}`. Jobs, versions and tests stand "
        f"in each backend's own check; everything, as it is now, on {page}."
    )
    sections.append(Section((foot,), (), ""))
    settled = [known[line.detail].outcome_at for line in required]
    return Rendered(
        status=str(verdict.status),
        conclusion=verdict.conclusion,
        title=plain(gate_text.title(required, known), MAX_TITLE),
        summary=assemble(sections, MAX_TEXT - _SPARE),
        text="",
        details_url=change_url(facts, place),
        started_at=facts.row.created_at,
        # A merge group may be built long after its pull requests were tested, and no check ends before it begins.
        completed_at=None if verdict.conclusion is None or not settled else max(*settled, facts.row.created_at),
        actions=(_RERUN_FAILED,) if verdict.conclusion not in {None, Conclusion.SUCCESS} else (),
    )


# --- A backend's check -----------------------------------------------------------------------------------------------

#: How a backend's outcome shows on its own check. GitHub's words are fewer than ours.
_CONCLUSIONS = {
    Outcome.SUCCESS: Conclusion.SUCCESS,
    Outcome.FAILURE: Conclusion.FAILURE,
    Outcome.CANCELLED: Conclusion.CANCELLED,
    Outcome.TIMED_OUT: Conclusion.TIMED_OUT,
    Outcome.ACTION_REQUIRED: Conclusion.ACTION_REQUIRED,
    Outcome.LOST: Conclusion.TIMED_OUT,
    Outcome.INCOMPLETE: Conclusion.FAILURE,
    Outcome.DISPUTED: Conclusion.FAILURE,
    Outcome.SKIPPED: Conclusion.SKIPPED,
}
_SATISFYING = frozenset({Conclusion.SUCCESS, Conclusion.NEUTRAL, Conclusion.SKIPPED})


def conclusion_of(one: DispatchFacts, place: Place) -> Conclusion | None:
    """How the backend's check concludes, None while it is awaited. What blocks the gate never looks passed here."""
    if one.awaited:
        return None
    conclusion = _CONCLUSIONS.get(one.outcome, Conclusion.NEUTRAL)
    blocks = one.gates and one.effect(place.overrides) is GateEffect.BLOCKS
    return Conclusion.FAILURE if blocks and conclusion in _SATISFYING else conclusion


def render_backend(facts: CheckFacts, place: Place) -> Rendered:
    """One backend's check: what happened, per combination and job, which tests failed, where to look, what to do.

    Raises IndexError where no dispatch of the backend shows a check; ``render`` does not call it then.
    """
    shown = facts.shown(place.overrides)
    deciding = shown[0]
    conclusion = conclusion_of(deciding, place)
    url = change_url(facts, place)
    page = f"[the relay's page of this change](<{url}>)"
    numbers = {change.id: change.number for change in facts.changes if change.kind == "pull_request"}
    summary: list[Section] = []
    text: list[Section] = []
    for one in shown:
        if len(shown) > 1:
            number = numbers.get(one.change_id)
            name = f"pull request {number}" if number is not None else "the merge group"
            summary.append(Section((f"### For {name}",), (), ""))
        summary += [overview(one, one.effect(place.overrides), page, place), *combinations(one, page)]
        act = todo(one)
        if act:
            summary.append(Section((f"**What to do**: {act}{oncall(one)}",), (), ""))
        # What failed is what a reader came for, and a thousand jobs would stand before it.
        text += [*tests(one, page), *jobs(one, page)]
    actions = _buttons(deciding, conclusion)
    if actions and any(change.kind == "pull_request" for change in facts.open_changes):
        summary.append(Section((run_again(deciding),), (), ""))
    summary.append(where(shown, url))
    return Rendered(
        status="completed" if conclusion else "queued" if deciding.outcome is Outcome.QUEUED else "in_progress",
        conclusion=conclusion,
        title=plain(backend_title(deciding), MAX_TITLE),
        summary=assemble(summary, MAX_TEXT - _SPARE),
        text=assemble(text, MAX_TEXT - _SPARE),
        details_url=url,
        started_at=deciding.started_at or deciding.created_at,
        completed_at=None if conclusion is None else deciding.outcome_at,
        partial=conclusion is not None and any(one.outstanding for one in shown),
        actions=actions,
    )


def _buttons(one: DispatchFacts, conclusion: Conclusion | None) -> tuple[Button, ...]:
    """What can be asked for at a backend's check, once it has concluded as anything but success.

    Where no run is known there is nothing to run again, and a backend that is paused is told of nothing.
    """
    if conclusion in {None, Conclusion.SUCCESS} or one.outcome is Outcome.PAUSED:
        return ()
    unheard = one.outcome in {Outcome.SILENT, Outcome.UNDELIVERED} and not one.legs
    return (_REDISPATCH,) if unheard else (_RERUN, _REDISPATCH)


def render_job(facts: CheckFacts, place: Place) -> Rendered:
    """One job's check under production's name (``CRCR_CHECKS=job``): all legs of that name, the worst decides.

    Where the backend was told again and the job has not reported yet, it follows the backend.
    """
    whole = render_backend(facts, place)
    deciding = facts.shown(place.overrides)[0]
    mine = tuple(
        leg for leg in deciding.legs if job_check_name(deciding.backend, leg.workflow_name, leg.job_name) == facts.name
    )
    if not mine:
        return whole
    ended = [Conclusion(leg.conclusion) for leg in mine if leg.conclusion is not None]
    page = f"[the relay's page of this change](<{whole.details_url}>)"
    one = replace(deciding, legs=mine, missing_versions=())
    running = len(ended) < len(mine)
    if running and not deciding.awaited:
        # The backend was concluded without this job: its own check must end as well.
        conclusion = whole.conclusion if whole.conclusion not in _SATISFYING else Conclusion.NEUTRAL
    else:
        conclusion = None if running else worst(ended)
    ends = [leg.completed_at for leg in mine if leg.completed_at is not None]
    return Rendered(
        status="in_progress" if conclusion is None else "completed",
        conclusion=conclusion,
        title=plain(job_title(deciding, mine, conclusion), MAX_TITLE),
        summary=assemble([*combinations(one, page), where((one,), whole.details_url)], MAX_TEXT - _SPARE),
        text=assemble([*tests(one, page), *jobs(one, page)], MAX_TEXT - _SPARE),
        details_url=whole.details_url,
        started_at=min((leg.started_at for leg in mine if leg.started_at is not None), default=deciding.created_at),
        completed_at=None if conclusion is None else max(ends, default=deciding.outcome_at),
        partial=conclusion is not None and running,
        actions=_buttons(deciding, conclusion),
    )
