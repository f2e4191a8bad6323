"""What we say in comments: whom it mentions, and what of other people's words is in it."""

from __future__ import annotations

import pytest

from relay.deciding.commands import Verb
from relay.texts.markup import MAX_TEXT, size
from relay.texts.replies import answer, help_text, mention


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("alice", "@alice"),
        ("@alice-b", "@alice-b"),
        ("bob_octo", "@bob_octo"),
        ("org/team", "`org/team`"),
        ("a b", "`a b`"),
        ("-x", "`-x`"),
        ("x" * 50, f"`{'x' * 39}…`"),
        ("ålice", "`ålice`"),
        ("alice\n@bob", "`alice @\u200bbob`"),
    ],
)
def test_only_a_login_is_mentioned(name: str, expected: str) -> None:
    """A mention notifies somebody, so it must be exactly the person that the entry names."""
    assert expected == mention(name)


def test_help_names_every_command() -> None:
    """A command that help does not know is one that nobody finds."""
    text = help_text()

    for verb in set(Verb) - {Verb.UNKNOWN}:
        assert f"`/crcr {verb.value}" in text


@pytest.mark.parametrize("words", ["@everyone", "</details><script>", "`|`|", "\u202egnp", "x" * 90_000])
def test_an_answer_to_hostile_words_is_short_and_tame(words: str) -> None:
    """The head of an answer repeats the command, whoever wrote it."""
    told = answer(words, f"/crcr {words}", ["Done."])
    head = told.split("\n")[0]

    assert "@everyone" not in told
    assert "|" not in head
    assert "\u202e" not in told
    assert 300 >= len(head)
    assert told.endswith("Done.")


def test_an_answer_fits_a_comment() -> None:
    """A status may be about many backends; GitHub's bound is for all of it."""
    told = answer("alice", "/crcr status", [f"line {number} " + "x" * 100 for number in range(2_000)])

    assert MAX_TEXT >= size(told)
    assert "lines more" in told
