"""The rules of the fold, the standing and the gate, each with the wrong twin that a test must notice.

The name says what is broken. The text must stand exactly once in its file.
"""

from __future__ import annotations

from typing import NamedTuple

LEGS = "levels/legs.py"
LIFECYCLE = "levels/lifecycle.py"
OUTCOMES = "levels/outcomes.py"
GATE = "levels/gate.py"


class Rule(NamedTuple):
    """One line of the code that is a rule, and what it becomes."""

    name: str
    file: str
    text: str
    becomes: str


RULES = (
    # What a leg is.
    Rule(
        "a completed report needs a conclusion",
        LEGS,
        "if self.status is Status.COMPLETED and self.conclusion is None:",
        "if False:",
    ),
    Rule("runs are apart", LEGS, "names[report.run_id, ", 'names["", '),
    Rule("attempts are apart", LEGS, "names[report.run_id, report.run_attempt,", "names[report.run_id, 1,"),
    Rule("job names are apart", LEGS, "report.run_attempt, report.job_name]", 'report.run_attempt, ""]'),
    Rule("combinations are apart", LEGS, "side[report.combination, ", 'side["", '),
    Rule(
        "check runs are apart", LEGS, "side[report.combination, report.check_run_id]", "side[report.combination, None]"
    ),
    Rule("a start alone is a leg", LEGS, "for start in starts.keys() - set(start_of.values()):", "for start in ():"),
    Rule(
        "a lone completed report counts",
        LEGS,
        "for end, said in ends.items():",
        "for end, said in ((end, said) for end, said in ends.items() if end in start_of):",
    ),
    Rule(
        "terminal beats in_progress",
        LEGS,
        "status=Status.COMPLETED if ends else Status.IN_PROGRESS",
        "status=Status.IN_PROGRESS if starts else Status.COMPLETED",
    ),
    # Which start an end takes.
    Rule("its own start first", LEGS, "{end: end for end in ends if end in starts}", "{}"),
    Rule(
        "a start of its own check run",
        LEGS,
        "lambda end: (_ANY, end[1]) if end[1] is not None else None,",
        "lambda end: None,",
    ),
    Rule(
        "an unknown check run is none",
        LEGS,
        "lambda end: (_ANY, end[1]) if end[1] is not None else None,",
        "lambda end: (_ANY, end[1]),",
    ),
    Rule("a start of its own combination", LEGS, "lambda end: (end[0], _ANY),", "lambda end: None,"),
    Rule(
        "a start that states none",
        LEGS,
        "lambda end: (_UNSTATED, _ANY) if end[0] != _UNSTATED else (_ANY, _ANY),",
        "lambda end: None if end[0] != _UNSTATED else (_ANY, _ANY),",
    ),
    Rule(
        "any start for an end that states none",
        LEGS,
        "lambda end: (_UNSTATED, _ANY) if end[0] != _UNSTATED else (_ANY, _ANY),",
        "lambda end: (_UNSTATED, _ANY),",
    ),
    Rule(
        "two stated combinations do not meet",
        LEGS,
        "lambda end: (_UNSTATED, _ANY) if end[0] != _UNSTATED else (_ANY, _ANY),",
        "lambda end: (_ANY, _ANY),",
    ),
    Rule("two versions do not meet", LEGS, "or stated == version)", "or True)"),
    Rule("a start ends once", LEGS, "free.remove(found)", "pass"),
    Rule("a taken start is not free", LEGS, "if start in free and (", "if ("),
    Rule("the oldest start first", LEGS, "return sorted(sides, key=", "return sorted(sides, reverse=True, key="),
    Rule("the age is the first receipt", LEGS, "{key: min(report.received_at", "{key: max(report.received_at"),
    Rule("a start said again is one start", LEGS, "_merge_starts(starts)\n", "pass\n"),
    Rule("only one check run is one job", LEGS, "if check_run_id is not None and unstated", "if unstated"),
    Rule("an unstated end inherits", LEGS, "end[0] or _inherited(end, start, starts, ends)", "end[0]"),
    Rule("no two legs share a key", LEGS, "return _UNSTATED if taken else start[0]", "return start[0]"),
    # What stands.
    Rule("the worse of two conclusions", LEGS, "worst(conclusions) if conclusions", "max(conclusions) if conclusions"),
    Rule("a contradiction is marked", LEGS, "conflicting=len(conclusions) > 1", "conflicting=False"),
    Rule("a repetition is none", LEGS, "conflicting=len(conclusions) > 1", "conflicting=len(ends) > 1"),
    Rule("the earliest start counts", LEGS, "started_at=min(", "started_at=max("),
    Rule("the first end counts", LEGS, "completed_at=min(", "completed_at=max("),
    Rule("the end is that of what stands", LEGS, "for report in standing) if ends", "for report in ends) if ends"),
    Rule(
        "details are of what stands",
        LEGS,
        "[end for end in ends if end.conclusion is conclusion] or starts",
        "ends or starts",
    ),
    Rule("counts go first", LEGS, "(report.passed is None, report.received_at,", "(report.received_at,"),
    Rule(
        "then the first to say it",
        LEGS,
        "(report.passed is None, report.received_at, report.report_id)",
        "(report.passed is None, -report.report_id)",
    ),
    Rule("the version of the end", LEGS, "_version(ends) or _version(starts)", "_version(starts)"),
    Rule("else that of the start", LEGS, "_version(ends) or _version(starts)", "_version(ends)"),
    Rule("a leg's largest claim", LEGS, "expected_jobs=max(claims", "expected_jobs=min(claims"),
    # Attempts.
    Rule("attempts are of one run", LEGS, "jobs[leg.run_id, leg.job_name]", 'jobs["", leg.job_name]'),
    Rule("attempts are of one job", LEGS, "jobs[leg.run_id, leg.job_name]", 'jobs[leg.run_id, ""]'),
    Rule(
        "newest is the highest",
        LEGS,
        "= max(newest[combination], attempt)",
        "= min(newest[combination] or attempt, attempt)",
    ),
    Rule(
        "newer replaces older", LEGS, "replace(leg, deciding=False) if _replaced(leg, newest, several) else leg", "leg"
    ),
    Rule(
        "one leg: newest decides, success or not",
        LEGS,
        "if same and leg.combination not in several:",
        "if False:",
    ),
    Rule(
        "several legs: success stays",
        LEGS,
        "if same and leg.combination not in several:",
        "if same:",
    ),
    Rule("several is more than one", LEGS, "if count > 1:", "if count > 0:"),
    Rule(
        "several legs: the rest goes",
        LEGS,
        "return (same or unstated or any_stated)",
        "return (unstated or any_stated)",
    ),
    Rule(
        "an unstated attempt replaces", LEGS, "return (same or unstated or any_stated)", "return (same or any_stated)"
    ),
    Rule(
        "an unstated attempt is replaced", LEGS, "return (same or unstated or any_stated)", "return (same or unstated)"
    ),
    Rule(
        "a success of another combination stays",
        LEGS,
        "any_stated) and leg.conclusion is not Conclusion.SUCCESS",
        "any_stated)",
    ),
    Rule(
        "a newer attempt, not an older",
        LEGS,
        "newest.get(leg.combination, 0) > leg",
        "newest.get(leg.combination, 0) >= leg",
    ),
    # From legs to the outcome.
    Rule("we never conclude success", LIFECYCLE, "if concluded is Outcome.SUCCESS:", "if False:"),
    Rule("replaced legs decide nothing", LIFECYCLE, "(leg for leg in every if leg.deciding)", "(leg for leg in every)"),
    Rule("nothing reported is queued", LIFECYCLE, "concluded or Outcome.QUEUED", "concluded or Outcome.RUNNING"),
    Rule(
        "our conclusion stands over nothing", LIFECYCLE, "return concluded or Outcome.QUEUED", "return Outcome.QUEUED"
    ),
    Rule("a failure decides at once", LIFECYCLE, "    if failing:\n", "    if failing and not short:\n"),
    Rule(
        "the worst failure decides",
        LIFECYCLE,
        "_as_outcome(failing[0].conclusion)",
        "_as_outcome(failing[-1].conclusion)",
    ),
    Rule(
        "the worst result decides",
        LIFECYCLE,
        "_as_outcome(worst(leg.conclusion for",
        "_as_outcome(max(leg.conclusion for",
    ),
    Rule("running legs are awaited", LIFECYCLE, "any(leg.status is not Status.COMPLETED for leg in deciding)", "False"),
    Rule("missing legs are awaited", LIFECYCLE, "short or bool(missing), concluded", "bool(missing), concluded"),
    Rule("missing versions are awaited", LIFECYCLE, "short or bool(missing), concluded", "short, concluded"),
    Rule("a start ends silence", LIFECYCLE, "if concluded not in _AT_RUN_DEADLINE:", "if concluded is None:"),
    Rule(
        "incomplete is told from lost",
        LIFECYCLE,
        "        return Outcome.INCOMPLETE\n",
        "        return Outcome.LOST\n",
    ),
    Rule(
        "timed out is told from lost",
        LIFECYCLE,
        "return Outcome.TIMED_OUT if concluded is Outcome.TIMED_OUT else Outcome.LOST",
        "return Outcome.LOST",
    ),
    Rule(
        "lost is told from timed out",
        LIFECYCLE,
        "return Outcome.TIMED_OUT if concluded is Outcome.TIMED_OUT else Outcome.LOST",
        "return Outcome.TIMED_OUT",
    ),
    Rule("the entry's number wins", LIFECYCLE, "if expectation.jobs is not None:", "if False:"),
    Rule(
        "the entry's number is met exactly",
        LIFECYCLE,
        "len(deciding) < expectation.jobs",
        "len(deciding) < expectation.jobs - 1",
    ),
    Rule("the largest claim of a run", LIFECYCLE, "claims[leg.run_id] = max(", "claims[leg.run_id] = min("),
    Rule(
        "claims are per run",
        LIFECYCLE,
        "any(seen[run_id] < claim for run_id, claim in claims.items())",
        "len(deciding) < max(claims.values())",
    ),
    Rule(
        "claims of replaced legs count",
        LIFECYCLE,
        "    for leg in every:\n        if leg.expected_jobs",
        "    for leg in deciding:\n        if leg.expected_jobs",
    ),
    Rule("expected is the sum over runs", LIFECYCLE, "expected = sum(", "expected = max("),
    Rule("failing legs worst first", LIFECYCLE, "rank = badness(leg.conclusion)", "rank = -badness(leg.conclusion)"),
    Rule(
        "what is awaited has no end",
        LIFECYCLE,
        "None if awaited else max(ends, default=None)",
        "max(ends, default=None)",
    ),
    Rule("the last end counts", LIFECYCLE, "else max(ends, default=None)", "else min(ends, default=None)"),
    Rule("the first start counts", LIFECYCLE, "started_at=min(", "started_at=max("),
    # Observed.
    Rule("only success is disputed", LIFECYCLE, "claimed is Conclusion.SUCCESS and observed", "observed"),
    Rule("a dispute changes the outcome", LIFECYCLE, "outcome = Outcome.DISPUTED", "pass"),
    Rule("a job can deny", LIFECYCLE, '[observed.jobs.get(leg.check_run_id or ""), ', "["),
    Rule("a run can deny", LIFECYCLE, "observed.runs.get((leg.run_id, newest[leg.run_id]))", "None"),
    Rule(
        "an older attempt is no witness", LIFECYCLE, "(leg.run_id, newest[leg.run_id])", "(leg.run_id, leg.run_attempt)"
    ),
    # Times.
    Rule(
        "only the first attempt queues", LIFECYCLE, "if leg.run_attempt == first_attempt else None", "if True else None"
    ),
    Rule(
        "the attempt's first start ends the queue",
        LIFECYCLE,
        "(first_attempt_started_at or leg.started_at)",
        "leg.started_at",
    ),
    Rule("the queue begins at our 204", LIFECYCLE, "queue=_between(sent_at, began)", "queue=_between(began, began)"),
    Rule("execution begins at the start", LIFECYCLE, "_between(leg.started_at, leg", "_between(sent_at, leg"),
    Rule("time is never negative", LIFECYCLE, "return max(end - start, timedelta())", "return end - start"),
    # Settings and the gate.
    Rule(
        "silence blocks where asked", OUTCOMES, "if outcome is Outcome.SILENT and on_silence", "if False and on_silence"
    ),
    Rule("and silence alone", OUTCOMES, "if outcome is Outcome.SILENT and on_silence", "if on_silence"),
    Rule("and only where asked", OUTCOMES, " and on_silence is OnSilence.BLOCK:", ":"),
    Rule("settings move cells", OUTCOMES, "overrides.get(outcome, GATE_TABLE[outcome])", "GATE_TABLE[outcome]"),
    Rule("green only by a result", OUTCOMES, "if effect in _GREEN and outcome not in MAY_TURN_GREEN:", "if False:"),
    Rule(
        "not required is green too",
        OUTCOMES,
        "frozenset({GateEffect.PASSES, GateEffect.NOT_REQUIRED})",
        "frozenset({GateEffect.PASSES})",
    ),
    Rule(
        "what is decided does not wait",
        OUTCOMES,
        "if effect == GateEffect.PENDING and outcome not in UNSETTLED:",
        "if False:",
    ),
    Rule("effects refuse bad settings", OUTCOMES, "    check_overrides(overrides)\n    if outcome", "    if outcome"),
    Rule("only levels that block count", GATE, "if POWERS[one.level].blocks:", "if True:"),
    Rule("levels that block do count", GATE, "if POWERS[one.level].blocks:", "if False:"),
    Rule("the worst line decides", GATE, "lines[0].effect if lines", "lines[-1].effect if lines"),
    Rule("lines are worst first", GATE, "return WORST_FIRST.index(line.effect), line", "return 0, line"),
    Rule(
        "nothing required passes",
        GATE,
        "        effect = GateEffect.PASSES\n",
        "        effect = GateEffect.STEPS_DOWN\n",
    ),
    Rule("bad settings are refused at once", GATE, "    check_overrides(overrides)\n    lines", "    lines"),
    Rule(
        "settings reach the gate", GATE, "on_silence=one.on_silence, overrides=overrides)", "on_silence=one.on_silence)"
    ),
    Rule("only an override overrides", GATE, "    if one.overridden:\n", "    if True:\n"),
    Rule("an override reaches the gate", GATE, "    if one.overridden:\n", "    if False:\n"),
    Rule(
        "pending is not completed",
        GATE,
        "Status.IN_PROGRESS if self.conclusion is None else",
        "Status.COMPLETED if True else",
    ),
)
