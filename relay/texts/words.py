"""Every sentence that a human reads in a check, in one place; pages use the same phrases.

Titles carry clock times and no counts that grow while a backend runs, so that a check is written when its phase
changes and not when time passes or one more job reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType

from allowlist.model import Level, RepoName
from levels.lifecycle import disputed
from levels.outcomes import Conclusion, GateEffect, Outcome
from levels.witness import RunShown
from relay.texts.markup import MAX_TITLE, code, plain, prose

#: The one check that a ruleset requires.
GATE_NAME = "crcr/gate"

# GitHub documents no bound for a name; this one leaves its own pages readable.
_MOST_NAME = 250


def backend_check_name(repo: RepoName) -> str:
    """The name of a backend's check."""
    return f"crcr/{repo}"


def job_check_name(repo: RepoName, workflow: str, job: str) -> str:
    """Production's name for one job's check. ``workflow`` and ``job`` are what the backend said."""
    return plain(f"crcr/{repo}/{workflow or 'workflow'}/{job}", _MOST_NAME)


@dataclass(frozen=True, slots=True)
class Phrase:
    """An outcome in words: a label for tables and pages, a verb behind the backend's name, what it means, what to do.

    ``meaning`` may hold ``{since}``, ``{by}``, ``{queue}`` and ``{run}``.
    """

    label: str
    verb: str
    meaning: str
    todo: str = ""


_RERUN = "Open its run. If this change is not the cause, run it again or ask its on-call."

PHRASES: Mapping[Outcome, Phrase] = MappingProxyType(
    {
        Outcome.QUEUED: Phrase(
            "queued",
            "is queued",
            "The backend has {queue} from the moment it was told to report a start, and none has come yet.",
        ),
        Outcome.RUNNING: Phrase(
            "running",
            "is running",
            "The backend has reported a start and has {run} from then to report all results.",
        ),
        Outcome.SUCCESS: Phrase("passed", "passed", "Every job that was expected has reported success."),
        Outcome.FAILURE: Phrase(
            "failed",
            "failed",
            "At least one job reported a failure.",
            "Start with its failing tests. If this change is not the cause, run it again or ask its on-call.",
        ),
        Outcome.CANCELLED: Phrase(
            "cancelled",
            "was cancelled",
            "At least one job was cancelled before it had a result. Cancelling a run is no result.",
            "Run the cancelled jobs again.",
        ),
        Outcome.TIMED_OUT: Phrase(
            "timed out",
            "timed out",
            "The backend did not finish in the time it had.",
            _RERUN,
        ),
        Outcome.ACTION_REQUIRED: Phrase(
            "action required",
            "needs somebody to act",
            "At least one job waits for a person at the backend.",
            "Open its run: an approval or a setting is missing there. Its on-call can give it.",
        ),
        Outcome.LOST: Phrase(
            "lost",
            "started and vanished",
            "The backend reported a start, and then not all results in the {run} it has ({by}). "
            "A result that still comes replaces this.",
            "Open its run: the runner may have died, or the reporting step may have failed. Then run it again.",
        ),
        Outcome.INCOMPLETE: Phrase(
            "incomplete",
            "left jobs or versions out",
            "Fewer jobs or backend versions had reported than were expected when time ran out ({by}), so what did "
            "report is not enough for a verdict.",
            "Its check names what is missing; run that again.",
        ),
        Outcome.DISPUTED: Phrase(
            "disputed",
            "is disputed",
            "Success was reported, but GitHub shows the same run or job as not successful.",
            "Compare the report with the run. Until they agree the result does not count.",
        ),
        Outcome.SILENT: Phrase(
            "silent",
            "did not answer",
            "The backend was told of this change and reported nothing in the {queue} it has to start ({by}). "
            "**Nothing was tested there.** A result that still comes replaces this.",
            "Its on-call should look why no run started: the workflow may be missing, disabled or out of runners.",
        ),
        Outcome.UNDELIVERED: Phrase(
            "not delivered",
            "could not be told",
            "The relay could not tell the backend of this change. **Nothing was tested there.**",
            "Its on-call or the relay's admin can mend what the reason names.",
        ),
        Outcome.PAUSED: Phrase(
            "paused",
            "is paused",
            "The backend is paused at the relay: it was not told of this change, or had not begun when it was paused. "
            "**Nothing was tested there.** A result that still comes replaces this.",
            "The relay's admin can say why and for how long.",
        ),
        Outcome.SKIPPED: Phrase(
            "skipped",
            "skipped its tests",
            "The backend reported that it skipped its tests for this change.",
            "If they should have run, ask its on-call.",
        ),
        Outcome.NEUTRAL: Phrase(
            "neutral",
            "answered neither passed nor failed",
            "The backend ended with a neutral result, which says neither passed nor failed.",
        ),
        Outcome.FILTERED: Phrase(
            "not called",
            "was not called",
            "The filters of its own allowlist entry leave this change out.",
        ),
        Outcome.UNLISTED: Phrase(
            "not listed",
            "has left the allowlist",
            "The backend is not on the allowlist any more, so nothing waits for it.",
        ),
        Outcome.NOT_REQUIRED: Phrase("not required", "is not required", "Nothing waits for this backend here."),
    }
)

#: What an outcome means where nothing was reported, and only GitHub's own view of the run is known.
UNREPORTED: Mapping[Outcome, str] = MappingProxyType(
    {
        Outcome.RUNNING: "GitHub shows a run of it, and nothing has been reported yet.",
        Outcome.FAILURE: "Nothing was reported, and GitHub shows its run as failed.",
        Outcome.CANCELLED: "Nothing was reported, and GitHub shows its run as cancelled. That is no result.",
        Outcome.TIMED_OUT: "Nothing was reported, and its run did not finish in the {run} it has ({by}).",
        Outcome.ACTION_REQUIRED: "Nothing was reported, and GitHub shows that its run waits for a person.",
        Outcome.INCOMPLETE: "Its run is over at GitHub, and nothing of it was reported ({by}), so there is no result. "
        "A report that still comes replaces this.",
        Outcome.SKIPPED: "Nothing was reported, and GitHub shows its run as skipped. **Nothing was tested there.**",
        Outcome.NEUTRAL: "Nothing was reported, and GitHub shows its run as ended without a verdict.",
    }
)

EFFECTS: Mapping[GateEffect, str] = MappingProxyType(
    {
        GateEffect.PASSES: "passes",
        GateEffect.PENDING: "waits",
        GateEffect.BLOCKS: "**blocks**",
        GateEffect.STEPS_DOWN: "does not wait (no verdict)",
        GateEffect.NOT_REQUIRED: "not required",
    }
)

#: What has become of telling a backend, for pages.
STATES: Mapping[str, str] = MappingProxyType(
    {
        "pending_paths": "waiting for the list of changed files",
        "planned": "about to be told",
        "sent": "told",
        "filtered": "not called: its entry's filters leave this change out",
        "superseded": "not called after all",
        "dead": "could not be told",
        "paused": "not called: paused",
        "self_reported": "reported by itself",
    }
)


#: Reasons of ours that come without a sentence.
_REASONS: Mapping[str, str] = MappingProxyType(
    {
        "newer_head": "a newer head came first",
        "change_closed": "the change was closed first",
        "same_commit": "another event tells of the same commit",
    }
)


def state_phrase(state: str) -> str:
    """A dispatch's state as people read it."""
    return STATES.get(state, state.replace("_", " "))


def outcome_phrase(outcome: Outcome) -> str:
    """An outcome as a short label."""
    return PHRASES[outcome].label


def reason_phrase(reason_code: str, reason: str) -> str:
    """Why something was decided, as one line of plain text; the code stands in where no sentence was kept."""
    said = plain(reason, 300) or _REASONS.get(reason_code) or plain(reason_code, 80).replace("_", " ")
    return said.rstrip(". ")


# --- Times and numbers -----------------------------------------------------------------------------------------------


def clock(at: datetime, beside: datetime | None = None) -> str:
    """A time of day in UTC, with its date where that differs from the day of ``beside``."""
    if beside is not None and at.date() != beside.date():
        return f"{at:%H:%M} UTC on {at.day} {at:%b}"
    return f"{at:%H:%M} UTC"


def span(time: timedelta | float) -> str:
    """A length of time in at most two units: ``6 h``, ``1 h 12 min``, ``42 s``."""
    seconds = round(time.total_seconds() if isinstance(time, timedelta) else time)
    for unit, inner, word, small in ((86_400, 3_600, "d", "h"), (3_600, 60, "h", "min"), (60, 1, "min", "s")):
        if seconds >= unit:
            rest = seconds % unit // inner
            return f"{seconds // unit} {word}" + (f" {rest} {small}" if rest else "")
    return f"{seconds} s"


def several(count: int, noun: str) -> str:
    """``1 job``, ``12 jobs``, ``1,234 tests``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def listing(names: Iterable[str], most: int) -> str:
    """``a``, ``a and b``, ``a, b and 3 more``."""
    every = list(names)
    if len(every) > most:
        return f"{', '.join(every[:most])} and {len(every) - most} more"
    return " and ".join(filter(None, [", ".join(every[:-1]), *every[-1:]]))


# --- Endings that no result decides ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a check that is still open ends without a result."""

    title: str
    sentence: str


def superseded(by: str | None) -> Ending:
    """The head is not the pull request's any more."""
    newer = f"by {by[:7]}" if by else "by a newer commit"
    shown = f"by `{by[:12]}`" if by else "by a newer commit"
    return Ending(
        f"Superseded {newer}",
        f"This commit was superseded {shown} before its checks had finished; the newer one has checks of its own. "
        "Results that still come for this commit are kept and shown on the relay's pages.",
    )


def over(kind: str) -> Ending:
    """The change was closed or landed, or the merge queue has dropped the group."""
    what = "merge group is gone" if kind == "merge_group" else "pull request was closed"
    return Ending(
        f"Cancelled: the {what}",
        f"The {what} before this check had finished. If it comes back, the check is computed anew.",
    )


def unlabelled(label_prefix: str, device: str | None) -> Ending:
    """The label that shows an L3 backend's check was taken off, or is another one since its device changed."""
    label = f"{label_prefix}{device or ''}"
    return Ending(
        plain(f"Label {label} is not set", MAX_TITLE),
        f"The label {code(label)} is not set, so this backend's check is not shown any more. Its results are still "
        "kept. Adding the label shows them.",
    )


def demoted(backend: RepoName, level: Level | None) -> Ending:
    """The backend's level went down, or its entry is gone, since it was told."""
    if level is None:
        return Ending(
            f"{backend} has left the allowlist",
            f"`{backend}` is not on the allowlist any more, so its check ends here and nothing waits for it.",
        )
    return Ending(
        f"{backend} is at {level} now, which has no check",
        f"`{backend}` is at level {level} now, which shows no check, so this one ends here and nothing waits "
        "for it. Its results are still kept and shown on the relay's pages.",
    )


def labelled_now(backend: RepoName, level: Level, label_prefix: str, device: str | None) -> Ending:
    """The backend's level went down to one whose check shows by a label that is not there."""
    label = code(f"{label_prefix}{device or ''}")
    return Ending(
        f"{backend} is at {level} now, which shows its check by a label",
        f"`{backend}` is at level {level} now, whose check shows while the label {label} is there, so this one ends "
        "here and nothing waits for it. Its results are still kept. Adding the label shows them.",
    )


def not_called(backend: RepoName, reason: str) -> Ending:
    """A later decision left the backend out."""
    return Ending(
        f"{backend} was not called",
        f"`{backend}` is not called for this change: {prose(reason)}.",
    )


def deadline_sentence(
    outcome: Outcome, *, queue: timedelta, run: timedelta, reported: int, expected: int | None
) -> str:
    """Why a deadline concluded this, for the audit trail and the backend's page."""
    jobs = several(reported, "job") if expected is None else f"{reported:,} of {several(expected, 'job')}"
    sentences = {
        Outcome.SILENT: f"told, and nothing was reported within {span(queue)}",
        Outcome.UNDELIVERED: "it could not be told before its time was over",
        Outcome.LOST: f"started, and not all results came within {span(run)} ({jobs} known)",
        Outcome.INCOMPLETE: f"what was expected was not all there within {span(run)} ({jobs} reported)",
        Outcome.TIMED_OUT: f"still running when the gate's time was over ({jobs} known)",
    }
    return sentences.get(outcome, f"not everything was reported, and GitHub shows its run so ({jobs} known)")


# --- Claimed and observed --------------------------------------------------------------------------------------------

#: What stands beside a claim that nobody could hold against GitHub.
CLAIMED_ONLY = "claimed only"
_KNOWN = frozenset(map(str, Conclusion))


def seen_phrase(conclusion: str | None, observed: str | None) -> str:
    """How a leg's claim compares with what GitHub shows; empty while nothing is claimed."""
    if conclusion is None:
        return ""
    if observed is None:
        return CLAIMED_ONLY
    if observed == conclusion:
        return "verified"
    # GitHub has conclusions of its own beside ours, and may have more tomorrow.
    if observed in _KNOWN and disputed(Conclusion(conclusion), Conclusion(observed)):
        return f"disputed: GitHub shows {observed}"
    return f"GitHub shows {observed}"


def denied(runs: Iterable[RunShown]) -> str:
    """Which runs GitHub shows otherwise than was claimed."""
    told = [
        f"run {one.run_id} (attempt {one.run_attempt}) as {one.conclusion}"
        for one in runs
        if one.conclusion is not None and disputed(Conclusion.SUCCESS, one.conclusion)
    ]
    return f"Success was reported, and GitHub shows {listing(told, 3) or 'a job of it otherwise'}."


def seen_unreported(runs: Iterable[RunShown]) -> str:
    """What GitHub shows of a backend that has reported nothing; empty where it shows no run either."""
    told = [f"run {one.run_id}, which {_ended_as(one.conclusion)}" for one in runs]
    return f"Nothing was reported. GitHub shows {listing(told, 3)}." if told else ""


def _ended_as(conclusion: Conclusion | None) -> str:
    return "goes on" if conclusion is None else f"ended as {conclusion}"


def not_observable(detail: str) -> str:
    """Why claims could not be held against GitHub."""
    return f"Claimed only: the backend's runs could not be looked at ({plain(detail, 300).rstrip('. ')})."


def not_at_github() -> str:
    """The backend's runs are on another service."""
    return "Claimed only: its runs are not at GitHub."


def run_gone(run_id: str) -> str:
    """A run that was reported on does not exist, or was deleted."""
    return f"Claimed only: GitHub does not have the run {plain(run_id, 60)} any more."


def other_workflow(path: str) -> str:
    """The run is of another workflow file than the entry names."""
    return f"Its run is of the workflow file {plain(path, 120)}, which is not the one its entry names."
