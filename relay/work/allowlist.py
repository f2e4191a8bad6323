"""Keeps the allowlist in force: reads its source again and again, and never lets a bad read take away a good list.

The list in force is kept in the store, so that a start while GitHub is down begins with the last good one. It is the
file's, with the levels of demoted backends lowered for as long as an admin said (``relay.store.admin``).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import structlog
from sqlalchemy import Connection

from allowlist.diff import Change, ChangeKind, diff
from allowlist.model import Allowlist, Entry, Fault, Level, RepoName
from allowlist.parse import MAX_BYTES, UnreadableError, parse
from levels.powers import POWERS
from relay.clock import Now
from relay.deciding.effects import pin_backend
from relay.github.errors import GitHubError
from relay.github.port import FileVersion, GitHub
from relay.store import documents, outbox
from relay.store.admin import Demotion, demotions
from relay.store.checks import CheckTerms, rename_device, touch_backends
from relay.store.dispatching import address_of, unpinned
from relay.store.engine import Store, StoreDownError
from relay.store.gaps import note_listings

log = structlog.get_logger(__name__)

_REPO_PATH = re.compile(r"(?P<repo>[^/\s:]+/[^/\s:]+):(?P<path>[^@]+?)(?:@(?P<ref>[^@]+))?")


#: A file that is the same twice, this far apart, is taken to be written whole.
_SETTLED_SECONDS = 0.05
_MOST_LOOKS = 100

#: How often demotions are looked up. Each process does, and an admin who lowers a level waits for no more than this.
DEMOTIONS_SECONDS = 2.0


class SourceError(Exception):
    """The allowlist could not be read just now; the message says where and why."""


class Source(Protocol):
    """Somewhere an allowlist is read from."""

    @property
    def shared(self) -> bool:
        """Whether every replica reads the same text there, so that what one has read is what the others will read."""
        ...

    async def read(self, etag: str | None) -> FileVersion | None:
        """The file, or None when it is still the one the ETag stands for. Raises SourceError."""
        ...


@dataclass(frozen=True, slots=True)
class FileSource:
    """An allowlist on this machine's disk."""

    path: Path

    @property
    def shared(self) -> bool:
        """Each machine has a file of its own, and in a deploy they differ for a while."""
        return False

    async def read(self, etag: str | None) -> FileVersion | None:
        """The file's bytes, once they have stopped changing. Raises SourceError when it cannot be read."""
        try:
            text = await asyncio.to_thread(self._read)
            for _ in range(_MOST_LOOKS):
                # An editor empties a file before it writes it, and a list without entries is one that may be meant.
                await asyncio.sleep(_SETTLED_SECONDS)
                before, text = text, await asyncio.to_thread(self._read)
                if before == text:
                    return FileVersion(text, None)
        except OSError as error:
            raise SourceError(f"cannot read {self.path}: {error.strerror or type(error).__name__}") from None
        raise SourceError(f"cannot read {self.path}: it does not stop changing")

    def _read(self) -> bytes:
        # One byte more than is allowed tells a file that is too large from one that just fits.
        with self.path.open("rb") as file:
            return file.read(MAX_BYTES + 1)


@dataclass(frozen=True, slots=True)
class RepoSource:
    """An allowlist in a repository, fetched through the app; an unchanged file costs no rate limit."""

    github: GitHub
    store: Store
    repo: RepoName
    path: str
    ref: str | None

    @property
    def shared(self) -> bool:
        """There is one repository."""
        return True

    async def read(self, etag: str | None) -> FileVersion | None:
        """The file at its ref, or None when it has not changed. Raises SourceError."""
        at = await self.store.read(lambda conn: address_of(conn, self.repo))
        try:
            return await self.github.read_file(at, self.path, self.ref, etag)
        except GitHubError as error:
            raise SourceError(f"cannot read {self.repo}:{self.path}: {error.reason}: {error.detail}") from None


def parse_source(text: str) -> Path | tuple[RepoName, str, str | None]:
    """A source as people write it: a blob URL or ``owner/repo:path@ref`` (repository, path, ref), else a file's path.

    Raises ValueError for a blob URL that is none.
    """
    if text.startswith(("https://", "http://")):
        parts = [unquote(part) for part in urlsplit(text).path.strip("/").split("/")]
        if len(parts) < 5 or parts[2] != "blob":
            raise ValueError("CRCR_ALLOWLIST: expected a blob URL like https://github.com/OWNER/REPO/blob/REF/PATH")
        return RepoName.parse("/".join(parts[:2])), "/".join(parts[4:]), parts[3]
    found = _REPO_PATH.fullmatch(text)
    if found is not None and not Path(text).exists():
        return RepoName.parse(found["repo"]), found["path"].strip("/"), found["ref"]
    return Path(text)


def make_source(text: str, github: GitHub, store: Store) -> Source:
    """The source that this setting names."""
    parsed = parse_source(text)
    if isinstance(parsed, Path):
        return FileSource(parsed)
    repo, path, ref = parsed
    return RepoSource(github, store, repo, path, ref)


@dataclass(frozen=True, slots=True)
class State:
    """The list in force and what is known about it. ``trouble`` says why the last look failed, empty if it did not."""

    allowlist: Allowlist = field(default_factory=Allowlist)
    loaded: bool = False
    checked_at: datetime | None = None
    trouble: str = ""
    faults: tuple[Fault, ...] = ()


class AllowlistKeeper:
    """Holds the allowlist in force for this process and keeps it fresh."""

    def __init__(
        self,
        source: Source,
        store: Store,
        *,
        now: Now,
        terms: CheckTerms,
        label_prefix: str,
        seconds: float,
        wake: Callable[[], None],
        demotions_seconds: float = DEMOTIONS_SECONDS,
    ) -> None:
        self._source = source
        self._store = store
        self._now = now
        self._terms = terms
        self._label_prefix = label_prefix
        self._seconds = seconds
        self._wake = wake
        self._demotions_seconds = demotions_seconds
        self._etag: str | None = None
        self._filed = Allowlist()  # As the file has it.
        self._demotions: tuple[Demotion, ...] = ()
        self._looking = asyncio.Lock()  # A list must not be taken up while another is being read.
        self._moved: set[RepoName] = set()  # Changed in force, and their heads still to be looked at.
        self.state = State()

    def current(self) -> Allowlist:
        """The list in force."""
        return self.state.allowlist

    def known(self) -> Allowlist | None:
        """The list in force, or None while none was ever read: nobody may be demoted by a list that is not there."""
        return self.state.allowlist if self.state.loaded else None

    async def start(self) -> None:
        """Take up the last good list from the store, then look at the source."""
        kept = await self._store.read(lambda conn: documents.load(conn, documents.ALLOWLIST))
        self._demotions = await self._store.read(demotions)
        # Whoever looked last may have done so before the demotion was in force.
        self._moved.update(one.repo for one in self._demotions)
        if kept is not None:
            with contextlib.suppress(UnreadableError):
                allowlist = parse(kept.body, label_prefix=self._label_prefix)
                self._filed = allowlist
                in_force = lowered(allowlist, self._demotions, self._now())
                self.state = State(in_force, loaded=True, checked_at=kept.checked_at, faults=allowlist.faults)
                self._etag = kept.etag
        await self.refresh()

    async def run(self) -> None:
        """Look at the source, and at what others have written, until cancelled."""
        await asyncio.gather(
            self._again(self.refresh, self._seconds),
            self._again(self.refresh_shared, self._demotions_seconds),
            self._again(self.refresh_demotions, self._demotions_seconds),
        )

    async def _again(self, look: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await look()
            except StoreDownError as error:
                log.warning("store_unreachable", error=str(error))
            except Exception:  # The list in force stays in force; the next look may go better.
                log.exception("allowlist_refresh_failed")

    async def refresh_shared(self) -> None:
        """Take up the list that another replica has stored, where this one has not read one as new by itself.

        A replica that cannot reach GitHub works by what the others read there, and all of them change within seconds
        of the first. A file is each machine's own: while it can be read here, it is what counts here.
        """
        async with self._looking:
            stored = await self._store.read(lambda conn: documents.digest_of(conn, documents.ALLOWLIST))
            if stored == self._filed.digest:
                return
            kept = await self._store.read(lambda conn: documents.load(conn, documents.ALLOWLIST))
            if kept is None or not self._is_behind(kept):
                return
            try:
                allowlist = parse(kept.body, label_prefix=self._label_prefix)
            except UnreadableError as error:
                # A replica of another version took it; this one reads the source by itself.
                log.warning("stored_allowlist_not_read", error=str(error))
                return
            changes = diff(self._filed, allowlist)
            self._filed, self._etag = allowlist, kept.etag
            self.state = replace(
                self.state,
                allowlist=lowered(allowlist, self._demotions, self._now()),
                loaded=True,
                checked_at=kept.checked_at,
                faults=allowlist.faults,
            )
            self._moved.update(change.repo for change in changes)
            log.info("allowlist_shared", digest=allowlist.digest, changes=len(changes))
        await self._look_again()

    def _is_behind(self, kept: documents.Kept) -> bool:
        checked = self.state.checked_at
        newer = self._source.shared and (checked is None or kept.updated_at > checked)
        return newer or bool(self.state.trouble) or not self.state.loaded

    async def refresh_demotions(self) -> None:
        """Take up demotions that began or ended, and look again at the heads that this concerns."""
        self._demotions = await self._store.read(demotions)
        now = self._now()
        in_force = lowered(self._filed, self._demotions, now)
        moved = [entry.repo for entry in in_force.entries if entry != self.state.allowlist.get(entry.repo)]
        if moved:
            self.state = replace(self.state, allowlist=in_force)
            self._moved.update(moved)
            log.info("levels_moved", backends=[f"{repo} {in_force.by_repo[repo].level}" for repo in moved])
        await self._look_again()

    async def _look_again(self) -> None:
        """Have the heads looked at which a change in force concerns.

        Only once it is in force here: a look that came before has found the old level. What cannot be written now is
        owed until it can.
        """
        if not self._moved:
            return
        moved, now = sorted(self._moved), self._now()
        await self._store.write(lambda conn: touch_backends(conn, moved, self._terms, now))
        self._moved.difference_update(moved)
        self._wake()

    async def refresh(self) -> None:
        """Look at the source once; take a changed list into force, keep the last good one on any trouble."""
        async with self._looking:
            await self._refresh()

    async def _refresh(self) -> None:
        now = self._now()
        try:
            version = await self._source.read(self._etag if self.state.loaded else None)
            if version is None:
                await self._unchanged(now)
                return
            allowlist = parse(version.text, label_prefix=self._label_prefix)
        except SourceError as error:
            self._in_trouble(str(error))
            return
        except UnreadableError as error:
            self._in_trouble(str(error), error.faults)
            return
        if self.state.loaded and allowlist.digest == self._filed.digest:
            self._etag = version.etag
            await self._unchanged(now)
            return
        await self._take(allowlist, version, now)

    async def _unchanged(self, now: datetime) -> None:
        self.state = replace(self.state, checked_at=now, trouble="", faults=self.state.allowlist.faults)
        await self._store.write(lambda conn: documents.note_checked(conn, documents.ALLOWLIST, now))

    def _in_trouble(self, trouble: str, faults: tuple[Fault, ...] = ()) -> None:
        if trouble != self.state.trouble:
            log.error("allowlist_not_read", trouble=trouble, in_force=self.state.allowlist.digest)
        self.state = replace(self.state, trouble=trouble, faults=faults or self.state.faults)

    async def _take(self, allowlist: Allowlist, version: FileVersion, now: datetime) -> None:
        changes = diff(self._filed, allowlist)
        body = version.text.decode()

        def unit(conn: Connection) -> None:
            kept = documents.load(conn, documents.ALLOWLIST)
            documents.keep(conn, documents.ALLOWLIST, body, etag=version.etag, digest=allowlist.digest, now=now)
            if kept is None or kept.digest != allowlist.digest:
                # Another replica may have taken the same list; one audit row tells it once.
                for change in changes:
                    _audit_change(conn, change, now)
            note_listings(conn, allowlist, now)
            wanted = unpinned(conn, [entry.repo for entry in allowlist.entries if _reports(entry)])
            outbox.enqueue(conn, [pin_backend(repo) for repo in wanted], now)
            for change in changes:
                device = None if change.kind is not ChangeKind.DEVICE else allowlist.by_repo[change.repo].device
                if device is not None:
                    # One that went up from L3 may need no device any more; its label goes on showing what it showed.
                    rename_device(conn, change.repo, device)
            # Written with the list, so that a kill loses no look, and once more when the list is in force here.
            touch_backends(conn, [change.repo for change in changes], self._terms, now)

        await self._store.write(unit)
        self._etag = version.etag
        self._filed = allowlist
        in_force = lowered(allowlist, self._demotions, now)
        self.state = State(in_force, loaded=True, checked_at=now, faults=allowlist.faults)
        self._moved.update(change.repo for change in changes)
        log.info("allowlist_in_force", digest=allowlist.digest, entries=len(allowlist.entries), changes=len(changes))
        for fault in allowlist.faults:
            log.warning("allowlist_fault", line=fault.line, rule=fault.rule, message=fault.message)
        self._wake()
        await self._look_again()


def lowered(allowlist: Allowlist, demoted: Sequence[Demotion], now: datetime) -> Allowlist:
    """The list with the levels of demoted backends lowered. A demotion that has run out, or that asks for more than
    the list gives, changes nothing."""
    most = {one.repo: one.to for one in demoted if one.until > now}
    if not most:
        return allowlist
    entries = tuple(_at_most(entry, most.get(entry.repo, entry.level)) for entry in allowlist.entries)
    return replace(allowlist, entries=entries)


def _at_most(entry: Entry, level: Level) -> Entry:
    return replace(entry, level=level, lowered_from=entry.level) if level < entry.level else entry


def _reports(entry: Entry) -> bool:
    return POWERS[entry.level].recorded


def _audit_change(conn: Connection, change: Change, now: datetime) -> None:
    documents.audit(
        conn,
        at=now,
        who="allowlist",
        what=f"allowlist {change.kind.value}",
        subject=str(change.repo),
        why=change.text,
        before=change.before,
        after=change.after,
    )
