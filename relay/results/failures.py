"""Counts and failed tests, as a callback states them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from relay.results.faults import Faults, shown
from relay.results.fields import MOST_COUNT, Fields, cut, cut_bytes

MOST_FAILED_TESTS = 1_000
MOST_NAME = 500
MOST_MESSAGE_BYTES = 1_024
MOST_STACK_BYTES = 4_096

_TEXTS = ("name", "classname", "message", "stacktrace")


@dataclass(frozen=True, slots=True)
class Counts:
    """How many tests did what; None where it was not said."""

    passed: int | None = None
    failed: int | None = None
    skipped: int | None = None
    total: int | None = None
    errors: int | None = None
    xfailed: int | None = None
    xpassed: int | None = None


@dataclass(frozen=True, slots=True)
class FailedTest:
    """One test that did not pass. ``duration`` is in seconds."""

    name: str
    classname: str = ""
    message: str = ""
    stacktrace: str = ""
    duration: float | None = None


def read_counts(workflow: Fields) -> Counts:
    """``workflow.test_results``."""
    results = workflow.inner("test_results")
    if not results.values:
        return Counts()
    return Counts(*(results.number(name, least=0, most=MOST_COUNT) for name in Counts.__slots__))


def read_failed_tests(workflow: Fields) -> tuple[tuple[FailedTest, ...], list[object] | None]:
    """``workflow.failed_tests``: the tests, and the array to keep, cut to size (None where nothing had to be cut)."""
    given = workflow.values.get("failed_tests")
    if given is None:
        return (), None
    if not isinstance(given, list):
        workflow.fault("failed_tests", f"must be an array, got {shown(given)}")
        return (), None
    if len(given) > MOST_FAILED_TESTS:
        workflow.notes.append(f"{workflow.path}failed_tests: {len(given)} given, the first {MOST_FAILED_TESTS} kept")
    tests: list[FailedTest] = []
    kept: list[object] = []
    for index, item in enumerate(given[:MOST_FAILED_TESTS]):
        path = f"{workflow.path}failed_tests[{index}]"
        if not isinstance(item, dict):
            workflow.faults.add(path, f"must be an object, got {shown(item)}")
            continue
        test, shortened = _read(item, path, workflow.faults)
        tests.append(test)
        kept.append({**item, **shortened} if shortened else item)
    is_as_given = len(kept) == len(given) and all(ours is theirs for ours, theirs in zip(kept, given, strict=True))
    return tuple(tests), None if is_as_given else kept


def _read(item: dict[str, Any], path: str, faults: Faults) -> tuple[FailedTest, dict[str, str]]:
    shortened: dict[str, str] = {}
    texts: list[str] = []
    for name in _TEXTS:
        value = item.get(name)
        if value is not None and not isinstance(value, str):
            faults.add(f"{path}.{name}", f"must be a string, got {shown(value)}")
        text = value if isinstance(value, str) else ""
        fitted = _fitted(name, text)
        if fitted is not text:
            shortened[name] = fitted
        texts.append(fitted)
    return FailedTest(texts[0], texts[1], texts[2], texts[3], _duration(item.get("duration"), path, faults)), shortened


def _fitted(name: str, text: str) -> str:
    if name == "message":
        return cut_bytes(text, MOST_MESSAGE_BYTES)
    if name == "stacktrace":
        return cut_bytes(text, MOST_STACK_BYTES)
    return cut(text, MOST_NAME)


def _duration(value: object, path: str, faults: Faults) -> float | None:
    if value is None or value == "":
        return None
    try:
        seconds = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        seconds = math.nan
    if math.isfinite(seconds) and seconds >= 0:
        return seconds
    faults.add(f"{path}.duration", f"must be a number of seconds, got {shown(value)}")
    return None
