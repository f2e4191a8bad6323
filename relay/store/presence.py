"""Whether a database is there, asked without making it: SQLite makes a file by looking into it."""

from __future__ import annotations

from pathlib import Path

_PREFIX = "sqlite:///"


def missing_file(url: str) -> Path | None:
    """The file of an SQLite URL if it is not there yet; None for one that is, for memory, and for servers."""
    if not url.startswith(_PREFIX) or url == _PREFIX or ":memory:" in url:
        return None
    path = Path(url.removeprefix(_PREFIX).partition("?")[0])
    return None if path.exists() else path
