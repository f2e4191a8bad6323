"""Reading secrets again: whatever goes wrong is tried again at each look, and said once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from relay.rotation import Rotation, SecretFiles
from relay.settings import Settings, SettingsError


def a_rotation(path: Path, put_in_force: Callable[[Settings], None], reload: Callable[[], Settings]) -> Rotation:
    """One that reads this file."""
    path.write_text("before")
    return Rotation(SecretFiles((path,), reload), put_in_force)


def settings() -> Settings:
    """What a reading gives; what it holds is of no interest here."""
    return Settings.model_construct()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(13, "not for us", "/etc/secret"), "they could not be read again: PermissionError"),
        (IsADirectoryError(21, "a folder", "/etc/secret"), "they could not be read again: IsADirectoryError"),
        (UnicodeDecodeError("utf-8", b"\xffsecret", 0, 1, "bad"), "they could not be read again: UnicodeDecodeError"),
        (SettingsError("CRCR_SECRET_KEYS_FILE: gone for a moment"), "CRCR_SECRET_KEYS_FILE: gone for a moment"),
    ],
)
def test_each_look_tries_again_though_the_files_are_the_same(tmp_path: Path, error: Exception, said: str) -> None:
    """A disk that fails for a moment must not leave the old secrets in force until the next rotation."""
    taken: list[Settings] = []
    failing: list[Exception] = [error, error]

    def reload() -> Settings:
        if failing:
            raise failing.pop()
        return settings()

    path = tmp_path / "secret"
    rotation = a_rotation(path, taken.append, reload)
    path.write_text("after")

    assert not asyncio.run(rotation.look())
    assert said == rotation.trouble
    assert not asyncio.run(rotation.look())
    assert asyncio.run(rotation.look())
    assert 1 == len(taken)
    assert not rotation.trouble
    assert not asyncio.run(rotation.look())


def test_it_is_logged_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line every five seconds for a night would bury everything else."""

    def refuse(_found: Settings) -> None:
        raise RuntimeError("not in force")

    path = tmp_path / "secret"
    rotation = a_rotation(path, refuse, settings)
    path.write_text("after")
    for _ in range(3):
        asyncio.run(rotation.look())

    assert 1 == capsys.readouterr().out.count("secrets_not_reread")
