"""Everything the relay remembers, as tables.

Rows are built from parsed values only: SQLModel tables do not validate what is put into them. Times are plain
``datetime`` annotations, which SQLModel stores as UTC and returns aware on both databases; an explicit
``DateTime(timezone=True)`` would lose the offset on SQLite. Words from closed sets are plain strings, so that a new
word needs no migration. Structured values that are only ever read whole (labels, terms) are JSON text.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, Text, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from relay.store.columns import BIG, counted, partly
from relay.store.tables_gaps import Gap, Listing, Turn
from relay.store.tables_lasting import AllowlistVersion, CombinationHistory, DispatchHistory, Document
from relay.store.tables_limits import Circuit, Pacing, what_may_go
from relay.store.tables_people import Audit, Command, Comment, Override


class Delivery(SQLModel, table=True):
    """One inbound webhook, parsed and trimmed; also the event log from which decisions can be replayed."""

    __tablename__ = "delivery"
    id: str = Field(primary_key=True, max_length=128)  # X-GitHub-Delivery: the same on a redelivery.
    event: str
    action: str | None = None
    repository: str
    sender: str = ""
    received_at: datetime = Field(index=True)
    change_id: int | None = Field(default=None, sa_type=BIG, index=True)
    payload: str = Field(sa_type=Text)  # The trimmed webhook as it is forwarded, JSON.
    plan: str = Field(sa_type=Text)  # What was decided: JSON list of {effect, backend, reason}.
    ground: str | None = Field(default=None, sa_type=Text)  # What it came from (relay.deciding.grounds), if kept.


class Change(SQLModel, table=True):
    """What is under test: one head of a pull request, a push, a merge group, or a commit somebody reported on."""

    __tablename__ = "change"
    __table_args__ = (
        UniqueConstraint("thread", "head_sha", name="uq_change_thread_head"),
        Index("ix_change_head_sha", "head_sha"),
        Index("ix_change_updated_at", "updated_at"),
        Index("ix_change_ended_at", "ended_at"),
    )
    id: int | None = Field(default=None, sa_column=counted())
    kind: str  # pull_request, push, merge_group, self_reported
    thread: str  # What the heads of one pull request, one ref or one queue entry have in common; never parsed.
    head_sha: str = Field(max_length=64)
    number: int | None = Field(default=None, sa_type=BIG, index=True)
    ref: str | None = None
    base_ref: str | None = None
    base_sha: str | None = None
    merge_sha: str | None = None
    landed_sha: str | None = None
    title: str = ""
    author: str = ""
    author_association: str = ""
    html_url: str = ""
    draft: bool = False
    labels: str = Field(default="[]", sa_type=Text)
    state: str = "open"  # open, superseded, closed, landed
    verified: bool = True  # False for a self-reported commit until upstream confirmed that it has it.
    delivery_id: str | None = None  # The newest delivery whose payload describes this head.
    created_at: datetime
    updated_at: datetime  # GitHub's own updated_at where the event has one, else our receipt: orders the heads.
    received_at: datetime
    ended_at: datetime | None = None  # From when on it grows old (relay.store.retention); None while a gate may wait.


class Dispatch(SQLModel, table=True):
    """One backend told (or not told, with the reason) of one change."""

    __tablename__ = "dispatch"
    __table_args__ = (
        UniqueConstraint("delivery_id", "backend", name="uq_dispatch_delivery_backend"),
        Index("ix_dispatch_change_backend", "change_id", "backend"),
        Index("ix_dispatch_backend_id", "backend", "id"),
        partly("ix_dispatch_next_deadline", "next_deadline", where="next_deadline IS NOT NULL"),
        # The few that wait for their backend's pause to end, among all that were ever told.
        partly("ix_dispatch_paused", "backend", where="state = 'paused'"),
    )
    id: int | None = Field(default=None, sa_column=counted())
    change_id: int = Field(sa_type=BIG, foreign_key="change.id")
    backend: str
    level: int
    device: str | None = None
    purpose: str  # test (owes results), notify (closed and the like: owes nothing), report (nothing was sent)
    event_type: str
    delivery_id: str  # client_payload.delivery_id
    origin_delivery: str  # The webhook, or other cause, that made us dispatch.
    payload_delivery: str | None = None  # Whose stored payload is sent.
    state: str  # pending_paths, planned, sent, filtered, superseded, dead, paused, self_reported
    reason_code: str
    reason: str = Field(default="", sa_type=Text)
    terms: str = Field(sa_type=Text)  # The entry's terms at dispatch, JSON of relay.deciding.terms.Terms.
    created_at: datetime
    sent_at: datetime | None = None
    started_at: datetime | None = None  # Receipt of the first report of a start.
    give_up_at: datetime | None = None  # created_at + queue + run: the gate waits no longer.
    next_deadline: datetime | None = None  # When the sweep must look at this dispatch again; None when settled.
    concluded: str | None = None  # What we concluded ourselves at a deadline (silent, lost, incomplete, undelivered).
    concluded_at: datetime | None = None
    outcome: str  # levels.outcomes.Outcome as it stands
    outcome_at: datetime
    legs_reported: int = 0
    legs_expected: int | None = None
    late: bool = False  # A report arrived after we had concluded.
    cause: str = ""  # Who or what asked for a dispatch that is no webhook's own: a command, a button.
    rerun_at: datetime | None = None  # When somebody last asked for its runs again, and who.
    rerun_by: str = ""
    observed_at: datetime | None = None  # When GitHub was last asked about its runs.
    observe_note: str = ""  # What could not be observed, and why.


class Report(SQLModel, table=True):
    """One callback as received, without its capability token. Rows are never changed."""

    __tablename__ = "report"
    __table_args__ = (
        UniqueConstraint("digest", name="uq_report_digest"),
        Index("ix_report_dispatch_job", "dispatch_id", "job_name"),
    )
    id: int | None = Field(default=None, sa_column=counted())
    digest: str = Field(max_length=64)  # SHA-256 over what makes two reports the same report.
    dispatch_id: int = Field(sa_type=BIG, foreign_key="dispatch.id")
    backend: str
    issuer: str
    event_name: str = ""  # The token's; empty where the issuer has none.
    decides: bool  # False: recorded, but no gate or verdict listens to it.
    decides_reason: str = ""
    run_id: str
    run_attempt: int
    job_name: str
    combination: str = ""  # 12 hex digits, empty where none was stated.
    backend_version: str | None = None
    suite_version: str | None = None
    environment: str = Field(default="{}", sa_type=Text)
    check_run_id: str | None = None
    status: str
    conclusion: str | None = None
    received_at: datetime
    claimed_started_at: datetime | None = None
    claimed_completed_at: datetime | None = None
    passed: int | None = Field(default=None, sa_type=BIG)
    failed: int | None = Field(default=None, sa_type=BIG)
    skipped: int | None = Field(default=None, sa_type=BIG)
    total: int | None = Field(default=None, sa_type=BIG)
    errors: int | None = Field(default=None, sa_type=BIG)
    suite_digest: str | None = None
    expected_jobs: int | None = None
    failure_class: str | None = None
    workflow_name: str = ""
    url: str = Field(default="", sa_type=Text)
    artifact_url: str = Field(default="", sa_type=Text)
    jti: str = ""
    notes: str = Field(default="[]", sa_type=Text)  # Where the body differed from our record (CASES 24).
    body: str = Field(sa_type=Text)


class Job(SQLModel, table=True):
    """One leg: what the fold made of the reports about one job of one run attempt in one combination."""

    __tablename__ = "job"
    __table_args__ = (Index("ix_job_dispatch", "dispatch_id", "job_name"),)
    id: int | None = Field(default=None, sa_column=counted())
    dispatch_id: int = Field(sa_type=BIG, foreign_key="dispatch.id")
    report_id: int = Field(sa_type=BIG)  # The report whose details stand.
    run_id: str
    run_attempt: int
    job_name: str
    combination: str = ""
    backend_version: str | None = None
    suite_version: str | None = None
    environment: str = Field(default="{}", sa_type=Text)
    check_run_id: str | None = None
    status: str
    conclusion: str | None = None  # claimed
    observed: str | None = None  # seen at GitHub
    started_at: datetime | None = None
    completed_at: datetime | None = None
    queue_seconds: float | None = None
    execution_seconds: float | None = None
    passed: int | None = Field(default=None, sa_type=BIG)
    failed: int | None = Field(default=None, sa_type=BIG)
    skipped: int | None = Field(default=None, sa_type=BIG)
    total: int | None = Field(default=None, sa_type=BIG)
    failure_class: str | None = None
    conflicting: bool = False
    deciding: bool = True
    late: bool = False
    url: str = Field(default="", sa_type=Text)
    artifact_url: str = Field(default="", sa_type=Text)


class TestResult(SQLModel, table=True):
    """One test that did not pass, as a report told it."""

    __test__ = False  # pytest would take the name for a test class.
    __tablename__ = "test_result"
    id: int | None = Field(default=None, sa_column=counted())
    report_id: int = Field(sa_type=BIG, foreign_key="report.id", index=True)
    name: str = Field(sa_type=Text)
    classname: str = Field(default="", sa_type=Text)
    message: str = Field(default="", sa_type=Text)
    stacktrace: str = Field(default="", sa_type=Text)
    duration: float | None = None


class Check(SQLModel, table=True):
    """One check run of ours on one commit: what it should show and what GitHub last took."""

    __tablename__ = "check"
    __table_args__ = (
        UniqueConstraint("head_sha", "name", name="uq_check_head_name"),
        # The few that owe a write, among the many that do not.
        Index(
            "ix_check_owed",
            "id",
            sqlite_where=text("wanted IS NOT applied"),
            postgresql_where=text("wanted IS DISTINCT FROM applied"),
        ),
        Index("ix_check_creating", "id", sqlite_where=text("creating = 1"), postgresql_where=text("creating")),
    )
    id: int | None = Field(default=None, sa_column=counted())
    head_sha: str = Field(max_length=64)
    name: str
    backend: str | None = None  # None for the gate.
    wanted: str | None = None  # Hash of the state that should show.
    applied: str | None = None  # Hash of the state GitHub took last.
    github_id: int | None = Field(default=None, sa_type=BIG)
    creating: bool = False  # A create was sent and its answer never noted: look before creating again.
    create_sent_at: datetime | None = None  # When the last create was sent, to know until when one may come late.
    status: str = "queued"
    conclusion: str | None = None
    title: str = Field(default="", sa_type=Text)
    summary: str = Field(default="", sa_type=Text)
    text: str = Field(default="", sa_type=Text)
    details_url: str = Field(default="", sa_type=Text)
    created_at: datetime
    written_at: datetime | None = None
    writes: int = 0
    last_error: str | None = Field(default=None, sa_type=Text)


class Effect(SQLModel, table=True):
    """Something we decided to do, written down in the transaction that decided it.

    Effects of one lane are performed one after another, in the order they were planned.
    """

    __tablename__ = "effect"
    __table_args__ = (
        # In the words of candidates.IS_OPEN, by which statements find it.
        partly("ix_effect_open", "lane", "id", where="state IN ('ready', 'running')"),
        # At most one waiting effect per subject where a second would only repeat the first (checks, pins).
        Index(
            "uq_effect_coalesced",
            "coalesce_key",
            unique=True,
            sqlite_where=text("state = 'ready' AND coalesce_key IS NOT NULL"),
            postgresql_where=text("state = 'ready' AND coalesce_key IS NOT NULL"),
        ),
        Index("ix_effect_subject", "kind", "subject_id"),
        partly("ix_effect_running", "pacing", where="state = 'running'"),
        *what_may_go(),
        partly("ix_effect_dead", "id", where="state = 'dead'"),
        # What one backend was told in the last minutes, or is still to be told, among all that it ever was.
        partly("ix_effect_dispatched", "subject", "finished_at", where="kind = 'dispatch'"),
    )
    id: int | None = Field(default=None, sa_column=counted())
    lane: str = Field(max_length=512)
    pacing: str = Field(max_length=128)  # The account whose limits hold this effect back.
    kind: str
    subject_id: int = Field(default=0, sa_type=BIG)
    subject: str = ""
    coalesce_key: str | None = None
    state: str = "ready"  # ready, running, done, dead, cancelled
    priority: int = 0  # Smaller goes first.
    due: datetime
    not_before: datetime | None = None  # GitHub named this time: nothing brings ``due`` forward beyond it.
    attempts: int = 0  # Claims so far; also the fencing number of a lease.
    failures: int = 0  # Failures that count against the retry schedule; a rate limit does not.
    lease: datetime | None = None
    owner: str | None = None
    created_at: datetime
    finished_at: datetime | None = None
    reason: str = ""  # Stable code of the last failure, or why it was cancelled.
    detail: str = Field(default="", sa_type=Text)
    waits_for: str = Field(default="", max_length=200, sa_column_kwargs={"server_default": ""})


class Attempt(SQLModel, table=True):
    """One try at an effect and how it ended."""

    __tablename__ = "attempt"
    id: int | None = Field(default=None, sa_column=counted())
    effect_id: int = Field(sa_type=BIG, foreign_key="effect.id", index=True)
    number: int
    finished_at: datetime
    seconds: float
    outcome: str  # done, retry, limited, dead
    reason: str = ""
    detail: str = Field(default="", sa_type=Text)
    unsure: bool | None = None  # It may have worked although it failed, or an earlier try had; None: not kept.


class Backend(SQLModel, table=True):
    """What we know of a downstream repository beyond its allowlist entry."""

    __tablename__ = "backend"
    repo: str = Field(primary_key=True, max_length=160)
    repository_id: int | None = Field(default=None, sa_type=BIG)  # Pinned from GitHub's answer to our first mint.
    owner_id: int | None = Field(default=None, sa_type=BIG)
    installation_id: int | None = Field(default=None, sa_type=BIG)
    private: bool = False
    pinned_at: datetime | None = None
    paused_until: datetime | None = None
    pause_reason: str | None = None
    demoted_to: int | None = None  # A level below the allowlist's, until then; needs no change of the file.
    demoted_until: datetime | None = None
    demote_reason: str | None = None
    last_seen_at: datetime | None = None
    last_sent_at: datetime | None = None
    last_error: str | None = Field(default=None, sa_type=Text)
    last_error_at: datetime | None = None


class Observation(SQLModel, table=True):
    """One attempt of one run as GitHub shows it."""

    __tablename__ = "observation"
    __table_args__ = (UniqueConstraint("dispatch_id", "run_id", "run_attempt", name="uq_observation_attempt"),)
    id: int | None = Field(default=None, sa_column=counted())
    dispatch_id: int = Field(sa_type=BIG, foreign_key="dispatch.id")
    run_id: str
    run_attempt: int
    status: str
    conclusion: str | None = None
    workflow: str = ""  # The workflow file's path.
    jobs: str = Field(default="[]", sa_type=Text)  # JSON list of {id, name, status, conclusion}.
    etag: str | None = None
    seen_at: datetime


metadata = SQLModel.metadata

__all__ = [
    "AllowlistVersion",
    "Attempt",
    "Audit",
    "Backend",
    "Change",
    "Check",
    "Circuit",
    "CombinationHistory",
    "Command",
    "Comment",
    "Delivery",
    "Dispatch",
    "DispatchHistory",
    "Document",
    "Effect",
    "Gap",
    "Job",
    "Listing",
    "Observation",
    "Override",
    "Pacing",
    "Report",
    "TestResult",
    "Turn",
    "metadata",
]
