"""The wire of a callback: what is taken, what is bent into shape, and what is refused by name."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levels.legs import Status
from levels.outcomes import Conclusion
from relay.edge.body import parse_json
from relay.results.failures import Counts
from relay.results.faults import MOST_FAULTS, Fault, MalformedReportError
from relay.results.fields import cut_bytes, is_link
from relay.results.report import IncomingReport, read_report

DATA = Path(__file__).parents[1] / "edge" / "data"
CAPABILITY = f"crcr1.12.{'a' * 64}"


def body(**workflow: Any) -> dict[str, Any]:
    """A small body that is right, with other words in its workflow; a field given as None stays null."""
    return {
        "event_type": "pull_request",
        "delivery_id": "d-1",
        "payload": {},
        "workflow": {"status": "completed", "conclusion": "success", "run_id": "1", **workflow},
    }


def read(**workflow: Any) -> IncomingReport:
    """That body, read."""
    return read_report(body(**workflow))


def faults(raw: object) -> list[tuple[str, str, str]]:
    """Field, rule and fix of everything that is wrong with a body."""
    with pytest.raises(MalformedReportError) as malformed:
        read_report(raw)
    return [(fault.field, fault.rule, fault.fix) for fault in malformed.value.faults]


@pytest.mark.parametrize("path", sorted(DATA.glob("callback_*.json")), ids=lambda path: path.stem)
def test_production_s_bodies_are_read_without_a_note(path: Path) -> None:
    """They are what existing listeners send."""
    raw = parse_json(path.read_bytes())

    report = read_report(copy.deepcopy(raw))

    assert () == report.notes
    assert raw == json.loads(report.body)
    assert raw["workflow"]["job_name"] == report.job_name


def test_every_field_becomes_a_value() -> None:
    """One look at the whole."""
    report = read(
        schema_version=1,
        name="ci",
        url="https://github.com/org/l2/actions/runs/1",
        run_id=24033272679,
        run_attempt="2",
        job_name="build: linux / 🚀",
        check_run_id=98765432100,
        started_at="2026-09-28T10:15:30.1234567+02:00",
        completed_at="2026-09-28T10:45:12Z",
        test_results={"passed": "3", "failed": 1.0, "skipped": 0, "total": None, "xfailed": 2},
        failed_tests=[{"name": "t", "duration": "0.5"}],
        triage_verdict={"anything": True},
        artifact_url="http://10.0.0.1/x",
        combination={"backend_version": "2.8", "suite_version": "", "environment": {"python": "3.10", "cores": 8}},
        expected_jobs="4",
        failure_class="infra",
    )

    assert ("24033272679", 2, "build: linux / 🚀", "98765432100") == (
        report.run_id,
        report.run_attempt,
        report.job_name,
        report.check_run_id,
    )
    assert datetime(2026, 9, 28, 8, 15, 30, 123456, tzinfo=UTC) == report.started_at
    assert datetime(2026, 9, 28, 10, 45, 12, tzinfo=UTC) == report.completed_at
    assert Counts(passed=3, failed=1, skipped=0, xfailed=2) == report.counts
    assert [("t", 0.5)] == [(test.name, test.duration) for test in report.failed_tests]
    assert ("2.8", None, {"python": "3.10", "cores": "8"}) == (
        report.combination.backend_version,
        report.combination.suite_version,
        dict(report.combination.environment),
    )
    assert (4, "infra", ()) == (report.expected_jobs, report.failure_class, report.notes)


def test_what_is_not_said_has_its_default() -> None:
    """A job without a name is the default job; without a run or attempt the token speaks."""
    report = read(run_id=None, job_name="")

    assert ("default", None, None, None, "") == (
        report.job_name,
        report.run_id,
        report.run_attempt,
        report.check_run_id,
        report.combination.id,
    )


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("sucess", "Did you mean 'success'?"),
        ("Success", "Did you mean 'success'?"),
        ("canceled", "Did you mean 'cancelled'?"),
        ("timeout", "Did you mean 'timed_out'?"),
        ("stale", ""),
        ("banana", ""),
        (7, "Send it as a string."),
    ],
)
def test_a_conclusion_must_be_one_of_seven(given: object, hint: str) -> None:
    """Named with all that would do, and the nearest."""
    ((field, rule, fix),) = faults(body(conclusion=given))

    assert ("workflow.conclusion", hint) == (field, fix)
    assert all(conclusion.value in rule for conclusion in Conclusion)


@pytest.mark.parametrize("given", [None, ""])
def test_a_completed_report_needs_a_conclusion(given: object) -> None:
    """Silence is no success."""
    ((field, rule, _),) = faults(body(conclusion=given))

    assert ("workflow.conclusion", True) == (field, "required when status is completed" in rule)


@pytest.mark.parametrize("given", ["success", "banana", 7])
def test_a_conclusion_before_the_end_is_ignored_with_a_note(given: object) -> None:
    """A job that has not ended has no conclusion, whatever it hopes for."""
    report = read(status="in_progress", conclusion=given)

    assert (Status.IN_PROGRESS, None) == (report.status, report.conclusion)
    assert ["workflow.conclusion" in note for note in report.notes] == [True]


@pytest.mark.parametrize("status", ["queued", "Completed", "", None, 1, ["completed"], {}])
def test_a_status_is_one_of_two(status: object) -> None:
    """Anything else would be guessed at."""
    assert ["workflow.status"] == [field for field, _, _ in faults(body(status=status))]


def test_all_faults_are_told_at_once() -> None:
    """Nobody should have to mend a body one answer at a time."""
    raw = body(
        conclusion="sucess",
        run_attempt=0,
        job_name=["x"],
        started_at="yesterday",
        test_results={"passed": -1, "failed": 1.5, "skipped": True, "total": "many"},
        failed_tests=[{"name": 7, "duration": "long"}, "t"],
        combination={"environment": {"python": 3.1}},
        expected_jobs=-3,
        failure_class="weather",
    )
    raw["event_type"], raw["delivery_id"], raw["payload"], raw["relay"] = 1, 2, [], "token"

    assert {
        "workflow.conclusion",
        "workflow.run_attempt",
        "workflow.job_name",
        "workflow.started_at",
        "workflow.test_results.passed",
        "workflow.test_results.failed",
        "workflow.test_results.skipped",
        "workflow.test_results.total",
        "workflow.failed_tests[0].name",
        "workflow.failed_tests[0].duration",
        "workflow.failed_tests[1]",
        "workflow.combination.environment.python",
        "workflow.expected_jobs",
        "workflow.failure_class",
        "event_type",
        "delivery_id",
        "payload",
        "relay",
    } == {field for field, _, _ in faults(raw)}


def test_the_list_of_faults_is_bounded() -> None:
    """A body of nothing but faults does not make an answer of a megabyte."""
    assert len(faults(body(failed_tests=["x"] * 1_000))) == MOST_FAULTS


def test_a_huge_value_is_not_repeated_in_the_answer() -> None:
    """Neither a long word nor a long array."""
    long_word, long_array = faults(body(conclusion="x" * 1_000_000)), faults(body(name=["x" * 1_000_000]))

    assert max(len(rule) for _, rule, _ in (*long_word, *long_array)) < 300


@pytest.mark.parametrize("raw", [None, 7, "x", [], [{}]])
def test_a_body_is_an_object(raw: object) -> None:
    """Anything else is named as what it is."""
    assert ["(body)"] == [field for field, _, _ in faults(raw)]


@pytest.mark.parametrize(("given", "fields"), [(None, "workflow"), ("x", "workflow"), ([], "workflow")])
def test_a_workflow_is_an_object(given: object, fields: str) -> None:
    """It is all that a report says."""
    assert fields in [field for field, _, _ in faults({"delivery_id": "d", "workflow": given})]


@pytest.mark.parametrize(
    "given",
    [
        "2026-09-28",
        "2026-09-28T10:45:12",
        "20260928T104512Z",
        "2026-13-28T10:45:12Z",
        "0001-01-01T00:00:00+14:00",
        7,
    ],
)
def test_a_time_names_a_moment(given: object) -> None:
    """A date, or a time without an offset, is none."""
    assert ["workflow.completed_at"] == [field for field, _, _ in faults(body(completed_at=given))]


@pytest.mark.parametrize("field", ["url", "artifact_url"])
@pytest.mark.parametrize(
    "link",
    [
        "javascript:alert(1)",
        "ftp://host/x",
        "https://user:pass@host/x",
        "https://user@host/x",
        "//host/x",
        "https://",
        "https://ho st/x",
        'https://host/"x',
        "https://[::1",
        "https://host/" + "x" * 2_000,
        7,
    ],
)
def test_a_bad_link_is_dropped_and_noted(field: str, link: object) -> None:
    """It never costs a verdict, and never reaches a page."""
    report = read(**{field: link})

    assert "" == getattr(report, field)
    assert [f"workflow.{field} was dropped"] == [note.partition(":")[0] for note in report.notes]


@pytest.mark.parametrize(
    "link", ["https://host", "http://[::1]:8080/x?y=%20#z", "https://github.com/o/r/actions/runs/1"]
)
def test_a_plain_link_is_kept(link: str) -> None:
    """http and https, with any port, path and query."""
    assert is_link(link)


def test_long_texts_are_cut_and_never_refused() -> None:
    """1,000 failed tests, 1 KB of message, 4 KB of stack, in bytes; the rest is cut in the row and in the body."""
    test = {"name": "n" * 600, "message": "é" * 1_000, "stacktrace": "s" * 5_000, "own": "kept"}
    report = read(failed_tests=[test] * 1_532)

    kept = json.loads(report.body)["workflow"]["failed_tests"]
    assert (1_000, 1_000) == (len(report.failed_tests), len(kept))
    first = report.failed_tests[0]
    assert (500, 4_096) == (len(first.name), len(first.stacktrace.encode()))
    assert 1_020 < len(first.message.encode()) <= 1_024
    assert {**test, "name": first.name, "message": first.message, "stacktrace": first.stacktrace} == kept[0]
    assert ["workflow.failed_tests: 1532 given, the first 1000 kept"] == list(report.notes)


def test_ids_that_are_too_long_stay_different() -> None:
    """A job's name is part of what it is, and the database can index only so much."""
    names = [read(job_name="x" * 600 + end).job_name for end in ("a", "b")]

    assert [500, 500] == [len(name) for name in names]
    assert names[0] != names[1]


@pytest.mark.parametrize("number", [3.1, 3.0])
def test_a_version_that_is_a_number_is_refused_with_the_fix(number: float) -> None:
    """3.10 and 3.1 are one number and two Pythons."""
    ((_, rule, fix),) = faults(body(combination={"environment": {"python": number}}))

    assert "must be a string" in rule
    assert f'"{number}"' in fix


def test_unknown_fields_are_kept_and_the_capability_is_not() -> None:
    """What we do not know is for whoever reads the forwarded body; our own token is for nobody."""
    raw = body(own={"x": 1}, failed_tests=[{"name": "t", "message": f"env: {CAPABILITY}"}])
    raw.update(extra=[1, CAPABILITY], relay={"token": CAPABILITY, "schema": 1})

    report = read_report(raw)

    assert CAPABILITY == report.capability
    assert CAPABILITY not in report.body
    assert "env: [capability]" == report.failed_tests[0].message
    kept = json.loads(report.body)
    assert ({"x": 1}, [1, "[capability]"], False) == (kept["workflow"]["own"], kept["extra"], "relay" in kept)


def test_without_a_capability_a_body_must_say_what_it_is_about() -> None:
    """By its delivery, or for a night by its commit."""
    raw = body()
    raw["delivery_id"] = ""

    assert ["delivery_id"] == [field for field, _, _ in faults(raw)]
    assert read_report({**raw, "relay": {"token": CAPABILITY}}).capability == CAPABILITY


def test_a_night_with_a_capability_is_an_answer_to_our_dispatch() -> None:
    """We send nightly events too, to entries that ask for them."""
    raw = {**body(), "event_type": "nightly", "relay": {"token": CAPABILITY}}

    assert read_report(raw).self_reported is False


@pytest.mark.parametrize("version", ["2", 2, "1.1"])
def test_another_schema_version_is_read_with_a_note(version: object) -> None:
    """A newer action's verdict is not lost for its newer words."""
    assert ["schema_version" in note for note in read(schema_version=version).notes] == [True]


def test_equal_workflows_have_equal_fingerprints_in_any_order_of_keys() -> None:
    """A client that sends again may build its JSON anew."""
    one, other = body(name="a", url=""), body(url="", name="a")

    assert read_report(one).fingerprint == read_report(other).fingerprint
    assert read_report(one).fingerprint != read_report(body(name="b", url="")).fingerprint


def test_the_given_body_is_left_alone() -> None:
    """A batch reads items that belong to somebody else."""
    raw = body(failed_tests=[{"name": "n" * 600}])
    raw["relay"] = {"token": CAPABILITY}
    before = copy.deepcopy(raw)

    read_report(raw)

    assert before == raw


@given(st.text(max_size=400), st.integers(4, 300))
def test_cutting_by_bytes_never_breaks_a_character(text: str, most: int) -> None:
    """The result fits, is text, and is all of the text where that fits."""
    cut = cut_bytes(text, most)

    assert len(cut.encode()) <= most
    assert cut == text if len(text.encode()) <= most else text.startswith(cut.removesuffix("…"))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_FIELDS = [
    *("schema_version", "status", "conclusion", "name", "url", "run_id", "run_attempt", "job_name", "check_run_id"),
    *("started_at", "completed_at", "test_results", "failed_tests", "triage_verdict", "artifact_url", "combination"),
    *("expected_jobs", "failure_class"),
]


@given(
    st.dictionaries(st.sampled_from(_FIELDS), _JSON),
    st.dictionaries(st.sampled_from(["event_type", "delivery_id", "payload", "relay"]), _JSON),
)
def test_whatever_stands_in_a_body_is_read_or_refused_by_name(
    workflow: dict[str, object], top: dict[str, object]
) -> None:
    """No JSON makes the reader fail in any other way, and what it keeps is JSON."""
    raw = parse_json(json.dumps({**top, "workflow": workflow}).encode())
    found: tuple[Fault, ...] = ()
    report = None
    try:
        report = read_report(raw)
    except MalformedReportError as malformed:
        found = malformed.faults
    assert all(fault.field and fault.rule for fault in found)
    assert (report is None) == bool(found)
    assert report is None or "relay" not in json.loads(report.body)
