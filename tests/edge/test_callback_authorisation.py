"""Who may report what: every refusal has its code, writes nothing, and the table of statuses knows them all."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from typing import Any

import pytest

from allowlist.model import Level, RepoName
from relay.edge.callback import STATUS
from relay.results import binding
from relay.store import tables
from relay.store.engine import Store
from tests.conftest import Clock
from tests.edge.callers import D1, Bench, id_of


@pytest.fixture
def bench(store: Store, clock: Clock) -> Bench:
    """A callback edge on each database."""
    return Bench(store, clock)


def refused(bench: Bench, answer: Any) -> tuple[int, str]:
    """The status and code of a refusal that left nothing behind."""
    assert not bench.rows(tables.Report)
    assert not bench.rows(tables.Job)
    assert answer.json()["ok"] is False
    return answer.status_code, answer.json()["code"]


def test_an_unlisted_caller_is_told_so(bench: Bench) -> None:
    """A valid token of a repository that nobody listed is worth a reason, not a row (CASES 26)."""
    assert (403, "not_listed") == refused(bench, bench.post(bench.body(), repo="org/stranger"))


def test_an_l1_caller_is_told_so(bench: Bench) -> None:
    """L1 is told of events and not recorded (CASES 26)."""
    bench.told("org/l1", Level.L1)

    assert (403, "below_l2") == refused(bench, bench.post(bench.body(), repo="org/l1"))


@pytest.mark.parametrize(("then", "now"), [(Level.L1, Level.L2), (Level.L2, Level.L1)])
def test_l2_at_dispatch_or_now_is_enough(bench: Bench, then: Level, now: Level) -> None:
    """Neither a promotion nor a demotion between start and end loses a result."""
    bench.told("org/l2", then)
    bench.relist("org/l2", level=now)

    assert bench.post(bench.body()).status_code == 200


def test_someone_elses_level_is_no_help(bench: Bench) -> None:
    """An L1 caller with an L2 backend's capability is still below L2."""
    theirs = bench.told("org/l2", Level.L2)
    bench.allow("org/l1", Level.L1)

    assert (403, "below_l2") == refused(bench, bench.post(bench.body(dispatch_id=theirs), repo="org/l1"))


@pytest.mark.parametrize("path", ["/github/callback", "/github/callback/batch"])
def test_production_s_silent_answer_can_be_had(store: Store, clock: Clock, path: str) -> None:
    """With the setting, below L2 and unlisted are answered 200 ignored, and nothing else is."""
    bench = Bench(store, clock, legacy_ignored=True)
    bench.told("org/l1", Level.L1)
    token = bench.issuers.github("org/l1", run_id="24033272679")
    body = bench.body()

    answer = bench.post([body] if path.endswith("batch") else body, token, path=path)

    assert answer.status_code == 200
    said = answer.json()[0] if path.endswith("batch") else answer.json()
    assert (True, "ignored") == (said["ok"], said.get("code", said["status"]))
    assert bench.post(body, repo="org/stranger").json() == {"ok": True, "status": "ignored"}
    assert not bench.rows(tables.Report)
    bench.allow("org/l2", Level.L2)
    assert bench.post(body).status_code == 404


@pytest.mark.parametrize("event", ["pull_request", "pull_request_target", "push", "workflow_run", "merge_group"])
def test_runs_that_anybody_can_start_may_not_report(bench: Bench, event: str) -> None:
    """Anyone's fork can mint in such a run (CASES 25)."""
    dispatch_id = bench.told("org/l2", Level.L2)
    token = bench.issuers.github("org/l2", run_id="24033272679", event_name=event)

    assert (403, "event_refused") == refused(bench, bench.post(bench.body(dispatch_id=dispatch_id), token))


@pytest.mark.parametrize("event", ["workflow_dispatch", "schedule"])
def test_runs_that_the_backend_starts_are_recorded_and_decide_nothing(bench: Bench, event: str) -> None:
    """A success by hand does not open an L4 gate, and neither claims nor failures of such a run count (CASES 25)."""
    dispatch_id = bench.told("org/l4", Level.L4)
    token = bench.issuers.github("org/l4", run_id="24033272679", event_name=event)

    answer = bench.post(bench.body(dispatch_id=dispatch_id, expected_jobs=9), token)

    assert (200, False) == (answer.status_code, answer.json()["decides"])
    assert event in answer.json()["reason"]
    report, job = bench.row(tables.Report), bench.row(tables.Job)
    assert (False, False, "success") == (report.decides, job.deciding, job.conclusion)
    assert ("queued", 0) == (bench.row(tables.Dispatch).outcome, bench.row(tables.Dispatch).legs_reported)
    assert not bench.rows(tables.Check)

    bench.post(bench.body(dispatch_id=dispatch_id, run_id="9"), repo="org/l4")

    assert ("success", None) == (bench.row(tables.Dispatch).outcome, bench.row(tables.Dispatch).legs_expected)


@pytest.mark.parametrize(
    ("pinned", "ref", "code"),
    [
        ("ci.yml", "org/l2/.github/workflows/ci.yml@refs/heads/main", 200),
        (".github/workflows/ci.yml", "ORG/L2/.github/workflows/ci.yml@refs/heads/main", 200),
        ("org/l2/.github/workflows/ci.yml", "org/l2/.github/workflows/ci.yml@refs/heads/x", 200),
        ("org/shared/.github/workflows/ci.yml@v1", "Org/shared/.github/workflows/ci.yml@refs/tags/v1", 200),
        ("ci.yml", "org/l2/.github/workflows/other.yml@refs/heads/main", 403),
        ("ci.yml", "org/shared/.github/workflows/ci.yml@refs/heads/main", 403),
        ("ci.yml", "org/l2/.github/workflows/CI.yml@refs/heads/main", 403),
        ("ci.yml", "", 403),
    ],
)
def test_an_entry_may_pin_its_workflow(bench: Bench, pinned: str, ref: str, code: int) -> None:
    """Only the pinned workflow speaks for the backend; one of the same name elsewhere is another."""
    bench.told("org/l2", Level.L2, workflow=pinned)
    token = bench.issuers.github("org/l2", run_id="24033272679", workflow_ref=ref, job_workflow_ref=ref)

    answer = bench.post(bench.body(), token)

    assert (code, "recorded" if code == 200 else "wrong_workflow") == (
        answer.status_code,
        answer.json().get("code", answer.json()["status"]),
    )


@pytest.mark.parametrize("said", [{"run_id": "2"}, {"run_attempt": 2}])
def test_a_token_speaks_for_its_own_run_and_attempt(bench: Bench, said: dict[str, object]) -> None:
    """Token of run 1, body of run 2 (CASES 25)."""
    bench.told("org/l2", Level.L2)
    token = bench.issuers.github("org/l2", run_id="24033272679", run_attempt="1")

    assert (403, "run_mismatch") == refused(bench, bench.post(bench.body(**said), token))


def test_run_and_attempt_come_from_the_token_where_the_body_is_silent(bench: Bench) -> None:
    """What is proven needs not be said."""
    bench.told("org/l2", Level.L2)
    token = bench.issuers.github("org/l2", run_id="77", run_attempt="3")

    bench.post(bench.body(run_id=None, run_attempt=None), token)

    assert ("77", 3) == (bench.row(tables.Report).run_id, bench.row(tables.Report).run_attempt)


@pytest.mark.parametrize("claim", [{"repository_id": "1"}, {"repository_owner_id": "1"}])
def test_another_repository_under_the_same_name_is_refused(bench: Bench, claim: dict[str, str]) -> None:
    """Names are reused after a rename; ids are not (CASES 40)."""
    bench.told("org/l2", Level.L2)
    token = bench.issuers.github("org/l2", run_id="24033272679", **claim)

    answers = [refused(bench, bench.post(bench.body(), token)) for _ in range(2)]

    assert [(403, "identity_changed")] * 2 == answers
    assert "another repository" in bench.row(tables.Backend).last_error
    assert bench.clock.now() == bench.row(tables.Backend).last_error_at


def test_ids_that_are_not_known_yet_are_asked_for(bench: Bench) -> None:
    """The caller may come again in seconds, and by then GitHub has been asked, once."""
    bench.told("org/l2", Level.L2)
    statement = tables.Backend.__table__.update().values(repository_id=None, owner_id=None)  # type: ignore[attr-defined]
    bench.store.write_now(lambda conn: conn.execute(statement).rowcount)

    answers = [bench.post(bench.body()) for _ in range(2)]

    assert [(503, "not_pinned_yet")] * 2 == [refused(bench, answer) for answer in answers]
    assert int(answers[0].headers["Retry-After"]) > 0
    assert [("pin_backend", "org/l2")] == [(effect.kind, effect.subject) for effect in bench.rows(tables.Effect)]
    assert bench.woken == 2


def test_a_capability_must_be_ours(bench: Bench) -> None:
    """A forged or damaged token binds to nothing, not even to the delivery id beside it."""
    dispatch_id = bench.told("org/l2", Level.L2)
    body = bench.body(dispatch_id=dispatch_id)
    body["relay"]["token"] = body["relay"]["token"][:-1] + "x"

    assert (403, "bad_capability") == refused(bench, bench.post(body))


def test_a_capability_of_another_backend_is_refused(bench: Bench) -> None:
    """It binds to one dispatch, and who calls is proven by the token alone (CASES 25)."""
    theirs = bench.told("org/l2", Level.L2)
    bench.told("org/other", Level.L2)

    assert (403, "other_backend") == refused(bench, bench.post(bench.body(dispatch_id=theirs), repo="org/other"))


def test_a_capability_whose_dispatch_is_gone_is_answered_404(bench: Bench) -> None:
    """Rows are kept for a time only."""
    bench.allow("org/l2", Level.L2)

    assert (404, "no_such_dispatch") == refused(bench, bench.post(bench.body(dispatch_id=99)))


def test_a_capability_ends_35_days_after_the_deadline(bench: Bench) -> None:
    """Reruns replay the old payload for that long, and no longer."""
    dispatch_id = bench.told("org/l2", Level.L2)
    bench.clock.advance(timedelta(hours=8, days=35))
    assert bench.post(bench.body(dispatch_id=dispatch_id)).status_code == 200

    bench.clock.advance(timedelta(seconds=1))
    answer = bench.post(bench.body(dispatch_id=dispatch_id, job_name="another"))

    assert (403, "capability_expired") == (answer.status_code, answer.json()["code"])


def test_without_a_capability_an_unknown_delivery_is_404(bench: Bench) -> None:
    """And a delivery of another backend is unknown to this one."""
    bench.told("org/l2", Level.L2, delivery=D1)
    bench.told("org/other", Level.L2, delivery="theirs")

    assert (404, "no_such_dispatch") == refused(bench, bench.post(bench.body(delivery="theirs")))


def test_without_a_capability_only_dispatched_runs_report(bench: Bench) -> None:
    """By the delivery id alone a run by hand could claim any dispatch of its repository."""
    bench.told("org/l2", Level.L2)
    token = bench.issuers.github("org/l2", run_id="24033272679", event_name="workflow_dispatch")

    assert (403, "capability_required") == refused(bench, bench.post(bench.body(), token))


def test_without_a_capability_l4_needs_the_entry_s_word(bench: Bench) -> None:
    """Today's action gates nothing unless the entry says so."""
    bench.told("org/l4", Level.L4)
    assert (403, "capability_required") == refused(bench, bench.post(bench.body(), repo="org/l4"))

    bench.told("org/legacy", Level.L4, legacy=True)
    assert bench.post(bench.body(), repo="org/legacy").status_code == 200


def test_a_buildkite_build_reports_by_its_capability(bench: Bench) -> None:
    """Its pipeline is mapped to a repository by its ids; the event rule is GitHub's alone."""
    dispatch_id = bench.told("org/l2", Level.L2)
    token = bench.issuers.buildkite()

    assert (403, "capability_required") == refused(bench, bench.post(bench.body(), token))
    answer = bench.post(bench.body(dispatch_id=dispatch_id, run_id="0190aaaa-bbbb"), token)
    assert answer.status_code == 200
    assert bench.row(tables.Dispatch).outcome == "success"


def test_a_run_that_nobody_names_is_refused(bench: Bench) -> None:
    """Buildkite's tokens do not say which build they are of, so the body must."""
    dispatch_id = bench.told("org/l2", Level.L2)

    answer = bench.post(bench.body(dispatch_id=dispatch_id, run_id=None), bench.issuers.buildkite())

    assert (422, "run_id_missing") == refused(bench, answer)
    assert ["workflow.run_id"] == [error["field"] for error in answer.json()["errors"]]


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Basic eA=="}, {"Authorization": "Bearer "}])
def test_no_token_is_401_before_the_body_is_looked_at(bench: Bench, headers: dict[str, str]) -> None:
    """A call that proves nothing costs nothing."""
    answer = bench.http.post("/github/callback", content=b"not JSON", headers=headers)

    assert (401, "token_missing") == (answer.status_code, answer.json()["code"])
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_every_refusal_of_the_policy_has_a_status() -> None:
    """A code without a status would be a crash at the worst moment."""
    said = set(re.findall(r'Refusal\(\s*"(\w+)"', inspect.getsource(binding)))

    assert {*said, "not_listed"} == set(STATUS)


def test_ids_are_made_for_each_name() -> None:
    """The stand-in for GitHub's ids tells the names used here apart."""
    names = ["org/l1", "org/l2", "org/l4", "org/other", "org/legacy", "org/stranger"]

    assert len(names) == len({id_of(str(RepoName.parse(name))) for name in names})
