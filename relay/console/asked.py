"""Options that several commands share, so that one word means one thing at each of them."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

Since = Annotated[str, typer.Option(help="How long ago (30m, 2h, 3d), or since when (2026-11-30T08:00Z).")]
OfBackend = Annotated[str, typer.Option("--backend", help="Only this backend, OWNER/REPO.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Who = Annotated[str, typer.Option(help="Who does this, for the audit. The user of this machine where not given.")]
Why = Annotated[str, typer.Option("--reason", help="Why; kept in the audit.")]


def user_name() -> str:
    """Who uses this machine, for the audit."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # A container's user often has no name.
        return "unknown"
