"""Events and knowledge to plan with, spelled out in a few words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count

from allowlist.model import Allowlist, Entry, Level, RepoName
from relay.deciding.events import PullRequestEvent, PushEvent
from relay.deciding.known import Known, KnownDispatch, KnownHead
from relay.deciding.plan import Plan, Purpose, plan

UPSTREAM = RepoName("up", "stream")
S1, S2, S3 = "1" * 40, "2" * 40, "3" * 40
T0 = datetime(2026, 11, 30, 12, tzinfo=UTC)
PREFIXES = ("ciflow/crcr/", "ciflow/oot/")
XPU = Entry(RepoName("org", "xpu"), Level.L4)
EVERY = Entry(RepoName("org", "every"), Level.L4, every_commit=True)
NPU = Entry(RepoName("org", "npu"), Level.L3, device="npu")
PICKY = Entry(RepoName("org", "picky"), Level.L2, labels=("test me",))
PATHS = Entry(RepoName("org", "paths"), Level.L2, paths=("aten/**",))


def at(minutes: float) -> datetime:
    """A moment, in minutes after T0."""
    return T0 + timedelta(minutes=minutes)


def pull_request(action: str = "opened", head_sha: str = S1, minutes: float = 0, **changes: object) -> PullRequestEvent:
    """An event of pull request 7."""
    made = PullRequestEvent(
        action=action,
        number=7,
        head_sha=head_sha,
        head_ref="topic",
        head_repo=UPSTREAM,
        base_ref="main",
        base_sha=S3,
        base_repo=UPSTREAM,
        labels=(),
        label=None,
        author="ada",
        author_association="MEMBER",
        title="Fix it",
        draft=False,
        merged=False,
        closed=action == "closed",
        merge_commit_sha=None,
        html_url="",
        updated_at=at(minutes),
        before=None,
        after=None,
        base_changed=False,
        sender="ada",
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # A test names fields that exist.


def push(ref: str = "refs/heads/main", after: str = S2, minutes: float = 0, before: str = S1) -> PushEvent:
    """A push to upstream."""
    return PushEvent(ref, before, after, None, UPSTREAM, "bot", "Land it", at(minutes))


def planned(
    event: PullRequestEvent | PushEvent, *entries: Entry, known: Known | None = None, delivery_id: str = "D"
) -> Plan:
    """The plan for an event."""
    return plan(
        event,
        delivery_id=delivery_id,
        received_at=at(60),
        allowlist=Allowlist(entries),
        known=known or Known(),
        label_prefixes=PREFIXES,
        fresh_id=fresh_ids(),
    )


def fresh_ids() -> Callable[[], str]:
    """Ids that a test can name."""
    numbers = count(1)
    return lambda: f"fresh-{next(numbers)}"


def head(head_sha: str = S1, minutes: float = 0, state: str = "open", **changes: object) -> KnownHead:
    """A head that the store knows; its id is its first digit."""
    made = KnownHead(int(head_sha[0]), head_sha, state, at(minutes), (), None, "opened", "D1")
    return replace(made, **changes)  # type: ignore[arg-type]  # As above.


def told(
    entry: Entry, head_sha: str = S1, state: str = "sent", number: int = 100, reason: str = "wanted"
) -> KnownDispatch:
    """A test dispatch that the store knows."""
    return KnownDispatch(number, head_sha, entry.repo, Purpose.TEST, state, reason, entry.every_commit)


def reasons(found: Plan) -> list[str]:
    """What was decided for each backend, without the gate."""
    return [decision.reason for decision in found.decisions if decision.effect != "check"]


def told_of(found: Plan) -> list[tuple[str, str, str]]:
    """Whom the plan tells, for what purpose, in which state."""
    return [(made.entry.repo.name, made.purpose.value, made.state) for made in found.dispatches]


def labeled(label: str, minutes: float = 5, **changes: object) -> PullRequestEvent:
    """A label was put on S1."""
    return pull_request("labeled", S1, minutes, label=label, labels=(label,), **changes)
