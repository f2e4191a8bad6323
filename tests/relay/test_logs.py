"""The log of the service: it says what happened, and never what must stay secret."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator

import pytest
import structlog

from relay.cli import configure_logs


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
