"""Commands: how a comment is read, who may ask for what, and what every command means. Pure.

Only the first line of a new comment on a pull request is read. What it says is kept as it was written, and decided
once GitHub has told what its sender may do (``relay.work.commands``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from types import MappingProxyType

from allowlist.model import Entry
from relay.github.observed import Role

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


# --- Who may ask for what --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Authority:
    """Who may have a command carried out.

    ``least`` is the role that suffices on somebody else's pull request; ``author`` is the role that its author needs,
    and ``author_times`` how often it is done for an author below ``least`` on one head (None: without a bound).
    """

    least: Role
    author: Role
    author_times: int | None = None


#: Whoever may ask for an answer gets one; to everybody else we say nothing, so that nobody can have us write.
AUTHORITY: Mapping[Verb, Authority] = MappingProxyType(
    {
        Verb.STATUS: Authority(Role.TRIAGE, author=Role.NONE),
        Verb.HELP: Authority(Role.TRIAGE, author=Role.NONE),
        Verb.UNKNOWN: Authority(Role.TRIAGE, author=Role.NONE),
        Verb.RUN: Authority(Role.TRIAGE, author=Role.NONE, author_times=3),
        Verb.RERUN: Authority(Role.TRIAGE, author=Role.NONE, author_times=3),
        Verb.OVERRIDE: Authority(Role.WRITE, author=Role.ADMIN),
    }
)


class Ruling(Enum):
    """Whether a command is carried out, refused with an answer, or not even answered."""

    GRANTED = "granted"
    REFUSED = "refused"
    UNHEARD = "unheard"


def rule(verb: Verb, role: Role, *, is_author: bool, done_before: int = 0) -> tuple[Ruling, str]:
    """Whether this person may have it, and why not.

    ``done_before`` counts what was carried out for the author on this head, runs and re-runs together.
    """
    heard = AUTHORITY[Verb.STATUS]
    if role < (heard.author if is_author else heard.least):
        return Ruling.UNHEARD, f"needs the role {_named(heard.least)}, or to be the author"
    needs = AUTHORITY[verb]
    least = needs.author if is_author else needs.least
    if role < least:
        whose = "on their own pull request the author" if is_author else "it"
        return Ruling.REFUSED, f"{whose} needs the role {_named(least)} here"
    if is_author and needs.author_times is not None and role < needs.least and done_before >= needs.author_times:
        why = (
            f"the author may have it {needs.author_times} times for each commit, and that was done; "
            f"somebody with the role {_named(needs.least)} may ask again"
        )
        return Ruling.REFUSED, why
    return Ruling.GRANTED, ""


def _named(role: Role) -> str:
    return role.name.lower()


def authority_rows() -> tuple[tuple[str, str], ...]:
    """The table in words, as the README and the answer to ``help`` show it."""
    rows = []
    for verb, needs in AUTHORITY.items():
        if verb is Verb.UNKNOWN:
            continue
        if needs.author is Role.NONE:
            times = f", {needs.author_times} times for each commit" if needs.author_times is not None else ""
            who = f"{_named(needs.least)} and above; the author{times}"
        else:
            who = f"{_named(needs.least)} and above; the author only as {_named(needs.author)}"
        rows.append((verb.value, who))
    return tuple(rows)


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
