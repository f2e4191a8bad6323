"""What a change's page shows of commands: those of its pull request and its head, and no others."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Connection

from allowlist.model import RepoName
from relay.store import commands
from relay.store.commands import Asked, ask
from relay.store.engine import Store
from relay.store.reading.asked import MOST_ASKED, AskedLine, asked_on
from tests.conftest import Clock

UPSTREAM = RepoName("up", "stream")
HEAD = "a" * 40


def keep(store: Store, clock: Clock, *asked: Asked) -> None:
    """These commands, one second after another."""

    def unit(conn: Connection) -> None:
        for number, one in enumerate(asked):
            assert ask(conn, one, clock.now() + timedelta(seconds=number), upstream=UPSTREAM)

    store.write_now(unit)


def shown(store: Store, head_sha: str, number: int | None) -> list[AskedLine]:
    """What the page of a change has of them."""
    return list(store.read_now(lambda conn: asked_on(conn, head_sha, number)))


def test_comments_on_the_pull_request_and_buttons_at_the_head_are_shown(store: Store, clock: Clock) -> None:
    """The newest first; what was asked elsewhere is not here, and a push has no comments at all."""
    keep(
        store,
        clock,
        Asked("d1", "comment", "ada", "override", number=7, comment_id=1, backend="org/npu", words="known"),
        Asked("d2", "action", "bob", "run", head_sha=HEAD, check_id=3),
        Asked("d3", "comment", "eve", "status", number=8, comment_id=2),
        Asked("d4", "check_suite", "eve", "rerun", head_sha="b" * 40),
    )

    assert ["bob", "ada"] == [one.sender for one in shown(store, HEAD, 7)]
    assert ["bob"] == [one.sender for one in shown(store, HEAD, None)]
    assert [("override", "org/npu", "known", "asked", None)] == [
        (one.verb, one.backend, one.words, one.state, one.role) for one in shown(store, "c" * 40, 7)
    ]


def test_what_became_of_it_stands_there_with_the_role(store: Store, clock: Clock) -> None:
    """Whoever was refused without an answer can read why."""
    keep(store, clock, Asked("d1", "comment", "eve", "run", number=7, comment_id=1))
    store.write_now(
        lambda conn: commands.finish(
            conn, 1, state="refused", role="read", outcome="needs the role triage", now=clock.now()
        )
    )

    (line,) = shown(store, HEAD, 7)

    assert ("refused", "read", "needs the role triage") == (line.state, line.role, line.outcome)


def test_a_flood_of_comments_is_no_flood_on_the_page(store: Store, clock: Clock) -> None:
    """Anybody may write comments; the newest are shown, and no text is longer than a few lines."""
    flood = [
        Asked(f"d{number}", "comment", "eve", "unknown", number=7, comment_id=number, words=f"{number} " + "x" * 900)
        for number in range(MOST_ASKED + 5)
    ]
    keep(store, clock, *flood)

    lines = shown(store, HEAD, 7)

    assert MOST_ASKED == len(lines)
    assert lines[0].words.startswith(f"{MOST_ASKED + 4} ")
    assert max(len(line.words) for line in lines) <= 300
