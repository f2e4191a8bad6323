"""Commands that documents name in passing are there, with those options: nobody runs them as the blocks are run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from relay.cli import app
from tests.test_documents import FENCE, GUIDES

ROOT = Path(__file__).parents[1]
PAGES = [*GUIDES, *sorted((ROOT / "examples").rglob("*.md")), ROOT / "CHANGELOG.md"]
RULES = ROOT / "examples" / "observability" / "prometheus-rules.yml"


def fault(words: Sequence[str]) -> str:
    """What is wrong with the words after ``crcr``; empty where nothing is."""
    command: Any = typer.main.get_command(app)
    rest = list(words)
    # What stands in capitals stands for any.
    while hasattr(command, "get_command") and rest and not rest[0].startswith("-") and not rest[0].isupper():
        name = rest.pop(0)
        command = command.get_command(None, name)
        if command is None:
            return f"no command {name}"
    known = {"--help", *(option for one in command.params for option in (*one.opts, *one.secondary_opts))}
    return "".join(f"no option {word}" for word in rest if word.startswith("--") and word not in known)


def named() -> Iterator[tuple[str, list[str]]]:
    """Every command that is named outside of blocks, with where that is."""
    for page in PAGES:
        for words in re.findall(r"`crcr\s([^`]+)`", FENCE.sub("", page.read_text())):
            yield str(page.relative_to(ROOT)), words.split()
    # Alerts are no Markdown: a command is what follows its name, up to a sign.
    for words in re.findall(r"\bcrcr ((?:--)?[a-z][\w-]*(?: (?:--)?[\w-]+)*)", RULES.read_text()):
        yield RULES.name, words.split()


def test_every_command_that_is_named_is_there() -> None:
    """Whoever was woken up by an alert has no time to look for what it is called now."""
    found = list(named())

    assert [] == [(page, words, fault(words)) for page, words in found if fault(words)]
    assert {"CHANGELOG.md", "relay/README.md", "examples/OPERATIONS.md", RULES.name} <= {page for page, _ in found}
    assert ["no command heel", "no option --dry", "", ""] == [
        fault(words.split()) for words in ("gaps heel", "gaps heal --dry", "COMMAND --help", "deliveries")
    ]
