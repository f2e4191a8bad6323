"""How commands are read, who may ask for what, and which backend is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from allowlist.model import Entry, Level, RepoName
from relay.commands import (
    AUTHORITY,
    MAX_WORDS,
    Ruling,
    Spoken,
    Verb,
    authority_rows,
    named_backend,
    rule,
    spoken,
)
from relay.github.observed import Role

# --- Reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("/crcr status", Spoken(Verb.STATUS)),
        ("/CRCR  Status  ", Spoken(Verb.STATUS)),
        ("/crcr", Spoken(Verb.HELP)),
        ("/crcr help\r\nmore text", Spoken(Verb.HELP)),
        ("/crcr run Org/Npu", Spoken(Verb.RUN, "Org/Npu")),
        ("/crcr rerun", Spoken(Verb.RERUN)),
        ("/crcr rerun npu please", Spoken(Verb.RERUN, "npu", "please")),
        ("/crcr override npu it is  the runner", Spoken(Verb.OVERRIDE, "npu", "it is the runner")),
        ("/crcr merge now", Spoken(Verb.UNKNOWN, words="merge now")),
        ("/crcr unknown", Spoken(Verb.UNKNOWN, words="unknown")),
    ],
)
def test_a_first_line_is_read(body: str, expected: Spoken) -> None:
    """Case and blanks do not matter, and what follows the first line is a conversation among people."""
    assert expected == spoken(body)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "\n/crcr status",
        "see /crcr status",
        "    /crcr status",
        "> /crcr status",
        "/crcrstatus",
        "LGTM",
        " /crcr run x",
    ],
)
def test_everything_else_asks_nothing(body: str) -> None:
    """A quotation, a line of code and a mention in passing must not start anything."""
    assert spoken(body) is None


def test_a_flood_of_words_is_cut() -> None:
    """What is kept of a command has a bound, whatever was written."""
    found = spoken("/crcr override npu " + "x" * 70_000)

    assert found is not None
    assert MAX_WORDS >= len(found.words)


# --- Authority -------------------------------------------------------------------------------------------------------

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
    text = Path("levels/README.md").read_text(encoding="utf-8")
    section = text.partition("## Commands")[2].partition("\n## ")[0]
    rows = [
        tuple(cell.strip() for cell in line.strip("|").split("|")) for line in section.splitlines() if line[:1] == "|"
    ]

    assert list(authority_rows()) == [(row[0].split()[1].strip("`"), row[2]) for row in rows[2:]]


# --- Backends --------------------------------------------------------------------------------------------------------

ENTRIES = (
    Entry(RepoName.parse("org/npu-ci"), Level.L4, device="npu"),
    Entry(RepoName.parse("org/xpu"), Level.L3, device="gpu"),
    Entry(RepoName.parse("other/xpu"), Level.L4),
)


@pytest.mark.parametrize(
    ("word", "repo"),
    [
        ("org/npu-ci", "org/npu-ci"),
        ("ORG/NPU-CI", "org/npu-ci"),
        ("npu", "org/npu-ci"),
        ("`npu-ci`", "org/npu-ci"),
        ("GPU", "org/xpu"),
    ],
)
def test_a_backend_is_named_in_whole_or_by_what_it_alone_has(word: str, repo: str) -> None:
    """People write what they call it."""
    found = named_backend(word, ENTRIES)

    assert isinstance(found, Entry)
    assert repo == str(found.repo)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("xpu", "that name is not of one backend alone; write one of `org/xpu`, `other/xpu`"),
        ("tpu", "there is no such backend here; it is one of `org/npu-ci`, `org/xpu`, `other/xpu`"),
        ("", "there is no such backend here; it is one of `org/npu-ci`, `org/xpu`, `other/xpu`"),
    ],
)
def test_a_name_of_none_or_of_two_is_answered_with_those_there_are(word: str, expected: str) -> None:
    """Guessing would run, or override, the wrong one."""
    assert expected == named_backend(word, ENTRIES)
