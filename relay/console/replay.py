"""``crcr replay --decisions``: what was decided, decided once more; equal, or each difference with both sides."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from allowlist.model import Allowlist
from allowlist.parse import MAX_BYTES, UnreadableError, parse
from relay.acts_read import parse_past
from relay.clock import system_now
from relay.console.asked import AsJson, Since
from relay.console.opened import Opened
from relay.deciding.replayed import Difference, Kind, NotReplayableError, again, digest_of
from relay.store.decided import PORTION, Stood, Taken, stood, taken
from relay.store.documents import allowlist_version
from relay.store.engine import Store

#: Differences that are printed in words; JSON has them all.
MOST_SAID = 200


@dataclass(frozen=True, slots=True)
class Differing:
    """One decision that comes out otherwise: where, about whom, and both sides."""

    what: str  # The webhook's id, or the dispatch's number.
    about: str  # The event or the change, for people.
    difference: Difference


@dataclass(slots=True)
class Found:
    """What a replay found so far."""

    decisions: int = 0
    outcomes: int = 0
    differing: list[Differing] = field(default_factory=list)
    not_replayable: Counter[str] = field(default_factory=Counter)


def add_replay_command(app: typer.Typer, *, opened: Opened, unusable: Callable[[str], typer.Exit]) -> None:
    """Add ``crcr replay``. ``opened`` gives the database and the settings, ``unusable`` ends the command with 2."""

    @app.command(
        "replay",
        help="Make the decisions of the past once more, from stored webhooks and reports. Exits with 0 when all are "
        "equal, with 1 when not. With --allowlist: what that list would have changed.",
    )
    def replay(
        decisions: Annotated[bool, typer.Option("--decisions", help="Decide once more. Changes nothing.")] = False,
        allowlist: Annotated[
            Path | None, typer.Option(help="Decide by this allowlist instead of the one that was in force.")
        ] = None,
        since: Since = "",
        as_json: AsJson = False,
    ) -> None:
        if not decisions:
            raise unusable("say --decisions; dead letters are replayed by `crcr deliveries replay`")
        try:
            start = parse_past("--since", since, system_now()) if since else None
        except ValueError as error:
            raise unusable(str(error)) from None
        with opened() as (store, settings):
            try:
                instead = None if allowlist is None else _read(allowlist, settings.label_prefix)
            except (OSError, UnreadableError) as error:
                said = error.strerror if isinstance(error, OSError) else str(error)
                raise unusable(f"--allowlist: {allowlist}: {said}") from None
            found = _decide_again(store, settings.label_prefix, start, instead)
            if instead is None:
                _stand_again(store, start, found)
        typer.echo(_json(found) if as_json else "\n".join(_told(found, instead is not None)))
        if instead is None and found.differing:
            raise typer.Exit(1)


def _read(path: Path, label_prefix: str) -> Allowlist:
    with path.open("rb") as file:
        return parse(file.read(MAX_BYTES + 1), label_prefix=label_prefix)


def _decide_again(store: Store, label_prefix: str, since: datetime | None, instead: Allowlist | None) -> Found:
    found = Found()
    versions: dict[str, Allowlist] = {}
    for some in _portions(store, since):
        for digest in {digest_of(one.ground) for one in some} - {None, *versions}:
            text = None if digest is None else store.read_now(partial(allowlist_version, digest=digest))
            if digest is not None and text is not None:
                with contextlib.suppress(UnreadableError):
                    versions[digest] = parse(text, label_prefix=label_prefix)
        for one in some:
            try:
                made = again(
                    one.plan,
                    one.ground,
                    delivery_id=one.delivery_id,
                    received_at=one.received_at,
                    versions=versions,
                    instead=instead,
                )
            except NotReplayableError as error:
                found.not_replayable[str(error)] += 1
                continue
            found.decisions += made.decisions
            found.differing += [Differing(one.delivery_id, _about(one), each) for each in made.differences]
    return found


def _portions(store: Store, since: datetime | None) -> Iterator[tuple[Taken, ...]]:
    after: Taken | None = None
    while True:
        some = store.read_now(partial(taken, since=since, after=after))
        if some:
            yield some
        if len(some) < PORTION:
            return
        after = some[-1]


def _stand_again(store: Store, since: datetime | None, found: Found) -> None:
    """Fold every dispatch's reports once more."""
    after = 0
    while True:
        some = store.read_now(partial(stood, since=since, after=after))
        for one in some:
            if one.again is None:
                found.not_replayable["some reports are forgotten"] += 1
                continue
            found.outcomes += 1
            was = _stands(one.outcome, one.legs_reported, one.legs_expected)
            is_now = _stands(one.again.outcome.value, one.again.legs_reported, one.again.legs_expected)
            if was != is_now:
                difference = Difference(one.backend, Kind.OTHERWISE, was, is_now)
                found.differing.append(Differing(f"dispatch {one.dispatch_id}", _of(one), difference))
        if len(some) < PORTION:
            return
        after = some[-1].dispatch_id


def _stands(outcome: str, reported: int, expected: int | None) -> str:
    of = "" if expected is None else f" of {expected}"
    return f"{outcome}, {reported}{of} jobs"


def _about(one: Taken) -> str:
    what = one.event if one.action is None else f"{one.event}.{one.action}"
    return f"{what} {_subject(one.number, one.head_sha)}"


def _of(one: Stood) -> str:
    return _subject(one.number, one.head_sha)


def _subject(number: int | None, head_sha: str | None) -> str:
    return " ".join(part for part in (f"#{number}" if number is not None else "", (head_sha or "")[:12]) if part)


def _told(found: Found, instead: bool) -> list[str]:
    lines = [_difference(one, instead) for one in found.differing[:MOST_SAID]]
    if len(found.differing) > MOST_SAID:
        lines.append(f"and {len(found.differing) - MOST_SAID} more; --json has them all")
    lines += [f"not replayable: {count} ({why})" for why, count in sorted(found.not_replayable.items())]
    if instead:
        return [*lines, *_by_backend(found.differing), f"{found.decisions} decisions decided by the other allowlist"]
    counts = f"{found.decisions} decisions and {found.outcomes} outcomes"
    return [*lines, f"{counts}, all equal" if not found.differing else f"{counts}, {len(found.differing)} differ"]


def _difference(one: Differing, instead: bool) -> str:
    was, would = ("was", "would be") if instead else ("taken", "now")
    return (
        f"{one.what} {one.about} {one.difference.backend or 'the change'}: "
        f"{was} {one.difference.before or 'not decided'}; {would} {one.difference.after or 'not decided'}"
    )


def _by_backend(differing: Sequence[Differing]) -> list[str]:
    counts: dict[str, Counter[Kind]] = {}
    for one in differing:
        counts.setdefault(one.difference.backend or "the change", Counter())[one.difference.kind] += 1
    return [
        f"{backend}: {kinds[Kind.ADDED]} calls more, {kinds[Kind.LOST]} calls fewer, "
        f"{kinds[Kind.OTHERWISE]} for another reason"
        for backend, kinds in sorted(counts.items())
    ]


def _json(found: Found) -> str:
    return json.dumps(
        {
            "decisions": found.decisions,
            "outcomes": found.outcomes,
            "equal": not found.differing,
            "not_replayable": dict(found.not_replayable),
            "differences": [
                {"of": one.what, "about": one.about, **dataclasses.asdict(one.difference)} for one in found.differing
            ],
        },
        ensure_ascii=False,
        indent=2,
    )
