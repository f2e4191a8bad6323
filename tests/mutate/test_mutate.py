"""The tool that tries the tests is tried itself: it must find what survives, and say so when it cannot look."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from allowlist.model import Level
from levels.outcomes import GateEffect, Outcome

ROOT = Path(__file__).resolve().parents[2]


def mutate(*arguments: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run the tool as ``make mutate`` does."""
    tool = root / "tests" / "mutate" / "run.py"
    return subprocess.run([sys.executable, tool, *arguments], capture_output=True, text=True, check=False, timeout=100)


def test_every_cell_of_both_tables_is_flipped_to_every_other_value() -> None:
    """A row that is added to a table is tried without anybody thinking of it."""
    listed = mutate("--list").stdout.splitlines()

    assert 4 * len(Level) == len([name for name in listed if name.startswith("POWERS[")])
    assert len(Outcome) * (len(GateEffect) - 1) == len([name for name in listed if name.startswith("GATE_TABLE[")])
    assert len(set(listed)) == len(listed)


def test_a_rule_that_is_no_longer_in_the_source_is_an_error(tmp_path: Path) -> None:
    """A flip that quietly stopped flipping would be a test that cannot fail."""
    for part in ("levels", "relay/store", "tests/mutate"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    source = tmp_path / "levels" / "legs.py"
    source.write_text(source.read_text(encoding="utf-8").replace("free.remove(found)", "free.discard(found)"))

    ran = mutate("--list", root=tmp_path)

    assert (2, "") == (ran.returncode, ran.stdout)
    assert "rule 'a start ends once': its text stands 0 times in levels/legs.py" in ran.stderr


def test_a_name_that_no_flip_has_is_an_error() -> None:
    """A typing error in ``--only`` must not look like a success."""
    ran = mutate("--only", "no such rule")

    assert (2, "") == (ran.returncode, ran.stdout)
    assert "no flip has 'no such rule' in its name" in ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tests", "status", "said"),
    [
        ("tests/levels/test_standing.py", 0, "1 flips, 0 survived"),
        ("tests/levels/test_powers.py", 1, "1 flips, 1 survived"),
        ("tests/levels/no_such_file.py", 2, ""),
    ],
)
def test_the_exit_status_tells_noticed_survived_and_broken(tests: str, status: int, said: str) -> None:
    """Noticed by the right tests, missed by the wrong ones, unknown without tests; and the tree is as it was."""
    before = (ROOT / "levels" / "lifecycle.py").read_bytes()

    ran = mutate("--only", "time is never negative", "--tests", tests)

    assert status == ran.returncode
    assert said in ran.stdout
    assert before == (ROOT / "levels" / "lifecycle.py").read_bytes()
