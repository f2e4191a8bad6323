"""One id from the webhook to the check run: in the answers, in the dispatch, and on every line of the log."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from relay.simulator import Fault, JobPlan, Kind, Listener, Match, Mode, Reports, signature
from relay.tracing import trace_id
from tests.stories.relay_process import relay_process
from tests.stories.world import World

BY_HAND = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
ADMIN, SIGNING, WRONG = "an-admin-s-token-" * 2, "a-signing-key-" * 2, "not-the-secret-" * 2


def page(world: World, path: str) -> str:
    """What stands there."""
    with urllib.request.urlopen(f"{world.url}{path}", timeout=10) as answer:
        return str(answer.read().decode())


def lines(world: World, event: str) -> list[dict[str, Any]]:
    """What the process logged of this kind."""
    read = [json.loads(line) for line in (world.folder / "relay.log").read_text().splitlines() if line.startswith("{")]
    return [line for line in read if line["event"] == event]


def failures(world: World) -> list[dict[str, Any]]:
    """Dispatches that did not go through."""
    return [line for line in lines(world, "effect_not_done") if line["kind"] == "dispatch"]


def test_a_trace_leads_from_the_webhook_to_the_check(world: World) -> None:
    """Whoever holds one end, a delivery at GitHub or a listener's run, finds all that came of it in the log."""
    backend = world.backend("org/l4", "L4", BY_HAND)
    with relay_process(world):
        pull = world.up.open_pull_request()
        (run,) = backend.wait_for_runs()
        reported = backend.callback(run, "completed", "success")
        # A report may come before any check was written: then each is written once.
        world.up.wait_for_check(pull.head_sha, "crcr/gate", conclusion="success")
        world.up.wait_for_check(pull.head_sha, "crcr/org/l4", conclusion="success")
        ended = {"crcr/gate", "crcr/org/l4"}
        world.settled(
            lambda: ended == {one["check"] for one in lines(world, "check_written") if one["conclusion"] == "success"},
            "the checks' lines",
        )

    trace = trace_id(pull.delivery.guid)
    relay = run.client_payload["relay"]
    assert (pull.delivery.guid, trace) == (relay["origin_delivery"], relay["trace_id"])
    assert trace == pull.delivery.response.json["trace_id"]
    assert trace == reported.json["trace_id"]
    about = {"delivery": pull.delivery.guid, "trace": trace, "head": pull.head_sha, "backend": "org/l4"}
    for event in ("dispatched", "callback_recorded"):
        (line,) = lines(world, event)
        assert about == {name: line.get(name) for name in about}
    (line,) = [line for line in lines(world, "webhook") if line["delivery"] == pull.delivery.guid]
    assert (trace, pull.head_sha) == (line["trace"], line["head"])
    written = [line for line in lines(world, "check_written") if line["check"] == "crcr/org/l4"]
    assert {(pull.head_sha, "org/l4", trace)} == {(line["head"], line["backend"], line["trace"]) for line in written}
    shown = world.up.checks(pull.head_sha)["crcr/org/l4"]
    assert trace in f"{shown.summary}{shown.text}"


def test_a_failure_says_what_it_is_about(world: World) -> None:
    """The line that wakes an admin names delivery, head and backend by itself."""
    world.sim.create_backend("org/gone", listener=BY_HAND, installed=False)
    world.allow("org/gone", "L2")
    with relay_process(world):
        pull = world.up.open_pull_request()
        world.settled(lambda: failures(world) != [], "a failure")

    line = failures(world)[0]
    assert ("org/gone", pull.head_sha, pull.delivery.guid) == (line["backend"], line["head"], line["delivery"])


PAGES = ("/", "/changes", "/changes/1", "/backends", "/backends/org/l4", "/deliveries", "/audit", "/gaps", "/metrics")
FIGURES = ("/readyz", "/version", "/api/v1/changes/1", "/api/v1/dead-letters", "/api/v1/deliveries", "/api/v1/audit")


def pieces(*secrets: str) -> set[str]:
    """What nobody may read of these: lines of a key, and parts of a token, each of which would help a thief."""
    parts = {part for secret in secrets for line in secret.splitlines() for part in line.split(".")}
    return {part for part in parts if len(part) >= 16 and not part.startswith("-----")}


def test_nothing_secret_is_in_the_log_or_on_a_page(world: World) -> None:
    """Logs go to people and places that must not be able to speak for anybody, whatever went well or wrong."""
    backend = world.backend("org/l4", "L4", BY_HAND)
    world.sim.create_backend("org/gone", listener=BY_HAND, installed=False)
    world.allow("org/gone", "L2")
    world.given |= {
        "admin_tokens": (f"alice:{ADMIN}",),
        "secret_keys": (SIGNING,),
        "hud_api_url": world.sim.hud_url,
        "hud_key": world.sim.hud.key,
    }
    for path in ("/dispatches$", "/check-runs$", "/hud/"):
        world.sim.faults.add(Fault(Kind.RESET if path == "/hud/" else Kind.UNAUTHORIZED, Match("POST", path)))
    tokens: list[str] = []

    def token(run_id: int, **claims: Any) -> str:
        tokens.append(world.sim.mint(backend, run_id=run_id, **claims))
        return tokens[-1]

    with relay_process(world) as process:
        world.port = int(process.url.rpartition(":")[2])
        pull = world.up.open_pull_request()
        (run,) = backend.wait_for_runs()
        forged = f"{run.capability[:-1]}{'a' if run.capability[-1] != 'a' else 'b'}"
        block = {"relay": {**run.client_payload["relay"], "token": forged}}
        answers = [
            backend.callback(run, "completed", "banana", token=token(run.id)).status,
            backend.callback(run, "completed", "success", token=token(run.id), change=block).status,
            backend.callback(run, "completed", "success", token=token(run.id, aud="another")).status,
            backend.callback(run, "completed", "success", token=token(1)).status,
            backend.callback(run, "completed", "success", token=token(run.id)).status,
            world.post("ping", {"zen": "x"}, headers={"X-Hub-Signature-256": signature(WRONG, b"{}")}).status,
            world.post("push", b'{"ref": 1}').status,
            world.call_back(ADMIN, {"until": "4h", "reason": "x"}, "/api/v1/admin/backends/org/gone/pause").status,
            world.call_back(tokens[0], {}, "/api/v1/admin/backends/org/gone/pause").status,
            world.call_back(ADMIN, {}, "/github/callback").status,
        ]
        world.up.wait_for_check(pull.head_sha, "crcr/gate", conclusion="success")
        world.settled(lambda: {"org/gone"} == {line["backend"] for line in failures(world)}, "a dispatch given up")
        shown = [page(world, path) for path in (*PAGES, *FIGURES)]
    log = (world.folder / "relay.log").read_text()

    assert [422, 403, 401, 403, 200, 401, 422, 200, 401, 401] == answers
    assert {"callback_refused", "callback_recorded", "admin_refused", "effect_not_done", "stopped"} <= {
        json.loads(line)["event"] for line in log.splitlines()
    }
    secret = {
        "capabilities": pieces(run.capability, forged),
        "OIDC tokens": pieces(*tokens),
        "webhook secret": {world.app.webhook_secret},
        "the app's key": pieces(world.app.private_key_pem),
        "the app's own tokens": pieces(*world.sim.world.verified_jwts),
        "installations' tokens": set(world.sim.world.tokens),
        "HUD's key": {world.sim.hud.key},
        "admin's token": {ADMIN},
        "key of capabilities": {SIGNING},
    }
    assert [] == [name for name, texts in secret.items() if not texts]
    for where, text in (("the log", log), *zip((*PAGES, *FIGURES), shown, strict=True)):
        assert [] == [(name, where) for name, texts in secret.items() if any(one in text for one in texts)]
