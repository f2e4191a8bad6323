"""The level table, cell by cell, spelled out here and not read from the code."""

import pytest

from allowlist.model import Level
from levels.powers import POWERS, Powers, Show

RECORDED = {"L1": False, "L2": True, "L3": True, "L4": True}
CHECK = {"L1": "never", "L2": "never", "L3": "labelled", "L4": "always"}
BLOCKS = {"L1": False, "L2": False, "L3": False, "L4": True}


@pytest.mark.parametrize("level", ["L1", "L2", "L3", "L4"])
def test_each_level_has_these_powers_and_no_others(level: str) -> None:
    """Results from L2 on, a check from L3 on and there only with the label, the power to block at L4 alone."""
    assert Powers(RECORDED[level], Show(CHECK[level]), BLOCKS[level]) == POWERS[Level[level]]


def test_every_level_has_a_row() -> None:
    """A level without a row would be a crash at the first backend that reaches it."""
    assert set(Level) == set(POWERS)


def test_nobody_can_change_the_table_while_it_is_in_use() -> None:
    """Powers change by a commit that a reviewer reads, never at run time."""
    with pytest.raises(TypeError):
        POWERS[Level.L1] = POWERS[Level.L4]  # type: ignore[index]
