#!/usr/bin/env python3
"""Reports one leg of a backend's run to the cross-repository CI relay.

This file runs on other people's machines, as the only step of a composite action (`action.yml`) or as a command of a
Buildkite step. It therefore asks for nothing but Python 3.8 and its standard library, and stays one file that can be
read from top to bottom: what it says, what it is given, where it runs, what the JUnit files show, the body, the
token, the sending, and `main`.

Inputs come as environment variables `CRCR_INPUT_<NAME>`; README.md beside this file lists them. Besides:
`CRCR_CALLBACK_URL` is used when neither the input nor the dispatch names a relay, `CRCR_JOB_CHECK_RUN_ID` is the job's
id at GitHub, and `CRCR_RETRY_BASE` (seconds, default 1) is the first pause between tries; it is there for the tests of
this action.

Exit status: 0 when the report was taken; when it was not, 0 with a warning, or 1 if the input `fail-on-error` is true.
"""

from __future__ import annotations

import email.utils
import glob
import http.client
import ipaddress
import json
import math
import os
import random
import re
import secrets
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Callable, Mapping, NoReturn
from xml.parsers import expat

DEFAULT_AUDIENCE = "pytorch-cross-repo-ci-relay"
DEFAULT_UPSTREAM = "pytorch/pytorch"
DEFAULT_MAX_TIME = 60.0
STATUSES = ("in_progress", "completed")
# The worst first: the order in which several results of `needs` become one. A job that was skipped because an
# earlier one failed must not hide that failure, and nothing that did not run counts as a success.
CONCLUSIONS = ("failure", "timed_out", "cancelled", "action_required", "skipped", "neutral", "success")
FAILURE_CLASSES = ("test", "infra", "timeout")
SELF_REPORTS = ("nightly", "periodic")
COUNTS = ("passed", "failed", "skipped", "total", "errors", "xfailed", "xpassed")

MAX_FAILED_TESTS, MAX_NAME, MAX_MESSAGE, MAX_STACK = 1_000, 1_024, 1_024, 4_096
MAX_BODY = 1_000_000
MAX_JUNIT_FILE, MAX_JUNIT_FILES = 64 * 1024 * 1024, 5_000
MAX_ANSWER = 64 * 1024
ATTEMPT_SECONDS = 15.0
LONGEST_PAUSE = 15.0
# GitHub's and Buildkite's tokens live for minutes only, so that a long wait for the relay needs a fresh one.
TOKEN_SECONDS = 240.0

# What a maintainer can do about an answer, by HTTP status. README.md explains the same rows at more length.
HINTS = {
    401: "the relay does not accept this token: compare the input `audience` and the relay's trusted issuers",
    403: "the relay knows who is asking and refuses: the code says which rule, and the README's table what to do",
    404: "no such dispatch, or a callback-url that is not the relay's: it should end in /github/callback",
    413: "the report is too large: give fewer or shorter test-results, failed-tests-detail or triage-verdict",
    422: "a field is not what the relay expects: the detail names it",
    429: "the relay is busy and was so until max-time was over: raise max-time, or re-run this job",
    503: "the relay cannot store reports now: re-run this job later; nothing was lost on its side",
}


class Fault(Exception):  # noqa: N818 - the house's word for what a person can mend
    """A report that cannot be made or sent as asked; its text says which rule is broken and how to mend it."""

    def __init__(self, *sentences: str, status: str = "invalid-input") -> None:
        super().__init__("; ".join(sentences))
        self.sentences, self.status = sentences, status


# ---------------------------------------------------------------------------------------------------------------
# What we say. All text from outside passes through here, since a line of a job's log that begins with `::` is a
# command to the runner, and the step summary is Markdown.
# https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
# ---------------------------------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """The text without NUL and lone surrogates, which neither JSON's readers nor databases take."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")


def cut(text: str, limit: int) -> str:
    """The text in at most `limit` bytes of UTF-8, ending in an ellipsis where something was left out."""
    data = clean(text).encode("utf-8")
    if len(data) <= limit:
        return data.decode("utf-8")
    return data[: limit - 3].decode("utf-8", "ignore") + "…"


def one_line(text: str, limit: int = 1_000) -> str:
    """The text on one line, without control characters."""
    return cut("".join(c if c.isprintable() else " " for c in text), limit)


def markdown(text: str) -> str:
    """The text as plain words in a Markdown table: no markup, no links, no mentions."""
    return re.sub(r"[^\w .,()-]|_", lambda match: f"&#{ord(match.group())};", one_line(text, 300))


class Voice:
    """Writes the log, the step's outputs and its summary, and never a secret that it was told of."""

    def __init__(self, env: Mapping[str, str], buildkite: bool) -> None:
        self.env, self.buildkite = env, buildkite
        self.hidden: list[str] = []

    def mask(self, secret: str) -> None:
        """Hides a secret in everything we say, and asks the runner to hide it in the whole job's log."""
        self.hidden.append(secret)
        if not self.buildkite:  # Elsewhere the masking command would be nothing but the secret, printed.
            print("::add-mask::" + self.escape(secret), flush=True)

    def redact(self, text: str) -> str:
        for secret in self.hidden:
            text = text.replace(secret, "***") if secret else text
        return text

    def log(self, text: str) -> None:
        print("crcr: " + one_line(self.redact(text)), flush=True)

    def loud(self, kind: str, text: str) -> None:
        """An annotation on the run's page; `kind` is `error`, `warning` or `notice`."""
        text = one_line(self.redact(text), 2_000)
        command = f"crcr {kind.upper()}: {text}"
        if not self.buildkite:
            command = f"::{kind} title=Cross-repository CI relay::{self.escape(text)}"
        print(command, flush=True)

    @staticmethod
    def escape(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def _append(self, variable: str, text: str) -> None:
        path = self.env.get(variable, "")
        if path:
            with Path(path).open("a", encoding="utf-8", errors="replace") as file:
                file.write(text)

    def output(self, name: str, value: str) -> None:
        # A delimiter that cannot be guessed, so that no value can end itself early and set an output of its own.
        fence = "crcr_" + secrets.token_hex(16)
        self._append("GITHUB_OUTPUT", f"{name}<<{fence}\n{one_line(self.redact(value))}\n{fence}\n")

    def summary(self, title: str, rows: list[tuple[str, str]], notes: list[str]) -> None:
        lines = ["### " + markdown(title), "", "| | |", "|---|---|"]
        lines += [f"| {markdown(name)} | {markdown(self.redact(value))} |" for name, value in rows if value]
        lines += [""] + ["- " + markdown(self.redact(note)) for note in notes]
        self._append("GITHUB_STEP_SUMMARY", "\n".join(lines) + "\n\n")


# ---------------------------------------------------------------------------------------------------------------
# What we are given. A fault in what the relay decides from ends the report; what only adds to it is left out with
# a warning, since a broken link to an artifact is no reason to lose a verdict.
# ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inputs:
    status: str
    conclusion: str | None
    job_name: str
    combination: dict[str, Any]
    junit: tuple[str, ...]
    test_results: dict[str, Any] | None
    failed_tests: list[dict[str, Any]] | None
    triage_verdict: dict[str, Any] | None
    artifact_url: str
    callback_url: str
    expected_jobs: int | None
    failure_class: str
    event_type: str
    delivery_id: str
    head_sha: str
    upstream: str
    audience: str
    max_time: float
    retry_base: float
    warnings: tuple[str, ...]


class Reader:
    """Reads inputs and collects every fault and warning, so that a maintainer mends all of them in one go."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = env
        self.faults: list[str] = []
        self.warnings: list[str] = []

    def text(self, name: str, default: str = "") -> str:
        return clean(self.env.get("CRCR_INPUT_" + name.upper().replace("-", "_"), "")).strip() or default

    def fault(self, name: str, rule: str, fix: str) -> None:
        self.faults.append(f"input `{name}` {rule}; {fix}")

    def leave_out(self, name: str, rule: str, fix: str) -> None:
        self.warnings.append(f"input `{name}` {rule} and was left out; {fix}")

    def word(self, name: str, allowed: tuple[str, ...], optional: bool = True) -> str:
        value = self.text(name)
        if value not in allowed and (value or not optional):
            self.fault(name, f"is {cut(value, 60)!r}", "give one of " + ", ".join(allowed))
        return value

    def conclusion(self, status: str) -> str | None:
        """One conclusion, or several with commas between them as `join(needs.*.result, ',')` gives: the worst."""
        if status != "completed":
            return None
        given = [word.strip() for word in self.text("conclusion").split(",")]
        unknown = [word for word in given if word not in CONCLUSIONS]
        if unknown == [""] and len(given) == 1:
            fix = "give for instance ${{ needs.tests.result }}; an empty one often names a job missing from `needs:`"
            self.fault("conclusion", "is empty, and a completed report needs one", fix)
        elif unknown:
            self.fault("conclusion", f"holds {cut(unknown[0], 60)!r}", "give one of " + ", ".join(CONCLUSIONS))
        return min(given, key=CONCLUSIONS.index) if not unknown else None

    def combination(self) -> dict[str, Any]:
        value: dict[str, Any] = {}
        for name in ("backend-version", "suite-version"):
            if self.text(name):
                value[name.replace("-", "_")] = cut(self.text(name), 200)
        environment = self.environment()
        if environment:
            value["environment"] = environment
        return value

    def environment(self) -> dict[str, str]:
        text = self.text("environment")
        fix = 'give a JSON object of texts such as {"python": "3.11"}, or lines such as python=3.11'
        pairs: dict[str, Any] = {}
        if text.startswith("{"):
            parsed = self._json("environment", text, dict, fix, self.fault)
            pairs = parsed if parsed is not None else {}
        else:
            for line in filter(None, map(str.strip, text.splitlines())):
                key, equals, rest = line.partition("=")
                if not equals:
                    self.fault("environment", f"has the line {cut(line, 60)!r} without a =", fix)
                pairs[key.strip()] = rest.strip()
        for key, part in pairs.items():
            if not key or isinstance(part, (dict, list)) or part is None:
                self.fault("environment", f"has the key {cut(key, 60)!r} without a plain value", fix)
        # Numbers and truth values become texts, so that 3.11 and "3.11" name one and the same combination.
        return {cut(k, 100): cut(v if isinstance(v, str) else json.dumps(v), 200) for k, v in pairs.items()}

    def _json(self, name: str, text: str, kind: type, fix: str, complain: Callable[[str, str, str], None]) -> Any:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            complain(name, f"is not JSON ({one_line(str(error), 100)})", fix)
            return None
        if not isinstance(value, kind):
            complain(name, f"is not a JSON {'array' if kind is list else 'object'}", fix)
            return None
        return value

    def extra_json(self, name: str, kind: type, fix: str) -> Any:
        text = self.text(name)
        return self._json(name, text, kind, fix, self.leave_out) if text else None

    def test_results(self) -> dict[str, Any] | None:
        fix = 'give counts as whole numbers, such as {"passed": 10, "failed": 0, "skipped": 2}'
        results: dict[str, Any] | None = self.extra_json("test-results", dict, fix)
        for name, value in (results or {}).items():
            if name in COUNTS and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                self.leave_out("test-results", f"has {name}: {cut(json.dumps(value), 60)}", fix)
                return None
        return results

    def failed_tests(self) -> list[dict[str, Any]] | None:
        fix = "give an array of objects with name, classname, message, stacktrace, duration"
        listed: list[Any] | None = self.extra_json("failed-tests-detail", list, fix)
        if listed is None:
            return None
        if not all(isinstance(test, dict) and isinstance(test.get("name"), str) for test in listed):
            self.leave_out("failed-tests-detail", "has an item that is no object with a name", fix)
            return None
        return [failed_test(**{k: t.get(k) for k in FAILED_TEST_FIELDS}) for t in listed[:MAX_FAILED_TESTS]]

    def number(self, name: str, low: float, high: float) -> float | None:
        text = self.text(name)
        try:
            value = float(text) if text else None
        except ValueError:
            value = math.nan
        if value is None or low <= value <= high:
            return value
        self.fault(name, f"is {cut(text, 60)!r}", f"give a number between {low:g} and {high:g}")
        return None

    def read(self) -> Inputs:
        """All inputs. Raises Fault with everything that is wrong with those that matter."""
        status = self.word("status", STATUSES, optional=False)
        expected = self.number("expected-jobs", 1, 100_000)
        if expected is not None and expected != int(expected):
            self.fault("expected-jobs", "is not whole", "give the number of legs that this run reports")
        head_sha = self.text("head-sha").lower()
        if head_sha and not re.fullmatch(r"[0-9a-f]{40}", head_sha):
            self.fault("head-sha", f"is {cut(head_sha, 60)!r}", "give the upstream commit as 40 hexadecimal digits")
        upstream = self.text("upstream-repository", DEFAULT_UPSTREAM)
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", upstream, re.ASCII):
            self.fault("upstream-repository", f"is {cut(upstream, 60)!r}", "give owner/name")
        event_type = self.text("event-type")
        callback_url = self.text("callback-url")
        if callback_url:
            self.faults += url_faults("input `callback-url`", callback_url)
        artifact_url = self.text("artifact-url")
        parts = split_url(artifact_url)
        if artifact_url and (parts is None or parts.scheme not in ("http", "https") or "@" in parts.netloc):
            self.leave_out("artifact-url", "is no web address", "give http(s):// without a user name")
            artifact_url = ""
        inputs = Inputs(
            status=status,
            conclusion=self.conclusion(status),
            job_name=cut(self.text("job-name"), 1_024),
            combination=self.combination(),
            junit=tuple(filter(None, map(str.strip, self.text("junit").splitlines()))),
            test_results=self.test_results(),
            failed_tests=self.failed_tests(),
            triage_verdict=self.extra_json("triage-verdict", dict, "give a JSON object"),
            artifact_url=artifact_url,
            callback_url=callback_url,
            expected_jobs=None if expected is None else int(expected),
            failure_class=self.word("failure-class", FAILURE_CLASSES),
            event_type=event_type,
            delivery_id=self.text("delivery-id"),
            head_sha=head_sha,
            upstream=upstream,
            audience=self.text("audience", DEFAULT_AUDIENCE),
            max_time=self.number("max-time", 1, 3_600) or DEFAULT_MAX_TIME,
            retry_base=float(self.env.get("CRCR_RETRY_BASE", "1")),
            warnings=tuple(self.warnings),
        )
        if self.faults:
            raise Fault(*self.faults)
        return inputs


def split_url(url: str) -> urllib.parse.SplitResult | None:
    """The parts of an absolute URL of printable ASCII, or None where it is none."""
    try:
        parts = urllib.parse.urlsplit(url)
        port_is_a_number = parts.port is None or parts.port >= 0
    except ValueError:
        return None
    return parts if port_is_a_number and parts.hostname and re.fullmatch(r"[!-~]{1,2048}", url) else None


def url_faults(where: str, url: str) -> list[str]:
    """What forbids sending a token to this URL: it goes out encrypted, or does not leave the machine."""
    parts = split_url(url)
    if parts is None or parts.scheme not in ("http", "https") or "@" in parts.netloc:
        return [f"{where} is no web address that can be called; give https://host/github/callback"]
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        return [f"{where} is plain http, which would show the token to the network; give https://"]
    return []


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# ---------------------------------------------------------------------------------------------------------------
# Where we run: the facts about this run that only its machine knows.
# ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """This job as its CI service names it. The relay compares run id and attempt with the token's."""

    name: str
    url: str
    run_id: str
    run_attempt: str
    job_name: str
    check_run_id: str

    @staticmethod
    def here(env: Mapping[str, str], buildkite: bool) -> Run:
        if buildkite:
            # https://buildkite.com/docs/pipelines/configure/environment-variables
            retries = env.get("BUILDKITE_RETRY_COUNT", "0")
            run = Run(
                name=env.get("BUILDKITE_PIPELINE_SLUG", ""),
                url=env.get("BUILDKITE_BUILD_URL", ""),
                run_id=env.get("BUILDKITE_BUILD_ID", ""),
                run_attempt=str(int(retries) + 1 if retries.isdigit() else 1),
                job_name=env.get("BUILDKITE_LABEL", "") or env.get("BUILDKITE_STEP_KEY", ""),
                check_run_id=env.get("BUILDKITE_JOB_ID", ""),
            )
        else:
            # https://docs.github.com/actions/reference/workflows-and-actions/variables
            server = env.get("GITHUB_SERVER_URL", "https://github.com")
            run_id = env.get("GITHUB_RUN_ID", "")
            run = Run(
                name=env.get("GITHUB_WORKFLOW", ""),
                url=f"{server}/{env.get('GITHUB_REPOSITORY', '')}/actions/runs/{run_id}",
                run_id=run_id,
                run_attempt=env.get("GITHUB_RUN_ATTEMPT", "1"),
                job_name=env.get("GITHUB_JOB", ""),
                check_run_id=env.get("CRCR_JOB_CHECK_RUN_ID", ""),
            )
        if not run.run_id:
            name = "BUILDKITE_BUILD_ID" if buildkite else "GITHUB_RUN_ID"
            raise Fault(f"{name} is not set, so this is no step of a CI run; run the action from a job")
        return run


def read_event(path: str) -> dict[str, Any]:
    """The event that started this run, `{}` where there is none. Raises Fault if it cannot be read."""
    if not path or not Path(path).is_file():
        return {}
    try:
        event = json.loads(Path(path).read_bytes().decode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError) as error:
        raise Fault(f"the event file (GITHUB_EVENT_PATH) cannot be read: {error}") from error
    return event if isinstance(event, dict) else {}


# ---------------------------------------------------------------------------------------------------------------
# What the JUnit files show. The code under test wrote them, so they are read as hostile: no document type (that is
# where entities are declared), bounded sizes, missing attributes, wrong bytes.
# ---------------------------------------------------------------------------------------------------------------

FAILED_TEST_FIELDS = ("name", "classname", "message", "stacktrace", "duration")


def failed_test(name: Any, classname: Any, message: Any, stacktrace: Any, duration: Any) -> dict[str, Any]:
    """One entry of `failed_tests`, with its texts cut to what the relay takes."""
    test = {"name": cut(str(name), MAX_NAME), "classname": cut(str(classname or ""), MAX_NAME)}
    test["message"] = cut(str(message or ""), MAX_MESSAGE)
    test["stacktrace"] = cut(str(stacktrace or ""), MAX_STACK)
    seconds = duration if isinstance(duration, (int, float)) and not isinstance(duration, bool) else None
    whole: dict[str, Any] = dict(test)
    whole["duration"] = seconds if seconds is not None and math.isfinite(seconds) and seconds >= 0 else None
    return whole


@dataclass
class Tally:
    """Counts of the test cases of one file or of all, and the cases that did not pass."""

    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0
    failed_tests: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.passed + self.failed + self.errors + self.skipped

    def counts(self) -> dict[str, int]:
        return {k: getattr(self, k) for k in ("passed", "failed", "errors", "skipped", "total")}

    def add(self, other: Tally) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.errors += other.errors
        self.skipped += other.skipped
        self.failed_tests = (self.failed_tests + other.failed_tests)[:MAX_FAILED_TESTS]


class JUnitParser:
    """Walks one document and fills a tally; the document's tree is never built."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.suites: list[str] = []
        self.case: dict[str, str] | None = None
        self.outcome = "passed"
        self.message = ""
        self.text: list[str] | None = None

    def parse(self, data: bytes) -> Tally:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._refuse
        parser.EntityDeclHandler = self._refuse
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.Parse(data, True)
        return self.tally

    def _refuse(self, *_: Any) -> NoReturn:
        raise Fault("declares a document type, which JUnit files have no use for")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        tag = tag.rpartition(":")[2]
        if tag == "testsuite":
            self.suites.append(attributes.get("name", ""))
        elif tag == "testcase":
            self._close()
            self.case = attributes
            # GoogleTest lists disabled tests as `notrun`, without a child element.
            self.outcome = "skipped" if attributes.get("status") == "notrun" else "passed"
        elif tag in ("failure", "error") and self.outcome not in ("failed", "errors"):
            if self.case is None:  # A suite that failed outside of any test, in its set-up for instance.
                self.case = {"name": "(outside of any test)"}
            self.outcome = "failed" if tag == "failure" else "errors"
            self.message, self.text = attributes.get("message", ""), []
        elif tag == "skipped" and self.outcome == "passed" and self.case is not None:
            self.outcome = "skipped"

    def _characters(self, text: str) -> None:
        if self.text is not None:
            self.text.append(text)

    def _end(self, tag: str) -> None:
        tag = tag.rpartition(":")[2]
        if tag in ("failure", "error") and self.text is not None:
            stack, self.text = "".join(self.text).strip(), None
            self._note(stack)
        elif tag == "testcase":
            self._close()
        elif tag == "testsuite":
            self._close()
            self.suites.pop()

    def _note(self, stack: str) -> None:
        case = self.case or {}
        if len(self.tally.failed_tests) < MAX_FAILED_TESTS:
            try:
                duration = float(case.get("time", "").replace(",", ""))
            except ValueError:
                duration = math.nan
            classname = case.get("classname") or (self.suites[-1] if self.suites else "")
            name, message = case.get("name") or "(unnamed)", self.message or stack.partition("\n")[0]
            self.tally.failed_tests.append(failed_test(name, classname, message, stack, duration))

    def _close(self) -> None:
        if self.case is not None:
            setattr(self.tally, self.outcome, getattr(self.tally, self.outcome) + 1)
        self.case, self.outcome, self.text = None, "passed", None


def mend_xml(data: bytes) -> bytes:
    """The document without what XML forbids but careless writers emit: control characters, wrong bytes."""

    def reference(match: re.Match[str]) -> str:
        digits = match.group(1)
        code = int(digits[1:], 16) if digits[0] in "xX" else int(digits)
        allowed = code in (9, 10, 13) or 32 <= code < 0xD800 or 0xE000 <= code < 0xFFFE or 0x10000 <= code < 0x110000
        return match.group() if allowed else "\ufffd"

    text = re.sub(r"^\s*<\?xml[^>]*\?>", "", data.decode("utf-8-sig", "replace"))
    text = re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "\ufffd", text)
    return re.sub(r"&#([xX][0-9a-fA-F]{1,8}|[0-9]{1,9});", reference, text).encode("utf-8")


def read_junit_file(path: Path) -> Tally:
    """The tally of one file. Raises Fault where it cannot be trusted to be whole."""
    with path.open("rb") as file:
        data = file.read(MAX_JUNIT_FILE + 1)
    if len(data) > MAX_JUNIT_FILE:
        raise Fault(f"is larger than {MAX_JUNIT_FILE // 1024 // 1024} MB")
    try:
        return JUnitParser().parse(data)
    except (expat.ExpatError, ValueError, LookupError) as error:
        try:
            return JUnitParser().parse(mend_xml(data))
        except (expat.ExpatError, ValueError):
            raise Fault(f"is not whole XML: {error}") from error


def read_junit(patterns: tuple[str, ...], folder: Path) -> Tally:
    """The tally of all files that the patterns name, relative to `folder`."""
    whole = Tally()
    # Path.glob refuses absolute patterns, and those are how a step names files under RUNNER_TEMP.
    names = (name for pattern in patterns for name in glob.glob(str(folder / pattern), recursive=True))  # noqa: PTH207
    found = sorted({os.path.realpath(name) for name in names})
    paths = [Path(path) for path in found if Path(path).is_file()]
    if len(paths) > MAX_JUNIT_FILES:
        whole.problems.append(f"junit names {len(paths)} files; more than {MAX_JUNIT_FILES} are not read")
    for path in paths[:MAX_JUNIT_FILES]:
        try:
            whole.add(read_junit_file(path))
        except (Fault, OSError) as error:
            whole.problems.append(f"JUnit file {path.name} {error}")
    if not paths:
        whole.problems.append(f"no file matches junit ({', '.join(patterns)})")
    elif whole.total == 0 and not whole.problems:
        whole.problems.append(f"no test case is in the {len(paths)} files that junit names")
    return whole


# ---------------------------------------------------------------------------------------------------------------
# The body.
# ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """What is sent, and what the step summary says of it."""

    body: dict[str, Any]
    notes: tuple[str, ...]


def subject(inputs: Inputs, event: dict[str, Any]) -> dict[str, Any]:
    """What the report is about: the dispatch as received, or the upstream commit of a nightly run."""
    payload = event.get("client_payload")
    if isinstance(payload, dict) and payload.get("delivery_id") and "payload" in payload:
        return dict(payload)
    if not inputs.event_type:
        raise Fault(
            "this run was not started by the relay: its event has no client_payload with a delivery_id; report from "
            "`repository_dispatch` runs, or give `event-type` and `head-sha` to report a nightly or periodic run"
        )
    if inputs.event_type not in SELF_REPORTS:
        raise Fault(f"input `event-type` is {cut(inputs.event_type, 60)!r}; give nightly or periodic")
    sha = inputs.head_sha or inputs.delivery_id.lower()
    if not re.fullmatch(r"[0-9a-f]{40}", sha):
        raise Fault("input `head-sha` is empty; give the upstream commit that was tested, as 40 hexadecimal digits")
    return {
        "event_type": inputs.event_type,
        "delivery_id": inputs.delivery_id or sha,
        "payload": {"repository": {"full_name": inputs.upstream}, "head_sha": sha},
    }


def weigh(conclusion: str | None, tally: Tally) -> tuple[str | None, list[str]]:
    """The conclusion in the light of the job's own evidence, and why it differs from the claimed one.

    Only a claim of success is corrected: what is already worse keeps its more exact word.
    """
    evidence = list(tally.problems)
    if tally.failed or tally.errors:
        evidence.append(f"JUnit shows {tally.failed} failed tests and {tally.errors} errors")
    if evidence and conclusion in ("success", "neutral"):
        return "failure", [f"{conclusion} was claimed, failure is reported", *evidence]
    return conclusion, list(tally.problems) if conclusion == "failure" else []


def build(inputs: Inputs, run: Run, event: dict[str, Any], folder: Path, now: datetime) -> Report:
    """The whole report. Raises Fault where the run is nothing that the relay could know of."""
    moment = now.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
    done = inputs.status == "completed"
    conclusion, notes = inputs.conclusion, list(inputs.warnings)
    workflow: dict[str, Any] = {
        "schema_version": "1",
        "status": inputs.status,
        "conclusion": conclusion,
        "name": cut(run.name, 1_024),
        "url": run.url,
        "run_id": run.run_id,
        "run_attempt": run.run_attempt,
        "job_name": inputs.job_name or cut(run.job_name, 1_024) or "default",
        "started_at": None if done else moment,
        "completed_at": moment if done else None,
    }
    optional: dict[str, Any] = {
        "check_run_id": run.check_run_id,
        "combination": inputs.combination,
        "expected_jobs": inputs.expected_jobs,
        "artifact_url": inputs.artifact_url,
    }
    if done:
        optional.update(
            test_results=inputs.test_results,
            failed_tests=inputs.failed_tests,
            triage_verdict=inputs.triage_verdict,
            failure_class=inputs.failure_class,
        )
        if inputs.junit:
            tally = read_junit(inputs.junit, folder)
            workflow["conclusion"], evidence = weigh(conclusion, tally)
            notes += evidence
            failed = workflow["conclusion"] == "failure"
            # A reviewer sees failed tests, not this log: so what is wrong with the evidence stands there too.
            problems = [failed_test("(JUnit evidence)", "crcr", text, "", None) for text in tally.problems if failed]
            optional["failed_tests"] = (problems + tally.failed_tests + (inputs.failed_tests or []))[:MAX_FAILED_TESTS]
            if tally.total or failed:
                optional["test_results"] = tally.counts()
            if failed and (conclusion != "failure" or tally.failed or tally.errors):
                optional["failure_class"] = inputs.failure_class or "test"
    workflow.update({name: value for name, value in optional.items() if value})
    body = subject(inputs, event)
    body["workflow"] = workflow
    notes += shrink(body)
    return Report(body=body, notes=tuple(notes))


def encode(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode("ascii")


def shrink(body: dict[str, Any]) -> list[str]:
    """Makes the body fit: stack traces go first, then messages, then tests, always from the end of the list."""
    excess = len(encode(body)) - MAX_BODY
    tests: list[dict[str, Any]] = body["workflow"].get("failed_tests", [])
    if excess <= 0:
        return []
    for name in ("stacktrace", "message"):
        for test in reversed(tests):
            if excess > 0 and test[name]:
                excess -= len(encode(test[name])) - 2
                test[name] = ""
    while excess > 0 and tests:
        excess -= len(encode(tests.pop())) + 1
    if excess > 0:
        raise Fault(f"the report is {excess} bytes over 1 MB; give a shorter triage-verdict or test-results")
    return ["the report was over 1 MB: stack traces, then messages and tests were left out from the end"]


# ---------------------------------------------------------------------------------------------------------------
# Sending, and the token that proves who sends.
# ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    retry_after: str
    location: str

    def json(self) -> dict[str, Any]:
        try:
            value = json.loads(self.body.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


class NoAnswer(Exception):  # noqa: N818 - it is no error of ours
    """The other side did not answer; `final` where trying again cannot help."""

    def __init__(self, reason: str, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


class StayHere(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a token is for the host that was asked for, and a POST would become a GET."""

    def redirect_request(self, *_: Any) -> None:
        return None


OPENER = urllib.request.build_opener(StayHere)


def call(request: urllib.request.Request, timeout: float) -> Answer:
    """One exchange. Raises NoAnswer where there was none; an HTTP error is an answer like any other."""
    try:
        try:
            response = OPENER.open(request, timeout=timeout)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            headers = response.headers
            body: bytes = response.read(MAX_ANSWER)
            return Answer(response.status, body, headers.get("Retry-After", ""), headers.get("Location", ""))
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise NoAnswer(str(reason) or type(error).__name__, isinstance(reason, ssl.SSLCertVerificationError)) from None


def requested_pause(retry_after: str, now: datetime) -> float:
    """Seconds that a Retry-After header asks for, in either of its forms; 0 where it asks for nothing."""
    if re.fullmatch(r"[0-9]{1,9}", retry_after.strip()):
        return float(retry_after)
    try:
        moment = email.utils.parsedate_to_datetime(retry_after)
    except (TypeError, ValueError, IndexError):
        return 0.0
    aware = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return max(0.0, (aware - now).total_seconds())


class Patience:
    """Tries again what may be tried again, within one budget of time for the whole report."""

    def __init__(self, seconds: float, base: float, voice: Voice) -> None:
        self.end, self.base, self.voice = time.monotonic() + seconds, base, voice

    def persist(self, what: str, attempt: Callable[[float], Answer]) -> Answer:
        """The first answer that is final, else the last one. Raises NoAnswer if there was none at all.

        The relay takes one report any number of times, so an exchange that broke off may simply be repeated.
        """
        tries = 0
        while True:
            answer: Answer | None = None
            asked = 0.0
            try:
                answer = attempt(max(0.1, min(ATTEMPT_SECONDS, self.end - time.monotonic())))
                if answer.status < 500 and answer.status != 429:
                    return answer
                trouble = f"HTTP {answer.status}"
                asked = requested_pause(answer.retry_after, datetime.now(timezone.utc))
            except NoAnswer as error:
                if error.final:
                    raise
                trouble = str(error)
            spread = random.uniform(0.5, 1.0)  # noqa: S311 - many jobs must not come back at once; no secret
            pause = asked + spread * min(LONGEST_PAUSE, self.base * 2**tries)
            tries += 1
            if time.monotonic() + pause >= self.end:
                self.voice.log(f"{what}: {trouble} at try {tries}; no time is left for another")
                if answer is None:
                    raise NoAnswer(trouble)
                return answer
            self.voice.log(f"{what}: {trouble} at try {tries}; again in {pause:.1f} s")
            time.sleep(pause)


def mint(env: Mapping[str, str], audience: str, patience: Patience, voice: Voice, buildkite: bool) -> str:
    """A fresh OIDC token of this job, already masked. Raises Fault where this job cannot have one."""
    token = mint_buildkite(audience) if buildkite else mint_github(env, audience, patience, voice)
    if not re.fullmatch(r"[!-~]+", token):
        raise Fault("the CI service answered something that is no OIDC token", status="no-token")
    voice.mask(token)
    return token


def mint_github(env: Mapping[str, str], audience: str, patience: Patience, voice: Voice) -> str:
    # https://docs.github.com/actions/reference/security/oidc#methods-for-requesting-the-oidc-token
    url, bearer = env.get("ACTIONS_ID_TOKEN_REQUEST_URL", ""), env.get("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "")
    if not url or not bearer:
        raise Fault(
            "this job cannot ask for an OIDC token; add `permissions: id-token: write` to the job that reports",
            status="no-token",
        )
    voice.mask(bearer)
    url += ("&" if "?" in url else "?") + "audience=" + urllib.parse.quote(audience, safe="")
    request = urllib.request.Request(url, headers={"Authorization": "bearer " + bearer})  # noqa: S310 - the runner's
    try:
        answer = patience.persist("OIDC token", lambda timeout: call(request, timeout))
    except NoAnswer as error:
        raise Fault(f"GitHub's OIDC service cannot be reached: {error}", status="no-token") from None
    value = answer.json().get("value")
    if answer.status != 200 or not isinstance(value, str):
        raise Fault(f"GitHub's OIDC service answered HTTP {answer.status} without a token", status="no-token")
    return value


def mint_buildkite(audience: str) -> str:
    # The two ids are opt-in claims, and the relay goes by ids alone, since slugs can be reused.
    # https://buildkite.com/docs/agent/cli/reference/oidc
    agent = shutil.which("buildkite-agent")
    if agent is None:
        raise Fault("buildkite-agent is not on the PATH; run this step on the agent itself", status="no-token")
    command = [agent, "oidc", "request-token", "--audience", audience]
    command += ["--claim", "organization_id", "--claim", "pipeline_id"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Fault(f"buildkite-agent gave no token: {type(error).__name__}", status="no-token") from None
    if done.returncode != 0:
        said = one_line(done.stderr.decode("utf-8", "replace"), 300)
        raise Fault(f"buildkite-agent gave no token (exit {done.returncode}): {said}", status="no-token")
    return done.stdout.decode("ascii", "replace").strip()


@dataclass(frozen=True)
class Outcome:
    """What became of the report."""

    ok: bool
    status: str
    http_status: str = ""
    replayed: bool = False
    sentences: tuple[str, ...] = ()


def send(report: Report, url: str, token: Callable[[], str], patience: Patience) -> Outcome:
    """Posts the report and reads the relay's answer."""
    data = encode(report.body)
    minted, bearer = time.monotonic(), token()

    def attempt(timeout: float) -> Answer:
        nonlocal minted, bearer
        if time.monotonic() - minted > TOKEN_SECONDS:
            minted, bearer = time.monotonic(), token()
        headers = {"Authorization": "Bearer " + bearer, "Content-Type": "application/json", "User-Agent": "crcr-action"}
        return call(urllib.request.Request(url, data, headers, method="POST"), timeout)  # noqa: S310 - see url_faults

    try:
        return judge(patience.persist("report", attempt))
    except NoAnswer as error:
        return Outcome(False, "unreachable", sentences=(f"the relay cannot be reached: {error}",))


def judge(answer: Answer) -> Outcome:
    """The relay's answer as an outcome, with what a maintainer can do about it."""
    said, http_status = answer.json(), str(answer.status)
    if 200 <= answer.status < 300:
        if said.get("ok") is not True:
            text = f"HTTP {http_status} without the relay's answer: callback-url is not the relay's callback"
            return Outcome(False, "not-the-relay", http_status, sentences=(text,))
        return Outcome(True, str(said.get("status", "")), http_status, said.get("replayed") is True)
    if 300 <= answer.status < 400:
        text = f"the callback URL redirects to {cut(answer.location, 300)!r}, where no token is sent; give that address"
        return Outcome(False, "redirected", http_status, sentences=(text,))
    code = said.get("code") if isinstance(said.get("code"), str) else "http-" + http_status
    detail = said.get("detail") or said.get("title") or "no reason given"
    text = detail if isinstance(detail, str) else json.dumps(detail)
    sentences = [f"HTTP {http_status}, code {code}: {cut(text, 1_000)}"]
    if answer.status in HINTS:
        sentences.append(HINTS[answer.status])
    return Outcome(False, str(code), http_status, sentences=tuple(sentences))


# ---------------------------------------------------------------------------------------------------------------
# The step.
# ---------------------------------------------------------------------------------------------------------------


def relay_url(inputs: Inputs, event: dict[str, Any], env: Mapping[str, str]) -> str:
    """Where to report: the input, else what the dispatch says, else the environment. Raises Fault if nowhere."""
    payload = event.get("client_payload")
    relay = payload.get("relay") if isinstance(payload, dict) else None
    dispatched = relay.get("callback_url") if isinstance(relay, dict) else None
    for where, url in (("relay.callback_url of the dispatch", dispatched), ("CRCR_CALLBACK_URL", None)):
        chosen = (
            inputs.callback_url or (url if isinstance(url, str) else "") or env.get("CRCR_CALLBACK_URL", "").strip()
        )
        if chosen:
            faults = url_faults("input `callback-url`" if inputs.callback_url else where, chosen)
            if faults:
                raise Fault(*faults)
            return chosen
    raise Fault("no relay is named: give the input `callback-url`, such as https://host/github/callback")


def run_step(env: Mapping[str, str], voice: Voice, rows: list[tuple[str, str]], notes: list[str]) -> Outcome:
    """Makes and sends the report; `rows` and `notes` become the step's summary, however this ends."""
    event = read_event(env.get("GITHUB_EVENT_PATH", ""))
    payload = event.get("client_payload")
    relay = payload.get("relay") if isinstance(payload, dict) else None
    capability = relay.get("token") if isinstance(relay, dict) else None
    if isinstance(capability, str) and capability:
        voice.mask(capability)  # Before anything else is said: it binds a report to its dispatch.
    inputs = Reader(env).read()
    run = Run.here(env, voice.buildkite)
    url = relay_url(inputs, event, env)
    folder = Path(env.get("GITHUB_WORKSPACE", "") or Path.cwd())
    report = build(inputs, run, event, folder, datetime.now(timezone.utc))
    workflow = report.body["workflow"]
    counts = workflow.get("test_results") or {}
    rows += [
        ("Job", workflow["job_name"]),
        ("Reported", " ".join(filter(None, (workflow["status"], workflow["conclusion"])))),
        ("Combination", json.dumps(workflow["combination"]) if "combination" in workflow else ""),
        ("Tests", ", ".join(f"{counts[name]} {name}" for name in COUNTS if name in counts)),
        ("About", str(report.body.get("delivery_id", ""))),
        ("To", urllib.parse.urlsplit(url).netloc),
    ]
    for note in report.notes:
        voice.loud("warning", note)
    notes += report.notes
    notes += ["failed: " + test["name"] for test in (workflow.get("failed_tests") or [])[:10]]
    patience = Patience(inputs.max_time, inputs.retry_base, voice)
    return send(report, url, lambda: mint(env, inputs.audience, patience, voice, voice.buildkite), patience)


def main(env: Mapping[str, str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")
    voice = Voice(env, env.get("BUILDKITE") == "true")
    strict = env.get("CRCR_INPUT_FAIL_ON_ERROR", "").strip().lower() == "true"
    rows: list[tuple[str, str]] = []
    notes: list[str] = []
    try:
        outcome = run_step(env, voice, rows, notes)
    except Fault as fault:
        outcome = Outcome(False, fault.status, sentences=fault.sentences)
    except Exception as error:  # noqa: BLE001 - a fault of ours must not turn someone else's job red unasked
        outcome = Outcome(False, "internal-error", sentences=(f"{type(error).__name__}: {error}",))
    if not outcome.ok:
        for sentence in outcome.sentences:
            voice.loud("error" if strict else "warning", "NOT REPORTED: " + sentence)
    elif outcome.status == "ignored":
        voice.loud(
            "warning", "the relay ignored this report: this repository is below level L2 or not on the allowlist"
        )
    else:
        voice.log(f"reported: {outcome.status}{' (it was known already)' if outcome.replayed else ''}")
    rows.append(("Answer", " ".join(filter(None, (outcome.http_status, outcome.status)))))
    title = (
        "Reported to the cross-repository CI relay" if outcome.ok else "NOT reported to the cross-repository CI relay"
    )
    voice.summary(title, rows, list(outcome.sentences) + notes)
    for name, value in (
        ("ok", str(outcome.ok).lower()),
        ("status", outcome.status),
        ("http-status", outcome.http_status),
        ("replayed", str(outcome.replayed).lower()),
    ):
        voice.output(name, value)
    return 1 if strict and not outcome.ok else 0


if __name__ == "__main__":
    sys.exit(main(os.environ))
