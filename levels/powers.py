"""What each level permits, as one table; ``levels/README.md`` shows it to reviewers and a test compares the two.

Every level is told of events, which is why the table has no column for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from allowlist.model import Level


class Show(StrEnum):
    """When a backend's check stands on the pull request."""

    NEVER = "never"
    LABELLED = "labelled"
    ALWAYS = "always"


class Powers(NamedTuple):
    """What a backend may do: have its results recorded, show a check, and block the merge."""

    recorded: bool
    check: Show
    blocks: bool


POWERS: Mapping[Level, Powers] = MappingProxyType(
    {
        Level.L1: Powers(recorded=False, check=Show.NEVER, blocks=False),
        Level.L2: Powers(recorded=True, check=Show.NEVER, blocks=False),
        Level.L3: Powers(recorded=True, check=Show.LABELLED, blocks=False),
        Level.L4: Powers(recorded=True, check=Show.ALWAYS, blocks=True),
    }
)
