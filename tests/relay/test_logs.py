"""The log of the service: it says what happened, and never what must stay secret."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator

import pytest
import structlog

from relay.console.service import configure_logs


class Terminal(io.StringIO):
    """Somewhere to write that says it is a terminal."""

    def isatty(self) -> bool:
        """Always."""
        return True


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def _fail() -> None:
    local_secret = "ghs_" + "x" * 16
    raise RuntimeError(f"a token of {len(local_secret)} characters was refused")


def _logged(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logs()
    try:
        _fail()
    except RuntimeError:
        structlog.get_logger("test").exception("effect_failed_unexpectedly")
    return stream.getvalue()


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_traceback_does_not_show_local_variables(stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where something fails unexpectedly, tokens and keys lie about in the frames."""
    written = _logged(stream(), monkeypatch)

    assert "a token of 20 characters was refused" in written
    assert "ghs_xxxx" not in written


def test_a_log_that_is_no_terminal_is_json_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines read it: one object on each line, the traceback as values."""
    (line,) = _logged(io.StringIO(), monkeypatch).splitlines()

    told = json.loads(line)

    assert ("effect_failed_unexpectedly", "RuntimeError") == (told["event"], told["exception"][0]["exc_type"])


HOSTILE = "x\n{'event': 'started'}\r\x1b[2J\x9b1m\u202egnp\u2028\ud800" + "a" * 10_000


def _written(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logs()
    log = structlog.get_logger("test")
    log.info("callback_recorded", job=HOSTILE, backends=[HOSTILE], subject="\x1b]0;owned\x07")
    try:
        raise RuntimeError(HOSTILE)
    except RuntimeError:
        log.exception("effect_failed_unexpectedly", subject=HOSTILE)
    return stream.getvalue()


def test_outside_text_stays_in_its_place_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a job is called, it makes up no line, and none of them has no end."""
    written = _written(io.StringIO(), monkeypatch)

    lines = [json.loads(line) for line in written.splitlines()]
    assert ["callback_recorded", "effect_failed_unexpectedly"] == [line["event"] for line in lines]
    assert written.isascii()
    assert len(written) < 10_000 + 2_000
    assert lines[0]["job"].startswith("x\n{'event'")


def test_outside_text_commands_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Escape sequences are shown and not obeyed, in values as in tracebacks."""
    stream = Terminal()
    written = _written(stream, monkeypatch)

    written = re.sub(r"\x1b\[[\d;]*m", "", written)  # Our own colours.
    assert set() == {character for character in written if not character.isprintable()} - {"\n"}
    assert [] == [line for line in written.split("\n") if line.startswith("{'event'")]
    assert "\\x1b[2J" in written
