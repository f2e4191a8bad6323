"""What the legs of one dispatch amount to, before the deadline and after it."""

import pytest

from levels.lifecycle import Expectation, LegReport, Observed, Standing, disputed, fold, stand, times
from levels.outcomes import Conclusion, Outcome
from tests.levels.reports import at, only_leg, report

DEADLINES = ["lost", "incomplete", "timed_out"]
NOTHING_CAME = ["silent", "undelivered", "paused", "filtered"]


def standing(
    *reports: LegReport,
    jobs: int | None = None,
    versions: tuple[str, ...] = (),
    concluded: str | None = None,
    observed: Observed | None = None,
) -> Standing:
    """Fold these reports and ask what they amount to."""
    ours = None if concluded is None else Outcome(concluded)
    return stand(fold(reports), Expectation(jobs, versions), concluded=ours, observed=observed)


class TestNothingYet:
    """Before the first report."""

    def test_a_dispatch_without_reports_is_queued(self) -> None:
        """Sent and not answered: the gate waits."""
        assert ("queued", 0, None) == (
            standing().outcome,
            standing().legs_reported,
            standing().completed_at,
        )

    @pytest.mark.parametrize("concluded", [*NOTHING_CAME, *DEADLINES, "unlisted", "not_required"])
    def test_what_we_concluded_stands_while_nothing_is_reported(self, concluded: str) -> None:
        """Silence stays silence, and what was never sent stays what it is."""
        assert concluded == standing(concluded=concluded).outcome

    def test_we_never_conclude_success(self) -> None:
        """Only a report can say so; a caller that does has a fault, and it is told."""
        with pytest.raises(ValueError, match="concluded cannot be success"):
            standing(concluded="success")


class TestResults:
    """Everything has ended that was to be expected."""

    @pytest.mark.parametrize("conclusion", [str(c) for c in Conclusion])
    def test_one_leg_is_the_outcome(self, conclusion: str) -> None:
        """Each conclusion is an outcome of the same name."""
        assert conclusion == standing(report(conclusion, 5)).outcome

    @pytest.mark.parametrize(
        ("conclusions", "outcome"),
        [
            (("success", "success"), "success"),
            (("success", "neutral"), "neutral"),
            (("neutral", "skipped"), "skipped"),
            (("skipped", "cancelled"), "cancelled"),
            (("cancelled", "action_required"), "action_required"),
            (("action_required", "timed_out"), "timed_out"),
            (("timed_out", "failure"), "failure"),
        ],
    )
    def test_the_worst_leg_decides(self, conclusions: tuple[str, str], outcome: str) -> None:
        """The order is the meaning, pair by pair."""
        first, second = conclusions

        assert outcome == standing(report(first, 5, job="a"), report(second, 6, job="b")).outcome

    def test_all_runs_of_a_dispatch_count(self) -> None:
        """A second run that passes does not outvote the first that failed."""
        assert "failure" == standing(report("failure", 5, run="1"), report("success", 6, run="2")).outcome

    def test_a_finished_dispatch_has_both_times(self) -> None:
        """From the first start to the last end, by our receipts."""
        done = standing(
            report("start", 1, job="a"),
            report("success", 5, job="a"),
            report("start", 2, job="b"),
            report("success", 9, job="b"),
        )

        assert (at(1), at(9), 2) == (done.started_at, done.completed_at, done.legs_reported)

    def test_three_legs_of_one_name_and_one_of_them_failed(self) -> None:
        """CASES 19: the verdict is failure, and it names the leg."""
        failed = standing(
            report("success", 5, check="1"), report("failure", 6, check="2"), report("success", 7, check="3")
        )

        assert ("failure", ["2"]) == (failed.outcome, [leg.check_run_id for leg in failed.failing])


class TestRunning:
    """Something is still awaited."""

    def test_a_started_leg_is_running(self) -> None:
        """And it has no end, though another leg has."""
        running = standing(report("start", 1, job="a"), report("success", 5, job="b"))

        assert ("running", at(1), None) == (running.outcome, running.started_at, running.completed_at)

    @pytest.mark.parametrize("conclusion", ["failure", "timed_out", "action_required", "cancelled"])
    def test_a_failure_decides_at_once(self, conclusion: str) -> None:
        """No merge becomes possible by waiting for the other legs, so nobody waits for them."""
        failed = standing(report(conclusion, 5, job="a"), report("start", 1, job="b"), jobs=10)

        assert (conclusion, at(5)) == (failed.outcome, failed.completed_at)

    @pytest.mark.parametrize("conclusion", ["skipped", "neutral", "success"])
    def test_anything_better_waits_for_the_rest(self, conclusion: str) -> None:
        """A failure may still come."""
        assert "running" == standing(report(conclusion, 5, job="a"), report("start", 1, job="b")).outcome

    def test_the_failing_legs_stand_worst_first(self) -> None:
        """What a reviewer reads first is what decides."""
        failed = standing(
            report("cancelled", 5, job="a"),
            report("failure", 6, job="b"),
            report("success", 6, job="c"),
            report("timed_out", 7, job="d"),
        )

        assert ["b", "d", "a"] == [leg.job_name for leg in failed.failing]

    def test_a_rerun_takes_the_failure_away_while_it_runs(self) -> None:
        """The gate goes back to waiting."""
        assert "running" == standing(report("failure", 5), report("start", 9, attempt=2)).outcome


class TestMissing:
    """Fewer legs or versions than expected: never success."""

    def test_a_claimed_number_of_legs_is_waited_for(self) -> None:
        """CASES 22: 14 of 347 reported; running, then incomplete, never green, and the numbers are there to be told."""
        reports = [report("success", 5, job=f"shard {number}", expected_jobs=347) for number in range(14)]

        assert ("running", 14, 347) == (
            standing(*reports).outcome,
            standing(*reports).legs_reported,
            standing(*reports).legs_expected,
        )
        assert "incomplete" == standing(*reports, concluded="incomplete").outcome

    def test_the_entrys_number_wins_over_the_claim(self) -> None:
        """Upstream's file says what upstream wants to see."""
        one = report("success", 5, expected_jobs=1)

        assert ("running", 2) == (standing(one, jobs=2).outcome, standing(one, jobs=2).legs_expected)
        assert "success" == standing(report("success", 5, expected_jobs=2), jobs=1).outcome

    def test_of_several_claims_the_largest_counts(self) -> None:
        """A leg that knows less does not shorten the list."""
        some = standing(report("success", 5, job="a", expected_jobs=2), report("success", 6, job="b", expected_jobs=3))

        assert ("running", 3) == (some.outcome, some.legs_expected)

    def test_a_claim_of_a_replaced_attempt_still_counts(self) -> None:
        """The re-run of one leg may not know of the others."""
        some = standing(report("failure", 5, expected_jobs=2), report("success", 9, attempt=2))

        assert ("running", 2) == (some.outcome, some.legs_expected)

    def test_a_second_run_does_not_stand_in_for_the_first(self) -> None:
        """Two runs of three legs each: three legs in all are not three legs of each."""
        reports = [
            report("success", 5, run="1", job="a", expected_jobs=3),
            report("success", 6, run="1", job="b", expected_jobs=3),
            report("success", 7, run="2", job="a", expected_jobs=3),
        ]

        assert ("running", 6) == (standing(*reports).outcome, standing(*reports).legs_expected)

    def test_nobody_said_how_many(self) -> None:
        """Then what is there is all there is."""
        assert ("success", None) == (
            standing(report("success", 5)).outcome,
            standing(report("success", 5)).legs_expected,
        )

    def test_every_version_must_be_seen(self) -> None:
        """Which are missing is named, in the entry's order."""
        some = standing(report("success", 5, version="2.0"), versions=("1.0", "2.0", "3.0"))

        assert ("running", ("1.0", "3.0")) == (some.outcome, some.missing_versions)
        assert (
            "incomplete" == standing(report("success", 5, version="2.0"), versions=("1.0",), concluded="lost").outcome
        )
        assert "success" == standing(report("success", 5, version="2.0"), versions=("2.0",)).outcome


class TestDeadline:
    """What we concluded ourselves, and how it yields."""

    @pytest.mark.parametrize(
        ("concluded", "outcome"), [("lost", "lost"), ("incomplete", "lost"), ("timed_out", "timed_out")]
    )
    def test_a_leg_that_started_and_vanished(self, concluded: str, outcome: str) -> None:
        """Lost, unless it was still seen running when its time was over."""
        assert outcome == standing(report("start", 1), concluded=concluded).outcome

    def test_lost_goes_before_incomplete(self) -> None:
        """A leg that started and vanished is the more telling of the two."""
        lost = standing(report("start", 1, job="a"), report("success", 5, job="b"), jobs=3, concluded="incomplete")

        assert ("lost", at(5)) == (lost.outcome, lost.completed_at)

    @pytest.mark.parametrize("concluded", DEADLINES)
    def test_a_deadline_with_legs_missing_is_incomplete(self, concluded: str) -> None:
        """All that came has ended; what is missing never came."""
        assert "incomplete" == standing(report("success", 5), jobs=2, concluded=concluded).outcome

    @pytest.mark.parametrize("concluded", [*DEADLINES, *NOTHING_CAME])
    @pytest.mark.parametrize("conclusion", [str(c) for c in Conclusion])
    def test_a_late_result_replaces_what_we_concluded(self, concluded: str, conclusion: str) -> None:
        """CASES 27: timed out after 6 h, the true success at 6 h 10 min: success, and so for each of the others."""
        assert conclusion == standing(report("start", 1), report(conclusion, 370), concluded=concluded).outcome

    def test_a_later_attempt_that_passes_replaces_lost(self) -> None:
        """CASES 28: attempt 1 dies silently, attempt 2 passes, the sweep runs: still green."""
        assert "success" == standing(report("start", 1), report("success", 9, attempt=2), concluded="lost").outcome

    @pytest.mark.parametrize("concluded", NOTHING_CAME)
    def test_a_start_after_silence_is_running(self, concluded: str) -> None:
        """It is not silent any more."""
        assert "running" == standing(report("start", 130), concluded=concluded).outcome


class TestObserved:
    """What GitHub itself shows, against what was claimed."""

    @pytest.mark.parametrize("observed", [*(str(c) for c in Conclusion), None])
    @pytest.mark.parametrize("claimed", [str(c) for c in Conclusion])
    def test_only_a_denied_success_is_a_dispute(self, claimed: str, observed: str | None) -> None:
        """Who claims a failure that GitHub does not show is believed: the reverse is no dispute."""
        expected = claimed == "success" and observed in {"failure", "cancelled", "timed_out"}

        assert expected == disputed(Conclusion(claimed), None if observed is None else Conclusion(observed))

    def test_a_denied_job_disputes_the_outcome(self) -> None:
        """By the job that the check run id names."""
        seen = Observed(jobs={"7": Conclusion.FAILURE})

        assert "disputed" == standing(report("success", 5, check="7"), observed=seen).outcome
        assert "success" == standing(report("success", 5, check="8"), observed=seen).outcome

    def test_a_denied_run_disputes_the_outcome(self) -> None:
        """By the run attempt as a whole."""
        seen = Observed(runs={("100", 1): Conclusion.CANCELLED})

        assert "disputed" == standing(report("success", 5), observed=seen).outcome
        assert "success" == standing(report("success", 5, run="101"), observed=seen).outcome

    def test_an_older_attempt_is_no_witness_against_a_re_run(self) -> None:
        """Attempt 1 failed as a whole because of one job; the other's success in it was true."""
        reports = [
            report("success", 5, job="a"),
            report("failure", 5, job="b"),
            report("success", 9, job="b", attempt=2),
        ]
        seen = {("100", 1): Conclusion.FAILURE, ("100", 2): Conclusion.SUCCESS}

        assert "success" == standing(*reports, observed=Observed(runs=seen)).outcome
        assert "disputed" == standing(*reports, observed=Observed(runs={("100", 2): Conclusion.FAILURE})).outcome

    def test_a_claimed_failure_stays_a_failure(self) -> None:
        """Observation takes away a success and gives none."""
        seen = Observed(runs={("100", 1): Conclusion.SUCCESS})

        assert "failure" == standing(report("failure", 5), observed=seen).outcome


class TestTimes:
    """Queue and execution time, by our own receipts."""

    def test_queue_and_execution(self) -> None:
        """From our 204 to the first start, and from start to end."""
        took = times(only_leg(report("start", 3), report("success", 10)), sent_at=at(1))

        assert (at(3) - at(1), at(10) - at(3)) == (took.queue, took.execution)

    def test_the_attempts_first_start_ends_the_queue(self) -> None:
        """A leg that waited for other legs did not wait for a runner all the while."""
        took = times(only_leg(report("start", 8), report("success", 10)), sent_at=at(1), first_attempt_started_at=at(3))

        assert (at(3) - at(1), at(10) - at(8)) == (took.queue, took.execution)

    def test_a_re_run_has_no_queue_time(self) -> None:
        """It waited for a person."""
        leg = only_leg(report("start", 300, attempt=2), report("success", 310, attempt=2))

        took = times(leg, sent_at=at(1), first_attempt_started_at=at(3))

        assert (None, at(310) - at(300)) == (took.queue, took.execution)

    def test_an_end_that_is_missing_makes_no_time(self) -> None:
        """Nothing is made up: not sent as far as we know, not started, not ended."""
        started = only_leg(report("start", 3))
        ended = only_leg(report("success", 10))

        assert (None, None) == (times(started, sent_at=None).queue, times(started, sent_at=at(1)).execution)
        assert (None, None) == (times(ended, sent_at=at(1)).queue, times(ended, sent_at=at(1)).execution)

    def test_time_is_never_negative(self) -> None:
        """A callback may overtake the answer to our own request (CASES 23), and a start its end (CASES 16)."""
        early = times(only_leg(report("start", 3), report("success", 2)), sent_at=at(4))

        assert (at(0) - at(0), at(0) - at(0)) == (early.queue, early.execution)
