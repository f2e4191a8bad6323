"""Every fault of an entry with its line, and what a bad line may never do to a good one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allowlist.model import Allowlist, Level, Severity
from allowlist.parse import check, parse


def in_force(found: Allowlist) -> list[str]:
    return [str(entry.repo) for entry in found.entries]


def places(text: str) -> list[tuple[int, str]]:
    return [(fault.line, fault.rule) for fault in check(text)]


ENTRY_FAULTS = [
    # What stands after "org/bad: ", the rule, and words that the message or the fix must hold.
    ("{events: [bogus]}", "unknown-word", "Allowed: bisect, debug, landed"),
    ("{events: [pull_requests]}", "unknown-word", "Did you mean pull_request?"),
    ("{actions: [open]}", "unknown-word", "Allowed: closed, edited"),
    ("{authors: [FRIEND]}", "unknown-word", "Allowed: COLLABORATOR"),
    ("{on_silence: blok}", "unknown-word", "Did you mean block?"),
    ("{events: []}", "empty-choice", "Leave events out"),
    ("{events: ','}", "empty-choice", "Leave events out"),
    ("{actions: []}", "empty-choice", "Leave actions out"),
    ("{authors: []}", "empty-choice", "Leave authors out"),
    ("{events: }", "type", "events wants text"),
    ("{events: {nightly: true}}", "type", "events wants a list, this is a mapping"),
    ("{events: [[nightly]]}", "type", "this is a list"),
    ("{events: 5}", "type", "a number ('5')"),
    ("{labels: [12]}", "type", 'Write labels: "12"'),
    ("{labels: [true]}", "type", 'Write labels: "true"'),
    ("{labels: ['']}", "text", "labels"),
    ('{labels: ["a\\u0007"]}', "text", "control characters"),
    ('{labels: ["\\uD800"]}', "text", "control characters"),
    ("{oncalls: 5}", "type", "oncalls wants text"),
    ("{oncalls: {alice: true}}", "type", "oncalls wants a list"),
    ("5", "type", "oncalls wants text"),
    ("true", "type", "oncalls wants text"),
    ("[[alice]]", "type", "oncalls wants text"),
    ("{device: 910}", "type", 'Write device: "910"'),
    ("{device: 'n p u'}", "device-name", "ciflow/crcr/<device>"),
    ("{device: n/pu}", "device-name", "ciflow/crcr/<device>"),
    ("{device: " + "n" * 39 + "}", "device-name", "at most 38"),
    ("{refs: [main]}", "full-ref", "refs/heads/main"),
    ("{refs: '*'}", "full-ref", "'**' is every ref"),
    ("{refs: ['']}", "text", "refs"),
    ("{refs: ['!refs/tags/**']}", "glob", "['**', '!refs/tags/**']"),
    ("{paths: ['!docs/**']}", "glob", "['**', '!docs/**']"),
    ("{paths: ['**', '!']}", "glob", "it is empty"),
    ("{paths: ['a[b']}", "glob", "'[' is not closed"),
    ("{paths: ['+a']}", "glob", "no character before it"),
    ("{paths: ['a\\']}", "glob", "backslash"),
    ("{paths: ['[z-a]']}", "glob", "backwards"),
    ("{paths: [/src/**]}", "relative-path", "Write 'src/**'"),
    ("{paths: [" + "a" * 257 + "]}", "text", "Write 1 to 256"),
    ("{paths: [" + "a, " * 257 + "]}", "bounds", "List at most 256"),
    ("{base: 5}", "type", "base wants text"),
    ("{versions: {a: b}}", "type", "versions wants a list"),
    ("{versions: [true]}", "type", "versions wants text"),
    ("{versions: [~]}", "type", "versions wants text"),
    ("{timeouts: 2h}", "type", "Write timeouts: {queue: 2h, run: 6h}"),
    ("{timeouts: {queue: 2}}", "duration", "Say the unit"),
    ("{timeouts: {queue: 0h}}", "duration", "out of bounds"),
    ("{timeouts: {queue: 25h}}", "duration", "at most 24h"),
    ("{timeouts: {run: 36d}}", "duration", "at most 35d"),
    ("{timeouts: {run: 999999d}}", "duration", "at most 35d"),
    ("{timeouts: {run: 2 hours}}", "duration", "is no duration"),
    ("{timeouts: {run: -2h}}", "duration", "is no duration"),
    ("{timeouts: {run: 30m1h}}", "duration", "is no duration"),
    ("{timeouts: {run: 9999999999h}}", "duration", "is no duration"),
    ("{timeouts: {run: ~}}", "type", "Write run: 90m"),
    ("{timeouts: {run: 1h, run: 2h}}", "duplicate-key", "on line 3"),
    ("{expected_jobs: 0}", "bounds", "1 to 10000"),
    ("{expected_jobs: 10001}", "bounds", "1 to 10000"),
    ("{expected_jobs: 1.5}", "bounds", "1 to 10000"),
    ("{expected_jobs: -1}", "bounds", "1 to 10000"),
    ("{expected_jobs: .inf}", "bounds", "1 to 10000"),
    ("{expected_jobs: '12'}", "type", "a whole number"),
    ("{expected_jobs: twelve}", "type", "a whole number"),
    ("{workflow: CRCR}", "workflow-file", "crcr.yml"),
    ("{workflow: org/shared/a.yml}", "workflow-file", "crcr.yml"),
    ("{workflow: ../x.yml}", "workflow-file", "crcr.yml"),
    ("{workflow: 5}", "type", "workflow wants text"),
    ("{every_commit: yes}", "type", "true or false"),
    ("{every_commit: 'true'}", "type", "true or false"),
    ("{cancel_on_close: 1}", "type", "true or false"),
    ("{legacy: 1}", "type", "true or false"),
    ("{events: nightly, events: push}", "duplicate-key", "on line 3"),
    ("{[a]: b}", "key-form", "a list"),
]


@pytest.mark.parametrize(("text", "rule", "words"), ENTRY_FAULTS)
def test_a_fault_in_an_entry_keeps_only_this_entry_out(text, rule, words):
    """The fault stands on its own line, names the rule, and says what to write instead."""
    found = parse(f"L1:\n  - org/before\n  - org/bad: {text}\n  - org/after: alice\n")

    assert ["org/before", "org/after"] == in_force(found)
    assert {(3, rule)} == {(fault.line, fault.rule) for fault in found.faults}
    assert words in " ".join(f"{fault.message} {fault.fix}" for fault in found.faults)


ITEM_FAULTS = [
    # One item of a list, and the rule that it breaks.
    ("no-slash", "repo-name", "Write owner/name"),
    ("a/b/c", "repo-name", "Write owner/name"),
    ("org/..", "repo-name", "Write owner/name"),
    ("-org/x", "repo-name", "Write owner/name"),
    ("org/ünïcode", "repo-name", "Write owner/name"),
    ("'org/x\\n'", "repo-name", "Write owner/name"),
    ("org/x @alice,bob", "repo-name", "`org/x: alice, bob`"),
    ("org/x:alice", "repo-name", "`org/x: alice`"),
    ("org/x @", "repo-name", "`org/x: alice`"),
    ("https://github.com/org/x", "repo-name", "Write org/x."),
    ("https://github.com/org/x.git", "repo-name", "Write org/x."),
    ("org/x.git", "repo-name", "Write org/x."),
    ("", "entry-form", "Write `org/repo`"),
    ("~", "entry-form", "Write `org/repo`"),
    ("5", "entry-form", "a number ('5')"),
    ("true", "entry-form", "true or false"),
    ("[a, list]", "entry-form", "a list stands"),
    ("{}", "entry-form", "an empty mapping"),
    ("[]: alice", "entry-form", "a list stands"),
    ("5: alice", "entry-form", "a number"),
    ("events: [nightly]", "repo-name", "Write owner/name"),
]


@pytest.mark.parametrize(("item", "rule", "words"), ITEM_FAULTS)
def test_a_bad_item_keeps_only_itself_out(item, rule, words):
    """Whatever stands where a repository should, its neighbours stay in force."""
    found = parse(f"L1:\n  - org/before\n  - {item}\n  - org/after\n")

    assert ["org/before", "org/after"] == in_force(found)
    assert [(3, rule)] == [(fault.line, fault.rule) for fault in found.faults]
    assert words in f"{found.faults[0].message} {found.faults[0].fix}"


FILE_FAULTS = [
    ("L3:\n  org/x: alice\n", [(2, "l3-device")]),
    ("L3:\n  - org/x\n  - org/y: alice\n", [(2, "l3-device"), (3, "l3-device")]),
    ("L3:\n  n pu:\n    org/x: alice\n", [(2, "device-name")]),
    ("L3:\n  npu: alice\n", [(2, "level-form")]),
    ("L3:\n  npu:\n    org/x: {device: xpu}\n", [(3, "device-conflict")]),
    ("L3:\n  npu:\n    no-slash: alice\n", [(3, "repo-name")]),
    ("L3:\n  ? [npu]\n  : org/x\n", [(2, "type")]),
    ("L2:\n  org/x: alice\n  org/y:\n", [(2, "level-form"), (3, "level-form")]),
    ("L2: org/x\n", [(1, "level-form")]),
    ("L2: 5\n", [(1, "level-form")]),
    ("L1:\nl2:\n  - org/x\n", [(2, "unknown-level")]),
    ("L1:\n5:\n  - org/x\n", [(2, "unknown-level")]),
    ("L1:\n[a]:\n  - org/x\n", [(2, "unknown-level")]),
    ("L2:\n  - org/x:\n    events: [nightly]\n", [(3, "indentation")]),
    ("L2:\n  - org/x: alice\n    ? [b]\n    : c\n", [(3, "indentation")]),
]


@pytest.mark.parametrize(("text", "expected"), FILE_FAULTS)
def test_faults_of_form(text, expected):
    """A form that cannot be meant as it stands is refused with the line to mend, and grants nothing."""
    found = parse(text)

    assert () == found.entries
    assert expected == [(fault.line, fault.rule) for fault in found.faults]


def test_settings_beside_their_repository_do_not_widen_it():
    """Forgotten indentation must not turn "nightly only" into "everything"."""
    found = parse("L2:\n  - org/x:\n    events: [nightly]\n  - org/y\n")

    assert ["org/y"] == in_force(found)


def test_all_faults_of_one_entry_are_told_at_once():
    """Nobody should have to run the check once per fault."""
    text = """
L2:
  - org/x:
      events: [bogus]
      legacy: 1
      oncals: [a]
      timeouts:
        queue: 2
"""

    assert [(4, "unknown-word"), (5, "type"), (6, "unknown-key"), (8, "duration")] == places(text)


@pytest.mark.parametrize(
    ("text", "rule", "words"),
    [
        ("{oncals: [alice]}", "unknown-key", "Did you mean oncalls?"),
        ("{zzz: 1}", "unknown-key", "Known keys: actions, authors"),
        ("{timeouts: {start: 1h}}", "unknown-key", "{queue: 2h, run: 6h}"),
        ("[alice, 'Bob Smith']", "oncall-name", "'Bob Smith'"),
    ],
)
def test_a_warning_leaves_the_entry_in_force(text, rule, words):
    """A key of a newer relay, or a person without a login, is no reason to stop testing."""
    found = parse(f"L2:\n  - org/x: {text}\n")

    assert ["org/x"] == in_force(found)
    assert [(2, rule, Severity.WARNING)] == [(fault.line, fault.rule, fault.severity) for fault in found.faults]
    assert words in f"{found.faults[0].message} {found.faults[0].fix}"


def test_the_first_of_two_entries_of_a_repository_stands():
    """Two levels for one repository: the first counts, and the later one names its line."""
    found = parse("L1:\n  - org/x\nL4:\n  - ORG/X/: alice\n")

    assert [Level.L1] == [entry.level for entry in found.entries]
    assert [(4, "duplicate-repository")] == [(fault.line, fault.rule) for fault in found.faults]
    assert "on line 2" in found.faults[0].message


def test_a_refused_entry_does_not_take_its_repository_along():
    """A good entry survives a bad one of the same name, and still says that there are two."""
    found = parse("L1:\n  - org/x: {events: [bogus]}\nL2:\n  - org/x\n")

    assert [(Level.L2, 4)] == [(entry.level, entry.line) for entry in found.entries]
    assert [(2, Severity.ERROR), (4, Severity.WARNING)] == [(fault.line, fault.severity) for fault in found.faults]


def test_an_item_refused_for_its_indentation_still_names_its_repository():
    """The second entry stands, and the admin learns that there are two before mending the first."""
    found = parse("L2:\n  - org/x:\n    events: [nightly]\nL4:\n  - org/x\n")

    assert [(Level.L4, 5)] == [(entry.level, entry.line) for entry in found.entries]
    assert [(3, "indentation"), (5, "duplicate-repository")] == [(fault.line, fault.rule) for fault in found.faults]


def test_a_device_refused_for_its_name_is_not_also_missing():
    """One mistake is one fault: the device is there, only not a good one."""
    assert [(2, "device-name")] == places("L3:\n  - org/x: {device: 'n p u'}\n")


def test_a_level_or_device_that_stands_twice_keeps_both_lists():
    """There is no doubt where the entries belong, but other readers keep only one of the two."""
    found = parse("L1:\n  - org/a\nL3:\n  npu:\n    org/b:\n  npu:\n    org/c:\nL1:\n  - org/d\n")

    assert ["org/a", "org/b", "org/c", "org/d"] == in_force(found)
    assert [(6, "duplicate-key"), (8, "duplicate-key")] == [(fault.line, fault.rule) for fault in found.faults]


def test_the_label_prefix_bounds_a_device():
    """A label of GitHub's has at most 50 characters, whatever the prefix takes of them."""
    text = f"L3:\n  {'n' * 40}:\n    org/x:\n"

    assert ["org/x"] == in_force(parse(text, label_prefix="ciflow/"))
    assert [(2, "device-name")] == [
        (fault.line, fault.rule) for fault in parse(text, label_prefix="ciflow/crcr/").faults
    ]


GOOD = ["org/a", "org/b: alice, bob", "org/c: [alice]", "org/d: {events: [nightly]}", "org/e: {versions: [2.10]}"]
BAD = [item for item, _, _ in ITEM_FAULTS] + [f"org/bad: {text}" for text, _, _ in ENTRY_FAULTS]


@settings(max_examples=150, deadline=None)
@given(st.permutations(GOOD), st.sampled_from(BAD), st.integers(0, len(GOOD)), st.sampled_from(["L1", "L2", "L4"]))
def test_good_entries_survive_any_one_bad_line(good, bad, at, level):
    """A bad line costs its own entry, wherever it stands, and is named by its line."""
    expected = parse(f"{level}:\n" + "".join(f"  - {item}\n" for item in good))
    lines = [*good[:at], bad, *good[at:]]

    found = parse(f"{level}:\n" + "".join(f"  - {item}\n" for item in lines))

    assert () == expected.faults
    assert [(e.repo, e.oncalls, e.events, e.versions) for e in expected.entries] == [
        (e.repo, e.oncalls, e.events, e.versions) for e in found.entries
    ]
    assert {at + 2} == {fault.line for fault in found.faults}


@settings(max_examples=100, deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(lambda text: "org/" not in text)
)
def test_no_quoted_name_hurts_its_neighbours(name):
    """Any text at all may stand where a repository should."""
    escaped = "".join(f"\\U{ord(character):08X}" for character in name)

    found = parse(f'L1:\n  - org/before\n  - "{escaped}"\n  - org/after\n')

    assert {"org/before", "org/after"} <= set(in_force(found))
