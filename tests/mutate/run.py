"""Flip each cell of the policy tables and each rule of the fold, one at a time: every flip must fail a test.

Each flip of the outcome table is tried twice: on the tests of its room, and once more on nothing but the story of that
outcome, told by the whole relay.

    python tests/mutate/run.py              all flips; exit 1 if one survives, 2 if the tool itself cannot work
    python tests/mutate/run.py --only TEXT  those whose name contains the text
    python tests/mutate/run.py --list       name them, after checking that each still fits the source

The working tree is never edited: each worker flips a copy of its own. Workers are forks of this process, which has
loaded pytest and its plugins once, so that a flip costs little more than the tests that it fails.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple, NoReturn

from mutations import CannotMutateError, Mutation, all_mutations

ROOT = Path(__file__).resolve().parents[2]
#: The tests that may notice a flip, by the room that it is in.
TESTS = {
    "levels": ("tests/levels",),
    "relay": ("tests/work/test_sweep_attempts.py", "tests/work/test_ask_first.py", "tests/work/test_sweep.py"),
}
#: Those that should, by the flipped file. They run first, and the rest only where they all pass.
NEAREST = {
    "levels/powers.py": ("tests/levels/test_powers.py",),
    "levels/outcomes.py": ("tests/levels/test_outcomes.py",),
    "levels/gate.py": ("tests/levels/test_gate.py", "tests/levels/test_gate_overridden.py"),
    "levels/legs.py": ("tests/levels/test_fold.py", "tests/levels/test_attempts.py"),
    "levels/lifecycle.py": ("tests/levels/test_standing.py",),
    "levels/witness.py": ("tests/levels/test_witness.py",),
}
#: The story that tells of one row of the outcome table, by the row's name in lower case.
STORIES = "tests/stories/test_outcome_table.py"
STORY = STORIES + "::test_each_outcome_means_its_cell_for_the_merge[{row}]"
#: The rows without one: what is not required never stands on an open change, so no reader can meet its cell.
UNTOLD = ("not_required",)
#: Nothing else of the tree is needed to run them.
PARTS = ("allowlist", "levels", "relay", "tests", "pyproject.toml")
_CELL = re.compile(r"GATE_TABLE\[(?P<row>[A-Z_]+)\]")
#: A story waits more than it computes.
WORKERS = 3
#: What the relay is built on takes longer to import than a story to tell.
LIBRARIES = ("alembic", "fastapi", "fastapi.testclient", "httpx2", "jwt", "sqlmodel", "structlog", "uvicorn")
EXAMPLES = 40
#: A flip may make a loop endless. The kernel ends it after this many seconds of its own CPU time.
CPU_SECONDS = 60
_FAILED, _INTERRUPTED, _NOT_THE_COPY = 1, 2, 90


@dataclass(frozen=True)
class Verdict:
    """What became of one flip: the first test that failed, or None where it survived."""

    name: str
    noticed_by: str | None
    seconds: float


class Trial(NamedTuple):
    """One flip, and the tests to run on it: stage by stage, until one fails."""

    mutation: Mutation
    stages: tuple[tuple[str, ...], ...]


class ToolFailed(Exception):  # noqa: N818
    """The tests could not be run at all, so nothing can be said of any flip."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status is the answer."""
    options = _options(arguments)
    try:
        chosen = [trial for trial in _trials(all_mutations(ROOT), options.tests) if options.only in trial.mutation.name]
        if not chosen:
            raise ToolFailed(f"no flip has {options.only!r} in its name; --list shows them all")
        if options.list:
            print("\n".join(trial.mutation.name for trial in chosen))
            return 0
        began = time.monotonic()
        width = max(len(trial.mutation.name) for trial in chosen)
        verdicts = []
        for verdict in _run(chosen):
            print(f"{verdict.name:{width}}  {verdict.seconds:5.1f} s  {verdict.noticed_by or 'SURVIVED'}", flush=True)
            verdicts.append(verdict)
    except (CannotMutateError, ToolFailed) as error:
        print(f"mutate: {error}", file=sys.stderr)
        return 2
    return _report(verdicts, time.monotonic() - began)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Flip each rule, one at a time: every flip must fail a test.")
    parser.add_argument("--only", default="", metavar="TEXT", help="only flips whose name contains this")
    parser.add_argument("--list", action="store_true", help="name the flips and stop")
    parser.add_argument("--tests", action="append", metavar="PATH", help="run these tests instead; may be repeated")
    return parser.parse_args(arguments)


def _trials(mutations: Sequence[Mutation], instead: list[str] | None) -> list[Trial]:
    """Each flip with the tests that may notice it, stage by stage; those of the outcome table also with their story."""
    if instead:
        return [Trial(mutation, (tuple(instead),)) for mutation in mutations]
    trials = [
        Trial(mutation, (NEAREST.get(mutation.file, ()), TESTS[Path(mutation.file).parts[0]])) for mutation in mutations
    ]
    for mutation in mutations:
        cell = _CELL.match(mutation.name)
        if cell is not None and (row := cell["row"].lower()) not in UNTOLD:
            told = replace(mutation, name=f"in a story, {mutation.name}")
            trials.append(Trial(told, ((STORY.format(row=row),),)))
    return trials


def _run(chosen: list[Trial]) -> Iterator[Verdict]:
    """The unflipped tests first, since a flip means nothing where they fail already; then every flip."""
    _load_plugins()
    with tempfile.TemporaryDirectory(prefix="mutate-") as scratch:
        free = [_copy(Path(scratch) / f"tree-{number}") for number in range(WORKERS)]
        # In the order in which they are first needed.
        _check_unflipped(free[0], tuple(dict.fromkeys(test for trial in chosen for test in trial.stages[-1])))
        running: dict[int, tuple[Path, Mutation, float]] = {}
        waiting = list(reversed(chosen))
        while waiting or running:
            while waiting and free:
                tree, (mutation, stages) = free.pop(), waiting.pop()
                file = tree / mutation.file
                file.write_text(mutation.apply(file.read_text(encoding="utf-8")), encoding="utf-8")
                running[_start(tree, *stages)] = (tree, mutation, time.monotonic())
            child, status = os.wait()
            tree, mutation, began = running.pop(child)
            yield Verdict(mutation.name, _noticed(tree, mutation.name, status), time.monotonic() - began)
            shutil.copy(ROOT / mutation.file, tree / mutation.file)
            free.append(tree)


def _load_plugins() -> None:
    """Import pytest's plugins and libraries in the parent, once for all forks; no code under test is among them."""
    for plugin in entry_points(group="pytest11"):
        plugin.load()
    for library in LIBRARIES:
        import_module(library)
    loaded = [name for name in ("allowlist", "levels", "relay") if name in sys.modules]
    if loaded:
        raise ToolFailed(f"{', '.join(loaded)} is loaded before any flip; each fork would test that and not its copy")


def _copy(tree: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", ".hypothesis", ".pytest_cache")
    for part in PARTS:
        source, target = ROOT / part, tree / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=ignored)
        else:
            shutil.copy(source, target)
    return tree


def _check_unflipped(tree: Path, tests: tuple[str, ...]) -> None:
    _, status = os.waitpid(_start(tree, tests), 0)
    if status != 0:
        raise ToolFailed(f"the tests fail without any flip:\n{_log(tree).read_text(encoding='utf-8')[-3000:]}")


def _start(tree: Path, *stages: tuple[str, ...]) -> int:
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _test_and_exit(tree, stages)
    return child


def _test_and_exit(tree: Path, stages: tuple[tuple[str, ...], ...]) -> NoReturn:
    """In the fork: run the tests on the copy, stage by stage until one fails, and leave with pytest's own status."""
    status = 3
    try:
        log = os.open(_log(tree), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(tree)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        # A copy is flipped twice within a second, and Python takes a module's cached bytecode for current if the
        # second and the size agree.
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(tree))
        for tests in filter(None, stages):
            status = _pytest(tests)
            if status != 0:
                break
        tested = sys.modules.get("levels")
        if tested is None or not str(tested.__file__).startswith(str(tree)):
            status = _NOT_THE_COPY
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _pytest(tests: tuple[str, ...]) -> int:
    import pytest
    from hypothesis import settings

    settings.register_profile("mutate", derandomize=True, max_examples=EXAMPLES, database=None, deadline=None)
    settings.load_profile("mutate")
    # The rules are the same on both databases, and one of them is a server that each fork would have to start.
    quiet = (
        "-m",
        "not postgres",
        "-x",
        "-q",
        "--tb=line",
        "--assert=plain",
        "-p",
        "no:cacheprovider",
        "--rootdir=.",
        "-c",
        "pyproject.toml",
    )
    return int(pytest.main([*quiet, *tests]))


def _noticed(tree: Path, name: str, status: int) -> str | None:
    """The first test that failed. Raises ToolFailed where pytest ended in a way that says nothing of the flip."""
    if os.WIFSIGNALED(status):
        return f"ended by signal {os.WTERMSIG(status)}"
    code = os.waitstatus_to_exitcode(status)
    said = _log(tree).read_text(encoding="utf-8")
    if code == 0:
        return None
    if code not in (_FAILED, _INTERRUPTED):
        raise ToolFailed(f"{name}: pytest ended with {code}, which is neither passed nor failed:\n{said[-3000:]}")
    lines = [line.split(" ")[1] for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return lines[0] if lines else "a test"


def _log(tree: Path) -> Path:
    return tree.with_suffix(".log")


def _report(verdicts: list[Verdict], seconds: float) -> int:
    survivors = [verdict for verdict in verdicts if verdict.noticed_by is None]
    print(f"\n{len(verdicts)} flips, {len(survivors)} survived, {seconds:.0f} s")
    for verdict in survivors:
        print(f"no test notices: {verdict.name}", file=sys.stderr)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
