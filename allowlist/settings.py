"""The keys of an entry's mapping: how each is read, what it is when left out, and what it means.

``KEYS`` is the table that the guide for admins repeats; a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from allowlist.faults import Faults, listed, quoted
from allowlist.globs import Glob, GlobError
from allowlist.model import ACTIONS, AUTHOR_ASSOCIATIONS, EVENTS, OnSilence, Timeouts
from allowlist.tree import Items, Kind, Node, Pairs, Scalar

#: GitHub cuts no label name longer than this; it refuses it. A device's label is the prefix and the device.
MAX_LABEL = 50
#: A self-hosted job waits at most a day for a runner, and a run ends after 35 days.
#: https://docs.github.com/actions/reference/limits
MAX_QUEUE = timedelta(hours=24)
MAX_RUN = timedelta(days=35)
MAX_EXPECTED_JOBS = 10_000
MAX_TEXT = 256
MAX_LIST = 256

_DURATION = re.compile(r"(?:([0-9]{1,6})d)?(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,7})s)?", re.ASCII)
# A login, or a team as org/team. Enterprise managed users carry an underscore before their short code.
_ONCALL = re.compile(r"[a-z0-9][a-z0-9_-]{0,38}(?:\[bot\])?(?:/[a-z0-9][a-z0-9._-]{0,99})?", re.ASCII | re.IGNORECASE)
_DEVICE = re.compile(r"[a-z0-9][a-z0-9._-]*", re.ASCII | re.IGNORECASE)
_WORKFLOW = re.compile(
    r"(?:((?:[a-z0-9_-]+/[a-z0-9._-]+/)?)\.github/workflows/)?([a-z0-9_.][a-z0-9_.-]*\.ya?ml)", re.ASCII | re.IGNORECASE
)


def oncalls(node: Node, faults: Faults) -> tuple[str, ...]:
    """Names as text with commas or as a list, with or without ``@``. A name that is none is left out with a warning:
    nobody's tests should stop over whom to call."""
    names: list[str] = []
    for line, text in _texts(node, faults, "oncalls", "alice, bob", may_be_empty=True, commas=True):
        name = text.removeprefix("@")
        if not _ONCALL.fullmatch(name):
            faults.warn(line, "oncall-name", f"oncalls: {quoted(text)} is no GitHub name", "Write logins: alice, bob.")
        else:
            names.append(name)
    return tuple({name.lower(): name for name in reversed(names)}[low] for low in dict.fromkeys(map(str.lower, names)))


def device(node: Node, faults: Faults, label_prefix: str) -> str | None:
    """A device's name, which must fit into a label together with the prefix."""
    text = _text(node, faults, "device", "npu")
    if text is None:
        return None
    room = MAX_LABEL - len(label_prefix)
    if not _DEVICE.fullmatch(text) or len(text) > room:
        faults.error(
            node.line,
            "device-name",
            f"{quoted(text)} cannot stand in the label {label_prefix}<device>",
            f"Use at most {room} letters, digits, dots, hyphens and underscores.",
        )
        return None
    return text


def _events(node: Node, faults: Faults) -> frozenset[str]:
    events = _choices(node, faults, "events", EVENTS)
    # Production knows no "push": who asks it for pull requests gets both.
    return events | {"push"} if "pull_request" in events else events


def _actions(node: Node, faults: Faults) -> frozenset[str]:
    return _choices(node, faults, "actions", ACTIONS)


def _authors(node: Node, faults: Faults) -> frozenset[str]:
    return _choices(node, faults, "authors", AUTHOR_ASSOCIATIONS)


def _refs(node: Node, faults: Faults) -> tuple[str, ...]:
    refs = _globs(node, faults, "refs", "refs/heads/main")
    for ref in refs:
        if not ref.removeprefix("!").startswith(("refs/", "**")):
            faults.error(
                node.line,
                "full-ref",
                f"refs: {quoted(ref)} matches no ref, since they are compared in full",
                f"Write 'refs/heads/{ref[:40].removeprefix('!')}' or 'refs/tags/…'; '**' is every ref.",
            )
    return refs


def _base(node: Node, faults: Faults) -> tuple[str, ...]:
    return _globs(node, faults, "base", "main")


def _paths(node: Node, faults: Faults) -> tuple[str, ...]:
    paths = _globs(node, faults, "paths", "src/**")
    for path in paths:
        if path.removeprefix("!").startswith(("/", "./")):
            faults.error(
                node.line,
                "relative-path",
                f"paths: {quoted(path)} matches no file, since paths start at the repository's root",
                f"Write {quoted(path.removeprefix('!').lstrip('./'))}.",
            )
    return paths


def _labels(node: Node, faults: Faults) -> tuple[str, ...]:
    return tuple(text for _, text in _texts(node, faults, "labels", "ciflow/nightly"))


def _versions(node: Node, faults: Faults) -> tuple[str, ...]:
    # 2.10 is a number to YAML, and would become 2.1. The text of the file is what was meant.
    texts = _texts(node, faults, "versions", "2.10", numbers=True)
    return tuple(dict.fromkeys(text for _, text in texts))


def _timeouts(node: Node, faults: Faults) -> Timeouts:
    example = "{queue: 2h, run: 6h}"
    if not isinstance(node, Pairs):
        _wrong(node, faults, "timeouts", "a mapping", example)
        return Timeouts()
    bounds = {"queue": MAX_QUEUE, "run": MAX_RUN}
    found: dict[str, timedelta] = {}
    for name, key, value in named(node, faults, "timeouts"):
        if name not in bounds:
            faults.warn(key.line, "unknown-key", f"timeouts has no key {quoted(name)}", f"Write {example}.")
        elif (duration := _duration(value, faults, f"timeouts.{name}", bounds[name])) is not None:
            found[name] = duration
    return Timeouts(**found)


def _duration(node: Node, faults: Faults, name: str, most: timedelta) -> timedelta | None:
    if isinstance(node, Scalar) and node.kind is Kind.NUMBER:
        fix = "Say the unit: 30s, 90m, 2h, 1h30m or 1d."
        faults.error(node.line, "duration", f"{name}: {quoted(node.text)} has no unit", fix)
        return None
    text = _text(node, faults, name, "90m")
    if text is None:
        return None
    match = _DURATION.fullmatch(text)
    if not match or not text:
        faults.error(
            node.line, "duration", f"{name}: {quoted(text)} is no duration", "Write 30s, 90m, 2h, 1h30m or 1d."
        )
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    duration = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    if not timedelta() < duration <= most:
        limit = f"{most // timedelta(hours=1)}h" if most <= timedelta(days=1) else f"{most.days}d"
        faults.error(node.line, "duration", f"{name}: {text} is out of bounds", f"Write more than 0s, at most {limit}.")
        return None
    return duration


def _expected_jobs(node: Node, faults: Faults) -> int | None:
    if not isinstance(node, Scalar) or node.kind is not Kind.NUMBER:
        _wrong(node, faults, "expected_jobs", "a whole number", "12")
        return None
    if not re.fullmatch(r"[0-9]{1,9}", node.text) or not 1 <= int(node.text) <= MAX_EXPECTED_JOBS:
        message = f"expected_jobs: {quoted(node.text)} is out of bounds"
        faults.error(node.line, "bounds", message, f"Write a whole number from 1 to {MAX_EXPECTED_JOBS}.")
        return None
    return int(node.text)


def _workflow(node: Node, faults: Faults) -> str | None:
    text = _text(node, faults, "workflow", "crcr.yml")
    if text is None:
        return None
    match = _WORKFLOW.fullmatch(text)
    if not match:
        message = f"workflow: {quoted(text)} is no workflow file"
        faults.error(node.line, "workflow-file", message, "Write its file name: crcr.yml.")
        return None
    # The form in which a token's workflow_ref names it; a shared workflow stands with its own repository.
    return f"{match[1] or ''}.github/workflows/{match[2]}"


def _flag(name: str) -> Callable[[Node, Faults], bool]:
    def read(node: Node, faults: Faults) -> bool:
        if not isinstance(node, Scalar) or node.kind is not Kind.FLAG:
            _wrong(node, faults, name, "true or false", "true")
            return False
        return node.text.lower() == "true"

    return read


def _on_silence(node: Node, faults: Faults) -> OnSilence:
    text = _text(node, faults, "on_silence", "neutral")
    if text is None:
        return OnSilence.STEP_DOWN
    if text not in set(OnSilence):
        _unknown_word(node.line, faults, "on_silence", text, set(OnSilence))
        return OnSilence.STEP_DOWN
    return OnSilence(text)


@dataclass(frozen=True, slots=True)
class Key:
    """One key of an entry's mapping; ``name`` is also the field of ``Entry`` that it sets."""

    name: str
    default: str
    meaning: str
    read: Callable[[Node, Faults], Any]


KEYS = (
    Key("oncalls", "[]", "GitHub names to call when this backend is in trouble", oncalls),
    Key("events", "[pull_request, push]", "what to be told of", _events),
    Key("actions", "[opened, reopened, synchronize, closed]", "what may have happened to a pull request", _actions),
    Key("refs", "all", "full refs whose pushes count; tags included", _refs),
    Key("base", "all", "branches that pull requests, merge groups and landings aim at", _base),
    Key("labels", "unfiltered", "labels of which a pull request must carry one", _labels),
    Key("paths", "unfiltered", "files of which a change must touch one", _paths),
    Key("authors", "unfiltered", "GitHub's author associations whose pull requests count", _authors),
    Key("versions", "none", "backend versions that must all have reported", _versions),
    Key("timeouts", "{queue: 2h, run: 6h}", "how long until a start, and from the first start to the end", _timeouts),
    Key("expected_jobs", "none", "how many jobs one dispatch must report", _expected_jobs),
    Key("workflow", "none", "the only workflow file whose reports are accepted", _workflow),
    Key(
        "every_commit",
        "false",
        "whether older heads are still dispatched when a newer one comes",
        _flag("every_commit"),
    ),
    Key(
        "cancel_on_close",
        "false",
        "whether GitHub is asked to cancel what still runs when a pull request is closed or a merge group is gone",
        _flag("cancel_on_close"),
    ),
    Key("legacy", "false", "whether reports without our capability may decide a gate", _flag("legacy")),
    Key("on_silence", "neutral", "what a backend that never answers does to the gate", _on_silence),
)
#: ``device`` is read apart, because L3's own key may already have given it.
DEVICE_KEY = "device"
NAMES = frozenset(key.name for key in KEYS) | {DEVICE_KEY}
_BY_NAME = {key.name: key for key in KEYS}


def read_settings(node: Pairs, faults: Faults, label_prefix: str) -> dict[str, Any]:
    """The fields of ``Entry`` that this mapping sets; what is wrong with it goes to ``faults``."""
    fields: dict[str, Any] = {}
    for name, key, value in named(node, faults, "the entry"):
        if name == DEVICE_KEY:
            fields[name] = device(value, faults, label_prefix)
        elif known := _BY_NAME.get(name):
            fields[name] = known.read(value, faults)
        else:
            near = faults.closest(name, NAMES)
            fix = f"Did you mean {near}?" if near else f"Known keys: {listed(NAMES)}."
            faults.warn(key.line, "unknown-key", f"an entry has no key {quoted(name)}", fix)
    return fields


def named(node: Pairs, faults: Faults, where: str) -> Iterable[tuple[str, Node, Node]]:
    """The pairs whose key is text and stands for the first time; the others become faults."""
    seen: dict[str, int] = {}
    for key, value in node.pairs:
        if not isinstance(key, Scalar):
            faults.error(key.line, "key-form", f"a key of {where} is {key}", "Write a word before the colon.")
        elif key.text in seen:
            message = f"{where} has the key {quoted(key.text)} already, on line {seen[key.text]}"
            faults.error(key.line, "duplicate-key", message, "Keep one of them.")
        else:
            seen[key.text] = key.line
            yield key.text, key, value


def _texts(
    node: Node,
    faults: Faults,
    name: str,
    example: str,
    *,
    may_be_empty: bool = False,
    commas: bool = False,
    numbers: bool = False,
) -> list[tuple[int, str]]:
    """Text, or a list of it, each with its line. ``commas`` splits text; ``numbers`` lets numbers stand as written."""
    if isinstance(node, Pairs):
        _wrong(node, faults, name, "a list", f"[{example}]")
        return []
    if may_be_empty and isinstance(node, Scalar) and node.kind is Kind.NOTHING:
        return []
    found: list[tuple[int, str]] = []
    for item in node.items if isinstance(node, Items) else (node,):
        if numbers and isinstance(item, Scalar) and item.kind is Kind.NUMBER:
            found.append((item.line, item.text))
            continue
        text = _text(item, faults, name, example)
        if text is not None:
            parts = [part.strip() for part in text.split(",")] if commas else [text]
            found.extend((item.line, part) for part in parts if part)
    if len(found) > MAX_LIST:
        faults.error(node.line, "bounds", f"{name} lists {len(found)} values", f"List at most {MAX_LIST}.")
        return []
    return found


def _text(node: Node, faults: Faults, name: str, example: str) -> str | None:
    if not isinstance(node, Scalar) or node.kind is not Kind.TEXT:
        quotes = isinstance(node, Scalar) and node.kind in {Kind.NUMBER, Kind.FLAG}
        _wrong(node, faults, name, "text", f'"{node.text}"' if isinstance(node, Scalar) and quotes else example)
        return None
    text = node.text.strip()
    if not text or len(text) > MAX_TEXT or not text.isprintable():
        message = f"{name}: {quoted(node.text)} is empty, too long or holds control characters"
        faults.error(node.line, "text", message, f"Write 1 to {MAX_TEXT} printable characters, like {example}.")
        return None
    return text


def _choices(node: Node, faults: Faults, name: str, allowed: frozenset[str]) -> frozenset[str]:
    """Words of a fixed list, at least one. GitHub writes associations in capitals, people do not: case is ours."""
    by_lower = {word.lower(): word for word in allowed}
    before = faults.errors
    found = set()
    for line, text in _texts(node, faults, name, sorted(allowed)[0], commas=True):
        if text.lower() in by_lower:
            found.add(by_lower[text.lower()])
        else:
            _unknown_word(line, faults, name, text, allowed)
    if not found and faults.errors == before:
        faults.error(
            node.line, "empty-choice", f"{name} lists nothing", f"Leave {name} out, or name: {listed(allowed)}."
        )
    return frozenset(found)


def _globs(node: Node, faults: Faults, name: str, example: str) -> tuple[str, ...]:
    globs = tuple(text for _, text in _texts(node, faults, name, example))
    for glob in globs:
        try:
            Glob(glob.removeprefix("!"))
        except GlobError as error:
            faults.error(node.line, "glob", f"{name}: {quoted(glob)} is no pattern: {error}", f"Write {example!r}.")
    if globs and all(glob.startswith("!") for glob in globs):
        message = f"{name} only excludes, so nothing would ever match"
        faults.error(node.line, "glob", message, f"Put what is wanted first: ['**', {globs[0][:60]!r}].")
    return globs


def _unknown_word(line: int, faults: Faults, name: str, text: str, allowed: Iterable[str]) -> None:
    near = faults.closest(text, allowed)
    hint = f"Did you mean {near}? " if near else ""
    faults.error(line, "unknown-word", f"{name} knows no {quoted(text)}", f"{hint}Allowed: {listed(allowed)}.")


def _wrong(node: Node, faults: Faults, name: str, wants: str, example: str) -> None:
    given = f"{node} ({quoted(node.text)})" if isinstance(node, Scalar) and node.text else str(node)
    faults.error(
        node.line,
        "type",
        f"{name} wants {wants}, this is {given}",
        f"Write {name.rsplit('.', maxsplit=1)[-1]}: {example}",
    )
