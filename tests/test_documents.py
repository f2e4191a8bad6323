"""What the documents say is so: every command runs, every table is the code's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from relay.doctor import EVENTS, MORE_EVENTS, MORE_EVENTS_OF_BACKENDS
from relay.github.needs import DOWNSTREAM_NEEDS, DOWNSTREAM_OPTIONS, UPSTREAM_NEEDS
from relay.settings import DEFAULT_ISSUERS, SECRET_FIELDS, Settings
from relay.simulator import App, Simulator
from relay.texts.words import span
from relay.work.schedule import JITTER, SCHEDULE
from tests.started.process import for_shells
from tests.test_cli import alive, served

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SERVICE = (ROOT / "relay" / "README.md").read_text()
GUIDES = [ROOT / "README.md", *sorted(ROOT.glob("*/README.md"))]
BIN = Path(sys.executable).parent
MAKE = shutil.which("make") or "make"
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
TARGETS = {"demo", "test", "quick", "check", "bench", "crash", "soak", "mutate", "lock", "clean", "help"}


# --- The tables ------------------------------------------------------------------------------------------------------


def setting_rows() -> list[tuple[str, str, str]]:
    """The table of settings as the code has it."""
    rows = []
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if field.is_required():
            shown = "**required**"
        elif default == DEFAULT_ISSUERS:
            shown = "GitHub's and Buildkite's"
        elif default is None or default in ((), {}):
            shown = "none"
        else:
            shown = f"`{str(default).lower() if isinstance(default, bool) else default}`"
        file = " Or `..._FILE`." if name in SECRET_FIELDS else ""
        rows.append((f"`CRCR_{name.upper()}`", shown, f"{field.description}{file}"))
    return rows


def schedule_rows() -> list[tuple[str, str, str]]:
    """The table of retries as the code has it."""
    passed = timedelta()
    rows = []
    for number, wait in enumerate(SCHEDULE, 1):
        passed += wait
        rows.append((str(number), span(wait) if wait else "at once", span(passed) if passed else ""))
    return rows


def table(text: str, head: str) -> list[tuple[str, ...]]:
    """The body of the one table whose head begins like this."""
    lines = [line.strip() for line in text.splitlines()]
    (start,) = [number for number, line in enumerate(lines) if line.startswith(head)]
    body = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        body.append(tuple(cell.strip() for cell in line.strip("|").split(" | ")))
    return body


def test_the_table_of_settings_is_the_code_s() -> None:
    """Every variable with its default and meaning, and none that is not there."""
    assert setting_rows() == table(SERVICE, "| variable |")


def test_the_retry_schedule_is_the_code_s() -> None:
    """Published, so that everybody can tell how long we go on."""
    assert schedule_rows() == table(SERVICE, "| try |")
    assert f"spread by {JITTER:.0%}".replace("%", " %") in SERVICE


def test_the_permissions_are_those_the_doctor_asks_for() -> None:
    """Who sets up the app reads here what the code needs."""

    def said(needs: Mapping[str, str]) -> str:
        return ", ".join(f"{name} {access}" for name, access in sorted(needs.items()))

    assert [("upstream", said(UPSTREAM_NEEDS)), ("backends", said(DOWNSTREAM_NEEDS))] == table(SERVICE, "| where |")
    words = " ".join(SERVICE.split())
    for option in DOWNSTREAM_OPTIONS:
        assert f"`{option.permission}` {option.access} is optional: without it {option.without}." in words
    said_of_events = words.partition("Register a GitHub App")[2].partition("Permissions")[0]
    assert {*EVENTS, *MORE_EVENTS, *MORE_EVENTS_OF_BACKENDS} == set(re.findall(r"`([a-z_]+)`", said_of_events))


@pytest.mark.slow
def test_the_paths_are_served(tmp_path: Path, simulated: tuple[Simulator, App]) -> None:
    """Every path in the table is answered, with its method, by the service as it runs."""
    environment = admin_environment(simulated[0], tmp_path, simulated[1])
    wanted = [path.strip("`").split(" ") for path, _ in table(SERVICE, "| path |")]

    assert len(wanted) == 11
    with served(settings_of(environment), tmp_path) as (url, process):
        assert alive(url, process), (tmp_path / "log").read_text()
        answers = {f"{method} {path}": answered(method, f"{url}{path}") for method, path in wanted}
        described = answered("GET", f"{url}/api/v1/openapi.json")

    assert 200 == described
    assert {
        # Unsigned, without a token, without a question: refused by the very path that was meant.
        "POST /github/webhook": 401,
        "POST /github/callback": 401,
        "POST /github/callback/batch": 401,
        "GET /api/v1/why": 422,
        "POST /api/v1/admin/overrides": 404,  # Nobody is an admin there.
    } == {what: status for what, status in answers.items() if status != 200}


def answered(method: str, url: str) -> int:
    """The status of the answer."""
    request = urllib.request.Request(url, data=b"{}" if method == "POST" else None, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_every_dependency_stands_there_with_its_reason() -> None:
    """What we pull in is a decision, and each has a line."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[\[>=<]", requirement)[0] for requirement in requirements}

    runtime = table(README, "| package |")
    assert names(project["project"]["dependencies"]) == {package.strip("`") for package, _ in runtime}
    assert [] == [package for package, reason in runtime if not reason]
    paragraph = README.partition("For development only:")[2].partition("\n\n")[0]
    groups = project["dependency-groups"]
    assert names(groups["dev"]) | names(groups["build"]) == set(re.findall(r"`([\w-]+)`", paragraph))


def test_every_link_between_documents_leads_somewhere() -> None:
    """Files that the guides point to are there."""
    broken = [
        (str(guide.relative_to(ROOT)), target)
        for guide in [*GUIDES, *sorted((ROOT / "examples").rglob("*.md")), ROOT / "CHANGELOG.md"]
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", guide.read_text())
        if "://" not in target and not (guide.parent / target).exists()
    ]

    assert [] == broken


# --- The commands ----------------------------------------------------------------------------------------------------


def commands() -> list[str]:
    """Every line of every block that readers are told to run, in all guides."""
    found: dict[str, None] = {}
    for guide in GUIDES:
        for _, language, body in FENCE.findall(guide.read_text()):
            lines = [line.strip() for line in body.splitlines()]
            if language in {"sh", "bash", "shell"}:
                found.update(dict.fromkeys(line for line in lines if line and not line.startswith("#")))
            elif not language:
                found.update(dict.fromkeys(line.removeprefix("$ ") for line in lines if line.startswith("$ ")))
    return list(found)


@pytest.fixture
def simulated() -> Iterator[tuple[Simulator, App]]:
    """A GitHub on which the admin has done what the guide says."""
    with Simulator() as sim:
        app = sim.create_app(123456)
        allowed = "L2:\n  - your-org/your-backend\n"
        sim.create_upstream("your-org/upstream", files={".github/allowlist.yml": allowed})
        sim.create_backend("your-org/your-backend")
        yield sim, app


def admin_environment(sim: Simulator, folder: Path, app: App) -> dict[str, str]:
    """The block of exports as the shell has it afterwards, in a folder that holds the files they name."""
    (folder / "app.pem").write_text(app.private_key_pem)
    (folder / "webhook-secret").write_text("a secret that nobody can guess")
    exported = dict(line.removeprefix("export ").split("=", 1) for line in commands() if line.startswith("export "))
    plain = {name: value for name, value in os.environ.items() if not name.startswith("CRCR_")}
    # The guide's reader talks to the public GitHub; here it is the simulated one.
    return plain | exported | {"CRCR_GITHUB_API_URL": sim.url, "PATH": f"{BIN}{os.pathsep}{plain['PATH']}"}


def settings_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings among these variables, by their names."""
    return {
        name.removeprefix("CRCR_").lower(): value for name, value in environment.items() if name.startswith("CRCR_")
    }


def shell(command: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A line as its reader would run it."""
    return subprocess.run(
        ["/bin/sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_there_are_commands_to_run() -> None:
    """The tests below look at what the documents hold; this one sees that they find it."""
    assert {"make demo", "make test", "crcr db migrate", "crcr doctor"} < set(commands())


@pytest.mark.parametrize("command", [line for line in commands() if line.startswith("make ")])
def test_make_knows_its_targets(command: str) -> None:
    """What they do is tested elsewhere: ``make demo`` in tests/demo, and this test is part of ``make test``."""
    done = subprocess.run([MAKE, *command.split()[1:], "-n"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stderr
    assert command.split()[1] in TARGETS


def test_make_help_names_every_target() -> None:
    """A target without a line of help would be one that nobody finds."""
    done = subprocess.run([MAKE, "help"], cwd=ROOT, capture_output=True, text=True, check=True)

    listed = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")}
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(phony.split()) == listed == TARGETS
    assert subprocess.run([MAKE], cwd=ROOT, capture_output=True, text=True, check=True).stdout == done.stdout


def test_make_demo_runs_the_demo() -> None:
    """Which tests/demo runs for real."""
    said = subprocess.run(
        [MAKE, "--no-print-directory", "-n", "demo", "ONCE=1"], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert ".venv/bin/python -m relay demo --once" == said.stdout.splitlines()[-1]


@pytest.mark.slow
def test_an_admin_gets_from_nothing_to_a_service(tmp_path: Path, simulated: tuple[Simulator, App]) -> None:
    """Every ``crcr`` line of every guide, in its order, in the environment that the admin's sets up."""
    sim, app = simulated
    environment = for_shells(admin_environment(sim, tmp_path, app))
    (tmp_path / ".github").mkdir()
    shutil.copy(ROOT / "examples" / "allowlist.yml", tmp_path / ".github" / "allowlist.yml")
    codes: dict[str, int] = {}
    said: dict[str, str] = {}
    for command in commands():
        if command.startswith("crcr ") and not command.startswith("crcr serve"):
            done = shell(command, tmp_path, environment)
            codes[command], said[command] = done.returncode, done.stdout + done.stderr

    assert {
        "crcr db migrate": 0,
        "crcr doctor": 0,
        # No pull request has come yet, and the answer says so.
        "crcr why 1234 your-org/your-backend": 1,
        # The service has not run yet, so no allowlist is in force.
        "crcr gaps heal --dry-run": 2,
        "crcr allowlist check .github/allowlist.yml": 0,
        "crcr deliveries list --dead --since 1d": 0,
        "crcr replay --decisions": 0,
        "crcr db history --since 30d": 0,
        "crcr db backup crcr-backup.db": 0,
    } == codes, said
    (serve,) = [command for command in commands() if command.startswith("crcr serve")]
    assert serve == "crcr serve --host 127.0.0.1 --port 8000"
    with served(settings_of(environment), tmp_path) as (url, process):
        assert alive(url, process), (tmp_path / "log").read_text()


def test_no_command_is_left_untested() -> None:
    """A new kind of line in a guide needs a harness here first."""
    tested = ("make ", "crcr ", "export CRCR_")

    assert [] == [line for line in commands() if not line.startswith(tested)]


def test_the_example_allowlist_is_good() -> None:
    """What people copy has no fault."""
    done = subprocess.run(
        [str(BIN / "crcr"), "allowlist", "check", str(ROOT / "examples" / "allowlist.yml")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


def test_the_changelog_has_this_version() -> None:
    """Whoever releases writes down what changed."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert re.search(rf"^## \[{re.escape(project['version'])}\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
