"""``crcr gaps heal``: what webhooks did not tell, by looking at upstream now; and making it good at once.

The running service does the same by itself, at its own pace. This is for somebody who does not want to wait, or wants
to know first what would be done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from allowlist.model import Allowlist
from relay.acts_read import listed
from relay.clock import system_now
from relay.console.opened import Opened
from relay.deciding.gaps import Cause
from relay.github.errors import GitHubError
from relay.github.port import Address
from relay.settings import Settings
from relay.store import gaps
from relay.store.admin import demotions
from relay.store.engine import Store

if TYPE_CHECKING:
    from relay.work.upstream import UpstreamLook

#: Turns do not matter here: somebody asked.
_AT_ONCE = timedelta(seconds=1)


def gaps_app(*, opened: Opened, unusable: Callable[[str], typer.Exit]) -> typer.Typer:
    """The group of commands. ``opened`` gives the database and the settings of the service."""
    app = typer.Typer(no_args_is_help=True, help="Compare upstream with what was dispatched.")

    @app.command("heal", help="Find what is missing, by cause, and make it good at once.")
    def heal(
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    ) -> None:
        """Exits with 0 where nothing is missing, or all was made good; with 1 where something is; else with 2."""
        with opened() as (store, settings):
            allowlist = _in_force(store, settings)
            if allowlist is None:
                raise unusable("the service has not read an allowlist yet, so nobody can be missing anything")
            try:
                left = asyncio.run(_look(settings, allowlist, heal=not dry_run))
            except GitHubError as error:
                raise unusable(f"GitHub: {error.detail}") from None
        if left:
            raise typer.Exit(1)

    return app


def _in_force(store: Store, settings: Settings) -> Allowlist | None:
    """The allowlist that the service has in force, with what admins have lowered for a time."""
    from relay.work.allowlist import lowered

    allowlist = store.read_now(lambda conn: listed(conn, settings.label_prefix))
    return None if allowlist is None else lowered(allowlist, store.read_now(demotions), system_now())


async def _look(settings: Settings, allowlist: Allowlist, *, heal: bool) -> int:
    """Look at all of upstream, say what is missing, and make it good if asked to; returns how much is left."""
    from relay.app import build
    from relay.work.gaps import GapSweep
    from relay.work.upstream import UpstreamLook

    relay = build(settings, migrate=False)
    try:
        look = UpstreamLook(store=relay.store, github=relay.github, upstream=Address(settings.upstream), now=relay.now)
        found = await _all_of(look, allowlist)
        for gap in found:
            typer.echo(_line(gap, heal=heal))
        if not heal:
            typer.echo(_count(len(found), "found"))
            return len(found)
        sweep = GapSweep(
            store=relay.store,
            github=relay.github,
            terms=relay.terms,
            listed=lambda: allowlist,
            now=relay.now,
            wake=lambda: None,
            fresh_id=relay.chance.guid,
            counts=relay.metrics,
            every=_AT_ONCE,
        )
        await sweep.find_now(allowlist, full=True)
        while not sweep.whole:
            await sweep.find_now(allowlist, full=True)
        while await sweep.heal_now(allowlist):
            pass
        left = await relay.store.read(gaps.open_by_cause)
        open_now = sum(count for cause, count in left.items() if cause is not Cause.DELIVERY_FAILED)
        typer.echo(f"{_count(len(found), 'found')}, {open_now} left; what was planned goes out by the service")
        return open_now
    finally:
        await relay.github.aclose()
        await relay.http.aclose()
        relay.close()


async def _all_of(look: UpstreamLook, allowlist: Allowlist) -> tuple[gaps.NewGap, ...]:
    """What all of upstream shows, in as many looks as that takes."""
    found: dict[tuple[Cause, str, str], gaps.NewGap] = {}
    while True:
        looked = await look.look(allowlist, full=True)
        found.update({(one.gap.cause, one.gap.subject, one.gap.head_sha): one.gap for one in looked.found})
        if looked.whole:
            return tuple(found.values())


def _line(gap: gaps.NewGap, *, heal: bool) -> str:
    told = f"{'telling' if heal else 'would tell'} {gap.detail}" if gap.detail else "nobody is told"
    return f"{gap.cause.value:<16} {gap.subject} {gap.head_sha[:12]}: {told}"


def _count(number: int, what: str) -> str:
    return f"{number} gap{'' if number == 1 else 's'} {what}"
