"""What GitHub shows of runs, and what a deadline makes of it: each rule with the wrong twin that a test must notice.

As in ``rules``: the name says what is broken, and the text must stand exactly once in its file.
"""

from __future__ import annotations

from rules import Rule

WITNESS = "levels/witness.py"
DEADLINES = "relay/store/deadlines.py"
STANDING = "relay/store/standing.py"

RULES = (
    # What GitHub shows.
    Rule("an unknown word is no success", WITNESS, "get(word, Conclusion.NEUTRAL)", "get(word, Conclusion.SUCCESS)"),
    Rule(
        "a run that could not start failed",
        WITNESS,
        '"startup_failure": Conclusion.FAILURE',
        '"startup_failure": Conclusion.NEUTRAL',
    ),
    Rule("a stale run timed out", WITNESS, '"stale": Conclusion.TIMED_OUT', '"stale": Conclusion.NEUTRAL'),
    Rule("a run's newest attempt counts", WITNESS, "run.run_attempt > newest[", "run.run_attempt < newest["),
    Rule(
        "no run says nothing",
        WITNESS,
        "if not newest:\n        return None",
        "if not newest:\n        return Outcome.SILENT",
    ),
    Rule("a run that failed blocks at once", WITNESS, "    if bad:\n", "    if False:\n"),
    Rule("of several the worst", WITNESS, "Outcome(str(worst(bad)))", "Outcome(str(bad[0]))"),
    Rule("a run that goes on is awaited", WITNESS, "len(ended) < len(newest) or worst(", "not ended or worst("),
    Rule("a run that passed is awaited", WITNESS, " or worst(ended) is Conclusion.SUCCESS:", ":"),
    Rule(
        "only what skipped was skipped",
        WITNESS,
        "Outcome.SKIPPED if worst(ended) is Conclusion.SKIPPED else",
        "Outcome.SKIPPED if True else",
    ),
    Rule(
        "what skipped was not silent",
        WITNESS,
        "Outcome.SKIPPED if worst(ended) is Conclusion.SKIPPED else",
        "Outcome.SKIPPED if False else",
    ),
    Rule("a neutral run is no result", WITNESS, "else Outcome.SILENT", "else Outcome.NEUTRAL"),
    Rule(
        "without a run ours stands",
        WITNESS,
        "if filled is None:\n        return ours",
        "if filled is None:\n        return Outcome.SILENT",
    ),
    Rule("a report is more than a skipped run", WITNESS, "if not reported or filled in _FAILED else", "if True else"),
    Rule(
        "a failed run is more than a report",
        WITNESS,
        "if not reported or filled in _FAILED else",
        "if not reported else",
    ),
    Rule(
        "a failed run fills silence in",
        WITNESS,
        "if not reported or filled in _FAILED else",
        "if filled in _FAILED and reported else",
    ),
    Rule("what goes on is not lost", WITNESS, "if any(run.conclusion is None for run in newest):", "if False:"),
    Rule(
        "what passed unheard is incomplete", WITNESS, "return ours if reported else Outcome.INCOMPLETE", "return ours"
    ),
    Rule(
        "what began and passed unheard is lost",
        WITNESS,
        "return ours if reported else Outcome.INCOMPLETE",
        "return Outcome.INCOMPLETE",
    ),
    # When a deadline looks.
    Rule(
        "a deadline is over when it is reached",
        DEADLINES,
        ".where(_dispatch.c.next_deadline <= now, not_(",
        ".where(_dispatch.c.next_deadline < now, not_(",
    ),
    Rule(
        "so is the gate's",
        DEADLINES,
        "_dispatch.c.give_up_at <= now,\n        ~",
        "_dispatch.c.give_up_at < now,\n        ~",
    ),
    Rule(
        "a new attempt outlasts the gate's deadline", DEADLINES, "_job.c.run_attempt > 1)", "_job.c.run_attempt > 99)"
    ),
    Rule("GitHub is asked first", DEADLINES, "now, not_(_worth_asking(_dispatch.c.next_deadline, now)))", "now)"),
    Rule(
        "also at the gate's deadline",
        DEADLINES,
        "not_(_worth_asking(_dispatch.c.give_up_at, now)))",
        "_dispatch.c.id > 0)",
    ),
    Rule("for less than a minute", DEADLINES, "deadline > now - PATIENCE,", "deadline > now - 100 * PATIENCE,"),
    Rule(
        "and once",
        DEADLINES,
        "func.coalesce(_dispatch.c.observed_at, _dispatch.c.created_at) < deadline",
        "_dispatch.c.created_at < deadline",
    ),
    Rule(
        "about what was sent",
        DEADLINES,
        '_dispatch.c.state == "sent",\n        _dispatch.c.purpose',
        '_dispatch.c.state != "",\n        _dispatch.c.purpose',
    ),
    Rule(
        "a dead letter that is tried again is none",
        DEADLINES,
        '("planned", "pending_paths")), ~waiting)',
        '("planned", "pending_paths")))',
    ),
    # What it concludes.
    Rule("what is settled stays", DEADLINES, "if before not in UNSETTLED or row.purpose", "if row.purpose"),
    Rule("what owes nothing is let alone", DEADLINES, ' or row.purpose != "test":', ":"),
    Rule("what began was told", DEADLINES, "    if every:\n", '    if every and row.state == "sent":\n'),
    Rule(
        "what has time of its own is not lost",
        DEADLINES,
        "Outcome.TIMED_OUT if _in_time(every, terms.run, now) else",
        "Outcome.TIMED_OUT if False else",
    ),
    Rule(
        "what has none left is",
        DEADLINES,
        "Outcome.TIMED_OUT if _in_time(every, terms.run, now) else",
        "Outcome.TIMED_OUT if True else",
    ),
    Rule(
        "what was never told is not silent",
        DEADLINES,
        'Outcome.UNDELIVERED if row.state in {"planned", "pending_paths"} else',
        "Outcome.UNDELIVERED if False else",
    ),
    Rule(
        "what was told is silent",
        DEADLINES,
        'Outcome.UNDELIVERED if row.state in {"planned", "pending_paths"} else',
        "Outcome.UNDELIVERED if True else",
    ),
    Rule("what GitHub shows counts", DEADLINES, "ours = at_deadline(ours, seen.runs, reported=bool(every))", "pass"),
    Rule("beside what was reported", DEADLINES, "seen.runs, reported=bool(every))", "seen.runs, reported=False)"),
    Rule("the newest attempt has the time", DEADLINES, "if leg.run_attempt > attempt:", "if attempt == 0:"),
    Rule(
        "its time begins at its first start",
        DEADLINES,
        "began[leg.run_id] = attempt, min(first, at)",
        "began[leg.run_id] = attempt, max(first, at)",
    ),
    Rule("its time is over when it is reached", DEADLINES, "at + run > now", "at + run >= now"),
    Rule("its checks are told", DEADLINES, "touch_head(conn, head_sha, check_terms, now, backend=backend)", "pass"),
    Rule("it is asked about afterwards", DEADLINES, "row.level in OBSERVED_LEVELS and unasked:", "False:"),
    # How long an attempt is awaited.
    Rule("its own attempts do not go on for ever", STANDING, "return min(own, most)", "return own"),
    Rule("they have one run's time", STANDING, "most = told.give_up_at + told.terms.run", "most = told.give_up_at"),
    Rule(
        "what was asked for has its own", STANDING, "most = max(most, told.rerun_at", "most = min(most, told.rerun_at"
    ),
    Rule(
        "from the asking",
        STANDING,
        "told.rerun_at + told.terms.queue + told.terms.run",
        "told.give_up_at + told.terms.run",
    ),
)
