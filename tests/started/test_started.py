"""A process that is forked from what is loaded is to everybody what a fresh one is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from relay.simulator import wait_until
from tests.started.process import Parent, for_shells, run, start

PLAIN = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}


@pytest.mark.parametrize("words", [["serve"], ["wyh", "1"]], ids=" ".join)
def test_it_says_what_a_fresh_one_says(tmp_path: Path, words: list[str]) -> None:
    """Words, output, standard error and exit status, also where the words are wrong."""
    command = [sys.executable, "-m", "relay", *words]
    fresh = subprocess.run(command, env=PLAIN, cwd=tmp_path, capture_output=True, text=True, check=False)

    forked = run(*words, environment=PLAIN, folder=tmp_path)

    assert (fresh.returncode, fresh.stdout, fresh.stderr) == (forked.returncode, forked.stdout, forked.stderr)


def test_it_has_this_environment_and_folder_and_no_other(tmp_path: Path) -> None:
    """Nothing of the tests' own settings reaches it, and Ctrl-C reaches it only where it is sent to it."""
    asked = "import os, json; print(json.dumps([dict(os.environ), os.getcwd(), os.getsid(0) == os.getpid()]))"
    with tempfile.TemporaryFile() as output:
        process = start(*("-n1", "-r1", asked), module="timeit", environment={"A": "b"}, folder=tmp_path, output=output)
        status = process.wait(30)
        output.seek(0)
        said = output.read().decode()

    assert 0 == status, said
    assert f'[{{"A": "b"}}, "{tmp_path}", true]' == said.splitlines()[0]


def test_it_can_be_killed_and_waited_for(tmp_path: Path) -> None:
    """SIGKILL is the system's own, and whoever waits is told what it died of."""
    process = start("-n1", "-r1", "while True: pass", module="timeit", environment=PLAIN, folder=tmp_path, output=2)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)

    process.kill()

    assert -signal.SIGKILL == process.wait(30) == process.poll() == process.returncode
    process.terminate()  # Of one that is gone it is no error.


def test_shells_find_it_first(tmp_path: Path) -> None:
    """A line of a guide runs as its reader's would, and its status is the command's."""
    lines = "crcr --version | tr c C; crcr why x y"
    done = subprocess.run(
        ["/bin/sh", "-c", lines], env=for_shells(PLAIN), cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert 2 == done.returncode
    assert done.stdout.startswith("CrCr ")
    assert "Usage: python -m relay why " in done.stderr


def test_nothing_outlives_the_tests(tmp_path: Path) -> None:
    """Whoever kills the tests kills with them what they started."""
    parent = Parent()
    process = start(
        *("-n1", "-r1", "import time; time.sleep(60)"),
        module="timeit",
        environment=PLAIN,
        folder=tmp_path,
        output=2,
        parent=parent,
    )

    parent.close()

    with pytest.raises(ChildProcessError, match="nobody knows"):
        process.wait(10)
    wait_until(lambda: not alive(process.pid), 10, what="the end of the child")


def alive(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie that nobody has fetched."""
    time.sleep(0.05)
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
