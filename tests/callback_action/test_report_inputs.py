"""Wrong inputs: what stops a report, what is left out of it, and what the maintainer is told."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import DISPATCH, Runner, Services

ENDS_IT: list[tuple[dict[str, str], str, str]] = [
    ({"status": ""}, "input `status` is ''", "in_progress, completed"),
    ({"status": "done"}, "input `status` is 'done'", "in_progress, completed"),
    ({"conclusion": ""}, "input `conclusion` is empty", "missing from `needs:`"),
    ({"conclusion": "sucess"}, "input `conclusion` holds 'sucess'", "failure, timed_out"),
    ({"conclusion": "Success"}, "input `conclusion` holds 'Success'", "give one of"),
    ({"conclusion": "stale"}, "input `conclusion` holds 'stale'", "give one of"),
    ({"conclusion": "success,"}, "input `conclusion` holds ''", "give one of"),
    ({"environment": "python"}, "input `environment` has the line 'python'", "python=3.11"),
    ({"environment": '{"a": {}}'}, "input `environment` has the key 'a'", "JSON object"),
    ({"environment": "{nope"}, "input `environment` is not JSON", "JSON object"),
    ({"environment": "=x"}, "input `environment` has the key ''", "python=3.11"),
    ({"expected_jobs": "0"}, "input `expected-jobs` is '0'", "between 1 and"),
    ({"expected_jobs": "many"}, "input `expected-jobs` is 'many'", "between 1 and"),
    ({"expected_jobs": "1.5"}, "input `expected-jobs` is not whole", "number of legs"),
    ({"failure_class": "flaky"}, "input `failure-class` is 'flaky'", "test, infra, timeout"),
    ({"max_time": "0"}, "input `max-time` is '0'", "between 1 and 3600"),
    ({"max_time": "nan"}, "input `max-time` is 'nan'", "between 1 and 3600"),
    ({"head_sha": "main"}, "input `head-sha` is 'main'", "40 hexadecimal digits"),
    ({"upstream_repository": "pytorch"}, "input `upstream-repository` is 'pytorch'", "owner/name"),
]


@pytest.mark.parametrize(("inputs", "rule", "fix"), ENDS_IT)
def test_a_wrong_input_is_named_with_rule_and_fix(
    runner: Runner, services: Services, inputs: dict[str, str], rule: str, fix: str
) -> None:
    """What the relay decides from must be right before anything is sent or any token minted."""
    step = runner.run(**{"status": "completed", "conclusion": "success"} | inputs)

    assert ("false", "invalid-input", 0) == (step.outputs["ok"], step.outputs["status"], step.code)
    [warning] = [line for line in step.log.splitlines() if line.startswith("::warning")]
    assert rule in warning
    assert fix in warning
    assert [] == services.reports + services.mints


def test_all_faults_are_told_at_once(runner: Runner) -> None:
    """A maintainer mends a listener in one go."""
    step = runner.run(status="completed", conclusion="banana", max_time="x", environment="y", fail_on_error="true")

    assert 1 == step.code
    assert 3 == step.log.count("::error ")


LEFT_OUT = [
    ("artifact_url", "javascript:alert(1)", "artifact_url"),
    ("artifact_url", "https://a:b@example.org/", "artifact_url"),
    ("test_results", "{", "test_results"),
    ("test_results", "[]", "test_results"),
    ("test_results", '{"passed": "3"}', "test_results"),
    ("test_results", '{"passed": true}', "test_results"),
    ("test_results", '{"passed": -1}', "test_results"),
    ("test_results", "[" * 20_000, "test_results"),
    ("failed_tests_detail", '{"name": "t"}', "failed_tests"),
    ("failed_tests_detail", "[3]", "failed_tests"),
    ("failed_tests_detail", '[{"name": 3}]', "failed_tests"),
    ("triage_verdict", '"infra"', "triage_verdict"),
]


@pytest.mark.parametrize(("name", "value", "field"), LEFT_OUT)
def test_a_wrong_extra_does_not_lose_the_verdict(
    runner: Runner, services: Services, name: str, value: str, field: str
) -> None:
    """A broken link or count is left out with a warning; the conclusion goes on its way."""
    step = runner.completed("failure", **{name: value})

    assert ("true", "failure") == (step.outputs["ok"], services.workflow["conclusion"])
    assert field not in services.workflow
    assert f"::warning title=Cross-repository CI relay::input `{name.replace('_', '-')}`" in step.log


@pytest.mark.parametrize(
    "event",
    [
        {},
        [],
        {"client_payload": None},
        {"client_payload": {"delivery_id": "x"}},
        {"client_payload": {**DISPATCH, "delivery_id": ""}},
        {"client_payload": "text"},
    ],
)
def test_a_run_that_no_dispatch_started_is_told_so(runner: Runner, services: Services, event: Any) -> None:
    """A push in the backend's own repository is nothing that the relay could place."""
    runner.event = event

    step = runner.completed()

    assert ("invalid-input", 0) == (step.outputs["status"], len(services.mints))
    assert "was not started by the relay" in step.log
    assert "`event-type` and `head-sha`" in step.log


@pytest.mark.parametrize("text", ["{", "[" * 100_000, ""])
def test_an_unreadable_event_is_told(runner: Runner, text: str) -> None:
    """The file is the runner's, but a broken one must not end in a traceback."""
    runner.event = text

    step = runner.completed()

    assert ("invalid-input", 0) == (step.outputs["status"], step.code)
    assert "event file" in step.log


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"event_type": "weekly", "head_sha": "a" * 40}, "input `event-type` is 'weekly'; give nightly or periodic"),
        ({"event_type": "nightly"}, "input `head-sha` is empty"),
        ({"event_type": "nightly", "delivery_id": "night-7"}, "input `head-sha` is empty"),
    ],
)
def test_a_self_report_needs_a_kind_and_a_commit(runner: Runner, inputs: dict[str, str], words: str) -> None:
    """Without a commit of upstream there is nothing to file the result under."""
    runner.event = {}

    step = runner.completed(**inputs)

    assert "invalid-input" == step.outputs["status"]
    assert words in step.log


def test_a_night_may_have_an_id_of_its_own(runner: Runner, services: Services) -> None:
    """Several jobs of one night share the commit, whatever their delivery ids."""
    runner.event = {}

    runner.completed(event_type="nightly", delivery_id="night-7", head_sha="a" * 40)

    assert ("night-7", "a" * 40) == (services.body["delivery_id"], services.body["payload"]["head_sha"])


def test_nothing_says_where_the_relay_is(runner: Runner, services: Services) -> None:
    """Neither input nor dispatch nor environment: the step says what to give."""
    step = runner.completed(callback_url="")

    assert "give the input `callback-url`" in step.log
    assert [] == services.mints


def test_outside_a_run_nothing_is_reported(runner: Runner, services: Services) -> None:
    """The run's id is what the relay compares with the token: without one there is no report."""
    del runner.env["GITHUB_RUN_ID"]

    step = runner.completed()

    assert "GITHUB_RUN_ID is not set" in step.log
    assert [] == services.mints
