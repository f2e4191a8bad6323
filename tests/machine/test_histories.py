"""Whatever happens in whatever order: the checks at GitHub end as a small model says, within their time and budget.

A few histories are played each time, more in the slow tests, and as many as the variable CRCR_HISTORIES says where a
machine has an hour to spare: those are others each time, and one that fails is made small.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.machine.machine import Histories
from tests.machine.surroundings import AtOnce
from tests.work.remembered_github import S1

MORE = int(os.environ.get("CRCR_HISTORIES", "0"))


def machine_on(opened: AtOnce) -> type[Histories]:
    """The machine on this store. Hypothesis makes one machine for each history."""

    class OnStore(Histories):
        store = opened

    return OnStore


def run(url: str, examples: int, steps: int, *, chance: bool = False) -> None:
    """So many histories of so many steps; with ``chance`` they differ from run to run, and a failure is made small."""
    opened = AtOnce(url)
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=not chance,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )

    try:
        run_state_machine_as_test(machine_on(opened), settings=chosen)
    finally:
        opened.close()


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """A migrated SQLite database."""
    shutil.copy(sqlite_template, tmp_path / "relay.db")
    return f"sqlite:///{tmp_path / 'relay.db'}"


@pytest.fixture
def machine(sqlite_url: str) -> Iterator[Histories]:
    """A machine whose steps a test takes itself; at its end all deadlines pass."""
    opened = AtOnce(sqlite_url)
    machine = machine_on(opened)()
    machine.begins()
    yield machine
    machine.drains()
    machine.teardown()
    opened.close()


def test_a_pause_is_shown_although_a_dying_worker_had_sent(machine: Histories) -> None:
    """Found by chance: sent, not noted, paused, then noted by another worker. The gate went on waiting for it."""
    machine.works("unnoted")
    machine.pauses_or_resumes("org/npu")
    machine.drains()

    assert ("completed", "neutral") == machine.shown["crcr/org/npu", S1]


def test_a_pause_and_its_end_start_no_second_run(machine: Histories) -> None:
    """Found by chance: taken by GitHub without an answer, paused before the next try, resumed, and sent once more."""
    machine.works("unsaid")
    machine.pauses_or_resumes("org/lab")
    machine.pauses_or_resumes("org/lab")
    machine.drains()

    assert {1} == set(machine.relay.github.taken.values())


def test_a_few_histories_end_as_the_model_says(sqlite_url: str) -> None:
    """The same ones each time, so that a change which breaks many orders is noticed at once."""
    run(sqlite_url, examples=6, steps=25)


@pytest.mark.slow
@pytest.mark.timeout(0 if MORE else 120)
def test_many_histories_end_as_the_model_says(sqlite_url: str) -> None:
    """Longer ones, and more of them."""
    run(sqlite_url, examples=MORE or 40, steps=40, chance=MORE > 0)


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(0 if MORE else 120)
def test_histories_end_alike_on_postgresql(postgres_url: str) -> None:
    """The rules are one code, and the statements under them are two dialects."""
    run(postgres_url, examples=MORE or 10, steps=40, chance=MORE > 0)
