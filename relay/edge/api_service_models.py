"""What the API says of the service itself: backends, deliveries, dead letters, decisions, and the allowlist."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from levels.outcomes import Outcome
from relay.edge.api_models import DecidedModel, LevelName, Model, OutcomeCountModel, Repo


class EntryModel(Model):
    """One backend's entry on the allowlist, with its defaults filled in."""

    repo: Repo
    level: LevelName
    line: int = Field(description="Its line in the file")
    oncalls: list[str]
    device: str | None
    events: list[str]
    actions: list[str]
    refs: list[str]
    base: list[str]
    labels: list[str]
    paths: list[str]
    authors: list[str]
    versions: list[str]
    queue_seconds: float = Field(description="How long it may take to start")
    run_seconds: float = Field(description="How long it may take from its start to all results")
    expected_jobs: int | None
    workflow: str | None
    every_commit: bool
    cancel_on_close: bool
    legacy: bool
    on_silence: str = Field(description="neutral or block")


class CircuitModel(Model):
    """Nothing that is sent to this backend works just now, so it is left alone but for a probe now and then."""

    state: str = Field(description="open, or off where nothing has worked for days")
    scope: str = Field(description="backend, account or github: what does not answer")
    since: datetime
    next_probe: datetime | None
    reason: str
    detail: str


class BackendModel(Model):
    """A backend: its entry, and what we know of its repository."""

    repo: Repo
    entry: EntryModel | None = Field(description="Null: not on the allowlist now")
    private: bool = Field(description="Also true until GitHub has told us")
    repository_id: int | None = Field(description="Pinned from GitHub's answer; null until then")
    owner_id: int | None
    installation_id: int | None = Field(description="Of our app; null while it is not known to be installed")
    pinned_at: datetime | None
    paused_until: datetime | None
    pause_reason: str | None
    demoted_to: LevelName | None = Field(description="Its level is at most this until then; an admin's act")
    demoted_until: datetime | None
    demote_reason: str | None
    last_seen_at: datetime | None = Field(description="Its last callback")
    last_sent_at: datetime | None = Field(description="Our last dispatch that GitHub took")
    last_error: str | None
    last_error_at: datetime | None
    circuit: CircuitModel | None = Field(description="Null: it answers as it should")
    outcomes: list[OutcomeCountModel] = Field(description="How its newest tests ended: 20 in the list, 100 on its own")


class BackendList(Model):
    """Backends by name."""

    items: list[BackendModel]
    next: str | None = Field(description="Send this as `after` for the next page; null on the last")


class RecentDispatchModel(Model):
    """One time this backend was told of a change, or was to be."""

    id: int
    change_id: int
    change_kind: str
    number: int | None
    ref: str | None
    head_sha: str
    title: str
    level: LevelName
    purpose: str
    state: str
    reason_code: str
    reason: str
    outcome: Outcome
    created_at: datetime
    sent_at: datetime | None
    started_at: datetime | None
    outcome_at: datetime
    legs_reported: int
    legs_expected: int | None
    late: bool


class BackendDetail(Model):
    """One backend and what it was told of, newest first."""

    backend: BackendModel
    dispatches: list[RecentDispatchModel]
    next: str | None = Field(description="Send this as `before` for the next page; null on the last")


class DeliveryModel(Model):
    """One inbound webhook. Its payload is not served."""

    id: str
    event: str
    action: str | None
    repository: str
    sender: str
    received_at: datetime
    change_id: int | None
    change_kind: str | None
    number: int | None
    head_sha: str | None
    called: int = Field(description="Backends that were to be told")
    left_out: int = Field(description="Backends that were not")


class DeliveryList(Model):
    """Webhooks, newest first."""

    items: list[DeliveryModel]
    next: str | None = Field(description="Send this as `before` for the next page; null on the last")


class AttemptModel(Model):
    """One try at an effect."""

    number: int
    finished_at: datetime
    seconds: float
    outcome: str = Field(description="done, retry, limited or dead")
    reason: str
    detail: str


class EffectModel(Model):
    """One thing that was to be done."""

    id: int
    kind: str
    state: str = Field(description="ready, running, done, dead or cancelled")
    due: datetime = Field(description="When it was, or is, to be tried next")
    attempts: int
    created_at: datetime
    finished_at: datetime | None
    reason: str
    detail: str
    tries: list[AttemptModel] = Field(description="The newest, in their order")


class FollowedModel(Model):
    """One backend's decision at this webhook, and what came of it."""

    decided: DecidedModel
    dispatch_id: int | None
    state: str | None
    reason_code: str | None
    reason: str | None
    outcome: Outcome | None
    sent_at: datetime | None
    effects: list[EffectModel]


class DeliveryDetail(Model):
    """One webhook with everything that was planned and tried because of it."""

    delivery: DeliveryModel
    decisions: list[FollowedModel]
    left_out: int = Field(description="Decisions beyond the bound of a page")


class DeadLetterModel(Model):
    """An effect that was given up. A redelivery at GitHub revives those of its webhook."""

    id: int
    kind: str
    subject: str
    change_id: int | None
    delivery_id: str | None
    attempts: int
    created_at: datetime
    finished_at: datetime | None
    reason: str
    detail: str


class DeadLetterList(Model):
    """What was given up, newest first."""

    items: list[DeadLetterModel]
    next: str | None = Field(description="Send this as `before` for the next page; null on the last")


class WhyModel(Model):
    """One decision about the backend at one webhook, and what came of it."""

    sentence: str = Field(description="All of it in a line")
    delivery_id: str
    event: str
    action: str | None
    received_at: datetime
    head_sha: str
    effect: str = Field(description="dispatch, decide_paths or none")
    reason: str
    detail: str
    dispatch_id: int | None
    state: str | None
    state_reason: str | None
    state_detail: str | None
    purpose: str | None
    outcome: Outcome | None
    sent_at: datetime | None
    waits: str | None = Field(description="What holds it back, where it is planned and something does")


class WhyList(Model):
    """Every decision about one backend for one pull request, oldest first."""

    pull: int
    backend: Repo
    decisions: list[WhyModel]


class FaultModel(Model):
    """Something wrong in the file."""

    line: int
    rule: str
    message: str
    fix: str
    severity: str = Field(description="error keeps its entry out of force, warning does not")


class AllowlistModel(Model):
    """The allowlist in force."""

    loaded: bool = Field(description="False until one was read for the first time")
    digest: str
    checked_at: datetime | None = Field(description="When its source was last read without trouble")
    age_seconds: float | None = Field(description="How long ago that was")
    trouble: str = Field(description="Why the last look failed; empty if it did not. The last good list stays in force")
    entries: list[EntryModel]
    faults: list[FaultModel]


class AuditModel(Model):
    """One act: who did what to which subject, and why. Acts of the service itself are `relay`'s or `allowlist`'s."""

    id: int
    at: datetime
    who: str
    what: str
    subject: str
    why: str
    before: str = Field(description="Empty where there was nothing")
    after: str = Field(description="Empty where nothing is left")


class AuditList(Model):
    """Acts, newest first."""

    items: list[AuditModel]
    next: str | None = Field(description="Send this as `before` for the next page; null on the last")
