"""The command ``crcr``: which version this is, and whether an allowlist is good; all else is in ``console.service``.

What needs the service is loaded when it is asked for, since the database alone takes half a second: ``crcr allowlist
check`` runs in every change of an allowlist, and starts at once.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from allowlist.model import Severity
from allowlist.parse import MAX_BYTES, check

# A usage error, as shells and typer count them.
UNUSABLE = 2


class _LoadedWhenAsked(TyperGroup):
    """The commands that are defined here, and those of the service as soon as another one is named.

    The types of contexts and commands are typer's own and private.
    """

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands:
            self._load()
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        self._load()
        return super().list_commands(ctx)

    def _load(self) -> None:
        from relay.console.service import app as of_the_service

        group = cast(TyperGroup, typer.main.get_command(of_the_service))
        self.commands = {**group.commands, **self.commands}


app = typer.Typer(
    cls=_LoadedWhenAsked,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Relays upstream's changes to accelerator backends, and their results back as checks.",
)
allowlist_app = typer.Typer(no_args_is_help=True, help="Look at an allowlist.")
app.add_typer(allowlist_app, name="allowlist")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"crcr {version('cross-repo-ci-relay')}")
        raise typer.Exit


@app.callback()
def crcr(
    shown: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """The group of all commands; ``--version`` has been dealt with when this runs."""


@allowlist_app.command("check", help="Print every fault of a file as FILE:LINE: and exit with 1 if it has errors.")
def check_allowlist(
    file: Annotated[Path, typer.Argument(help="The allowlist.")],
    label_prefix: Annotated[str, typer.Option(envvar="CRCR_LABEL_PREFIX")] = "ciflow/crcr/",
) -> None:
    """Exits 0 for a file without errors (warnings are printed), 1 with errors, 2 when it cannot be read."""
    try:
        with file.open("rb") as opened:
            text = opened.read(MAX_BYTES + 1)
    except OSError as error:
        typer.echo(f"crcr: {file}: {error.strerror or type(error).__name__}", err=True)
        raise typer.Exit(UNUSABLE) from None
    faults = check(text, label_prefix=label_prefix)
    for fault in faults:
        typer.echo(fault.render(str(file)))
    if any(fault.severity is Severity.ERROR for fault in faults):
        raise typer.Exit(1)


def main() -> None:
    """The entry point."""
    app()
