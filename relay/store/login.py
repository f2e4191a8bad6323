"""By which user and password the database is entered, where these stand in a file that may change meanwhile.

A password is rotated without a restart: each new connection reads the file. Where the database is, the file says only
when a process starts: half of a process's connections at another database would tear its record apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

_VARIABLE = "CRCR_DATABASE_URL"


def url_file(environ: Mapping[str, str]) -> Path | None:
    """The file that holds the database's URL; None where the variable holds it itself."""
    named = environ.get(f"{_VARIABLE}_FILE")
    return Path(named) if named is not None and _VARIABLE not in environ else None


def read_url(text: str) -> URL:
    """A database's URL. Raises ArgumentError for text that is none, and repeats nothing of it."""
    try:
        return make_url(text)
    except ValueError:
        # What stands where a port would may be a part of a password, and the error quotes it.
        raise ArgumentError("Could not parse this text as a database's URL") from None


def same_place(one: str, other: str) -> bool:
    """Whether both lead to one database, by whichever user and password; False for what is no URL."""
    try:
        return _place(read_url(one)) == _place(read_url(other))
    except ArgumentError:
        return False


class Login:
    """The user and the password of now. ``url`` is the one that the process was started with."""

    def __init__(self, url: URL, path: Path | None) -> None:
        self._url = url
        self._path = path

    def __call__(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """What the driver is called with, with the user and password that the file names now.

        A file that cannot be read, or that names another database, changes nothing.
        """
        found = self._read()
        if found is None:
            return dict(named)
        given = {"user": found.username, "password": found.password}
        kept = {name: value for name, value in named.items() if name not in given}
        return kept | {name: value for name, value in given.items() if value is not None}

    def _read(self) -> URL | None:
        if self._path is None:
            return None
        try:
            found = read_url(self._path.read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError, ArgumentError):
            return None
        return found if _place(found) == _place(self._url) else None


def _place(url: URL) -> URL:
    # ``postgresql``, ``postgres`` and ``postgresql+psycopg`` are names of one driver.
    kind = url.get_backend_name()
    return url.set(drivername="postgresql" if kind == "postgres" else kind, username="", password="")
