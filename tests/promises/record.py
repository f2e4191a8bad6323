"""The simulator's notes as plain values: what was sent to the relay, and what the relay did at GitHub and the HUD.

Times are seconds since the epoch, on the simulator's clock. ``began`` and ``ended`` bound an exchange.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from relay.simulator import LoggedRequest, Simulator
from relay.simulator.model import Repository
from relay.simulator.webhooks import Delivery

_EVENTS = frozenset({"pull_request", "push", "merge_group", "issue_comment"})
_ZERO = "0" * 40


@dataclass(frozen=True, slots=True)
class Event:
    """What happened upstream, and how the relay answered its webhook.

    ``happened`` is GitHub's time. ``accepted`` bounds the first exchange that ended with a 2xx; None where none did.
    ``files`` are those that the head changes, ``moved_base`` tells an edit of the base from any other edit.
    """

    guid: str
    name: str
    action: str
    thread: str
    head_sha: str
    happened: float
    accepted: tuple[float, float] | None
    closed: bool = False
    ref: str = ""
    base_ref: str = ""
    labels: frozenset[str] = frozenset()
    label: str = ""
    author_association: str = ""
    files: frozenset[str] = frozenset()
    text: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One request to dispatch, as GitHub saw it. ``effect`` says that it started what it asked for."""

    backend: str
    token: str
    delivery_id: str
    origin: str
    head_sha: str
    kind: str
    action: str
    ref: str
    began: float
    ended: float
    status: int
    effect: bool
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """One callback that a backend sent. ``answer`` is the relay's status, 0 where no answer came."""

    backend: str
    token: str
    delivery_id: str
    run_id: str
    attempt: str
    job: str
    check_run_id: str
    status: str
    conclusion: str | None
    began: float
    ended: float
    answer: int

    @property
    def key(self) -> tuple[str, ...]:
        """What one and the same report has in common, however often it is sent."""
        return _key(self)

    @property
    def may_be_kept(self) -> bool:
        """Whether the relay may have taken it: it said so, or its answer was lost on the way."""
        return self.answer in {200, 0} or self.answer >= 500


@dataclass(frozen=True, slots=True)
class Row:
    """One report as the HUD got it."""

    backend: str
    delivery_id: str
    run_id: str
    attempt: str
    job: str
    check_run_id: str
    status: str
    conclusion: str | None
    at: float

    @property
    def key(self) -> tuple[str, ...]:
        """The report that it is a row of."""
        return _key(self)


def _key(of: Report | Row) -> tuple[str, ...]:
    leg = (of.backend, of.delivery_id, of.run_id, of.attempt, of.job, of.check_run_id)
    return (*leg, of.status, of.conclusion or "")


@dataclass(frozen=True, slots=True)
class CheckWrite:
    """One write to a check run that took effect. ``run`` is its id at GitHub, ``conclusion`` None while it is open."""

    repository: str
    run: int
    name: str
    head_sha: str
    status: str
    conclusion: str | None
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class OtherWrite:
    """Any other request that changed something at GitHub."""

    repository: str
    method: str
    path: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """GitHub said of a backend what waiting does not mend."""

    backend: str
    at: float
    status: int


@dataclass(frozen=True, slots=True)
class Record:
    """All of it. Names of repositories are in lower case."""

    upstream: str
    events: tuple[Event, ...] = ()
    requests: tuple[Request, ...] = ()
    reports: tuple[Report, ...] = ()
    rows: tuple[Row, ...] = ()
    checks: tuple[CheckWrite, ...] = ()
    writes: tuple[OtherWrite, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    answer_seconds: tuple[float, ...] = field(default=(), repr=False)

    @property
    def delivered(self) -> tuple[Request, ...]:
        """The dispatches that took effect."""
        return tuple(one for one in self.requests if one.effect)


#: Time does not mend these; 403 is left to the scripted ones, since limits are 403 too.
_FOR_GOOD = frozenset({401, 404, 410, 422})
_FOR_GOOD_FAULTS = frozenset({"missing permission", "archived", "gone", "not found"})


def record_of(sim: Simulator, upstream: str = "pytorch/pytorch") -> Record:
    """Take the notes of this simulator. Nothing may be sent meanwhile."""
    home = sim.world.by_name[upstream.lower()]
    requests: list[Request] = []
    checks: list[CheckWrite] = []
    writes: list[OtherWrite] = []
    refusals: list[Refusal] = []
    for entry in sim.log:
        name = (entry.repository_name or "").lower()
        if entry.method == "POST" and entry.path.endswith("/dispatches"):
            requests.append(_request(entry, name))
        elif "/check-runs" in entry.path and entry.method in {"POST", "PATCH"}:
            if entry.effect:
                checks.append(_check_write(entry, name, home))
        elif entry.effect and entry.method != "GET" and not entry.path.startswith(("/app/", "/hud/", "/_actions/")):
            writes.append(OtherWrite(name, entry.method, entry.path))
        if name and name != upstream.lower() and (entry.status in _FOR_GOOD or entry.fault in _FOR_GOOD_FAULTS):
            refusals.append(Refusal(name, entry.at.timestamp(), entry.status))
    return Record(
        upstream=upstream.lower(),
        events=tuple(_events(sim, home)),
        requests=tuple(requests),
        reports=tuple(
            Report(
                backend=call.backend.lower(),
                token=call.token,
                delivery_id=call.delivery_id,
                run_id=call.run_id,
                attempt=call.attempt,
                job=call.job,
                check_run_id=call.check_run_id,
                status=call.status,
                conclusion=call.conclusion,
                began=call.began.timestamp(),
                ended=call.ended.timestamp(),
                answer=call.answer,
            )
            for call in list(sim.callbacks)
        ),
        rows=tuple(_row(row.body, row.at.timestamp()) for row in list(sim.hud.rows)),
        checks=tuple(checks),
        writes=tuple(writes),
        refusals=tuple(refusals),
        answer_seconds=tuple(one.response.seconds for one in sim.deliveries if one.ok),
    )


def _request(entry: LoggedRequest, backend: str) -> Request:
    payload = _mapping(_mapping(entry.body).get("client_payload"))
    relay, told = _mapping(payload.get("relay")), _mapping(payload.get("payload"))
    ended = entry.at.timestamp()
    return Request(
        backend=backend,
        token=str(relay.get("token", "")),
        delivery_id=str(payload.get("delivery_id", "")),
        origin=str(relay.get("origin_delivery", "")),
        head_sha=str(_mapping(relay.get("change")).get("head_sha", "")),
        kind=str(_mapping(entry.body).get("event_type", "")),
        action=str(told.get("action", "")),
        ref=str(told.get("ref", "")),
        began=ended - (entry.ended - entry.began),
        ended=ended,
        status=entry.status,
        effect=entry.effect,
        fault=entry.fault,
    )


def _check_write(entry: LoggedRequest, repository: str, home: Repository) -> CheckWrite:
    body = _mapping(entry.body)
    last = entry.path.rpartition("/")[2]
    run = home.check_runs.get(int(last)) if last.isdigit() else None
    name, head = (run.name, run.head_sha) if run is not None else (str(body.get("name")), str(body.get("head_sha")))
    # A conclusion completes a check, whether or not the status is named.
    # https://docs.github.com/en/rest/checks/runs#update-a-check-run
    conclusion = body.get("conclusion")
    ended = entry.at.timestamp()
    return CheckWrite(
        repository=repository,
        run=run.id if run is not None else 0,
        name=name,
        head_sha=head,
        status="completed" if conclusion else str(body.get("status", "")),
        conclusion=conclusion,
        began=ended - (entry.ended - entry.began),
        ended=ended,
    )


def _row(body: Any, at: float) -> Row:
    kept = _mapping(_mapping(_mapping(body).get("untrusted")).get("callback_payload"))
    stated = _mapping(kept.get("workflow"))
    return Row(
        backend=str(_mapping(_mapping(body).get("trusted")).get("verified_repo", "")).lower(),
        delivery_id=str(kept.get("delivery_id", "")),
        run_id=str(stated.get("run_id", "")),
        attempt=str(stated.get("run_attempt", "")),
        job=str(stated.get("job_name", "")),
        check_run_id=str(stated.get("check_run_id", "")),
        status=str(stated.get("status", "")),
        conclusion=stated.get("conclusion"),
        at=at,
    )


def _events(sim: Simulator, home: Repository) -> Iterator[Event]:
    by_guid: dict[str, list[Delivery]] = {}
    for delivery in sim.deliveries:
        if delivery.repository_id == home.id and delivery.event in _EVENTS:
            by_guid.setdefault(delivery.guid, []).append(delivery)
    lines = _Lines(home)
    for guid, tries in by_guid.items():
        payload = tries[0].payload
        if payload.get("deleted") or (payload.get("action") == "edited" and "base" not in payload["changes"]):
            continue
        taken = next((one for one in tries if one.ok), None)
        accepted = None
        if taken is not None:
            began = taken.delivered_at.timestamp()
            accepted = (began, began + taken.response.seconds)
        yield _event(guid, tries[0], payload, accepted, lines)


def _event(guid: str, first: Delivery, payload: Any, accepted: tuple[float, float] | None, lines: _Lines) -> Event:
    given: dict[str, Any] = {"guid": guid, "name": first.event, "action": str(payload.get("action", ""))}
    given |= {"happened": first.delivered_at.timestamp(), "accepted": accepted}
    if first.event == "pull_request":
        pull = payload["pull_request"]
        head = str(pull["head"]["sha"])
        return Event(
            **given,
            thread=f"pull {payload['number']}",
            head_sha=head,
            closed=pull["state"] == "closed",
            base_ref=str(pull["base"]["ref"]),
            labels=frozenset(label["name"].lower() for label in pull["labels"]),
            label=str(payload.get("label", {}).get("name", "")).lower(),
            author_association=str(pull["author_association"]),
            files=lines.files(head, str(pull["base"]["ref"])),
        )
    if first.event == "push":
        commits = payload["commits"]
        files = {path for one in commits for key in ("added", "removed", "modified") for path in one[key]}
        ref, after = str(payload["ref"]), str(payload["after"])
        return Event(**given, thread=f"push {ref}", head_sha=after, ref=ref, files=frozenset(files))
    if first.event == "merge_group":
        group = payload["merge_group"]
        head = str(group["head_sha"])
        closed = payload["action"] == "destroyed"
        base = str(group["base_ref"]).removeprefix("refs/heads/")
        return Event(**given, thread=f"group {head}", head_sha=head, base_ref=base, closed=closed)
    number, text = payload["issue"]["number"], str(payload["comment"]["body"])
    return Event(**given, thread=f"comment {number}", head_sha="", text=text)


class _Lines:
    """The commits of each branch, by first parents, and what a head changes since it left the one it is for."""

    def __init__(self, home: Repository) -> None:
        self._home = home
        self._known: dict[str, frozenset[str]] = {}

    def files(self, head: str, branch: str) -> frozenset[str]:
        """The paths that this head changes."""
        line = self._known.get(branch)
        if line is None:
            line = self._known[branch] = frozenset(self._of(branch))
        found: set[str] = set()
        commit = self._home.network.commits[head]
        while commit.sha not in line and commit.parents:
            parent = self._home.network.commits[commit.parents[0]]
            if commit.tree is not parent.tree:
                found |= {path for path, _ in commit.tree.items() ^ parent.tree.items()}
            commit = parent
        return frozenset(found)

    def _of(self, branch: str) -> Iterator[str]:
        at: str | None = self._home.refs[f"refs/heads/{branch}"]
        while at is not None:
            yield at
            parents = self._home.network.commits[at].parents
            at = parents[0] if parents else None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
