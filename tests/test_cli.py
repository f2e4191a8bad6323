"""The command as a person runs it: a process with an environment, an exit code and a few clear lines.

A few are started as a person starts them, and the others from what is loaded already, see ``tests.started``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from relay.demo.scene import ACTORS
from relay.simulator import EVENTS, PERMISSIONS, App, Simulator
from relay.store import schema
from tests.started.process import Started, run, start

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
SECRET = "a webhook secret that is long enough"
Process = Started | subprocess.Popen[bytes]
LISTED = "L1:\n  - org/one\nL4:\n  - org/four\n"


@pytest.fixture(scope="module")
def pem() -> str:
    """A key as GitHub's app page gives it out."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def environment(settings: Mapping[str, Any]) -> dict[str, str]:
    """These settings and nothing else that is ours."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("CRCR_")}
    return plain | {f"CRCR_{name.upper()}": str(value) for name, value in settings.items()}


def crcr(*arguments: str, cwd: Path, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return run(*arguments, environment=environment(settings), folder=cwd)


def refusal(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of a command that could not begin: exit code 2, nothing on standard output, no traceback."""
    assert (2, "") == (done.returncode, done.stdout), done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()


@pytest.fixture
def good(tmp_path: Path, pem: str) -> dict[str, Any]:
    """Settings with which the service starts."""
    (tmp_path / "allowlist.yml").write_text(LISTED)
    return {
        "upstream": "up/stream",
        "github_api_url": "http://127.0.0.1:9",
        "github_app_id": 7,
        "github_private_key": pem,
        "webhook_secrets": SECRET,
        "allowlist": tmp_path / "allowlist.yml",
        "database_url": f"sqlite:///{tmp_path / 'relay.db'}",
    }


def test_settings_that_are_missing_are_all_named_at_once(tmp_path: Path) -> None:
    """Nobody has to start it four times to learn of four settings."""
    lines = refusal(crcr("serve", cwd=tmp_path))

    assert [
        "crcr: CRCR_UPSTREAM: must be set",
        "crcr: CRCR_GITHUB_APP_ID: must be set",
        "crcr: CRCR_GITHUB_PRIVATE_KEY: must be set",
        "crcr: CRCR_WEBHOOK_SECRETS: must be set",
    ] == lines


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"github_private_key": "hunter2"}, "CRCR_GITHUB_PRIVATE_KEY: the private key is no PEM text"),
        ({"github_app_id": "seven"}, "CRCR_GITHUB_APP_ID: "),
        ({"upstream": "nonsense"}, "CRCR_UPSTREAM: "),
        ({"database_url": "nonsense"}, "CRCR_DATABASE_URL: this is no database URL"),
        ({"database_url": "mysql://u:hunter2@h/d"}, "CRCR_DATABASE_URL: no driver MySQLdb"),
        ({"database_url": "sqlite:////no/such/folder/relay.db"}, "CRCR_DATABASE_URL: unable to open database file"),
        ({"database_url": "postgresql://u:hunter2@127.0.0.1:1/d"}, "CRCR_DATABASE_URL: connection failed: "),
    ],
)
def test_what_cannot_be_used_is_named_in_one_line(
    tmp_path: Path, good: dict[str, Any], wrong: dict[str, Any], said: str
) -> None:
    """The variable, what is wrong with it, and never its value where that is a secret."""
    done = crcr("serve", "--port", "0", cwd=tmp_path, **{**good, **wrong})

    (line,) = refusal(done)
    assert line.startswith(f"crcr: {said}")
    assert "hunter2" not in done.stderr


def test_a_port_in_use_is_named_in_one_line(tmp_path: Path, good: dict[str, Any]) -> None:
    """The commonest mistake of all has an answer that says what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        (line,) = refusal(crcr("serve", "--port", str(port), cwd=tmp_path, **good))

    assert f"crcr: cannot listen on 127.0.0.1 port {port}: Address already in use; choose" in line


def anew(*words: str, environment: Mapping[str, str], folder: Path, output: BinaryIO) -> subprocess.Popen[bytes]:
    """Start it as a person does, and not from what is loaded already."""
    command = [sys.executable, "-m", "relay", *words]
    return subprocess.Popen(command, env=dict(environment), cwd=folder, stdout=output, stderr=output)


@contextlib.contextmanager
def served(
    good: Mapping[str, Any], tmp_path: Path, begin: Callable[..., Process] = start
) -> Iterator[tuple[str, Process]]:
    """The service as a process of its own, ended at last."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (tmp_path / "log").open("wb") as log:
        process = begin("serve", "--port", str(port), environment=environment(good), folder=tmp_path, output=log)
    try:
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.kill()
        process.wait()


def alive(url: str, process: Process) -> bool:
    """Wait until it answers; False when it ended instead."""
    while process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
        time.sleep(0.05)
    return False


def test_it_serves_and_ends_when_told_to(tmp_path: Path, good: dict[str, Any]) -> None:
    """SIGTERM, as a process manager sends it, is no failure. GitHub being away does not keep it from starting."""
    with served(good, tmp_path, anew) as (url, process):
        assert alive(url, process), (tmp_path / "log").read_text()
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)

    assert 0 == code, (tmp_path / "log").read_text()
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_role_of_its_own_needs_a_server(tmp_path: Path, good: dict[str, Any]) -> None:
    """Two containers, each with a file of its own, would take webhooks for ever and dispatch none of them."""
    (line,) = refusal(crcr("serve", "--role", "web", cwd=tmp_path, **good))

    assert (
        "crcr: CRCR_DATABASE_URL: --role web needs PostgreSQL; on SQLite one process does both, without --role" == line
    )


def test_faults_of_an_allowlist_stand_with_their_line(tmp_path: Path) -> None:
    """Errors exit with 1, so that upstream's own CI can refuse the change; a good file says nothing."""
    bad = tmp_path / "bad.yml"
    bad.write_text("L1:\n  - org/one\n  - nonsense\n")
    fine = tmp_path / "good.yml"
    fine.write_text(LISTED)

    refused = crcr("allowlist", "check", str(bad), cwd=tmp_path)
    taken = crcr("allowlist", "check", str(fine), cwd=tmp_path)

    assert 1 == refused.returncode
    assert refused.stdout.startswith(f"{bad}:3: error: ")
    assert (0, "", "") == (taken.returncode, taken.stdout, taken.stderr)
    (line,) = refusal(crcr("allowlist", "check", "none.yml", cwd=tmp_path))
    assert "crcr: none.yml: No such file or directory" == line


def test_the_database_is_made_and_made_again(tmp_path: Path) -> None:
    """Migrating is safe to repeat, and says what the database is at."""
    url = f"sqlite:///{tmp_path / 'relay.db'}"

    first = crcr("db", "migrate", cwd=tmp_path, database_url=url)
    second = crcr("db", "migrate", "--database-url", url, cwd=tmp_path)

    assert f"schema {schema.newest()}\n" == first.stdout
    assert (0, first.stdout) == (second.returncode, second.stdout)
    assert " bytes before, " in crcr("db", "vacuum", cwd=tmp_path, database_url=url).stdout


def test_why_needs_a_database_that_is_there(tmp_path: Path) -> None:
    """A wrong name is told as such, and no empty database is left behind for it."""
    (line,) = refusal(crcr("why", "3", "org/npu", "--database-url", "sqlite:///none.db", cwd=tmp_path))
    assert line == "crcr: CRCR_DATABASE_URL: none.db does not exist; name the one that `crcr serve` uses"
    assert [] == list(tmp_path.iterdir())

    (tmp_path / "empty.db").touch()
    (line,) = refusal(crcr("why", "3", "org/npu", "--database-url", "sqlite:///empty.db", cwd=tmp_path))
    assert "this database is empty" in line

    (line,) = refusal(crcr("why", "3", "npu", cwd=tmp_path))
    assert line.startswith("crcr: BACKEND: ")


def test_why_of_something_unknown_is_an_answer_too(tmp_path: Path) -> None:
    """Exit code 1 and a sentence: the relay knows of neither."""
    url = f"sqlite:///{tmp_path / 'relay.db'}"
    crcr("db", "migrate", cwd=tmp_path, database_url=url)

    done = crcr("why", "3", "org/npu", cwd=tmp_path, database_url=url)

    assert (1, "") == (done.returncode, done.stdout)
    assert "Nothing is known of pull request 3 and org/npu.\n" == done.stderr


# --- The doctor ------------------------------------------------------------------------------------------------------


@pytest.fixture
def sim() -> Iterator[Simulator]:
    """A GitHub on which things can be wrong."""
    with Simulator() as simulator:
        yield simulator


def settings_for(sim: Simulator, app: App, tmp_path: Path, **given: Any) -> dict[str, Any]:
    """What an admin would have set for this app."""
    (tmp_path / "allowlist.yml").write_text(LISTED)
    return {
        "upstream": "up/stream",
        "github_api_url": sim.url,
        "github_app_id": app.id,
        "github_private_key": app.private_key_pem,
        "webhook_secrets": SECRET,
        "allowlist": tmp_path / "allowlist.yml",
        "database_url": f"sqlite:///{tmp_path / 'relay.db'}",
        **given,
    }


def faults(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """What the doctor found wrong, by part, with the fix that stands below it."""
    lines = done.stdout.splitlines()
    return {
        line.removeprefix("fault").strip().partition(": ")[0]: f"{line} {lines[number + 1]}"
        for number, line in enumerate(lines)
        if line.startswith("fault ")
    }


def test_a_doctor_finds_a_healthy_service_healthy(sim: Simulator, tmp_path: Path) -> None:
    """Every part is named, also where there is nothing to do, and nothing was changed by looking."""
    app = sim.create_app()
    sim.create_upstream("up/stream")
    for name in ("org/one", "org/four"):
        sim.create_backend(name)

    done = crcr("doctor", cwd=tmp_path, **settings_for(sim, app, tmp_path))

    assert 0 == done.returncode, done.stdout + done.stderr
    assert {"webhook secret", "public URL", "database", "private key", "app", "up/stream", "allowlist", "org/one"} <= {
        line.removeprefix("ok").strip().partition(": ")[0] for line in done.stdout.splitlines()
    }
    assert done.stdout.endswith("0 faults in 9 parts\n")
    assert not (tmp_path / "relay.db").exists()
    assert [] == [entry for entry in sim.log if entry.effect and not entry.path.endswith("/access_tokens")]


def test_a_doctor_names_each_fault_with_its_fix(sim: Simulator, tmp_path: Path) -> None:
    """Missing events, permissions not granted, a backend without the app, one that is archived, bad entries."""
    app = sim.create_app(events=EVENTS - {"push"})
    sim.create_upstream("up/stream", permissions={**PERMISSIONS, "checks": "read"})
    sim.create_backend("org/one").archive()
    sim.create_backend("far/two", installed=False)
    sim.create_backend("dim/three", permissions={"contents": "read", "metadata": "read", "actions": "read"})
    given = settings_for(sim, app, tmp_path)
    (tmp_path / "allowlist.yml").write_text("L2:\n  - org/one\n  - far/two\n  - dim/three\n  - nonsense\n")

    found = faults(done := crcr("doctor", cwd=tmp_path, **given))

    assert 1 == done.returncode, done.stderr
    assert {"app events", "up/stream", "allowlist", "org/one", "far/two", "dim/three"} == set(found)
    assert "does not hear of push" in found["app events"]
    assert "not granted: checks write" in found["up/stream"]
    assert "1 out of force" in found["allowlist"]
    assert "it is archived" in found["org/one"]
    assert "the app is not installed" in found["far/two"]
    assert "Ask the owner of far to install it" in found["far/two"]
    assert "not granted: contents write" in found["dim/three"]
    assert done.stdout.endswith("6 faults in 10 parts\n")


@pytest.mark.parametrize(
    ("wrong", "part", "said"),
    [
        ({"github_private_key": "nonsense"}, "private key", "CRCR_GITHUB_PRIVATE_KEY"),
        ({"github_app_id": 99}, "app", "must belong to the same app"),
        ({"github_api_url": "http://127.0.0.1:9"}, "app", "Look at CRCR_GITHUB_API_URL"),
        ({"allowlist": "none.yml"}, "allowlist", "cannot read none.yml"),
        ({"allowlist": "up/stream:none.yml@main"}, "allowlist", "none.yml"),
        ({"database_url": "postgresql://u@127.0.0.1:1/d"}, "database", "Start the database"),
        ({"database_url": "sqlite:////no/such/folder/relay.db"}, "database", "/no/such/folder does not exist"),
    ],
)
def test_a_doctor_survives_what_is_wrong(
    sim: Simulator, tmp_path: Path, wrong: dict[str, Any], part: str, said: str
) -> None:
    """One part that is ill does not keep the doctor from saying so."""
    app = sim.create_app()
    sim.create_upstream("up/stream")
    for name in ("org/one", "org/four"):
        sim.create_backend(name)

    done = crcr("doctor", cwd=tmp_path, **settings_for(sim, app, tmp_path, **wrong))

    assert 1 == done.returncode, done.stderr
    assert {part} == set(faults(done)), done.stdout
    assert said in faults(done)[part]


def test_a_doctor_tells_a_doubt_from_a_fault(sim: Simulator, tmp_path: Path) -> None:
    """A secret that can be guessed works, so it is no fault; it is said all the same."""
    app = sim.create_app()
    sim.create_upstream("up/stream")
    for name in ("org/one", "org/four"):
        sim.create_backend(name)

    done = crcr("doctor", cwd=tmp_path, **settings_for(sim, app, tmp_path, webhook_secrets="short"))

    assert 0 == done.returncode
    assert "doubt  webhook secret: 1 of 1 can be guessed" in done.stdout


def test_a_doctor_says_what_the_relay_does_without(sim: Simulator, tmp_path: Path) -> None:
    """What is optional is no fault, and whoever wonders why nothing is re-run reads it here."""
    app = sim.create_app(events={"pull_request", "push"})
    sim.create_upstream("up/stream")
    for name in ("org/one", "org/four"):
        sim.create_backend(name, permissions={**PERMISSIONS, "actions": "read"})

    done = crcr("doctor", cwd=tmp_path, **settings_for(sim, app, tmp_path))

    assert 0 == done.returncode, done.stdout
    assert "does not hear of issue_comment: commands in comments go unheard" in done.stdout
    assert "does not hear of merge_group: a merge queue waits for its gate in vain" in done.stdout
    assert "does not hear of repository: that a backend's repository is back shows by the next try" in done.stdout
    assert "; without actions write, a rerun is dispatched anew" in done.stdout


def test_a_doctor_asks_of_each_app_what_is_its_own(sim: Simulator, tmp_path: Path) -> None:
    """Where the backends have an app of their own, it is that one which hears of their repositories."""
    app = sim.create_app(events=EVENTS - {"repository"})
    sim.create_upstream("up/stream")
    theirs = sim.create_app(7, events=set())
    for name in ("org/one", "org/four"):
        sim.create_backend(name)
    given = {"downstream_app_id": theirs.id, "downstream_private_key": theirs.private_key_pem}

    done = crcr("doctor", cwd=tmp_path, **settings_for(sim, app, tmp_path, **given))

    doubts = [line for line in done.stdout.splitlines() if "does not hear of" in line]
    assert ["doubt  backends' app events: crcr-7 does not hear of repository"] == [
        one.rpartition(": ")[0] for one in doubts
    ]


def test_the_scene_of_the_demo_covers_every_level() -> None:
    """Six backends, and no level left out."""
    assert (6, {"L1", "L2", "L3", "L4"}) == (len(ACTORS), {actor.level.name for actor in ACTORS})


def test_commands_look_for_the_database_where_the_service_does(tmp_path: Path) -> None:
    """Its URL may be in a file, since it holds a password; one made elsewhere would be of no use."""
    (tmp_path / "url").write_text(f"sqlite:///{tmp_path}/named.db\n")

    done = crcr("db", "migrate", cwd=tmp_path, database_url_file=tmp_path / "url")
    (line,) = [
        line
        for line in crcr("db", "migrate", cwd=tmp_path, database_url_file="gone").stderr.splitlines()
        if "FILE" in line
    ]

    assert 0 == done.returncode, done.stderr
    assert ["named.db"] == [path.name for path in tmp_path.glob("*.db")]
    assert "CRCR_DATABASE_URL_FILE: cannot read 'gone': FileNotFoundError" in line
