"""The body of the gate's check: its title, what it means for the merge, one row for each backend, what to do."""

from __future__ import annotations

from allowlist.model import RepoName
from levels.gate import GateVerdict, Line
from levels.outcomes import GateEffect, Outcome
from relay.deciding.facts import DispatchFacts, LeftOut, OverrideFacts, Place
from relay.texts import base_text
from relay.texts.backend_text import about, oncall
from relay.texts.base_text import KNOWN, base_markdown, known_whole
from relay.texts.markup import code, prose
from relay.texts.words import EFFECTS, PHRASES, backend_check_name, clock, listing, reason_phrase

_MOST_NAMED = 30


def title(required: list[Line], known: dict[str, DispatchFacts]) -> str:
    """One line: who blocks, who gave no verdict or was overridden, how many passed, and who is waited for."""
    if not required:
        return "No backend holds this back"
    count = len(required)
    passed = [line for line in required if line.effect is GateEffect.PASSES]
    if len(passed) == count:
        every = {1: f"{required[0].backend} passed", 2: "Both required backends passed"}
        return every.get(count, f"All {count} required backends passed")
    over = [line for line in required if line.effect is GateEffect.STEPS_DOWN and override_of(line, known)]
    people = [f"{line.backend} by {who.who}" for line in over if (who := override_of(line, known))]
    told = {
        effect: [
            f"{line.backend} {PHRASES[line.outcome].verb}" + (f" ({KNOWN})" if known_whole(known[line.detail]) else "")
            for line in required
            if line.effect is effect and line not in over
        ]
        for effect in (GateEffect.BLOCKS, GateEffect.STEPS_DOWN)
    }
    parts = [
        word + listing(some, 2)
        for word, some in (
            ("", told[GateEffect.BLOCKS]),
            ("overridden: ", people),
            ("no verdict: ", told[GateEffect.STEPS_DOWN]),
        )
        if some
    ]
    if count > 1:
        parts.append(f"{len(passed)} of {count} required backends passed")
    waiting = [line for line in required if line.effect is GateEffect.PENDING]
    if waiting:
        since = min(known[line.detail].created_at for line in waiting)
        parts.append(f"waiting for {listing(_names(waiting), 2)} since {clock(since)}")
    whole = "; ".join(parts)
    return whole[0].upper() + whole[1:] if whole.startswith(("waiting", "no verdict", "overridden")) else whole


def override_of(line: Line, known: dict[str, DispatchFacts]) -> OverrideFacts | None:
    """Who answers for the backend of this line, if somebody does."""
    return known[line.detail].override


def _names(lines: list[Line]) -> list[str]:
    """The backends of these lines, each once: two pull requests may share a head."""
    return list(dict.fromkeys(str(line.backend) for line in lines))


def meaning(verdict: GateVerdict, required: list[Line], known: dict[str, DispatchFacts]) -> str:
    """What the verdict means for the merge."""
    if not required:
        return "**Passes.** No backend that can hold a merge back is asked about this change."
    count = len(required)
    which = {1: "The backend that can", 2: "Both backends that can"}.get(count, f"All {count} backends that can")
    if verdict.effect is GateEffect.BLOCKS:
        blocking = [line for line in required if line.effect is GateEffect.BLOCKS]
        return (
            f"**Blocks the merge**, because of {listing(_names(blocking), 5)}. A later result of theirs replaces this."
        )
    if verdict.effect is GateEffect.PENDING:
        return "**Waits.** Results are still to come; this check ends by itself, at the latest at the deadline below."
    if verdict.effect is GateEffect.STEPS_DOWN:
        without = [line for line in required if line.effect is GateEffect.STEPS_DOWN]
        if all(override_of(line, known) for line in without):
            return (
                "**Not held back, because somebody decided so.** No result of "
                f"{listing(_names(without), 5)} lets this merge; a person answers for it instead."
            )
        return (
            "**No verdict, and the merge is not held back.** At least one backend gave no usable result, so this is "
            "no statement that the change works there. A result that still comes replaces this."
        )
    return f"**Passes.** {which} hold this merge back reported success."


def overridden(one: DispatchFacts, who: OverrideFacts) -> str:
    """The loud sentence: a person has taken the place of a result."""
    return (
        f"**Overridden.** {code(who.who, 60)} answers for `{one.backend}` on this commit since "
        f"{clock(who.at, one.created_at)}: {prose(who.why, 500)}. A new push ends this."
    )


def row(line: Line, one: DispatchFacts, place: Place) -> str:
    """One backend's row of the table."""
    check = f" Details: check `{backend_check_name(one.backend)}`." if one.shown else ""
    # Whether it is queued or running already is its own check's to say: here each step would owe a write.
    result = "awaited" if one.awaited and line.effect is not GateEffect.BLOCKS else PHRASES[line.outcome].label
    effect = (
        "**overridden**" if one.override is not None and line.effect is GateEffect.STEPS_DOWN else EFFECTS[line.effect]
    )
    said_of = "" if one.of_pull is None else f"Its verdict on pull request {one.of_pull} stands. "
    return f"| `{line.backend}` | {result} | {effect} | {said_of}{_happened(one, place)}{check} |"


def _happened(one: DispatchFacts, place: Place) -> str:
    """One dispatch in a sentence or two, with nothing in it that moves while jobs report."""
    if one.awaited:
        until = (
            f" This gate waits until {clock(one.give_up_at, one.created_at)} at the latest." if one.give_up_at else ""
        )
        return f"Asked at {clock(one.created_at)}.{until}"
    sentence = about(one)
    if one.outcome in {Outcome.UNDELIVERED, Outcome.PAUSED}:
        sentence += f" Reason: {prose(reason_phrase(one.reason_code, one.reason))}."
    on_base = base_markdown(one, place)
    if on_base:
        sentence += f" {on_base}"
    moved = place.overrides.get(one.outcome)
    if moved is not None:
        sentence += " The relay's settings say what this outcome does to the gate."
    elif one.outcome is Outcome.SILENT and one.effect(place.overrides) is GateEffect.BLOCKS:
        sentence += " Its entry says that silence blocks."
    return sentence


def todo(required: list[Line], known: dict[str, DispatchFacts], *, commands: bool) -> list[str]:
    """For each backend that gave no result that passes, what can be done about it, unless somebody answers for it.

    ``commands`` says whether there is a pull request to write them on.
    """
    lines = []
    first: dict[GateEffect, RepoName] = {}
    for line in required:
        act = base_text.todo(known[line.detail])
        if line.effect is GateEffect.PENDING or override_of(line, known) is not None:
            continue
        if act:
            lines.append(f"- `{line.backend}`: {act}{oncall(known[line.detail])}")
        if act and line.outcome is not Outcome.PAUSED:  # Nobody tells it anew before that is over.
            first.setdefault(line.effect, line.backend)
    return lines + (_commands(first.get(GateEffect.BLOCKS), first.get(GateEffect.STEPS_DOWN)) if commands else [])


def _commands(blocking: RepoName | None, unheard: RepoName | None) -> list[str]:
    """What can be asked for in a comment where backends block, or gave no verdict; each is the first of its kind."""
    lines = []
    if blocking is not None:
        lines.append(
            "- To run again what failed: the button at this check, or `/crcr rerun` in a new comment. To merge without "
            f"it, somebody else with write access can answer for it: `/crcr override {blocking} REASON`."
        )
    if unheard is not None:
        lines.append(f"- To ask once more: `/crcr run {unheard}` in a new comment tells the backend anew.")
    return lines


def not_required(others: list[Line], known: dict[str, DispatchFacts], left_out: tuple[LeftOut, ...]) -> str:
    """The backends that cannot hold this back, each with the reason. No results of theirs: they would move the gate."""
    told = [f"`{line.backend}` ({_why_not(known[line.detail])})" for line in others]
    told = [f"`{one.backend}` ({prose(reason_phrase(one.reason_code, one.reason), 160)})" for one in left_out] + told
    more = f" and {len(told) - _MOST_NAMED} more" if len(told) > _MOST_NAMED else ""
    return f"Not required here: {', '.join(told[:_MOST_NAMED])}{more}."


def _why_not(one: DispatchFacts) -> str:
    if one.level is None:
        return "not on the allowlist any more"
    if one.level < one.level_then:
        # By the allowlist or by a demotion, and maybe before it was told already: this says nothing of how and when.
        return f"counts as {one.level} now, and not as {one.level_then}"
    if not one.gates:
        return str(one.level)
    return prose(reason_phrase(one.reason_code, one.reason), 160) if one.outcome is Outcome.FILTERED else "not required"
