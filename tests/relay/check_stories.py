"""Facts of checks in a few words, for the tests of their wording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from allowlist.model import Level, OnSilence, RepoName
from levels.outcomes import Outcome
from relay.deciding.facts import (
    BaseRun,
    ChangeFacts,
    CheckFacts,
    DispatchFacts,
    FailedTest,
    LegFacts,
    OnBase,
    Place,
    RowFacts,
)
from relay.deciding.terms import Terms
from relay.texts.words import GATE_NAME, backend_check_name

HEAD = "abc1234def5678" + "0" * 26
NOON = datetime(2026, 11, 30, 14, 5, tzinfo=UTC)
PLACE = Place("https://relay.test", "ciflow/crcr/")
TERMS = Terms(7200.0, 21600.0)


def at(minutes: float) -> datetime:
    """The moment this many minutes after 14:05 UTC."""
    return NOON + timedelta(minutes=minutes)


def leg(
    job: str = "test (3.12)",
    conclusion: str | None = "success",
    *,
    version: str | None = "2.9.0",
    suite: str | None = "2026.11",
    environment: tuple[tuple[str, str], ...] = (("python", "3.12"), ("sdk", "8.1")),
    counts: tuple[int | None, int | None, int | None] = (120, 0, 3),
    seconds: float | None = 754.0,
    url: str = "https://ci.test/runs/100",
    tests: Sequence[tuple[str, str, str]] = (),
    workflow: str = "ci",
    failure_class: str | None = None,
    conflicting: bool = False,
    observed: str | None = None,
    attempt: int = 1,
    artifact_url: str = "",
) -> LegFacts:
    """One leg; ``tests`` are name, class and message of those that failed."""
    return LegFacts(
        job_name=job,
        workflow_name=workflow,
        run_id="100",
        run_attempt=attempt,
        backend_version=version,
        suite_version=suite,
        environment=environment,
        status="in_progress" if conclusion is None else "completed",
        conclusion=conclusion,
        observed=observed,
        started_at=at(26),
        completed_at=None if conclusion is None else at(40),
        seconds=seconds,
        passed=counts[0],
        failed=counts[1],
        skipped=counts[2],
        failure_class=failure_class,
        conflicting=conflicting,
        url=url,
        artifact_url=artifact_url,
        failed_tests=tuple(FailedTest(*test) for test in tests),
        failed_tests_kept=len(tests),
    )


def dispatch(
    outcome: Outcome = Outcome.QUEUED,
    *legs: LegFacts,
    backend: str = "org/npu",
    number: int = 1,
    level: Level | None = Level.L4,
    level_then: Level = Level.L4,
    state: str = "sent",
    reason: str = "",
    reason_code: str = "wanted",
    shown: bool = True,
    ended: float = 42,
    started: bool | None = None,
    concluded: float | None = None,
    expected: int | None = None,
    missing_versions: tuple[str, ...] = (),
    late: bool = False,
    private: bool = False,
    oncalls: tuple[str, ...] = (),
    on_silence: OnSilence = OnSilence.STEP_DOWN,
) -> DispatchFacts:
    """One backend told at 14:05 UTC."""
    has_started = bool(legs) if started is None else started
    return DispatchFacts(
        id=number,
        change_id=1,
        backend=RepoName.parse(backend),
        level_then=level_then,
        level=level,
        device="dev1",
        shown=shown,
        state=state,
        reason_code=reason_code,
        reason=reason,
        terms=replace(TERMS, on_silence=on_silence),
        outcome=outcome,
        outcome_at=at(ended),
        created_at=NOON,
        sent_at=NOON if state == "sent" else None,
        started_at=at(26) if has_started else None,
        give_up_at=at(480),
        next_deadline=None,
        concluded_at=None if concluded is None else at(concluded),
        legs_reported=len(legs),
        legs_expected=expected,
        missing_versions=missing_versions,
        late=late,
        private=private,
        oncalls=oncalls,
        legs=legs,
    )


ROW = RowFacts(1, "+", None, 1001, False, "queued", None, "", NOON)
CHANGE = ChangeFacts(1, "pull_request", 7, "main", "open", (), NOON)


def gate(*dispatches: DispatchFacts) -> CheckFacts:
    """The gate over these."""
    return CheckFacts(ROW, GATE_NAME, HEAD, None, (CHANGE,), dispatches)


def check(*dispatches: DispatchFacts) -> CheckFacts:
    """The check of the first one's backend."""
    backend = dispatches[0].backend
    return CheckFacts(ROW, backend_check_name(backend), HEAD, backend, (CHANGE,), dispatches)


#: A leg with two failing tests.
FAILED = leg(
    "test (3.13)",
    "failure",
    environment=(("python", "3.13"), ("sdk", "8.1")),
    counts=(1180, 2, 41),
    tests=[
        ("test_matmul_fp16", "tests.ops.TestMatmul", "AssertionError: 0.31 != 0.30 within 1e-3\nmore lines"),
        ("test_conv2d[channels_last]", "tests.ops.TestConv", "RuntimeError: device fault at 0x7f"),
    ],
)

#: What the base branch shows: a commit that failed an hour before, and one that passed.
BASE_FAILED = BaseRun(41, "ba5e00c" + "0" * 33, at(-60), passed=False, named=3)
BASE_PASSED = replace(BASE_FAILED, passed=True, named=0)


def known(one: DispatchFacts, *names: str, branch: str = "main", run: BaseRun | None = BASE_FAILED) -> DispatchFacts:
    """The same, where the tests of these names fail on the base too."""
    legs = tuple(
        replace(
            leg,
            failed_tests=tuple(
                replace(test, on_base=test.name in names)
                for test in sorted(leg.failed_tests, key=lambda test: test.name in names)
            ),
        )
        for leg in one.legs
    )
    tests = [test for leg in legs for test in leg.failed_tests]
    found = sum(1 for test in tests if test.on_base)
    return replace(one, legs=legs, base=OnBase(branch, run, len(tests), found, whole=found == len(tests), sure=True))
