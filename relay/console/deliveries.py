"""``crcr deliveries``: look at what came in and what became of it, and try again what had been given up.

The commands work on the database that the service uses; a service that runs takes up what is revived at its next look
at the database.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer
from sqlalchemy import Connection

from allowlist.model import RepoName
from relay.acts_read import listed, named, parse_past, parse_words
from relay.check_terms import terms_of
from relay.clock import system_now
from relay.console.asked import AsJson, OfBackend, Since, Who, Why, user_name
from relay.console.opened import Opened
from relay.settings import Settings
from relay.store import replaying
from relay.store.engine import Store
from relay.store.reading.deliveries import (
    DeliveryPage,
    EffectLine,
    FoundDelivery,
    Sought,
    delivery_page,
    find_deliveries,
)
from relay.store.redispatch import Asking
from relay.store.replaying import BATCH, Chosen, Fate, Replayed

#: What one look prints at most.
MOST = 1_000


def deliveries_app(*, opened: Opened, unusable: Callable[[str], typer.Exit]) -> typer.Typer:
    """The group of commands. ``opened`` gives the database and the settings, ``unusable`` ends a command with 2."""
    app = typer.Typer(no_args_is_help=True, help="Look at webhooks that came in, and replay what had been given up.")

    @contextlib.contextmanager
    def asked() -> Iterator[datetime]:
        """When a command is given. A word that cannot be used ends it with 2 and says which, and why."""
        try:
            yield system_now()
        except ValueError as error:
            raise unusable(str(error)) from None

    @app.command("list", help="Webhooks, newest first: what each was, how many backends it told, what was given up.")
    def show_list(
        since: Since = "",
        event: Annotated[str, typer.Option(help="Only this event: pull_request, or pull_request.opened.")] = "",
        dead: Annotated[bool, typer.Option("--dead", help="Only those of which something was given up.")] = False,
        backend: OfBackend = "",
        limit: Annotated[int, typer.Option(min=1, max=MOST, help="The most to print.")] = 50,
        as_json: AsJson = False,
    ) -> None:
        with asked() as now:
            sought = Sought(
                since=parse_past("--since", since, now) if since else None,
                event=event or None,
                backend=str(named("--backend", backend)) if backend else None,
                dead=dead,
            )
        with opened() as (store, _):
            found = store.read_now(lambda conn: find_deliveries(conn, sought, limit))
        if as_json:
            typer.echo(_json([_flat(one) for one in found]))
        else:
            typer.echo("\n".join(_line(one) for one in found) or "No delivery fits.")

    @app.command("show", help="One webhook: what was decided for each backend, each try, and why it ended as it did.")
    def show_one(
        delivery: Annotated[str, typer.Argument(help="The delivery's id, as GitHub shows it.")], as_json: AsJson = False
    ) -> None:
        with opened() as (store, _):
            page = store.read_now(lambda conn: delivery_page(conn, delivery))
        if page is None:
            typer.echo(f"No delivery {delivery[:128]!r} is known: it never came, or it is forgotten.", err=True)
            raise typer.Exit(1)
        typer.echo(_json(page) if as_json else "\n".join(_told(page)))

    @app.command(
        help="Try dead letters again: of deliveries (ID, or FIRST..LAST), since a time, of a backend. What GitHub took "
        "is never sent twice, and what a newer head replaced is dropped; each line says so."
    )
    def replay(
        deliveries: Annotated[list[str] | None, typer.Argument(help="Deliveries: ID, or FIRST..LAST.")] = None,
        since: Annotated[str, typer.Option(help="Given up since then: how long ago (2h), or a time.")] = "",
        until: Annotated[str, typer.Option(help="Given up until then; as --since.")] = "",
        backend: OfBackend = "",
        all_dead: Annotated[bool, typer.Option("--all", help="Every dead letter there is.")] = False,
        again: Annotated[
            bool, typer.Option("--again", help="Of one delivery: tell anew also whom it told; a new run each.")
        ] = False,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
        reason: Why = "",
        who: Who = "",
        as_json: AsJson = False,
    ) -> None:
        with asked() as now:
            if not (deliveries or since or until or backend or all_dead):
                raise ValueError("say what to replay: a delivery's ID, FIRST..LAST, --since, --backend, or --all")
            if again and (len(deliveries or ()) != 1 or ".." in (deliveries or [""])[0] or since or until):
                raise ValueError("--again: name one delivery, and at most a --backend; each backend told runs anew")
            by = parse_words("--who", who or user_name())
            why = parse_words("--reason", reason, needed=False)
            chosen = Chosen(
                since=parse_past("--since", since, now) if since else None,
                until=parse_past("--until", until, now) if until else None,
                backend=named("--backend", backend) if backend else None,
            )
        with opened() as (store, settings), asked():
            ids = store.read_now(lambda conn: _ids(conn, deliveries or ()))
            if deliveries and not ids:
                raise ValueError(f"no delivery was received in {' '.join(deliveries)[:200]}")
            chosen = dataclasses.replace(chosen, deliveries=ids)
            found = _replay(store, settings, chosen, by, why, now, dry_run=dry_run)
            if as_json:
                typer.echo(_json(found))
            else:
                typer.echo("\n".join(_summary(found, dry_run=dry_run)))
            if again:
                _again(store, settings, ids[0], chosen.backend, f"{by}: {why or 'replayed'}", now, dry_run=dry_run)

    return app


def _replay(
    store: Store, settings: Settings, chosen: Chosen, who: str, why: str, now: datetime, *, dry_run: bool
) -> list[Replayed]:
    """All that is chosen, in portions between which the service has its turns."""
    terms = terms_of(settings)
    in_force = store.read_now(lambda conn: listed(conn, settings.label_prefix))
    found: list[Replayed] = []
    while True:
        after = found[-1].effect_id if found else 0

        def unit(conn: Connection, after: int = after) -> tuple[Replayed, ...]:
            return replaying.replay(conn, chosen, listed=in_force, terms=terms, now=now, after=after, dry_run=dry_run)

        some = store.read_now(unit) if dry_run else store.write_now(unit)
        found += some
        if len(some) < BATCH:
            break
    if found and not dry_run:
        store.write_now(lambda conn: replaying.note_replay(conn, chosen, found, who=who, why=why, now=now))
    return found


def _again(
    store: Store,
    settings: Settings,
    delivery: str,
    backend: RepoName | None,
    cause: str,
    now: datetime,
    *,
    dry_run: bool,
) -> None:
    """Tell anew whom this delivery told, and say of each what came of it."""
    told = store.read_now(lambda conn: replaying.told_by(conn, delivery, backend))
    in_force = store.read_now(lambda conn: listed(conn, settings.label_prefix))
    if in_force is None:
        raise ValueError("--again: no allowlist is in force, and nobody is told anew without one")
    if dry_run:
        for _, repo in told:
            typer.echo(f"would be told anew: {repo}")
        return
    ids = [str(uuid.uuid4()) for _ in told]
    made = store.write_now(
        lambda conn: replaying.tell_again(
            conn,
            delivery,
            backend,
            asking=Asking(cause, delivery),
            fresh_ids=ids,
            listed=in_force,
            terms=terms_of(settings),
            now=now,
        )
    )
    for one in made:
        typer.echo(f"{'told anew' if one.dispatch_id is not None else 'not told'}: {one.backend}: {one.why}")
    if not made:
        typer.echo("This delivery told nobody who could be told anew.")


def _ids(conn: Connection, deliveries: Sequence[str]) -> tuple[str, ...]:
    """The deliveries that these words name. Raises ValueError for one that is not known."""
    found: list[str] = []
    for words in deliveries:
        first, dots, last = words.partition("..")
        if dots:
            some = replaying.between(conn, first, last)
            if some is None:
                unknown = ", ".join(repr(one[:128]) for one in replaying.unknown(conn, [first, last]))
                raise ValueError(f"DELIVERIES: not known: {unknown}; `crcr deliveries list` shows which are")
            found += some
        elif replaying.unknown(conn, [words]):
            raise ValueError(f"DELIVERIES: not known: {words[:128]!r}; `crcr deliveries list` shows which are")
        else:
            found.append(words)
    return tuple(dict.fromkeys(found))


# --- In words --------------------------------------------------------------------------------------------------------


def _rfc3339(moment: datetime) -> str:
    """The moment in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _line(one: FoundDelivery) -> str:
    told = one.delivery
    what = told.event if told.action is None else f"{told.event}.{told.action}"
    subject = f"#{told.number}" if told.number is not None else ""
    dead = f"  {one.dead} dead" if one.dead else ""
    counts = f"told {told.called}, left out {told.left_out}"
    head = (told.head_sha or "")[:12]
    return f"{_rfc3339(told.received_at)}  {told.id}  {what:<24}{subject:>8} {head:<13}{counts}{dead}"


def _told(page: DeliveryPage) -> list[str]:
    told = page.delivery
    what = told.event if told.action is None else f"{told.event}.{told.action}"
    lines = [f"{told.id}: {what} of {told.repository} by {told.sender}, received {_rfc3339(told.received_at)}"]
    if told.head_sha is not None:
        of = f"pull request {told.number}, " if told.number is not None else ""
        lines.append(f"  {of}commit {told.head_sha}")
    for one in page.decisions:
        decided = one.decided
        detail = f": {decided.detail}" if decided.detail else ""
        lines.append(f"  {decided.backend}: {decided.effect} ({decided.reason}){detail}")
        if one.dispatch_id is not None:
            why = " ".join(part for part in (f"({one.reason_code})", one.reason or "") if part)
            ends = f", {one.outcome.value}" if one.outcome is not None else ""
            lines.append(f"    dispatch {one.dispatch_id} is {one.state}{ends} {why}".rstrip())
        for effect in one.effects:
            lines += _tries(effect)
    if page.left_out:
        lines.append(f"  and {page.left_out} more decisions")
    return lines


def _tries(effect: EffectLine) -> list[str]:
    why = f" ({effect.reason}{': ' + effect.detail if effect.detail else ''})" if effect.reason else ""
    lines = [f"    {effect.kind} {effect.id}: {effect.state} after {effect.attempts} tries{why}"]
    for one in effect.tries:
        said = f": {one.reason}{' ' + one.detail if one.detail else ''}" if one.reason else ""
        lines.append(f"      try {one.number} at {_rfc3339(one.finished_at)}, {one.seconds:.2f} s: {one.outcome}{said}")
    return lines


def _summary(found: Sequence[Replayed], *, dry_run: bool) -> list[str]:
    lines = []
    for one in found:
        about = " ".join(
            part
            for part in (one.backend, f"#{one.number}" if one.number is not None else "", (one.head_sha or "")[:12])
            if part
        )
        lines.append(f"{one.fate}: {one.kind} {one.effect_id} {about}, given up for {one.reason}: {one.why}")
    counts = ", ".join(f"{sum(1 for one in found if one.fate is fate)} {fate}" for fate in Fate)
    lines.append(f"{'would be: ' if dry_run else ''}{counts}" if found else "No dead letter fits.")
    return lines


def _flat(one: FoundDelivery) -> dict[str, object]:
    return {**dataclasses.asdict(one.delivery), "dead": one.dead}


def _json(value: object) -> str:
    def plain(each: object) -> object:
        if isinstance(each, datetime):
            return _rfc3339(each)
        if dataclasses.is_dataclass(each) and not isinstance(each, type):
            return dataclasses.asdict(each)
        return str(each)

    return json.dumps(value, default=plain, ensure_ascii=False, indent=2)
