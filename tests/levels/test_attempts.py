"""What a re-run replaces, and what it leaves standing."""

from levels.lifecycle import fold
from tests.levels.reports import report, results


def deciding(*reports: object) -> list[tuple[str, int, str | None]]:
    """The (job, attempt, conclusion) of each leg that decides."""
    return [(g.job_name, g.run_attempt, g.conclusion) for g in fold(reports) if g.deciding]  # type: ignore[arg-type]


def test_a_newer_attempt_replaces_the_older_one_of_the_same_job() -> None:
    """Better or worse, the newest attempt is what the backend says now."""
    assert [("build", 2, "success")] == deciding(report("failure", 1), report("success", 9, attempt=2))
    assert [("build", 2, "failure")] == deciding(report("success", 1), report("failure", 9, attempt=2))


def test_the_attempt_decides_and_not_the_time_of_receipt() -> None:
    """A late report of attempt 1 does not overrule attempt 2."""
    assert [("build", 2, "success")] == deciding(report("success", 1, attempt=2), report("failure", 9, attempt=1))


def test_a_job_that_is_running_again_is_running() -> None:
    """The gate must not show the failure that is being tried again."""
    assert [("build", 2, None)] == deciding(report("failure", 1), report("start", 9, attempt=2))


def test_jobs_that_were_not_run_again_keep_their_last_result() -> None:
    """ "Re-run failed" runs only what failed; the rest has been answered."""
    legs = deciding(
        report("success", 1, job="lint"),
        report("failure", 2, job="test"),
        report("failure", 3, job="docs"),
        report("success", 9, job="test", attempt=2),
    )

    assert [("docs", 1, "failure"), ("lint", 1, "success"), ("test", 2, "success")] == legs


def test_combinations_of_one_job_are_replaced_one_by_one() -> None:
    """A second version of the same job has its own last result."""
    legs = deciding(
        report("failure", 1, combination="aaa"),
        report("failure", 2, combination="bbb"),
        report("success", 9, combination="bbb", attempt=2),
    )

    assert [("build", 1, "failure"), ("build", 2, "success")] == legs


def test_a_replaced_leg_is_still_told_of() -> None:
    """History is kept: the fold returns it, marked as deciding nothing."""
    assert [(1, False), (2, True)] == [
        (leg.run_attempt, leg.deciding) for leg in fold([report("failure", 1), report("success", 9, attempt=2)])
    ]


def test_legs_that_only_a_check_run_tells_apart_keep_what_had_succeeded() -> None:
    """Of three matrix legs one failed and ran again under a new check run id: it replaces the failed one only."""
    matrix = [report("success", 1, check="1"), report("failure", 2, check="2"), report("success", 3, check="3")]

    assert [("1", "success"), ("3", "success"), ("4", "success")] == results(
        *matrix, report("success", 9, check="4", attempt=2)
    )
    assert [("1", "success"), ("3", "success"), ("4", "failure")] == results(
        *matrix, report("failure", 9, check="4", attempt=2)
    )


def test_so_do_legs_that_state_their_combination() -> None:
    """Two shards of one version under one name: the failed one was run again and passed."""
    shards = [report("success", 1, check="1", combination="aaa"), report("failure", 2, check="2", combination="aaa")]

    assert [("1", "success"), ("3", "success")] == results(
        *shards, report("success", 9, check="3", combination="aaa", attempt=2)
    )


def test_a_third_attempt_replaces_what_the_second_left_open() -> None:
    """Three failed, two of them again: each attempt takes away what had not succeeded before it."""
    legs = results(
        *(report("failure", number, check=str(number)) for number in (1, 2, 3)),
        report("success", 11, check="4", attempt=2),
        report("failure", 12, check="5", attempt=2),
        report("cancelled", 13, check="6", attempt=2),
        report("success", 21, check="7", attempt=3),
        report("success", 22, check="8", attempt=3),
    )

    assert [("4", "success"), ("7", "success"), ("8", "success")] == legs


def test_an_attempt_that_died_silently_is_replaced() -> None:
    """Attempt 1 started and never ended; attempt 2 passed: green (CASES 28)."""
    assert [("build", 2, "success")] == deciding(
        report("start", 1, check="1"),
        report("start", 8, check="2", attempt=2),
        report("success", 9, check="2", attempt=2),
    )


def test_an_attempt_that_died_before_it_knew_its_version_is_replaced() -> None:
    """The start stated no combination, the next attempt's end does: it is the same job."""
    assert [("build", 2, "success")] == deciding(
        report("start", 1, check="1"),
        report("start", 8, check="2", attempt=2),
        report("success", 9, check="3", combination="aaa", attempt=2),
    )


def test_a_new_attempt_that_does_not_know_its_version_yet_takes_the_failure_away() -> None:
    """While it runs the old failure does not decide; what had succeeded stays."""
    legs = deciding(
        report("failure", 1, combination="aaa"),
        report("success", 2, combination="bbb"),
        report("start", 9, attempt=2),
    )

    assert [("build", 2, None), ("build", 1, "success")] == legs


def test_runs_do_not_replace_each_other() -> None:
    """A second run of the same dispatch is no way to make a failure go away, whatever its attempt."""
    legs = deciding(report("failure", 1, run="100"), report("success", 9, run="200", attempt=2))

    assert [("build", 1, "failure"), ("build", 2, "success")] == legs


def test_one_job_does_not_replace_another() -> None:
    """Names are compared as they are; nothing is parsed out of them."""
    legs = deciding(report("failure", 1, job="test (1)"), report("success", 9, job="test (2)", attempt=2))

    assert [("test (1)", 1, "failure"), ("test (2)", 2, "success")] == legs
