"""Foreign text stays text, and any amount of it fits: what is left out is counted."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levels.outcomes import Outcome
from relay.texts.markup import Section, assemble, code, link, plain, prose, safe_url, size
from relay.texts.rendering import render, render_backend, render_gate
from tests.relay.check_stories import FAILED, PLACE, check, dispatch, gate, leg

# --- Hostile text ----------------------------------------------------------------------------------------------------

NASTY = [
    "@admin please merge",
    "fixes #123, GH-123, org/repo#5 and abc1234def5678",
    "![x](https://evil.test/x.png) [y](https://evil.test)",
    "<img src=x onerror=alert(1)><script>x</script>",
    "a | b | c\n| --- | --- |\nd",
    "``` ` `` code",
    "*bold* _it_ ~~no~~ # head > quote",
    "www.evil.test https://evil.test ftp://evil.test mailto:x@evil.test",
    "\u202egnirts\u202c \u2066x\u2069 a\u200bb \ufeff",
    "\x00\x1b[31mred\x07",
    "\ud800 lone",
    "z" + "\u0301" * 50,
    "&lt;b&gt; &#64;admin",
    "$$x$$ :tada: \\",
    "x" * 10_000,
    "",
    " \t\r\n ",
]


def outside_code(markdown: str) -> str:
    """What is left of a text when its code spans are taken out, as a CommonMark reader finds them."""
    kept: list[str] = []
    position = 0
    for opening in re.finditer(r"(?<!\\)`+", markdown):
        if opening.start() < position:
            continue
        closing = re.compile(rf"(?<!`){opening.group()}(?!`)").search(markdown, opening.end())
        if closing is None:
            continue
        kept.append(markdown[position : opening.start()])
        position = closing.end()
    kept.append(markdown[position:])
    return "".join(kept)


def harmless(markdown: str, foreign: str = "") -> None:
    """No mention, reference, image, HTML, foreign link or reordering is left."""
    bare = outside_code(markdown)
    assert not re.search(r"@\w", markdown)
    assert not re.search(r"(?<!&)#\d", bare)
    assert not re.search(r"\bgh-\d", bare, re.IGNORECASE)
    assert not re.search(r"[0-9a-f]{7,}", bare, re.IGNORECASE)
    assert not re.search(r"!\[", bare)
    assert not re.search(r"<(?!https://(?:relay|ci)\.test/)", bare)
    assert all(char not in markdown for char in "\u202e\u202c\u2066\u2069\ufeff\x00\x1b\x07\ud800")
    for target in re.findall(r"(?<!\\)\]\(<?([^)>]*)", bare):
        assert target.startswith(("https://relay.test/", "https://ci.test/")), target
    assert not re.search(r"(?<!<)https?://", bare)
    assert foreign not in bare or not foreign


@pytest.mark.parametrize("text", NASTY)
def test_foreign_text_stays_text(text: str) -> None:
    """Each way of writing it: in a sentence, in a code span, in a title."""
    harmless(prose(text))
    harmless(code(text))
    assert "\n" not in plain(text, 100)
    assert len(plain(text, 100)) <= 100
    assert not re.search(r"(?<!\\)[|<]", prose(text))


@pytest.mark.parametrize("text", NASTY)
def test_a_check_full_of_foreign_text_is_harmless(text: str) -> None:
    """Names, versions, environments, tests, reasons and URLs are whatever the code under test wants them to be."""
    nasty = leg(
        text,
        "failure",
        version=text,
        suite=text,
        environment=((text, text),),
        url=text,
        artifact_url=text,
        tests=[(text, text, text)],
        failure_class=text,
        observed=text,
    )
    one = dispatch(
        Outcome.FAILURE, nasty, reason=text, oncalls=(text,), missing_versions=(text,), expected=3, concluded=1
    )
    for facts in (check(one), replace(check(one), dispatches=(replace(one, outcome=Outcome.UNDELIVERED),))):
        rendered = render(facts, PLACE)
        assert rendered is not None
        harmless(rendered.summary)
        harmless(rendered.text)
        tables_hold(rendered.summary)
        tables_hold(rendered.text)
        assert len(rendered.title) <= 140


def tables_hold(markdown: str) -> None:
    """Each row of a table has as many cells as its head, whatever stands in them."""
    rows = [line for line in markdown.splitlines() if line.startswith("| ")]
    heads = {i for i, line in enumerate(rows) if i + 1 < len(rows) and set(rows[i + 1]) <= set("|-: ")}
    width = 0
    for index, row in enumerate(rows):
        if index in heads:
            width = row.count("|")
        assert width == row.count("|"), row


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.characters(), max_size=60))
def test_any_text_at_all_stays_text(text: str) -> None:
    """Not only the tricks we thought of."""
    harmless(prose(text))
    harmless(code(text))
    assert outside_code(code(text)) in {"", "(none)"}
    assert "|" not in code(text)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="`@#!|<>[]()ahtps:/.w\\*_~g-1 \n\u200b", max_size=40))
def test_any_markup_at_all_stays_text(text: str) -> None:
    """The same, from the characters that markup is made of."""
    harmless(prose(text))
    harmless(code(text))
    assert outside_code(code(text)) in {"", "(none)"}


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "https://user:pw@evil.test/",
        "https://good.test\\@evil.test/",
        "//evil.test",
        "https://",
        "https://x.test/a b",
        "https://x.test/>x",
        "https://x.test/\nx",
        "https://x.test/" + "a" * 2000,
        "https://[::1",
        "data:text/html,x",
        "",
    ],
)
def test_a_url_that_is_not_plain_is_no_link(url: str) -> None:
    """Reported URLs are http(s) without user info and only ever shown as links."""
    assert link("run", url) is None


def test_a_plain_url_is_a_link() -> None:
    """Queries, ports and fragments are plain."""
    url = "https://ci.test:8443/runs/1?attempt=2&x=(y)#log"

    assert f"[run](<{url}>)" == link("run", url)
    assert url == safe_url(url)


def test_a_private_backend_keeps_its_names() -> None:
    """Test names, URLs and messages of a private backend are not for everybody; counts are."""
    rendered = render(check(dispatch(Outcome.FAILURE, FAILED, private=True)), PLACE)
    assert rendered is not None

    whole = rendered.summary + rendered.text

    assert "test_matmul" not in whole
    assert "AssertionError" not in whole
    assert "ci.test" not in whole
    assert "This backend is private" in whole
    assert "1,180" in whole


# --- Size ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("char", ["x", "測", "😀"])
def test_any_number_of_jobs_and_tests_fits(char: str) -> None:
    """347 jobs with 1,000 failing tests each: GitHub takes 65,535 characters, and what is left out is counted."""
    tests = [(char * 300 + str(n), char * 300, char * 300) for n in range(12)]
    legs = [
        replace(
            leg(f"{char * 200} {n}", "failure", version=char * 80, counts=(5, 1000, 0), tests=tests),
            failed_tests_kept=1000,
        )
        for n in range(347)
    ]
    one = dispatch(Outcome.FAILURE, *legs, expected=347)

    rendered = render_backend(check(one), PLACE)

    assert size(rendered.summary) <= 65_535
    assert size(rendered.text) <= 65_535
    assert "Failed: 347 of 347 jobs, 347,000 tests failed" == rendered.title
    assert "347,000 failing tests in 347 jobs" in rendered.text
    assert re.search(r"[\d,]+ more jobs are left out here; all are on \[the relay's page", rendered.text)
    assert re.search(r"[\d,]+ more lines are left out here", rendered.text)
    tables_hold(rendered.text)


def test_a_gate_over_many_backends_fits() -> None:
    """As many backends as an allowlist can hold."""
    many = [
        dispatch(Outcome.UNDELIVERED, backend=f"org/{'b' * 90}{n}", number=n, reason="r" * 300, oncalls=("x" * 39,) * 5)
        for n in range(400)
    ]

    rendered = render_gate(gate(*many), PLACE)

    assert size(rendered.summary) <= 65_535
    assert "more backends are left out here" in rendered.summary
    assert "`crcr/gate` weighs" in rendered.summary
    assert len(rendered.title) <= 140


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.text(max_size=20), st.lists(st.text(max_size=60), max_size=20)), max_size=5),
    st.integers(1_200, 3_000),
)
def test_assembled_texts_keep_their_bound(parts: list[tuple[str, list[str]]], most: int) -> None:
    """Heads are few and short; lines give way."""
    sections = [Section((head,), lines, "{count} more") for head, lines in parts]

    assert size(assemble(sections, most)) <= most


def test_what_is_cut_is_counted() -> None:
    """A reader must know that there is more, and how much."""
    text = assemble([Section(("head",), [f"line {n}" for n in range(100)], "{count} more")], 200)

    kept = len(re.findall(r"line \d", text))
    assert text.endswith(f"{100 - kept} more")
