"""Commands: how a comment is read, and which backend it means. Pure.

Only the first line of a new comment on a pull request is read. What it says is kept as it was written, and decided
once GitHub has told what its sender may do (``relay.deciding.authority``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from allowlist.model import Entry

#: What every command starts with.
PREFIX = "/crcr"

#: More of a first line than this is not read: a reason fits, a flood does not.
MAX_WORDS = 1_000

#: More backends than this are not named in an answer.
MOST_NAMED = 20


class Verb(StrEnum):
    """What can be asked."""

    STATUS = "status"
    RUN = "run"
    RERUN = "rerun"
    OVERRIDE = "override"
    HELP = "help"
    UNKNOWN = "unknown"  # The line starts like a command and is none; its words are kept for the answer.


@dataclass(frozen=True, slots=True)
class Spoken:
    """A command as it was written. ``backend`` is not looked up yet; both texts are hostile."""

    verb: Verb
    backend: str | None = None
    words: str = ""


#: The verbs behind which a backend may stand.
_NAMES_BACKEND = frozenset({Verb.RUN, Verb.RERUN, Verb.OVERRIDE})


def spoken(body: str) -> Spoken | None:
    """Read a comment's first line, or None where it is no command."""
    first = re.split(r"[\r\n]", body, maxsplit=1)[0]
    parts = first[:MAX_WORDS].split()
    # Text that is set in from the margin is a quotation of code in Markdown, and asks nothing.
    if not parts or first[0].isspace() or parts[0].lower() != PREFIX:
        return None
    try:
        verb = Verb(parts[1].lower()) if len(parts) > 1 else Verb.HELP
    except ValueError:
        verb = Verb.UNKNOWN
    if verb is Verb.UNKNOWN:
        return Spoken(verb, words=" ".join(parts[1:]))
    if verb in _NAMES_BACKEND and len(parts) > 2:
        return Spoken(verb, parts[2], " ".join(parts[3:]))
    return Spoken(verb, words=" ".join(parts[2:]))


# --- Which backend is meant ------------------------------------------------------------------------------------------


def named_backend(word: str, entries: Iterable[Entry]) -> Entry | str:
    """The entry that a word means: ``owner/repo`` in any case, or a device or repository name only one has.

    Where there is none, a sentence for the person who wrote it. The word is hostile text and is not in it.
    """
    wanted = word.strip("`'\"").lower()
    every = tuple(entries)
    whole = [entry for entry in every if str(entry.repo) == wanted]
    if whole:
        return whole[0]
    short = {
        str(entry.repo): entry
        for entry in every
        if wanted in {(entry.device or "").lower(), entry.repo.name} and wanted
    }
    if len(short) == 1:
        return next(iter(short.values()))
    names = ", ".join(f"`{name}`" for name in sorted(short or {str(entry.repo) for entry in every})[:MOST_NAMED])
    if short:
        return f"that name is not of one backend alone; write one of {names}"
    return f"there is no such backend here; it is one of {names}" if names else "no backend is listed here"
