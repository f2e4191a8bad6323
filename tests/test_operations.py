"""The files that people run the service by: what they start is started, and every command of the guide is run."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from relay.serving import FINISHING_SECONDS
from relay.settings import SECRET_FIELDS, Settings
from relay.simulator import Simulator, wait_until
from relay.work.outbox import DRAIN_SECONDS
from tests.conftest import empty
from tests.started.process import for_shells
from tests.stories.test_replicas import readiness

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
GUIDE = (EXAMPLES / "OPERATIONS.md").read_text()
BIN = Path(sys.executable).parent
#: What a request and the work may still take after a process has stopped to take new ones.
UNDER_WAY = FINISHING_SECONDS + DRAIN_SECONDS


def unit(name: str) -> dict[str, list[str]]:
    """A unit file's keys, each with all of its values: they may stand there several times."""
    found: dict[str, list[str]] = {}
    for line in (EXAMPLES / "systemd" / name).read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def compose() -> dict[str, Any]:
    """The compose file."""
    found: dict[str, Any] = YAML(typ="safe").load(EXAMPLES / "compose.yaml")
    return found


def variables() -> dict[str, str]:
    """The environment file that both use."""
    lines = (EXAMPLES / "crcr.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


UNITS = sorted(path.name for path in (EXAMPLES / "systemd").iterdir())
SERVICES = compose()["services"]
LINES = [
    line.strip()
    for body in re.findall(r"^ *```sh\n(.*?)^ *```$", GUIDE, re.MULTILINE | re.DOTALL)
    for line in body.splitlines()
]
#: What needs a machine of its own. That it names what is there is looked at; the rest is run.
NOT_RUN = ("systemctl ", "docker ")


def test_every_variable_is_a_setting() -> None:
    """A misspelt one would be ignored in silence."""
    known = {f"CRCR_{name.upper()}" for name in Settings.model_fields}
    known |= {f"CRCR_{name.upper()}_FILE" for name in SECRET_FIELDS}

    assert set() == set(variables()) - known


def test_every_secret_s_file_is_in_the_guide() -> None:
    """Whoever sets it up makes the files that the table names, and needs no other."""
    named = set(re.findall(r"^\| `([\w.-]+)` \|", GUIDE, re.MULTILINE))
    used = {Path(value).name for name, value in variables().items() if name.endswith("_FILE")}

    assert named == used | {Path(secret["file"]).name for secret in compose()["secrets"].values()}


def test_nobody_is_killed_while_he_finishes() -> None:
    """Leaving takes as long as the settings and the code say; whoever stops the process has to wait for longer."""
    longest = float(variables()["CRCR_DRAIN_SECONDS"]) + UNDER_WAY
    graces = [float(SERVICES[name]["stop_grace_period"].removesuffix("s")) for name in SERVICES if "-" in name]
    graces += [float(unit(name)["TimeoutStopSec"][0]) for name in UNITS if "@" in name]

    assert 6 == len(graces)
    assert longest < min(graces)
    said = f"{FINISHING_SECONDS} s for requests and {DRAIN_SECONDS:.0f} s for work"
    texts = [(EXAMPLES / "compose.yaml").read_text(), *((EXAMPLES / "systemd" / name).read_text() for name in UNITS)]
    assert 3 == sum(said in text for text in texts)
    assert f"({FINISHING_SECONDS} s at most) and the work ({DRAIN_SECONDS:.0f} s at most)" in GUIDE


def test_there_are_two_of_each_and_they_start_after_the_migration() -> None:
    """One may die or be rolled at any time; and none starts on a schema of yesterday."""
    commands = [tuple(service["command"]) for service in SERVICES.values() if "serve" in service.get("command", [])]

    assert [2, 2] == [sum(role in command for command in commands) for role in ("web", "worker")]
    for name, service in SERVICES.items():
        if name.startswith(("web", "worker")):
            assert {"migrate": {"condition": "service_completed_successfully"}} == service["depends_on"]
    for name in UNITS:
        if "@" in name:
            assert "crcr-migrate.service" in unit(name)["After"][0].split()


def test_both_ways_start_the_same() -> None:
    """Word for word, but for where each listens: a container on all of its addresses, which are its own."""

    def started_by(name: str) -> list[str]:
        (line,) = unit(name)["ExecStart"]
        return line.replace("%i", "8000").split()[1:]

    for service, name in [
        *((f"{role}-{number}", f"crcr-{role}@.service") for role in ("web", "worker") for number in (1, 2)),
        ("migrate", "crcr-migrate.service"),
    ]:
        command = re.sub(r"--host \S+", "--host 127.0.0.1", shlex.join(SERVICES[service]["command"]))
        assert ["crcr", *started_by(name)] == command.split()


def test_the_proxy_knows_every_process_that_answers() -> None:
    """One that it does not know would be there for nothing."""
    (members,) = re.findall(r"reverse_proxy (.*) \{", (EXAMPLES / "Caddyfile").read_text())

    assert {f"{name}:8000" for name in SERVICES if name.startswith("web")} == set(members.split())


def test_the_image_has_what_it_copies() -> None:
    """And installs what the lock says, by its hashes."""
    text = (EXAMPLES / "Dockerfile").read_text()
    copied = [name for line in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE) for name in line.split()]

    assert [] == [name for name in copied if not (ROOT / name).exists()]
    assert {"allowlist", "levels", "relay", "callback_action", "requirements.lock"} <= set(copied)
    assert "--require-hashes -r requirements.lock" in text
    assert re.search(r"^USER \d+:\d+$", text, re.MULTILINE)


def test_the_guide_names_only_what_is_there() -> None:
    """Services, units and files that its commands and links name."""
    for line in LINES:
        words = shlex.split(line)
        if words[:1] == ["systemctl"]:
            assert re.sub(r"@\d+", "@", words[-1]) in UNITS
        elif words[:2] == ["docker", "compose"]:
            assert ["-f", "examples/compose.yaml"] == words[2:4]
            assert words[-1] in SERVICES
    assert [] == [link for link in re.findall(r"\]\(([^)]+)\)", GUIDE) if not (EXAMPLES / link).exists()]
    assert 8 <= sum(line.startswith(NOT_RUN) for line in LINES)


# --- What is run -----------------------------------------------------------------------------------------------------


class Machine:
    """A folder in place of ``/etc/crcr``, ports of its own, and a simulated GitHub with what the settings name."""

    def __init__(self, folder: Path, sim: Simulator, database_url: str) -> None:
        self.folder = folder
        self.etc = folder / "etc"
        self.etc.mkdir()
        self.ports = {name: _free_port() for name in ("8001", "8101", "8000")}
        app = sim.create_app(int(variables()["CRCR_GITHUB_APP_ID"]))
        sim.create_upstream("your-org/upstream", files={".github/allowlist.yml": "L2:\n  - your-org/your-backend\n"})
        sim.create_backend("your-org/your-backend")
        for name, text in {
            "app.pem": app.private_key_pem,
            "webhook-secrets": "the old secret of the app",
            "database-url": database_url,
            "crcr.env": self.here((EXAMPLES / "crcr.env").read_text()),
        }.items():
            (self.etc / name).write_text(f"{text}\n")
        plain = {name: value for name, value in os.environ.items() if not name.startswith("CRCR_")}
        path = f"{BIN}{os.pathsep}{plain['PATH']}"
        self.shell = plain | {"PATH": path, "CRCR_GITHUB_API_URL": sim.url, "LC_ALL": "C.UTF-8"}
        settings = (line.split("=", 1) for line in self.here((EXAMPLES / "crcr.env").read_text()).splitlines())
        self.service = self.shell | {pair[0]: pair[1] for pair in settings if len(pair) == 2 and pair[0][0] != "#"}

    def here(self, text: str) -> str:
        """The same, on this machine."""
        text = text.replace("/etc/crcr", str(self.etc)).replace("/opt/crcr/bin/crcr", str(BIN / "crcr"))
        return re.sub(r"\b(8001|8101|8000)\b", lambda found: str(self.ports[found[0]]), text)

    @contextlib.contextmanager
    def serving(self, command: str) -> Iterator[str]:
        """The command's process, ready, and its URL; told to stop with the block."""
        words = shlex.split(self.here(command))
        port = words[words.index("--port") + 1]
        with (self.folder / f"{port}.log").open("wb") as log:
            process = subprocess.Popen(words, env=self.service, cwd=self.folder, stdout=log, stderr=log)
        url = f"http://127.0.0.1:{port}"
        try:
            wait_until(lambda: readiness(url)[0] == 200 or process.poll() is not None, 60, what=command)
            assert process.poll() is None, (self.folder / f"{port}.log").read_text()
            yield url
        finally:
            process.kill()
            process.wait(30)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
@pytest.mark.postgres
def test_what_is_written_there_runs(tmp_path: Path, postgres_url: str) -> None:
    """The migration and a worker as compose starts them, a web process as systemd does; then each line of the guide."""
    empty(postgres_url)
    with Simulator() as sim:
        machine = Machine(tmp_path, sim, postgres_url)
        migrate, worker = (shlex.join(SERVICES[name]["command"]) for name in ("migrate", "worker-1"))
        # A container listens on all of its addresses, which are its own; here that would be the machine's.
        worker = re.sub(r"--host \S+", "--host 127.0.0.1", worker)
        (web,) = unit("crcr-web@.service")["ExecStart"]
        done = subprocess.run(shlex.split(migrate), env=machine.service, capture_output=True, text=True, check=False)
        assert 0 == done.returncode, done.stderr
        with (
            machine.serving(web.replace("%i", "8001")),
            machine.serving(worker.replace("8000", "8101")),
        ):
            script = "\n".join(machine.here(line) for line in LINES if not line.startswith(NOT_RUN))
            ran = subprocess.run(
                ["/bin/sh", "-e", "-x", "-c", script],
                env=for_shells(machine.shell),  # A second less for each command; what serves is started anew.
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
            )

    assert 0 == ran.returncode, f"{ran.stdout}\n{ran.stderr}"
    # The rotation has left the new secret alone in the file.
    (secret,) = re.findall(r"^\+ NEW=(\S+)$", ran.stderr, re.MULTILINE)
    assert f"{secret}\n" == (machine.etc / "webhook-secrets").read_text()
