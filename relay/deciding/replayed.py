"""Decisions made once more: whether they come out as they were taken, and what another allowlist would have changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from allowlist.model import Allowlist
from relay.deciding.grounds import UnreadableGroundError, decide_again, read_ground

#: Decisions that call a backend, now or once its changed files are known.
_CALLS = frozenset({"dispatch", "decide_paths"})


class Kind(StrEnum):
    """What a difference means for the backend."""

    ADDED = "added"  # It would be called, and was not.
    LOST = "lost"  # It was called, and would not be.
    OTHERWISE = "otherwise"  # Called or not as before, for another reason or with other patterns.


@dataclass(frozen=True, slots=True)
class Difference:
    """One backend's decision at one webhook, on both sides; empty where there is none on that side.

    ``backend`` is empty for what concerns the change itself, as its gate.
    """

    backend: str
    kind: Kind
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Again:
    """A webhook decided once more: how many decisions that were, and which of them differ."""

    decisions: int
    differences: tuple[Difference, ...]


class NotReplayableError(Exception):
    """These decisions cannot be made again; the message says why."""


def again(
    plan: str,
    ground: str | None,
    *,
    delivery_id: str,
    received_at: datetime,
    versions: Mapping[str, Allowlist],
    instead: Allowlist | None = None,
) -> Again:
    """Decide once more, by the allowlist that was in force or by another one ``instead``.

    ``versions`` are allowlists by their digests. What was known of the thread is as it was, also with another
    allowlist. Raises NotReplayableError.
    """
    if ground is None:
        raise NotReplayableError("what it was decided from was not kept")
    try:
        stood_on = read_ground(ground)
    except UnreadableGroundError as error:
        raise NotReplayableError(f"what it was decided from cannot be read: {error}") from None
    listed = instead if instead is not None else versions.get(stood_on.digest)
    if listed is None and stood_on.digest:
        raise NotReplayableError("the allowlist that was in force is forgotten")
    listed = listed or Allowlist()  # An empty one has no digest.
    found = decide_again(stood_on, listed, delivery_id, received_at)
    return Again(len(json.loads(plan)), differences(plan, found))


def digest_of(ground: str | None) -> str | None:
    """Which allowlist a decision stood on, if that was kept."""
    try:
        return None if ground is None else read_ground(ground).digest
    except UnreadableGroundError:
        return None


def differences(before: str, after: str) -> tuple[Difference, ...]:
    """Where two kept plans differ, backend by backend."""
    ours, theirs = _by_subject(before), _by_subject(after)
    found = []
    for subject in sorted({*ours, *theirs}):
        was, would = ours.get(subject), theirs.get(subject)
        if was == would:
            continue
        called = was is not None and was["effect"] in _CALLS
        calls = would is not None and would["effect"] in _CALLS
        kind = Kind.OTHERWISE if called == calls else Kind.ADDED if calls else Kind.LOST
        found.append(Difference(subject[0], kind, _said(was), _said(would)))
    return tuple(found)


def _by_subject(plan: str) -> dict[tuple[str, str], dict[str, object]]:
    """By backend; what concerns none, by what it is."""
    return {(row["backend"], "" if row["backend"] else row["effect"]): row for row in json.loads(plan)}


def _said(row: Mapping[str, object] | None) -> str:
    if row is None:
        return ""
    detail = f": {row['detail']}" if row.get("detail") else ""
    paths = f" by {row['paths']}" if row.get("paths") else ""
    return f"{row['effect']} ({row['reason']}){detail}{paths}"
