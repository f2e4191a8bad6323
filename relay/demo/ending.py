"""The end of the demo: each pull request's merge box, the results per combination, and which expectations held."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from relay.demo.expectations import Expectation
from relay.demo.results import Result
from relay.demo.scene import ACTORS, SILENT, UPSTREAM
from relay.demo.stage import Opened, Stage
from relay.demo.watching import check_word, look
from relay.texts.words import GATE_NAME, span

_INDENT = (0, 0, 0, 2)


def introduce(console: Console) -> None:
    """Who takes part."""
    console.print(Text(f"{UPSTREAM} opens pull requests. Six backends are on its allowlist:", style="bold"))
    table = _table("Backend", "Level", "In this demo it")
    for actor in ACTORS:
        table.add_row(Text(actor.name), actor.level.name, Text(actor.role))
    console.print(Padding(table, _INDENT))
    console.print()


def show_pull_requests(stage: Stage, console: Console) -> None:
    """The checks of each pull request, as its reviewer sees them."""
    console.print()
    console.print(Text("What a reviewer sees", style="bold"))
    for one in stage.opened:
        _show(stage, one, console)


def _show(stage: Stage, one: Opened, console: Console) -> None:
    labels = "".join(f"  [{label}]" for label in one.proposal.labels)
    console.print()
    console.print(Text(f"#{one.pr.number} {one.proposal.title}", style="bold").append(labels, style="magenta"))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    for width in (12, 18, None):
        table.add_column(min_width=width, overflow="fold")
    checks = stage.up.checks(one.pr.head_sha)
    for name in sorted(checks, key=lambda name: (name != GATE_NAME, name)):
        check = checks[name]
        said = Text(check.title or "")
        if name == GATE_NAME:
            said = Text("Required. ", style="bold").append_text(Text(check.title or "", style="not bold"))
        table.add_row(look(check_word(check)).text(), Text(name), said)
    console.print(Padding(table, _INDENT))
    for comment in stage.up.comments(one.pr):
        if comment.app_id is None:
            wrote = Text(f"{comment.user.login}: ", style="bold").append(comment.body, style="default not bold")
            console.print(Padding(wrote, _INDENT))
    box = stage.up.required_status(one.pr)
    waits = ", ".join(f"{name} is {state}" for name, state in box.contexts.items())
    verdict = Text("May be merged", style="green") if box.mergeable else Text("Merging is blocked", style="bold red")
    console.print(Padding(verdict.append(f": {waits}", style="default not bold"), _INDENT))


def show_results(results: Sequence[Result], console: Console) -> None:
    """The results per combination."""
    console.print()
    console.print(Text("Results by backend version, upstream commit and suite version", style="bold"))
    table = _table("Backend", "", "Version", "PR", "Commit", "Suite", "Result", "Passed", "Failed", "Skipped", "Time")
    for column in table.columns[7:]:
        column.justify = "right"
    for one in sorted(results, key=_by_backend):
        at = one.combination
        table.add_row(
            Text(at.backend),
            one.level,
            Text(at.backend_version),
            f"#{at.number}",
            at.head_sha[:7],
            Text(at.suite_version),
            look(one.outcome).text(),
            str(one.passed),
            str(one.failed),
            str(one.skipped),
            "" if one.seconds is None else span(one.seconds),
        )
    console.print(Padding(table, _INDENT))


def _by_backend(one: Result) -> tuple[str, int, list[str]]:
    """Backends together, the pull requests of each in their order, and 2.9 before 2.10."""
    at = one.combination
    return at.backend, at.number, [part.rjust(12) for part in at.backend_version.split(".")]


def show_expectations(found: Sequence[Expectation], console: Console) -> None:
    """Each with whether it held, and what was seen instead where it did not."""
    console.print()
    console.print(Text("What had to be true, by what the simulated GitHub saw", style="bold"))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in found:
        says = Text(one.says)
        if not one.held:
            says.append(f"\nwanted: {one.wanted}\nseen:   {one.seen}", style="red")
        table.add_row(Text("ok", style="green") if one.held else Text("failed", style="bold red"), says)
    console.print(Padding(table, _INDENT))
    held = sum(1 for one in found if one.held)
    console.print()
    summary = f"{held} of {len(found)} expectations held."
    console.print(Text(summary, style="bold green" if held == len(found) else "bold red"))


def show_addresses(stage: Stage, console: Console) -> None:
    """Where to look while it goes on."""
    console.print()
    console.print(Text("The relay goes on serving; Ctrl-C ends it.", style="bold"))
    for what, address in (
        ("pages", f"{stage.url}/"),
        ("API", f"{stage.url}/api/v1/changes"),
        ("figures", f"{stage.url}/metrics"),
    ):
        # An address must stay whole to be clicked or copied, however narrow the terminal is.
        console.print(Text(f"  {what:<8} {address}"), soft_wrap=True)
    number = next(one.pr.number for one in stage.opened if SILENT in one.proposal.told)
    why = f"  ask why  {_program()} why {number} {SILENT} --database-url {stage.relay.store.url}"
    console.print(Text(why), soft_wrap=True)


def _program() -> str:
    """How to call this very installation from here."""
    python = Path(sys.executable)
    return f"{python.relative_to(Path.cwd()) if python.is_relative_to(Path.cwd()) else python} -m relay"


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for head in heads:
        table.add_column(head, overflow="fold")
    return table
