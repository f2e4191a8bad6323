"""Who may ask for what: the table, and the README that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.deciding.authority import AUTHORITY, Ruling, authority_rows, rule
from relay.deciding.commands import Verb
from relay.github.observed import Role

README = Path(__file__).parents[2] / "levels" / "README.md"

G, R, U = Ruling.GRANTED, Ruling.REFUSED, Ruling.UNHEARD
ROLES = (Role.NONE, Role.READ, Role.TRIAGE, Role.WRITE, Role.MAINTAIN, Role.ADMIN)
TABLE = {
    # verb: somebody else, by role; the author, by role; the author after three runs on this head, by role.
    Verb.STATUS: ((U, U, G, G, G, G), (G, G, G, G, G, G), (G, G, G, G, G, G)),
    Verb.HELP: ((U, U, G, G, G, G), (G, G, G, G, G, G), (G, G, G, G, G, G)),
    Verb.UNKNOWN: ((U, U, G, G, G, G), (G, G, G, G, G, G), (G, G, G, G, G, G)),
    Verb.RUN: ((U, U, G, G, G, G), (G, G, G, G, G, G), (R, R, G, G, G, G)),
    Verb.RERUN: ((U, U, G, G, G, G), (G, G, G, G, G, G), (R, R, G, G, G, G)),
    Verb.OVERRIDE: ((U, U, R, G, G, G), (R, R, R, R, R, G), (R, R, R, R, R, G)),
}


@pytest.mark.parametrize("verb", list(Verb))
@pytest.mark.parametrize(("column", "is_author", "before"), [(0, False, 0), (0, False, 9), (1, True, 2), (2, True, 3)])
def test_who_may_have_what_is_this_table(verb: Verb, column: int, is_author: bool, before: int) -> None:
    """Every cell is somebody's power over what blocks a merge, or over what we write."""
    found = tuple(rule(verb, role, is_author=is_author, done_before=before)[0] for role in ROLES)

    assert TABLE[verb][column] == found


def test_every_refusal_says_what_would_be_needed() -> None:
    """Whoever may have an answer is told what to do about it."""
    for verb in AUTHORITY:
        for role in ROLES:
            for is_author in (False, True):
                ruling, why = rule(verb, role, is_author=is_author, done_before=3)
                assert (ruling is G) == (why == ""), (verb, role, is_author)


def test_the_readme_has_the_same_table() -> None:
    """Reviewers read the README; what it promises is what the code does."""
    text = README.read_text(encoding="utf-8")
    section = text.partition("## Commands")[2].partition("\n## ")[0]
    rows = [
        tuple(cell.strip() for cell in line.strip("|").split("|")) for line in section.splitlines() if line[:1] == "|"
    ]

    assert list(authority_rows()) == [(row[0].split()[1].strip("`"), row[2]) for row in rows[2:]]
