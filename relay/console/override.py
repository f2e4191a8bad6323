"""An override from the service's own console, for when comments do not work or nobody with write access is there."""

from __future__ import annotations

from dataclasses import dataclass

from allowlist.model import RepoName
from relay.check_terms import terms_of
from relay.clock import system_now
from relay.console.asked import user_name
from relay.settings import Settings
from relay.store.answering import answer_for_pull
from relay.store.engine import Store
from relay.store.redispatch import Refusal
from relay.texts.markup import plain

_LONGEST = 500


class OverrideRefusedError(Exception):
    """There is nothing to override; the text says why."""


@dataclass(frozen=True, slots=True)
class Override:
    """Who answers for which backend on which pull request, and why. Raises ValueError for an empty reason."""

    number: int
    backend: RepoName
    who: str
    why: str

    def __post_init__(self) -> None:
        if not plain(self.why, _LONGEST):
            raise ValueError("--reason: an override needs a reason that others can read")


def override_pull(store: Store, settings: Settings, asked: Override) -> str:
    """Write it down and return the commit it holds for; the running service shows it within seconds.

    Raises OverrideRefusedError where there is nothing to override.
    """
    terms = terms_of(settings)
    done = store.write_now(
        lambda conn: answer_for_pull(
            conn,
            asked.number,
            asked.backend,
            who=plain(asked.who, 60) or f"{user_name()} at the console",
            why=plain(asked.why, _LONGEST),
            terms=terms,
            listed=None,
            now=system_now(),
        )
    )
    if isinstance(done, Refusal):
        raise OverrideRefusedError(done.sentence)
    return done
