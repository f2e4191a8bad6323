"""How commands are read, and which backend is meant."""

from __future__ import annotations

import pytest

from allowlist.model import Entry, Level, RepoName
from relay.deciding.commands import MAX_WORDS, Spoken, Verb, named_backend, spoken

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
