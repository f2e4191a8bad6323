"""Secrets are replaced while the service runs: old and new are good together, and nobody restarts anything."""

from __future__ import annotations

import urllib.error
from pathlib import Path
from typing import Any

import pytest

from relay.capability import CapabilityKeys
from relay.simulator import App, JobPlan, Listener, Mode, Reports, signature
from relay.simulator.keys import private_pem, rsa_key
from relay.work.sweep import HEAL_EVERY
from tests.stories.world import World

BY_HAND = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
OLD, NEW = "old-" * 8, "new-" * 8
PAUSE = {"until": "4h", "reason": "its machines move"}


def from_file(world: World, name: str, text: str) -> Path:
    """Have the relay read this secret from a file."""
    path = world.folder / name
    path.write_text(text)
    world.environ[f"CRCR_{name.upper()}_FILE"] = str(path)
    return path


def signed_by(world: World, secret: str) -> int:
    """What the relay answers to a ping that this secret signed."""
    body = b'{"zen": "Keep it logically awesome.", "hook_id": 1}'
    return world.post("ping", body, headers={"X-Hub-Signature-256": signature(secret, body)}).status


def paused_by(world: World, secret: str) -> int:
    """What the relay answers to a pause that is asked for with this admin's token."""
    return world.call_back(secret, PAUSE, "/api/v1/admin/backends/org/l2/pause").status


def take_second_key(world: World, app: App, path: Path) -> None:
    """Have GitHub know the app by another key alone, and put that key where the relay reads it."""
    key = rsa_key("a second key")
    path.write_text(private_pem(key))
    app.public_key = key.public_key()
    world.sim.world.verified_jwts.clear()


def told(world: World) -> list[str]:
    """The job of each row that the HUD took, in order."""
    return [row.body["untrusted"]["callback_payload"]["workflow"]["job_name"] for row in world.sim.hud.rows]


def parts(world: World) -> dict[str, Any]:
    """The parts of the service and how each is. Empty while one that is needed is ill, as just after the start."""
    try:
        found: dict[str, Any] = world.get("/readyz")["parts"]
    except urllib.error.HTTPError:
        return {}
    return found


def test_two_webhook_secrets_are_good_while_they_change_hands(world: World) -> None:
    """GitHub's side changes a moment before or after ours, so both must be good for as long as both are named."""
    path = from_file(world, "webhook_secrets", OLD)
    world.start()
    assert (202, 401) == (signed_by(world, OLD), signed_by(world, NEW))

    path.write_text(f"{NEW},{OLD}\n")
    world.settled(lambda: signed_by(world, NEW) == 202, "the new secret in force")
    assert signed_by(world, OLD) == 202

    path.write_text(NEW)
    world.settled(lambda: signed_by(world, OLD) == 401, "the old secret out of force")
    assert signed_by(world, NEW) == 202


def test_the_first_key_signs_and_all_verify(world: World) -> None:
    """A backend that was told under the old key may still report while that key is named, and no longer."""
    backend = world.backend("org/l2", "L2", BY_HAND)
    path = from_file(world, "secret_keys", OLD)
    world.start()
    world.up.open_pull_request()
    (before,) = backend.wait_for_runs()

    path.write_text(f"{NEW},{OLD}")
    assert world.relay is not None
    keys = world.relay.credentials.keys
    world.settled(lambda: keys.issue(1) == CapabilityKeys.of([NEW]).issue(1), "the new key in force")
    assert backend.callback(before, "in_progress").status == 200
    world.up.open_pull_request()
    after = next(run for run in backend.wait_for_runs(2) if run is not before)

    path.write_text(NEW)
    world.settled(lambda: backend.callback(before, "in_progress").status == 403, "the old key out of force")
    assert backend.callback(after, "completed", "success").status == 200


def test_the_first_key_that_is_set_shuts_nobody_out(world: World) -> None:
    """Until then the relay signed by a key of its own making: a backend that was told by that one reports as before."""
    backend = world.backend("org/l2", "L2", BY_HAND)
    world.start()
    world.up.open_pull_request()
    (before,) = backend.wait_for_runs()
    world.idle()
    world.stop()

    from_file(world, "secret_keys", NEW)
    world.start()
    assert world.relay is not None

    assert CapabilityKeys.of([NEW]).issue(1) == world.relay.credentials.keys.issue(1)
    assert 200 == backend.callback(before, "in_progress").status


def test_a_new_private_key_speaks_for_the_app(world: World) -> None:
    """An admin makes a second key at GitHub, puts it in place, and deletes the first."""
    backend = world.backend("org/l2", "L2", BY_HAND)
    path = from_file(world, "github_private_key", world.app.private_key_pem)
    world.start()
    assert world.relay is not None
    credentials = world.relay.credentials
    first = credentials.apps.upstream
    take_second_key(world, world.app, path)
    world.settled(lambda: credentials.apps.upstream is not first, "the new key in force")

    world.up.open_pull_request()

    assert len(backend.wait_for_runs()) == 1


def test_a_new_private_key_speaks_for_the_backends_app(world: World) -> None:
    """Where the backends have an app of their own, its key changes in the same way, and upstream's app goes on."""
    theirs = world.sim.create_app(5252)
    backend = world.backend("org/l4", "L4", BY_HAND)
    path = from_file(world, "downstream_private_key", theirs.private_key_pem)
    world.start(downstream_app_id=theirs.id, webhook_secrets=(world.app.webhook_secret, theirs.webhook_secret))
    assert world.relay is not None
    credentials = world.relay.credentials
    first = credentials.apps.downstream
    take_second_key(world, theirs, path)
    world.settled(lambda: credentials.apps.downstream is not first, "the new key in force")

    pull = world.up.open_pull_request()

    assert len(backend.wait_for_runs()) == 1
    assert world.up.wait_for_check(pull.head_sha, "crcr/gate").conclusion is None


def test_two_tokens_of_an_admin_are_good_while_they_change_hands(world: World) -> None:
    """An admin may act with either for as long as both are named, and under the same name in the audit."""
    world.backend("org/l2", "L2", BY_HAND)
    path = from_file(world, "admin_tokens", f"alice:{OLD}")
    world.start()
    assert (200, 401) == (paused_by(world, OLD), paused_by(world, NEW))

    path.write_text(f"alice:{NEW},alice:{OLD}\n")
    world.settled(lambda: paused_by(world, NEW) == 200, "the new token in force")
    assert paused_by(world, OLD) == 200

    path.write_text(f"alice:{NEW}")
    world.settled(lambda: paused_by(world, OLD) == 401, "the old token out of force")
    assert paused_by(world, NEW) == 200
    assert {"alice"} == {row["who"] for row in world.get("/api/v1/audit")["items"] if row["what"] == "backend paused"}


def test_a_new_key_of_the_hud_loses_no_row(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A HUD has one key, so one side changes first; what it refuses until the other has follows by itself."""
    backend = world.backend("org/l2", "L2", BY_HAND)
    path = from_file(world, "hud_key", world.sim.hud.key)
    world.start(hud_api_url=world.sim.hud_url)
    world.up.open_pull_request()
    (run,) = backend.wait_for_runs()
    backend.callback(run, "in_progress", job="before")
    world.settled(lambda: told(world) == ["before"], "a row by the old key")

    world.sim.hud.key = NEW
    backend.callback(run, "in_progress", job="between")
    world.settled(lambda: 401 in [asked.status for asked in world.sim.log.of("POST", "/crcr/results")], "a refusal")
    capsys.readouterr()
    path.write_text(NEW)
    written: list[str] = []

    def in_force() -> bool:
        written.append(capsys.readouterr().out)
        return "secrets_reread" in "".join(written)

    world.settled(in_force, "the new key in force")
    assert ["before"] == told(world)
    backend.callback(run, "in_progress", job="after")

    world.settled(lambda: told(world) == ["before", "after"], "a row by the new key")
    world.pass_time(HEAL_EVERY)
    world.settled(lambda: len(told(world)) > 2, "the row that was refused")
    assert ["before", "after", "between"] == told(world)


def test_what_cannot_be_used_changes_nothing_and_says_so(world: World) -> None:
    """A half-written file must not lock GitHub out, and what it holds is shown to nobody."""
    keys = from_file(world, "secret_keys", OLD)
    hooks = from_file(world, "webhook_secrets", OLD)
    world.start()

    keys.write_text("short-one")
    hooks.write_text(NEW)
    world.settled(lambda: "secrets" in parts(world), "word of the key that is none")

    said = parts(world)["secrets"]
    assert not said["ok"]
    assert "SECRET_KEYS" in said["detail"]
    assert "short-one" not in said["detail"]
    assert (202, 401) == (signed_by(world, OLD), signed_by(world, NEW))

    keys.write_text(f"{NEW},{OLD}")
    world.settled(lambda: "secrets" not in parts(world), "all that is new in force")
    assert signed_by(world, NEW) == 202


def test_another_database_takes_a_restart(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Half of a process in another database would tear its record apart: the log says so, and the work goes on."""
    backend = world.backend("org/l2", "L2", BY_HAND)
    path = from_file(world, "database_url", world.database_url)
    world.start()

    shown: list[str] = []

    def noticed(times: int) -> bool:
        shown.append(capsys.readouterr().out)
        return times == "".join(shown).count("database_url_not_taken")

    path.write_text("postgresql://crcr:s3cr@et:word@db/crcr")  # None at all: its password is not written as URLs are.
    world.settled(lambda: noticed(1), "a line in the log")
    path.write_text(f"{world.database_url}.else")
    world.settled(lambda: noticed(2), "another one")
    assert "word@db" not in "".join(shown)
    world.up.open_pull_request()

    assert 1 == len(backend.wait_for_runs())
    assert not Path(f"{world.database_url}.else".removeprefix("sqlite:///")).exists()
