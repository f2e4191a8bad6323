"""``crcr backend``: what an admin does to one backend without touching the allowlist. In force within seconds.

The commands write to the database that the service uses, so they run with the service's settings, on its machine or
any other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer
from sqlalchemy import Connection

from allowlist.model import RepoName
from relay.acts_read import listed_entry, named, parse_level, parse_until, parse_words
from relay.check_terms import terms_of
from relay.clock import system_now
from relay.console.asked import Who, Why, user_name
from relay.console.opened import opener
from relay.settings import Settings
from relay.store import admin
from relay.store.admin import Demotion, Pause
from relay.store.checks import CheckTerms
from relay.store.engine import Store

Repo = Annotated[str, typer.Argument(help="The backend, OWNER/REPO.")]
Until = Annotated[
    str, typer.Option(help="How long (30m, 4h, 2d) or until when (2026-12-01T08:00Z; UTC where no zone is named).")
]
Reason = Annotated[str, typer.Option(help="Why. Reviewers read it on their pull requests.")]


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
            store.read_now(lambda conn: listed_entry(conn, "REPO", settings.label_prefix, act.repo))
            wanted = Pause(act.repo, parse_until("--until", until, act.now), parse_words("--reason", reason))
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
            entry = store.read_now(lambda conn: listed_entry(conn, "REPO", settings.label_prefix, act.repo))
            level, ends = parse_level("--to", to, entry), parse_until("--until", until, act.now)
            wanted = Demotion(act.repo, level, ends, parse_words("--reason", reason))
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


def _nothing(message: str) -> typer.Exit:
    typer.echo(message, err=True)
    return typer.Exit(1)
