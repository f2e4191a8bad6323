"""The files that people run the service by: what they start is started, and the guide is followed line by line."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from sqlalchemy import Engine, inspect

from relay.condition import COMMIT, commit_of
from relay.edge.problems import store_down
from relay.serving import FINISHING_SECONDS
from relay.settings import SECRET_FIELDS, Settings
from relay.simulator import Simulator
from relay.store import postgres, schema
from relay.store.engine import make_engine
from relay.work.outbox import DRAIN_SECONDS
from tests.conftest import empty
from tests.operated.machine import PORTS, Machine

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
GUIDE = (EXAMPLES / "OPERATIONS.md").read_text()
FLAT = " ".join(GUIDE.split())
PROXY = (EXAMPLES / "Caddyfile").read_text()
#: What a request and the work may still take after a process has stopped to take new ones.
UNDER_WAY = FINISHING_SECONDS + DRAIN_SECONDS
#: The newest revision that version 0.1.0 knows. To be moved on with each release, and the guide with it.
RELEASED = "0001"


def unit(name: str) -> dict[str, list[str]]:
    """A unit file's keys, each with all of its values: they may stand there several times."""
    found: dict[str, list[str]] = {}
    for line in (EXAMPLES / "systemd" / name).read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def compose() -> dict[str, Any]:
    """The compose file."""
    found: dict[str, Any] = YAML(typ="safe").load(EXAMPLES / "compose.yaml")
    return found


def variables() -> dict[str, str]:
    """The environment file that both use."""
    lines = (EXAMPLES / "crcr.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


UNITS = sorted(path.name for path in (EXAMPLES / "systemd").iterdir())
SERVICES = compose()["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"].startswith("crcr:")}


def blocks(way: str) -> list[str]:
    """What a reader runs who follows the guide from its top: what is for all, and what is for this way."""
    found = re.findall(r"^( *)```sh\n(.*?)^\1```$", GUIDE, re.MULTILINE | re.DOTALL)
    bodies = [body for _, body in found]
    marks = [re.match(r" *# (systemd|compose)\n", body) for body in bodies]
    return [body for mark, body in zip(marks, bodies, strict=True) if mark is None or mark[1] == way]


def test_every_variable_is_a_setting() -> None:
    """A misspelt one would be ignored in silence. The example of one in JSON is read as it stands in its quotes."""
    known = {f"CRCR_{name.upper()}" for name in Settings.model_fields}
    known |= {f"CRCR_{name.upper()}_FILE" for name in SECRET_FIELDS}
    named, quoted = re.findall(r"(CRCR_\w+)='(.*?)'", (EXAMPLES / "crcr.env").read_text())[0]

    assert set() == {*variables(), named} - known
    assert {"silent": "blocks"} == json.loads(quoted)


def test_every_secret_s_file_is_in_the_guide() -> None:
    """Whoever sets it up makes the files that the table names, and needs no other."""
    named = set(re.findall(r"^ +\| `([\w.-]+)` \|", GUIDE, re.MULTILINE))
    used = {Path(value).name for name, value in variables().items() if name.endswith("_FILE")}

    assert named == used | {Path(secret["file"]).name for secret in compose()["secrets"].values()}


def test_both_ways_read_the_same_settings() -> None:
    """One file, where the guide says that it is."""
    read = {tuple(service["env_file"]) for service in OURS.values()} | {
        tuple(unit(name)["EnvironmentFile"]) for name in UNITS
    }

    assert {("/etc/crcr/crcr.env",)} == read


def test_nobody_is_killed_while_he_finishes() -> None:
    """Leaving takes as long as the settings and the code say; whoever stops the process has to wait for longer."""
    longest = float(variables()["CRCR_DRAIN_SECONDS"]) + UNDER_WAY
    graces = [float(SERVICES[name]["stop_grace_period"].removesuffix("s")) for name in SERVICES if "-" in name]
    graces += [float(unit(name)["TimeoutStopSec"][0]) for name in UNITS if "@" in name]

    assert 6 == len(graces)
    assert longest < min(graces)
    said = f"{FINISHING_SECONDS} s for requests and {DRAIN_SECONDS:.0f} s for work"
    texts = [(EXAMPLES / "compose.yaml").read_text(), *((EXAMPLES / "systemd" / name).read_text() for name in UNITS)]
    assert 3 == sum(said in text for text in texts)
    assert f"({FINISHING_SECONDS} s at most) and the work ({DRAIN_SECONDS:.0f} s at most)" in FLAT


def test_there_are_two_of_each_and_they_start_after_the_migration() -> None:
    """One may die or be rolled at any time; and none starts on a schema of yesterday."""
    commands = [tuple(service["command"]) for service in SERVICES.values() if "serve" in service.get("command", [])]

    assert [2, 2] == [sum(role in command for command in commands) for role in ("web", "worker")]
    for name, service in SERVICES.items():
        if name.startswith(("web", "worker")):
            assert {"migrate": {"condition": "service_completed_successfully"}} == service["depends_on"]
    for name in UNITS:
        if "@" in name:
            assert "crcr-migrate.service" in unit(name)["After"][0].split()


def test_both_ways_start_the_same() -> None:
    """Word for word, but for where each listens: a container on all of its addresses, which are its own."""

    def started_by(name: str) -> list[str]:
        (line,) = unit(name)["ExecStart"]
        return line.replace("%i", "8000").split()[1:]

    for service, name in [
        *((f"{role}-{number}", f"crcr-{role}@.service") for role in ("web", "worker") for number in (1, 2)),
        ("migrate", "crcr-migrate.service"),
    ]:
        command = re.sub(r"--host \S+", "--host 127.0.0.1", shlex.join(SERVICES[service]["command"]))
        assert ["crcr", *started_by(name)] == command.split()


def test_every_process_is_found_at_the_same_port_by_either_way() -> None:
    """The guide and the scraper ask each at one address, and only from the machine itself."""
    shown = {name: service["ports"] for name, service in OURS.items() if "ports" in service}
    started = re.findall(r"crcr-(web|worker)@(\d+)\.service", GUIDE)

    names = {"web": iter(("web-1", "web-2")), "worker": iter(("worker-1", "worker-2"))}
    assert {next(names[role]): [f"127.0.0.1:{port}:8000"] for role, port in sorted(set(started))} == shown
    assert set(PORTS) == {port for _, port in started}
    watched = re.findall(r'"127\.0\.0\.1:(\d+)"', (EXAMPLES / "observability" / "README.md").read_text())
    assert sorted(PORTS) == sorted(watched)


def test_the_database_is_for_the_processes_alone() -> None:
    """The proxy is what strangers reach first, and has no way to it."""
    networks = {name: set(service["networks"]) for name, service in SERVICES.items()}

    assert {"internal": True} == compose()["networks"]["back"]
    assert ({"back"}, {"front"}) == (networks["db"], networks["proxy"])
    assert "ports" not in SERVICES["db"]


def test_every_unit_is_as_closed_as_the_others() -> None:
    """The one that migrates enters the same database with the same secrets."""

    def closed(name: str) -> str:
        return (EXAMPLES / "systemd" / name).read_text().partition("\nNoNewPrivileges")[2]

    assert 1 == len({closed(name) for name in UNITS})
    assert "SystemCallFilter=@system-service" in closed("crcr-migrate.service")


def test_the_proxy_knows_every_process_that_answers() -> None:
    """One that it does not know would be there for nothing; with systemd they are at ports of their own."""
    (members,) = re.findall(r"reverse_proxy (.*) \{", PROXY)

    assert {f"{name}:8000" for name in SERVICES if name.startswith("web")} == set(members.split())
    assert set(re.findall(r"crcr-web@(\d+)", GUIDE)) == set(re.findall(r"127\.0\.0\.1:(\d+)", PROXY))


def test_the_proxy_speaks_for_those_who_are_not_ready() -> None:
    """While the database is away there is nobody behind it, and a caller is told all the same when to come again."""
    (seconds,) = re.findall(r"handle_errors 503 \{\s+header Retry-After (\d+)\n", PROXY)

    assert store_down().retry_after == int(seconds)
    assert "@inside path /metrics /readyz\n\trespond @inside 404\n" in PROXY


def test_the_image_has_what_it_copies() -> None:
    """And installs what the lock says, by its hashes."""
    text = (EXAMPLES / "Dockerfile").read_text()
    copied = [name for line in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE) for name in line.split()]

    assert [] == [name for name in copied if not (ROOT / name).exists()]
    assert {"allowlist", "levels", "relay", "callback_action", "requirements.lock"} <= set(copied)
    assert "--require-hashes -r requirements.lock" in text
    assert re.search(r"^USER \d+:\d+$", text, re.MULTILINE)


def test_the_image_says_of_which_commit_it_is() -> None:
    """Pip notes none of a folder, so it comes in by the build, from the tag that compose gives the image."""
    (argument,) = re.findall(rf"^ENV {COMMIT}=\$(\w+)$", (EXAMPLES / "Dockerfile").read_text(), re.MULTILINE)

    assert ["${CRCR_TAG:-}"] * len(OURS) == [service["build"]["args"][argument] for service in OURS.values()]
    assert {"crcr:${CRCR_TAG:-latest}"} == {service["image"] for service in OURS.values()}
    assert ("abc", None, None) == (
        commit_of(lambda: None, {COMMIT: "abc"}),
        commit_of(lambda: "[]", {COMMIT: ""}),
        commit_of(lambda: None, {}),
    )
    noted = json.dumps({"vcs_info": {"commit_id": "a" * 40}})
    assert "a" * 40 == commit_of(lambda: noted, {COMMIT: "abc"})


def test_both_ways_install_the_same() -> None:
    """What is locked by its hashes, and then ours without asking a registry for anything."""
    flags = [
        set(re.findall(r" (--(?:require|no-deps|no-build)\S*|-r \S+)", text))
        for text in (GUIDE.partition("\n## A deploy")[0], (EXAMPLES / "Dockerfile").read_text())
    ]

    assert flags[0] == flags[1]
    assert {"--require-hashes", "--no-deps", "--no-build-isolation", "-r requirements-build.lock"} <= flags[0]


# --- What the guide says ----------------------------------------------------------------------------------------------


def test_the_guide_leads_to_what_is_there() -> None:
    """Files that its links name."""
    links = {link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", GUIDE)}

    assert set() == {link for link in links if not (EXAMPLES / link).exists()}


def indexes(engine: Engine, tables: list[str]) -> set[tuple[str, str]]:
    """The indexes of these tables, each with its table."""
    with engine.connect() as conn:
        found = inspect(conn)
        return {(table, str(index["name"])) for table in tables for index in found.get_indexes(table)}


def test_the_guide_names_each_migration_that_makes_indexes_of_what_may_be_long(tmp_path: Path) -> None:
    """Whoever chooses the hour of a deploy by it must not be surprised by another."""
    engine = make_engine(f"sqlite:///{tmp_path}/relay.db")
    schema.upgrade(engine, to=RELEASED)
    with engine.connect() as conn:
        tables = inspect(conn).get_table_names()
    made: dict[str, set[str]] = {}
    before = indexes(engine, tables)
    for revision in reversed(schema.revisions()[: schema.revisions().index(RELEASED)]):
        schema.upgrade(engine, to=revision)
        after = indexes(engine, tables)
        if after - before:
            made[revision] = {table for table, _ in after - before}
        before = after
    engine.dispose()
    said = FLAT.partition("of this release ")[2].partition(", about two seconds")[0]

    assert made == {
        revision: set(re.findall(r"`(\w+)`", on)) for revision, on in re.findall(r"(\d{4})([^\d]*)(?=\d{4}|$)", said)
    }


def test_a_pooler_s_role_has_the_times_that_the_pooler_drops() -> None:
    """A process that froze in its turn would otherwise keep all others from writing, for ever."""
    ours = dict(re.findall(r"-c (\w+_timeout)=(\d+)", postgres._WRITING))
    said = dict(re.findall(r"^ALTER ROLE crcr SET (\w+) = '(\d+)s';$", GUIDE, re.MULTILINE))

    assert ours == {name: f"{seconds}000" for name, seconds in said.items()}
    assert 2 == len(said)


def test_a_report_is_tried_for_as_long_as_the_guide_says() -> None:
    """Whoever ends an outage learns from it which results have to be asked for anew."""
    action = YAML(typ="safe").load(ROOT / "callback_action" / "action.yml")

    assert ("60", "false") == tuple(action["inputs"][name]["default"] for name in ("max-time", "fail-on-error"))
    assert "is tried for the action's `max-time`, a minute unless its listener says otherwise" in FLAT


def test_the_log_events_to_watch_are_written_somewhere() -> None:
    """One that is called otherwise by now would be waited for in vain."""
    named = re.findall(r"`([a-z_]+)`", FLAT.partition("and the log events ")[2].partition(", each of which")[0])
    written = "\n".join(path.read_text() for path in (ROOT / "relay").rglob("*.py"))

    assert "secrets_refused" in named
    assert [] == [name for name in named if not re.search(rf'log\.\w+\(\s*"{name}"', written)]


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(300)  # It starts a dozen processes one after another, with a second between two looks.
@pytest.mark.parametrize("way", ["systemd", "compose"])
def test_the_guide_can_be_followed(way: str, tmp_path: Path, postgres_url: str) -> None:
    """From its first line to its last, in one shell: a first start, a deploy, new secrets, a backup and its restore."""
    empty(postgres_url)
    other = {"systemd": "docker compose", "compose": "systemctl"}[way]
    script = "".join(blocks(way))
    with Simulator() as sim, Machine(tmp_path, sim, postgres_url) as machine:
        ran = machine.follow(script)

        assert 0 == ran.returncode, f"{ran.stdout}\n{ran.stderr}\n{machine.logs()}"
        assert other not in script
        # The rotation has left the new secret alone in the file.
        (secret,) = re.findall(r"^\+ NEW=(\S+)$", ran.stderr, re.MULTILINE)
        assert f"{secret}\n" == (machine.etc / "webhook-secrets").read_text()
        assert "restored from " in ran.stdout
