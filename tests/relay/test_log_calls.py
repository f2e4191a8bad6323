"""Every line of the log is an event with a stable name and named values: whoever searches it finds them all."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

RELAY = Path(__file__).parents[2] / "relay"
#: Rooms that only play GitHub, for the demo and the tests.
PLAYED = ("simulator", "demo")

LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
#: What a line may say it is about, and what it may tell of that. The same thing has one name everywhere.
ABOUT = {
    *(
        "delivery",
        "trace",
        "head",
        "backend",
        "dispatch",
        "number",
        "check",
        "effect",
        "kind",
        "subject",
        "run_id",
        "job",
    ),
    *("circuit", "issuer", "digest", "jti", "turn", "who", "sender", "path"),
}
TOLD = {
    *("after", "again_in_seconds", "backends", "before", "cause", "changes", "code", "conclusion", "decides"),
    *("delivered_at", "detail", "due", "effects", "entries", "error", "faults", "found", "github_event", "how"),
    *(
        "in_force",
        "kept",
        "known",
        "line",
        "message",
        "outcome",
        "pages",
        "planned",
        "reason",
        "replayed",
        "role",
        "rows",
    ),
    *("rule", "seconds", "since", "source", "state", "status", "taken", "topic", "tries_left", "trouble", "upstream"),
    *("verb", "what", "worker"),
}
#: What happens to the service as a whole, or to many at once, and so is about nobody.
OF_ITS_OWN = {
    *("allowlist_fault", "allowlist_not_read", "allowlist_refresh_failed", "clock_set_back"),
    *("database_url_not_taken", "deliveries_too_many", "endings_not_noted", "endings_noted_one_by_one"),
    *("forgotten", "healed", "leaving", "levels_moved", "listening", "lookout_turn_failed", "migration_waits"),
    *(
        "not_listening",
        "not_started",
        "pull_requests_too_many",
        "requests_cut_short",
        "schema_newer",
        "secrets_not_reread",
        "secrets_refused",
    ),
    *("secrets_reread", "started", "stopped", "store_unreachable", "stored_allowlist_not_read", "sweep_turn_failed"),
    *("taken_over", "upstream_unreadable", "worker_turn_failed", "workers_not_counted"),
}


@dataclass(frozen=True)
class Line:
    """One call of a logger: where it is, the events it may name, and its values' names; None stands for ``**``."""

    where: str
    events: tuple[object, ...]
    values: frozenset[str | None]
    positional: int


def calls(tree: ast.AST, name: str) -> Iterator[Line]:
    """Every call of a logger in a module."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id.strip("_") in {"log", "logger"}):
            continue
        event = node.args[0] if node.args else None
        either = [event.body, event.orelse] if isinstance(event, ast.IfExp) else [event]
        events = tuple(one.value if isinstance(one, ast.Constant) else None for one in either)
        values = frozenset(keyword.arg for keyword in node.keywords)
        yield Line(f"{name}:{node.lineno}", events, values, len(node.args))


LINES = [
    line
    for path in sorted(RELAY.rglob("*.py"))
    if path.relative_to(RELAY).parts[0] not in PLAYED
    for line in calls(ast.parse(path.read_text()), str(path.relative_to(RELAY)))
]


def faults(line: Line) -> list[str]:
    """What is wrong with this line."""
    found = []
    if line.positional != 1 or not all(isinstance(event, str) for event in line.events):
        found.append("one fixed name of an event, and everything else as named values")
    found += [f"{event!r} is no name" for event in line.events if not re.fullmatch(r"[a-z]+(_[a-z]+)*", str(event))]
    found += [f"{name!r} is no value's name" for name in sorted(line.values - ABOUT - TOLD - {None}, key=str)]
    if not line.values & (ABOUT | {None}) and not set(line.events) <= OF_ITS_OWN:
        found.append("it names nothing that it is about")
    return found


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.where)
def test_each_line_is_an_event_with_named_values(line: Line) -> None:
    """Text put together is found by nobody, and outside text in it would be taken for ours."""
    assert [] == faults(line)


def test_what_is_wrong_with_a_line_is_seen() -> None:
    """The tests above can fail."""
    source = (
        'log.info(f"sent {x}", head=1)\nlog.info("Sent it", head=1)\nlog.info("sent", to=1, head=1)\nlog.info("sent")'
    )
    wrong = [faults(line) for line in calls(ast.parse(source), "x")]

    assert [2, 1, 1, 1] == [len(found) for found in wrong]


def test_there_are_lines_to_look_at() -> None:
    """And no event is excused that is not there."""
    assert len(LINES) > 50
    assert set() == OF_ITS_OWN - {event for line in LINES for event in line.events}
