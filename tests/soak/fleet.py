"""Sixty backends over all levels: what their entries ask for, what their workflows do, and which of them misbehave."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from relay.simulator import JobPlan, Listener, Mode, Reports

BACKENDS = 60
#: 23 jobs report twice and one once.
BURST = 24
#: Seconds from our 204 to the last report, where eight hours are usual: a quarter to start, as in production.
DEADLINE_SECONDS = 80


class Manner(StrEnum):
    """How a backend behaves. All but the first three are wrong in their own way."""

    HONEST = "reports what it does"
    BURST = "47 reports at once"
    FLAKY = "fails now and then"
    SILENT = "never reports"
    VANISHES = "starts and is lost"
    BABBLES = "repeats itself, contradicts itself, cannot spell"
    LIES = "reports for others"
    LATE = "reports after the deadline"
    FLOODS = "sends bodies that are too large"


MISCHIEF = frozenset(Manner) - {Manner.HONEST, Manner.BURST, Manner.FLAKY}


@dataclass(frozen=True, slots=True)
class Member:
    """One backend. ``entry`` is the mapping on the allowlist."""

    name: str
    level: str
    manner: Manner
    deadline: int
    entry: Mapping[str, Any] = field(default_factory=dict)
    device: str = ""


_MAIN = ["refs/heads/main"]
#: What entries ask for, in turn. Together a backend wants two of five events, which makes 120,000 pairs a week.
_ASKS: tuple[Mapping[str, Any], ...] = (
    {"authors": ["MEMBER"], "refs": _MAIN},
    {},
    {"events": ["push"], "refs": ["refs/heads/main", "refs/tags/ciflow/trunk/**"]},
    {"paths": ["src/npu/**"], "refs": _MAIN},
    {"every_commit": True, "paths": ["src/npu/**", "src/core/**"], "refs": _MAIN},
    {"labels": ["ciflow/trunk"], "refs": _MAIN},
    {"events": ["pull_request", "push", "merge_group"], "refs": _MAIN},
    {"authors": ["MEMBER"], "refs": ["refs/heads/release/**"]},
    {"base": ["main"], "actions": ["opened", "reopened", "synchronize"], "authors": ["MEMBER"], "refs": _MAIN},
    {"base": ["release/2.9"], "refs": _MAIN, "actions": ["opened", "reopened", "synchronize", "closed", "unlabeled"]},
)
_LEVELS = ("L1",) * 20 + ("L2",) * 22 + ("L3",) * 10 + ("L4",) * 8
#: A tenth misbehaves, each in its way; who may speak, by position in the list of levels.
_MANNERS = {
    3: Manner.LIES,
    21: Manner.BABBLES,
    25: Manner.LIES,
    30: Manner.FLOODS,
    22: Manner.BURST,
    45: Manner.VANISHES,
    53: Manner.SILENT,
    54: Manner.LATE,
    24: Manner.FLAKY,
    44: Manner.FLAKY,
    56: Manner.FLAKY,
}


def fleet(count: int = BACKENDS, deadline: int = DEADLINE_SECONDS) -> tuple[Member, ...]:
    """The backends; a smaller ``count`` takes them evenly from all levels. ``deadline`` in seconds, queue and run."""
    step = BACKENDS / count
    return tuple(_member(int(number * step), deadline) for number in range(count))


def _member(number: int, deadline: int) -> Member:
    level = _LEVELS[number]
    asks = dict(_ASKS[number % len(_ASKS)])
    manner = _MANNERS.get(number, Manner.HONEST)
    if manner is Manner.BURST:
        asks = {"events": ["push"], "refs": _MAIN}
    if level == "L4":
        # What may block asks for little else: its word is owed on every head it is told of.
        asks = {name: value for name, value in asks.items() if name in {"events", "refs", "paths", "every_commit"}}
    timeouts = {"queue": f"{deadline // 4}s", "run": f"{deadline - deadline // 4}s"}
    entry = {**asks, "timeouts": timeouts, "oncalls": ["oncall"]}
    return Member(f"org{number}/backend", level, manner, deadline, entry, f"dev{number}" if level == "L3" else "")


def allowlist(members: tuple[Member, ...]) -> str:
    """The allowlist's text."""
    lines: list[str] = []
    for level in ("L1", "L2", "L3", "L4"):
        lines.append(f"{level}:")
        for member in members:
            if member.level == level:
                text = f"{member.name}: {json.dumps(dict(member.entry))}"
                lines += [f"  {member.device}:", f"    {text}"] if level == "L3" else [f"  - {text}"]
    return "\n".join(lines) + "\n"


def listener(member: Member) -> Listener:
    """The backend's workflow: jobs take seconds, and what they are follows from the delivery alone."""
    return Listener(
        jobs=_jobs(member), mode=Mode.DIRECT, named_runs=member.manner is not Manner.LIES, ignores_closed=True
    )


def _jobs(member: Member) -> Callable[[Mapping[str, Any]], tuple[JobPlan, ...]]:
    def plan(payload: Mapping[str, Any]) -> tuple[JobPlan, ...]:
        chance = random.Random(f"{member.name} {payload.get('delivery_id')}")
        if member.level == "L1" and member.manner is not Manner.LIES:
            return (JobPlan(name="test", duration=0.2, reports=Reports.SILENT),)
        if member.manner is Manner.LATE:
            # It starts in time, and its result comes when nobody waits for it any more.
            return (JobPlan(name="test", delay=0.2 * member.deadline, duration=member.deadline),)
        return _PLANS.get(member.manner, _honest)(chance)

    return plan


def _honest(chance: random.Random) -> tuple[JobPlan, ...]:
    both = chance.random() < 0.45
    return (
        JobPlan(
            name="test",
            delay=chance.uniform(0.05, 1.5),
            duration=chance.uniform(0.1, 3.0),
            reports=Reports.BOTH if both else Reports.COMPLETED,
        ),
    )


def _burst(chance: random.Random) -> tuple[JobPlan, ...]:
    jobs = [JobPlan(name=f"shard {n}", delay=0.1, duration=chance.uniform(0.5, 2.0)) for n in range(BURST - 1)]
    return (*jobs, JobPlan(name="summary", delay=1.0, reports=Reports.COMPLETED))


def _flaky(chance: random.Random) -> tuple[JobPlan, ...]:
    failed = (("suite", "test_add", "1 != 2"),)
    wrong = chance.random() < 0.25
    bad = JobPlan(name="test (b)", duration=1.0, conclusion="failure", failed_tests=failed, flaky_until=2)
    return (JobPlan(name="test (a)", delay=0.2), bad if wrong else JobPlan(name="test (b)", duration=1.0))


def _only(reports: Reports, **given: Any) -> Callable[[random.Random], tuple[JobPlan, ...]]:
    return lambda _chance: (JobPlan(name="test", reports=reports, **given),)


_PLANS: Mapping[Manner, Callable[[random.Random], tuple[JobPlan, ...]]] = {
    Manner.BURST: _burst,
    Manner.FLAKY: _flaky,
    Manner.SILENT: _only(Reports.SILENT, duration=0.5),
    Manner.VANISHES: _only(Reports.DIES, duration=0.5),
    # They report by hand: see mischief.
    Manner.BABBLES: _only(Reports.COMPLETED, duration=1.0),
    Manner.LIES: _only(Reports.BOTH, duration=0.5),
    Manner.FLOODS: _only(Reports.COMPLETED, duration=0.5),
}
