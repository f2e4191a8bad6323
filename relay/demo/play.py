"""Plays the demo: sets the stage, opens the pull requests, waits until all is as it should be, and shows it."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from rich.console import Console

from relay.clock import system_now
from relay.demo.ending import introduce, show_addresses, show_expectations, show_pull_requests, show_results
from relay.demo.expectations import expectations
from relay.demo.results import kept
from relay.demo.stage import Stage, stage
from relay.demo.watching import watching
from relay.texts.words import GATE_NAME

# All is over in about ten seconds; a slow machine may take longer before we call it a failure.
_PATIENCE_SECONDS = 120.0
_WIDEST = 100
_INTERRUPTED = 130


def run_demo(*, once: bool, output: TextIO | None = None, patience: float = _PATIENCE_SECONDS) -> int:
    """Play it and return the exit code: 0 when every expectation held within ``patience`` seconds, else 1.

    Without ``once`` it goes on serving until SIGINT or SIGTERM, which then is no failure. For the main thread only.
    """
    console = _console(output or sys.stdout)
    # Whoever ends it, the database's folder is removed and every process of a runner ended.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="crcr-demo-") as folder, stage(Path(folder), system_now) as playing:
            return _play(playing, console, once=once, patience=patience)
    except KeyboardInterrupt:
        console.print("Interrupted.")
        return _INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)


def _play(playing: Stage, console: Console, *, once: bool, patience: float) -> int:
    introduce(console)
    with watching(playing, console) as until:
        for _ in playing.open_pull_requests():
            until(lambda: True, 0.0)
        if until(playing.blocked, patience):
            playing.write_commands()
        until(lambda: _all_is_over(playing) and _all_held(playing), patience)
    show_pull_requests(playing, console)
    show_results(kept(playing), console)
    # Looked at anew: what held for a moment only has not held.
    found = expectations(playing)
    show_expectations(found, console)
    code = 0 if all(one.held for one in found) else 1
    if once:
        return code
    show_addresses(playing, console)
    try:
        signal.pause()
    except KeyboardInterrupt:
        console.print("\nStopped.")
    return code


def _all_is_over(playing: Stage) -> bool:
    """Whether nothing runs any more and every gate has concluded: cheap to ask, unlike the expectations."""
    runs = [run for backend in playing.backends.values() for run in backend.runs]
    gates = [playing.up.checks(one.pr.head_sha).get(GATE_NAME) for one in playing.opened]
    return all(run.conclusion for run in runs) and all(gate is not None and gate.conclusion for gate in gates)


def _all_held(playing: Stage) -> bool:
    return all(one.held for one in expectations(playing))


def _console(output: TextIO) -> Console:
    """Colours and the terminal's width where there is one; plain lines of at most 100 columns elsewhere."""
    reconfigure = getattr(output, "reconfigure", None)
    if reconfigure is not None:
        # A terminal without UTF-8 shows question marks for icons; the words beside them say the same.
        reconfigure(errors="replace")
    console = Console(file=output, highlight=False)
    if not console.is_terminal:
        console.width = _WIDEST
    return console
