"""Says what a change to the allowlist grants and withdraws, so that a reviewer need not compare two files by eye."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from allowlist.model import Allowlist, Entry, Level, RepoName, Timeouts
from allowlist.settings import KEYS


class ChangeKind(StrEnum):
    """What happened to an entry."""

    ADDED = "added"
    REMOVED = "removed"
    PROMOTED = "promoted"
    DEMOTED = "demoted"
    DEVICE = "device"
    SETTING = "setting"


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs, with one sentence of it. ``setting`` names the key of a ``SETTING``.

    ``before`` and ``after`` are the entry's value in words: its level, its device or the setting; empty where none was.
    """

    kind: ChangeKind
    repo: RepoName
    before: str
    after: str
    text: str
    setting: str = ""


# What each level adds to the one below it. L4's check shows always, so it takes the place of L3's.
_POWERS = {
    Level.L1: "being told of upstream's events",
    Level.L2: "having its results recorded and shown",
    Level.L3: "a check on pull requests that carry its label",
    Level.L4: "a check on every pull request, which can block the merge",
}


def diff(old: Allowlist, new: Allowlist) -> tuple[Change, ...]:
    """All that differs between two lists, by repository. Lines and the order of entries are no difference."""
    changes: list[Change] = []
    for repo in sorted({*old.by_repo, *new.by_repo}):
        before, after = old.get(repo), new.get(repo)
        if before is None and after is not None:
            text = f"{repo} is added at {_place(after)} and gains {_powers(None, after.level)}."
            changes.append(Change(ChangeKind.ADDED, repo, "", str(after.level), text))
        elif before is not None and after is None:
            text = f"{repo} is removed from {_place(before)} and loses {_powers(None, before.level)}."
            changes.append(Change(ChangeKind.REMOVED, repo, str(before.level), "", text))
        elif before is not None and after is not None:
            changes.extend(_compare(before, after))
    return tuple(changes)


def _compare(before: Entry, after: Entry) -> Iterable[Change]:
    repo, old, new = before.repo, before.level, after.level
    if new > old:
        text = f"{repo} is promoted from {old} to {new} and gains {_powers(old, new)}."
        yield Change(ChangeKind.PROMOTED, repo, str(old), str(new), text)
    elif new < old:
        text = f"{repo} is demoted from {old} to {new} and loses {_powers(new, old)}."
        yield Change(ChangeKind.DEMOTED, repo, str(old), str(new), text)
    if before.device != after.device:
        was, now = before.device or "none", after.device or "none"
        text = f"{repo} changes its device, and with it its label, from {was} to {now}."
        yield Change(ChangeKind.DEVICE, repo, before.device or "", after.device or "", text)
    for key in KEYS:
        was, now = _words(getattr(before, key.name)), _words(getattr(after, key.name))
        if was != now:
            text = f"{repo} changes {key.name} from {was} to {now}."
            yield Change(ChangeKind.SETTING, repo, was, now, text, key.name)


def _place(entry: Entry) -> str:
    return f"{entry.level} for device {entry.device}" if entry.device else str(entry.level)


def _powers(below: Level | None, upto: Level) -> str:
    gained = [
        power
        for level, power in _POWERS.items()
        if (below is None or level > below) and level <= upto and not (level is Level.L3 and upto is Level.L4)
    ]
    return " and ".join(filter(None, (", ".join(gained[:-1]), gained[-1])))


def _words(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, frozenset):
        return f"[{', '.join(sorted(map(str, value)))}]"
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, Timeouts):
        return f"{{queue: {_duration(value.queue)}, run: {_duration(value.run)}}}"
    return str(value)


def _duration(duration: timedelta) -> str:
    seconds = duration // timedelta(seconds=1)
    units = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
    parts: list[str] = []
    for unit, size in units:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
