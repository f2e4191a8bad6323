"""The house keeps its own rules: short files, speaking names, a true picture, and nothing of the machine it grew on."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_LINES = 400

#: Longer files, each with its reason.
LONGER = {
    "callback_action/report.py": "runs on other people's machines as the one file that an action can start",
    "relay/store/migrations/versions/0001_the_first_tables.py": "written by alembic",
}
#: Names that say nothing about what is inside.
NOTHING_SAID = {"utils", "util", "common", "misc", "helpers", "helper", "manager", "managers", "lib", "stuff"}

_GENERATED = {"requirements.lock", "requirements-dev.lock", "requirements-build.lock", "LICENSE"}


@cache
def tracked() -> tuple[Path, ...]:
    """The project's files: what git knows where this is a checkout, else everything that is no product."""
    git = shutil.which("git")
    if git is not None and (ROOT / ".git").exists():
        command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        # Git does not speak of a checkout that belongs to somebody else.
        if done.returncode == 0:
            names = done.stdout.split("\0")
            return tuple(sorted(Path(name) for name in names if name and (ROOT / name).is_file()))
    hidden = re.compile(r"(^|/)(\.(?!ci|gitignore)|__pycache__|dist|build)")
    return tuple(
        sorted(
            path.relative_to(ROOT)
            for path in ROOT.rglob("*")
            if path.is_file() and not hidden.search(str(path.relative_to(ROOT)))
        )
    )


def texts() -> Iterator[tuple[str, str]]:
    """Every text that people write here, with its name."""
    for path in tracked():
        if path.name not in _GENERATED:
            raw = (ROOT / path).read_bytes()
            if b"\0" not in raw[:1000]:
                yield str(path), raw.decode("utf-8")


def long_files(lines: dict[str, int]) -> dict[str, int]:
    """Those that are too long and have no reason."""
    return {name: count for name, count in lines.items() if count > MOST_LINES and name not in LONGER}


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    """Code and tests are split by meaning before they grow past 400 lines."""
    lines = {name: text.count("\n") for name, text in texts() if name.endswith((".py", ".html", ".css", ".js"))}

    assert {} == long_files(lines)
    assert set(LONGER) == {name for name in LONGER if lines[name] > MOST_LINES}
    assert {"relay/x.py": 401} == long_files({"relay/x.py": 401, "relay/y.py": 400})


def test_every_module_is_named_for_what_it_means() -> None:
    """Where things go that have no name, nobody finds them."""
    assert [] == [
        str(path) for path in tracked() if NOTHING_SAID & {part.partition(".")[0].lower() for part in path.parts}
    ]


def test_every_module_says_why_it_exists() -> None:
    """A file opens with the reason for it."""
    silent = [
        name
        for name, text in texts()
        if name.endswith(".py") and not name.startswith("tests/") and text and not re.match(r'(?:#!.*\n)?r?"""', text)
    ]

    assert [] == silent


def picture() -> list[str]:
    """The files and folders that the README's house names."""
    house = (ROOT / "README.md").read_text().partition("## The house")[2].partition("```\n")[2].partition("```")[0]
    named: list[str] = []
    room = ""
    for line in house.splitlines():
        found = re.match(r"^( *)((?:[\w/]+(?:/|\.py)(?: |$))+)", line)
        assert found is not None, line
        names = found[2].split()
        if not found[1]:
            (room,) = names
            named.append(room)
        else:
            named += [f"{room}{name}" for name in names]
    return named


def test_the_picture_shows_the_house() -> None:
    """Whatever it names is there, and no room of the house is missing."""
    named = picture()

    assert [] == [name for name in named if not (ROOT / name).exists()]
    rooms = {
        f"{part.parts[0]}/" if len(part.parts) == 2 else f"relay/{part.parts[1]}/"
        for part in tracked()
        if len(part.parts) == 2 or (len(part.parts) > 2 and part.parts[0] == "relay")
    }
    assert set() == {room for room in rooms if not room.startswith(".")} - set(named)


#: Where this was written is nobody's business, and would work on no other machine.
_MACHINE = re.compile(r"(?<![\w.~$}-])/(?:work|root|home|Users)/\w")
#: What is fetched comes by name from a package registry, never from an address in here.
_DOWNLOADS = re.compile(
    r"https?://(?:[\w.-]*\.)?(?:files\.pythonhosted\.org|pypi\.org|registry\.npmjs\.org|deb\.debian\.org|"
    r"raw\.githubusercontent\.com|codeload\.github\.com|objects\.githubusercontent\.com)"
    r"|https?://\S+\.(?:tar\.gz|tgz|zip|whl|deb|rpm|exe|dmg|jar)\b"
    r"|\b(?:curl|wget)\s+(?:-\S+\s+)*['\"]?https?://|git\+https?://"
)
#: Texts that hold such things because they are about them.
_ABOUT_THEM = {"tests/test_house.py"}


def found(pattern: re.Pattern[str]) -> list[str]:
    """Where the pattern stands, as FILE: TEXT."""
    return [
        f"{name}: {match[0]}"
        for name, text in texts()
        if name not in _ABOUT_THEM and not name.startswith("tests/relay/data/")
        for match in pattern.finditer(text)
    ]


def test_no_path_of_a_machine_is_kept() -> None:
    """A clone works wherever it lies."""
    assert [] == found(_MACHINE)
    assert _MACHINE.search("open('/home/me/x')")


def test_no_address_to_download_from_is_kept() -> None:
    """Packages come by name from whatever registry the machine uses; locks hold hashes and no addresses."""
    assert [] == found(_DOWNLOADS)
    assert _DOWNLOADS.search("curl -sSf https://example.org/install.sh")
    for lock in sorted(_GENERATED - {"LICENSE"}):
        text = (ROOT / lock).read_text()
        assert "://" not in text, lock
        assert all("--hash=sha256:" in text.split(f"\n{line}")[1].split("\n\n")[0] for line in _pins(text)[1:]), lock


def _pins(lock: str) -> list[str]:
    return [line for line in lock.splitlines() if re.match(r"^[a-z0-9]", line)]


def test_the_imports_run_one_way() -> None:
    """allowlist <- levels <- relay, and what decides does no I/O."""
    command = [str(Path(sys.executable).parent / "lint-imports")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stdout
