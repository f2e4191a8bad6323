"""How reports become legs within one run attempt: pairing, repetition, contradiction."""

import pytest

from levels.lifecycle import Status, fold
from tests.levels.reports import at, only_leg, report, results


def test_a_start_and_its_end_are_one_leg_with_our_times() -> None:
    """What counts is when we received them; what they claim stands elsewhere."""
    leg = only_leg(report("start", 1, check="7"), report("success", 9, check="7"))

    assert ("success", Status.COMPLETED, at(1), at(9)) == (
        leg.conclusion,
        leg.status,
        leg.started_at,
        leg.completed_at,
    )
    assert ("100", 1, "build", "", "7", True, False) == (
        leg.run_id,
        leg.run_attempt,
        leg.job_name,
        leg.combination,
        leg.check_run_id,
        leg.deciding,
        leg.conflicting,
    )


def test_a_start_alone_is_a_running_leg() -> None:
    """A leg is there from its first word on."""
    leg = only_leg(report("start", 1, check="7"))

    assert (Status.IN_PROGRESS, None, at(1), None) == (leg.status, leg.conclusion, leg.started_at, leg.completed_at)


def test_a_lone_completed_report_counts() -> None:
    """A listener whose first call was lost, or that makes only one, has reported all the same (CASES 16)."""
    leg = only_leg(report("failure", 9))

    assert ("failure", None, at(9)) == (leg.conclusion, leg.started_at, leg.completed_at)


def test_a_late_start_does_not_reopen_a_leg() -> None:
    """Terminal beats in progress: the late start of CASES 16 and 17 is acknowledged and changes no verdict."""
    leg = only_leg(report("success", 3, check="7"), report("start", 5, check="7"))

    assert (Status.COMPLETED, "success", at(3)) == (leg.status, leg.conclusion, leg.completed_at)


def test_of_several_starts_the_earliest_counts() -> None:
    """A client that lost our answer says again that it started; it started when it first said so."""
    leg = only_leg(report("start", 4), report("start", 2), report("success", 9), report("start", 3))

    assert at(2) == leg.started_at


def test_matrix_legs_of_one_job_name_are_told_apart_by_check_run() -> None:
    """Three legs, three results (CASES 19): none of them may overwrite another."""
    legs = [
        *(report("start", number, check=str(number)) for number in (1, 2, 3)),
        report("success", 5, check="1"),
        report("failure", 6, check="2"),
        report("success", 7, check="3"),
    ]

    assert [("1", "success"), ("2", "failure"), ("3", "success")] == results(*legs)


def test_started_in_one_job_and_finished_in_another_is_one_leg() -> None:
    """The safe listener reports its end from a job of its own; the times are those of both (CASES 20)."""
    leg = only_leg(report("start", 1, check="1"), report("success", 9, check="2"))

    assert ("2", at(1), at(9)) == (leg.check_run_id, leg.started_at, leg.completed_at)


def test_an_end_in_another_job_takes_the_oldest_start_that_nobody_ended() -> None:
    """Two legs, each ended elsewhere: the one that ended first is the one that started first."""
    legs = fold(
        [
            report("start", 2, check="b"),
            report("start", 1, check="a"),
            report("success", 8, check="y"),
            report("success", 7, check="x"),
        ]
    )

    assert [("x", at(1), at(7)), ("y", at(2), at(8))] == [(g.check_run_id, g.started_at, g.completed_at) for g in legs]


def test_a_start_that_has_its_own_end_is_not_taken_by_another() -> None:
    """The oldest start belongs to the job that also ended; the end from elsewhere takes the other one."""
    legs = fold([report("start", 1, check="1"), report("start", 2, check="2"), report("success", 5, check="3")])
    more = fold(
        [
            report("start", 1, check="1"),
            report("start", 2, check="2"),
            report("success", 5, check="3"),
            report("failure", 6, check="1"),
        ]
    )

    assert [("2", None, at(2)), ("3", "success", at(1))] == [(g.check_run_id, g.conclusion, g.started_at) for g in legs]
    assert [("1", "failure", at(1)), ("3", "success", at(2))] == [
        (g.check_run_id, g.conclusion, g.started_at) for g in more
    ]


def test_the_oldest_start_is_the_one_that_was_first_said_first() -> None:
    """Saying it again later does not make a start younger."""
    legs = fold(
        [
            report("start", 5, check="1"),
            report("start", 1, check="1"),
            report("start", 2, check="2"),
            report("success", 8, check="3"),
        ]
    )

    assert [("2", at(2)), ("3", at(1))] == [(leg.check_run_id, leg.started_at) for leg in legs]


def test_an_end_takes_no_start_of_another_job_name_attempt_or_run() -> None:
    """A leg of another name that never ends must stay visible."""
    end = report("success", 9, check="2")
    others = [
        report("start", 1, check="1", job="test"),
        report("start", 1, check="1", run="101"),
        report("start", 1, check="1", attempt=2),
    ]

    assert [2, 2, 2] == [len(fold([end, other])) for other in others]


def test_one_start_ends_once() -> None:
    """Two ends cannot both have the one start: the second is a leg of its own, whose start we never saw."""
    legs = fold(
        [report("start", 1, check="1"), report("success", 5, check="2"), report("success", 6, check="3")],
    )

    assert [("2", at(1)), ("3", None)] == [(leg.check_run_id, leg.started_at) for leg in legs]


class TestCombinations:
    """Where one job name runs several combinations, what they state decides who belongs to whom."""

    def test_the_same_combination_goes_before_an_older_start_of_another(self) -> None:
        """Two versions, ended from other jobs and in the other order: each has its own time."""
        legs = fold(
            [
                report("start", 1, check="1", combination="aaa", version="1.0"),
                report("start", 2, check="2", combination="bbb", version="2.0"),
                report("success", 8, check="3", combination="bbb", version="2.0"),
                report("failure", 9, check="4", combination="aaa", version="1.0"),
            ]
        )

        assert [("aaa", "failure", at(1), "1.0"), ("bbb", "success", at(2), "2.0")] == [
            (leg.combination, leg.conclusion, leg.started_at, leg.backend_version) for leg in legs
        ]

    def test_the_same_combination_goes_before_an_older_unstated_start(self) -> None:
        """What is stated alike belongs together, however old the start that states nothing is."""
        legs = fold(
            [
                report("start", 1, check="1"),
                report("start", 2, check="2", combination="bbb"),
                report("success", 8, check="3", combination="bbb"),
            ]
        )

        assert [("", None, at(1)), ("bbb", "success", at(2))] == [
            (leg.combination, leg.conclusion, leg.started_at) for leg in legs
        ]

    def test_an_unstated_start_is_ended_by_whoever_states_more(self) -> None:
        """The start job of a split listener does not know the version that the tests will find."""
        leg = only_leg(report("start", 1, check="1"), report("success", 9, check="2", combination="aaa", version="1.0"))

        assert ("aaa", "1.0", at(1)) == (leg.combination, leg.backend_version, leg.started_at)

    def test_an_unstated_start_of_its_own_job_goes_before_an_older_one_of_another(self) -> None:
        """Whatever one check run said belongs together first."""
        legs = fold(
            [
                report("start", 1, check="1"),
                report("start", 2, check="2"),
                report("success", 8, check="2", combination="aaa"),
            ]
        )

        assert [("", "1", at(1)), ("aaa", "2", at(2))] == [(g.combination, g.check_run_id, g.started_at) for g in legs]

    def test_an_unstated_end_has_the_combination_of_its_start(self) -> None:
        """The version is known from the start and is not lost because the end does not repeat it."""
        leg = only_leg(report("start", 1, check="1", combination="aaa", version="1.0"), report("failure", 9, check="2"))

        assert ("aaa", "1.0", "2", "failure") == (
            leg.combination,
            leg.backend_version,
            leg.check_run_id,
            leg.conclusion,
        )

    def test_two_stated_combinations_are_two_legs(self) -> None:
        """The first never ended, and pairing it with the second would hide that."""
        legs = fold(
            [report("start", 1, check="1", combination="aaa"), report("success", 9, check="2", combination="bbb")]
        )

        assert [("aaa", None), ("bbb", "success")] == [(leg.combination, leg.conclusion) for leg in legs]

    def test_one_check_run_may_learn_its_combination_on_the_way(self) -> None:
        """The suite's version is often known only once it is installed; the backend's version is the same."""
        leg = only_leg(
            report("start", 1, check="1", combination="aaa", version="1.0"),
            report("success", 9, check="1", combination="bbb", version="1.0"),
        )

        assert ("bbb", at(1)) == (leg.combination, leg.started_at)

    def test_another_backend_version_in_one_check_run_is_another_leg(self) -> None:
        """One job may run two versions in turn; the first of them never ended here."""
        legs = fold(
            [
                report("start", 1, check="1", combination="aaa", version="1.0"),
                report("success", 9, check="1", combination="bbb", version="2.0"),
            ]
        )

        assert [("aaa", None), ("bbb", "success")] == [(leg.combination, leg.conclusion) for leg in legs]

    def test_two_combinations_in_turn_in_one_check_run_keep_their_own_starts(self) -> None:
        """The job ran one after the other; that the second ended first changes nothing."""
        legs = fold(
            [
                report("start", 1, check="1", combination="aaa"),
                report("start", 2, check="1", combination="bbb"),
                report("success", 8, check="1", combination="bbb"),
                report("success", 9, check="1", combination="aaa"),
            ]
        )

        assert [("aaa", at(1), at(9)), ("bbb", at(2), at(8))] == [
            (leg.combination, leg.started_at, leg.completed_at) for leg in legs
        ]

    def test_the_start_of_its_own_check_run_goes_before_one_of_its_own_combination(self) -> None:
        """The other check run states the same combination, and has not ended."""
        legs = fold(
            [
                report("start", 1, check="1", combination="aaa"),
                report("start", 2, check="2"),
                report("success", 8, check="2", combination="aaa"),
            ]
        )

        assert [("1", None, at(1)), ("2", "success", at(2))] == [
            (leg.check_run_id, leg.conclusion, leg.started_at) for leg in legs
        ]

    def test_an_unstated_end_takes_an_unstated_start_before_an_older_stated_one(self) -> None:
        """Two that say equally little belong together."""
        legs = fold(
            [
                report("start", 1, check="1", combination="aaa"),
                report("start", 2, check="2"),
                report("success", 8, check="3"),
            ]
        )

        assert [("", "3", at(2)), ("aaa", "1", at(1))] == [(g.combination, g.check_run_id, g.started_at) for g in legs]

    def test_a_start_said_again_with_its_combination_is_one_start(self) -> None:
        """A job that says more once it knows more has not started twice; its first word gives the time."""
        leg = only_leg(
            report("start", 1, check="1"),
            report("start", 3, check="1", combination="aaa"),
            report("success", 9, check="1", combination="aaa"),
        )

        assert ("aaa", at(1), "success") == (leg.combination, leg.started_at, leg.conclusion)

    def test_starts_of_different_or_unknown_check_runs_stay_apart(self) -> None:
        """Only one check run can be known to be one job."""
        apart = [
            (report("start", 1, check="1"), report("start", 2, check="2", combination="aaa")),
            (report("start", 1), report("start", 2, combination="aaa")),
        ]

        assert [2, 2] == [len(fold(pair)) for pair in apart]

    def test_each_end_in_a_check_run_takes_a_start_of_its_version_that_is_still_free(self) -> None:
        """One job ran version 1.0 once and version 2.0 twice; the leg of 1.0 has not ended."""
        legs = fold(
            [
                report("start", 1, check="1", combination="aaa", version="1.0"),
                report("start", 2, check="1", combination="bbb", version="2.0"),
                report("start", 3, check="1", combination="ccc", version="2.0"),
                report("success", 8, check="1", combination="ddd", version="2.0"),
                report("success", 9, check="1", combination="eee", version="2.0"),
            ]
        )

        assert [("aaa", at(1)), ("ddd", at(2)), ("eee", at(3))] == [(leg.combination, leg.started_at) for leg in legs]

    def test_no_two_legs_share_an_identity(self) -> None:
        """An end that would inherit the key of another leg keeps its own: rows are keyed by it."""
        legs = fold(
            [
                report("start", 1, check="1", combination="aaa"),
                report("start", 2, combination="aaa"),
                report("success", 9),
            ]
        )

        assert [("", None), ("aaa", None)] == [(leg.combination, leg.check_run_id) for leg in legs]


class TestContradiction:
    """What stands when the same leg is reported twice."""

    def test_the_worse_conclusion_stands_and_the_leg_is_marked(self) -> None:
        """A leg that said failure does not become green by saying success afterwards, nor before."""
        for first, second in (("failure", "success"), ("success", "failure")):
            leg = only_leg(report("start", 1), report(first, 5), report(second, 6))

            assert ("failure", True) == (leg.conclusion, leg.conflicting)
            assert at(5 if first == "failure" else 6) == leg.completed_at

    def test_the_same_report_again_is_no_contradiction(self) -> None:
        """A client that lost our answer repeats itself; the first of the two is the one that stands."""
        leg = only_leg(report("success", 5, report_id=11), report("success", 6, report_id=12))

        assert ("success", False, at(5), 11) == (
            leg.conclusion,
            leg.conflicting,
            leg.completed_at,
            leg.source_report_id,
        )

    def test_details_come_from_a_report_that_says_what_stands(self) -> None:
        """Counts and failure class of the refuted success must not stand beside a failure."""
        leg = only_leg(
            report("success", 5, report_id=11, passed=10),
            report("failure", 6, report_id=12, passed=4, failure_class="test"),
        )

        assert (12, 4, "test") == (leg.source_report_id, leg.passed, leg.failure_class)

    def test_a_repetition_that_brings_counts_has_the_details(self) -> None:
        """The first call came before the test reports were parsed; the time stays that of the first."""
        leg = only_leg(report("failure", 5, report_id=11), report("failure", 6, report_id=12, passed=4))

        assert (12, 4, at(5)) == (leg.source_report_id, leg.passed, leg.completed_at)

    def test_the_largest_claim_of_expected_jobs_stands(self) -> None:
        """The start may not know yet how many legs the matrix has."""
        leg = only_leg(report("start", 1, expected_jobs=1), report("success", 5, expected_jobs=3))

        assert 3 == leg.expected_jobs


def test_a_completed_report_without_a_conclusion_cannot_be_built() -> None:
    """The edge refuses it with 422; nothing behind the edge has to ask again."""
    good = report("success", 1)
    fields = {name: getattr(good, name) for name in good.__dataclass_fields__}

    with pytest.raises(ValueError, match="job 'build' is completed without a conclusion"):
        type(good)(**{**fields, "conclusion": None})
