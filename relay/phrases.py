"""Sentences for pages and the command line, made of the phrases in ``relay.texts.words``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from levels.outcomes import GATE_TABLE, GateEffect, Outcome
from relay.deciding.commands import PREFIX
from relay.deciding.facts import DispatchFacts
from relay.store.reading.asked import AskedLine
from relay.store.reading.change import Elsewhere
from relay.store.reading.pages import Decided
from relay.store.reading.why import Why
from relay.texts.backend_text import about, backend_title
from relay.texts.rendering import Rendered
from relay.texts.words import EFFECTS, outcome_phrase, reason_phrase, several, state_phrase


@dataclass(frozen=True, slots=True)
class Answer:
    """May I merge? In a word, with what that rests on. ``tone`` names a colour; the words say the same."""

    word: str
    sentence: str
    tone: str


#: What each state of the gate means to somebody who would like to merge.
ANSWERS: Mapping[GateEffect, Answer] = MappingProxyType(
    {
        GateEffect.PASSES: Answer("Yes, the gate passes", "Nothing that the relay watches stands in the way.", "good"),
        GateEffect.PENDING: Answer(
            "Not yet", "The gate waits for results; it ends by itself, at the latest at its deadline.", "wait"
        ),
        GateEffect.BLOCKS: Answer(
            "No, the gate blocks",
            "At least one backend that can hold a merge back says no. A later result of it replaces this.",
            "bad",
        ),
        GateEffect.STEPS_DOWN: Answer(
            "Not held back, but no verdict",
            "At least one backend gave no usable result, so nothing says that the change works there.",
            "warn",
        ),
    }
)

OVERRIDDEN = Answer(
    "Not held back: somebody answers for it",
    "No result of the overridden backends lets this merge; a person took responsibility for this commit instead.",
    "warn",
)
NO_GATE = Answer(
    "No gate here", "Only open pull requests and merge groups have a gate; results are recorded all the same.", "mute"
)
ENDED: Mapping[str, Answer] = MappingProxyType(
    {
        "superseded": Answer("Superseded", "A newer head took this one's place, and its gate counts.", "mute"),
        "closed": Answer("Closed", "There is nothing to merge any more. Results that still come are recorded.", "mute"),
        "landed": Answer("Landed", "The change is in. Results that still come are recorded.", "mute"),
    }
)

_TONES: Mapping[GateEffect, str] = MappingProxyType(
    {
        GateEffect.PASSES: "good",
        GateEffect.PENDING: "wait",
        GateEffect.BLOCKS: "bad",
        GateEffect.STEPS_DOWN: "warn",
        GateEffect.NOT_REQUIRED: "mute",
    }
)

#: A backend that passed this share elsewhere is well, so what fails here is likelier the change; the reverse below.
_WELL = 0.9
_ILL = 0.5
_FEW = 3


def tone_of(outcome: Outcome) -> str:
    """The colour that goes with an outcome."""
    return _TONES[GATE_TABLE[outcome]]


def tone_of_effect(effect: GateEffect) -> str:
    """The colour that goes with what a backend does to the gate."""
    return _TONES[effect]


def effect_phrase(effect: GateEffect) -> str:
    """What a backend does to the gate, without the Markdown of checks and short enough for a narrow column."""
    return "no verdict" if effect is GateEffect.STEPS_DOWN else unmarked(EFFECTS[effect])


def unmarked(text: str) -> str:
    """A sentence of ours that was written for Markdown, for where there is none."""
    return text.replace("**", "")


def gate_answer(state: str, effect: GateEffect | None, *, overridden: bool = False) -> Answer:
    """The answer for a change in this state whose gate stands so; ``effect`` None where it has none.

    ``overridden``: it steps down for nothing but people who answer for a backend.
    """
    if state in ENDED:
        return ENDED[state]
    if overridden:
        return OVERRIDDEN
    return NO_GATE if effect is None else ANSWERS[effect]


def gate_title(rendered: Rendered | None, kept: str) -> str:
    """The title that the gate's check shows, or will show in a moment; ``kept`` is the one GitHub took last."""
    return rendered.title if rendered is not None else kept


def became(state: str, reason_code: str, reason: str) -> str:
    """What has become of telling a backend, with the reason where the state alone does not say it."""
    if state == "superseded":
        return f"not called: {reason_phrase(reason_code, reason)}"
    if state in {"filtered", "dead", "paused"} and (reason or reason_code != state):
        return f"{state_phrase(state)}: {reason_phrase(reason_code, reason)}"
    return state_phrase(state)


_ASKED_BY = MappingProxyType({"action": "button at a check", "check_run": "re-run of a check"})


def asked_phrase(one: AskedLine) -> str:
    """What somebody asked for: the command as it was written, or what was pressed."""
    if one.source == "comment":
        return " ".join(filter(None, [PREFIX, "" if one.verb == "unknown" else one.verb, one.backend, one.words]))
    pressed = _ASKED_BY.get(one.source, "re-run of all checks")
    return f"{pressed}: {one.verb}" + (f" {one.backend}" if one.backend else "")


def answer_phrase(one: AskedLine) -> str:
    """What became of it."""
    if one.state == "asked":
        return "being decided"
    return f"{one.state}: {one.outcome}" if one.outcome and one.outcome != one.verb else one.state


def what_happened(one: DispatchFacts) -> str:
    """One backend's state on a change as a line: its check's title, or why it was not told."""
    if one.state in {"planned", "sent", "self_reported"}:
        return backend_title(one)
    return capital(became(one.state, one.reason_code, one.reason))


def meaning(one: DispatchFacts) -> str:
    """What the outcome means, with this backend's own times."""
    return unmarked(about(one))


def elsewhere_sentence(one: Elsewhere | None) -> str:
    """How the backend did on other changes, and what that says about this one."""
    if one is None or one.settled < _FEW:
        return "Too few results on other changes to compare with."
    share = one.passed / one.settled
    told = f"It passed {one.passed} of its last {several(one.settled, 'result')} on other changes"
    if share >= _WELL:
        return f"{told}: this change is the likelier cause."
    if share <= _ILL:
        return f"{told}: the backend is likelier in trouble than this change is the cause."
    return f"{told}: it could be either."


def decision_phrase(one: Decided) -> str:
    """What a webhook decided for a backend."""
    return _decision(one.effect, one.reason, one.detail)


def _decision(effect: str, reason: str, detail: str) -> str:
    if effect == "none":
        return f"not called: {reason_phrase(reason, detail)}"
    if effect == "decide_paths":
        return "to be called if the files it changes match the entry's paths"
    return "to be called" if reason == "wanted" else f"to be called: {reason_phrase(reason, detail)}"


def why_line(one: Why) -> str:
    """One decision about a backend, and what came of it, as a line: for ``crcr why`` and the API."""
    event = one.event if one.action is None else f"{one.event} {one.action}"
    line = f"{one.received_at:%Y-%m-%d %H:%M:%S} UTC  {event} at {one.head_sha[:12]}: "
    if one.state is None:
        return line + _decision(one.effect, one.reason, one.detail)
    line += became(one.state, one.state_reason or "", one.state_detail or "")
    if one.waits is not None:
        return f"{line}; it waits: {reason_phrase('waits', one.waits)}"
    if one.state == "sent" and one.sent_at is not None:
        line += f" at {one.sent_at:%H:%M:%S} UTC"
        if one.reason not in {"wanted", "pending_paths"}:
            line += f" ({reason_phrase(one.reason, one.detail)})"
        elif one.state_detail:
            line += f" ({one.state_detail})"
    if one.state == "sent" and not one.owes:
        return f"{line}; no result is expected"
    if one.state in {"sent", "self_reported"} and one.outcome is not None:
        return f"{line}; result: {outcome_phrase(Outcome(one.outcome))}"
    return line


def capital(text: str) -> str:
    """The text with its first letter as a capital."""
    return text[:1].upper() + text[1:]
