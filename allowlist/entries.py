"""Reads the levels of an allowlist entry by entry: what is good is put in force, what is not becomes a fault."""

from __future__ import annotations

import re
from typing import Any

from allowlist.faults import Faults, quoted
from allowlist.model import Entry, Level, RepoName
from allowlist.settings import device as read_device
from allowlist.settings import oncalls, read_settings
from allowlist.tree import Items, Kind, Node, Pairs, Scalar

LEVELS = {level.name: level for level in Level}

# "org/repo @alice,bob" and "org/repo:alice": a name with on-calls stuck to it.
_STUCK = re.compile(r"([^\s:@]+/[^\s:@/]+)[\s:@]+(\S.*)")
_URL = re.compile(r"(?:https?://|git@)[^/:]+[/:]+([^/]+/[^/]+?)(?:\.git)?/*")


class Reader:
    """Reads one file's levels; ``entries`` are those in force, in the order of the file."""

    def __init__(self, label_prefix: str) -> None:
        self.faults = Faults()
        self.entries: list[Entry] = []
        self._label_prefix = label_prefix
        self._in_force: dict[RepoName, int] = {}
        self._refused: dict[RepoName, int] = {}

    def read(self, root: Pairs) -> None:
        """Read every level. Entries of a level that stands twice count, since there is no doubt where they belong."""
        seen: dict[Level, int] = {}
        for key, value in root.pairs:
            level = LEVELS.get(key.text) if isinstance(key, Scalar) else None
            if level is None:
                self._refuse_level(key)
                continue
            if level in seen:
                self._duplicate_heading(key.line, str(level), seen[level])
            seen.setdefault(level, key.line)
            self._read_level(level, value)

    def _refuse_level(self, key: Node) -> None:
        text = key.text if isinstance(key, Scalar) else str(key)
        near = self.faults.closest(text, LEVELS)
        hint = f"Did you mean {near}?" if near else "Levels are L1, L2, L3 and L4."
        message = f"{quoted(text)} is no level, so nothing below it is in force"
        self.faults.error(key.line, "unknown-level", message, hint)

    def _duplicate_heading(self, line: int, heading: str, first: int) -> None:
        message = f"{quoted(heading)} stands already on line {first}, and most YAML readers keep only one of them"
        self.faults.error(line, "duplicate-key", message, f"Move what is below it up under line {first}.")

    def _read_level(self, level: Level, value: Node) -> None:
        if isinstance(value, Items):
            for item in value.items:
                self._read_item(level, item, None)
        elif isinstance(value, Pairs) and level is Level.L3:
            self._read_devices(value)
        elif isinstance(value, Pairs):
            for key, _ in value.pairs:
                name = key.text if isinstance(key, Scalar) else "org/repo"
                message = f"{level} is a list, and this is a key"
                self.faults.error(key.line, "level-form", message, f"Put a dash before it: `- {name[:100]}: …`.")
        elif value.kind is not Kind.NOTHING:
            message = f"{level} wants a list, this is {value} ({quoted(value.text)})"
            self.faults.error(
                value.line, "level-form", message, "Put each repository on a line of its own, after a dash."
            )

    def _read_devices(self, devices: Pairs) -> None:
        seen: dict[str, int] = {}
        for key, value in devices.pairs:
            if isinstance(key, Scalar) and "/" in key.text:
                self._need_device(key.line, key.text)
                continue
            if isinstance(key, Scalar):
                # A device's key is a name whatever it looks like, so 910 needs no quotes here.
                key = Scalar(key.line, key.text, Kind.TEXT)  # noqa: PLW2901
            device = read_device(key, self.faults, self._label_prefix)
            if device is None:
                continue
            if device in seen:
                self._duplicate_heading(key.line, device, seen[device])
            seen.setdefault(device, key.line)
            if isinstance(value, Pairs):
                for repo, settings in value.pairs:
                    self._read_entry(Level.L3, repo, settings, device)
            elif isinstance(value, Items):
                for item in value.items:
                    self._read_item(Level.L3, item, device)
            elif value.kind is not Kind.NOTHING:
                message = f"device {device} wants repositories below it, this is {value} ({quoted(value.text)})"
                self.faults.error(
                    value.line, "level-form", message, f"Write `{device}:`, and below it `org/repo: alice`."
                )

    def _read_item(self, level: Level, item: Node, device: str | None) -> None:
        if isinstance(item, Items):
            message = "a list stands where a repository should"
            self.faults.error(item.line, "entry-form", message, "Write `- org/repo` or `- org/repo: [alice, bob]`.")
        elif isinstance(item, Scalar):
            self._read_entry(level, item, None, device)
        elif not item.pairs:
            self.faults.error(item.line, "entry-form", "an empty mapping stands here", "Write `- org/repo`.")
        else:
            self._read_pairs(level, item, device)

    def _read_pairs(self, level: Level, item: Pairs, device: str | None) -> None:
        (key, value), *others = item.pairs
        errors = self.faults.errors
        for other, _ in others:
            text = other.text if isinstance(other, Scalar) else str(other)
            if "/" not in text:
                # "- org/repo:" with its settings not indented below it: read as it stands, it would have none of them.
                message = f"{quoted(text)} stands beside the repository, not below it"
                self.faults.error(other.line, "indentation", message, "Indent it below the repository's line.")
        if self.faults.errors == errors:
            self._read_entry(level, key, value, device)
        elif (repo := self._repo(key)) is not None:
            self._refused.setdefault(repo, key.line)
        for other, _ in others:
            if isinstance(other, Scalar) and "/" in other.text:
                message = f"{quoted(other.text)} is a second repository in one item of the list"
                self.faults.error(other.line, "one-per-item", message, "Give it a dash of its own.")

    def _read_entry(self, level: Level, key: Node, value: Node | None, device: str | None) -> None:
        errors = self.faults.errors
        repo = self._repo(key)
        if isinstance(value, Pairs):
            fields = read_settings(value, self.faults, self._label_prefix)
        else:
            fields = {} if value is None else {"oncalls": oncalls(value, self.faults)}
        if repo is None:
            return
        fields["device"] = self._device(key.line, fields, device)
        if level is Level.L3 and fields["device"] is None and self.faults.errors == errors:
            self._need_device(key.line, str(repo))
        if repo in self._in_force:
            message = f"{repo} is listed already, on line {self._in_force[repo]}, and that entry stands"
            self.faults.error(key.line, "duplicate-repository", message, "Keep one of them.")
        elif self.faults.errors > errors:
            self._refused.setdefault(repo, key.line)
        else:
            if repo in self._refused:
                message = f"{repo} is listed already, on line {self._refused[repo]}, where it is not in force"
                self.faults.warn(key.line, "duplicate-repository", message, "Keep one of them.")
            self._in_force[repo] = key.line
            self.entries.append(Entry(repo=repo, level=level, line=key.line, **fields))

    def _device(self, line: int, fields: dict[str, Any], heading: str | None) -> str | None:
        own: str | None = fields.get("device")
        if heading is not None and own is not None and own != heading:
            message = f"the entry says device {own} and stands under {heading}"
            self.faults.error(line, "device-conflict", message, "Leave `device` out, or move the entry.")
        return heading or own

    def _need_device(self, line: int, repo: str) -> None:
        fix = f"Write `<device>:` below L3, and indented below that `{repo[:141]}: [alice, bob]`."
        message = f"{quoted(repo)} is at L3 without a device, so no label could show its check"
        self.faults.error(line, "l3-device", message, fix)

    def _repo(self, key: Node) -> RepoName | None:
        if not isinstance(key, Scalar) or key.kind is not Kind.TEXT:
            given = f"{key} ({quoted(key.text)})" if isinstance(key, Scalar) and key.text else str(key)
            message = f"{given} stands where a repository should"
            self.faults.error(key.line, "entry-form", message, "Write `org/repo`.")
            return None
        text = key.text.strip().strip("/")
        try:
            repo = RepoName.parse(text)
        except ValueError:
            self.faults.error(key.line, "repo-name", f"{quoted(key.text)} is no repository", _repo_fix(text))
            return None
        if repo.name.endswith(".git"):
            self.faults.error(key.line, "repo-name", f"{quoted(key.text)} ends with .git", f"Write {str(repo)[:-4]}.")
            return None
        return repo


def _repo_fix(text: str) -> str:
    # Only a name that would be accepted is worth suggesting, and only it is known to be harmless to print.
    if (url := _URL.fullmatch(text)) and _is_repo(url[1]):
        return f"Write {url[1]}."
    if (stuck := _STUCK.fullmatch(text)) and _is_repo(stuck[1]):
        names = re.findall(r"[A-Za-z0-9][A-Za-z0-9_-]*", stuck[2])[:5]
        return f"Put a colon and a space after the name: `{stuck[1]}: {', '.join(names) or 'alice'}`."
    return "Write owner/name: letters, digits, hyphens, and in the name also dots and underscores."


def _is_repo(text: str) -> bool:
    try:
        RepoName.parse(text)
    except ValueError:
        return False
    return True
