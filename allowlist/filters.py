"""Decides whether a backend is told of an event, from its entry alone, and says why not.

Which filter applies to what:

- ``events`` to everything; ``actions``, ``labels``, ``authors`` to pull requests only.
- ``base`` to what aims at a branch: pull requests, merge groups, landings. ``refs`` to pushes only.
- ``paths`` to pull requests and to pushes of branches. A tag changes no files, so GitHub's own path filters let tags
  through, and so do we. A merge queue cannot wait for a look at the files, and a landing was filtered as a pull
  request.
- ``closed`` passes ``labels`` and ``paths``: a listener cancels its runs on it, also when the label has been taken off
  since, or the last push no longer touches its files. ``authors`` and ``base`` hold for it: where they say no, no run
  was ever started.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from allowlist.globs import matches_any, matches_one_of
from allowlist.model import Entry

_SHOWN = 80


class Filter(StrEnum):
    """The key of an entry that said no."""

    EVENTS = "events"
    ACTIONS = "actions"
    REFS = "refs"
    BASE = "base"
    LABELS = "labels"
    AUTHORS = "authors"
    PATHS = "paths"


@dataclass(frozen=True, slots=True)
class Subject:
    """What an entry's filters look at. Empty means that this event has no such thing.

    ``ref`` is the full ref of a push. ``base_ref`` is the branch aimed at, short or full, as GitHub writes it.
    ``labels`` are those that the pull request carries now, ``author_association`` GitHub's word in capitals.
    """

    event: str
    action: str = ""
    ref: str = ""
    base_ref: str = ""
    labels: tuple[str, ...] = ()
    author_association: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The backend is told."""


@dataclass(frozen=True, slots=True)
class NeedsPaths:
    """All filters but ``paths`` let the event through; the changed files decide, see ``decide_paths``."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """The backend is not told: which key says no, and a sentence that says why. The sentence holds outside text."""

    reason: Filter
    text: str


def decide(entry: Entry, subject: Subject) -> Wanted | NeedsPaths | Filtered:
    """What the entry's filters say about this event."""
    if subject.event not in entry.events:
        return _filtered(Filter.EVENTS, sorted(entry.events), f"this is {_shown(subject.event)}")
    if subject.event == "push":
        return _decide_push(entry, subject)
    if subject.event == "pull_request" and subject.action not in entry.actions:
        return _filtered(Filter.ACTIONS, sorted(entry.actions), f"this is {_shown(subject.action)}")
    if entry.base and subject.base_ref and not _base_matches(entry.base, subject.base_ref):
        return _filtered(Filter.BASE, entry.base, f"this aims at {_shown(subject.base_ref)}")
    if subject.event == "pull_request":
        return _decide_pull_request(entry, subject)
    return Wanted()


def _decide_push(entry: Entry, subject: Subject) -> Wanted | NeedsPaths | Filtered:
    if entry.refs and not matches_any(entry.refs, subject.ref):
        return _filtered(Filter.REFS, entry.refs, f"this is a push to {_shown(subject.ref)}")
    # https://docs.github.com/actions/reference/workflows-and-actions/workflow-syntax#onpushpull_requestpull_request_targetpathspaths-ignore
    return NeedsPaths() if entry.paths and not subject.ref.startswith("refs/tags/") else Wanted()


def _decide_pull_request(entry: Entry, subject: Subject) -> Wanted | NeedsPaths | Filtered:
    if entry.authors and subject.author_association.upper() not in entry.authors:
        whose = _shown(subject.author_association) or "not known"
        return _filtered(Filter.AUTHORS, sorted(entry.authors), f"this author's association is {whose}")
    if subject.action == "closed":
        return Wanted()
    if entry.labels and not any(waits_for_label(entry, label) for label in subject.labels):
        return _filtered(Filter.LABELS, entry.labels, f"this carries [{_shown(', '.join(subject.labels))}]")
    return NeedsPaths() if entry.paths else Wanted()


def decide_paths(entry: Entry, paths: Sequence[str], *, complete: bool = True) -> Wanted | Filtered:
    """What ``paths`` says once the changed files are known. For a renamed file pass the old name too.

    Pass ``complete=False`` where GitHub may have named only some: its list of a pull request's files ends at 3,000.
    In doubt the backend is told. No file at all is such a doubt, since GitHub answers so before it has the diff.
    """
    if not entry.paths or not paths or not complete or paths_match(entry, paths):
        return Wanted()
    changed = f"{len(paths)} file{'' if len(paths) == 1 else 's'}, such as {_shown(paths[0])}"
    return _filtered(Filter.PATHS, entry.paths, f"this changes {changed}")


def paths_match(entry: Entry, paths: Sequence[str]) -> bool:
    """Whether one of the changed files is among those the entry asks for; without ``paths`` every change is."""
    return not entry.paths or matches_one_of(entry.paths, paths)


def wants_tags(entry: Entry) -> bool:
    """Whether ``refs`` names tags, so that a tag's push is told even where a branch's told the same SHA already."""
    return any(ref.startswith("refs/tags/") for ref in entry.refs)


def waits_for_label(entry: Entry, label: str) -> bool:
    """Whether ``labels`` names this label, so that putting it on lets a change through. GitHub's labels ignore case."""
    return label.casefold() in {wanted.casefold() for wanted in entry.labels}


def _base_matches(patterns: Sequence[str], base_ref: str) -> bool:
    branch = base_ref.removeprefix("refs/heads/")
    short = [pattern.replace("refs/heads/", "", 1) if _is_full(pattern) else pattern for pattern in patterns]
    return matches_any(short, branch)


def _is_full(pattern: str) -> bool:
    return pattern.removeprefix("!").startswith("refs/heads/")


def _filtered(key: Filter, wants: Iterable[str], instead: str) -> Filtered:
    return Filtered(key, f"entry wants {key} [{_shown(', '.join(wants))}], {instead}")


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
