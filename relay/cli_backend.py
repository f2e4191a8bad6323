"""``crcr backend``: what an admin does to one backend without touching the allowlist. In force within seconds.

The commands write to the database that the service uses, so they run with the service's settings, on its machine or
any other.
"""

from __future__ import annotations

import contextlib
import getpass
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from sqlalchemy import Connection

from allowlist.model import Entry, Level, RepoName
from allowlist.parse import UnreadableError, parse
from relay.check_terms import terms_of
from relay.cli_open import opener
from relay.clock import system_now
from relay.settings import Settings
from relay.store import admin, documents
from relay.store.admin import Demotion, Pause
from relay.store.checks import CheckTerms
from relay.store.engine import Store

#: A pause or demotion for longer than this is no temporary one: the allowlist is the place for it.
LONGEST = timedelta(days=366)
MOST_WORDS = 500

_DURATION = re.compile(r"(?:([0-9]{1,4})d)?(?:([0-9]{1,5})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,7})s)?", re.ASCII)

Repo = Annotated[str, typer.Argument(help="The backend, OWNER/REPO.")]
Until = Annotated[
    str, typer.Option(help="How long (30m, 4h, 2d) or until when (2026-12-01T08:00Z; UTC where no zone is named).")
]
Reason = Annotated[str, typer.Option(help="Why. Reviewers read it on their pull requests.")]
Why = Annotated[str, typer.Option("--reason", help="Why; kept in the audit.")]
Who = Annotated[str, typer.Option(help="Who does this, for the audit. The user of this machine where not given.")]


@dataclass(frozen=True, slots=True)
class Asked:
    """Which backend, by whom, and when."""

    repo: RepoName
    who: str
    now: datetime


def backend_app(
    *,
    load: Callable[[], Settings],
    told_in_a_line: Callable[[], contextlib.AbstractContextManager[None]],
    unusable: Callable[[str], typer.Exit],
) -> typer.Typer:
    """The group of commands. ``told_in_a_line`` ends one with 2 for settings or a database that cannot be used."""
    app = typer.Typer(
        no_args_is_help=True, help="Pause, resume, demote or restore a backend. Runs with the settings of the service."
    )

    database = opener(load=load, told_in_a_line=told_in_a_line, unusable=unusable)

    @contextlib.contextmanager
    def opened() -> Iterator[tuple[Store, CheckTerms, Settings]]:
        with database() as (store, settings):
            yield store, terms_of(settings), settings

    @contextlib.contextmanager
    def asked(repo: str, who: str) -> Iterator[Asked]:
        """What an act is about. A word that cannot be used ends the command with 2 and says which, and why."""
        try:
            yield Asked(named("REPO", repo), parse_words("--who", who or user_name()), system_now())
        except ValueError as error:
            raise unusable(str(error)) from None

    @app.command(help="Send it nothing until then. What was sent goes on, and its results count.")
    def pause(repo: Repo, until: Until, reason: Reason, who: Who = "") -> None:
        with asked(repo, who) as act, opened() as (store, terms, settings):
            entry_of(store, settings.label_prefix, act.repo)
            wanted = Pause(act.repo, parse_until(until, act.now), parse_words("--reason", reason))
            store.write_now(lambda conn: admin.pause(conn, wanted, act.who, terms, act.now))
            typer.echo(f"{act.repo} is {wanted}")

    @app.command(help="End a pause: what waited for it is sent now.")
    def resume(repo: Repo, reason: Why = "", who: Who = "") -> None:
        with asked(repo, who) as act, opened() as (store, terms, _):
            why = parse_words("--reason", reason, needed=False)
            told = store.write_now(lambda conn: admin.resume(conn, act.repo, act.who, why, terms, act.now))
            if told is None:
                raise _nothing(f"{act.repo} is not paused")
            typer.echo(f"{act.repo} is resumed; what waited and is sent now: {told}")

    @app.command(help="Lower its level until then, below what the allowlist says.")
    def demote(
        repo: Repo,
        to: Annotated[str, typer.Option(help="L1, L2 or L3.")],
        until: Until,
        reason: Reason,
        who: Who = "",
    ) -> None:
        with asked(repo, who) as act, opened() as (store, terms, settings):
            level = parse_level(to, entry_of(store, settings.label_prefix, act.repo))
            wanted = Demotion(act.repo, level, parse_until(until, act.now), parse_words("--reason", reason))
            store.write_now(lambda conn: admin.demote(conn, wanted, act.who, terms, act.now))
            typer.echo(f"{act.repo} has {wanted}")

    @app.command(help="End a demotion: the allowlist's level is in force again.")
    def restore(repo: Repo, reason: Why = "", who: Who = "") -> None:
        with asked(repo, who) as act, opened() as (store, terms, _):
            why = parse_words("--reason", reason, needed=False)
            if not store.write_now(lambda conn: admin.restore(conn, act.repo, act.who, why, terms, act.now)):
                raise _nothing(f"{act.repo} is not demoted")
            typer.echo(f"{act.repo} has the allowlist's level again")

    @app.command("list", help="What is paused or demoted now.")
    def show() -> None:
        now = system_now()
        with opened() as (store, _, _):
            lines = store.read_now(lambda conn: standing_acts(conn, now))
        typer.echo("\n".join(lines) or "No backend is paused or demoted.")

    return app


def standing_acts(conn: Connection, now: datetime) -> list[str]:
    """A line for each pause and demotion in force, by backend."""
    acts: list[Pause | Demotion] = [*admin.pauses(conn), *admin.demotions(conn)]
    return sorted(f"{one.repo}: {one}" for one in acts if one.until > now)


def parse_until(text: str, now: datetime) -> datetime:
    """A duration from now, or a moment. Raises ValueError, naming the rule, for what is neither, over or too far."""
    found = _DURATION.fullmatch(text.strip())
    if found and text.strip():
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        until = now + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    else:
        try:
            until = datetime.fromisoformat(text.strip())
        except ValueError:
            raise ValueError(
                f"--until: {text[:60]!r} is no duration and no time; write 30m, 4h, 2d or 2026-12-01T08:00Z"
            ) from None
        until = until.replace(tzinfo=UTC) if until.tzinfo is None else until.astimezone(UTC)
    if until <= now:
        raise ValueError(f"--until: {text[:60]!r} is not in the future; it is {admin.stamp(now)} now")
    if until > now + LONGEST:
        raise ValueError(f"--until: {text[:60]!r} is more than {LONGEST.days} days away; change the allowlist instead")
    return until


def parse_level(text: str, entry: Entry) -> Level:
    """A level below the entry's own. Raises ValueError for anything else."""
    below = [level.name for level in Level if level < entry.level]
    if text.upper() not in below:
        choice = f"write {' or '.join(below)}" if below else "nothing is below it"
        raise ValueError(f"--to: {text[:20]!r} is no level below {entry.level}, where {entry.repo} is; {choice}")
    return Level[text.upper()]


def parse_words(option: str, text: str, *, needed: bool = True) -> str:
    """Words for people, in one line. Raises ValueError where they are missing, too long or not printable."""
    words = text.strip()
    if (needed and not words) or len(words) > MOST_WORDS or not words.isprintable():
        raise ValueError(f"{option}: write 1 to {MOST_WORDS} printable characters in one line")
    return words


def entry_of(store: Store, label_prefix: str, repo: RepoName) -> Entry:
    """The backend's entry in the allowlist that the service took up last. Raises ValueError where it has none."""
    kept = store.read_now(lambda conn: documents.load(conn, documents.ALLOWLIST))
    try:
        entry = None if kept is None else parse(kept.body, label_prefix=label_prefix).get(repo)
    except UnreadableError:
        entry = None
    if entry is None:
        raise ValueError(f"REPO: {repo} is not on the allowlist that is in force; /api/v1/allowlist lists who is")
    return entry


def named(option: str, text: str) -> RepoName:
    """The repository that these words name. Raises ValueError, naming the option, where they name none."""
    try:
        return RepoName.parse(text)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None


def user_name() -> str:
    """Who uses this machine, for the audit."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # A container's user often has no name.
        return "unknown"


def _nothing(message: str) -> typer.Exit:
    typer.echo(message, err=True)
    return typer.Exit(1)
