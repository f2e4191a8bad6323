"""May this caller report this, and does it decide? One pure function over facts; its refusals are values with a code.

The order of the checks is part of the contract: what is refused first is what the caller must mend first, and a caller
learns nothing of a dispatch that is not its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from allowlist.model import Entry, Level
from levels.powers import POWERS
from relay.deciding.terms import Terms
from relay.edge.oidc import CallerKind, VerifiedCaller
from relay.results.report import IncomingReport

#: Reruns replay the payload of their first run, and a run at GitHub may take 35 days.
CAPABILITY_LIFE = timedelta(days=35)

#: Runs that only the backend's own people, or we, can start. Anybody's fork can start the others.
_OUR_EVENT = "repository_dispatch"
_OWN_EVENTS = frozenset({"workflow_dispatch", "schedule"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a callback was not accepted. ``code`` is stable; nothing was consumed."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Bound:
    """The report may be recorded. Unless ``decides``, no verdict listens to it, and ``reason`` says why."""

    run_id: str
    run_attempt: int
    decides: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class KnownDispatch:
    """What a decision needs to know of the dispatch that a callback speaks of."""

    backend: str
    level: Level
    terms: Terms
    give_up_at: datetime | None


@dataclass(frozen=True, slots=True)
class PinnedIds:
    """A repository's ids as GitHub told us; None where it has not yet."""

    repository_id: int | None = None
    owner_id: int | None = None


def bind(
    caller: VerifiedCaller,
    report: IncomingReport,
    entry: Entry,
    *,
    dispatch: KnownDispatch | None,
    capability_is_ours: bool,
    pinned: PinnedIds,
    now: datetime,
) -> Bound | Refusal:
    """Decide over one callback of a listed caller.

    ``dispatch`` is the one that the capability, or else the delivery id, names; None for a self-report and where there
    is none. ``capability_is_ours`` says whether a key of ours made the capability; it is only read where one was sent.
    """
    mine = dispatch if dispatch is not None and dispatch.backend == str(caller.repo) else None
    return (
        _refuse_level(entry, mine)
        or _refuse_event(caller)
        or _refuse_workflow(caller, entry)
        or _refuse_run(caller, report)
        or _refuse_identity(caller, pinned)
        or (None if report.self_reported else _refuse_dispatch(caller, report, dispatch, capability_is_ours, now))
        or _bound(caller, report)
    )


def _refuse_level(entry: Entry, mine: KnownDispatch | None) -> Refusal | None:
    if POWERS[entry.level].recorded or (mine is not None and POWERS[mine.level].recorded):
        return None
    return Refusal(
        "below_l2",
        f"{entry.repo} stands at {entry.level}: it is told of events, and its results are not recorded. "
        "From L2 on they are; the allowlist says who is where.",
    )


def _refuse_event(caller: VerifiedCaller) -> Refusal | None:
    if caller.kind is CallerKind.BUILDKITE or caller.event_name == _OUR_EVENT or caller.event_name in _OWN_EVENTS:
        return None
    return Refusal(
        "event_refused",
        f"Runs of the event {caller.event_name[:60]!r} may not report, because others than the backend's own people "
        f"can start them. Report from a run of {_OUR_EVENT}, {', '.join(sorted(_OWN_EVENTS))}.",
    )


def _refuse_workflow(caller: VerifiedCaller, entry: Entry) -> Refusal | None:
    if entry.workflow is None or caller.kind is CallerKind.BUILDKITE:
        return None
    if any(_is_workflow(entry, ref) for ref in (caller.workflow_ref, caller.job_workflow_ref)):
        return None
    return Refusal(
        "wrong_workflow",
        f"The allowlist lets only the workflow {entry.workflow!r} report for {entry.repo}, "
        f"and this token is of {_path(caller.workflow_ref)[:200]!r}.",
    )


def _is_workflow(entry: Entry, ref: str) -> bool:
    """Whether ``owner/name/path@ref`` is the pinned workflow: a file name, a path, or a path with its repository."""
    wanted = (entry.workflow or "").strip().lstrip("/")
    home = f"{entry.repo}/"
    path = _path(ref)
    if path.lower().startswith(home):
        local = path[len(home) :]
        return wanted in (local, local.rpartition("/")[2]) or _same(wanted, path)
    # A called workflow of another repository is only meant where the entry names that repository.
    return _same(wanted, path)


def _path(ref: str) -> str:
    return ref.partition("@")[0]


def _same(wanted: str, path: str) -> bool:
    """Equal, and repository names compare without case."""
    ours, theirs = _path(wanted).split("/", 2), path.split("/", 2)
    return (
        len(ours) == len(theirs) == 3
        and [part.lower() for part in ours[:2]] == [part.lower() for part in theirs[:2]]
        and ours[2] == theirs[2]
    )


def _refuse_run(caller: VerifiedCaller, report: IncomingReport) -> Refusal | None:
    for name, said, proven in (
        ("run_id", report.run_id, caller.run_id),
        ("run_attempt", report.run_attempt, caller.run_attempt),
    ):
        if said is not None and proven is not None and said != proven:
            return Refusal(
                "run_mismatch",
                f"workflow.{name} is {str(said)[:60]!r}, and the token is of {str(proven)[:60]!r}. Report from the run "
                "itself, with a token that it minted.",
            )
    if report.run_id is None and caller.run_id is None:
        return Refusal("run_id_missing", "workflow.run_id is required: this token does not say which run it is of.")
    return None


def _refuse_identity(caller: VerifiedCaller, pinned: PinnedIds) -> Refusal | None:
    if caller.kind is CallerKind.BUILDKITE:
        return None  # An admin mapped the pipeline's own ids to the repository.
    if pinned.repository_id is None:
        return Refusal(
            "not_pinned_yet",
            f"The ids of {caller.repo} are not known here yet; they are being asked for. Nothing was consumed.",
        )
    owner_is_other = None not in (pinned.owner_id, caller.owner_id) and pinned.owner_id != caller.owner_id
    if pinned.repository_id != caller.repository_id or owner_is_other:
        return Refusal(
            "identity_changed",
            f"{caller.repo} is another repository than the one on record under this name. An admin must look.",
        )
    return None


def _refuse_dispatch(
    caller: VerifiedCaller,
    report: IncomingReport,
    dispatch: KnownDispatch | None,
    capability_is_ours: bool,
    now: datetime,
) -> Refusal | None:
    if report.capability is not None and not capability_is_ours:
        return Refusal("bad_capability", "relay.token is none of ours. Send the client_payload as received.")
    if dispatch is None:
        return Refusal("no_such_dispatch", f"No dispatch to {caller.repo} is known by this delivery id or capability.")
    if dispatch.backend != str(caller.repo):
        return Refusal("other_backend", f"This dispatch was not sent to {caller.repo}.")
    if report.capability is None:
        return _refuse_without_capability(caller, dispatch)
    if dispatch.give_up_at is not None and now > dispatch.give_up_at + CAPABILITY_LIFE:
        return Refusal("capability_expired", "This dispatch is too old to be reported on. Ask for a new one.")
    return None


def _refuse_without_capability(caller: VerifiedCaller, dispatch: KnownDispatch) -> Refusal | None:
    """Without a capability nothing but GitHub's word ties the run to a dispatch of ours."""
    if caller.kind is not CallerKind.GITHUB or caller.event_name != _OUR_EVENT:
        return Refusal(
            "capability_required",
            f"Without relay.token only GitHub runs of {_OUR_EVENT} may report. Send the client_payload as received.",
        )
    if dispatch.level is Level.L4 and not dispatch.terms.legacy:
        return Refusal(
            "capability_required",
            "An L4 backend's report needs relay.token. Send the client_payload as received, with the relay's own "
            "action, or have `legacy: true` set for the entry.",
        )
    return None


def _bound(caller: VerifiedCaller, report: IncomingReport) -> Bound:
    run_id = report.run_id or caller.run_id or ""
    attempt = report.run_attempt or caller.run_attempt or 1
    if report.self_reported or caller.kind is CallerKind.BUILDKITE or caller.event_name == _OUR_EVENT:
        return Bound(run_id, attempt, decides=True)
    return Bound(run_id, attempt, decides=False, reason=f"a {caller.event_name} run is recorded and decides nothing")
