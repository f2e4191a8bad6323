"""What the step does with the network's moods, with refusals, and with secrets and hostile text."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from .conftest import BEARER, CAPABILITY, DISPATCH, JWT, Reply, Runner, Services

OK = Reply()


@pytest.mark.parametrize(
    "trouble",
    [
        Reply(503, b"", {"Retry-After": "0"}),
        Reply(429, b"", {"Retry-After": "0"}),
        Reply(500, b"<html>"),
        Reply(502, b""),
        Reply(drop=True),
    ],
)
def test_passing_trouble_is_outlived(runner: Runner, services: Services, trouble: Reply) -> None:
    """The relay takes the same report twice without harm, so whatever may have failed is sent again, unchanged."""
    services.relay_script = [trouble, trouble, OK]

    step = runner.completed()

    assert ("true", "200", 0) == (step.outputs["ok"], step.outputs["http-status"], step.code)
    assert 3 == len(services.reports)
    assert 1 == len({report.body for report in services.reports})
    assert 1 == len(services.mints)


def test_retry_after_is_honoured(runner: Runner, services: Services) -> None:
    """A relay that asks for a second gets a second, however short our own pauses are."""
    services.relay_script = [Reply(429, b"", {"Retry-After": "1"}), OK]

    started = time.monotonic()
    step = runner.completed()

    assert "true" == step.outputs["ok"]
    assert time.monotonic() - started >= 1.0


def test_a_wait_longer_than_the_budget_is_not_begun(runner: Runner, services: Services) -> None:
    """A job is not held for an hour because the relay asked for it: it ends, and says which input to raise."""
    services.relay_script = [Reply.problem(429, "rate_limited", "slow down", Retry_After="3600")]

    started = time.monotonic()
    step = runner.completed(max_time="5")

    assert time.monotonic() - started < 4
    assert ("false", "rate_limited", "429") == tuple(step.outputs[k] for k in ("ok", "status", "http-status"))
    assert 1 == len(services.reports)
    assert "max-time" in step.log


def test_the_budget_ends_the_tries(runner: Runner, services: Services) -> None:
    """A relay that stays down costs the job max-time and no more."""
    services.relay_script = [Reply(503, b"")]

    started = time.monotonic()
    step = runner.completed(max_time="1")

    assert time.monotonic() - started < 3
    assert ("false", "http-503", 0) == (step.outputs["ok"], step.outputs["status"], step.code)
    assert len(services.reports) > 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422])
def test_a_refusal_is_final_and_tells_why(runner: Runner, services: Services, status: int) -> None:
    """The code and the detail reach the log, the annotation and the summary; nothing is sent again."""
    services.relay_script = [Reply.problem(status, "some_rule", "because of | this & that")]

    step = runner.completed()

    assert 1 == len(services.reports)
    assert ("false", "some_rule", str(status), "false", 0) == (
        *(step.outputs[k] for k in ("ok", "status", "http-status", "replayed")),
        step.code,
    )
    assert f"NOT REPORTED: HTTP {status}, code some_rule: because of | this & that" in step.log
    assert step.log.count("::warning ") >= 1
    assert "::error " not in step.log
    assert "because of &#124; this &#38; that" in step.summary


def test_fail_on_error_fails_the_step(runner: Runner, services: Services) -> None:
    """Who asked for a red job gets one, with an error instead of a warning."""
    services.relay_script = [Reply.problem(403, "unlisted", "org/backend is not on the allowlist")]

    step = runner.completed(fail_on_error="true")

    assert 1 == step.code
    assert "::error title=Cross-repository CI relay::NOT REPORTED: HTTP 403, code unlisted" in step.log


def test_fail_on_error_is_content_with_success(runner: Runner) -> None:
    """The input fails what was not taken, nothing else."""
    assert 0 == runner.completed("failure", fail_on_error="true").code


def test_a_replay_is_a_success(runner: Runner, services: Services) -> None:
    """The answer to the first try was lost: the relay says so, and the step is content."""
    services.relay_script = [Reply(drop=True), Reply(body=b'{"ok": true, "status": "recorded", "replayed": true}')]

    step = runner.completed()

    assert ("true", "true") == (step.outputs["ok"], step.outputs["replayed"])


def test_an_ignored_report_is_loud(runner: Runner, services: Services) -> None:
    """A relay set up like production's answers 200 to callers that it ignores; a maintainer must see that."""
    services.relay_script = [Reply(body=b'{"ok": true, "status": "ignored"}')]

    step = runner.completed()

    assert ("true", "ignored") == (step.outputs["ok"], step.outputs["status"])
    assert "::warning " in step.log
    assert "below level L2" in step.log


@pytest.mark.parametrize("body", [b"<html>welcome</html>", b"[]", b'{"ok": false}', b"[" * 50_000, b"\xff"])
def test_a_stranger_that_says_200_is_not_the_relay(runner: Runner, services: Services, body: bytes) -> None:
    """A sign-in page or a wrong path answers 200 too: only the relay's own words count."""
    services.relay_script = [Reply(body=body)]

    step = runner.completed()

    assert ("false", "not-the-relay") == (step.outputs["ok"], step.outputs["status"])


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_token_follows_no_redirect(runner: Runner, services: Services, status: int) -> None:
    """The other host would get a token that is not meant for it."""
    services.relay_script = [Reply(status, b"", {"Location": f"http://{services.address}/elsewhere"})]

    step = runner.completed()

    assert ["/github/callback"] == [report.path for report in services.reports]
    assert ("false", "redirected") == (step.outputs["ok"], step.outputs["status"])
    assert "/elsewhere" in step.log


def test_the_token_request_follows_no_redirect(runner: Runner, services: Services) -> None:
    """The runner's bearer can mint tokens for any audience: it goes to the runner's address alone."""
    services.token_script = [Reply(302, b"", {"Location": services.callback_url})]

    step = runner.completed()

    assert ("no-token", 0) == (step.outputs["status"], len(services.reports))


def test_a_relay_that_is_not_there_is_said_so(runner: Runner) -> None:
    """Nothing listens at port 1."""
    step = runner.completed(callback_url="http://127.0.0.1:1/github/callback", max_time="1")

    assert ("false", "unreachable", "") == tuple(step.outputs[k] for k in ("ok", "status", "http-status"))
    assert "refused" in step.log


def test_the_dispatch_names_the_relay(runner: Runner, services: Services) -> None:
    """A listener needs no address: the dispatch brings it."""
    relay = {**DISPATCH["relay"], "callback_url": services.callback_url}
    runner.event = {"client_payload": {**DISPATCH, "relay": relay}}
    runner.env["CRCR_CALLBACK_URL"] = "http://127.0.0.1:1/wrong"

    step = runner.completed(callback_url="")

    assert ("true", 1) == (step.outputs["ok"], len(services.reports))


def test_the_environment_names_the_relay_last(runner: Runner, services: Services) -> None:
    """What today's dispatches do not say, a runner's environment may."""
    runner.env["CRCR_CALLBACK_URL"] = services.callback_url

    step = runner.completed(callback_url="")

    assert "true" == step.outputs["ok"]


@pytest.mark.parametrize(
    "url",
    [
        "http://relay.example.org/github/callback",
        "file:///etc/passwd",
        "https://user:password@relay.example.org/",
        "relay.example.org/github/callback",
        "https://relay.example.org/\u00e9",
        "https://relay.example.org:port/",
        "http://127.0.0.1.example.org/",
    ],
)
def test_no_token_is_minted_for_a_bad_address(runner: Runner, services: Services, url: str) -> None:
    """Plain http shows the token to the network, and other schemes are no relay."""
    step = runner.completed(callback_url=url)

    assert ("false", "invalid-input", 0) == (step.outputs["ok"], step.outputs["status"], len(services.mints))
    assert "input `callback-url`" in step.log


def test_the_dispatch_cannot_name_a_bad_address_either(runner: Runner, services: Services) -> None:
    """Its address is text from outside like any other."""
    runner.event = {"client_payload": {**DISPATCH, "relay": {"callback_url": "http://evil.example.org/"}}}

    step = runner.completed(callback_url="")

    assert ("invalid-input", 0) == (step.outputs["status"], len(services.mints))
    assert "relay.callback_url of the dispatch" in step.log


def test_secrets_are_masked_first_and_never_shown(runner: Runner, services: Services) -> None:
    """The payload is not masked by GitHub; here it is, before any other line, even where the relay echoes it."""
    services.relay_script = [Reply.problem(403, f"c {JWT}", f"{CAPABILITY} {JWT} {BEARER}")]

    step = runner.completed()

    lines = step.log.splitlines()
    assert f"::add-mask::{CAPABILITY}" == lines[0]
    assert {f"::add-mask::{secret}" for secret in (CAPABILITY, BEARER, JWT)} == {x for x in lines if "add-mask" in x}
    rest = "\n".join([x for x in lines if "add-mask" not in x] + [step.summary, *step.outputs.values()])
    assert [] == [secret for secret in (CAPABILITY, BEARER, JWT) if secret in rest]


def test_the_capability_is_masked_even_if_nothing_else_is_right(runner: Runner) -> None:
    """A step that stops at its inputs has read the event already."""
    step = runner.run(status="banana")

    assert f"::add-mask::{CAPABILITY}" == step.log.splitlines()[0]


def test_a_job_without_the_permission_is_told_which(runner: Runner, services: Services) -> None:
    """The commonest mistake of a first listener."""
    del runner.env["ACTIONS_ID_TOKEN_REQUEST_URL"], runner.env["ACTIONS_ID_TOKEN_REQUEST_TOKEN"]

    step = runner.completed()

    assert ("false", "no-token", 0) == (step.outputs["ok"], step.outputs["status"], step.code)
    assert "`permissions: id-token: write`" in step.log
    assert [] == services.reports


def test_the_token_service_is_asked_again(runner: Runner, services: Services) -> None:
    """GitHub's own hiccup is no reason to lose a verdict."""
    services.token_script = [Reply(500, b""), Reply(drop=True), services.token_script[0]]

    step = runner.completed()

    assert ("true", 3) == (step.outputs["ok"], len(services.mints))


@pytest.mark.parametrize(
    "reply",
    [Reply(403, b"{}"), Reply(body=b"{}"), Reply(body=b'{"value": "a\\r\\nb: c"}'), Reply(body=b'{"value": 3}')],
)
def test_what_is_no_token_is_not_sent(runner: Runner, services: Services, reply: Reply) -> None:
    """A header is made of it, so its characters are checked."""
    services.token_script = [reply]

    step = runner.completed()

    assert ("no-token", 0) == (step.outputs["status"], len(services.reports))


HOSTILE = "x\n::set-output name=ok::1\r\n::error::boo %0A | <img src=x> [a](b) @team #1 `c` \u202e"


def test_hostile_text_is_no_command_and_no_markup(runner: Runner, services: Services) -> None:
    """Job names, test names and the relay's words stay words in the log and in the summary."""
    services.relay_script = [Reply.problem(403, HOSTILE, HOSTILE)]

    step = runner.completed("failure", job_name=HOSTILE, artifact_url=HOSTILE, environment=f"{HOSTILE!r}=b")

    commands = [line.partition(" ")[0].partition("::")[2] for line in step.log.splitlines() if line.startswith("::")]
    assert {"add-mask", "warning"} == {command.partition("::")[0] for command in commands}
    assert [] == [mark for mark in ("<img", "[a](", "@team", " #1", "`c`", "\u202e") if mark in step.summary]
    assert {"ok", "status", "http-status", "replayed"} == set(step.outputs)
    assert "\r" not in step.log
    assert HOSTILE.strip() == services.workflow["job_name"]


def test_a_summary_tells_what_was_reported(runner: Runner, services: Services) -> None:
    """A maintainer reads it on the run's page: what, for which combination, to where, and the answer."""
    step = runner.completed("failure", backend_version="2.9", test_results='{"passed": 3, "failed": 1}')

    host, port = services.address.split(":")
    for words in ("completed failure", "3 passed, 1 failed", "2.9", f"{host}&#58;{port}", "200 recorded"):
        assert words in step.summary.replace("&#95;", "_")
    assert step.summary.startswith("### Reported to the cross-repository CI relay\n")


def test_an_unexpected_fault_does_not_turn_the_job_red(runner: Runner) -> None:
    """Whatever breaks in our own step is ours to explain, not the backend's job to fail for."""
    runner.env["CRCR_RETRY_BASE"] = "soon"

    step = runner.completed()

    assert ("internal-error", 0) == (step.outputs["status"], step.code)
    assert "ValueError" in step.log


BUILDKITE_AGENT = """#!/bin/sh
printf '%s\\n' "$@" > "$0.args"
[ -e "$0.fails" ] && { echo 'no such job' >&2; exit 3; }
echo aaaa.bbbb.cccc
"""


@pytest.fixture
def agent(runner: Runner, tmp_path: Path) -> Path:
    """A build step on Buildkite: an agent on the PATH and its environment instead of GitHub's."""
    agent = tmp_path / "bin" / "buildkite-agent"
    agent.parent.mkdir()
    agent.write_text(BUILDKITE_AGENT)
    agent.chmod(0o755)
    runner.event = {}
    runner.env = {
        "PATH": f"{agent.parent}:{runner.env['PATH']}",
        "BUILDKITE": "true",
        "BUILDKITE_BUILD_ID": "0190aaaa-bbbb",
        "BUILDKITE_BUILD_URL": "https://buildkite.example/org/ci/builds/4711",
        "BUILDKITE_JOB_ID": "0190aaaa-cccc",
        "BUILDKITE_LABEL": ":docker: build image",
        "BUILDKITE_PIPELINE_SLUG": "ci",
        "BUILDKITE_RETRY_COUNT": "1",
        "CRCR_RETRY_BASE": "0.01",
    }
    return agent


def test_buildkite_reports_with_its_own_names_and_token(runner: Runner, services: Services, agent: Path) -> None:
    """The two ids are opt-in claims there, and the log knows no masking command that would not print the secret."""
    step = runner.completed(event_type="nightly", head_sha="a" * 40)

    expected = "oidc request-token --audience pytorch-cross-repo-ci-relay --claim organization_id --claim pipeline_id"
    assert expected.split() == agent.with_suffix(".args").read_text().split()
    assert {
        "name": "ci",
        "url": "https://buildkite.example/org/ci/builds/4711",
        "run_id": "0190aaaa-bbbb",
        "run_attempt": "2",
        "job_name": ":docker: build image",
        "check_run_id": "0190aaaa-cccc",
    } == {k: services.workflow[k] for k in ("name", "url", "run_id", "run_attempt", "job_name", "check_run_id")}
    assert f"Bearer {JWT}" == services.reports[0].headers["Authorization"]
    assert JWT not in step.log
    assert "::" not in step.log


def test_buildkites_refusal_is_passed_on(runner: Runner, services: Services, agent: Path) -> None:
    """The agent says why; the step repeats it and sends nothing."""
    agent.with_suffix(".fails").touch()

    step = runner.completed(event_type="nightly", head_sha="a" * 40, fail_on_error="true")

    assert (1, "no-token", 0) == (step.code, step.outputs["status"], len(services.reports))
    assert "exit 3): no such job" in step.log


def test_buildkite_without_an_agent_is_said_so(runner: Runner, agent: Path) -> None:
    """A step in a container has no agent on its PATH."""
    agent.unlink()

    step = runner.completed(event_type="nightly", head_sha="a" * 40)

    assert "buildkite-agent is not on the PATH" in step.log
