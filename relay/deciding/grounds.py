"""What a decision stood on, as text: kept with each delivery, so that the decision can be made once more.

A plan is a pure function of an event, the allowlist and what was known of the thread. The allowlist's text is kept by
its digest (``relay.store.documents``); the rest is here. Free text that no decision looks at (titles, messages) is left
out: the delivery's own payload has it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from allowlist.model import Allowlist, Level, RepoName
from relay.deciding.events import MergeGroupEvent, PullRequestEvent, PushEvent
from relay.deciding.known import Elsewhere, Known, KnownDispatch, KnownHead
from relay.deciding.plan import Decision, NewDispatch, plan
from relay.deciding.plan_queue import KnownGroup, KnownTold, plan_group
from relay.texts.label_help import label_help

Decidable = PullRequestEvent | PushEvent | MergeGroupEvent

#: What is kept for one delivery at most, in characters. A thread with thousands of heads may need more, and its
#: decision is then counted as one that cannot be made again.
MOST = 200_000

_FORMAT = 1
_EVENTS = {"pull_request": PullRequestEvent, "push": PushEvent, "merge_group": MergeGroupEvent}
_UNREAD = frozenset({"title", "message", "html_url"})
_REPOS = frozenset({"head_repo", "base_repo", "repository"})
_TIMES = frozenset({"updated_at", "pushed_at"})


class UnreadableGroundError(ValueError):
    """This text is no ground that this version can read."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Everything beside the allowlist's text that a decision was made from.

    ``lowered`` are the levels that an admin had lowered, ``stood`` the backends for which an earlier dispatch of the
    same commit stood because it had been sent meanwhile, ``left_out`` those that took no part.
    """

    event: Decidable
    known: Known | KnownGroup
    digest: str
    lowered: tuple[tuple[RepoName, Level], ...] = ()
    prefixes: tuple[str, ...] = ()
    stood: frozenset[str] = frozenset()
    left_out: tuple[tuple[RepoName, str, str], ...] = ()


def ground_of(
    event: Decidable,
    known: Known | KnownGroup,
    allowlist: Allowlist,
    prefixes: Sequence[str] = (),
    stood: Collection[str] = (),
) -> Ground:
    """The ground of a decision that was just made."""
    lowered = tuple((entry.repo, entry.level) for entry in allowlist.entries if entry.lowered_from is not None)
    return Ground(event, known, allowlist.digest, lowered, tuple(prefixes), frozenset(stood), allowlist.left_out)


def ground_text(ground: Ground) -> str | None:
    """The ground as it is kept, or None where it is too large for that."""
    name = next(name for name, kind in _EVENTS.items() if isinstance(ground.event, kind))
    text = json.dumps(
        {
            "v": _FORMAT,
            "of": name,
            "event": _event_values(ground.event),
            "known": _group_values(ground.known) if isinstance(ground.known, KnownGroup) else _values(ground.known),
            "allowlist": ground.digest,
            **({"lowered": {str(repo): int(level) for repo, level in ground.lowered}} if ground.lowered else {}),
            **({"prefixes": ground.prefixes} if ground.prefixes else {}),
            **({"stood": sorted(ground.stood)} if ground.stood else {}),
            **({"left_out": {str(repo): why for repo, *why in ground.left_out}} if ground.left_out else {}),
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )
    return text if len(text) <= MOST else None


def read_ground(text: str) -> Ground:
    """The ground that was kept. Raises UnreadableGroundError."""
    try:
        raw = json.loads(text)
        if raw["v"] != _FORMAT:
            raise UnreadableGroundError(f"format {raw['v']} is of another version than this")
        known = raw["known"]
        return Ground(
            event=_event(raw["of"], raw["event"]),
            known=_group(known) if raw["of"] == "merge_group" else _known(known),
            digest=str(raw["allowlist"]),
            lowered=tuple((RepoName.parse(repo), Level(level)) for repo, level in raw.get("lowered", {}).items()),
            prefixes=tuple(raw.get("prefixes", ())),
            stood=frozenset(raw.get("stood", ())),
            left_out=tuple(
                (RepoName.parse(repo), str(code), str(said)) for repo, (code, said) in raw.get("left_out", {}).items()
            ),
        )
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise UnreadableGroundError(str(error)) from None


def decide_again(ground: Ground, allowlist: Allowlist, delivery_id: str, received_at: datetime) -> str:
    """The decisions that this allowlist leads to, as ``plan_text`` writes them."""
    event = ground.event
    listed = _lower(allowlist, ground.lowered).without({repo: (code, said) for repo, code, said in ground.left_out})
    if isinstance(event, MergeGroupEvent):
        group = ground.known if isinstance(ground.known, KnownGroup) else KnownGroup()
        return plan_text(plan_group(event, delivery_id=delivery_id, allowlist=listed, known=group).decisions, ())
    known = ground.known if isinstance(ground.known, Known) else Known()
    made = plan(
        event,
        delivery_id=delivery_id,
        received_at=received_at,
        allowlist=listed,
        known=known,
        label_prefixes=ground.prefixes,
        fresh_id=lambda: "",
    )
    dispatches, decisions = let_stand(made.dispatches, made.decisions, ground.stood)
    if isinstance(event, PullRequestEvent) and ground.prefixes and label_help(event, listed, ground.prefixes):
        decisions += (LABEL_UNKNOWN,)
    return plan_text(decisions, dispatches)


#: Somebody put on a label that no entry knows, and is told so.
LABEL_UNKNOWN = Decision("comment", "", "label_unknown")


def let_stand(
    dispatches: Sequence[NewDispatch], decisions: Sequence[Decision], stood: Collection[str]
) -> tuple[tuple[NewDispatch, ...], tuple[Decision, ...]]:
    """A plan's dispatches and decisions, where for these backends an earlier dispatch of the commit stands."""
    replaced = {
        str(told.entry.repo): told.otherwise
        for told in dispatches
        if told.otherwise is not None and str(told.entry.repo) in stood
    }
    return (
        tuple(told for told in dispatches if str(told.entry.repo) not in replaced),
        tuple(replaced.get(decision.backend, decision) for decision in decisions),
    )


def _lower(allowlist: Allowlist, lowered: Sequence[tuple[RepoName, Level]]) -> Allowlist:
    """The list with these levels in force, where it does not give less by itself."""
    most = dict(lowered)
    if not most:
        return allowlist
    entries = tuple(
        replace(entry, level=min(entry.level, most.get(entry.repo, entry.level))) for entry in allowlist.entries
    )
    return replace(allowlist, entries=entries)


def plan_text(decisions: Sequence[Decision], dispatches: Sequence[NewDispatch]) -> str:
    """The decisions as they are kept. Where changed files decide, the patterns in force stand with the decision."""
    patterns = {str(told.entry.repo): told.entry.paths for told in dispatches if told.by_paths}
    rows: list[dict[str, object]] = []
    for decision in decisions:
        row: dict[str, object] = {
            "effect": decision.effect,
            "backend": decision.backend,
            "reason": decision.reason,
        }
        if decision.detail:
            row["detail"] = decision.detail
        if decision.backend in patterns:
            row["paths"] = patterns[decision.backend]
        rows.append(row)
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"))


# --- As JSON ---------------------------------------------------------------------------------------------------------


def _event_values(event: Decidable) -> dict[str, object]:
    return {
        each.name: _plain(getattr(event, each.name))
        for each in fields(event)
        if each.name not in _UNREAD and getattr(event, each.name) not in (None, False, "", ())
    }


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, RepoName) else value


def _event(name: str, raw: Mapping[str, Any]) -> Decidable:
    kind: type[Decidable] = _EVENTS[name]
    read: dict[str, Any] = {}
    for each in fields(kind):
        value = raw.get(each.name)
        if each.name in _REPOS:
            read[each.name] = None if value is None else RepoName.parse(value)
        elif each.name in _TIMES:
            read[each.name] = None if value is None else datetime.fromisoformat(value)
        elif each.name == "labels":
            read[each.name] = tuple(value or ())
        elif value is None and each.type in {"str", "bool"}:
            read[each.name] = "" if each.type == "str" else False
        else:
            read[each.name] = value
    return kind(**read)


def _values(known: Known) -> dict[str, object]:
    at = {head.head_sha: number for number, head in enumerate(known.heads)}
    return {
        "heads": [
            [
                head.id,
                head.head_sha,
                head.state,
                head.updated_at.isoformat(),
                head.labels,
                head.came_from,
                head.action,
                head.payload_delivery,
            ]
            for head in known.heads
        ],
        "told": [
            # Fifty backends may have been told of one head, whose name is long: its place says it shorter.
            [
                told.id,
                at.get(told.head_sha, told.head_sha),
                str(told.backend),
                told.purpose,
                told.state,
                told.reason_code,
                int(told.every_commit),
            ]
            for told in known.dispatches
        ],
        "elsewhere": [[one.id, str(one.backend), one.ref, one.state] for one in known.elsewhere],
        "paused": {str(repo): why for repo, why in known.paused.items()},
    }


def _known(raw: Mapping[str, Any]) -> Known:
    heads = tuple(
        KnownHead(number, sha, state, datetime.fromisoformat(at), tuple(labels), came_from, action, payload)
        for number, sha, state, at, labels, came_from, action, payload in raw["heads"]
    )
    return Known(
        heads=heads,
        dispatches=tuple(
            KnownDispatch(
                number,
                heads[sha].head_sha if isinstance(sha, int) else sha,
                RepoName.parse(backend),
                purpose,
                state,
                reason,
                bool(every),
            )
            for number, sha, backend, purpose, state, reason, every in raw["told"]
        ),
        elsewhere=tuple(
            Elsewhere(number, RepoName.parse(backend), ref, state) for number, backend, ref, state in raw["elsewhere"]
        ),
        paused=_paused(raw),
    )


def _group_values(known: KnownGroup) -> dict[str, object]:
    return {
        "state": known.state,
        "told": [[told.id, str(told.backend), told.state] for told in known.told],
        "paused": {str(repo): why for repo, why in known.paused.items()},
    }


def _group(raw: Mapping[str, Any]) -> KnownGroup:
    return KnownGroup(
        raw["state"],
        tuple(KnownTold(number, RepoName.parse(backend), state) for number, backend, state in raw["told"]),
        _paused(raw),
    )


def _paused(raw: Mapping[str, Any]) -> Mapping[RepoName, str]:
    return {RepoName.parse(repo): why for repo, why in raw["paused"].items()}
