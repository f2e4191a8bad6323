"""Whatever is sent, set or taken away: a clear answer, nothing lost that was accepted, and everybody else is served."""

from __future__ import annotations

import json
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from relay.simulator import JobPlan, Listener, Mode, Reports
from relay.store.engine import make_engine
from tests.conftest import empty
from tests.stories.relay_process import run
from tests.stories.world import World

SILENT = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
CAP = 25_000_000
LEASE = timedelta(seconds=61)


def opened(world: World) -> dict[str, Any]:
    """A webhook as GitHub sends it, for a test to spoil."""
    world.sim.hold_webhooks = True
    raw = world.up.open_pull_request().delivery.payload
    world.sim.hold_webhooks = False
    return raw


def padded(raw: dict[str, Any], size: int) -> bytes:
    """The webhook with a body text that makes it this long."""
    bare = len(json.dumps({**raw, "padding": ""}))
    return json.dumps({**raw, "padding": "x" * (size - bare)}).encode()


def test_twenty_five_megabytes_are_taken_and_one_byte_more_is_not(world: World) -> None:
    """GitHub sends no more than that, so more is not GitHub; others are served while a large one is read."""
    backend = world.backend("org/backend", "L1", SILENT)
    world.start()
    raw = opened(world)

    fits = world.post("pull_request", padded(raw, CAP))
    over = world.post("pull_request", padded(raw, CAP + 1))

    assert (202, 413) == (fits.status, over.status)
    assert "body_too_large" == over.json["code"]
    assert 1 == len(backend.wait_for_runs())
    world.idle()
    assert 1 == len(backend.dispatches)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"[" * 10_000 + b"]" * 10_000, "body_too_deep"),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "body_too_deep"),
        (b"", "body_not_json"),
        (b"{", "body_not_json"),
        (b"[]", "body_not_object"),
        (b"\xff\xfe{}", "body_not_utf8"),
        (b'{"action": NaN}', "body_not_json"),
        (b"payload=%7B%7D", "body_is_form"),
    ],
    ids=["deep arrays", "deep objects", "empty", "cut", "array", "not UTF-8", "NaN", "form"],
)
def test_what_is_no_json_object_is_refused_by_its_reason(world: World, body: bytes, code: str) -> None:
    """The sender learns which rule was broken, and the next webhook is served."""
    backend = world.backend("org/backend", "L1", SILENT)
    world.start()

    refused = world.post("pull_request", body)
    world.up.open_pull_request()

    assert (400, code) == (refused.status, refused.json["code"])
    assert 1 == len(backend.wait_for_runs())


def test_broken_characters_lose_no_pull_request(each_world: World) -> None:
    """NUL and lone surrogates can be stored nowhere, so they are replaced; the rest of a title is kept."""
    world = each_world
    backend = world.backend("org/backend", "L4", SILENT)
    world.start()
    raw = opened(world)
    raw["pull_request"]["title"] = "a\x00b\ud800c"
    raw["pull_request"]["labels"] = [{"name": "x\x00y"}]

    answer = world.post("pull_request", json.dumps(raw).encode())
    (run_,) = backend.wait_for_runs()
    world.up.wait_for_check(raw["pull_request"]["head"]["sha"], "crcr/gate")

    assert 202 == answer.status
    kept = run_.client_payload["payload"]["pull_request"]
    assert ("a\ufffdb\ufffdc", ["x\ufffdy"]) == (kept["title"], [label["name"] for label in kept["labels"]])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("pull_request.number", "7"),
        ("pull_request.number", 10**30),
        ("pull_request.number", 1.5),
        ("pull_request.head.sha", 40),
        ("pull_request.head.sha", "g" * 40),
        ("pull_request.head.ref", {"a": 1}),
        ("pull_request.labels", "bug"),
        ("pull_request.title", 5),
        ("pull_request.draft", "true"),
        ("repository.full_name", ["pytorch/pytorch"]),
        ("pull_request.updated_at", "yesterday"),
        ("sender", "alice"),
        ("action", 1),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(world: World, path: str, value: object) -> None:
    """Numbers where strings belong and the reverse: the answer names the field, the rule and the fix."""
    backend = world.backend("org/backend", "L1", SILENT)
    world.start()
    raw = opened(world)
    place = raw
    *parents, last = path.split(".")
    for parent in parents:
        place = place[parent]
    place[last] = value

    refused = world.post("pull_request", raw)
    world.idle()

    assert 422 == refused.status
    (fault,) = [fault for fault in refused.json["errors"] if fault["field"].startswith(path)]
    assert fault["rule"]
    assert fault["fix"]
    assert [] == backend.dispatches


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"github_private_key": "no key at all"}, "CRCR_GITHUB_PRIVATE_KEY"),
        (
            {"github_private_key": "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----"},
            "CRCR_GITHUB_PRIVATE_KEY",
        ),
        ({"github_private_key": ""}, "CRCR_GITHUB_PRIVATE_KEY"),
        ({"database_url": "postgresql://nobody:hunter2@127.0.0.1:9/none"}, "CRCR_DATABASE_URL"),
        ({"database_url": "sqlite:////nowhere/at/all/relay.db"}, "CRCR_DATABASE_URL"),
        ({"database_url": "banana"}, "CRCR_DATABASE_URL"),
        ({"upstream": "no-slash"}, "CRCR_UPSTREAM"),
        ({"github_app_id": "many"}, "CRCR_GITHUB_APP_ID"),
    ],
    ids=["no PEM", "PEM of nothing", "empty", "no PostgreSQL there", "no folder there", "no URL", "upstream", "app id"],
)
@pytest.mark.slow
def test_what_it_cannot_start_with_is_named_without_a_traceback(
    world: World, settings: dict[str, Any], named: str
) -> None:
    """Exit 2 and a line that names the variable: an admin reads it in a container's last words, secrets left out."""
    ended = run(world, "serve", "--port", "0", **settings)

    said = ended.stdout + ended.stderr
    assert 2 == ended.returncode, said
    assert named in said
    assert "Traceback" not in said
    assert "hunter2" not in said
    assert "no key at all" not in said


@pytest.mark.slow
def test_a_database_that_is_locked_costs_a_503_and_nothing_else(world: World) -> None:
    """Somebody's transaction holds the file: webhooks are refused before GitHub gives up on them, and then taken."""
    backend = world.backend("org/backend", "L1", SILENT)
    world.start()
    raw = opened(world)
    file = world.database_url.removeprefix("sqlite:///")
    holding, released = threading.Event(), threading.Event()

    def hold() -> None:
        conn = sqlite3.connect(file, isolation_level=None)
        conn.execute("BEGIN EXCLUSIVE")
        holding.set()
        released.wait(60)
        conn.execute("ROLLBACK")
        conn.close()

    holder = threading.Thread(target=hold)
    holder.start()
    holding.wait(10)
    with ThreadPoolExecutor(8) as pool:
        refused = list(pool.map(lambda _: world.post("pull_request", raw), range(8)))
    released.set()
    holder.join()
    taken = world.post("pull_request", raw)

    assert {503} == {answer.status for answer in refused}
    assert all(int(answer.headers["retry-after"]) > 0 for answer in refused)
    assert max(answer.seconds for answer in refused) < 9  # GitHub waits ten.
    assert 202 == taken.status
    assert 1 == len(backend.wait_for_runs())
    world.idle()
    assert 1 == len(backend.dispatches)


@pytest.mark.postgres
def test_a_database_that_comes_back_is_used_again(tmp_path: Path, postgres_url: str) -> None:
    """PostgreSQL drops everybody and lets nobody in, as in a failover; what was accepted is dispatched afterwards."""
    empty(postgres_url)
    name = make_url(postgres_url).database
    admin = make_engine(make_url(postgres_url).set(database="postgres").render_as_string(hide_password=False))

    def act(*statements: str) -> None:
        with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            for statement in statements:
                conn.execute(text(statement), {"name": name} if ":name" in statement else {})

    with World(tmp_path, postgres_url) as world:
        backend = world.backend("org/backend", "L1", SILENT)
        world.start()
        world.sim.latency = 0.3
        accepted = world.up.open_pull_request()
        raw = opened(world)
        try:
            act(
                f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false',
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name",
            )
            refused = world.post("pull_request", raw)
            world.sim.latency = 0.0
        finally:
            act(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
            admin.dispose()
        taken = world.post("pull_request", raw)
        world.clock.advance(LEASE)
        backend.wait_for_runs(2)

        assert (202, 503, 202) == (accepted.delivery.response.status, refused.status, taken.status)
        assert int(refused.headers["retry-after"]) > 0
        told = {one.body["client_payload"]["payload"]["number"] for one in backend.dispatches}
        assert {accepted.number, raw["number"]} == told
