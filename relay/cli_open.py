"""The service's database for one command: what cannot be used ends the command with 2 and a line that says why."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import typer

from relay.settings import Settings
from relay.store import schema
from relay.store.engine import Store
from relay.store.presence import missing_file

#: Gives the opened database and the settings it was opened by, for as long as a command works.
Opened = Callable[[], contextlib.AbstractContextManager[tuple[Store, Settings]]]


def opener(
    *,
    load: Callable[[], Settings],
    told_in_a_line: Callable[[], contextlib.AbstractContextManager[None]],
    unusable: Callable[[str], typer.Exit],
) -> Opened:
    """How commands come to the database that the settings name.

    It must be there, and at this version's schema or a later one.
    """

    @contextlib.contextmanager
    def opened() -> Iterator[tuple[Store, Settings]]:
        with told_in_a_line():
            settings = load()
            if (missing := missing_file(settings.database_url)) is not None:
                raise unusable(f"CRCR_DATABASE_URL: {missing} does not exist; name the database that `crcr serve` uses")
            with contextlib.closing(Store(settings.database_url)) as store:
                if not schema.serves(store.read_now(schema.revision)):
                    raise unusable(
                        "CRCR_DATABASE_URL: this database has an older schema than this version; run `crcr db migrate`"
                    )
                yield store, settings

    return opened
