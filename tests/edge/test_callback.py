"""The callback edge over HTTP: what is kept, what is refused with which code, and what follows from either."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from allowlist.model import Level
from relay.store import tables
from relay.store.engine import Store
from tests.conftest import Clock
from tests.edge.callers import D1, S1, S2, Bench, id_of, sample


@pytest.fixture
def bench(store: Store, clock: Clock) -> Bench:
    """A callback edge on each database."""
    return Bench(store, clock)


@pytest.mark.parametrize("name", ["callback_completed_production.json", "callback_in_progress_production.json"])
def test_a_production_body_works_as_it_is(bench: Bench, name: str) -> None:
    """A listener made for production's relay reports here without a change."""
    bench.told("org/backend", Level.L2)

    answer = bench.post(sample(name), repo="org/backend")

    assert answer.status_code == 200
    assert answer.json()["status"] == "recorded"
    assert bench.row(tables.Report).job_name == "linux-aarch64 / test (ops, 1, 4, py3.10)"


def test_what_a_completed_report_says_stands_in_rows(bench: Bench) -> None:
    """One callback makes a report, its job, its failed tests, and the outcome of its dispatch."""
    bench.told("org/backend", Level.L2)
    bench.clock.advance(timedelta(minutes=3))
    bench.post(sample("callback_in_progress_production.json"), repo="org/backend")
    bench.clock.advance(timedelta(minutes=30))
    bench.post(sample("callback_completed_production.json"), repo="org/backend")

    job, dispatch = bench.row(tables.Job), bench.row(tables.Dispatch)
    assert ("completed", "failure", 180.0, 1800.0) == (
        job.status,
        job.conclusion,
        job.queue_seconds,
        job.execution_seconds,
    )
    assert (8430, 2, 20, 8452) == (job.passed, job.failed, job.skipped, job.total)
    assert ("failure", 1, None) == (dispatch.outcome, dispatch.legs_reported, dispatch.next_deadline)
    assert ["test_add_npu_float32"] == [test.name for test in bench.rows(tables.TestResult)]
    assert bench.clock.now() == bench.rows(tables.Backend)[0].last_seen_at


def test_a_start_moves_the_deadline_to_the_end_of_its_run(bench: Bench) -> None:
    """The run's deadline counts from its first start, not from when it was asked for."""
    bench.told("org/l2", Level.L2)
    started = bench.clock.advance(timedelta(minutes=90))

    bench.post(bench.body(status="in_progress", conclusion=None))

    dispatch = bench.row(tables.Dispatch)
    assert ("running", started, started + timedelta(hours=6)) == (
        dispatch.outcome,
        dispatch.started_at,
        dispatch.next_deadline,
    )


def test_the_same_report_twice_is_kept_once_and_forwarded_once(store: Store, clock: Clock) -> None:
    """A client that lost the answer sends again and is told so (CASES 14, 15)."""
    bench = Bench(store, clock, hud=True)
    bench.told("org/l2", Level.L2)

    answers = [bench.post(bench.body()) for _ in range(3)]

    assert [(200, False), (200, True), (200, True)] == [(a.status_code, a.json()["replayed"]) for a in answers]
    assert len(bench.rows(tables.Report)) == 1
    assert ["forward_hud", "observe"] == [effect.kind for effect in bench.rows(tables.Effect)]
    # What is to be told to the HUD is found when the worker looks anyway, with all else that came meanwhile.
    assert bench.woken == 0


def test_a_lone_completed_counts_and_a_late_start_changes_nothing(bench: Bench) -> None:
    """A start that arrives after its end is acknowledged and does not reopen the job (CASES 16)."""
    dispatch_id = bench.told("org/l4", Level.L4)
    done = bench.body(dispatch_id=dispatch_id)
    late = bench.body(dispatch_id=dispatch_id, status="in_progress", conclusion=None)

    assert [200, 200] == [bench.post(body, repo="org/l4").status_code for body in (done, late)]
    assert ("completed", "success") == (bench.row(tables.Job).status, bench.row(tables.Job).conclusion)
    assert bench.row(tables.Dispatch).outcome == "success"


@pytest.mark.parametrize("conclusion", ["sucess", "", None, "Success", "stale", "banana", 1, ["success"]])
def test_a_conclusion_that_is_none_is_refused_and_changes_nothing(bench: Bench, conclusion: object) -> None:
    """A typo never becomes a verdict, and the corrected call is accepted (CASES 18)."""
    bench.told("org/l2", Level.L2)

    answer = bench.post(bench.body(conclusion=conclusion))

    assert (422, ["workflow.conclusion"]) == (answer.status_code, [e["field"] for e in answer.json()["errors"]])
    assert not bench.rows(tables.Report)
    assert bench.row(tables.Dispatch).outcome == "queued"
    assert bench.post(bench.body(conclusion="success")).json()["replayed"] is False


def test_three_matrix_legs_of_one_name_are_three_results(bench: Bench) -> None:
    """The worst leg decides, and the others keep their own result (CASES 19)."""
    bench.told("org/l2", Level.L2)

    for check_run_id, conclusion in (("1", "success"), ("2", "failure"), ("3", "success")):
        bench.post(bench.body(check_run_id=check_run_id, conclusion=conclusion))

    assert ["failure", "success", "success"] == sorted(job.conclusion for job in bench.rows(tables.Job))
    assert ("failure", 3) == (bench.row(tables.Dispatch).outcome, bench.row(tables.Dispatch).legs_reported)


def test_started_in_one_job_and_finished_in_another_is_one_result(bench: Bench) -> None:
    """The end takes the start's time, though another job sent it (CASES 20)."""
    bench.told("org/l2", Level.L2)
    bench.clock.advance(timedelta(minutes=2))
    bench.post(bench.body(check_run_id="1", status="in_progress", conclusion=None))
    bench.clock.advance(timedelta(minutes=5))
    bench.post(bench.body(check_run_id="2"))

    job = bench.row(tables.Job)
    assert ("2", 120.0, 300.0) == (job.check_run_id, job.queue_seconds, job.execution_seconds)


@pytest.mark.slow
def test_a_burst_of_many_jobs_is_kept_whole(bench: Bench) -> None:
    """47 jobs report twice and send each again, within a minute (CASES 21)."""
    bench.told("org/l2", Level.L2)
    bodies = [
        bench.body(job_name=f"job {number}", status=status, conclusion=conclusion)
        for number in range(47)
        for status, conclusion in (("in_progress", None), ("completed", "success"))
    ]

    statuses = {bench.post(body).status_code for body in bodies * 2}

    assert {200} == statuses
    assert (94, 47) == (len(bench.rows(tables.Report)), len(bench.rows(tables.Job)))


def test_too_many_calls_cost_nothing(store: Store, clock: Clock) -> None:
    """A call over the limit is told when to come again, and other repositories are not touched (CASES 21)."""
    bench = Bench(store, clock, per_minute=2)
    bench.told("org/l2", Level.L2)
    bench.told("org/other", Level.L2)

    answers = [bench.post(bench.body(job_name=f"job {number}")) for number in range(3)]

    assert [200, 200, 429] == [answer.status_code for answer in answers]
    assert answers[2].headers["Retry-After"] == "60"
    assert len(bench.rows(tables.Report)) == 2
    assert bench.post(bench.body(), repo="org/other").status_code == 200
    bench.clock.advance(timedelta(minutes=1))
    assert bench.post(bench.body(job_name="job 2")).status_code == 200


def test_what_is_missing_keeps_the_outcome_from_success(bench: Bench) -> None:
    """14 of 347 announced legs are no success, however green they are (CASES 22)."""
    bench.told("org/l2", Level.L2, expected_jobs=347)

    for number in range(14):
        bench.post(bench.body(job_name=f"job {number}"))

    dispatch = bench.row(tables.Dispatch)
    assert ("running", 14, 347) == (dispatch.outcome, dispatch.legs_reported, dispatch.legs_expected)


def test_a_claimed_number_of_legs_counts_from_whichever_report_claims_it(bench: Bench) -> None:
    """The start said two; the end of the first says nothing, and still one is missing."""
    bench.told("org/l2", Level.L2)
    bench.post(bench.body(job_name="a", status="in_progress", conclusion=None, expected_jobs=2))
    bench.post(bench.body(job_name="a"))
    assert bench.row(tables.Dispatch).outcome == "running"

    bench.post(bench.body(job_name="b"))

    assert ("success", 2) == (bench.row(tables.Dispatch).outcome, bench.row(tables.Dispatch).legs_expected)


def test_a_callback_may_come_before_our_own_call_has_ended(bench: Bench) -> None:
    """A quick runner is faster than the answer to our dispatch (CASES 23)."""
    bench.allow("org/l2", Level.L2)
    bench.dispatch("org/l2", bench.change(), state="planned", sent_at=None)

    assert bench.post(bench.body()).status_code == 200
    assert ("success", None) == (bench.row(tables.Dispatch).outcome, bench.row(tables.Dispatch).sent_at)
    assert bench.row(tables.Job).queue_seconds is None


def test_the_echo_is_noted_and_never_followed(bench: Bench) -> None:
    """Another commit, pull request and label in the body change no row but the notes (CASES 24)."""
    dispatch_id = bench.told("org/l3", Level.L3, device="dev1")
    body = bench.body(dispatch_id=dispatch_id)
    body["payload"]["pull_request"].update(
        number=7, head={"sha": S2}, labels=[{"name": "ciflow/crcr/dev1"}, {"name": "ciflow/oot/dev1"}]
    )

    answer = bench.post(body, repo="org/l3")

    assert answer.status_code == 200
    notes = json.loads(bench.row(tables.Report).notes)
    assert [S2 in notes[0], "7" in notes[1], "ciflow/crcr/dev1" in notes[2]] == [True, True, True]
    assert S1 == bench.row(tables.Change).head_sha
    # Without the label on the change itself an L3 backend has no check.
    assert {S1} >= {check.head_sha for check in bench.rows(tables.Check)}
    assert not [check for check in bench.rows(tables.Check) if check.backend is not None]


def test_the_capability_is_never_kept(bench: Bench) -> None:
    """Wherever in the body it stands, neither the row nor the failed test holds it."""
    dispatch_id = bench.told("org/l4", Level.L4)
    token = bench.capabilities.issue(dispatch_id)
    body = bench.body(dispatch_id=dispatch_id, conclusion="failure", failed_tests=[{"name": "t", "message": token}])
    body["payload"]["echoed"] = {"relay": {"token": token}}

    assert bench.post(body, repo="org/l4").status_code == 200
    assert token not in bench.row(tables.Report).body
    assert "relay" not in json.loads(bench.row(tables.Report).body)
    assert bench.row(tables.TestResult).message == "[capability]"


def test_a_result_after_we_gave_up_replaces_what_we_concluded(bench: Bench) -> None:
    """Timed out after six hours, and the truth ten minutes later: success, marked late (CASES 27)."""
    bench.allow("org/l2", Level.L2)
    bench.dispatch("org/l2", bench.change(), concluded="lost", concluded_at=bench.clock.now(), outcome="lost")
    bench.clock.advance(timedelta(minutes=10))

    bench.post(bench.body())

    assert ("success", True) == (bench.row(tables.Dispatch).outcome, bench.row(tables.Dispatch).late)
    assert bench.row(tables.Job).late is True


def test_a_new_attempt_after_we_gave_up_has_a_deadline_of_its_own(bench: Bench) -> None:
    """Attempt 1 died silently; attempt 2 is waited for, and its success stands (CASES 28)."""
    bench.told("org/l2", Level.L2)
    bench.post(bench.body(status="in_progress", conclusion=None))
    given_up = bench.clock.advance(timedelta(hours=6))
    columns = {"concluded": "lost", "concluded_at": given_up, "outcome": "lost", "next_deadline": None}
    statement = tables.Dispatch.__table__.update().values(**columns)  # type: ignore[attr-defined]
    bench.store.write_now(lambda conn: conn.execute(statement).rowcount)

    again = bench.clock.advance(timedelta(hours=1))
    bench.post(bench.body(run_attempt=2, status="in_progress", conclusion=None))
    waiting = bench.row(tables.Dispatch)
    bench.post(bench.body(run_attempt=2))

    assert ("running", again + timedelta(hours=6), False) == (waiting.outcome, waiting.next_deadline, waiting.late)
    assert bench.row(tables.Dispatch).outcome == "success"
    assert [(1, False), (2, True)] == [(job.run_attempt, job.deciding) for job in bench.rows(tables.Job)]


def test_an_l4_start_and_end_touch_the_backends_check_and_the_gate(bench: Bench) -> None:
    """What a reviewer sees is looked at again when the outcome changes, for the dispatched head only."""
    dispatch_id = bench.told("org/l4", Level.L4)

    bench.post(bench.body(dispatch_id=dispatch_id), repo="org/l4")

    assert ["crcr/gate", "crcr/org/l4"] == sorted(check.name for check in bench.rows(tables.Check))
    assert {"reconcile_check", "observe"} == {effect.kind for effect in bench.rows(tables.Effect)}
    assert {S1} == {effect.subject for effect in bench.rows(tables.Effect) if effect.kind == "reconcile_check"}


def test_a_batch_answers_item_by_item(bench: Bench) -> None:
    """One bad item among good ones hurts only itself, and a repeat inside the batch is one."""
    bench.told("org/l2", Level.L2)
    good, bad = bench.body(), bench.body(conclusion="banana")
    token = bench.issuers.github("org/l2", run_id="24033272679")

    answer = bench.post([good, bad, good, bench.body(delivery="unknown")], token, path="/github/callback/batch")

    assert answer.status_code == 200
    assert [(200, "recorded"), (422, "report_malformed"), (200, "recorded"), (404, "no_such_dispatch")] == [
        (item["status"], item["code"]) for item in answer.json()
    ]
    assert answer.json()[2]["replayed"] is True
    assert len(bench.rows(tables.Report)) == 1


@pytest.mark.parametrize("items", [{"workflow": {}}, [{}] * 101])
def test_a_batch_that_is_none_or_too_long_is_refused_whole(bench: Bench, items: object) -> None:
    """A batch holds at most a hundred callbacks."""
    bench.told("org/l2", Level.L2)

    answer = bench.post(items, bench.issuers.github("org/l2"), path="/github/callback/batch")

    assert (422, "batch_malformed") == (answer.status_code, answer.json()["code"])


def test_the_trailing_slash_and_the_request_id_come_back(bench: Bench) -> None:
    """Both spellings of the path work, and a caller's trace id is echoed if it is harmless."""
    bench.told("org/l2", Level.L2)
    token = bench.issuers.github("org/l2", run_id="24033272679")
    headers = {"Authorization": f"Bearer {token}", "X-Request-Id": "trace-1"}

    answer = bench.http.post("/github/callback/", json=bench.body(), headers=headers)
    strange = bench.http.post("/github/callback/", json=bench.body(), headers={**headers, "X-Request-Id": "a b"})

    assert (200, "trace-1") == (answer.status_code, answer.headers["X-Request-Id"])
    assert "X-Request-Id" not in strange.headers


def test_a_body_over_the_cap_is_refused_unread(bench: Bench) -> None:
    """Nobody's honest report has more than 8 MB."""
    bench.told("org/l2", Level.L2)
    body = bench.body(name="x" * (8 * 1024 * 1024))

    answer = bench.post(body)

    assert (413, "body_too_large") == (answer.status_code, answer.json()["code"])


def test_a_store_that_is_gone_is_our_fault_and_consumes_nothing(bench: Bench) -> None:
    """503 with Retry-After, never a lost verdict."""
    bench.told("org/l2", Level.L2)
    bench.store.close()

    answer = bench.post(bench.body())

    assert (503, "store_unreachable") == (answer.status_code, answer.json()["code"])
    assert int(answer.headers["Retry-After"]) > 0


def test_a_private_backend_is_hidden_as_soon_as_a_token_says_so(bench: Bench) -> None:
    """A repository that became private must not show its tests until the next mint."""
    bench.told("org/l2", Level.L2)
    token = bench.issuers.github("org/l2", run_id="24033272679", repository_visibility="private")

    bench.post(bench.body(), token)

    assert bench.row(tables.Backend).private is True


def test_a_caller_in_another_case_is_the_same_caller(bench: Bench) -> None:
    """GitHub compares names without case, and so do we (CASES 26)."""
    bench.told("org/l2", Level.L2)

    token = bench.issuers.github("Org/L2", run_id="24033272679", repository_id=str(id_of("org/l2")))

    assert bench.post(bench.body(delivery=D1), token).status_code == 200
