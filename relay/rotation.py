"""Secrets that change while the service runs: their files are reread, and what is new is in force without a restart.

Nothing tells a process that a mounted secret was replaced: Kubernetes swaps a link, systemd a folder, people write the
file again. So the files are read again every few seconds, which costs nothing, and compared by what they hold.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from relay.settings import SECRET_FIELDS, Settings, SettingsError, load_settings

log = structlog.get_logger(__name__)

#: How often the files are read again, in seconds.
REREAD_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SecretFiles:
    """Where secrets come from that may change, how settings are read anew from there, and every how many seconds."""

    paths: tuple[Path, ...]
    reload: Callable[[], Settings]
    seconds: float = REREAD_SECONDS

    @classmethod
    def of(cls, environ: Mapping[str, str], *, seconds: float = REREAD_SECONDS, **given: Any) -> SecretFiles:
        """The files that the environment names. A variable that holds its secret itself cannot change.

        ``given`` values stand beside the environment's, as ``load_settings`` takes them.
        """
        names = (f"CRCR_{name.upper()}" for name in SECRET_FIELDS)
        paths = (environ[f"{name}_FILE"] for name in names if name not in environ and f"{name}_FILE" in environ)
        return cls(tuple(Path(path) for path in paths), lambda: load_settings(environ, **given), seconds)


#: Nothing comes from files.
NO_FILES = SecretFiles((), load_settings)


class Rotation:
    """Rereads the secrets' files. ``put_in_force`` takes all that is new, or raises SettingsError and takes nothing."""

    def __init__(self, files: SecretFiles, put_in_force: Callable[[Settings], None]) -> None:
        self._files = files
        self._put_in_force = put_in_force
        self._seen = _digests(files.paths)
        #: Why what the files hold now is not in force; None when it is.
        self.trouble: str | None = None

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while self._files.paths:
            await asyncio.sleep(self._files.seconds)
            await self.look()

    async def look(self) -> bool:
        """Put in force what has changed since the last look; whether something was.

        What cannot be used changes nothing: the secrets in force stay, ``trouble`` says why, and each look tries again,
        since what was wrong need not have been in the files.
        """
        try:
            found = await asyncio.to_thread(_digests, self._files.paths)
            if found == self._seen and self.trouble is None:
                return False
            self._put_in_force(await asyncio.to_thread(self._files.reload))
        except SettingsError as error:
            if self._is_news(str(error)):
                log.error("secrets_refused", trouble=self.trouble)
            return False
        except Exception as error:
            # Its own words are for the log alone: nobody chose them for a page that all can read.
            if self._is_news(f"they could not be read again: {type(error).__name__}"):
                log.exception("secrets_not_reread")
            return False
        self._seen, self.trouble = found, None
        log.info("secrets_reread")
        return True

    def _is_news(self, trouble: str) -> bool:
        """Remember why nothing is taken; False where the look before found the same, and the log has it already."""
        before, self.trouble = self.trouble, trouble
        return trouble != before


def _digests(paths: Sequence[Path]) -> tuple[bytes, ...]:
    """What each file holds, without keeping it; empty for one that cannot be read."""
    return tuple(_digest(path) for path in paths)


def _digest(path: Path) -> bytes:
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return b""
