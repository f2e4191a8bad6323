"""Who may ask for what, by the role that GitHub tells of them. Pure.

An event is no proof of authority: anybody who can read a public repository can comment on it and ask for a check to be
run again. https://docs.github.com/rest/checks/runs#rerequest-a-check-run
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from relay.deciding.commands import Verb
from relay.github.observed import Role


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
