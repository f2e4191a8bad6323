"""What people ask, answer for and are told, as the store keeps it on both databases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, insert, select, update

from allowlist.model import Allowlist, Level, RepoName
from levels.gate import GateVerdict
from levels.outcomes import GateEffect
from relay.store import commands, comments
from relay.store.answering import answer_for_pull
from relay.store.commands import Asked, ask, gate_of
from relay.store.comments import want_comment
from relay.store.engine import Store
from relay.store.overrides import overrides_of, set_override
from relay.store.redispatch import Asking, Refusal, redispatch
from relay.store.tables import Audit, Backend, Change, Command, Comment, Dispatch, Effect
from tests.conftest import Clock
from tests.relay.planning import NPU, S1, S2, S3, XPU, pull_request
from tests.store.taking_in import TERMS, UPSTREAM, Intake

_backend: Any = Backend.__table__  # type: ignore[attr-defined]
_change: Any = Change.__table__  # type: ignore[attr-defined]
_command: Any = Command.__table__  # type: ignore[attr-defined]
_comment: Any = Comment.__table__  # type: ignore[attr-defined]
_dispatch: Any = Dispatch.__table__  # type: ignore[attr-defined]
_effect: Any = Effect.__table__  # type: ignore[attr-defined]
_audit: Any = Audit.__table__  # type: ignore[attr-defined]

ASKING = Asking("asked for by ada at 14:05 UTC", "D2")


@pytest.fixture
def intake(store: Store, clock: Clock) -> Intake:
    """One pull request that one L4 backend was told of and has failed."""
    made = Intake(store, (XPU,), clock.now())
    made.take(pull_request())
    made.mark_dispatches("sent", "failure")
    return made


def write(intake: Intake, unit: Callable[[Connection], Any]) -> Any:
    """Run a unit of work."""
    return intake.store.write_now(unit)


def override(intake: Intake, head_sha: str = S1, who: str = "grace", why: str = "known") -> None:
    """Let somebody answer for the backend."""
    write(intake, lambda conn: set_override(conn, head_sha, XPU.repo, 7, who, why, intake.now, TERMS))


def verdict(intake: Intake, head_sha: str = S1) -> GateVerdict:
    """The gate's answer on a head."""
    facts = intake.store.read_now(lambda conn: gate_of(conn, head_sha, TERMS, None))
    assert facts is not None
    return facts.verdict()


def group(intake: Intake, head_sha: str, base_sha: str, number: int) -> None:
    """A merge group of this pull request, on top of another commit."""
    now = intake.now
    row = {
        "kind": "merge_group",
        "thread": f"group {head_sha}",
        "head_sha": head_sha,
        "base_sha": base_sha,
        "number": number,
        "state": "open",
        "created_at": now,
        "updated_at": now,
        "received_at": now,
        **dict.fromkeys(("title", "author", "author_association", "html_url"), ""),
        "labels": "[]",
        "draft": False,
        "verified": True,
    }
    write(intake, lambda conn: conn.execute(insert(_change).values(**row)).rowcount)


# --- Overrides -------------------------------------------------------------------------------------------------------


def test_an_override_makes_the_gate_step_down(intake: Intake) -> None:
    """It takes the block away and puts no success in its place."""
    before = verdict(intake).effect

    override(intake)

    assert (GateEffect.BLOCKS, GateEffect.STEPS_DOWN) == (before, verdict(intake).effect)


def test_the_last_person_to_override_is_the_one_who_answers(intake: Intake) -> None:
    """Two overrides of one backend are one, with the newer reason."""
    override(intake, who="grace", why="first")
    override(intake, who="alan", why="second")
    (found,) = intake.store.read_now(lambda conn: overrides_of(conn, S1))

    assert ("alan", "second", XPU.repo) == (found.who, found.why, found.backend)


def test_an_override_is_on_record_and_what_holds_nothing_is_refused(intake: Intake) -> None:
    """Who took responsibility must be found later; where there is nothing to take, nothing is written."""

    def answer(number: int) -> Any:
        return write(
            intake,
            lambda conn: answer_for_pull(
                conn, number, XPU.repo, who="grace", why="known", terms=TERMS, listed=None, now=intake.now
            ),
        )

    done, unknown = answer(7), answer(8)
    intake.mark_dispatches("sent", "success")
    passed = answer(7)

    assert S1 == done
    assert [("grace", "override", f"org/xpu on {S1}", "known")] == intake.rows(_audit, "who", "what", "subject", "why")
    assert ("unknown", "nothing_to_override") == (unknown.code, passed.code)


def test_a_newer_head_is_not_overridden(intake: Intake) -> None:
    """Responsibility was taken for one commit."""
    override(intake)
    intake.take(pull_request("synchronize", S2, minutes=5), "D2")

    assert () == intake.store.read_now(lambda conn: overrides_of(conn, S2))
    assert GateEffect.PENDING is verdict(intake, S2).effect


def test_a_merge_group_inherits_the_overrides_of_every_pull_request_in_it(intake: Intake) -> None:
    """A group's name tells its last pull request alone; the others are in the groups that it was built on."""
    group(intake, S2, base_sha="0" * 40, number=7)
    group(intake, S3, base_sha=S2, number=8)
    group(intake, "4" * 40, base_sha="0" * 40, number=8)
    override(intake)

    found = intake.store.read_now(lambda conn: [overrides_of(conn, head) for head in (S2, S3, "4" * 40)])

    assert [1, 1, 0] == [len(each) for each in found]


# --- Dispatching anew ------------------------------------------------------------------------------------------------


def anew(intake: Intake, *, backend: RepoName = XPU.repo, allowlist: Allowlist | None = None) -> int | Refusal:
    """Tell a backend of the first change once more."""
    made: int | Refusal = write(
        intake,
        lambda conn: redispatch(
            conn,
            1,
            backend,
            ASKING,
            fresh_id="fresh",
            allowlist=allowlist or Allowlist((XPU, NPU)),
            terms=TERMS,
            now=intake.now,
        ),
    )
    return made


def test_a_redispatch_repeats_the_payload_under_a_fresh_id_and_decides(intake: Intake) -> None:
    """What is decided afterwards hangs on the new dispatch alone."""
    made = anew(intake)
    columns = ("delivery_id", "origin_delivery", "payload_delivery", "event_type", "state", "reason_code", "cause")

    assert 2 == made
    assert ("fresh", "D2", "D1", "pull_request", "planned", "redispatched", ASKING.cause) == intake.dispatches(
        *columns
    )[1]
    assert GateEffect.PENDING is verdict(intake).effect
    assert [("org/xpu", "ready")] * 2 == intake.effects()


def test_a_backend_that_was_never_told_can_be(intake: Intake) -> None:
    """Its filters, or a missing label, left it out; a person wants it all the same."""
    made = anew(intake, backend=NPU.repo)

    assert isinstance(made, int)
    assert ("org/npu", "pull_request", "D1") == intake.dispatches("backend", "event_type", "payload_delivery")[1]


def test_a_redispatch_while_a_level_is_lowered_keeps_what_was_owed(intake: Intake) -> None:
    """An author may ask for a new run; that lets no backend off once its level is what it was again."""
    made = anew(intake, allowlist=Allowlist((replace(XPU, level=Level.L2),)))
    intake.mark_dispatches("sent", "failure")

    assert 2 == made
    assert GateEffect.BLOCKS is verdict(intake).effect


@pytest.mark.parametrize(
    ("state", "outcome", "code"),
    [
        ("planned", "queued", "already_planned"),
        ("pending_paths", "queued", "already_planned"),
        ("sent", "queued", "already_awaited"),
        ("sent", "running", "already_awaited"),
    ],
)
def test_while_an_answer_is_due_nobody_is_told_anew(intake: Intake, state: str, outcome: str, code: str) -> None:
    """Two runs at once would only be two answers to one question."""
    intake.mark_dispatches(state, outcome)

    made = anew(intake)

    assert isinstance(made, Refusal)
    assert code == made.code


def test_what_nobody_waits_for_is_not_dispatched_anew(intake: Intake) -> None:
    """A closed change, a backend that left, a paused one: each is refused for its own reason."""
    unlisted = anew(intake, allowlist=Allowlist((NPU,)))
    paused = {"repo": "org/npu", "private": False, "paused_until": intake.now + timedelta(hours=1)}
    write(intake, lambda conn: conn.execute(insert(_backend).values(**paused)).rowcount)
    held = anew(intake, backend=NPU.repo)
    write(intake, lambda conn: conn.execute(update(_change).values(state="closed")).rowcount)
    closed = anew(intake)

    assert ["not_listed", "paused", "change_over"] == [
        made.code if isinstance(made, Refusal) else "dispatched" for made in (unlisted, held, closed)
    ]
    assert 1 == len(intake.dispatches("id"))


# --- Commands --------------------------------------------------------------------------------------------------------

ASKED = Asked("C1", "comment", "Ada", "run", number=7, head_sha=S1, comment_id=5, backend="org/xpu")


def test_a_delivery_asks_once(intake: Intake) -> None:
    """A redelivery brings no second command and no second decision."""
    first = write(intake, lambda conn: ask(conn, ASKED, intake.now, upstream=UPSTREAM))
    again = write(intake, lambda conn: ask(conn, ASKED, intake.now, upstream=UPSTREAM))

    assert (True, False) == (first, again)
    assert [("C1", "asked")] == intake.rows(_command, "delivery_id", "state")
    assert 1 == len(intake.effects("run_command"))


def test_a_command_ends_once_and_counts_for_its_sender(intake: Intake) -> None:
    """What was carried out is counted on that head, whatever the case of the login."""
    write(intake, lambda conn: ask(conn, ASKED, intake.now, upstream=UPSTREAM))
    write(intake, lambda conn: ask(conn, replace(ASKED, delivery_id="C2"), intake.now, upstream=UPSTREAM))

    def end(state: str) -> Any:
        return write(
            intake, lambda conn: commands.finish(conn, 1, state=state, role="read", outcome="", now=intake.now)
        )

    ended = [end("done"), end("refused")]
    counted = intake.store.read_now(
        lambda conn: [commands.done_for(conn, "aDA", head, ("run", "rerun")) for head in (S1, S2)]
    )

    assert [True, False] == ended
    assert [1, 0] == counted
    assert ["done", "asked"] == [state for (state,) in intake.rows(_command, "state")]


def test_the_author_is_known_by_the_pull_request_or_by_the_head(intake: Intake) -> None:
    """A check's event names no pull request of a fork, so its head tells whose it is."""
    found = intake.store.read_now(
        lambda conn: [
            commands.authors_of(conn, S1, 7),
            commands.authors_of(conn, S1, None),
            commands.authors_of(conn, S2, 9),
        ]
    )

    assert [{"ada"}, {"ada"}, set()] == found


def test_an_account_that_is_gone_is_no_author(intake: Intake) -> None:
    """GitHub calls all of them ghost, and one of them is not the other."""
    intake.take(pull_request(number=8, author="ghost"), "D8")

    assert frozenset() == intake.store.read_now(lambda conn: commands.authors_of(conn, S1, 8))


# --- Comments --------------------------------------------------------------------------------------------------------


def test_one_topic_is_one_comment_and_a_text_that_stands_owes_nothing(intake: Intake) -> None:
    """Comments are states: the same wish twice is one write."""

    def want(topic: str, body: str) -> Any:
        return write(intake, lambda conn: want_comment(conn, 7, topic, body, UPSTREAM, intake.now))

    first, same, changed, other = want("a", "one"), want("a", "one"), want("a", "two"), want("b", "one")

    assert first == same == changed != other
    assert ["two", "one"] == [body for (body,) in intake.rows(_comment, "body")]
    assert 2 == len(intake.effects("reconcile_comment"))


def test_a_text_that_changed_while_the_old_one_was_written_is_written_too(intake: Intake) -> None:
    """The note of the older write must not pass for an answer to the newer wish."""
    comment_id = write(intake, lambda conn: want_comment(conn, 7, "a", "one", UPSTREAM, intake.now))
    row = intake.store.read_now(lambda conn: comments.load_comment(conn, comment_id))
    assert row is not None
    intake.mark_effects("running", kind="reconcile_comment")
    write(intake, lambda conn: want_comment(conn, 7, "a", "two", UPSTREAM, intake.now))
    intake.mark_effects("done", kind="reconcile_comment")

    write(
        intake,
        lambda conn: comments.note_written(conn, row, github_id=9, anew=False, upstream=UPSTREAM, now=intake.now),
    )
    (owed,) = [state for _, state in intake.effects("reconcile_comment") if state == "ready"]
    applied, wanted = write(intake, lambda conn: conn.execute(select(_comment.c.applied, _comment.c.wanted)).one())

    assert "ready" == owed
    assert applied != wanted
