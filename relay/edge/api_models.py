"""What the API says, as models: each field with its meaning and unit, so that the OpenAPI description is of use.

Text that others wrote arrives here clean and cut (``relay.store.reading``); it is text, never HTML or Markdown.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from levels.outcomes import GateEffect, Outcome

#: A level as people write it.
LevelName = Annotated[
    str,
    BeforeValidator(lambda level: f"L{int(level)}" if isinstance(level, int) else level),
    Field(description="L1 to L4", pattern="^L[1-4]$"),
]
Repo = Annotated[str, BeforeValidator(str), Field(description="owner/repo in lower case")]


class Model(BaseModel):
    """Read from the values of ``relay.store.reading`` by their names."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


class FieldProblem(Model):
    """One field that cannot be accepted."""

    field: str = Field(description="Its path, such as query.limit")
    rule: str = Field(description="The rule that it breaks")
    fix: str = Field(description="What to send instead; empty where the rule says it")


class Problem(Model):
    """A refusal, as RFC 9457 has it."""

    ok: bool = Field(description="Always false")
    type: str
    title: str
    status: int
    code: str = Field(description="Stable; for programs")
    detail: str = Field(description="For people")
    errors: list[FieldProblem] = Field(default_factory=list, description="The fields at fault, where there are any")


class CheckModel(Model):
    """One check run on the change's head, as GitHub took it last."""

    name: str
    backend: str | None = Field(description="Null for the gate")
    status: str = Field(description="queued, in_progress or completed")
    conclusion: str | None = Field(description="Null until completed")
    title: str
    written_at: datetime | None = Field(description="Null while GitHub has not taken it yet")
    last_error: str | None = Field(description="Why the last write failed, if it did")


class OutcomeCountModel(Model):
    """How many backends stand so."""

    outcome: Outcome
    count: int


class ChangeModel(Model):
    """What is under test: one head of a pull request, a push, a merge group, or a commit that somebody reported on."""

    id: int
    kind: str = Field(description="pull_request, push, merge_group or self_reported")
    number: int | None = Field(description="The pull request's number")
    ref: str | None
    base_ref: str | None
    head_sha: str
    title: str
    author: str
    html_url: str | None = Field(description="Its page at GitHub")
    draft: bool
    labels: list[str]
    state: str = Field(description="open, superseded (a newer head came), closed or landed")
    verified: bool = Field(description="False for a self-reported commit that upstream has not confirmed")
    received_at: datetime = Field(description="When we heard of it last")
    updated_at: datetime = Field(description="GitHub's time of its newest event")
    gate: CheckModel | None = Field(description="The check that a ruleset requires; null where there is none")
    outcomes: list[OutcomeCountModel] = Field(description="How its backends stand")


class ChangeList(Model):
    """Changes, newest first."""

    items: list[ChangeModel]
    next: str | None = Field(description="Send this as `before` for the next page; null on the last")


class HeadModel(Model):
    """Another head of the same pull request or ref."""

    id: int
    head_sha: str
    state: str


class FailedTestModel(Model):
    """One test that did not pass, as the backend told it."""

    name: str
    classname: str
    message: str
    on_base: bool = Field(description="It fails on the base branch too, in the same version and environment")


class LegModel(Model):
    """One job of one run attempt in one combination."""

    job_name: str
    workflow_name: str
    run_id: str
    run_attempt: int
    check_run_id: str | None
    status: str
    outcome: Outcome = Field(description="The conclusion; running without one, disputed where GitHub shows otherwise")
    conclusion: str | None = Field(description="Claimed by the backend")
    observed: str | None = Field(description="Seen at GitHub")
    started_at: datetime | None
    completed_at: datetime | None
    queue_seconds: float | None = Field(description="From our 204 to its first report of a start")
    execution_seconds: float | None = Field(description="From its report of a start to that of its end")
    passed: int | None
    failed: int | None
    skipped: int | None
    total: int | None
    failure_class: str | None = Field(description="Claimed: test, infra or timeout")
    deciding: bool = Field(description="False where a newer attempt replaced it, or its run decides nothing")
    conflicting: bool = Field(description="Different conclusions were reported; the worse stands")
    late: bool = Field(description="It came after we had concluded")
    url: str | None = Field(description="Null where none was stated, it is unsafe, or the backend is private")
    artifact_url: str | None = Field(description="Likewise")
    failed_tests: list[FailedTestModel] = Field(description="The first few; empty for a private backend")
    failed_tests_kept: int = Field(description="How many were told by name; 0 for a private backend")


class CombinationModel(Model):
    """All deciding jobs of one backend version with one suite version in one environment."""

    id: str = Field(description="12 hex digits; empty where none was stated")
    backend_version: str | None
    suite_version: str | None
    environment: dict[str, str]
    outcome: Outcome = Field(description="That of the worst job")
    failing: int = Field(description="How many jobs failed or are disputed")
    legs: list[LegModel]


class ElsewhereModel(Model):
    """The backend's last settled results on other changes."""

    settled: int
    passed: int


class BaseRunModel(Model):
    """The backend's settled result on a commit of the base branch."""

    change_id: int = Field(description="Its change here")
    head_sha: str
    at: datetime
    passed: bool
    named: int = Field(description="How many failing tests it named; bounded")


class OnBaseModel(Model):
    """The tests that failed here, held against the backend's newest result on the base branch."""

    branch: str
    run: BaseRunModel | None = Field(description="Null while there is no result on the base")
    failing: int = Field(description="Tests that failed here, over all jobs")
    known: int = Field(description="How many of them fail on the base too")
    whole: bool = Field(description="They are all that failed here, and nothing is missing")
    sure: bool = Field(description="All tests that failed were named and compared: the others do not fail there")


class DispatchModel(Model):
    """One time a backend was told of this change, or was to be."""

    id: int
    level: LevelName
    device: str | None
    purpose: str = Field(description="test owes results, notify owes none, report was reported by itself")
    event_type: str
    delivery_id: str
    origin_delivery: str = Field(description="The webhook, or other cause, that made us dispatch")
    state: str = Field(description="pending_paths, planned, sent, filtered, superseded, dead, paused or self_reported")
    reason_code: str
    reason: str
    outcome: Outcome
    outcome_at: datetime
    created_at: datetime
    sent_at: datetime | None = Field(description="GitHub's 204")
    started_at: datetime | None = Field(description="Receipt of the first report of a start")
    concluded_at: datetime | None = Field(description="When a deadline made us conclude")
    next_deadline: datetime | None = Field(description="Null once settled")
    give_up_at: datetime | None = Field(description="The gate waits no longer than this")
    legs_reported: int
    legs_expected: int | None
    late: bool = Field(description="A report came after we had concluded")
    observed_at: datetime | None = Field(description="When GitHub was last asked about its runs")
    observe_note: str = Field(description="What GitHub shows beside the claims, or why nothing can be seen there")
    cause: str = Field(description="Who or what asked for it to be told anew; empty for a webhook's own dispatch")
    rerun_at: datetime | None = Field(description="When its runs were last asked for again")
    rerun_by: str = Field(description="By whom; empty where nobody did")


class OverrideModel(Model):
    """A person who answers for the backend on this commit, in place of a result."""

    who: str
    why: str
    at: datetime
    number: int | None = Field(description="The pull request it was written on")


class AskedModel(Model):
    """What somebody asked for by a comment or a button, and what became of it."""

    at: datetime
    sender: str
    role: str | None = Field(description="At GitHub; null until it has told")
    source: str = Field(description="comment, action (a button of ours), check_run or check_suite")
    verb: str
    backend: str = Field(description="As it was written; empty where none was named")
    words: str = Field(description="An override's reason, or what could not be understood")
    state: str = Field(description="asked, done, refused or failed")
    outcome: str = Field(description="Why, or what was done")


class BackendOnChangeModel(Model):
    """One backend on this change: the dispatch that counts, and its results per combination."""

    backend: Repo
    level_now: LevelName | None = Field(description="The smaller of the level then and now; null once unlisted")
    private: bool = Field(description="Test names, URLs and messages are left out")
    gate: GateEffect = Field(description="What it does to the gate")
    title: str = Field(description="What happened, in a line")
    meaning: str = Field(description="What its outcome means")
    todo: str = Field(description="What to do about it; empty where there is nothing to do")
    dispatch: DispatchModel
    override: OverrideModel | None = Field(description="Null where nobody answers for it")
    missing_versions: list[str] = Field(description="Backend versions of its entry that have not reported")
    elsewhere: ElsewhereModel | None = Field(description="For a backend without a good result: how it does elsewhere")
    base: OnBaseModel | None = Field(description="Null where no test failed by name, or there is no base")
    combinations: list[CombinationModel]
    replaced_legs: list[LegModel] = Field(description="Legs that decide nothing, or that a newer attempt replaced")
    legs_left_out: int = Field(description="Legs beyond the bound of a page")
    others: list[DispatchModel] = Field(description="Earlier dispatches and notices")


class DecidedModel(Model):
    """What one webhook decided for one backend."""

    delivery_id: str
    event: str
    action: str | None
    backend: str
    effect: str = Field(description="dispatch, decide_paths or none")
    reason: str = Field(description="Stable code")
    detail: str


class GateModel(Model):
    """May I merge?"""

    effect: GateEffect | None = Field(description="Null where the change has no gate, or it is over")
    answer: str = Field(description="In a word")
    title: str = Field(description="The title of the check")


class ChangeDetail(Model):
    """Everything about one change."""

    change: ChangeModel
    gate: GateModel
    backends: list[BackendOnChangeModel] = Field(description="What decides the gate first")
    not_called: list[DecidedModel] = Field(description="Backends that were not told, with the reason")
    checks: list[CheckModel]
    heads: list[HeadModel] = Field(description="Other heads of the same pull request or ref, newest first")
    deliveries: list[str] = Field(description="The webhooks that concerned it, newest first")
    asked: list[AskedModel] = Field(description="What people asked for here, newest first")
