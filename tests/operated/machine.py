"""The machine: a checkout, folders for the places of a system, free ports for the guide's, and a simulated GitHub."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from ruamel.yaml import YAML

from relay.simulator import Simulator
from tests.started.process import BIN, for_shells

ROOT = Path(__file__).parents[2]
TOOLS = Path(__file__).with_name("tools.py")
#: What the guide calls and ``tools`` stands in for. ``crcr`` is on nobody's path there.
NAMES = ("crcr", "curl", "docker", "git", "install", "python3", "runuser", "systemctl", "systemd-run", "useradd")
PORTS = ("8001", "8002", "8101", "8102")
#: Where the guide writes to, and what stands for it in the machine's folder.
PLACES = {
    "/etc/crcr": "etc/crcr",
    "/etc/systemd/system": "units",
    "/opt/crcr": "opt/crcr",
    "/var/backups/crcr": "backups/crcr",
}


class Machine:
    """A machine as the guide's reader finds it. What was started on it ends with the block."""

    def __init__(self, folder: Path, sim: Simulator, database_url: str) -> None:
        self.folder = folder
        self.checkout = folder / "checkout"
        self.etc = folder / "etc" / "crcr"
        for name in ("etc", "units", "opt", "backups", "run", "bin"):
            (folder / name).mkdir()
        self._ports = dict(zip(PORTS, _free_ports(len(PORTS)), strict=True))
        self._check_out()
        self._write_secrets(sim, database_url)
        plain = {name: value for name, value in os.environ.items() if not name.startswith("CRCR_")}
        service = for_shells(plain | {"LC_ALL": "C.UTF-8"})
        described = folder / "machine.json"
        described.write_text(
            json.dumps(
                {
                    "root": str(ROOT),
                    "run": str(folder / "run"),
                    "units": str(folder / "units"),
                    "crcr": str(BIN / "crcr"),
                    "environment": service,
                    "services": self._services(),
                }
            )
        )
        for name in NAMES:
            tool = folder / "bin" / name
            tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{TOOLS}" {name} "$@"\n')
            tool.chmod(0o755)
        self._reader = plain | {
            "PATH": f"{folder / 'bin'}{os.pathsep}{plain['PATH']}",
            "LC_ALL": "C.UTF-8",
            "MACHINE": str(described),
        }

    def here(self, text: str) -> str:
        """The same, on this machine."""
        text = re.sub(rf"\b({'|'.join(PORTS)})\b", lambda found: self._ports[found[0]], text)
        for place, ours in PLACES.items():
            text = text.replace(place, str(self.folder / ours))
        return text

    def follow(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run these lines in one shell, up to the first that fails. Each is repeated on standard error."""
        return subprocess.run(
            ["/bin/sh", "-e", "-x", "-c", self.here(script)],
            cwd=self.checkout,
            env=self._reader,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    def logs(self) -> str:
        """What each process wrote."""
        return "\n".join(f"{path.name}:\n{path.read_text()}" for path in sorted((self.folder / "run").glob("*.log")))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for noted in (self.folder / "run").glob("*.pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(noted.read_text()), signal.SIGKILL)

    def _check_out(self) -> None:
        """The examples with the places and ports of this machine, as they would be written for another one too."""
        shutil.copytree(ROOT / "examples", self.checkout / "examples")
        for path in (self.checkout / "examples").rglob("*"):
            if path.is_file():
                path.write_text(self.here(path.read_text()))

    def _write_secrets(self, sim: Simulator, database_url: str) -> None:
        """What its reader writes: the settings of this place, and the files of secrets."""
        settings = self.checkout / "examples" / "crcr.env"
        written = settings.read_text().replace("CRCR_DRAIN_SECONDS=5", "CRCR_DRAIN_SECONDS=0.2")
        settings.write_text(f"{written}CRCR_GITHUB_API_URL={sim.url}\n")
        named = dict(line.split("=", 1) for line in written.splitlines() if line and line[0] != "#")
        app = sim.create_app(int(named["CRCR_GITHUB_APP_ID"]))
        listed = "L2:\n  - your-org/your-backend\n"
        sim.create_upstream(named["CRCR_UPSTREAM"], files={".github/allowlist.yml": listed})
        sim.create_backend("your-org/your-backend")
        for name, text in {
            "app.pem": app.private_key_pem,
            "webhook-secrets": "the old secret of the app",
            "database-url": database_url,
            "database-password": "nobody can guess it",
        }.items():
            (self.checkout / name).write_text(f"{text}\n")

    def _services(self) -> dict[str, dict[str, Any]]:
        """What compose would do with each service that runs our image."""
        found: dict[str, dict[str, Any]] = {}
        compose = YAML(typ="safe").load(self.checkout / "examples" / "compose.yaml")
        for name, service in compose["services"].items():
            if service["image"].startswith("crcr"):
                (port,) = service.get("ports", ["::"])
                # A container listens on all of its addresses, which are its own; here those would be the machine's.
                at = {"0.0.0.0": "127.0.0.1", "8000": port.split(":")[1]}  # noqa: S104
                command = [at.get(word, word) for word in service["command"]]
                found[name] = {"command": command, "env_file": service["env_file"][0], "serves": port != "::"}
        return found


def _free_ports(count: int) -> list[str]:
    with contextlib.ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [str(probe.getsockname()[1]) for probe in sockets]
