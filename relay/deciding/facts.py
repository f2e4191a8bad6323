"""What one check is made of, as values: read by ``relay.store.check_facts``, put into words in ``relay.texts``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from allowlist.model import Level, RepoName
from levels.gate import OVERRIDDEN, WORST_FIRST, GateVerdict, Required, decide
from levels.outcomes import GATE_TABLE, NO_OVERRIDES, UNSETTLED, GateEffect, Outcome, effect_of
from levels.powers import POWERS, Show
from relay.deciding.terms import Terms


@dataclass(frozen=True, slots=True)
class FailedTest:
    """One test that did not pass, as the backend told it: hostile text."""

    name: str
    classname: str
    message: str
    on_base: bool = False  # It fails on the base branch too.


@dataclass(frozen=True, slots=True)
class LegFacts:
    """One leg of a backend's run. Names, versions, URLs and tests are what the backend said: hostile text.

    ``failed_tests`` are the first few, ``failed_tests_kept`` is how many we were told in full.
    """

    job_name: str
    workflow_name: str
    run_id: str
    run_attempt: int
    backend_version: str | None
    suite_version: str | None
    environment: tuple[tuple[str, str], ...]
    status: str
    conclusion: str | None
    observed: str | None
    started_at: datetime | None
    completed_at: datetime | None
    seconds: float | None
    passed: int | None
    failed: int | None
    skipped: int | None
    failure_class: str | None
    conflicting: bool
    url: str
    artifact_url: str
    failed_tests: tuple[FailedTest, ...] = ()
    failed_tests_kept: int = 0


@dataclass(frozen=True, slots=True)
class ChangeFacts:
    """One change whose head the check stands on. ``replaced_by`` is the thread's head that came after, if one did."""

    id: int
    kind: str
    number: int | None
    base_ref: str | None
    state: str
    labels: tuple[str, ...]
    received_at: datetime
    replaced_by: str | None = None
    ended_at: datetime | None = None  # Of an open merge group: its gate waits no longer since then.
    base_sha: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether this is still the change's head and the change is not over."""
        return self.state == "open"


@dataclass(frozen=True, slots=True)
class OverrideFacts:
    """Who answers for this backend on a head, and why. ``why`` is what a person wrote: hostile text."""

    backend: RepoName
    number: int | None
    who: str
    why: str
    at: datetime


@dataclass(frozen=True, slots=True)
class BaseRun:
    """A backend's settled result on a commit of the base branch. ``named`` counts its failing tests told by name."""

    change_id: int
    head_sha: str
    at: datetime
    passed: bool
    named: int


@dataclass(frozen=True, slots=True)
class OnBase:
    """The tests that failed here, held against the same backend's newest result on the base branch.

    ``run`` is None while there is no result there. ``known`` of the ``failing`` tests fail there too; ``whole``: they
    are all that failed here, in every job, and nothing is missing. ``sure``: every test that failed was named and
    compared on both sides, so that of the others it is known that they do not fail there.
    """

    branch: str
    run: BaseRun | None
    failing: int
    known: int = 0
    whole: bool = False
    sure: bool = False


@dataclass(frozen=True, slots=True)
class DispatchFacts:
    """What one backend was told of one change, and what has become of it.

    ``level`` is the smaller of the level at dispatch and the level now, None once the backend left the allowlist;
    ``shown`` says whether it has a check on this change; ``observe_note`` what GitHub
    shows beside the claims, or why nothing can be seen there.
    """

    id: int
    change_id: int
    backend: RepoName
    level_then: Level
    level: Level | None
    device: str | None
    shown: bool
    state: str
    reason_code: str
    reason: str
    terms: Terms
    outcome: Outcome
    outcome_at: datetime
    created_at: datetime
    sent_at: datetime | None
    started_at: datetime | None
    give_up_at: datetime | None
    next_deadline: datetime | None
    concluded_at: datetime | None
    legs_reported: int
    legs_expected: int | None
    missing_versions: tuple[str, ...]
    late: bool
    private: bool
    oncalls: tuple[str, ...]
    legs: tuple[LegFacts, ...] = ()
    observed_at: datetime | None = None
    observe_note: str = ""
    cause: str = ""
    rerun_at: datetime | None = None
    rerun_by: str = ""
    override: OverrideFacts | None = None
    of_pull: int | None = None  # In a merge group's gate: the pull request whose verdict this is.
    origin: str = ""  # The delivery, or other cause, that all of this began with.
    base: OnBase | None = None  # None where no test failed by name, or there is no base to look at.

    @property
    def standing(self) -> Outcome:
        """The outcome as the gate takes it: one that left the allowlist is not asked for."""
        return Outcome.UNLISTED if self.level is None else self.outcome

    @property
    def awaited(self) -> bool:
        """Whether a result is still to come and nothing has been concluded."""
        return self.outcome in UNSETTLED

    @property
    def outstanding(self) -> bool:
        """Whether legs are still to come although the outcome is settled."""
        if self.awaited or not self.legs:
            return False
        short = self.legs_expected is not None and self.legs_reported < self.legs_expected
        return short or bool(self.missing_versions) or any(leg.conclusion is None for leg in self.legs)

    @property
    def time_to_start(self) -> timedelta:
        """How long it may take to report a start: its queue time, unless the change itself cannot wait so long."""
        return min(self.terms.queue, self._patience)

    @property
    def time_to_finish(self) -> timedelta:
        """How long it may take from its start to all results, likewise."""
        return min(self.terms.run, self._patience)

    @property
    def _patience(self) -> timedelta:
        return timedelta.max if self.give_up_at is None else max(self.give_up_at - self.created_at, timedelta())

    def within(self, until: datetime, *, over: bool) -> DispatchFacts:
        """The same, for a change that waits until then and no longer. ``over``: that moment is past.

        A backend that had not started by then is silent, one that had is not done; a result that comes later still
        replaces either.
        """
        give_up_at = until if self.give_up_at is None else min(self.give_up_at, until)
        if not (over and self.awaited):
            return replace(self, give_up_at=give_up_at)
        outcome = Outcome.SILENT if self.outcome is Outcome.QUEUED else Outcome.TIMED_OUT
        return replace(self, give_up_at=give_up_at, outcome=outcome, outcome_at=until, concluded_at=until)

    def effect(self, overrides: Mapping[Outcome, GateEffect] = NO_OVERRIDES) -> GateEffect:
        """What it does to the gate; for a backend that does not gate, what its outcome would mean there."""
        if self.level is None or not POWERS[self.level].blocks:
            return GATE_TABLE[self.outcome]
        effect = effect_of(self.outcome, on_silence=self.terms.on_silence, overrides=overrides)
        return effect if self.override is None else OVERRIDDEN[effect]

    def while_paused(self, reason: str) -> DispatchFacts:
        """The same while its backend is paused: nobody waits for one of which nothing was heard.

        One that is planned still is in the worker's hands, and may be noted as sent without another look.
        """
        if self.state not in {"planned", "sent"} or self.outcome not in {Outcome.QUEUED, Outcome.SILENT}:
            return self
        return replace(self, outcome=Outcome.PAUSED, reason_code="paused", reason=reason)

    @property
    def rerun_asked(self) -> datetime | None:
        """When its runs were asked for again, until the first sign that they run."""
        at = self.rerun_at
        if at is None or self.awaited or self.outcome_at > at:
            return None
        heard = (moment for leg in self.legs for moment in (leg.started_at, leg.completed_at) if moment is not None)
        return None if any(moment > at for moment in heard) else at

    @property
    def gates(self) -> bool:
        """Whether its level lets it hold a merge back."""
        return self.level is not None and POWERS[self.level].blocks


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A gating backend whose own filters leave the change out, so that no dispatch of it exists."""

    backend: RepoName
    reason_code: str
    reason: str


@dataclass(frozen=True, slots=True)
class RowFacts:
    """The check's own row: what GitHub took last, and the mark that says which touches this look answers."""

    id: int
    mark: str | None
    applied: str | None
    github_id: int | None
    creating: bool
    status: str
    conclusion: str | None
    title: str
    created_at: datetime
    create_sent_at: datetime | None = None

    @property
    def completed(self) -> bool:
        """Whether GitHub shows it as completed, as far as we know."""
        return self.github_id is not None and self.status == "completed"

    @property
    def written(self) -> bool:
        """Whether GitHub has it, or may have it."""
        return self.github_id is not None or self.creating


@dataclass(frozen=True, slots=True)
class CheckFacts:
    """Everything that one check says. ``backend`` is None for the gate, and ``left_out`` is read for it alone."""

    row: RowFacts
    name: str
    head_sha: str
    backend: RepoName | None
    changes: tuple[ChangeFacts, ...]
    dispatches: tuple[DispatchFacts, ...]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def open_changes(self) -> tuple[ChangeFacts, ...]:
        """The changes that the check is computed over."""
        return tuple(change for change in self.changes if change.is_open)

    def shown(self, overrides: Mapping[Outcome, GateEffect] = NO_OVERRIDES) -> tuple[DispatchFacts, ...]:
        """The dispatches that this backend's check speaks of, the one that decides first."""
        mine = [one for one in self.dispatches if one.backend == self.backend and one.shown]
        return tuple(sorted(mine, key=lambda one: (WORST_FIRST.index(one.effect(overrides)), one.id)))

    def verdict(self, overrides: Mapping[Outcome, GateEffect] = NO_OVERRIDES) -> GateVerdict:
        """The gate's answer over all open changes with this head."""
        return decide((required(one) for one in self.dispatches), overrides)

    def answered_for(self, overrides: Mapping[Outcome, GateEffect] = NO_OVERRIDES) -> bool:
        """Whether the gate steps down, and for nothing but people who answer for a backend."""
        verdict = self.verdict(overrides)
        known = {str(one.id): one.override for one in self.dispatches}
        down = [line for line in verdict.lines if line.effect is GateEffect.STEPS_DOWN]
        return verdict.effect is GateEffect.STEPS_DOWN and all(known[line.detail] is not None for line in down)


def required(one: DispatchFacts) -> Required:
    """One dispatch as the gate weighs it."""
    return Required(
        one.backend,
        one.level or one.level_then,
        one.standing,
        one.terms.on_silence,
        str(one.id),
        overridden=one.override is not None,
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Where readers are sent, and what the settings make of an outcome."""

    public_url: str
    label_prefix: str
    overrides: Mapping[Outcome, GateEffect] = field(default_factory=lambda: NO_OVERRIDES)


def labelled(level: Level) -> bool:
    """Whether a backend of this level has a check only while its label is there."""
    return POWERS[level].check is Show.LABELLED
