"""JUnit files: what they count, what they overrule, and what hostile ones cannot do."""

from __future__ import annotations

import pytest

from .conftest import Runner, Services

SUITE = '<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="s">{}</testsuite></testsuites>'
PASS = '<testcase name="p" classname="c" time="0.1"/>'
FAIL = '<testcase name="f" classname="c" time="1,234.5"><failure message="boom">Traceback\n  line</failure></testcase>'
ERROR = '<testcase name="e" classname="c"><error>first line\nsecond</error></testcase>'
SKIP = '<testcase name="s" classname="c"><skipped/></testcase>'


def counts(passed: int = 0, failed: int = 0, errors: int = 0, skipped: int = 0) -> dict[str, int]:
    total = passed + failed + errors + skipped
    return {"passed": passed, "failed": failed, "errors": errors, "skipped": skipped, "total": total}


def test_counts_and_failed_tests_come_from_all_files(runner: Runner, services: Services) -> None:
    """Several globs, nested folders, a file matched twice: each test case counts once."""
    runner.write("a/junit-1.xml", SUITE.format(PASS + FAIL + SKIP))
    runner.write("a/b/junit-2.xml", SUITE.format(PASS + ERROR))

    runner.completed("failure", junit="**/*.xml\na/junit-1.xml\n")

    assert counts(passed=2, failed=1, errors=1, skipped=1) == services.workflow["test_results"]
    assert [
        {"name": "e", "classname": "c", "message": "first line", "stacktrace": "first line\nsecond", "duration": None},
        {"name": "f", "classname": "c", "message": "boom", "stacktrace": "Traceback\n  line", "duration": 1234.5},
    ] == services.workflow["failed_tests"]
    assert ("failure", "test") == (services.workflow["conclusion"], services.workflow["failure_class"])


def test_a_green_file_lets_success_stand(runner: Runner, services: Services) -> None:
    """Skipped tests are no failure."""
    runner.write("junit.xml", SUITE.format(PASS + SKIP))

    step = runner.completed(junit="*.xml")

    assert ("success", counts(passed=1, skipped=1)) == (
        services.workflow["conclusion"],
        services.workflow["test_results"],
    )
    assert "failed_tests" not in services.workflow
    assert "failure_class" not in services.workflow
    assert "::warning" not in step.log


@pytest.mark.parametrize("claimed", ["success", "neutral"])
def test_failures_overrule_a_claimed_success(runner: Runner, services: Services, claimed: str) -> None:
    """A script that swallows its exit status does not make failed tests green."""
    runner.write("junit.xml", SUITE.format(PASS + FAIL))

    step = runner.completed(claimed, junit="junit.xml")

    assert ("failure", "test") == (services.workflow["conclusion"], services.workflow["failure_class"])
    assert f"{claimed} was claimed, failure is reported" in step.log
    assert f"{claimed} was claimed, failure is reported" in step.summary
    assert "JUnit shows 1 failed tests and 0 errors" in step.summary


@pytest.mark.parametrize("claimed", ["cancelled", "timed_out", "skipped", "action_required"])
def test_what_is_already_worse_keeps_its_word(runner: Runner, services: Services, claimed: str) -> None:
    """A cancelled run has no files, and cancelled says more than failure."""
    runner.completed(claimed, junit="*.xml")

    assert claimed == services.workflow["conclusion"]
    assert {"test_results", "failed_tests", "failure_class"} & set(services.workflow) == set()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "no file matches junit (*.xml)"),
        (SUITE.format(""), "no test case is in the 1 files"),
        ("<html/>", "no test case is in the 1 files"),
        ("", "JUnit file junit.xml is not whole XML: no element found"),
        (SUITE.format(PASS)[:-20], "JUnit file junit.xml is not whole XML"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><testsuite>' + PASS + "</testsuite>", "declares a document type"),
        ('<!DOCTYPE testsuite SYSTEM "file:///etc/passwd"><testsuite/>', "declares a document type"),
        (b"\x00\x01\x02\xff", "JUnit file junit.xml is not whole XML"),
    ],
)
def test_no_evidence_is_no_success(runner: Runner, services: Services, content: str | bytes | None, why: str) -> None:
    """Zero tests, no file, or one that cannot be trusted to be whole: failure, and a reviewer sees why."""
    if content is not None:
        runner.write("junit.xml", content)

    step = runner.completed(junit="*.xml")

    assert "failure" == services.workflow["conclusion"]
    [evidence] = services.workflow["failed_tests"]
    assert "(JUnit evidence)" == evidence["name"]
    assert why in evidence["message"]
    assert why.partition("(")[0] in step.log
    assert 0 == services.workflow["test_results"]["total"]


def test_one_bad_file_among_good_ones_is_a_failure(runner: Runner, services: Services) -> None:
    """A crashed test process leaves half a file: the other files' green does not cover it."""
    runner.write("a.xml", SUITE.format(PASS))
    runner.write("b.xml", SUITE.format(PASS)[:-30])

    runner.completed(junit="*.xml")

    assert ("failure", counts(passed=1)) == (services.workflow["conclusion"], services.workflow["test_results"])


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("<testcase/>", counts(passed=1)),
        ('<testcase name="x" status="notrun"/>', counts(skipped=1)),
        ("<testcase><skipped/><failure/></testcase>", counts(failed=1)),
        ("<testcase><failure/><error/><failure/></testcase>", counts(failed=1)),
        ("<testcase><system-out>&lt;failure/&gt;</system-out></testcase>", counts(passed=1)),
        ("<testsuite><testsuite><testcase/></testsuite><testcase/></testsuite>", counts(passed=2)),
        ("<testcase><testcase/><failure/></testcase>", counts(passed=2, failed=1)),
        ("<error message='set-up'/>", counts(errors=1)),
        ('<j:testcase xmlns:j="urn:j"><j:failure/></j:testcase>', counts(failed=1)),
        ("<testcase><failure>\x1b[31mred&#x1b;&#xD800;&#xFFFFFFFF;</failure></testcase>", counts(failed=1)),
        ('<testcase time="nan"><failure/></testcase>', counts(failed=1)),
        ("<p>" * 30_000 + "<testcase/>" + "</p>" * 30_000, counts(passed=1)),
    ],
)
def test_each_shape_of_a_test_case_counts(
    runner: Runner, services: Services, case: str, expected: dict[str, int]
) -> None:
    """Writers of JUnit differ, some are careless with control characters, and some are hostile."""
    runner.write("junit.xml", SUITE.format(case))

    step = runner.completed("failure", junit="junit.xml")

    assert expected == services.workflow["test_results"]
    assert "true" == step.outputs["ok"]


@pytest.mark.parametrize("encoding", ["utf-16", "iso-8859-1", "utf-8-sig"])
def test_other_encodings_are_read(runner: Runner, services: Services, encoding: str) -> None:
    """Windows writes UTF-16 and byte-order marks."""
    declared = encoding.removesuffix("-sig")
    text = f'<?xml version="1.0" encoding="{declared}"?><testsuite><testcase name="é"><failure/></testcase></testsuite>'
    runner.write("junit.xml", text.encode(encoding))

    runner.completed("failure", junit="junit.xml")

    assert ["é"] == [test["name"] for test in services.workflow["failed_tests"]]


def test_wrong_bytes_do_not_lose_the_file(runner: Runner, services: Services) -> None:
    """A test that prints raw bytes makes the file invalid; its verdict is still there to be read."""
    runner.write(
        "junit.xml",
        SUITE.format('<testcase name="\udcff\udcfe"><failure/></testcase>').encode(errors="surrogateescape"),
    )

    runner.completed("failure", junit="junit.xml")

    assert (counts(failed=1), "\ufffd\ufffd") == (
        services.workflow["test_results"],
        services.workflow["failed_tests"][0]["name"],
    )


def test_junit_outranks_typed_in_counts(runner: Runner, services: Services) -> None:
    """Where both are given, the files are the better evidence."""
    runner.write("junit.xml", SUITE.format(PASS))

    runner.completed(junit="junit.xml", test_results='{"passed": 99}')

    assert counts(passed=1) == services.workflow["test_results"]


def test_a_start_reads_no_files(runner: Runner, services: Services) -> None:
    """Files of an earlier run may still lie there."""
    runner.write("junit.xml", SUITE.format(FAIL))

    step = runner.run(status="in_progress", junit="junit.xml")

    assert {"test_results", "failed_tests"} & set(services.workflow) == set()
    assert "::warning" not in step.log


def test_a_folder_or_pipe_with_the_name_is_no_file(runner: Runner, services: Services) -> None:
    """Nothing that blocks or lists is opened."""
    (runner.workspace / "d.xml").mkdir()

    runner.completed(junit="*.xml")

    assert "no file matches" in services.workflow["failed_tests"][0]["message"]


def test_an_absolute_glob_names_files_outside_the_workspace(runner: Runner, services: Services) -> None:
    """RUNNER_TEMP is where the artifact of a test job may be unpacked."""
    (runner.folder / "elsewhere.xml").write_text(SUITE.format(PASS))

    runner.completed(junit=str(runner.folder / "else*.xml"))

    assert counts(passed=1) == services.workflow["test_results"]
