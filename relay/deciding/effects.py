"""The vocabulary of effects: everything the relay does to the outside, as values that can be stored and printed.

An effect names its subject by our own row, its lane (what must stay in order) and its pacing key (whose limits hold
it back). ``relay.perform`` knows how to do each; ``relay.deciding.plan`` and the sweep only say that it is wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType

from allowlist.model import Level, RepoName


class Kind(StrEnum):
    """What an effect does."""

    DISPATCH = "dispatch"  # Tell one backend of one change.
    DECIDE_PATHS = "decide_paths"  # Ask GitHub for the changed files, then dispatch or record the filter.
    RECONCILE_CHECK = "reconcile_check"  # Make one check run show what our record says.
    FORWARD_HUD = "forward_hud"  # Send one report to the HUD.
    PIN_BACKEND = "pin_backend"  # Learn and pin a repository's ids.
    CONFIRM_COMMIT = "confirm_commit"  # Is a self-reported commit upstream's?
    RUN_COMMAND = "run_command"  # Decide what a person asked for, once their role is known.
    RERUN = "rerun"  # Ask GitHub to run again, or dispatch anew where it cannot.
    CANCEL_RUNS = "cancel_runs"  # Ask GitHub to cancel what a closed change still runs.
    OBSERVE = "observe"  # Look at the runs of one dispatch at GitHub.
    RECONCILE_COMMENT = "reconcile_comment"  # Make one comment say what our record says.


#: GitHub's secondary limits are per app and account. The repository named first tells the account; the HUD has none.
HUD_PACING = "hud"


def pacing_of(repo: RepoName) -> str:
    """The account whose installation limits an effect on this repository."""
    return f"account {repo.owner}"


# Smaller goes first. Within one priority the newest heads go first where that matters (see ``dispatch_priority``).
GATE_PRIORITY = -1000
PRIORITY: Mapping[Kind, int] = MappingProxyType(
    {
        Kind.DISPATCH: 0,
        Kind.DECIDE_PATHS: 0,
        Kind.RECONCILE_CHECK: -500,
        # Few at once (``relay.store.claiming``), and these before the rest: under steady load nothing would come after.
        Kind.FORWARD_HUD: -900,
        Kind.PIN_BACKEND: 100,
        Kind.CONFIRM_COMMIT: 300,
        Kind.RUN_COMMAND: -400,
        Kind.RERUN: -100,
        Kind.CANCEL_RUNS: 50,
        Kind.OBSERVE: 200,
        Kind.RECONCILE_COMMENT: -50,
    }
)


def dispatch_priority(level: Level) -> int:
    """Backends that can block a merge are told first."""
    return PRIORITY[Kind.DISPATCH] - int(level)


@dataclass(frozen=True, slots=True)
class NewEffect:
    """An effect to be written down."""

    kind: Kind
    lane: str
    pacing: str
    subject_id: int = 0
    subject: str = ""
    priority: int = 0
    delay: timedelta = timedelta()
    #: At most one waiting effect carries the same key; a second would only repeat the first.
    coalesce_key: str | None = None


def dispatch_lane(backend: RepoName, thread: str) -> str:
    """A backend hears of one pull request (or ref) in the order in which we decided."""
    return f"dispatch {backend} {thread}"


def send_dispatch(dispatch_id: int, backend: RepoName, thread: str, level: Level) -> NewEffect:
    """Tell this backend of the change its dispatch row names."""
    return NewEffect(
        Kind.DISPATCH,
        dispatch_lane(backend, thread),
        pacing_of(backend),
        subject_id=dispatch_id,
        subject=str(backend),
        priority=dispatch_priority(level),
    )


def decide_paths(dispatch_id: int, backend: RepoName, thread: str, level: Level, upstream: RepoName) -> NewEffect:
    """Look at the changed files before deciding. In the lane of the dispatch, because it decides on it."""
    return NewEffect(
        Kind.DECIDE_PATHS,
        dispatch_lane(backend, thread),
        pacing_of(upstream),
        subject_id=dispatch_id,
        subject=str(backend),
        priority=dispatch_priority(level),
    )


def reconcile_check(
    check_id: int, head_sha: str, upstream: RepoName, *, gate: bool, delay: timedelta = timedelta()
) -> NewEffect:
    """Make the check run show what our record says, ``delay`` from now at the earliest."""
    return NewEffect(
        Kind.RECONCILE_CHECK,
        f"check {head_sha} {check_id}",
        pacing_of(upstream),
        subject_id=check_id,
        subject=head_sha,
        priority=GATE_PRIORITY if gate else PRIORITY[Kind.RECONCILE_CHECK],
        delay=delay,
        coalesce_key=f"check {check_id}",
    )


def forward_hud(report_id: int, dispatch_id: int, job_name: str) -> NewEffect:
    """Send a report to the HUD. Reports of one job stay in order; jobs do not wait for each other."""
    return NewEffect(
        Kind.FORWARD_HUD,
        f"hud {dispatch_id} {job_name}"[:512],
        HUD_PACING,
        subject_id=report_id,
        priority=PRIORITY[Kind.FORWARD_HUD],
    )


def pin_backend(backend: RepoName) -> NewEffect:
    """Learn the repository's ids from GitHub, so that its reports can be authorised."""
    return NewEffect(
        Kind.PIN_BACKEND,
        f"pin {backend}",
        pacing_of(backend),
        subject=str(backend),
        priority=PRIORITY[Kind.PIN_BACKEND],
        coalesce_key=f"pin {backend}",
    )


def confirm_commit(change_id: int, head_sha: str, upstream: RepoName) -> NewEffect:
    """Ask upstream whether it has a commit that a backend reported on by itself."""
    return NewEffect(
        Kind.CONFIRM_COMMIT,
        f"confirm {head_sha}",
        pacing_of(upstream),
        subject_id=change_id,
        subject=head_sha,
        priority=PRIORITY[Kind.CONFIRM_COMMIT],
        coalesce_key=f"confirm {head_sha}",
    )


def run_command(command_id: int, number: int | None, upstream: RepoName) -> NewEffect:
    """Decide a command. Those of one pull request are decided in the order in which they came."""
    return NewEffect(
        Kind.RUN_COMMAND,
        f"command {number}",
        pacing_of(upstream),
        subject_id=command_id,
        priority=PRIORITY[Kind.RUN_COMMAND],
    )


def rerun(dispatch_id: int, backend: RepoName, run_id: str, *, only_failed: bool) -> NewEffect:
    """Run one run of a dispatch again, wholly or what failed of it."""
    mode = "failed" if only_failed else "all"
    return NewEffect(
        Kind.RERUN,
        f"rerun {dispatch_id}",
        pacing_of(backend),
        subject_id=dispatch_id,
        subject=f"{mode} {run_id}",
        priority=PRIORITY[Kind.RERUN],
        coalesce_key=f"rerun {dispatch_id} {run_id}",
    )


def cancel_runs(dispatch_id: int, backend: RepoName, delay: timedelta = timedelta()) -> NewEffect:
    """Cancel the known runs of a dispatch that nobody waits for any more."""
    return NewEffect(
        Kind.CANCEL_RUNS,
        f"cancel {dispatch_id}",
        pacing_of(backend),
        subject_id=dispatch_id,
        subject=str(backend),
        priority=PRIORITY[Kind.CANCEL_RUNS],
        delay=delay,
        coalesce_key=f"cancel {dispatch_id}",
    )


def observe(dispatch_id: int, backend: RepoName, *, delay: timedelta = timedelta()) -> NewEffect:
    """Look at the runs of a dispatch at GitHub, ``delay`` from now at the earliest."""
    return NewEffect(
        Kind.OBSERVE,
        f"observe {dispatch_id}",
        pacing_of(backend),
        subject_id=dispatch_id,
        subject=str(backend),
        priority=PRIORITY[Kind.OBSERVE],
        delay=delay,
        coalesce_key=f"observe {dispatch_id}",
    )


def reconcile_comment(comment_id: int, number: int, upstream: RepoName) -> NewEffect:
    """Make a comment say what our record says."""
    return NewEffect(
        Kind.RECONCILE_COMMENT,
        f"comment {number} {comment_id}",
        pacing_of(upstream),
        subject_id=comment_id,
        priority=PRIORITY[Kind.RECONCILE_COMMENT],
        coalesce_key=f"comment {comment_id}",
    )
