"""What is going on at the simulated GitHub, as lines where output is kept and as a live table on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from relay.demo.scene import ACTORS
from relay.demo.stage import Stage
from relay.simulator import CheckRun, Run
from relay.texts.words import GATE_NAME

_LOOK_SECONDS = 0.1
#: Narrower than this the live table would break its words, so lines are shown instead.
_WIDE_ENOUGH = 118


@dataclass(frozen=True, slots=True)
class Look:
    """An icon, a word and a colour; the word alone says it all."""

    icon: str
    word: str
    style: str

    def text(self) -> Text:
        """Icon and word."""
        return Text(f"{self.icon} {self.word}", style=self.style)


#: A conclusion or status as GitHub shows it. All icons are one column wide.
LOOKS: Mapping[str, Look] = {
    "success": Look("✓", "success", "green"),
    "failure": Look("✗", "failure", "bold red"),
    "neutral": Look("■", "neutral", "yellow"),
    "cancelled": Look("⊘", "cancelled", "yellow"),
    "skipped": Look("⊘", "skipped", "dim"),
    "in_progress": Look("●", "running", "cyan"),
    "queued": Look("○", "queued", "cyan"),
    "told": Look("○", "told", "cyan"),
    "not called": Look("·", "not called", "dim"),
}


def look(word: str) -> Look:
    """How a conclusion or status is shown."""
    return LOOKS.get(word, Look("?", word, ""))


def check_word(check: CheckRun) -> str:
    """A check's conclusion, or its status while it has none."""
    return check.conclusion or check.status


def run_word(run: Run) -> str:
    """A run's conclusion, or its status while it has none."""
    return run.conclusion or run.status


Seen = dict[tuple[int, str], str]


def runs_by_pull(stage: Stage) -> Seen:
    """For each pull request and backend: what has become of its run, ``told`` where a dispatch started none."""
    seen: Seen = {}
    for name, backend in stage.backends.items():
        for request in backend.dispatches:
            seen[request.body["client_payload"]["payload"]["number"], name] = "told"
        for run in backend.runs:
            seen[run.client_payload["payload"]["number"], name] = run_word(run)
    return seen


def checks_by_pull(stage: Stage) -> dict[tuple[int, str], tuple[str, str]]:
    """For each pull request and check: its conclusion or status, and its title."""
    return {
        (one.pr.number, name): (check_word(check), check.title or "")
        for one in stage.opened
        for name, check in stage.up.checks(one.pr.head_sha).items()
    }


class Progress:
    """Prints what is new since the last look."""

    def __init__(self, stage: Stage, console: Console) -> None:
        self._stage = stage
        self._console = console
        self._began = time.monotonic()
        self._runs: Seen = {}
        self._checks: dict[tuple[int, str], tuple[str, str]] = {}

    def say(self, number: int | None, who: str, word: str, detail: str = "") -> None:
        """One line: when, which pull request, who, how it stands."""
        shown = look(word)
        line = Text(f"{time.monotonic() - self._began:5.1f}s  {f'#{number}' if number else '':<3} ", style="dim")
        line.append(f"{who:<18}", style="default not dim")
        line.append(f" {shown.icon} {shown.word:<10}", style=shown.style or "default not dim")
        line.append(f" {detail}", style="default not dim")
        self._console.print(line, no_wrap=True, overflow="ellipsis", crop=True)

    def news(self) -> None:
        """Say what has changed."""
        runs, checks = runs_by_pull(self._stage), checks_by_pull(self._stage)
        for (number, name), word in runs.items():
            if word != self._runs.get((number, name)) and word != "queued":
                self.say(number, name, word, "by a dispatch" if word == "told" else "its run")
        for (number, name), (word, title) in checks.items():
            if (word, title) != self._checks.get((number, name)):
                self.say(number, name, word, title)
        self._runs, self._checks = runs, checks


def _grid(stage: Stage) -> Table:
    """One row for each pull request: its gate, and the run of each backend."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    table.add_column("Gate")
    for actor in ACTORS:
        table.add_column(f"{actor.name}\n{actor.level.name}, {actor.role}", no_wrap=False, max_width=16)
    runs, checks = runs_by_pull(stage), checks_by_pull(stage)
    for one in stage.opened:
        number = one.pr.number
        gate = checks.get((number, GATE_NAME))
        cells = [look(runs.get((number, actor.name), "not called")).text() for actor in ACTORS]
        table.add_row(f"#{number}", look(gate[0]).text() if gate else "", *cells)
    return table


@contextmanager
def watching(stage: Stage, console: Console) -> Iterator[Callable[[Callable[[], bool], float], bool]]:
    """Gives a function that waits until a condition holds, at most so many seconds, and shows what happens meanwhile.

    It returns whether the condition came true.
    """
    live = Live(_grid(stage), console=console, auto_refresh=False) if _may_move(console) else None
    progress = Progress(stage, console)

    def show() -> None:
        if live is None:
            progress.news()
        else:
            live.update(_grid(stage), refresh=True)

    def until(condition: Callable[[], bool], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not (held := condition()) and time.monotonic() < end:
            show()
            time.sleep(_LOOK_SECONDS)
        show()
        return held

    if live is None:
        yield until
    else:
        with live:
            yield until


def _may_move(console: Console) -> bool:
    return console.is_terminal and not console.is_dumb_terminal and console.width >= _WIDE_ENOUGH
