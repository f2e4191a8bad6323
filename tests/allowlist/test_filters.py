"""Which events an entry lets through, with the sentence that says why not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allowlist.filters import (
    Filter,
    Filtered,
    NeedsPaths,
    Subject,
    Wanted,
    decide,
    decide_paths,
    paths_match,
    waits_for_label,
    wants_tags,
)
from allowlist.model import EVENTS, Entry, Level, RepoName

ANYTHING = Entry(repo=RepoName("org", "repo"), level=Level.L4)
OPENED = Subject("pull_request", action="opened", base_ref="main", labels=("bug",), author_association="MEMBER")
PUSH = Subject("push", ref="refs/heads/main")
TAG = Subject("push", ref="refs/tags/ciflow/npu/1")


def entry(**filters: object) -> Entry:
    return replace(ANYTHING, **filters)


@pytest.mark.parametrize(
    ("filters", "subject"),
    [
        ({}, OPENED),
        ({}, PUSH),
        ({}, TAG),
        ({}, replace(OPENED, action="closed")),
        ({"events": frozenset({"nightly"})}, Subject("nightly")),
        ({"events": frozenset({"merge_group"})}, Subject("merge_group", action="checks_requested")),
        ({"base": ("main",)}, OPENED),
        ({"base": ("refs/heads/main",)}, OPENED),
        ({"base": ("main",)}, replace(OPENED, base_ref="refs/heads/main")),
        ({"base": ("**", "!refs/heads/release/**")}, OPENED),
        ({"base": ("release",)}, PUSH),
        ({"refs": ("refs/tags/**",)}, OPENED),
        ({"refs": ("refs/heads/*",)}, PUSH),
        ({"refs": ("refs/tags/**",)}, TAG),
        ({"labels": ("BUG", "other")}, OPENED),
        ({"labels": ("other",)}, PUSH),
        ({"labels": ("other",)}, replace(OPENED, action="closed")),
        ({"authors": frozenset({"MEMBER"})}, OPENED),
        ({"authors": frozenset({"MEMBER"})}, replace(OPENED, author_association="member")),
        ({"authors": frozenset({"MEMBER"})}, PUSH),
        ({"paths": ("src/**",)}, TAG),
        ({"paths": ("src/**",)}, replace(OPENED, action="closed")),
        ({"paths": ("a",), "events": frozenset({"merge_group"})}, Subject("merge_group")),
        ({"labels": ("x",), "events": frozenset({"landed"})}, Subject("landed", base_ref="main")),
        ({"base": ("main",), "events": frozenset({"nightly"})}, Subject("nightly")),
    ],
)
def test_what_the_filters_let_through(filters, subject):
    """A filter says no only to what it is about."""
    assert Wanted() == decide(entry(**filters), subject)


@pytest.mark.parametrize(
    ("filters", "subject", "reason", "text"),
    [
        (
            {"events": frozenset({"nightly"})},
            OPENED,
            Filter.EVENTS,
            "entry wants events [nightly], this is pull_request",
        ),
        (
            {},
            Subject("merge_group"),
            Filter.EVENTS,
            "entry wants events [pull_request, push], this is merge_group",
        ),
        (
            {"actions": frozenset({"opened", "closed"})},
            replace(OPENED, action="synchronize"),
            Filter.ACTIONS,
            "entry wants actions [closed, opened], this is synchronize",
        ),
        (
            {"refs": ("refs/heads/main",)},
            TAG,
            Filter.REFS,
            "entry wants refs [refs/heads/main], this is a push to refs/tags/ciflow/npu/1",
        ),
        (
            {"base": ("release/*",)},
            OPENED,
            Filter.BASE,
            "entry wants base [release/*], this aims at main",
        ),
        (
            {"base": ("main",), "events": frozenset({"merge_group"})},
            Subject("merge_group", base_ref="refs/heads/release"),
            Filter.BASE,
            "entry wants base [main], this aims at refs/heads/release",
        ),
        (
            {"labels": ("npu", "xpu")},
            OPENED,
            Filter.LABELS,
            "entry wants labels [npu, xpu], this carries [bug]",
        ),
        (
            {"authors": frozenset({"OWNER", "MEMBER"})},
            replace(OPENED, author_association="NONE"),
            Filter.AUTHORS,
            "entry wants authors [MEMBER, OWNER], this author's association is NONE",
        ),
        (
            {"authors": frozenset({"OWNER"})},
            replace(OPENED, author_association=""),
            Filter.AUTHORS,
            "entry wants authors [OWNER], this author's association is not known",
        ),
        (
            {"authors": frozenset({"OWNER"})},
            replace(OPENED, action="closed"),
            Filter.AUTHORS,
            "entry wants authors [OWNER], this author's association is MEMBER",
        ),
    ],
)
def test_a_filter_that_says_no_says_why(filters, subject, reason, text):
    """The sentence names the entry's key and value, and what the event has instead."""
    assert Filtered(reason, text) == decide(entry(**filters), subject)


@pytest.mark.parametrize("subject", [OPENED, PUSH, replace(OPENED, action="synchronize")])
def test_paths_decide_last_and_elsewhere(subject):
    """Whose files are needed is known without asking GitHub; which files they are is not."""
    assert NeedsPaths() == decide(entry(paths=("src/**",)), subject)


@pytest.mark.parametrize("event", sorted(EVENTS - {"pull_request", "push"}))
def test_what_is_ours_goes_only_to_those_who_name_it(event):
    """A listener made for production never meets an event that it does not know."""
    assert Filter.EVENTS is getattr(decide(ANYTHING, Subject(event)), "reason", None)
    assert Wanted() == decide(entry(events=frozenset({event})), Subject(event))


def test_case_12_nightly_only():
    """A backend that wants nightly only is left alone by pull requests, and by pushes too."""
    nightly = entry(events=frozenset({"nightly"}))

    assert Filter.EVENTS is getattr(decide(nightly, OPENED), "reason", None)
    assert Filter.EVENTS is getattr(decide(nightly, PUSH), "reason", None)


def test_case_11_only_explicit_tags_are_wanted_besides_the_branch():
    """Without refs all refs count, yet the tag of a commit that was told already is news only to who asked for tags."""
    assert [False, False, False, False, True, True] == [
        wants_tags(entry(refs=refs))
        for refs in [
            (),
            ("refs/heads/main",),
            ("**",),
            ("**", "!refs/tags/**"),
            ("refs/tags/v*",),
            ("**", "refs/tags/**"),
        ]
    ]


@pytest.mark.parametrize(
    ("paths", "complete", "expected"),
    [
        (["src/a.py"], True, Wanted()),
        (["docs/a.md", "src/a.py"], True, Wanted()),
        (
            ["docs/a.md", "docs/b.md"],
            True,
            Filtered(Filter.PATHS, "entry wants paths [src/**, !**/*.md], this changes 2 files, such as docs/a.md"),
        ),
        (
            ["src/a.md"],
            True,
            Filtered(Filter.PATHS, "entry wants paths [src/**, !**/*.md], this changes 1 file, such as src/a.md"),
        ),
        (["docs/a.md"], False, Wanted()),
        ([], True, Wanted()),
    ],
)
def test_changed_files_decide_and_doubt_dispatches(paths, complete, expected):
    """A cut or empty list of files is no proof that nothing of interest changed."""
    assert expected == decide_paths(entry(paths=("src/**", "!**/*.md")), paths, complete=complete)


def test_paths_match_is_about_the_files_alone():
    """Without a filter every change matches; with one, a file must."""
    assert paths_match(ANYTHING, [])
    assert paths_match(entry(paths=("src/**",)), ["src/a"])
    assert not paths_match(entry(paths=("src/**",)), ["docs/a"])
    assert not paths_match(entry(paths=("src/**",)), [])


def test_a_label_that_an_entry_waits_for():
    """Putting the label on may start what its absence held back; case is GitHub's to ignore."""
    waiting = entry(labels=("ciflow/NPU",))

    assert [True, False] == [waits_for_label(waiting, label) for label in ("ciflow/npu", "ciflow/xpu")]
    assert not waits_for_label(ANYTHING, "ciflow/npu")


def test_a_reason_stays_short():
    """Branch names and label lists are outside text of any length."""
    said = decide(entry(refs=("refs/heads/main",) * 50), replace(PUSH, ref="refs/heads/" + "x" * 5_000))

    assert isinstance(said, Filtered)
    assert len(said.text) < 250
