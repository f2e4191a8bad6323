"""The reviewer's page shows the tables that are in force, and no others."""

from datetime import timedelta
from pathlib import Path

from allowlist.model import Level
from levels.outcomes import GATE_TABLE, WORST_FIRST, GateEffect, Outcome
from levels.powers import POWERS, Powers, Show
from relay.store.asking import ASKED_WITHIN, MOST_COMMENTS, MOST_PRESSES

PAGE = Path(__file__).parents[2] / "levels" / "README.md"
YES = {"yes": True, "no": False}


def rows(first_column: str) -> list[list[str]]:
    """The body of the one table on the page whose first column has this heading."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    (head,) = [number for number, line in enumerate(lines) if line.startswith(f"| {first_column} |")]
    body = []
    for line in lines[head + 2 :]:
        if not line.startswith("|"):
            break
        body.append([cell.strip() for cell in line.strip("|").split("|")])
    return body


def test_the_level_table_on_the_page_is_the_one_in_force() -> None:
    """Every level has its row, and every level is told of events."""
    shown = {Level[row[0]]: Powers(YES[row[2]], Show(row[3]), YES[row[4]]) for row in rows("Level")}

    assert shown == dict(POWERS)
    assert ["yes"] * 4 == [row[1] for row in rows("Level")]


def test_the_outcome_table_on_the_page_is_the_one_in_force() -> None:
    """Every outcome has its row, once, with what it does to the gate and what happened."""
    table = rows("Outcome")

    assert {Outcome(row[0]): GateEffect(row[1]) for row in table} == dict(GATE_TABLE)
    assert len(table) == len(GATE_TABLE)
    assert [] == [row for row in table if not row[2]]


def test_the_order_of_conclusions_on_the_page_is_the_one_in_force() -> None:
    """A reviewer who reads that the worst decides must know what worse is."""
    assert f"The worst leg decides: {', '.join(WORST_FIRST)}, in this order." in PAGE.read_text(encoding="utf-8")


def test_the_bounds_of_asking_on_the_page_are_those_in_force() -> None:
    """Whoever gets no answer finds the reason here."""
    said = f"Within an hour one person may write {MOST_COMMENTS} commands and press {MOST_PRESSES} buttons on a pull"

    assert timedelta(hours=1) == ASKED_WITHIN
    assert said in " ".join(PAGE.read_text(encoding="utf-8").split())
