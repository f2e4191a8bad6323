"""What the relay receives."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from datetime import datetime
from typing import Any

import pytest

from .conftest import BEARER, CAPABILITY, DISPATCH, JWT, REPORT, Runner, Services


def test_a_report_is_the_dispatch_as_received_plus_workflow(runner: Runner, services: Services) -> None:
    """The echo stays whole, and everything about the run stands beside it."""
    step = runner.completed("failure", artifact_url="https://example.org/logs")

    assert {k: v for k, v in services.body.items() if k != "workflow"} == DISPATCH
    moment = services.workflow["completed_at"]
    assert {
        "schema_version": "1",
        "status": "completed",
        "conclusion": "failure",
        "name": "npu-ci",
        "url": "https://github.example/org/backend/actions/runs/24033272679",
        "run_id": "24033272679",
        "run_attempt": "2",
        "job_name": "report",
        "check_run_id": "98765432100",
        "started_at": None,
        "completed_at": moment,
        "artifact_url": "https://example.org/logs",
    } == services.workflow
    assert datetime.fromisoformat(moment).tzinfo is not None
    assert (0, "true", "recorded", "200", "false") == (
        step.code,
        step.outputs["ok"],
        step.outputs["status"],
        step.outputs["http-status"],
        step.outputs["replayed"],
    )


def test_a_start_has_no_conclusion_and_no_end(runner: Runner, services: Services) -> None:
    """Production's listeners pass a conclusion at all times; it means nothing before the end."""
    runner.run(status="in_progress", conclusion="success")

    assert services.workflow["conclusion"] is None
    assert services.workflow["completed_at"] is None
    assert services.workflow["started_at"].endswith("Z")


def test_the_token_is_minted_by_this_step_for_the_relay_alone(runner: Runner, services: Services) -> None:
    """The request bearer goes to GitHub only, the minted token to the relay only."""
    runner.run(status="in_progress", audience="my relay&x")

    [mint], [report] = services.mints, services.reports
    assert "/token?api-version=2.0&audience=my%20relay%26x" == mint.path
    assert f"bearer {BEARER}" == mint.headers["Authorization"]
    assert f"Bearer {JWT}" == report.headers["Authorization"]
    assert BEARER.encode() not in report.body


def test_the_default_audience_is_the_protocols(runner: Runner, services: Services) -> None:
    """A listener that says nothing gets the audience that every relay has by default."""
    runner.run(status="in_progress")

    assert services.mints[0].path.endswith("&audience=pytorch-cross-repo-ci-relay")


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({"job_name": "linux / test (ops, 1): 🚀"}, {"job_name": "linux / test (ops, 1): 🚀"}),
        ({"expected_jobs": "12"}, {"expected_jobs": 12}),
        ({"failure_class": "infra"}, {"failure_class": "infra"}),
        ({"backend_version": "2.9"}, {"combination": {"backend_version": "2.9"}}),
        ({"suite_version": "v3"}, {"combination": {"suite_version": "v3"}}),
        (
            {"environment": '{"python": 3.11, "arch": "aarch64"}'},
            {"combination": {"environment": {"python": "3.11", "arch": "aarch64"}}},
        ),
        (
            {"environment": "python=3.11\n\n sdk = a=b "},
            {"combination": {"environment": {"python": "3.11", "sdk": "a=b"}}},
        ),
        ({"test_results": '{"passed": 3, "failed": 1}'}, {"test_results": {"passed": 3, "failed": 1}}),
        ({"triage_verdict": '{"is_infra": false}'}, {"triage_verdict": {"is_infra": False}}),
        (
            {"failed_tests_detail": '[{"name": "t", "duration": 1.5}]'},
            {"failed_tests": [{"name": "t", "classname": "", "message": "", "stacktrace": "", "duration": 1.5}]},
        ),
    ],
)
def test_each_input_has_its_field(
    runner: Runner, services: Services, inputs: dict[str, str], expected: dict[str, Any]
) -> None:
    """An input that is given arrives; one that is not leaves no field behind."""
    runner.completed("failure", **inputs)

    [(name, value)] = expected.items()
    assert value == services.workflow[name]
    optional = {"expected_jobs", "failure_class", "combination", "test_results", "triage_verdict", "failed_tests"}
    assert {name} & optional == set(services.workflow) & optional


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("success", "success"),
        ("cancelled", "cancelled"),
        ("skipped", "skipped"),
        ("neutral", "neutral"),
        ("timed_out", "timed_out"),
        ("action_required", "action_required"),
        ("success,success", "success"),
        ("failure,skipped", "failure"),
        ("success, skipped", "skipped"),
        ("cancelled,failure,success", "failure"),
        ("success,cancelled", "cancelled"),
    ],
)
def test_of_several_results_the_worst_is_the_conclusion(
    runner: Runner, services: Services, given: str, expected: str
) -> None:
    """A failed build is not hidden by the tests that were skipped after it."""
    runner.completed(given)

    assert expected == services.workflow["conclusion"]


def test_a_job_without_a_name_is_called_default(runner: Runner, services: Services) -> None:
    """The relay's own default is what a nameless leg gets."""
    del runner.env["GITHUB_JOB"], runner.env["CRCR_JOB_CHECK_RUN_ID"]

    runner.run(status="in_progress")

    assert "default" == services.workflow["job_name"]
    assert "check_run_id" not in services.workflow


def test_a_nightly_run_says_which_commit_it_tested(runner: Runner, services: Services) -> None:
    """No dispatch started it, so the body is made of the inputs."""
    runner.event = {"schedule": "17 3 * * *"}

    runner.completed(event_type="nightly", head_sha="ABCD" * 10, upstream_repository="up/stream")

    assert {"event_type": "nightly", "delivery_id": "abcd" * 10} == {
        k: services.body[k] for k in ("event_type", "delivery_id")
    }
    assert {"repository": {"full_name": "up/stream"}, "head_sha": "abcd" * 10} == services.body["payload"]


def test_productions_nightly_listeners_work_unchanged(runner: Runner, services: Services) -> None:
    """They give the commit as delivery-id and no upstream repository."""
    runner.event = {}

    runner.completed(event_type="periodic", delivery_id="a" * 40)

    assert ("periodic", "a" * 40) == (services.body["event_type"], services.body["delivery_id"])
    assert {"repository": {"full_name": "pytorch/pytorch"}, "head_sha": "a" * 40} == services.body["payload"]


def test_a_dispatched_run_stays_bound_to_its_dispatch(runner: Runner, services: Services) -> None:
    """Nightly inputs of a listener that serves both do not turn a dispatched report into a self-report."""
    runner.completed(event_type="nightly", head_sha="a" * 40)

    assert "pull_request" == services.body["event_type"]
    assert CAPABILITY == services.body["relay"]["token"]


def test_a_report_over_a_megabyte_loses_stack_traces_first(runner: Runner, services: Services) -> None:
    """Names and messages of a thousand tests fit, their stacks do not; the first tests keep theirs."""
    case = '<testcase name="t{0}" classname="c"><failure message="{1}">{2}</failure></testcase>'
    cases = "".join(case.format(i, "m" * 400, "s" * 5_000) for i in range(1_200))
    runner.write("junit.xml", f"<testsuite>{cases}</testsuite>")

    step = runner.completed(junit="junit.xml")

    failed = services.workflow["failed_tests"]
    assert len(services.reports[-1].body) <= 1_000_000
    assert 1_000 == len(failed)
    assert all(len(test["message"]) == 400 for test in failed)
    assert failed[0]["stacktrace"].startswith("sss")
    assert "" == failed[-1]["stacktrace"]
    assert len(failed[0]["stacktrace"].encode()) <= 4_096
    assert 1_200 == services.workflow["test_results"]["failed"]
    assert "over 1 MB" in step.log


def test_messages_are_cut_by_bytes(runner: Runner, services: Services) -> None:
    """The relay's limits are in bytes, and no character is cut in two."""
    runner.completed("failure", failed_tests_detail=json.dumps([{"name": "t", "message": "é" * 2_000}]))

    message = services.workflow["failed_tests"][0]["message"]
    assert 1_023 <= len(message.encode()) <= 1_024
    assert {"é", "…"} == set(message)


def test_lone_surrogates_and_nul_do_not_leave_the_machine(runner: Runner, services: Services) -> None:
    """JSON can name half a character; the relay's store cannot keep one."""
    runner.completed("failure", failed_tests_detail='[{"name": "a\\ud800b\\u0000c"}]')

    assert "a?bc" == services.workflow["failed_tests"][0]["name"]


def test_the_file_is_python_3_8() -> None:
    """Self-hosted runners are old: no later syntax."""
    source = REPORT.read_text()

    assert ast.parse(source, feature_version=(3, 8))
    with pytest.raises(SyntaxError):
        ast.parse("match x:\n case 1: pass", feature_version=(3, 8))


def test_only_the_standard_library_is_imported() -> None:
    """Nothing is installed before a report."""
    roots = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(REPORT.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert set() == roots - set(sys.stdlib_module_names)


def oldest_python() -> str:
    """Python 3.8 where this machine has one, else the one that runs the tests."""
    found = shutil.which("python3.8")
    if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
        return found
    return sys.executable


def test_the_oldest_python_at_hand_makes_a_whole_report(runner: Runner, services: Services) -> None:
    """Every part of the file runs there: JUnit, a retry, a Retry-After date, the body."""
    runner.python = oldest_python()
    runner.write(
        "a/junit.xml", '<testsuites><testsuite><testcase name="x"><error/></testcase></testsuite></testsuites>'
    )
    services.relay_script = [
        type(services.relay_script[0])(503, b"", {"Retry-After": "Mon, 30 Nov 2020 10:00:00 GMT"}),
        services.relay_script[0],
    ]

    step = runner.completed(junit="**/*.xml", environment="python=3.8")

    assert ("true", 2) == (step.outputs["ok"], len(services.reports))
    assert {"passed": 0, "failed": 0, "errors": 1, "skipped": 0, "total": 1} == services.workflow["test_results"]
