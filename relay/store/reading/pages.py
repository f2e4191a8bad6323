"""What people and programs read, in pages that have a bound. The rooms beside this one read one kind of thing each.

Everything that others wrote (titles, job names, test names, messages) leaves the store as one printable line of
bounded length, and URLs only where they are safe to show. Of a private backend the names of tests, the URLs and the
messages do not leave it at all, so that no reader further up can show them by mistake.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from relay.texts.markup import plain, safe_url

T = TypeVar("T")

#: The most that one page of anything holds, and what it holds unless told.
MOST = 100
USUAL = 50

#: Identifiers in URLs are ours or GitHub's; the databases count up to this.
MOST_ID = 2**63 - 1

MOST_TITLE = 300
MOST_NAME = 200
MOST_MESSAGE = 600


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items and where the next page begins: pass ``next`` as that page's start; None on the last one."""

    items: tuple[T, ...]
    next: str | None = None


def paged(items: Sequence[T], limit: int, keys: Sequence[str]) -> Page[T]:
    """A page out of one item more than it may hold; the surplus tells that there is another page."""
    if len(items) <= limit:
        return Page(tuple(items))
    return Page(tuple(items[:limit]), keys[limit - 1])


def bounded(limit: int) -> int:
    """A page's size as it is served, whatever was asked for."""
    return max(1, min(limit, MOST))


def name_of(text: str | None, most: int = MOST_NAME) -> str:
    """Foreign text as one line; empty for none."""
    if not text:
        return ""
    if len(text) <= most and text.isascii() and text.isprintable():
        # Most text is like this, and a page may hold thousands of names: nothing in it needs a closer look.
        return " ".join(text.split())
    return plain(text, most)


def version_of(text: str | None) -> str | None:
    """A version as one line, None where none was stated."""
    return name_of(text) if text else None


def url_of(text: str | None) -> str | None:
    """The URL if it may be shown as a link."""
    return safe_url(text or "")


def labels_of(text: str) -> tuple[str, ...]:
    """The labels on a change's row."""
    return tuple(name_of(label) for label in json.loads(text))


@dataclass(frozen=True, slots=True)
class Decided:
    """What one webhook decided for one backend. ``effect``: dispatch, decide_paths or none."""

    delivery_id: str
    event: str
    action: str | None
    backend: str
    effect: str
    reason: str
    detail: str


def decisions_of(delivery_id: str, event: str, action: str | None, plan: str) -> list[Decided]:
    """The decisions about backends on a delivery's row, in their order. Those about checks concern no backend."""
    return [
        Decided(
            delivery_id,
            event,
            action,
            decision["backend"],
            decision["effect"],
            decision["reason"],
            name_of(decision.get("detail"), MOST_MESSAGE),
        )
        for decision in json.loads(plan)
        if decision["backend"]
    ]
