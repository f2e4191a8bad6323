"""The demo as a newcomer sees it: in a pipe, on a terminal, and where something is wrong."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import termios
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path

import pytest

from relay.demo import run_demo
from relay.demo.scene import ACTORS, PROPOSALS
from tests.started.process import Started, run, start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

#: Whoever runs the tests may have set any of these; the demo must not need them.
PLAIN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith("CRCR_") and name not in {"COLUMNS", "NO_COLOR", "FORCE_COLOR", "TERM"}
}
COLOUR = re.compile(r"\x1b\[[0-9;]*(?:3[0-7]|9[0-7])m")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def test_once_holds_every_expectation_and_ends(tmp_path: Path) -> None:
    """In a pipe: plain lines of at most 100 columns, every pull request, every combination, exit code 0."""
    done = run("demo", "--once", environment=PLAIN | {"TMPDIR": str(tmp_path)}, folder=tmp_path, timeout=240)

    assert 0 == done.returncode, done.stdout + done.stderr
    assert done.stderr == ""
    assert [] == [line for line in done.stdout.splitlines() if len(line) > 100]
    assert "\x1b" not in done.stdout
    _, results, truths = re.split(r"\n(?=Results by|What had to be)", done.stdout)
    assert all(f"#{number} {one.title}" in done.stdout for number, one in enumerate(PROPOSALS, 1))
    assert {"2.9", "2.10"} <= {line.split()[2] for line in results.splitlines() if line.startswith("  dogwood/xpu")}
    held = re.findall(r"^  ok ", truths, re.MULTILINE)
    assert len(held) > 10 + len(PROPOSALS)
    assert f"{len(held)} of {len(held)} expectations held." in truths
    assert [] == list(tmp_path.iterdir())


def test_what_does_not_hold_is_shown_and_fails() -> None:
    """Without patience nothing has finished: the exit code says so, and what was wanted stands beside what was seen."""
    output = io.StringIO()

    assert 1 == run_demo(once=True, output=output, patience=0.0)

    said = output.getvalue()
    assert re.search(r"^  failed +#1 shows these checks and no others", said, re.MULTILINE)
    assert "wanted: {'crcr/gate': 'success'" in said
    assert re.search(r"^  ok +Every pull_request webhook was answered 202", said, re.MULTILINE)


@contextmanager
def on_a_terminal(columns: int, tmp_path: Path, **environment: str) -> Iterator[tuple[Started, int]]:
    """The demo on a terminal of that width: the process, and the other end of its terminal."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = start(
        "demo",
        environment=PLAIN | {"TMPDIR": str(tmp_path), "TERM": "xterm-256color", **environment},
        folder=tmp_path,
        given=theirs,
        output=theirs,
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def press_ctrl_c(process: Started) -> None:
    """As a terminal does it: every process of the group is told, those of the runners too."""
    os.killpg(process.pid, signal.SIGINT)


def read_until(ours: int, text: str, seconds: float) -> str:
    """What the terminal shows until this text, or until the program has ended."""
    said = b""
    end = time.monotonic() + seconds
    while text.encode() not in said and time.monotonic() < end:
        if select.select([ours], [], [], 0.2)[0]:
            try:
                chunk = os.read(ours, 65_536)
            except OSError:  # Linux answers EIO once the other end is closed.
                break
            said += chunk
    return said.decode("utf-8", "replace")


def test_on_a_terminal_it_serves_until_ctrl_c(tmp_path: Path) -> None:
    """The pages' address works, the printed command answers why, and Ctrl-C ends it without a traceback."""
    with on_a_terminal(72, tmp_path, NO_COLOR="1") as (process, ours):
        said = read_until(ours, "ask why", 240)
        said += "" if "\n" in said.partition("ask why")[2] else read_until(ours, "\n", 5)
        shown = ESCAPE.sub("", said).replace("\r", "")
        assert "Ctrl-C ends it" in shown, shown

        found = re.search(r"^  API +(\S+)$", shown, re.MULTILINE)
        assert found is not None
        with urllib.request.urlopen(f"{found[1]}?kind=pull_request", timeout=10) as answer:
            assert len(PROPOSALS) == len(json.load(answer)["items"])
        page = re.search(r"^  pages +(\S+)$", shown, re.MULTILINE)
        assert page is not None
        with urllib.request.urlopen(page[1], timeout=10) as answer:
            assert PROPOSALS[0].title in answer.read().decode()

        asked = re.search(r"^  ask why +(.+)$", shown, re.MULTILINE)
        assert asked is not None
        why = subprocess.run(shlex.split(asked[1]), capture_output=True, text=True, check=True, cwd=tmp_path)
        assert "result: silent" in why.stdout

        press_ctrl_c(process)
        rest = read_until(ours, "Stopped.", 30)
        assert 0 == process.wait(30)

    assert "Stopped." in rest
    assert "Traceback" not in said + rest
    assert COLOUR.search(said) is None
    # A narrow terminal folds the tables; only addresses may be longer, so that they stay whole.
    tables = shown.partition("The relay goes on serving")[0]
    assert [] == [line for line in tables.splitlines() if len(line) > 72]
    assert all(actor.name in tables for actor in ACTORS)
    assert [] == list(tmp_path.iterdir())


def test_it_can_be_stopped_while_it_starts(tmp_path: Path) -> None:
    """Ctrl-C at any moment is an ordinary end: nothing is left behind and nothing is dumped on the terminal."""
    with on_a_terminal(120, tmp_path) as (process, ours):
        said = read_until(ours, "In this demo it", 60)
        press_ctrl_c(process)
        rest = read_until(ours, "Interrupted.", 60)
        code = process.wait(30)

    assert 130 == code, said + rest
    assert "Traceback" not in said + rest
    assert [] == list(tmp_path.iterdir())
