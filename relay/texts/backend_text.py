"""The body of a backend's check: its title, its combinations, its jobs, the tests that failed, and where to look."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from levels.outcomes import FAILURE_LIKE, Conclusion, GateEffect, Outcome, badness
from relay.deciding.facts import DispatchFacts, LegFacts, Place
from relay.texts.base_text import KNOWN, base_markdown, known_whole
from relay.texts.markup import Section, code, link, prose
from relay.texts.words import GATE_NAME, PHRASES, UNREPORTED, clock, reason_phrase, seen_phrase, several, span
from relay.tracing import trace_id

_MOST_LINKS = 6
_FAILING = frozenset(str(conclusion) for conclusion in FAILURE_LIKE)

_CONCLUSION_WORDS = {
    "success": "passed",
    "failure": "failed",
    "timed_out": "timed out",
    "action_required": "action required",
}


_FIXED = {
    Outcome.UNDELIVERED: "not delivered: the backend could not be told",
    Outcome.PAUSED: "paused: nothing was tested there",
    Outcome.DISPUTED: "disputed: success was reported, GitHub shows otherwise",
}


# --- Titles ----------------------------------------------------------------------------------------------------------


def backend_title(one: DispatchFacts) -> str:
    """One line. While jobs may still come it has no counts, since each count would owe a write."""
    outcome = one.outcome
    if outcome is Outcome.QUEUED:
        return f"Queued since {clock(one.created_at)}"
    if outcome is Outcome.RUNNING:
        return f"Running since {clock(one.started_at or one.created_at, one.created_at)}"
    title = PHRASES[outcome].label
    by = _ended_at(one)
    if outcome is Outcome.SUCCESS:
        title = f"passed: {_counts(one.legs)}" if one.legs else "passed"
    elif outcome is Outcome.SILENT:
        title = f"silent: nothing reported by {by}"
    elif outcome is Outcome.LOST:
        title = f"lost: started, but not all results came by {by}"
    elif outcome is Outcome.INCOMPLETE:
        title = f"incomplete: jobs or versions were missing at {by}"
    elif outcome in _FIXED:
        title = _FIXED[outcome]
    elif outcome is Outcome.TIMED_OUT and not _failing(one.legs):
        title = f"timed out: still running at {by}"
    elif one.outstanding:
        title = f"{title}; not all jobs have reported yet"
    elif one.legs:
        title = f"{title}: {_failure_counts(one.legs)}"
    return _capital(title) + _asides(one)


def _asides(one: DispatchFacts) -> str:
    """What a title says behind the result: who answers for it, whether it is run again, that it came late."""
    told = (
        f"; overridden by {one.override.who}" if one.override is not None and one.outcome is not Outcome.SUCCESS else ""
    )
    if known_whole(one):
        told += f"; all {KNOWN}"
    if one.rerun_asked is not None:
        told += f"; re-run asked for at {clock(one.rerun_asked, one.created_at)}"
    return told + (" (reported late)" if one.late and one.concluded_at is not None and not one.outstanding else "")


def job_title(one: DispatchFacts, legs: Sequence[LegFacts], conclusion: Conclusion | None) -> str:
    """The title of one job's check."""
    if conclusion is None:
        starts = [leg.started_at for leg in legs if leg.started_at is not None]
        return f"Running since {clock(min(starts, default=one.created_at), one.created_at)}"
    if any(leg.conclusion is None for leg in legs):
        return f"No result by {_ended_at(one)}"
    word = _word(str(conclusion))
    return f"{word[0].upper()}{word[1:]}: {_counts(legs)}"


def _ended_at(one: DispatchFacts) -> str:
    return clock(one.concluded_at or one.outcome_at, one.created_at)


def _counts(legs: Sequence[LegFacts]) -> str:
    parts = [several(len(legs), "job")]
    passed, failed, skipped = (_total(legs, name) for name in ("passed", "failed", "skipped"))
    parts += [f"{several(passed, 'test')} passed"] if passed else []
    parts += [f"{failed:,} failed"] if failed else []
    parts += [f"{skipped:,} skipped"] if skipped else []
    return ", ".join(parts)


def _failure_counts(legs: Sequence[LegFacts]) -> str:
    bad = _failing(legs)
    jobs_told = several(len(legs), "job")
    told = jobs_told if not bad or len(legs) == 1 else f"{len(bad):,} of {jobs_told}"
    failed = _total(legs, "failed")
    return f"{told}, {several(failed, 'test')} failed" if failed else told


def _failing(legs: Iterable[LegFacts]) -> list[LegFacts]:
    return [leg for leg in legs if leg.conclusion in _FAILING]


def _total(legs: Iterable[LegFacts], name: str) -> int:
    return sum(getattr(leg, name) or 0 for leg in legs)


# --- What happened ---------------------------------------------------------------------------------------------------


def about(one: DispatchFacts) -> str:
    """What the outcome means, with this backend's own times in it."""
    unreported = one.observed_at is not None and not one.legs_reported
    meaning = (UNREPORTED.get(one.outcome) if unreported else None) or PHRASES[one.outcome].meaning
    for field, value in (
        ("{queue}", span(one.time_to_start)),
        ("{run}", span(one.time_to_finish)),
        ("{by}", _ended_at(one)),
    ):
        meaning = meaning.replace(field, value)
    return meaning


def oncall(one: DispatchFacts) -> str:
    """Who answers for the backend. Named in code spans, so that nobody is notified by each check."""
    return f" On-call: {', '.join(code(name, 40) for name in one.oncalls[:5])}." if one.oncalls else ""


def run_again(one: DispatchFacts) -> str:
    """How a reviewer has a backend run again, at its check on a pull request."""
    anew = f"`/crcr run {one.backend}`"
    if not one.legs:
        return f"**Tell it anew**: by the button at this check, or by {anew} in a new comment."
    return (
        f"**Run it again**: by the buttons at this check, or in a new comment by `/crcr rerun {one.backend}` (what "
        f"failed) or {anew} (everything, in a new run)."
    )


_POWER = {
    GateEffect.PASSES: f"`{GATE_NAME}` counts this as passed",
    GateEffect.PENDING: f"`{GATE_NAME}` waits for it",
    GateEffect.BLOCKS: f"`{GATE_NAME}` blocks the merge because of this",
    GateEffect.STEPS_DOWN: f"`{GATE_NAME}` does not hold the merge back for this",
    GateEffect.NOT_REQUIRED: f"`{GATE_NAME}` does not ask for it",
}


def overview(one: DispatchFacts, effect: GateEffect, page: str, place: Place) -> Section:
    """The backend, its level, what has become of it and when, and what of it is known on the base."""
    lines = [f"**{_capital(PHRASES[one.outcome].label)}.** {about(one)}", ""]
    power = _POWER[effect] if one.gates else "its results are for information and hold nothing back"
    lines.append(f"- `{one.backend}` is at {one.level or one.level_then}: {power}.")
    times = [f"told at {clock(one.sent_at, one.created_at)}" if one.sent_at else f"asked at {clock(one.created_at)}"]
    if one.started_at:
        times.append(f"started at {clock(one.started_at, one.created_at)}")
    if not one.awaited:
        times.append(f"concluded at {clock(one.outcome_at, one.created_at)}")
    elif one.give_up_at:
        times.append(f"given up at {clock(one.give_up_at, one.created_at)}")
    lines.append(f"- Times: {', '.join(times)}.")
    if one.outcome in {Outcome.UNDELIVERED, Outcome.PAUSED}:
        lines.append(f"- Reason: {prose(reason_phrase(one.reason_code, one.reason))}.")
    if one.base is not None:
        lines.append(f"- {'**On the base**' if one.base.known else 'On the base'}: {base_markdown(one, place)}")
    lines += [f"- {note}" for note in _asked_of_us(one)]
    lines += [f"- {note}" for note in _shortfall(one)]
    if one.observe_note:
        lines.append(f"- At GitHub: {prose(one.observe_note)}")
    if one.late and one.concluded_at is not None:
        lines.append(
            f"- Late: the relay had concluded at {clock(one.concluded_at, one.created_at)}, before these reports came."
        )
    if one.origin:
        lines.append(f"- Trace: {code(trace_id(one.origin), 32)}, for whoever asks the relay's admins.")
    if one.legs and (one.outstanding or one.awaited):
        lines.append(f"- Jobs below are those known when this was written; as it is now: {page}.")
    return Section(tuple(lines), (), "")


def _asked_of_us(one: DispatchFacts) -> list[str]:
    """What people asked for at this backend, and who."""
    notes = []
    if one.override is not None:
        who = one.override
        notes.append(
            f"**Overridden**: {code(who.who, 60)} answers for it on this commit since "
            f"{clock(who.at, one.created_at)}: {prose(who.why, 500)}. A new push ends this."
        )
    if one.cause:
        notes.append(f"Told anew: {prose(one.cause)}.")
    if one.rerun_asked is not None:
        notes.append(f"Re-run {prose(one.rerun_by)}. Until it starts, this shows what came before it.")
    return notes


def _shortfall(one: DispatchFacts) -> list[str]:
    """What was expected and is not there, by name where names are known."""
    notes = []
    if one.legs_expected is not None and one.legs_reported < one.legs_expected:
        missing = one.legs_expected - one.legs_reported
        notes.append(
            f"{one.legs_reported:,} of {several(one.legs_expected, 'job')} reported, {missing:,} missing: "
            "the backend's run lists them."
        )
    if one.legs and one.missing_versions:
        named = ", ".join(code(version, 60) for version in one.missing_versions[:10])
        more = len(one.missing_versions) - 10
        notes.append(f"No job of these backend versions: {named}{f' and {more} more' if more > 0 else ''}.")
    open_legs = [leg for leg in one.legs if leg.conclusion is None]
    if open_legs and not one.awaited:
        named = ", ".join(code(leg.job_name, 60) for leg in open_legs[:10])
        more = len(open_legs) - 10
        notes.append(f"Started and not finished: {named}{f' and {more} more' if more > 0 else ''}.")
    return notes


# --- Tables ----------------------------------------------------------------------------------------------------------

_Combination = tuple[str | None, str | None, tuple[tuple[str, str], ...]]


def combinations(one: DispatchFacts, page: str) -> list[Section]:
    """One row for each combination of backend version, suite version and environment."""
    groups: defaultdict[_Combination, list[LegFacts]] = defaultdict(list)
    for leg in one.legs:
        groups[leg.backend_version, leg.suite_version, leg.environment].append(leg)
    if not groups:
        return []
    rows = [
        f"| {_versions(legs[0])} | {len(legs)} | {_result(one, legs)} | {_numbers(legs)} | {_longest(legs)} |"
        for legs in sorted(groups.values(), key=_worst_first)
    ]
    head = (
        "| Backend version | Suite version | Environment | Jobs | Result | Passed | Failed | Skipped | Longest job |",
        "| --- | --- | --- | ---: | --- | ---: | ---: | ---: | ---: |",
    )
    return [Section(head, rows, f"{{count}} more combinations are left out here; all are on {page}.")]


def jobs(one: DispatchFacts, page: str) -> list[Section]:
    """One row for each job, what failed first."""
    if not one.legs:
        return []
    # Until somebody has looked at GitHub, a column for what it shows would hold dashes only.
    looked = any(_seen(one, leg) for leg in one.legs)
    rows = [_job_row(one, leg, looked=looked) for leg in sorted(one.legs, key=lambda leg: _worst_first([leg]))]
    claims = "Conclusion | At GitHub" if looked else "Conclusion"
    head = (
        "### Jobs",
        "",
        f"| Job | Backend version | Suite version | Environment | {claims} | Passed | Failed | Skipped | Time | Run |",
        f"| --- | --- | --- | --- | --- |{' --- |' if looked else ''} ---: | ---: | ---: | ---: | --- |",
    )
    return [Section(head, rows, f"{{count}} more jobs are left out here; all are on {page}.")]


def tests(one: DispatchFacts, page: str) -> list[Section]:
    """The tests that failed, job by job, with the first line of what each said."""
    failing = [leg for leg in one.legs if leg.failed_tests or leg.failed]
    if not failing:
        return []
    count = sum(max(leg.failed or 0, leg.failed_tests_kept) for leg in failing)
    title = f"### {several(count, 'failing test')} in {several(len(failing), 'job')}"
    if one.private:
        return [Section((title, "", "This backend is private: names and messages of its tests are not shown."), (), "")]
    lines: list[str] = []
    for leg in sorted(failing, key=lambda leg: _worst_first([leg])):
        if not leg.failed_tests:
            continue
        lines += ["", f"{code(leg.job_name)} ({_plain_versions(leg)})", ""]
        for test in leg.failed_tests:
            first = next((line for line in test.message.splitlines() if line.strip()), "")
            of = f" in {code(test.classname, 100)}" if test.classname else ""
            known = f" ({KNOWN})" if test.on_base else ""
            lines.append(f"- {code(test.name, 160)}{of}{known}" + (f": {code(first, 200)}" if first else ""))
        more = max(leg.failed or 0, leg.failed_tests_kept) - len(leg.failed_tests)
        if more > 0:
            lines.append(f"- and {several(more, 'more test')} of this job")
    if not lines:
        return [Section((title, "", "The backend reported no names for them; its run has the log."), (), "")]
    return [Section((title,), lines, f"{{count}} more lines are left out here; all failing tests are on {page}.")]


def where(shown: Sequence[DispatchFacts], url: str) -> Section:
    """Links: our page, and the backend's own runs as it named them."""
    links = [f"[all results of this change](<{url}>)"]
    seen: set[str] = set()
    for one in shown:
        if one.private:
            continue
        for leg in sorted(one.legs, key=lambda leg: _worst_first([leg])):
            made = link(f"run {len(seen) + 1} at the backend", leg.url)
            if made and leg.url not in seen and len(seen) < _MOST_LINKS:
                seen.add(leg.url)
                links.append(made)
    return Section((f"**Where to look**: {', '.join(links)}.",), (), "")


def _job_row(one: DispatchFacts, leg: LegFacts, *, looked: bool) -> str:
    links = [] if one.private else [link("run", leg.url), link("artifact", leg.artifact_url)]
    shown = " ".join(made for made in links if made) or "—"
    conclusion = _word(leg.conclusion) if leg.conclusion else "running" if one.awaited else "no result"
    notes = []
    if leg.conflicting:
        notes.append("conflicting reports, the worse counts")
    if leg.failure_class:
        notes.append(f"claimed cause: {prose(leg.failure_class, 40)}")
    if leg.run_attempt > 1:
        notes.append(f"attempt {leg.run_attempt}")
    note = f" ({'; '.join(notes)})" if notes else ""
    taken = span(leg.seconds) if leg.seconds is not None else "—"
    seen = f" | {_seen(one, leg) or '—'}" if looked else ""
    return (
        f"| {code(leg.job_name, 100)} | {_versions(leg)} | {conclusion}{note}{seen} | {_numbers([leg])} "
        f"| {taken} | {shown} |"
    )


def _seen(one: DispatchFacts, leg: LegFacts) -> str:
    """How GitHub shows the job; empty until somebody has looked."""
    if leg.observed is None and (one.observed_at is None or leg.conclusion is None):
        return ""
    return prose(seen_phrase(leg.conclusion, leg.observed), 60)


def _versions(leg: LegFacts) -> str:
    """Three cells: backend version, suite version, environment."""
    environment = ", ".join(f"{key} {value}" for key, value in leg.environment)
    return " | ".join(code(text, 80) if text else "—" for text in (leg.backend_version, leg.suite_version, environment))


def _plain_versions(leg: LegFacts) -> str:
    parts = [f"backend {code(leg.backend_version, 60)}" if leg.backend_version else "no version stated"]
    parts += [f"suite {code(leg.suite_version, 60)}"] if leg.suite_version else []
    parts += [code(f"{key} {value}", 60) for key, value in leg.environment[:6]]
    return ", ".join(parts)


def _result(one: DispatchFacts, legs: Sequence[LegFacts]) -> str:
    ended = [leg.conclusion for leg in legs if leg.conclusion]
    bad = min(ended, key=lambda word: badness(Conclusion(word)), default=None)
    parts = []
    if bad is not None and (bad in _FAILING or len(ended) == len(legs)):
        count = sum(1 for word in ended if word in _FAILING)
        parts.append(_word(bad) + (f" ({count} of {len(legs)})" if count and len(legs) > 1 else ""))
    if len(ended) < len(legs):
        parts.append(f"{len(legs) - len(ended)} {'running' if one.awaited else 'without a result'}")
    return ", ".join(parts)


def _numbers(legs: Sequence[LegFacts]) -> str:
    """Three cells: passed, failed, skipped. What was not told is no zero."""
    cells = []
    for name in ("passed", "failed", "skipped"):
        told = [getattr(leg, name) for leg in legs if getattr(leg, name) is not None]
        cells.append(f"{sum(told):,}" if told else "—")
    return " | ".join(cells)


def _longest(legs: Sequence[LegFacts]) -> str:
    times = [leg.seconds for leg in legs if leg.seconds is not None]
    return span(max(times)) if times else "—"


def _worst_first(legs: Sequence[LegFacts]) -> tuple[int, str, str, str]:
    """Failing, then unfinished, then passed; within that by version and name."""
    ended = [badness(Conclusion(leg.conclusion)) for leg in legs if leg.conclusion]
    running = 4 if len(ended) < len(legs) else 99
    first = legs[0]
    names = (first.backend_version or "", first.suite_version or "", first.job_name)
    # "shard 2" comes before "shard 10".
    version, suite, job = (re.sub(r"\d+", lambda digits: digits.group().zfill(12), name) for name in names)
    return min([*ended, running]), version, suite, job


def _word(conclusion: str) -> str:
    return _CONCLUSION_WORDS.get(conclusion, conclusion)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
