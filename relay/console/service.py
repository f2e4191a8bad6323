"""The commands of ``crcr`` that need the service: serve, ask why, look after the database, and the demo."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Literal

import structlog
import typer
from sqlalchemy.exc import ArgumentError, DBAPIError
from structlog.tracebacks import ExceptionDictTransformer

from allowlist.model import RepoName
from relay.console.backend import backend_app
from relay.console.database import add_database_commands
from relay.console.deliveries import deliveries_app
from relay.console.gaps import gaps_app
from relay.console.opened import DEFAULT_URL, DatabaseUrl, opened_at, opener
from relay.console.replay import add_replay_command
from relay.logs import cut, traceback, visible
from relay.settings import SECRET_FIELDS, Settings, SettingsError, load_settings
from relay.store import schema
from relay.store.engine import Store, StoreDownError
from relay.store.login import url_file

app = typer.Typer()
db_app = typer.Typer(no_args_is_help=True, help="Look after the database.")
app.add_typer(db_app, name="db")

# What somebody who starts a command can set right, so each is told in a line and never by a traceback.
_CORRECTABLE = (SettingsError, StoreDownError, DBAPIError, ArgumentError, ModuleNotFoundError)


def settings_help() -> str:
    """Every setting as a line, for ``crcr serve --help``."""
    lines = ["Settings come from the environment:", ""]
    for name, field in Settings.model_fields.items():
        variable = f"CRCR_{name.upper()}"
        file = f" (or {variable}_FILE)" if name in SECRET_FIELDS else ""
        needed = " Required." if field.is_required() else ""
        lines.append(f"{variable}{file}: {field.description}{needed}\n")
    return "\n".join(lines)


@app.command(help="Run the service.", epilog=settings_help())
def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on.")] = 8000,
    role: Annotated[
        Literal["all", "web", "worker"], typer.Option(help="web answers requests, worker does the work, all both.")
    ] = "all",
) -> None:
    """Serve until told to stop. Exits with 2 and one line per fault when the settings or the database are unusable."""
    from relay.app import build
    from relay.rotation import SecretFiles
    from relay.serving import run

    configure_logs()
    with _told_in_a_line():
        settings = load_settings()
        if role != "all" and settings.database_url.startswith("sqlite"):
            # A worker beside a web process on the same file would work, and on a copy of it wait for ever.
            raise SettingsError(
                f"CRCR_DATABASE_URL: --role {role} needs PostgreSQL; on SQLite one process does both, without --role"
            )
        relay = build(
            settings,
            secret_files=SecretFiles.of(os.environ),
            open_store=partial(Store, url_file=url_file(os.environ)),
        )
    try:
        run(relay, host=host, port=port, role=role)
    except OSError as error:
        relay.close()
        said = error.strerror or type(error).__name__
        raise _unusable(f"cannot listen on {host} port {port}: {said}; choose others by --host and --port") from None


@app.command(help="Say why a backend was, or was not, called for a pull request.")
def why(
    number: Annotated[int, typer.Argument(help="The pull request's number.", min=1)],
    backend: Annotated[str, typer.Argument(help="The backend, OWNER/REPO.")],
    database_url: DatabaseUrl = DEFAULT_URL,
) -> None:
    """Prints one line per event of the pull request, oldest first. Exits with 1 when nothing is known of it."""
    from relay.phrases import why_line
    from relay.store.reading.why import why as load_why

    try:
        repo = RepoName.parse(backend)
    except ValueError as error:
        raise _unusable(f"BACKEND: {error}") from None
    with _told_in_a_line(), opened_at(database_url, _unusable) as store:
        found = store.read_now(lambda conn: load_why(conn, number, repo))
    for one in found:
        typer.echo(why_line(one))
    if not found:
        typer.echo(f"Nothing is known of pull request {number} and {repo}.", err=True)
        raise typer.Exit(1)


@app.command(help="Answer for a backend on the newest commit of a pull request, so that its gate does not wait for it.")
def override(
    number: Annotated[int, typer.Argument(help="The pull request's number.", min=1)],
    backend: Annotated[str, typer.Argument(help="The backend, OWNER/REPO.")],
    reason: Annotated[str, typer.Option(help="Why; shown in the gate.")],
    who: Annotated[
        str, typer.Option(help="Who answers for it; shown in the gate. The user of this machine where not given.")
    ] = "",
) -> None:
    """Writes to the database that the settings name; a new push ends it. Exits with 2 where there is no such check."""
    from relay.console.override import Override, OverrideRefusedError, override_pull

    with _told_in_a_line():
        settings = load_settings()
    try:
        asked = Override(number, RepoName.parse(backend), who=who, why=reason)
        with _opened(settings.database_url) as store:
            head_sha = override_pull(store, settings, asked)
    except (ValueError, OverrideRefusedError) as error:
        raise _unusable(str(error)) from None
    typer.echo(f"{asked.backend} does not hold back {head_sha[:12]} of pull request {number} any more.")


@db_app.command(help="Bring the database to the newest schema.")
def migrate(database_url: DatabaseUrl = DEFAULT_URL) -> None:
    """Safe to run while replicas serve, and again."""
    with _opened(database_url) as store:
        schema.upgrade(store.write_engine)
        found = store.read_now(schema.revision)
        left = f", newer than this version's {schema.newest()}: left as it is" if schema.is_newer(found) else ""
        typer.echo(f"schema {found}{left}")


@app.command(help="Look at settings, keys, app, permissions, allowlist and database, and say how to mend each fault.")
def doctor() -> None:
    """Changes nothing. Exits with 1 when something does not work, with 2 when the settings cannot be read."""
    import asyncio

    from relay.clock import system_now
    from relay.doctor import State, examine

    configure_logs(level=logging.ERROR)
    with _told_in_a_line():
        findings = asyncio.run(examine(load_settings(), system_now))
    for one in findings:
        typer.echo(f"{one.state:<6} {one.part}: {one.found}")
        if one.fix:
            typer.echo(f"       -> {one.fix}")
    faults = sum(1 for one in findings if one.state is State.FAULT)
    typer.echo(f"{faults} fault{'' if faults == 1 else 's'} in {len(findings)} parts")
    if faults:
        raise typer.Exit(1)


@app.command(help="Run the main job on a simulated GitHub, and show it.")
def demo(
    once: Annotated[
        bool, typer.Option("--once", help="End with 0 when every expectation held, with 1 if not.")
    ] = False,
) -> None:
    """Starts simulator and relay on free ports, with a database in a temporary folder; serves until Ctrl-C."""
    from relay.demo import run_demo

    configure_logs(level=logging.ERROR)
    raise typer.Exit(run_demo(once=once))


def configure_logs(level: int = logging.INFO) -> None:
    """JSON lines on standard error, or readable ones on a terminal."""
    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([cut, visible] if terminal else [_traceback_as_values(), cut]),
            _for_a_terminal() if terminal else structlog.processors.JSONRenderer(default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


def _traceback_as_values() -> structlog.types.Processor:
    # By default the values of local variables go with each frame: our keys, tokens and callers' bodies among them.
    return structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False))


def _for_a_terminal() -> structlog.types.Processor:
    return structlog.dev.ConsoleRenderer(exception_formatter=traceback)  # No locals either.


@contextlib.contextmanager
def _opened(database_url: str) -> Iterator[Store]:
    """The database, for one command."""
    with _told_in_a_line(), contextlib.closing(Store(database_url)) as store:
        yield store


@contextlib.contextmanager
def _told_in_a_line() -> Iterator[None]:
    """End with 2 and a line for each fault, where what was given cannot be used."""
    try:
        yield
    except _CORRECTABLE as error:
        raise _unusable(_line_about(error)) from None


def _line_about(error: Exception) -> str:
    if isinstance(error, SettingsError):
        return str(error)
    if isinstance(error, ArgumentError):
        return "CRCR_DATABASE_URL: this is no database URL; write sqlite:///FILE or postgresql://USER@HOST/NAME"
    if isinstance(error, ModuleNotFoundError):
        return f"CRCR_DATABASE_URL: no driver {error.name}; SQLite and PostgreSQL are what this version speaks"
    cause = error if isinstance(error, DBAPIError) else error.__cause__
    said = f"{error}" if isinstance(error, StoreDownError) else "the database cannot be opened"
    if isinstance(cause, DBAPIError):
        # The driver's first line says what is wrong (the file, the host); the rest of it repeats this, or is SQL.
        said = f"{said.partition(': ')[0]}: {str(cause.orig).partition(chr(10))[0].strip()}"
    return said if said.startswith("CRCR_DATABASE_URL") else f"CRCR_DATABASE_URL: {said}"


def _unusable(message: str) -> typer.Exit:
    for line in message.splitlines():
        typer.echo(f"crcr: {line}", err=True)
    return typer.Exit(2)  # A usage error, as shells and typer count them.


app.add_typer(backend_app(load=load_settings, told_in_a_line=_told_in_a_line, unusable=_unusable), name="backend")
add_database_commands(db_app, told_in_a_line=_told_in_a_line, unusable=_unusable)
_opened_by_settings = opener(load=load_settings, told_in_a_line=_told_in_a_line, unusable=_unusable)
app.add_typer(deliveries_app(opened=_opened_by_settings, unusable=_unusable), name="deliveries")
app.add_typer(gaps_app(opened=_opened_by_settings, unusable=_unusable), name="gaps")
add_replay_command(app, opened=_opened_by_settings, unusable=_unusable)
