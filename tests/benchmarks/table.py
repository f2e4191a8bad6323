"""What a measurement found, beside what was to be reached, as lines of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table: what was measured, what came out, and the budget as the README words it."""

    what: str
    reached: str
    budget: str = ""


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of the values lie: the nearest rank, so it is one that occurred."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def milliseconds(seconds: float) -> str:
    """A time as people compare it."""
    return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"


def spread(values: Sequence[float]) -> str:
    """Median and 99th percentile of times in seconds."""
    return f"p50 {milliseconds(percentile(values, 0.5))}, p99 {milliseconds(percentile(values, 0.99))}"


def line(figure: Figure) -> str:
    """The figure as a line of a Markdown table."""
    return f"| {figure.what} | {figure.reached} | {figure.budget} |"


HEADING = "| what | reached | to reach |\n|---|---|---|"
