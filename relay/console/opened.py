"""The service's database for one command: what cannot be used ends the command with 2 and a line that says why."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from relay.settings import Settings
from relay.store import schema
from relay.store.engine import Store
from relay.store.presence import missing_file

_VARIABLE = "CRCR_DATABASE_URL"
_NAME_IT = "name the one that `crcr serve` uses"
DEFAULT_URL = "sqlite:///crcr.db"


def _or_from_file(context: typer.Context, value: str) -> str:
    """What the variable's file holds, where nothing else was said: commands look where the service does."""
    path = os.environ.get(f"{_VARIABLE}_FILE")
    source = context.get_parameter_source("database_url")
    if path is None or source is None or source.name != "DEFAULT":
        return value
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{_VARIABLE}_FILE: cannot read {path!r}: {type(error).__name__}") from None


#: For commands that need the database and no other setting.
DatabaseUrl = Annotated[str, typer.Option(envvar=_VARIABLE, callback=_or_from_file, help="SQLite or PostgreSQL.")]

#: Gives the opened database and the settings it was opened by, for as long as a command works.
Opened = Callable[[], contextlib.AbstractContextManager[tuple[Store, Settings]]]


@contextlib.contextmanager
def opened_at(database_url: str, unusable: Callable[[str], typer.Exit]) -> Iterator[Store]:
    """The database of a service, for one command. It must be there, and at this version's schema or a later one."""
    require_there(database_url, unusable)
    with contextlib.closing(Store(database_url)) as store:
        found = store.read_now(schema.revision)
        if found is None:
            raise unusable(f"{_VARIABLE}: this database is empty; {_NAME_IT}")
        if not schema.serves(found):
            raise unusable(f"{_VARIABLE}: this database has an older schema than this version; run `crcr db migrate`")
        yield store


def require_there(database_url: str, unusable: Callable[[str], typer.Exit]) -> None:
    """End the command where the file is missing, before SQLite makes it."""
    if (missing := missing_file(database_url)) is not None:
        raise unusable(f"{_VARIABLE}: {missing} does not exist; {_NAME_IT}")


def opener(
    *,
    load: Callable[[], Settings],
    told_in_a_line: Callable[[], contextlib.AbstractContextManager[None]],
    unusable: Callable[[str], typer.Exit],
) -> Opened:
    """How commands come to the database that the settings name, see ``opened_at``."""

    @contextlib.contextmanager
    def opened() -> Iterator[tuple[Store, Settings]]:
        with told_in_a_line():
            settings = load()
            with opened_at(settings.database_url, unusable) as store:
                yield store, settings

    return opened
