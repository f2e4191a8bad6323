"""Rate limits as documented, and the faults of a bad day: what takes effect, what is answered, what is logged."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from relay.simulator import (
    App,
    Backend,
    Fault,
    JobPlan,
    Kind,
    Listener,
    Match,
    Mode,
    Reports,
    Simulator,
    wait_until,
)
from relay.simulator.exchange import Refused
from relay.simulator.keys import plain_http
from relay.simulator.limits import Limits
from relay.simulator.model import Installation
from tests.simulator.scene import Caller, Clock

DISPATCH = Match("POST", "/dispatches$")


@pytest.fixture
def be(sim: Simulator, app: App) -> Backend:
    return sim.create_backend("org/npu")


@pytest.fixture
def token(be: Backend, caller: Caller) -> str:
    return caller.mint(be.installation.id)


@pytest.fixture
def send(caller: Caller, token: str) -> Callable[..., Any]:
    return lambda: caller.call(token, "POST", "/repos/org/npu/dispatches", json={"event_type": "push"})


def test_the_primary_limit_counts_each_installation(
    sim: Simulator, be: Backend, caller: Caller, token: str, clock: Clock
) -> None:
    """Headers say how much is left; at the end 403 with the reset, and another installation still flows."""
    sim.limits.primary_per_hour = 3
    other = caller.mint(sim.create_backend("two/npu").installation.id)

    left = [caller.call(token, "GET", "/repos/org/npu").headers["x-ratelimit-remaining"] for _ in range(3)]
    refused = caller.call(token, "GET", "/repos/org/npu")

    assert ["2", "1", "0"] == left
    assert (403, "0", True) == (
        refused.status_code,
        refused.headers["x-ratelimit-remaining"],
        "API rate limit exceeded" in refused.json()["message"],
    )
    assert int(clock.now().timestamp()) + 3600 == int(refused.headers["x-ratelimit-reset"])
    assert 200 == caller.call(other, "GET", "/repos/two/npu").status_code
    clock.forward(hours=1)
    assert 401 == caller.call(token, "GET", "/repos/org/npu").status_code
    assert 200 == caller.call(caller.mint(be.installation.id), "GET", "/repos/org/npu").status_code


def test_a_budget_grows_with_the_repositories_up_to_a_cap(app: App, be: Backend) -> None:
    """5,000, 50 more for each repository over 20, at most 12,500; 60 for the anonymous."""
    limits = Limits()

    def budget(count: int) -> int:
        repositories = dict.fromkeys(range(count), be.repository)
        installation = Installation(1, app, be.repository.owner, {}, repositories)
        return limits.budget("installation 1", installation)

    assert [5000, 5000, 5050, 12_500] == [budget(1), budget(20), budget(21), budget(1000)]
    assert 60 == limits.budget("anonymous", None)


def test_900_points_a_minute_are_180_writes(
    sim: Simulator, be: Backend, send: Callable[..., Any], clock: Clock
) -> None:
    """The 181st write of a minute meets the secondary limit, with Retry-After; the next minute is new."""
    limits = sim.limits
    for _ in range(179):
        limits.charge(
            f"installation {be.installation.id}",
            be.installation,
            "POST",
            creates_content=False,
            now=clock.now().timestamp(),
        )

    assert 204 == send().status_code
    refused = send()
    assert (403, "60", True) == (
        refused.status_code,
        refused.headers["retry-after"],
        "secondary rate limit" in refused.json()["message"],
    )
    assert (1, 1) == (limits.hits["points"], len(be.dispatches))
    clock.forward(seconds=60)
    assert 204 == send().status_code


def test_a_get_costs_one_point(app: App, be: Backend) -> None:
    """900 reads a minute pass, the next does not."""
    limits = Limits()
    for _ in range(900):
        limits.charge("i", be.installation, "GET", creates_content=False, now=0.0)

    with pytest.raises(Refused, match="secondary rate limit"):
        limits.charge("i", be.installation, "GET", creates_content=False, now=59.0)


def test_80_contents_a_minute_and_500_an_hour(app: App, be: Backend) -> None:
    """Creating content has limits of its own."""
    limits = Limits()

    def create(now: float) -> None:
        limits.charge("i", be.installation, "POST", creates_content=True, now=now)

    for minute in range(6):
        for _ in range(80):
            create(minute * 60.0)
        with pytest.raises(Refused):
            create(minute * 60.0 + 30)
    for _ in range(20):
        create(360.0)
    with pytest.raises(Refused) as refused:
        create(420.0)
    assert "3180" == refused.value.headers["retry-after"]


def test_comments_count_as_content(sim: Simulator, app: App, caller: Caller) -> None:
    """The endpoint that creates comments is charged so."""
    up = sim.create_upstream("pytorch/pytorch")
    pr = up.open_pull_request()
    token = caller.mint(up.installation.id)
    path = f"/repos/pytorch/pytorch/issues/{pr.number}/comments"
    sim.limits.content_per_minute = 1

    assert 201 == caller.call(token, "POST", path, json={"body": "hello"}).status_code
    assert 403 == caller.call(token, "POST", path, json={"body": "again"}).status_code
    assert 1 == len(up.comments(pr))


def test_more_requests_at_once_than_allowed_are_refused(
    sim: Simulator, be: Backend, caller: Caller, token: str
) -> None:
    """100 at once are the limit; a scenario may lower it."""
    assert 100 == sim.limits.concurrent_at_most
    sim.limits.concurrent_at_most = 2
    sim.latency = 0.3

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: caller.call(token, "GET", "/repos/org/npu").status_code, range(4)))

    assert ([200, 200, 403, 403], 2) == (sorted(answers), sim.limits.hits["concurrency"])


def test_a_conditional_read_that_is_answered_304_is_free(
    sim: Simulator, be: Backend, caller: Caller, token: str
) -> None:
    """With a token; and the anonymous pay even for a 304."""
    first = caller.call(token, "GET", "/repos/org/npu/contents/README.md")
    key = f"installation {be.installation.id}"
    used = sim.limits.used(key)

    again = caller.call(
        token, "GET", "/repos/org/npu/contents/README.md", headers={"if-none-match": first.headers["etag"]}
    )

    assert (304, b"", used) == (again.status_code, again.content, sim.limits.used(key))
    caller.call(None, "GET", "/repos/org/npu", headers={"if-none-match": 'W/"x"'})
    tag = caller.call(None, "GET", "/repos/org/npu").headers["etag"]
    before = sim.limits.used("anonymous")
    assert 304 == caller.call(None, "GET", "/repos/org/npu", headers={"if-none-match": tag}).status_code
    assert before + 1 == sim.limits.used("anonymous")


@pytest.mark.parametrize(
    ("kind", "status", "effects"),
    [
        (Kind.SERVER_ERROR, 502, 0),
        (Kind.SERVER_ERROR_AFTER, 502, 1),
        (Kind.SECONDARY_LIMIT, 403, 0),
        (Kind.PRIMARY_LIMIT, 403, 0),
        (Kind.MISSING_PERMISSION, 403, 0),
        (Kind.UNAUTHORIZED, 401, 0),
        (Kind.NOT_FOUND, 404, 0),
        (Kind.GONE, 410, 0),
        (Kind.ARCHIVED, 403, 0),
    ],
)
def test_a_fault_answers_as_scripted_and_takes_effect_only_after(
    sim: Simulator, be: Backend, send: Callable[..., Any], kind: Kind, status: Any, effects: int
) -> None:
    """Before or after the effect is the whole difference, and the log tells it."""
    fault = sim.faults.add(Fault(kind, DISPATCH, times=1))

    assert (status, effects, 1) == (send().status_code, len(be.dispatches), sim.faults.met(fault))
    entry = sim.log.of("POST", "/dispatches")[-1]
    assert (kind.value, bool(effects), status) == (entry.fault, entry.effect, entry.status)
    assert (204, effects + 1) == (send().status_code, len(be.dispatches))


@pytest.mark.parametrize(
    ("kind", "effects"),
    [(Kind.RESET, 0), (Kind.RESET_AFTER, 1), (Kind.TIMEOUT, 0), (Kind.TIMEOUT_AFTER, 1)],
)
def test_a_connection_can_die_before_or_after_the_effect(
    sim: Simulator, be: Backend, send: Callable[..., Any], kind: Kind, effects: int
) -> None:
    """The client sees a broken connection, never a status; the log has status 0."""
    sim.faults.add(Fault(kind, DISPATCH, seconds=0.05))

    with pytest.raises(httpx2.TransportError):
        send()

    entry = sim.log.of("POST", "/dispatches")[-1]
    assert (effects, 0, bool(effects)) == (len(be.dispatches), entry.status, entry.effect)
    assert 204 == send().status_code


def test_a_malformed_answer_is_no_json(sim: Simulator, be: Backend, caller: Caller, token: str) -> None:
    """The request took effect, the body cannot be read."""
    sim.faults.add(Fault(Kind.MALFORMED_JSON, Match("GET")))

    answer = caller.call(token, "GET", "/repos/org/npu")

    assert 200 == answer.status_code
    with pytest.raises(ValueError, match=r"."):
        answer.json()


def test_a_limit_may_come_as_429_with_or_without_retry_after(sim: Simulator, send: Callable[..., Any]) -> None:
    """Both forms occur."""
    sim.faults.add(Fault(Kind.SECONDARY_LIMIT, DISPATCH, status=429, retry_after=7))
    sim.faults.add(Fault(Kind.SECONDARY_LIMIT, DISPATCH))

    first, second = send(), send()

    assert (429, "7") == (first.status_code, first.headers["retry-after"])
    assert (403, None) == (second.status_code, second.headers.get("retry-after"))


def test_a_primary_limit_names_its_reset(sim: Simulator, send: Callable[..., Any], clock: Clock) -> None:
    """Nothing left, and the reset as far off as scripted."""
    sim.faults.add(Fault(Kind.PRIMARY_LIMIT, DISPATCH, seconds=120))

    answer = send()

    assert ("0", int(clock.now().timestamp()) + 120) == (
        answer.headers["x-ratelimit-remaining"],
        int(answer.headers["x-ratelimit-reset"]),
    )


def test_latency_delays_one_request_or_all(sim: Simulator, send: Callable[..., Any]) -> None:
    """By a fault, and by the simulator's own setting."""
    sim.faults.add(Fault(Kind.LATENCY, DISPATCH, seconds=0.15))
    began = time.perf_counter()
    assert 204 == send().status_code
    slow = time.perf_counter() - began
    sim.latency = 0.1
    began = time.perf_counter()
    assert 204 == send().status_code

    assert (True, True) == (slow >= 0.15, time.perf_counter() - began >= 0.1)


def test_an_effect_can_be_there_before_its_answer(sim: Simulator, be: Backend, send: Callable[..., Any]) -> None:
    """A backend may call back while the dispatch call is still open."""
    sim.faults.add(Fault(Kind.LATENCY_AFTER, DISPATCH, seconds=0.3))
    be.listener = Listener(jobs=(JobPlan(reports=Reports.SILENT),), mode=Mode.DIRECT)

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(send)
        be.wait_for_runs()
        assert not answer.done()
        assert 204 == answer.result().status_code


def test_held_requests_do_not_keep_the_simulator_from_ending(clock: Clock) -> None:
    """Stopping is prompt, stopping twice no error, and one that never started frees its port."""
    began = time.perf_counter()
    with Simulator(now=clock.now) as sim, ThreadPoolExecutor(1) as pool:
        sim.create_app()
        sim.create_upstream("pytorch/pytorch")
        fault = sim.faults.add(Fault(Kind.TIMEOUT, seconds=30))
        url = f"{sim.url}/repos/pytorch/pytorch"
        held = pool.submit(httpx2.get, url, trust_env=False, timeout=20.0, verify=plain_http())
        wait_until(lambda: sim.faults.met(fault) == 1)
        sim.stop()
        with pytest.raises(httpx2.TransportError):
            held.result()
    sim.stop()
    Simulator().stop()

    assert time.perf_counter() - began < 5


def test_faults_are_matched_skipped_counted_and_removed(
    sim: Simulator, be: Backend, send: Callable[..., Any], caller: Caller
) -> None:
    """Method, path, repository, account and installation all count; skip lets the first ones pass."""
    for miss in (
        Match("GET", "/dispatches$"),
        Match("POST", "/check-runs$"),
        Match(repository="org/gpu"),
        Match(account="other"),
        Match(installation=1),
    ):
        sim.faults.add(Fault(Kind.SERVER_ERROR, miss, times=None))
    hit = Match("POST", r"^/repos/.*/dispatches$", "ORG/npu", "Org", be.installation.id)
    fault = sim.faults.add(Fault(Kind.SERVER_ERROR, hit, times=2, skip=1, status=503))

    assert [204, 503, 503, 204] == [send().status_code for _ in range(4)]
    endless = sim.faults.add(Fault(Kind.SERVER_ERROR, DISPATCH, times=None))
    assert [502, 502] == [send().status_code for _ in range(2)]
    sim.faults.remove(endless)
    assert (204, 2, 0) == (send().status_code, sim.faults.met(fault), sim.faults.met(endless))


def test_a_fault_can_meet_the_app_s_own_calls(sim: Simulator, be: Backend, caller: Caller) -> None:
    """A storm of 401 on minting, for one."""
    sim.faults.add(Fault(Kind.UNAUTHORIZED, Match("POST", "/access_tokens$"), times=1))

    assert 401 == caller.as_app("POST", f"/app/installations/{be.installation.id}/access_tokens").status_code
    assert 201 == caller.as_app("POST", f"/app/installations/{be.installation.id}/access_tokens").status_code
    assert 2 == len(sim.log.mints())
    assert [401] == [entry.status for entry in sim.log.errors()]
