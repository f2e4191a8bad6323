"""``crcr db``: back up, restore and clean the database, and the figures that outlive its rows."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from relay.acts_read import named, parse_past, parse_words
from relay.clock import system_now
from relay.console.asked import AsJson, OfBackend, Who, user_name
from relay.console.opened import DEFAULT_URL, DatabaseUrl, opened_at, require_there
from relay.store import backup, schema
from relay.store.aggregates import (
    CombinationFigures,
    CombinationKey,
    DayFigures,
    DayKey,
    Wanted,
    by_combination,
    by_day,
)
from relay.store.backup import BackupError, Held

Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]


def add_database_commands(
    app: typer.Typer,
    *,
    told_in_a_line: Callable[[], contextlib.AbstractContextManager[None]],
    unusable: Callable[[str], typer.Exit],
) -> None:
    """Add these commands to the group ``crcr db``. ``unusable`` ends one with 2 and a line."""

    @contextlib.contextmanager
    def there(database_url: str) -> Iterator[None]:
        with told_in_a_line():
            require_there(database_url, unusable)
            try:
                yield
            except BackupError as error:
                raise unusable(str(error)) from None

    @app.command("backup", help="Copy the database into one file, beside a service that goes on writing.")
    def back_up(
        file: Annotated[Path, typer.Argument(help="The file to make. Only its owner may read it: it holds secrets.")],
        force: Force = False,
        database_url: DatabaseUrl = DEFAULT_URL,
    ) -> None:
        with there(database_url):
            held = backup.back_up(database_url, file, force=force)
        typer.echo(f"{file}: {_said(held)}")

    @app.command(
        "restore",
        help="Fill an empty database from a backup, of either engine. Stop the service first. What was outstanding in "
        "the backup is delivered once the service runs; GitHub is asked whether it was before.",
    )
    def restore(
        file: Annotated[Path, typer.Argument(help="A backup.")],
        force: Force = False,
        who: Who = "",
        database_url: DatabaseUrl = DEFAULT_URL,
    ) -> None:
        with told_in_a_line():
            try:
                by = parse_words("--who", who or user_name())
                held = backup.restore(database_url, file, who=by, now=system_now(), force=force)
            except (BackupError, ValueError) as error:
                raise unusable(str(error)) from None
        typer.echo(f"restored from {file}: {_said(held)}; the database is at schema {schema.newest()}")

    @app.command("vacuum", help="Give back the room of forgotten rows. SQLite's writers wait meanwhile.")
    def vacuum(database_url: DatabaseUrl = DEFAULT_URL) -> None:
        with there(database_url):
            done = backup.vacuum(database_url)
        typer.echo(f"{done.before:,} bytes before, {done.after:,} after")

    @app.command("history", help="What was told and reported, day by day, since the first; forgotten rows count too.")
    def history(
        since: Annotated[str, typer.Option(help="From this day on: how long ago (30d), or the day (2026-11-30).")] = "",
        backend: OfBackend = "",
        combinations: Annotated[
            bool, typer.Option("--combinations", help="By the versions of backend and suite, with tests counted.")
        ] = False,
        as_json: AsJson = False,
        database_url: DatabaseUrl = DEFAULT_URL,
    ) -> None:
        try:
            wanted = Wanted(
                since=parse_past("--since", since, system_now()).date() if since else None,
                backend=named("--backend", backend) if backend else None,
            )
        except ValueError as error:
            raise unusable(str(error)) from None
        with told_in_a_line(), opened_at(database_url, unusable) as store:
            if combinations:
                versions = store.read_now(lambda conn: by_combination(conn, wanted))
                typer.echo(_json(versions) if as_json else "\n".join(map(_combination, versions.items())))
            else:
                days = store.read_now(lambda conn: by_day(conn, wanted))
                typer.echo(_json(days) if as_json else "\n".join(_days(days)))


def _said(held: Held) -> str:
    most = Counter(held.rows).most_common(4)
    parts = ", ".join(f"{count:,} {name}" for name, count in most if count)
    return f"schema {held.revision}, {held.total:,} rows" + (f" ({parts})" if parts else "")


def _days(found: Mapping[DayKey, DayFigures]) -> list[str]:
    """A line for each day and backend: how its tests ended, how many reports and jobs, how long they waited and ran."""
    lines: dict[tuple[str, str, int], DayFigures] = {}
    ends: dict[tuple[str, str, int], Counter[str]] = {}
    for key, figures in found.items():
        of = key.day, key.backend, key.level
        lines[of] = lines[of] + figures if of in lines else figures
        ends.setdefault(of, Counter())[key.outcome if key.purpose == "test" else key.purpose] += figures.dispatches
    return [
        f"{day}  {backend} L{level}: {_counts(ends[day, backend, level])}; {figures.reports} reports, "
        f"{figures.jobs} jobs, waited {_mean(figures.queue_ms, figures.queue_count)}, "
        f"ran {_mean(figures.execution_ms, figures.execution_count)}"
        for (day, backend, level), figures in sorted(lines.items())
    ]


def _counts(of: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in of.most_common())


def _mean(ms: int, count: int) -> str:
    return f"{ms / count / 1000:.1f} s on average" if count else "unknown"


def _combination(item: tuple[CombinationKey, CombinationFigures]) -> str:
    key, figures = item
    return (
        f"{key.day}  {key.backend} {key.backend_version or '-'} x {key.suite_version or '-'}: "
        f"{figures.jobs} {key.conclusion or 'unfinished'}; tests: {figures.passed} passed, {figures.failed} failed, "
        f"{figures.skipped} skipped"
    )


def _json(found: Mapping[DayKey, DayFigures] | Mapping[CombinationKey, CombinationFigures]) -> str:
    rows = [{**dataclasses.asdict(key), **dataclasses.asdict(figures)} for key, figures in found.items()]
    return json.dumps(rows, ensure_ascii=False, indent=2)
