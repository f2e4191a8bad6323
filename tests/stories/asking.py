"""Stories in which people ask: a backend whose runs report by hand or by plan, and what the relay answered."""

from __future__ import annotations

from typing import Any

from relay.simulator import Backend, JobPlan, Listener, Mode, PullRequest, wait_until
from tests.stories.world import World

GATE = "crcr/gate"
CHECK = "crcr/org/backend"

FAILS = Listener(
    jobs=(JobPlan(name="test", conclusion="failure", failed_tests=(("suite.Ops", "test_add", "expected 3"),)),),
    mode=Mode.DIRECT,
)


def flaky(count: int = 1) -> Listener:
    """Jobs that fail in their first attempt and pass in the second."""
    jobs = tuple(JobPlan(name=f"test {number}", conclusion="failure", flaky_until=2) for number in range(count))
    return Listener(jobs=jobs, mode=Mode.DIRECT)


def failed(world: World, listener: Listener = FAILS, level: str = "L4", **entry: Any) -> tuple[Backend, PullRequest]:
    """A pull request by ``contributor`` on which one backend has failed; people are named for their roles."""
    backend = world.backend("org/backend", level, listener, **entry)
    for login, role in (("triager", "triage"), ("writer", "write"), ("boss", "admin"), ("contributor", "read")):
        world.up.set_role(login, role)
    world.start(**world.given)
    world.up.require(GATE)
    pr = world.up.open_pull_request(author="contributor")
    world.up.wait_for_check(pr.head_sha, CHECK, conclusion="failure")
    world.up.wait_for_check(pr.head_sha, GATE, conclusion="failure")
    world.idle()
    return backend, pr


def say(world: World, pr: PullRequest, login: str, body: str) -> None:
    """Comment, and wait until the relay owes nothing for it."""
    world.up.comment(pr, login, body)
    world.idle()


def ours(world: World, pr: PullRequest) -> list[str]:
    """What the relay has written on the pull request, on-call comments left out."""
    return [body for body in all_ours(world, pr) if "On-call:" not in body.split("\n", 3)[1]]


def all_ours(world: World, pr: PullRequest) -> list[str]:
    """All that the relay has written on the pull request."""
    return [comment.body for comment in world.up.comments(pr) if comment.body.startswith("<!-- crcr ")]


def answered(world: World, pr: PullRequest, count: int = 1) -> list[str]:
    """The relay's answers, once there are so many."""
    wait_until(lambda: len(ours(world, pr)) >= count, what=f"{count} answers")
    return ours(world, pr)
