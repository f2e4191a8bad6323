"""Files that are no allowlist, are hostile, or are huge."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allowlist.model import Allowlist
from allowlist.parse import UnreadableError, check, parse


def in_force(found: Allowlist) -> list[str]:
    return [str(entry.repo) for entry in found.entries]


def places(text: str) -> list[tuple[int, str]]:
    return [(fault.line, fault.rule) for fault in check(text)]


UNREADABLE = [
    (b"L1:\n  - org/x\n  - org/\xff\n", [(3, "utf-8")]),
    ("L1:\n  - org/x\x00\n  - org/y\x1b\n", [(2, "character"), (3, "character")]),
    ("L1: # shown\u2028  - hidden/entry\n", [(1, "character")]),
    ("L1: # shown\r  - hidden/entry\n", [(1, "character")]),
    ("L1:\n  - org/\ud800\n", [(2, "utf-8")]),
    ("L1: [org/x]\n---\nL1: [org/y]\n", [(2, "one-document")]),
    ("- org/x\n", [(1, "no-levels")]),
    ("org/x", [(1, "no-levels")]),
    ("5", [(1, "no-levels")]),
    ('{"message": "Not Found", "status": "404"}', [(1, "no-levels")]),
    ("[" * 10_000, [(1, "nesting")]),
    ("L1: " + "{a: " * 10_000, [(1, "nesting")]),
    ("- " * 10_000, [(1, "nesting")]),
    ("L1:\n  - &a org/x\n  - *a\n", [(2, "no-anchor"), (3, "no-alias")]),
    ("L1:\n  - *nobody\n", [(2, "no-alias")]),
    ("L1:\n  - !!str org/x\n", [(2, "no-tag")]),
    ("L1: !!python/object:os.system {}\n", [(1, "no-tag")]),
    ("L2:\n  - org/x:\n      <<: {legacy: true}\n", [(3, "no-merge-key")]),
    ("L2:\n  - org/x: {paths: [*.py]}\n", [(2, "no-alias")]),
    ("L2:\n  - org/x: {paths: [!docs/**]}\n", [(2, "no-tag")]),
    ("L2: [!docs/**]", [(1, "no-tag")]),
    ("L2:\n  - org/x: [@alice]\n", [(2, "yaml-at")]),
    ("L2:\n  - org/x: @alice\n", [(2, "yaml-at")]),
    ("L1:\n\t- org/x\n", [(2, "tab")]),
    ("L1:\n  - org/x: [a\n  - org/y\n", [(2, "yaml")]),
    ("L1:\n  - org/x: 'a\n  - org/y\n", [(2, "yaml")]),
    ("L1:\n  - org/x: a: b\n", [(2, "yaml")]),
    ("L1:\n  - org/x\n - org/y\n", [(3, "yaml")]),
    ('L1: ["\\UFFFFFFFF"]', [(1, "yaml")]),
]


@pytest.mark.parametrize(("text", "expected"), UNREADABLE)
def test_a_file_that_cannot_be_read_is_never_an_empty_list(text, expected):
    """The caller keeps the last good list, since all that it gets is the error, with every line to mend."""
    with pytest.raises(UnreadableError) as caught:
        parse(text)

    assert expected == [(fault.line, fault.rule) for fault in caught.value.faults]
    assert all(fault.fix for fault in caught.value.faults)
    assert str(caught.value).startswith(f"line {expected[0][0]}: ")


def test_a_broken_file_tells_its_other_faults_too():
    """Two quotes forgotten, a tab, an open bracket and plain faults between them: one look shows all."""
    text = (
        "L1:\n  - org/a\n  - org/b: [@x]\n  - bad\n  - org/c:\n      oncalls: @y\n      events: [bogus]\n"
        "\t- tab/x\n  - org/d: [\n  - org/e\n  - worse\nL9:\n"
    )

    assert [
        (3, "yaml-at"),
        (4, "repo-name"),
        (6, "yaml-at"),
        (8, "tab"),
        (9, "yaml"),
        (11, "repo-name"),
        (12, "unknown-level"),
    ] == places(text)


def test_a_file_over_the_cap_is_not_looked_at():
    """Size is checked before anything is decoded."""
    with pytest.raises(UnreadableError, match="over the 20 allowed"):
        parse("L1:\n  - org/repo-name\n", max_bytes=20)
    with pytest.raises(UnreadableError, match="over the 21 allowed"):
        parse("L1:\n  - org/repo-name\n", max_bytes=21)

    assert ["org/repo-name"] == in_force(parse("L1:\n  - org/repo-name\n", max_bytes=22))


@pytest.mark.slow
@pytest.mark.parametrize(
    "form", ["- org{}/r: {{oncalls: [a, b], events: [nightly]}}", "- bad{}: {{oncals: [a], evnt: x}}"]
)
def test_thousands_of_entries_are_read_in_bounded_time(form):
    """Good or bad, a huge list costs a millisecond or so for each entry, however many there are."""
    started = time.process_time()
    found = parse("L1:\n" + "".join(f"  {form.format(i)}\n" for i in range(10_000)))

    assert time.process_time() - started < 30
    assert 10_000 == len(found.entries) + len({fault.line for fault in found.faults})


@pytest.mark.slow
def test_a_file_of_values_only_has_an_end():
    """A file within the cap can still hold hundreds of thousands of values; reading stops at a line."""
    assert ["too-many-values"] == [fault.rule for fault in check("L1:\n" + "- a\n" * 200_000)]


def test_a_fault_quotes_hostile_text_harmlessly():
    """A message is one short line, whatever stands in the file."""
    found = parse('L1:\n  - "x\\n::error::\\u202e' + "y" * 500 + '"\n')

    line = found.faults[0].render("allowlist.yml")
    assert line.isprintable()
    assert len(line) < 250
    assert line.startswith("allowlist.yml:2: error: ")


def test_an_anchor_is_quoted_harmlessly_too():
    """Its name may hold characters that nobody can see."""
    fault = check("&\ud7fc")[0]

    assert ("no-anchor", True) == (fault.rule, fault.render("f").isprintable())


def test_the_digest_names_the_bytes():
    """The store compares digests to see whether a list has changed, whichever way it was handed over."""
    assert parse("L1: [a/b]").digest == parse(b"L1: [a/b]").digest
    assert parse("L1: [a/b]").digest != parse("L1: [a/b] ").digest
    assert 64 == len(parse("").digest)


# Pieces that, put together at random, come nearer to an allowlist than random letters do.
PIECES = st.sampled_from(
    [
        "L1:",
        "L3:",
        "L4:",
        "\n",
        "\n  ",
        "\n    ",
        "- ",
        "org/a",
        "org/b",
        ": ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "@",
        "&a",
        "*a",
        "!",
        "'",
        '"',
        "\t",
        "#",
        "---",
        "npu",
        "events",
        "timeouts",
        "2h",
        "2.10",
        "<<",
        ">",
        "%",
        "?",
        "\\U",
        "\x00",
        "\ud800",
        "\ufeff",
        "\r",
        "é",
    ]
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=200), st.binary(max_size=200), st.lists(PIECES, max_size=40).map("".join)))
def test_any_text_gives_a_list_or_the_declared_error(text):
    """No file, however broken or hostile, ends in anything but faults with a line, a rule and a fix."""
    try:
        faults = parse(text).faults
    except UnreadableError as error:
        faults = error.faults
        assert faults

    assert all(fault.line >= 1 and fault.rule and fault.fix and fault.render("f").isprintable() for fault in faults)
    assert sorted(faults) == list(faults)
    assert faults == check(text)
