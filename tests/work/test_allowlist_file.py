"""The allowlist on disk, as it is while somebody writes it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from relay.github.port import FileVersion
from relay.work.allowlist import FileSource, SourceError


def test_a_file_that_is_being_written_is_not_an_empty_list(tmp_path: Path) -> None:
    """An editor empties the file first: whoever looks just then must not tell every backend that it is unlisted."""
    path = tmp_path / "allowlist.yml"
    path.write_bytes(b"")

    async def look() -> FileVersion | None:
        looking = asyncio.create_task(FileSource(path).read(None))
        await asyncio.sleep(0.03)
        path.write_bytes(b"L1:\n  - org/npu\n")
        return await looking

    assert FileVersion(b"L1:\n  - org/npu\n", None) == asyncio.run(look())


def test_a_file_that_goes_away_is_trouble(tmp_path: Path) -> None:
    """A mount that vanished is no list at all."""
    with pytest.raises(SourceError, match="No such file"):
        asyncio.run(FileSource(tmp_path / "allowlist.yml").read(None))
