"""Templates and static files, and how values look in them. Everything is escaped unless a template says otherwise."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from allowlist.model import Level
from levels.outcomes import Outcome
from levels.powers import POWERS, Show
from relay import phrases
from relay.texts import base_text
from relay.texts.words import PHRASES, clock, outcome_phrase, reason_phrase, seen_phrase, several, span, state_phrase

_HERE = Path(__file__).parent
_TYPES = MappingProxyType({".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"})


@dataclass(frozen=True, slots=True)
class Asset:
    """A static file with its type and the hash that its address carries."""

    body: bytes
    media_type: str
    digest: str


@dataclass(frozen=True, slots=True)
class Theme:
    """How pages look, the same for all routes of a process."""

    environment: Environment
    assets: Mapping[str, Asset]

    def page(self, template: str, **values: Any) -> bytes:
        """The template filled in. Raises UndefinedError for a value that it needs and was not given."""
        return self.environment.get_template(template).render(**values).encode()


@cache
def load_theme() -> Theme:
    """Read the static files and prepare the templates, once: to compile the largest takes a tenth of a second."""
    assets = {
        path.name: Asset(body, _TYPES[path.suffix], hashlib.sha256(body).hexdigest()[:16])
        for path in sorted((_HERE / "static").iterdir())
        if path.suffix in _TYPES
        for body in [path.read_bytes()]
    }
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        auto_reload=False,  # Else a file that changes beneath a running process, in a deploy, would change its pages.
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        when=_when,
        clock=_clock,
        span=span,
        short=_short,
        several=several,
        outcome=outcome_phrase,
        tone=phrases.tone_of,
        state=state_phrase,
        happened=phrases.what_happened,
        became=phrases.became,
        meaning=phrases.meaning,
        seen=seen_phrase,
        decision=phrases.decision_phrase,
        elsewhere=phrases.elsewhere_sentence,
        on_base=base_text.base_plain,
        todo=base_text.todo,
        asked=phrases.asked_phrase,
        answered=phrases.answer_phrase,
        effect=phrases.effect_phrase,
        effect_tone=phrases.tone_of_effect,
        reason=lambda code, reason: phrases.capital(reason_phrase(code, reason)),
        capital=phrases.capital,
        words=_words,
        powers=_powers,
        check_tone=_check_tone,
        environment=lambda pairs: ", ".join(f"{key} {value}" for key, value in pairs),
    )
    environment.globals.update(
        asset=lambda name: f"/static/{name}?v={assets[name].digest}",
        phrases=PHRASES,
        Outcome=Outcome,
        kinds=_KINDS,
    )
    return Theme(environment, MappingProxyType(assets))


_KINDS = MappingProxyType(
    {
        "pull_request": "Pull request",
        "push": "Push",
        "merge_group": "Merge group",
        "self_reported": "Self-reported",
    }
)
_POWERS = MappingProxyType(
    {
        Show.NEVER: "its results are recorded and shown here only",
        Show.LABELLED: "its results show on the pull request while the label of its device is there",
        Show.ALWAYS: "its results show on the pull request",
    }
)


def _when(at: datetime | None) -> Markup:
    """A time in UTC that programs can read too; a dash where there is none."""
    if at is None:
        return Markup("—")
    return _time(at, f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC")


def _clock(at: datetime, beside: datetime) -> Markup:
    """A time of day, with its date where that differs from the day of ``beside``."""
    return _time(at, clock(at.astimezone(UTC), beside.astimezone(UTC)))


def _time(at: datetime, shown: str) -> Markup:
    return Markup('<time datetime="{}">{}</time>').format(f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}", shown)


def _short(sha: str | None) -> str:
    return (sha or "")[:12]


def _words(text: str) -> str:
    return text.replace("_", " ")


def _powers(level: Level) -> str:
    """What a level means, in a clause."""
    powers = POWERS[level]
    if not powers.recorded:
        return "it is told of changes; it may not report yet"
    return _POWERS[powers.check] + (", and can hold a merge back" if powers.blocks else ", and hold nothing back")


def _check_tone(status: str, conclusion: str | None) -> str:
    if status != "completed" or conclusion is None:
        return "wait"
    if conclusion == "success":
        return "good"
    return "mute" if conclusion in {"neutral", "skipped", "cancelled"} else "bad"
