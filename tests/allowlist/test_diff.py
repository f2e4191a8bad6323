"""What a change to the list grants and withdraws, in a sentence each."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allowlist.diff import Change, ChangeKind, diff
from allowlist.model import Allowlist, Entry, Level, RepoName
from allowlist.parse import parse
from allowlist.settings import NAMES

X = RepoName("org", "x")
TOLD = "being told of upstream's events"
RECORDED = "having its results recorded and shown"
LABELLED = "a check on pull requests that carry its label"
BLOCKS = "a check on every pull request, which can block the merge"


def changes(old: str, new: str) -> list[Change]:
    lists = parse(old), parse(new)
    assert [(), ()] == [each.faults for each in lists]
    return list(diff(*lists))


@pytest.mark.parametrize(
    ("old", "new", "kind", "text"),
    [
        ("", "L1: [org/x]", ChangeKind.ADDED, "org/x is added at L1 and gains being told of upstream's events."),
        (
            "",
            "L3: {npu: {org/x: }}",
            ChangeKind.ADDED,
            f"org/x is added at L3 for device npu and gains {TOLD}, {RECORDED} and {LABELLED}.",
        ),
        (
            "L2: [org/x]",
            "L1:",
            ChangeKind.REMOVED,
            f"org/x is removed from L2 and loses {TOLD} and {RECORDED}.",
        ),
        (
            "L2: [org/x]",
            "L4: [org/x]",
            ChangeKind.PROMOTED,
            f"org/x is promoted from L2 to L4 and gains {BLOCKS}.",
        ),
        (
            "L4: [org/x]",
            "L1: [org/x]",
            ChangeKind.DEMOTED,
            f"org/x is demoted from L4 to L1 and loses {RECORDED} and {BLOCKS}.",
        ),
        (
            "L3: {npu: {org/x: }}",
            "L3: {npu2: {org/x: }}",
            ChangeKind.DEVICE,
            "org/x changes its device, and with it its label, from npu to npu2.",
        ),
        (
            "L2: [org/x: alice]",
            "L2: [org/x: [alice, bob]]",
            ChangeKind.SETTING,
            "org/x changes oncalls from [alice] to [alice, bob].",
        ),
        (
            "L2: [org/x]",
            "L2: [org/x: {events: [nightly]}]",
            ChangeKind.SETTING,
            "org/x changes events from [pull_request, push] to [nightly].",
        ),
        (
            "L2: [org/x]",
            "L2: [org/x: {timeouts: {queue: 1h30m, run: 1d}}]",
            ChangeKind.SETTING,
            "org/x changes timeouts from {queue: 2h, run: 6h} to {queue: 1h30m, run: 1d}.",
        ),
        (
            "L2: [org/x]",
            "L2: [org/x: {expected_jobs: 3}]",
            ChangeKind.SETTING,
            "org/x changes expected_jobs from none to 3.",
        ),
        (
            "L2: [org/x]",
            "L2: [org/x: {legacy: true}]",
            ChangeKind.SETTING,
            "org/x changes legacy from false to true.",
        ),
        (
            "L2: [org/x: {on_silence: block}]",
            "L2: [org/x]",
            ChangeKind.SETTING,
            "org/x changes on_silence from block to neutral.",
        ),
    ],
)
def test_each_kind_of_change_has_its_sentence(old, new, kind, text):
    """A reviewer reads what a backend may now do, not which line moved."""
    (change,) = changes(old, new)

    assert (kind, X, text) == (change.kind, change.repo, change.text)


def test_one_entry_can_change_in_several_ways():
    """Level, device and settings are told apart, and repositories come in order."""
    found = changes("L2: [org/x, org/b]", "L3: {npu: {org/x: alice}}\nL4: [org/a]")

    assert [
        ("org/a", ChangeKind.ADDED, "", "L4", ""),
        ("org/b", ChangeKind.REMOVED, "L2", "", ""),
        ("org/x", ChangeKind.PROMOTED, "L2", "L3", ""),
        ("org/x", ChangeKind.DEVICE, "", "npu", ""),
        ("org/x", ChangeKind.SETTING, "[]", "[alice]", "oncalls"),
    ] == [(str(c.repo), c.kind, c.before, c.after, c.setting) for c in found]


def test_order_comments_case_and_forms_are_no_change():
    """Only what it means counts."""
    assert [] == changes("L2:\n - org/x: alice, bob\n - org/y", "# moved\nL2: [ORG/Y, org/x: {oncalls: [alice, bob]}]")


def test_every_field_of_an_entry_is_compared():
    """A setting that a later version adds to the entry cannot change in silence."""
    # What lowers a level for a time stands in no file.
    assert {field.name for field in fields(Entry)} - {"repo", "level", "line", "lowered_from"} == NAMES


ENTRIES = st.lists(
    st.builds(
        Entry,
        repo=st.sampled_from([RepoName("o", name) for name in "abc"]),
        level=st.sampled_from(Level),
        line=st.integers(1, 9),
    ),
    unique_by=lambda entry: entry.repo,
    max_size=3,
).map(lambda entries: Allowlist(tuple(entries)))


@given(ENTRIES, ENTRIES)
def test_a_change_taken_back_is_its_mirror(old, new):
    """What one direction grants the other withdraws, and no difference goes untold."""
    there, back = diff(old, new), diff(new, old)

    assert {(c.repo, c.before, c.after) for c in there} == {(c.repo, c.after, c.before) for c in back}
    assert (not there) == ({(e.repo, e.level) for e in old.entries} == {(e.repo, e.level) for e in new.entries})
