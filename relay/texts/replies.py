"""What we say in comments on pull requests: answers to commands, and the word to a backend's on-calls. Pure.

Only an on-call is ever mentioned, and only where the name is a login: everything else that people wrote is shown in a
way that notifies nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from relay.deciding.authority import authority_rows
from relay.deciding.commands import PREFIX
from relay.deciding.facts import CheckFacts, DispatchFacts, Place
from relay.texts.backend_text import combinations, tests
from relay.texts.base_text import base_markdown
from relay.texts.markup import MAX_TEXT, Section, assemble, code, prose
from relay.texts.rendering import Rendered, render_gate
from relay.texts.words import PHRASES, backend_check_name, clock

#: GitHub's own rule for a login; what breaks it can be nobody's.
#: https://docs.github.com/en/enterprise-cloud@latest/admin/managing-iam/iam-configuration-reference/username-considerations-for-external-authentication
_LOGIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})(?:_[A-Za-z0-9]{1,10})?", re.ASCII)

#: More people than this are not notified at once.
MOST_ONCALLS = 5

_ROOM = MAX_TEXT - 1_000

_USAGE = {
    "status": "the gate and every backend here, as they are now",
    "run BACKEND": "tell a backend of this commit anew",
    "rerun [BACKEND]": "run again what failed, of one backend or of all",
    "override BACKEND REASON": "answer for a backend on this commit, so that the gate does not wait for it",
    "help": "this table",
}


def answer(sender: str, command: str, sentences: Iterable[str]) -> str:
    """The reply to a command: whose and which it answers, then our sentences."""
    head = f"{code(command, 80)} by {code(sender, 60)}:"
    return assemble([Section((head,), (), ""), Section((), list(sentences), "{count} lines more.")], _ROOM)


def help_text() -> str:
    """What can be asked, and by whom."""
    who = dict(authority_rows())
    rows = [f"| `{PREFIX} {usage}` | {what} | {who[usage.split()[0]]} |" for usage, what in _USAGE.items()]
    head = (
        "Commands stand in the first line of a new comment on a pull request. `BACKEND` is `owner/repo`, or a device's "
        "or repository's name that only one backend has."
    )
    return "\n".join([head, "", "| Command | What it does | Who may ask |", "| --- | --- | --- |", *rows])


def status_text(facts: CheckFacts, place: Place) -> str:
    """The gate as it is now, and those backends with a check that cannot hold the merge back."""
    gate: Rendered = render_gate(facts, place)
    others = [
        f"- `{one.backend}`: {PHRASES[one.outcome].label}. Details: check `{backend_check_name(one.backend)}`."
        for one in facts.dispatches
        if one.shown and not one.gates
    ]
    sections = [
        Section((f"**{prose(gate.title)}**",), (), ""),
        Section((gate.summary[: _ROOM // 2],), (), ""),
        Section(("Shown for information:", ""), others, "{count} more.") if others else Section((), (), ""),
    ]
    return assemble(sections, _ROOM)


def mention(name: str) -> str:
    """An on-call's name so that GitHub notifies the person; a name that is no login is only shown."""
    bare = name.removeprefix("@")
    return f"@{bare}" if _LOGIN.fullmatch(bare) else code(name, 40)


def oncall_text(one: DispatchFacts, head_sha: str, url: str, at: datetime, place: Place) -> str:
    """The word to a backend's on-calls: what failed, in which combination, whether on the base too, what to do."""
    people = ", ".join(mention(name) for name in one.oncalls[:MOST_ONCALLS])
    more = len(one.oncalls) - MOST_ONCALLS
    told = f"{people}{f' and {more} more' if more > 0 else ''}" if people else "its entry names no on-call"
    head = (
        f"`{one.backend}` ({one.level or one.level_then}) {PHRASES[one.outcome].verb} on commit `{head_sha[:12]}` "
        f"at {clock(at)}. On-call: {told}."
    )
    rerun = (
        f"To run it again: the button at the check `{backend_check_name(one.backend)}`, or "
        f"`{PREFIX} rerun {one.backend}` in a new comment. Whether it is this change or the backend: "
        f"[its other results](<{url}>) help to tell."
    )
    page = f"[the relay's page of this change](<{url}>)"
    on_base = base_markdown(one, place)
    base = [Section((on_base,), (), "")] if on_base else []
    return assemble(
        [Section((head,), (), ""), *base, *combinations(one, page), *tests(one, page), Section((rerun,), (), "")],
        _ROOM,
    )


_NOTHING_LEFT = "On-call: nothing is left to do."


def passing_text(one: DispatchFacts, head_sha: str, at: datetime, before: str) -> str:
    """The same comment once the backend passes again; ``before`` is what it said of the failure, kept folded."""
    head = (
        f"`{one.backend}` ({one.level or one.level_then}) passes again: on commit `{head_sha[:12]}` at {clock(at)}. "
        f"{_NOTHING_LEFT}"
    )
    return "\n".join([head, "", "<details><summary>What had failed</summary>", "", before, "", "</details>"])


def tells_of_passing(body: str) -> bool:
    """Whether the comment says already that the backend passes again."""
    return body.partition("\n")[0].endswith(_NOTHING_LEFT)
