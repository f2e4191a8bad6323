"""Hostile text made safe for GitHub's Markdown, and Markdown kept within GitHub's bounds.

Job names, test names and messages come from whoever wrote the code under test. Shown as they are they could mention
people, link to issues and commits, load images, close a table, or turn the reading order around.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

#: GitHub counts characters, https://docs.github.com/rest/checks/runs. Bytes are never fewer.
MAX_TEXT = 65_535
MAX_TITLE = 140

_ELLIPSIS = "…"

# GitHub turns these into links after it has rendered the Markdown, so an escape does not hold them; a character of no
# width between their parts does. https://docs.github.com/get-started/writing-on-github/working-with-advanced-formatting/autolinked-references-and-urls
_GAP = "\u200b"
_MENTION = re.compile(r"@(?=[\w-])")
_REFERENCES = (
    (_MENTION, "@" + _GAP),
    (re.compile(r"#(?=\w)"), "#" + _GAP),
    (re.compile(r"\b(gh)-(?=\d)", re.IGNORECASE), r"\1-" + _GAP),
    (re.compile(r"([0-9a-f]{6})(?=[0-9a-f])", re.IGNORECASE), r"\1" + _GAP),
    (re.compile(r":(?=//)"), ":" + _GAP),
    (re.compile(r"\b(www)\.", re.IGNORECASE), r"\1" + _GAP + "."),
    (re.compile(r"\b(mailto|xmpp):", re.IGNORECASE), r"\1" + _GAP + ":"),
    (re.compile(r":(?=[\w+-]+:)"), ":" + _GAP),
)

# Enough inside a sentence, where nothing can begin a heading, a list or a quotation.
_MARKUP = re.compile(r"([\\`*_\[\]~$])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", '"': "&quot;", "'": "&#39;"}

# Marks that stand on the letter before them; a pile of them covers the lines around.
_MOST_MARKS = 2

_URL = re.compile(r"[!#%&'()*+,\-./0-9:;=?@A-Z_a-z~]+", re.ASCII)
_MOST_URL = 1_000


def plain(text: str, most: int) -> str:
    """One line of printable characters in their own order, at most ``most`` long. For titles, which are no Markdown."""
    return cut(_printable(text[: most * 8]), most)


def _printable(text: str) -> str:
    kept: list[str] = []
    marks = 0
    for char in text:
        category = unicodedata.category(char)
        marks = marks + 1 if category[0] == "M" else 0
        if category[0] == "Z" or char in "\t\n\r\v\f":
            kept.append(" ")
        elif category[0] != "C" and marks <= _MOST_MARKS:
            # Controls, formats (which hold the marks that turn the reading order), surrogates, private use: dropped.
            kept.append(char)
    return " ".join("".join(kept).split())


def cut(text: str, most: int) -> str:
    """At most ``most`` characters, with a sign where something is missing."""
    return text if len(text) <= most else text[: most - 1].rstrip() + _ELLIPSIS


def prose(text: str, most: int = 300) -> str:
    """Foreign text inside a sentence of ours: no markup, no mention, no reference, no link."""
    line = _MARKUP.sub(r"\\\1", calm(plain(text, most)))
    return "".join(_ENTITIES.get(char, char) for char in line)


def code(text: str, most: int = 120) -> str:
    """Foreign text as a code span, in which GitHub neither renders nor links anything. Safe inside a table.

    Mentions are parted all the same: a mail made of the text may know no code spans.
    """
    # A bar would end the table's cell, even inside a code span, and its escape reads differently outside of tables.
    line = _MENTION.sub("@" + _GAP, plain(text, most)).replace("|", "¦")
    if not line:
        return "(none)"
    longest = max((len(run) for run in re.findall(r"`+", line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line[0] in "` " or line[-1] in "` " else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def calm(line: str) -> str:
    """The line with everything parted that GitHub would link or notify somebody of."""
    for pattern, parted in _REFERENCES:
        line = pattern.sub(parted, line)
    return line


def link(label: str, url: str) -> str | None:
    """A link, or None where the URL is not plain http(s). ``label`` is ours, the URL is foreign."""
    safe = safe_url(url)
    return None if safe is None else f"[{label}](<{safe}>)"


def safe_url(url: str) -> str | None:
    """The URL if it is http(s) with a host and without user info or odd characters, else None."""
    if len(url) > _MOST_URL or not _URL.fullmatch(url):
        return None
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        return None
    # An "@" before the path is user info, whatever a parser makes of it.
    if parts.scheme not in {"http", "https"} or not host or "@" in parts.netloc:
        return None
    return url


def size(text: str) -> int:
    """What a text counts against GitHub's bound."""
    return len(text.encode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class Section:
    """A heading line or lines, then lines that may be left out from the end, then the word for what was left out.

    ``left_out`` has one ``{count}`` and stands there only when something is missing.
    """

    head: tuple[str, ...]
    lines: Sequence[str]
    left_out: str


def assemble(sections: Iterable[Section], most: int) -> str:
    """The sections one after another in at most ``most`` bytes.

    What has no lines to leave out is kept whole. The others share what is left evenly, and what one does not use is
    there for those after it. A section that does not fit is cut at a line and says so.
    """
    every = list(sections)
    room = most - sum(size("\n".join(one.head)) + 2 for one in every if not one.lines)
    cuttable = sum(1 for one in every if one.lines)
    parts: list[str] = []
    for section in every:
        if section.lines:
            text = _fit(section, max(room // cuttable - 2, 0))
            cuttable -= 1
            room -= size(text) + 2
        else:
            text = "\n".join(section.head)
        if text:
            parts.append(text)
    return "\n\n".join(parts)


def _fit(section: Section, most: int) -> str:
    head = "\n".join(section.head)
    whole = "\n".join([head, *section.lines]) if head else "\n".join(section.lines)
    if size(whole) <= most:
        return whole
    reserve = size(_counted(section, len(section.lines))) + 2
    room = most - reserve - size(head)
    if room < 0:
        return ""
    kept: list[str] = []
    for line in section.lines:
        room -= size(line) + 1
        if room < 0:
            break
        kept.append(line)
    sentence = _counted(section, len(section.lines) - len(kept))
    body = "\n".join([head, *kept]) if head else "\n".join(kept)
    return f"{body}\n\n{sentence}" if body else sentence


def _counted(section: Section, count: int) -> str:
    # Not str.format: the sentence holds an address, and an address may hold braces.
    return section.left_out.replace("{count}", f"{count:,}")
