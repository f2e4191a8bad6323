"""Patterns mean what GitHub's do, and no pattern can make matching slow."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allowlist.globs import Glob, GlobError, matches_any, matches_one_of

# https://docs.github.com/actions/reference/workflows-and-actions/workflow-syntax#filter-pattern-cheat-sheet
MATCHING = [
    ("feature/*", "feature/my-branch feature/", "feature/a/b feature other/my-branch"),
    ("feature/**", "feature/a feature/beta-a/my-branch", "feature features/a"),
    ("main", "main", "mains main/ Main"),
    ("refs/heads/*", "refs/heads/main", "refs/heads/a/b refs/tags/main"),
    ("refs/**", "refs/heads/main refs/tags/a/b", "heads/main"),
    ("*", "main a.b", "a/b"),
    ("**", "main a/b/c .", ""),
    ("*feature", "mona-feature feature ver-10-feature", "feature/x a/feature"),
    ("v2*", "v2 v2.0 v2.9", "v1 v2/a"),
    ("v[12].[0-9]+.[0-9]+", "v1.10.1 v2.0.0", "v3.0.0 v1..0 v1.0"),
    ("*.jsx?", "page.js page.jsx", "page.jsxx page.ts"),
    ("**.js", "index.js js/index.js src/js/app.js", "index.jsx"),
    ("docs/*", "docs/README.md docs/file.txt", "docs/a/b.md docs"),
    ("docs/**", "docs/README.md docs/mona/octocat.txt", "docs xdocs/a"),
    ("docs/**/*.md", "docs/README.md docs/mona/hello-world.md docs/a/b/c.md", "docs/a.txt docsREADME.md"),
    ("**/docs/**", "docs/hello.md dir/docs/my-file.txt space/docs/plan/space.doc", "xdocs/hello.md dir/mydocs/a"),
    ("**/README.md", "README.md js/README.md a/b/README.md", "xREADME.md README.md/a"),
    ("**/*src/**", "a/src/app.js my-src/code/js/app.js src/x", "srcs/x src"),
    ("**/*-post.md", "my-post.md path/their-post.md", "post.md"),
    ("**/migrate-*.sql", "migrate-10909.sql db/migrate-v1.0.sql db/sept/migrate-v1.sql", "xmigrate-1.sql"),
    ("a/**/b", "a/b a/x/b a/x/y/b", "ab axb a/xb"),
    ("a***b", "ab a/x/b", "a/x"),
    ("a+b", "ab aaab", "b a+b"),
    (r"a\+b", "a+b", "ab aab"),
    (r"c\*", "c*", "c cc"),
    ("[!a]", "! a", "b"),
    ("[]a]", "] a", "b"),
    ("[a-c]?x", "ax x", "aax dx"),
    ("file.txt", "file.txt", "fileXtxt"),
    ("é*", "éa", "ea"),
]


@pytest.mark.parametrize(("pattern", "yes", "no"), MATCHING)
def test_patterns_mean_what_github_says(pattern, yes, no):
    """A backend may copy the filters of its own workflows."""
    glob = Glob(pattern)

    assert yes.split() == [text for text in yes.split() if glob.matches(text)]
    assert [] == [text for text in no.split() if glob.matches(text)]


@pytest.mark.parametrize("pattern", ["", "+", "?a", "a**?", "*+", "a??", "a+?", "[", "[]", "[abc", "[b-a]", "a\\"])
def test_what_is_no_pattern_is_refused(pattern):
    """A pattern that says nothing clear is told to the admin, not guessed."""
    with pytest.raises(GlobError):
        Glob(pattern)


@pytest.mark.parametrize(
    ("patterns", "text", "expected"),
    [
        ([], "a", False),
        (["a"], "a", True),
        (["**", "!docs/**"], "docs/x", False),
        (["**", "!docs/**"], "src/x", True),
        (["**", "!docs/**", "docs/api/**"], "docs/api/x", True),
        (["!docs/**", "**"], "docs/x", True),
        (["!docs/**"], "src/x", False),
        ([r"\!a"], "!a", True),
    ],
)
def test_the_last_pattern_that_matches_decides(patterns, text, expected):
    """Order is the meaning: an exclusion can be taken back."""
    assert expected is matches_any(patterns, text)


def test_one_text_that_gets_through_is_enough():
    """A change that touches documentation and code is a change of code."""
    patterns = ["**", "!docs/**"]

    assert matches_one_of(patterns, ["docs/a", "src/b"])
    assert not matches_one_of(patterns, ["docs/a", "docs/b"])
    assert not matches_one_of(patterns, [])


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("*a" * 128, "a" * 4_000 + "b"),
        ("**a" * 85, "a" * 4_000 + "b"),
        ("**/" * 85 + "x", "a/" * 2_000 + "b"),
        ("a?" * 64 + "a+" * 64, "a" * 4_000 + "b"),
        ("[ab]+" * 51, "ab" * 2_000 + "c"),
    ],
)
def test_no_pattern_makes_matching_slow(pattern, text):
    """A regular expression made from these would run for longer than the universe has."""
    started = time.process_time()

    assert not Glob(pattern).matches(text)
    assert time.process_time() - started < 2


def test_three_thousand_files_are_looked_at_quickly():
    """GitHub lists up to 3,000 files of one pull request."""
    files = [f"src/part{i % 50}/deeper/file_{i}.cpp" for i in range(3_000)]
    started = time.process_time()

    assert not matches_one_of(["docs/**", "**/*.md", "**.py", "!src/**"], files)
    assert time.process_time() - started < 2


SIMPLE = st.lists(st.sampled_from(["a", "b", "/", "*", "**", "[ab]", "a?", "b+"]), min_size=1, max_size=6).map("".join)


@given(SIMPLE, st.text("ab/", max_size=8))
def test_patterns_agree_with_regular_expressions(pattern, text):
    """On short text a regular expression is a second opinion."""
    parts = re.findall(r"(?:(?<=/)|\A)\*\*+/|\*\*+|\*|\[ab\]|.[?+]?", pattern)
    translated = ""
    for part in parts:
        if part.startswith("**"):
            translated += "(?:.+/)?" if part.endswith("/") else ".*"
        else:
            translated += "[^/]*" if part == "*" else part

    assert bool(re.fullmatch(translated, text)) == Glob(pattern).matches(text)
