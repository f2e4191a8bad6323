"""The command as a person starts it, with all its modules to load: what it loads is part of what is looked at."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LISTED = "L1:\n  - org/one\nL4:\n  - org/four\n"


def test_the_version_is_the_distribution_s(tmp_path: Path) -> None:
    """One place says which version this is."""
    said = subprocess.run([sys.executable, "-m", "relay", "--version"], capture_output=True, check=True, cwd=tmp_path)

    assert f"crcr {version('cross-repo-ci-relay')}\n" == said.stdout.decode()


def test_an_allowlist_is_checked_without_the_service(tmp_path: Path) -> None:
    """Every change of the list waits for it, and the database's packages alone take half a second to load."""
    (tmp_path / "allowlist.yml").write_text(LISTED)
    heavy = "{'sqlalchemy', 'alembic', 'structlog', 'fastapi', 'httpx2'}"
    program = f"import sys, atexit; atexit.register(lambda: print({heavy} & set(sys.modules))); import relay.cli as it"

    for words in ("['allowlist', 'check', 'allowlist.yml']", "['--version']", "['doctor', '--help']"):
        command = [sys.executable, "-c", f"{program}; it.app({words})"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
        loaded = done.stdout.splitlines()[-1]
        assert ("doctor" in words) == (loaded != "set()"), done.stdout


def test_the_installed_command_is_the_module(tmp_path: Path) -> None:
    """``crcr`` and ``python -m relay`` are one program."""
    installed = shutil.which("crcr", path=str(Path(sys.executable).parent))
    assert installed is not None
    said = subprocess.run([installed, "--help"], capture_output=True, text=True, check=True, cwd=tmp_path).stdout

    for command in ("serve", "demo", "why", "doctor", "allowlist", "db"):
        assert f" {command} " in said
