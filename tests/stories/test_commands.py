"""What people ask in comments, who is answered, and what becomes of it."""

from __future__ import annotations

import pytest

from relay.simulator import JobPlan, Listener, Mode, Reports, wait_until
from tests.stories.asking import CHECK, GATE, answered, failed, ours, say
from tests.stories.world import World


def test_status_tells_the_gate_to_whoever_may_ask(world: World) -> None:
    """The author of a pull request may always know why it waits, in one answer that is about that comment."""
    _, pr = failed(world)

    say(world, pr, "contributor", "/crcr status\nThanks!")
    (told,) = answered(world, pr)

    assert "`/crcr status` by `contributor`" in told
    assert "org/backend failed" in told
    assert "**blocks**" in told


def test_help_lists_every_command_with_who_may_ask(world: World) -> None:
    """Nobody has to read a manual to find out what to write."""
    _, pr = failed(world)

    say(world, pr, "triager", "/crcr help")
    (told,) = answered(world, pr)

    for verb in ("status", "run BACKEND", "rerun [BACKEND]", "override BACKEND REASON", "help"):
        assert f"`/crcr {verb}`" in told


@pytest.mark.parametrize(
    "line", ["/crcr status", "/crcr help", "/crcr rerun", "/crcr override backend because", "/crcr x"]
)
def test_a_passer_by_gets_no_answer_and_changes_nothing(world: World, line: str) -> None:
    """Anybody can comment on a public pull request; nobody without a say can have us write or run anything."""
    backend, pr = failed(world)
    world.up.set_role("passer", "read")

    say(world, pr, "passer", line)

    assert [] == ours(world, pr)
    assert 1 == len(backend.runs)
    assert 1 == backend.runs[0].attempt
    assert "failure" == world.up.checks(pr.head_sha)[GATE].conclusion


def test_an_author_may_have_it_run_three_times_for_each_commit(world: World) -> None:
    """A stuck author helps themselves, within bounds; a triager is not bound."""
    backend, pr = failed(world)

    for count in range(1, 5):
        say(world, pr, "contributor", "/crcr run backend")
        answered(world, pr, count)
        wait_until(lambda: all(run.status == "completed" for run in backend.runs), what="runs that are over")
        world.idle()
    say(world, pr, "triager", "/crcr run org/BACKEND")
    told = answered(world, pr, 5)

    assert ["told", "told", "told", "3 times", "told"] == [
        "3 times" if "3 times" in each else "told" if "is told of this commit anew" in each else each for each in told
    ]
    assert 1 + 3 + 1 == len(backend.wait_for_runs(5))


def test_a_run_repeats_the_payload_under_a_fresh_id_and_decides(each_world: World) -> None:
    """A new dispatch is a new chance: it has its own id, carries the same change, and the newest decides."""
    world = each_world
    backend, pr = failed(world)
    backend.listener = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)

    say(world, pr, "triager", "/crcr run org/backend")
    first, second = backend.wait_for_runs(2)
    world.idle()
    backend.callback(second, "completed", "success", "test")
    world.up.wait_for_check(pr.head_sha, GATE, conclusion="success")

    assert first.delivery_id != second.delivery_id
    assert first.client_payload["payload"]["pull_request"] == second.client_payload["payload"]["pull_request"]
    assert "redispatched" == second.client_payload["relay"]["change"]["reason"]
    assert "triager" in (world.up.checks(pr.head_sha)[CHECK].summary or "")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/crcr run", "Which backend? Write `/crcr run BACKEND`."),
        ("/crcr run nobody", "there is no such backend here; it is one of `org/backend`"),
        ("/crcr frobnicate now", "There is no such command."),
        ("/crcr override backend", "An override needs a reason"),
    ],
)
def test_what_cannot_be_understood_is_explained(world: World, line: str, expected: str) -> None:
    """A mistake is answered with what to write instead."""
    _, pr = failed(world)

    say(world, pr, "boss", line)
    (told,) = answered(world, pr)

    assert expected in told


def test_hostile_words_come_back_harmless(world: World) -> None:
    """An answer repeats what was written, so that must mention nobody, load nothing and close no table."""
    _, pr = failed(world)

    say(world, pr, "triager", "/crcr <img src=http://x.test/a> @everyone `x` | #1 -->")
    (told,) = answered(world, pr)
    said = told.split("\n")[1]

    assert "@everyone" not in told
    assert said.startswith("``/crcr <img")
    assert "|" not in said


def test_one_command_has_one_answer_however_often_it_is_delivered(world: World) -> None:
    """GitHub's "Redeliver" asks nothing new."""
    backend, pr = failed(world)
    deliveries = world.up.comment(pr, "triager", "/crcr run org/backend")
    answered(world, pr)

    world.sim.redeliver(deliveries[0].guid)
    world.idle()

    assert 1 == len(ours(world, pr))
    assert 2 == len(backend.wait_for_runs(2))


def test_a_second_pull_request_of_the_same_commit_makes_nobody_another_person(world: World) -> None:
    """An override holds for a commit, so whoever wrote a pull request of it cannot answer for it on somebody else's."""
    _, pr = failed(world)
    world.up.set_role("contributor", "write")
    twin = world.up.open_pull_request(author="friend", head_sha=pr.head_sha)
    world.idle()

    say(world, twin, "contributor", "/crcr override backend trust me")
    (refused,) = answered(world, twin)

    assert "needs the role admin" in refused
    assert "failure" == world.up.checks(pr.head_sha)[GATE].conclusion
