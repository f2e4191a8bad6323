"""Every form an allowlist has taken, and every key of an entry."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from allowlist.model import (
    ACTIONS,
    AUTHOR_ASSOCIATIONS,
    EVENTS,
    Allowlist,
    Entry,
    Level,
    OnSilence,
    RepoName,
    Severity,
    Timeouts,
)
from allowlist.parse import parse

DATA = Path(__file__).parent / "data"
ROOT = Path(__file__).parents[2]


def entry_of(settings_text: str) -> Entry:
    """The entry in force that has these settings and no fault."""
    found = parse(f"L2:\n  - org/repo: {settings_text}\n")
    assert () == found.faults
    (entry,) = found.entries
    return entry


def in_force(found: Allowlist) -> list[str]:
    return [str(entry.repo) for entry in found.entries]


def test_every_form_in_use_is_read():
    """A list made for the production relay works here unchanged."""
    found = parse((DATA / "forms.yml").read_bytes())

    assert () == found.faults
    assert [
        (3, Level.L1, "org1/notify-only", None, ()),
        (4, Level.L1, "org2/slashes", None, ()),
        (6, Level.L2, "org3/plain", None, ()),
        (7, Level.L2, "org3/oncalls-text", None, ("alice", "bob")),
        (8, Level.L2, "org3/oncalls-list", None, ("alice", "bob")),
        (9, Level.L2, "org3/filtered", None, ("alice",)),
        (13, Level.L3, "org41/npu", "npu", ("alice", "bob")),
        (14, Level.L3, "org42/npu-second", "npu", ("bob",)),
        (16, Level.L4, "org5/critical", None, ("alice", "bob")),
    ] == [(e.line, e.level, str(e.repo), e.device, e.oncalls) for e in found.entries]
    assert frozenset({"nightly"}) == found.entries[5].events
    assert frozenset({"nightly", "pull_request", "push"}) == found.entries[7].events


def test_case_38_each_bad_line_hurts_only_itself():
    """Each of these lines was merged somewhere once; the good ones stay in force and each fault says where it is."""
    found = parse((DATA / "bad.yml").read_bytes())

    assert ["org1/good", "org2/good", "org4/good"] == in_force(found)
    assert [
        (4, "repo-name"),
        (5, "duplicate-repository"),
        (6, "entry-form"),
        (9, "repo-name"),
        (10, "duplicate-repository"),
        (12, "l3-device"),
        (15, "one-per-item"),
        (16, "unknown-level"),
    ] == [(fault.line, fault.rule) for fault in found.faults]
    assert "`org2/scalar: alice, bob`" in found.faults[3].fix
    assert "line 8" in found.faults[4].message
    assert all(fault.fix and fault.severity is Severity.ERROR for fault in found.faults)


def test_the_shipped_example_has_no_fault():
    """What people copy must be right, and shows every level."""
    found = parse((ROOT / "examples" / "allowlist.yml").read_bytes())

    assert () == found.faults
    assert set(Level) == {entry.level for entry in found.entries}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "# only\n# comments\n",
        "---\n",
        "---\n...\n",
        "{}",
        "null",
        "L1:\n",
        "L1: []\nL3: {}\nL4: ~\n",
        "L3: {npu: }",
    ],
)
def test_an_empty_list_is_no_error(text):
    """A file with comments only is how every list begins."""
    found = parse(text)

    assert ((), ()) == (found.entries, found.faults)


@pytest.mark.parametrize(
    "form",
    [
        "L1:\n- ORG/Repo",
        "L1: [/org/repo/]",
        "\ufeffL1:\n- org/repo",
        "L1:\r\n  - org/repo # comment\r\n",
        "L1:\n  - 'org/repo'",
        "L1:\n  - org/repo:",
        "L1:\n  - org/repo: {}",
        "L1:\n  - ' org/repo '",
        "{L1: [org/repo]}",
        "%YAML 1.1\n---\nL1: [org/repo]",
    ],
)
def test_spellings_of_one_plain_entry(form):
    """Case, slashes, quotes, line ends and a byte order mark do not change who is meant."""
    found = parse(form)

    assert () == found.faults
    assert [(RepoName("org", "repo"), Level.L1, ())] == [(e.repo, e.level, e.oncalls) for e in found.entries]


@pytest.mark.parametrize(
    "text",
    [
        "alice, bob",
        "[alice, bob]",
        "'@alice, @bob'",
        "['@alice', bob, Alice]",
        "{oncalls: 'alice,bob,'}",
        "{oncalls: [alice, bob]}",
        "[alice, 'bob']  # comment",
        "['alice, bob']",
    ],
)
def test_spellings_of_oncalls(text):
    """Text or list, with or without an at sign: the same two people, each once."""
    assert ("alice", "bob") == entry_of(text).oncalls


def test_defaults_are_those_of_the_protocol():
    """An entry that says nothing asks for what production always sent."""
    entry = entry_of("{}")

    assert Entry(repo=RepoName("org", "repo"), level=Level.L2, line=2) == entry
    assert frozenset({"pull_request", "push"}) == entry.events
    assert frozenset({"opened", "reopened", "synchronize", "closed"}) == entry.actions
    assert Timeouts(timedelta(hours=2), timedelta(hours=6)) == entry.timeouts
    assert ((), (), (), (), frozenset()) == (entry.refs, entry.base, entry.labels, entry.paths, entry.authors)
    assert (None, None, None, ()) == (entry.device, entry.expected_jobs, entry.workflow, entry.versions)
    assert (False, False, OnSilence.STEP_DOWN) == (entry.every_commit, entry.legacy, entry.on_silence)
    assert not entry.cancel_on_close


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("device: xpu", "device", "xpu"),
        ("events: [pull_request]", "events", frozenset({"pull_request", "push"})),
        ("events: push", "events", frozenset({"push"})),
        ("events: 'nightly, landed'", "events", frozenset({"nightly", "landed"})),
        (f"events: [{', '.join(sorted(EVENTS))}]", "events", EVENTS),
        (f"actions: [{', '.join(sorted(ACTIONS))}]", "actions", ACTIONS),
        (f"authors: [{', '.join(sorted(AUTHOR_ASSOCIATIONS))}]", "authors", AUTHOR_ASSOCIATIONS),
        ("authors: member", "authors", frozenset({"MEMBER"})),
        ("refs: [refs/heads/main, 'refs/tags/**']", "refs", ("refs/heads/main", "refs/tags/**")),
        ("base: main", "base", ("main",)),
        ("labels: [a, 'b c']", "labels", ("a", "b c")),
        ("paths: ['**', '!docs/**']", "paths", ("**", "!docs/**")),
        ("versions: [2.10, 2.1, '2.10', 3, v4, 1e3]", "versions", ("2.10", "2.1", "3", "v4", "1e3")),
        ("versions: 2.10", "versions", ("2.10",)),
        ("timeouts: {queue: 90m}", "timeouts", Timeouts(queue=timedelta(minutes=90))),
        ("timeouts: {run: 1d, queue: 30s}", "timeouts", Timeouts(timedelta(seconds=30), timedelta(days=1))),
        ("timeouts: {queue: 24h, run: 35d}", "timeouts", Timeouts(timedelta(days=1), timedelta(days=35))),
        ("timeouts: {run: 1h30m}", "timeouts", Timeouts(run=timedelta(minutes=90))),
        ("expected_jobs: 1", "expected_jobs", 1),
        ("expected_jobs: 10000", "expected_jobs", 10_000),
        ("workflow: crcr.yml", "workflow", ".github/workflows/crcr.yml"),
        ("workflow: .github/workflows/crcr.yaml", "workflow", ".github/workflows/crcr.yaml"),
        ("workflow: org/shared/.github/workflows/a.yml", "workflow", "org/shared/.github/workflows/a.yml"),
        ("every_commit: true", "every_commit", True),
        ("cancel_on_close: true", "cancel_on_close", True),
        ("legacy: True", "legacy", True),
        ("legacy: false", "legacy", False),
        ("on_silence: block", "on_silence", OnSilence.BLOCK),
        ("on_silence: neutral", "on_silence", OnSilence.STEP_DOWN),
    ],
)
def test_each_key_is_read(text, name, expected):
    """Every key of the protocol reaches the entry as a value of its own type."""
    assert expected == getattr(entry_of(f"{{{text}}}"), name)


def test_an_l3_entry_may_name_its_device_itself():
    """A plain list at L3 is good where each entry brings its label; a list below a device is good as well."""
    found = parse("L3:\n  - org/a: {device: npu}\n")
    below = parse("L3:\n  910:\n    - org/b\n    - org/c: alice\n")

    assert [("org/a", "npu")] == [(str(e.repo), e.device) for e in found.entries]
    assert [("org/b", "910"), ("org/c", "910")] == [(str(e.repo), e.device) for e in below.entries]
    assert ((), ()) == (found.faults, below.faults)
