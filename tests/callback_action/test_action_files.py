"""action.yml, the README's tables and the example listeners, each held against the others and by linters."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from allowlist.model import EVENTS
from relay.deciding.events import WANTED_EVENTS

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "callback_action" / "action.yml"
README = ROOT / "callback_action" / "README.md"
REPORT = ROOT / "callback_action" / "report.py"
LISTENERS = sorted((ROOT / "examples" / "listeners").glob("*.yml"))
WORKFLOWS = [path for path in LISTENERS if path.name != "buildkite.yml"]
GIT = shutil.which("git") or "git"
OURS = "OWNER/cross-repo-ci-relay/callback_action@" + "0" * 40


def tool(name: str, *arguments: str | Path, cwd: Path = ROOT) -> str:
    """What a linter says; it must find nothing."""
    command = [str(Path(sys.executable).parent / name), *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


def load(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text())


def steps(path: Path) -> list[dict[str, Any]]:
    """All steps of a workflow."""
    return [step for job in load(path)["jobs"].values() for step in job.get("steps", [])]


def table_rows(heading: str) -> list[list[str]]:
    """The cells of the first table after a heading of the README, without its head."""
    section = README.read_text().partition(f"\n## {heading}\n")[2]
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<=\s)\|(?=\s)", line.strip("|"))] for line in lines[2:]]


def test_the_action_fits_githubs_schema() -> None:
    """An independent checker knows what an action file may hold."""
    tool("check-jsonschema", "--builtin-schema", "vendor.github-actions", ACTION)


def test_the_buildkite_example_fits_its_schema() -> None:
    """Buildkite's pipelines have a schema of their own."""
    path = next(path for path in LISTENERS if path.name == "buildkite.yml")
    tool("check-jsonschema", "--builtin-schema", "vendor.buildkite", path)


def test_no_description_holds_an_expression() -> None:
    """GitHub evaluates them when the action loads: one such line broke every user for 13 hours."""
    action = load(ACTION)
    described = [action, *action["inputs"].values(), *action["outputs"].values()]

    assert [] == [part["description"] for part in described if "${{" in part["description"]]
    assert [] == [part for part in action["inputs"].values() if "${{" in str(part.get("default", ""))]


def test_every_input_reaches_the_step_by_environment_and_the_script_reads_it() -> None:
    """No input is forgotten on the way, and nothing is interpolated into the shell."""
    action = load(ACTION)
    [step] = action["runs"]["steps"]

    expected = {f"CRCR_INPUT_{n.upper().replace('-', '_')}": f"${{{{ inputs.{n} }}}}" for n in action["inputs"]}
    assert expected | {"CRCR_JOB_CHECK_RUN_ID": "${{ job.check_run_id }}"} == step["env"]
    assert 'python3 "$GITHUB_ACTION_PATH/report.py"' == step["run"]
    script = REPORT.read_text()
    read = set(re.findall(r'"([a-z]+(?:-[a-z]+)*)"', script)) | {"fail-on-error"}
    assert set() == set(action["inputs"]) - read
    assert "CRCR_INPUT_FAIL_ON_ERROR" in script


def test_every_output_is_written() -> None:
    """An output that nobody sets is an empty promise."""
    outputs = load(ACTION)["outputs"]

    assert {name: f"${{{{ steps.report.outputs.{name} }}}}" for name in outputs} == {
        name: part["value"] for name, part in outputs.items()
    }
    assert {"ok", "status", "http-status", "replayed"} == set(outputs)


def test_the_readme_lists_the_inputs_with_their_defaults() -> None:
    """A maintainer reads the table, not the file."""
    inputs = load(ACTION)["inputs"]

    assert {name: part.get("default", "") for name, part in inputs.items()} == {
        row[0].strip("`"): row[1].strip("`") for row in table_rows("Inputs")
    }
    assert [name for name, part in inputs.items() if part["required"]] == ["status"]


def test_the_readme_lists_the_outputs() -> None:
    """The same for what the step leaves behind."""
    assert set(load(ACTION)["outputs"]) == {row[0].strip("`") for row in table_rows("Outputs")}


def test_the_readme_explains_every_status_that_the_script_has_a_hint_for() -> None:
    """Who meets a number in a log finds it in the table."""
    hints = REPORT.read_text().partition("HINTS = {")[2].partition("}")[0]

    explained = {int(n) for row in table_rows("When a report is not taken") for n in re.findall(r"\b\d{3}\b", row[0])}
    assert {int(n) for n in re.findall(r"^    (\d{3}):", hints, re.MULTILINE)} <= explained


def test_the_readme_names_every_example() -> None:
    """No listener lies about unexplained."""
    text = README.read_text()

    assert [] == [path.name for path in LISTENERS if f"examples/listeners/{path.name}" not in text]


def test_the_linter_of_workflow_security_finds_nothing() -> None:
    """Injection, missing pins, wide permissions, kept credentials."""
    tool("zizmor", "--offline", "--no-progress", ACTION, *WORKFLOWS)


def test_the_linter_of_workflow_security_is_awake(tmp_path: Path) -> None:
    """The same call finds the mistake that once ran a pull request's title in a listener's shell."""
    bad = tmp_path / "bad.yml"
    injected = "run: echo '${{ github.event.client_payload.payload.pull_request.title }}'"
    text = next(path for path in WORKFLOWS if path.name == "one-job.yml").read_text()
    bad.write_text(re.sub(r"run: \|\n.*\n.*\n", injected + "\n", text))

    with pytest.raises(AssertionError, match="template-injection"):
        tool("zizmor", "--offline", "--no-progress", bad)


def test_the_action_linter_finds_nothing(tmp_path: Path) -> None:
    """Expressions, contexts, inputs of our own action and of the called workflow, shells.

    The examples stand where a backend puts them, and for their placeholder stands the action itself, in the form that
    needs no checkout.
    """
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    shutil.copytree(ROOT / "callback_action", tmp_path / "callback_action")
    for path in WORKFLOWS:
        (folder / path.name).write_text(path.read_text().replace(OURS, "$/callback_action"))
    subprocess.run([GIT, "init", "-q", "."], cwd=tmp_path, check=True)

    tool("jactionlint", "--shellcheck=", *sorted(folder.iterdir()), cwd=tmp_path)

    wrong = folder / "one-job.yml"
    wrong.write_text(wrong.read_text().replace("conclusion:", "conclusions:"))
    with pytest.raises(AssertionError, match="conclusions"):
        tool("jactionlint", "--shellcheck=", wrong, cwd=tmp_path)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_a_full_sha(path: Path) -> None:
    """Tags move; ours is the placeholder that the README says how to replace."""
    uses = [step["uses"] for step in steps(path) if "uses" in step]

    assert [] == [use for use in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", use)]
    assert {OURS} >= {use for use in uses if "callback_action" in use}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_where_code_under_test_runs_no_token_can_be_minted(path: Path) -> None:
    """Except in the one-job form, which says so in its first lines."""
    for name, job in load(path)["jobs"].items():
        if path.name == "one-job.yml" or "uses" in job:
            continue
        runs_code = any("run" in step for step in job["steps"])
        assert (name, {"contents": "read"} if runs_code else {"id-token": "write"}) == (name, job["permissions"])
        assert not any("cache" in step.get("uses", "") for step in job["steps"])
    assert {} == load(path)["permissions"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_job_ends(path: Path) -> None:
    """A job without a timeout may hold a pull request for six hours."""
    assert [] == [n for n, job in load(path)["jobs"].items() if "uses" not in job and "timeout-minutes" not in job]


@pytest.mark.parametrize("name", ["split.yml", "one-job.yml", "versions.yml"])
def test_a_listener_can_be_found_and_cancelled(name: str) -> None:
    """The relay finds runs by their name; `closed` cancels what runs and starts nothing itself.

    It hears whatever its entry may ask for of what the relay sends: else a merge group would wait for it in vain.
    """
    workflow = load(next(path for path in WORKFLOWS if path.name == name))

    assert "crcr ${{ github.event.client_payload.delivery_id }}" == workflow["run-name"]
    assert EVENTS & WANTED_EVENTS == set(workflow["on"]["repository_dispatch"]["types"])
    assert workflow["concurrency"]["cancel-in-progress"] is True
    number, other = workflow["concurrency"]["group"].split(" || ")
    assert "crcr-${{ github.event.client_payload.payload.pull_request.number" == number
    assert "github.event.client_payload.relay.change.head_sha }}" == other
    assert [] == [n for n, job in workflow["jobs"].items() if "payload.action != 'closed'" not in job["if"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_the_commit_under_test_is_named_whatever_the_event(path: Path) -> None:
    """A push and a merge group have no pull request, and each names its commit elsewhere in its own payload."""
    asked = set(re.findall(r"client_payload\.([\w.]+)", path.read_text()))

    assert set() == asked - {
        "delivery_id",
        "payload.action",
        "payload.pull_request.number",
        "payload.pull_request.title",
        "payload.repository.full_name",
        "relay.change.head_sha",
    }
