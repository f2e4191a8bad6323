"""Promises 4 and 6 as properties: order and repetition mean nothing, and what is missing is never a success."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from levels.lifecycle import Expectation, LegReport, Status, fold, stand
from levels.outcomes import FAILURE_LIKE, Conclusion, Outcome
from tests.levels.reports import report

SAID = st.sampled_from(["start", *(str(conclusion) for conclusion in Conclusion)])

#: Few names, attempts and ids, so that reports meet each other; receipts collide too.
ONE_REPORT = st.builds(
    report,
    SAID,
    st.integers(0, 6),
    job=st.sampled_from(["build", "test"]),
    run=st.sampled_from(["100", "200"]),
    attempt=st.integers(1, 3),
    check=st.sampled_from([None, "1", "2", "3"]),
    combination=st.sampled_from(["", "aaa", "bbb"]),
    version=st.sampled_from([None, "1.0", "2.0"]),
    expected_jobs=st.sampled_from([None, 1, 4]),
    passed=st.sampled_from([None, 3]),
)
REPORTS = st.lists(ONE_REPORT, max_size=12).map(
    lambda found: [replace(one, report_id=number) for number, one in enumerate(found, start=1)]
)
EXPECTATIONS = st.builds(
    Expectation,
    jobs=st.sampled_from([None, 0, 1, 3]),
    versions=st.sampled_from([(), ("1.0",), ("1.0", "2.0")]),
)
CONCLUDED = st.sampled_from([None, *sorted(set(Outcome) - {Outcome.SUCCESS})])


@settings(deadline=None)
@given(st.data())
def test_any_order_gives_the_same(data: st.DataObject) -> None:
    """Callbacks overtake each other, and replicas read them in any order."""
    reports = data.draw(REPORTS)

    assert fold(reports) == fold(data.draw(st.permutations(reports)))


@settings(deadline=None)
@given(st.data())
def test_any_repetition_gives_the_same(data: st.DataObject) -> None:
    """A client that lost our answer sends again, later, and gets a row of its own."""
    reports = data.draw(REPORTS)
    again = data.draw(st.lists(st.sampled_from(reports), max_size=6)) if reports else []
    later = [
        replace(one, received_at=one.received_at + timedelta(minutes=number), report_id=1000 + number)
        for number, one in enumerate(again)
    ]

    assert fold(reports) == fold(data.draw(st.permutations([*reports, *later])))


@settings(deadline=None)
@given(REPORTS)
def test_no_two_legs_have_the_same_identity(reports: list[LegReport]) -> None:
    """Rows are keyed by it; two of one key would overwrite each other in turn, for ever."""
    identities = [
        (leg.run_id, leg.run_attempt, leg.job_name, leg.combination, leg.check_run_id) for leg in fold(reports)
    ]

    assert len(set(identities)) == len(identities)


@settings(deadline=None)
@given(REPORTS, EXPECTATIONS, CONCLUDED)
def test_success_is_said_only_when_every_leg_says_it(
    reports: list[LegReport], expectation: Expectation, concluded: Outcome | None
) -> None:
    """And when as many are there as were announced, and every version: else it is something else."""
    legs = [leg for leg in fold(reports) if leg.deciding]
    standing = stand(fold(reports), expectation, concluded=concluded)
    claimed = max((one.expected_jobs or 0 for one in reports), default=0)

    if standing.outcome is Outcome.SUCCESS:
        assert {Conclusion.SUCCESS} == {leg.conclusion for leg in legs}
        assert len(legs) >= (claimed if expectation.jobs is None else expectation.jobs)
        assert set(expectation.versions) <= {leg.backend_version for leg in legs}


@settings(deadline=None)
@given(REPORTS, EXPECTATIONS, CONCLUDED)
def test_the_newest_attempt_of_a_failing_run_is_never_hidden(
    reports: list[LegReport], expectation: Expectation, concluded: Outcome | None
) -> None:
    """A failure in the newest attempt of a run stands, whatever else was said, by whom, and when."""
    newest: dict[str, int] = {}
    for one in reports:
        newest[one.run_id] = max(one.run_attempt, newest.get(one.run_id, 0))
    failed = any(one.conclusion in FAILURE_LIKE and one.run_attempt == newest[one.run_id] for one in reports)
    outcome = stand(fold(reports), expectation, concluded=concluded).outcome

    if failed:
        assert outcome in {"failure", "timed_out", "action_required", "cancelled"}


@st.composite
def complete_matrices(draw: st.DrawFn) -> tuple[list[LegReport], int]:
    """All reports of some legs that all succeed, of one name or of many, with or without a job that reports the end."""
    count = draw(st.integers(1, 5))
    one_name = draw(st.booleans())
    ends_elsewhere = draw(st.booleans())
    claim = draw(st.booleans())
    reports = []
    for number in range(count):
        job = "build" if one_name else f"build {number}"
        expected = count if claim else None
        end_check = str(number + (100 if ends_elsewhere else 0))
        reports.append(report("start", number, job=job, check=str(number), expected_jobs=expected))
        reports.append(report("success", 10 + number, job=job, check=end_check, expected_jobs=expected))
    return reports, count


@settings(deadline=None)
@given(complete_matrices(), st.booleans())
def test_a_matrix_that_reports_everything_is_a_success(matrix: tuple[list[LegReport], int], listed: bool) -> None:
    """The counterpart of the next: nothing is missing, so nothing holds it up."""
    reports, count = matrix
    legs = fold(reports)

    assert "success" == stand(legs, Expectation(count if listed else None), concluded=None).outcome
    assert (count, True) == (len(legs), all(leg.started_at is not None for leg in legs))


@settings(deadline=None)
@given(complete_matrices(), CONCLUDED, st.data())
def test_a_missing_end_is_never_a_success(
    matrix: tuple[list[LegReport], int], concluded: Outcome | None, data: st.DataObject
) -> None:
    """Take away at least one end, and any of the starts: whoever expects that many legs does not see success."""
    reports, count = matrix
    ends = [one for one in reports if one.status is Status.COMPLETED]
    starts = [one for one in reports if one.status is Status.IN_PROGRESS]
    kept_ends = data.draw(st.lists(st.sampled_from(ends), unique=True, max_size=count - 1))
    kept_starts = data.draw(st.lists(st.sampled_from(starts), unique=True))

    standing = stand(fold([*kept_ends, *kept_starts]), Expectation(count), concluded=concluded)

    assert Outcome.SUCCESS is not standing.outcome


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["1.0", "2.0", "3.0"]), unique=True),
    st.sets(st.sampled_from(["1.0", "2.0", "3.0"]), min_size=1),
    CONCLUDED,
)
def test_success_needs_every_version_that_the_entry_names(
    named: list[str], ran: set[str], concluded: Outcome | None
) -> None:
    """Each version that ran says success; it is one exactly where none of those that the entry names is missing."""
    reports = [report("success", 5, job="test", combination=f"c{version}", version=version) for version in sorted(ran)]

    standing = stand(fold(reports), Expectation(versions=tuple(named)), concluded=concluded)

    assert (set(named) <= ran) == (standing.outcome is Outcome.SUCCESS)
    assert tuple(version for version in named if version not in ran) == standing.missing_versions


@settings(deadline=None)
@given(complete_matrices(), st.data())
def test_one_failure_among_the_ends_is_the_outcome(matrix: tuple[list[LegReport], int], data: st.DataObject) -> None:
    """Worst wins, wherever it stands and whatever comes after it."""
    reports, count = matrix
    chosen = data.draw(st.sampled_from([one for one in reports if one.status is Status.COMPLETED]))
    failing = [replace(one, conclusion=Conclusion.FAILURE) if one is chosen else one for one in reports]

    assert "failure" == stand(fold(failing), Expectation(count), concluded=None).outcome


def test_a_night_of_seven_hundred_reports_is_one_outcome() -> None:
    """347 legs (CASES 22) with a start and an end each: all there, all green."""
    reports = [
        report(said, minute, job="ops", check=str(number), expected_jobs=350)
        for number in range(350)
        for minute, said in ((number, "start"), (number + 400, "success"))
    ]
    legs = fold(reports)

    assert (350, "success") == (len(legs), stand(legs, Expectation(), concluded=None).outcome)
