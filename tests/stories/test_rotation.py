"""Secrets are replaced while the service runs: old and new are good together, and nobody restarts anything."""

from __future__ import annotations

import urllib.error
from pathlib import Path
from typing import Any

import pytest

from relay.capability import CapabilityKeys
from relay.simulator import JobPlan, Listener, Mode, Reports, signature
from relay.simulator.keys import private_pem, rsa_key
from tests.stories.world import World

BY_HAND = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
OLD, NEW = "old-" * 8, "new-" * 8


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


def test_a_new_private_key_speaks_for_the_app(world: World) -> None:
    """An admin makes a second key at GitHub, puts it in place, and deletes the first."""
    backend = world.backend("org/l2", "L2", BY_HAND)
    path = from_file(world, "github_private_key", world.app.private_key_pem)
    world.start()
    key = rsa_key("a second key")
    path.write_text(private_pem(key))
    world.app.public_key = key.public_key()
    assert world.relay is not None
    credentials = world.relay.credentials
    first = credentials.apps.upstream
    world.settled(lambda: credentials.apps.upstream is not first, "the new key in force")

    world.up.open_pull_request()

    assert len(backend.wait_for_runs()) == 1


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

    path.write_text(f"{world.database_url}.else")
    world.settled(lambda: "database_url_not_taken" in capsys.readouterr().out, "a line in the log")
    world.up.open_pull_request()

    assert 1 == len(backend.wait_for_runs())
    assert not Path(f"{world.database_url}.else".removeprefix("sqlite:///")).exists()
